//! Interprets the expression of an `onnx` item at one node.
//!
//! Positional, without named axes: a name is an input, an attribute or a `let`. An expression without tensors
//! is an attribute expression of the language; `present(b)`, `known(x)`, `number(x)`, `elements(x)`,
//! `count(xs)`, `results()` and `wanted(i)` are evaluated here and substituted as values.

use super::apply::{ImportBuilder, ImportOperand};
use super::bind;
use super::bind::{BoundInput, BoundParams};
use crate::raw::RawNode;
use mlc_dsl::eval::{Env, EvalError, eval, truth};
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, TypePart, UnaryOp};
use mlc_dsl::ir::{Attr, Extent, Value};
use mlc_dsl::library::{Name, OnnxItem};
use mlc_dsl::onnx::{Callee, NodeQuery};
use std::cell::RefCell;
use std::collections::HashMap;

/// What an expression is.
#[derive(Clone, Debug)]
pub(crate) enum ExprValue {
    /// A tensor.
    Tensor(Value),
    /// A number, a word, a list, …
    Attr(Attr),
    /// Several of these.
    Tuple(Vec<ExprValue>),
    /// An input that is not given.
    Absent,
}

/// Expressions nest at most this deep, `let`s followed.
const MAX_DEPTH: usize = 128;

/// Reads one node.
pub(crate) struct OnnxItemInterpreter<'r, 'a> {
    pub(crate) item: &'r OnnxItem,
    pub(crate) node: &'r RawNode,
    pub(crate) inputs: HashMap<Name, BoundInput>,
    env: Env,
    /// The program being written.
    pub(crate) draft: &'r mut ImportBuilder<'a>,
    /// Which `let`s are tensors.
    kinds: RefCell<HashMap<Name, bool>>,
    lets: HashMap<Name, Result<ExprValue, String>>,
    fresh: usize,
    pub(crate) depth: usize,
}

impl<'r, 'a> OnnxItemInterpreter<'r, 'a> {
    /// A reader of `node` by `item`.
    pub fn new(
        item: &'r OnnxItem,
        node: &'r RawNode,
        bound: BoundParams,
        draft: &'r mut ImportBuilder<'a>,
    ) -> Self {
        let BoundParams { inputs, env } = bound;
        let (lets, kinds) = (HashMap::new(), RefCell::default());
        OnnxItemInterpreter { item, node, inputs, env, draft, kinds, lets, fresh: 0, depth: 0 }
    }

    /// The same where expressions are nested already.
    pub fn at_depth(self, depth: usize) -> Self {
        OnnxItemInterpreter { depth, ..self }
    }

    /// The outputs, as far as the item yields them.
    pub fn read(mut self) -> Result<Vec<Option<Value>>, String> {
        let item = self.item;
        for alternative in &item.decl.reads {
            let mut holds = true;
            for c in &alternative.conditions {
                holds = holds && self.condition(c)? == Some(true);
            }
            if holds {
                let result = self.expr(&alternative.value)?;
                return self.outputs(result);
            }
        }
        let known: Vec<String> = item
            .decl
            .reads
            .iter()
            .map(|a| a.conditions.iter().map(Expr::to_string).collect::<Vec<_>>().join(" and "))
            .collect();
        Err(match known.is_empty() {
            true => "this operator is only written, never read".into(),
            false => {
                let uses = known.join("; or ");
                self.draft.unsupported(format!("this use is not supported; supported are: {uses}"))
            }
        })
    }

    fn outputs(&mut self, item: ExprValue) -> Result<Vec<Option<Value>>, String> {
        match item {
            ExprValue::Tensor(v) => Ok(vec![Some(v)]),
            ExprValue::Tuple(items) => items
                .into_iter()
                .map(|i| match i {
                    ExprValue::Tensor(v) => Ok(Some(v)),
                    ExprValue::Absent => Ok(None),
                    ExprValue::Attr(_) | ExprValue::Tuple(_) => {
                        Err("an output is no tensor".into())
                    }
                })
                .collect(),
            ExprValue::Attr(_) | ExprValue::Absent => Err("the result is no tensor".into()),
        }
    }

    fn condition(&mut self, c: &Expr) -> Result<Option<bool>, String> {
        let c = self.settle(c)?;
        truth(&c, &self.env).map_err(|e| self.explain(e))
    }

    pub(crate) fn attr(&mut self, e: &Expr) -> Result<Attr, String> {
        let e = self.settle(e)?;
        eval(&e, &self.env).map_err(|e| self.explain(e))
    }

