//! Expressions of an `architecture` item, part by part.

use super::{ArchitectureReading, Fault, Operand};
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, Name, TypePart};
use mlc_dsl::ir::{Attr, Extent, Value};
use mlc_dsl::onnx::NodeQuery;
use mlc_dsl::shown;

impl ArchitectureReading<'_> {
    pub(crate) fn expr(&mut self, e: &Expr) -> Result<Operand, Fault> {
        match &e.kind {
            ExprKind::Name(n) => match self.values.get(n) {
                Some(value) => Ok(value.clone()),
                None => Err(self.fault(e, format!("`{n}` has no value here"), "name it above")),
            },
            ExprKind::Str(text) => self.filled(text, e).map(|t| Operand::Attr(Attr::Str(t))),
            ExprKind::If { cond, then, otherwise } => match self.truth(cond)? {
                true => self.expr(then),
                false => self.expr(otherwise),
            },
            ExprKind::Tuple(parts) => {
                let parts = parts.iter().map(|p| self.expr(p));
                parts.collect::<Result<_, _>>().map(Operand::Tuple)
            }
            ExprKind::Apply(call) => self.call(call, e),
            ExprKind::Ask(NodeQuery::Present, args) => self.present(args, e),
            ExprKind::Type(part, n) => {
                let named = Expr { kind: ExprKind::Name(n.clone()), span: e.span };
                self.type_part(*part, &named)
            }
            ExprKind::Call(f, args) => match (TypePart::of(*f), args.as_slice()) {
                (Some(part), [of]) => self.type_part(part, of),
                _ => self.computed(e),
            },
            ExprKind::Entry(n, i) => match self.values.get(n).cloned() {
                Some(Operand::Tuple(parts)) => {
                    let i = self.integer(i)?;
                    let part = usize::try_from(i).ok().and_then(|i| parts.into_iter().nth(i));
                    part.ok_or_else(|| self.fault(e, format!("`{n}` has no entry {i}"), ""))
                }
                _ => self.computed(e),
            },
            _ => self.computed(e),
        }
    }

    /// An expression of attributes: its parts are settled, then it is evaluated.
    fn computed(&mut self, e: &Expr) -> Result<Operand, Fault> {
        if let ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) = &e.kind {
            // The right side may only have a value where the left does not decide.
            let decided = *op == BinaryOp::Or;
            let value = if self.truth(a)? == decided { decided } else { self.truth(b)? };
            return Ok(Operand::Attr(Attr::Bool(value)));
        }
        let mut env = Env::default();
        if let ExprKind::Entry(n, _) = &e.kind
            && let Some(Operand::Attr(list)) = self.values.get(n)
        {
            env.bind_attr(n, list.clone());
        }
        let mut failed = None;
        let settled = e.map(&mut |part| {
            let value = match &failed {
                None => self.attr(part).map_err(|fault| failed = Some(fault)).ok(),
                Some(_) => None,
            };
            let Some(value) = value else { return part.clone() };
            let name = Name::from(format!("#{}", env.mark()[2]));
            env.bind_attr(&name, value);
            Expr { kind: ExprKind::Name(name), span: part.span }
        });
        if let Some(fault) = failed {
            return Err(fault);
        }
        let value = eval(&settled, &env);
        value
            .map(Operand::Attr)
            .map_err(|error| self.fault(e, error.to_string(), "the manual lists what is computed"))
    }

    pub(crate) fn attr(&mut self, e: &Expr) -> Result<Attr, Fault> {
        match self.expr(e)? {
            Operand::Attr(a) => Ok(a),
            Operand::Tensor(_) | Operand::Tuple(_) => {
                let help = "tensors are computed with by operators: apply one, or a `def`";
                Err(self.fault(e, "a tensor stands where a number or a list is needed", help))
            }
        }
    }

    pub(crate) fn truth(&mut self, e: &Expr) -> Result<bool, Fault> {
        match self.attr(e)? {
            Attr::Bool(b) => Ok(b),
            other => Err(self.fault(e, format!("{other} is no truth value"), "compare it")),
        }
    }

    pub(crate) fn integer(&mut self, e: &Expr) -> Result<i64, Fault> {
        let value = self.attr(e)?;
        value.as_i64().ok_or_else(|| {
            self.fault(e, format!("{value} is no known integer"), "give a number without symbols")
        })
    }

    pub(crate) fn shape(&mut self, e: &Expr) -> Result<Vec<Extent>, Fault> {
        match self.attr(e)? {
            Attr::Ints(shape) => Ok(shape),
            other => {
                let message = format!("{other} is no list of extents");
                Err(self.fault(e, message, "a shape is a list: `[rows, columns]`"))
            }
        }
    }

    pub(crate) fn tensor(&mut self, e: &Expr) -> Result<Value, Fault> {
        match self.expr(e)? {
            Operand::Tensor(v) => Ok(v),
            Operand::Attr(_) | Operand::Tuple(_) => {
                let message = "this is no tensor";
                Err(self.fault(e, message, "read one with `tensor`, or apply an operator"))
            }
        }
    }

    pub(crate) fn text(&mut self, e: &Expr) -> Result<String, Fault> {
        match self.attr(e)? {
            Attr::Str(text) => Ok(text),
            other => Err(self.fault(e, format!("{other} is no name"), "names stand in quotes")),
        }
    }

    /// A text with the values of the names that it has in braces.
    pub(crate) fn filled(&self, text: &str, at: &Expr) -> Result<String, Fault> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let Some((name, behind)) = behind.split_once('}') else {
                return Err(self.fault(at, "a brace is never closed", "write `{i}`"));
            };
            let value = match self.values.get(name) {
                Some(Operand::Attr(Attr::Str(text))) => text.clone(),
                Some(Operand::Attr(Attr::Int(n))) => n.to_string(),
                _ => {
                    let message = format!("`{}` is no number and no word here", shown(name));
                    return Err(self.fault(at, message, "name it by `let` or `each` above"));
                }
            };
            out += before;
            out += &value;
            rest = behind;
        }
        Ok(out + rest)
    }

    /// What the type of a tensor says; of a name, of the stored tensor that is called so.
    fn type_part(&mut self, part: TypePart, of: &Expr) -> Result<Operand, Fault> {
        let ty = match self.expr(of)? {
            Operand::Tensor(v) => self.builder.ty(v).clone(),
            Operand::Attr(Attr::Str(name)) => self.stored_type(&name)?,
            Operand::Attr(_) | Operand::Tuple(_) => {
                return Err(self.fault(of, "this is no tensor", "name one, or a stored tensor"));
            }
        };
        Ok(Operand::Attr(match part {
            TypePart::Rank => Attr::Int(Extent::from(ty.rank())),
            TypePart::Shape => Attr::Ints(ty.shape),
            TypePart::DType => Attr::DType(ty.dtype),
        }))
    }

    /// Whether the file has a tensor or a key of a name.
    fn present(&mut self, args: &[Expr], at: &Expr) -> Result<Operand, Fault> {
        let [name] = args else {
            return Err(self.fault(at, "`present` takes one name", "ask `present(\"name\")`"));
        };
        let name = self.text(name)?;
        let is = self.file.tensors.contains_key(&name) || self.file.metadata.contains_key(&name);
        Ok(Operand::Attr(Attr::Bool(is)))
    }
}
