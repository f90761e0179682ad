//! Calls of one `onnx` item from the expression of another.
//!
//! Queries about a node's results always refer to the node being imported, also within a called item.

use super::bind;
use super::bind::{BoundInput, BoundParams};
use super::expression::{ExprValue, OnnxItemInterpreter};
use mlc_dsl::expr::Expr;
use mlc_dsl::ir::{Attr, Value};
use mlc_dsl::library::{Library, OnnxItem};
use mlc_dsl::onnx::{Arg, Kind, Param, ParamKind};
use std::collections::HashMap;

impl<'a> OnnxItemInterpreter<'_, 'a> {
    /// The newest other item of this name: in the item's own domain, else in ONNX's, else in any.
    pub(crate) fn other_item(&self, name: &str) -> Option<&'a OnnxItem> {
        let library: &'a Library = self.draft.library();
        let newest = |is: &dyn Fn(&str) -> bool| {
            let of = |i: &&OnnxItem| {
                *i.name == *name && is(&i.decl.domain) && !std::ptr::eq(*i, self.item)
            };
            library.onnx.iter().filter(of).max_by_key(|i| i.decl.since)
        };
        let own = newest(&|d| d == self.item.decl.domain);
        own.or_else(|| newest(&str::is_empty)).or_else(|| newest(&|_| true))
    }

    /// What an item reads from these arguments.
    pub(crate) fn read_called_item(
        &mut self,
        item: &'a OnnxItem,
        args: &[Arg],
    ) -> Result<ExprValue, String> {
        self.draft.begin_call()?;
        let bound = self.passed(item, args)?;
        let (node, depth) = (self.node, self.depth);
        let callee = OnnxItemInterpreter::new(item, node, bound, self.draft).at_depth(depth);
        let result = |v: Option<Value>| v.map_or(ExprValue::Absent, ExprValue::Tensor);
        let mut results: Vec<ExprValue> = callee.read()?.into_iter().map(result).collect();
        Ok(match results.as_slice() {
            [_] => results.remove(0),
            _ => ExprValue::Tuple(results),
        })
    }

    /// The names of the called item. Arguments without a name are its inputs in order.
    fn passed(&mut self, item: &OnnxItem, args: &[Arg]) -> Result<BoundParams, String> {
        let params = &item.decl.params;
        let is_input = |p: &&Param| !matches!(p.kind, ParamKind::Attr(_));
        let inputs: Vec<&Param> = params.iter().filter(is_input).collect();
        let mut given: HashMap<&str, Vec<&Expr>> = HashMap::new();
        let mut place = 0;
        for arg in args {
            let param = match &arg.name {
                Some(n) => params
                    .iter()
                    .find(|p| p.name == *n)
                    .ok_or_else(|| format!("`{}` has no input or attribute `{n}`", item.name))?,
                None => *inputs
                    .get(place)
                    .ok_or_else(|| format!("`{}` takes {} inputs", item.name, inputs.len()))?,
            };
            let variadic = matches!(param.kind, ParamKind::Tensor { variadic: true, .. });
            place += usize::from(arg.name.is_none() && !variadic);
            if !self.is_left_out(&arg.value) {
                given.entry(&*param.name).or_default().push(&arg.value);
            }
        }
        let mut bound = BoundParams::default();
        for p in params {
            let given = given.remove(&*p.name).unwrap_or_default();
            self.pass(p, &given, &mut bound).map_err(|e| format!("{e} of `{}`", item.name))?;
        }
        Ok(bound)
    }

    /// True of the name of an input or attribute that the node leaves out: the called item has none either.
    fn is_left_out(&self, e: &Expr) -> bool {
        let input = e.as_name().and_then(|n| self.inputs.get(n));
        matches!(input, Some(BoundInput::Absent | BoundInput::Unset))
    }

    fn pass(&mut self, p: &Param, given: &[&Expr], bound: &mut BoundParams) -> Result<(), String> {
        let name = p.name.clone();
        if matches!(p.kind, ParamKind::Tensor { variadic: true, .. }) {
            let mut all = vec![];
            for e in given {
                match self.expr(e)? {
                    ExprValue::Tuple(items) => all.extend(items),
                    one => all.push(one),
                }
            }
            let tensor = |i| match i {
                ExprValue::Tensor(v) => Ok(v),
                ExprValue::Attr(_) | ExprValue::Tuple(_) | ExprValue::Absent => {
                    Err(format!("the input `{name}` takes tensors"))
                }
            };
            let all = all.into_iter().map(tensor).collect::<Result<_, _>>()?;
            bound.inputs.insert(name.clone(), BoundInput::Many(all));
            return Ok(());
        }
        let (optional, kind) = match p.kind {
            ParamKind::Tensor { optional, .. } => (optional, None),
            ParamKind::Attr(Kind::Tensor) => (true, None),
            ParamKind::ConstInput { optional, kind } => (optional, Some(kind)),
            ParamKind::Attr(kind) => (true, Some(kind)),
        };
        let value = match given {
            [] => ExprValue::Absent,
            [e] => self.expr(e)?,
            _ => return Err(format!("two values are given for `{name}`")),
        };
        match (value, kind) {
            (ExprValue::Tensor(v), None) => {
                bound.env.bind_tensor(&name, self.draft.builder.ty(v).clone());
                bound.inputs.insert(name, BoundInput::One(v));
            }
            (ExprValue::Tensor(v), Some(kind)) => {
                let a = bind::constant(self.draft, v, kind)
                    .map_err(|e| format!("the input `{name}` {e}"))?;
                bound.env.bind_attr(&name, a);
            }
            (ExprValue::Attr(a), Some(kind)) => {
                // One number, one spelling.
                let float = kind == Kind::Float && matches!(a, Attr::Int(_));
                let a = if float { a.as_f64().map_or(a, Attr::float) } else { a };
                bound.env.bind_attr(&name, a);
            }
            (ExprValue::Absent, None) if optional => {
                drop(bound.inputs.insert(name, BoundInput::Absent))
            }
            (ExprValue::Absent, Some(_)) if optional => bind::leave_out(p, bound),
            (ExprValue::Absent, _) => return Err(format!("the input `{name}` is missing")),
            (ExprValue::Attr(_), None) => return Err(format!("the input `{name}` takes a tensor")),
            (ExprValue::Tuple(_), _) => return Err(format!("`{name}` takes one value")),
        }
        Ok(())
    }
}