    /// An unbound name may be a `let` that failed, or an input that is not given.
    fn explain(&mut self, e: EvalError) -> String {
        if let EvalError::Unbound(n) = &e {
            if let Some(Err(reason)) = self.lets.get(n.as_str()) {
                return reason.clone();
            }
            if let Some(BoundInput::Absent | BoundInput::Unset) = self.inputs.get(n.as_str()) {
                return format!("`{n}` is not given");
            }
        }
        match e {
            EvalError::Symbolic(reason) => self.draft.symbolic(reason),
            EvalError::Apart(extents) => self.draft.apart(&extents.0, &extents.1),
            other => other.to_string(),
        }
    }

    /// True if the expression is a tensor (or several), not an attribute.
    fn is_tensor(&self, e: &Expr, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        let tensor = |e: &Expr| self.is_tensor(e, depth + 1);
        match &e.kind {
            ExprKind::Name(n) => match self.binding(n) {
                Some((names, value)) => {
                    let known = self.kinds.borrow().get(n).copied();
                    known.unwrap_or_else(|| {
                        let is = names.len() > 1 || tensor(value);
                        self.kinds.borrow_mut().insert(n.clone(), is);
                        is
                    })
                }
                None => match self.inputs.get(n) {
                    Some(BoundInput::One(_) | BoundInput::Many(_)) => true,
                    Some(BoundInput::Absent) => true,
                    Some(BoundInput::Unset) | None => false,
                },
            },
            ExprKind::Unary(_, a) => tensor(a),
            ExprKind::Binary(_, a, b) => tensor(a) || tensor(b),
            ExprKind::If { then, otherwise, .. } => tensor(then) || tensor(otherwise),
            ExprKind::Entry(base, _) => tensor(&named(base)),
            ExprKind::Tuple(_) => true,
            ExprKind::Apply(a) => match a.callee {
                Callee::Operator(_, _, Some(_)) => a.args.iter().any(|a| tensor(&a.value)),
                _ => true,
            },
            _ => false,
        }
    }

    /// The `let` that declares a name.
    fn binding(&self, name: &Name) -> Option<(&'r [Name], &'r Expr)> {
        let item: &'r OnnxItem = self.item;
        let (names, value) = item.decl.lets.iter().rev().find(|(names, _)| names.contains(name))?;
        Some((names, value))
    }

    /// Computes a `let` when it is first needed.
    fn force(&mut self, name: &Name) -> Option<Result<ExprValue, String>> {
        if let Some(done) = self.lets.get(name) {
            return Some(done.clone());
        }
        let (names, value) = self.binding(name)?;
        let result = match names {
            [_] => vec![self.expr(value)],
            _ => match self.expr(value) {
                Ok(ExprValue::Tuple(items)) if items.len() >= names.len() => {
                    items.into_iter().map(Ok).collect()
                }
                Ok(_) => vec![Err("too few values to take apart".to_string()); names.len()],
                Err(e) => vec![Err(e); names.len()],
            },
        };
        for (n, r) in names.iter().zip(result) {
            match &r {
                Ok(ExprValue::Tensor(v)) => {
                    let ty = self.draft.builder.ty(*v).clone();
                    self.env.bind_tensor(n, ty);
                }
                Ok(ExprValue::Attr(a)) => drop(self.env.bind_attr(n, a.clone())),
                _ => {}
            }
            self.lets.insert(n.clone(), r);
        }
        self.lets.get(name).cloned()
    }

    /// The expression with every question answered and every `let` in it computed.
    fn settle(&mut self, e: &Expr) -> Result<Expr, String> {
        // The right side may only have a value where the left does not decide.
        if let ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, _) = &e.kind
            && self.condition(a)? == Some(*op == BinaryOp::Or)
        {
            return Ok(Expr { kind: ExprKind::Bool(*op == BinaryOp::Or), span: e.span });
        }
        match &e.kind {
            ExprKind::Name(n) => drop(self.force(n)),
            ExprKind::Entry(n, i) => {
                let i = Box::new(self.settle(i)?);
                self.force(n);
                return Ok(Expr { kind: ExprKind::Entry(n.clone(), i), span: e.span });
            }
            ExprKind::Type(_, n) if self.env.tensor(n).is_some() => return Ok(e.clone()),
            ExprKind::Type(part, n) => match self.type_of(*part, &named(n))? {
                Some(a) => return Ok(self.literal(a, e)),
                None => drop(self.force(n)),
            },
            ExprKind::Call(f, args) => {
                if let (Some(part), [of]) = (TypePart::of(*f), args.as_slice())
                    && let Some(a) = self.type_of(part, of)?
                {
                    return Ok(self.literal(a, e));
                }
            }
            ExprKind::Ask(question, args) => {
                let a = self.question(*question, args)?;
                return Ok(self.literal(a, e));
            }
            ExprKind::If { cond, then, otherwise } => {
                // Only the branch taken needs a value.
                return match self.condition(cond)? {
                    Some(true) => self.settle(then),
                    Some(false) => self.settle(otherwise),
                    None => {
                        Err(self.draft.symbolic("a condition depends on symbolic extents".into()))
                    }
                };
            }
            ExprKind::Tuple(_) => return Ok(e.clone()),
            _ => {}
        }
        let mut failed: Option<String> = None;
        let out = e.map(&mut |part| match &failed {
            None => self.settle(part).unwrap_or_else(|reason| {
                failed = Some(reason);
                part.clone()
            }),
            Some(_) => part.clone(),
        });
        failed.map_or(Ok(out), Err)
    }

    /// What the type of a computed tensor says; `None` of what is no tensor.
    fn type_of(&mut self, part: TypePart, of: &Expr) -> Result<Option<Attr>, String> {
        if !self.is_tensor(of, 0) {
            return Ok(None);
        }
        let v = self.tensor(of)?;
        let ty = self.draft.builder.ty(v).clone();
        Ok(Some(match part {
            TypePart::Rank => Attr::Int(Extent::from(ty.rank())),
            TypePart::Shape => Attr::Ints(ty.shape),
            TypePart::DType => Attr::DType(ty.dtype),
        }))
    }

    /// A name that stands for a value.
    fn literal(&mut self, a: Attr, at: &Expr) -> Expr {
        self.fresh += 1;
        let name = Name::from(format!("#{}", self.fresh));
        self.env.bind_attr(&name, a);
        Expr { kind: ExprKind::Name(name), span: at.span }
    }

    fn question(&mut self, asked: NodeQuery, args: &[Expr]) -> Result<Attr, String> {
        let arg = args.first();
        let input = arg.and_then(Expr::as_name).and_then(|n| self.inputs.get(n).cloned());
        let wrong = || format!("`{asked}` takes an input");
        Ok(match (asked, arg) {
            (NodeQuery::Results, None) => Attr::Int(Extent::from(self.node.outputs.len())),
            (NodeQuery::Wanted, Some(i)) => {
                let i = self
                    .attr(i)?
                    .as_i64()
                    .and_then(|i| usize::try_from(i).ok())
                    .ok_or_else(wrong)?;
                Attr::Bool(self.node.outputs.get(i).is_some_and(|o| !o.is_empty()))
            }
            (NodeQuery::Present, Some(e)) => Attr::Bool(match (&input, &e.kind) {
                (Some(BoundInput::Absent | BoundInput::Unset), _) => false,
                (Some(BoundInput::One(_) | BoundInput::Many(_)), _) => true,
                (None, ExprKind::Name(n)) => self.env.attr(n).is_some(),
                (None, _) => return Err(wrong()),
            }),
            (NodeQuery::Count, Some(_)) => match input {
                Some(BoundInput::Many(v)) => Attr::Int(Extent::from(v.len())),
                _ => return Err(wrong()),
            },
            (NodeQuery::Known, Some(e)) => match input {
                Some(BoundInput::Absent | BoundInput::Unset) => Attr::Bool(false),
                _ => {
                    let v = self.tensor(e)?;
                    Attr::Bool(self.draft.known_or_asked(v).is_some_and(|k| k.is_exact()))
                }
            },
            (NodeQuery::Constant, Some(e)) => {
                let v = self.tensor(e)?;
                Attr::Bool(self.draft.is_const(v))
            }
            (NodeQuery::Nonzero, Some(e)) => {
                let a = self.attr(e)?;
                let extents = a.as_entries().ok_or_else(wrong)?;
                extents.iter().for_each(|e| self.draft.positive.add(e));
                Attr::Bool(!extents.iter().any(|e| e.is(0)))
            }
            (NodeQuery::Number, Some(e)) => {
                let v = self.tensor(e)?;
                let n = bind::number(self.draft, v);
                Attr::float(n.ok_or("a number that it needs is not known before the model runs")?)
            }
            (NodeQuery::Elements, Some(e)) => {
                let v = self.tensor(e)?;
                let v = bind::integers(self.draft, v);
                Attr::Ints(v.ok_or("integers that it needs are not known before the model runs")?)
            }
            _ => return Err(wrong()),
        })
    }

    pub(crate) fn tensor(&mut self, e: &Expr) -> Result<Value, String> {
        match self.expr(e)? {
            ExprValue::Tensor(v) => Ok(v),
            ExprValue::Absent => Err(format!("`{}` is not given", e)),
            ExprValue::Attr(_) | ExprValue::Tuple(_) => Err(format!("`{}` is no tensor", e)),
        }
    }

    pub(crate) fn expr(&mut self, e: &Expr) -> Result<ExprValue, String> {
        if self.depth > MAX_DEPTH {
            return Err("its declaration is nested too deeply, or in a circle".into());
        }
        self.depth += 1;
        let result = if self.is_tensor(e, 0) {
            self.tensor_expr(e)
        } else {
            self.attr(e).map(ExprValue::Attr)
        };
        self.depth -= 1;
        result
    }

    fn tensor_expr(&mut self, e: &Expr) -> Result<ExprValue, String> {
        match &e.kind {
            ExprKind::Name(n) => match self.force(n) {
                Some(done) => done,
                None => match self.inputs.get(n) {
                    Some(BoundInput::One(v)) => Ok(ExprValue::Tensor(*v)),
                    Some(BoundInput::Many(v)) => {
                        Ok(ExprValue::Tuple(v.iter().map(|&v| ExprValue::Tensor(v)).collect()))
                    }
                    Some(BoundInput::Absent | BoundInput::Unset) => Ok(ExprValue::Absent),
                    None => Err(format!("`{n}` is not bound")),
                },
            },
            ExprKind::Unary(op, a) => {
                let a = self.operand(a)?;
                self.apply(op.operator(), vec![a], &[])
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.operand(a)?, self.operand(b)?);
                let (name, swapped) = op.operator();
                let args = if swapped { vec![b, a] } else { vec![a, b] };
                let result = self.apply(name, args, &[])?;
                match (op, result) {
                    (BinaryOp::Ne, ExprValue::Tensor(v)) => {
                        self.apply(UnaryOp::Not.operator(), vec![ImportOperand::Value(v)], &[])
                    }
                    (_, result) => Ok(result),
                }
            }
            ExprKind::If { cond, then, otherwise } => match self.condition(cond)? {
                Some(true) => self.expr(then),
                Some(false) => self.expr(otherwise),
                None => Err(self.draft.symbolic("a condition depends on symbolic extents".into())),
            },
            ExprKind::Entry(base, i) => {
                let i = self.attr(i)?.as_i64();
                let ExprValue::Tuple(items) = self.expr(&named(base))? else {
                    return Err(format!("`{base}` is no list of tensors"));
                };
                let item =
                    i.and_then(|i| usize::try_from(i).ok()).and_then(|i| items.into_iter().nth(i));
                item.ok_or_else(|| format!("`{base}` has too few entries"))
            }
            ExprKind::Tuple(items) => {
                Ok(ExprValue::Tuple(items.iter().map(|e| self.expr(e)).collect::<Result<_, _>>()?))
            }
            ExprKind::Apply(call) => self.call(call),
            _ => Err(format!("`{}` is no tensor", e)),
        }
    }

    pub(crate) fn operand(&mut self, e: &Expr) -> Result<ImportOperand, String> {
        match self.expr(e)? {
            ExprValue::Tensor(v) => Ok(ImportOperand::Value(v)),
            ExprValue::Attr(a) => Ok(ImportOperand::Number(a)),
            ExprValue::Absent => Err(format!("`{}` is not given", e)),
            ExprValue::Tuple(_) => Err(format!("`{}` is not one tensor", e)),
        }
    }

    pub(crate) fn apply(
        &mut self,
        name: &str,
        args: Vec<ImportOperand>,
        attrs: &[Option<Attr>],
    ) -> Result<ExprValue, String> {
        let id = self.find(name)?;
        let values = self.draft.call(id, args, attrs)?;
        Ok(match values.as_slice() {
            [v] => ExprValue::Tensor(*v),
            _ => ExprValue::Tuple(values.into_iter().map(ExprValue::Tensor).collect()),
        })
    }
}

/// The expression that a name is.
fn named(n: &Name) -> Expr {
    Expr::new(ExprKind::Name(n.clone()))
}
