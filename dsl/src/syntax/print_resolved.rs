//! Prints resolved expressions as they were written.

use super::ast::{Arg, AttrType, Domain, Elem, Expr, ExprKind};
use super::print_expr;
use crate::diagnostics::span::{Ident, Span};
use crate::expr::{self, ExprKind as Resolved};
use crate::onnx::{self, Callee};

/// A resolved expression as it is written. Inputs and indices of a meaning are shown by their numbers.
pub fn print_resolved(e: &expr::Expr) -> String {
    print_expr(&written(e))
}

impl std::fmt::Display for expr::Expr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print_resolved(self))
    }
}

fn ident(text: impl Into<String>) -> Ident {
    Ident { text: text.into(), span: Span::default() }
}

fn call(callee: &str, args: Vec<Expr>) -> ExprKind {
    let args =
        args.into_iter().map(|value| Arg { name: None, each: false, pack: false, value }).collect();
    ExprKind::Call { callee: ident(callee), args }
}

fn elems(items: &[expr::Elem]) -> Vec<Elem> {
    let one = |i: &expr::Elem| match i {
        expr::Elem::One(e) => Elem::One(written(e)),
        expr::Elem::Splice(e) => Elem::Splice(written(e)),
    };
    items.iter().map(one).collect()
}

/// The type of an attribute as it is written.
pub(crate) fn written_type(t: &expr::AttrType) -> AttrType {
    let bound = |e: &Option<expr::Expr>| e.as_ref().map(written);
    let range = t.range.as_ref().map(|(low, high)| (bound(low), bound(high)));
    let of = t.of.as_ref().map(|of| ident(&**of));
    AttrType { name: ident(t.kind.word()), of, range, span: t.span }
}

/// A bound on elements as it is written.
pub(crate) fn written_domain(d: &expr::Domain) -> Domain {
    Domain { op: d.op, bound: written(&d.bound) }
}

fn written(e: &expr::Expr) -> Expr {
    let boxed = |e: &expr::Expr| Box::new(written(e));
    let all = |args: &[expr::Expr]| args.iter().map(written).collect();
    let kind = match &e.kind {
        Resolved::Int(v) => ExprKind::Int(*v),
        Resolved::Float(v) => ExprKind::Float(*v),
        Resolved::Str(s) => ExprKind::Str(s.clone()),
        Resolved::Bool(b) => ExprKind::Bool(*b),
        Resolved::DType(d) => ExprKind::Name(d.to_string()),
        Resolved::Name(n) | Resolved::DTypeVar(n) => ExprKind::Name(n.to_string()),
        Resolved::Size(n) => ExprKind::Size(n.to_string()),
        Resolved::Type(part, n) => call(
            part.function().name(),
            vec![Expr { kind: ExprKind::Name(n.to_string()), span: e.span }],
        ),
        Resolved::List(items) => ExprKind::List(elems(items)),
        Resolved::Entry(n, i) => {
            let index = vec![Elem::One(written(i))];
            ExprKind::Index { base: ident(&**n), index, otherwise: None }
        }
        Resolved::Unary(op, a) => ExprKind::Unary(*op, boxed(a)),
        Resolved::Binary(op, a, b) => ExprKind::Binary(*op, boxed(a), boxed(b)),
        Resolved::Call(f, args) => call(f.name(), all(args)),
        Resolved::Test(p, args) => call(p.word(), all(args)),
        Resolved::If { cond, then, otherwise } => {
            ExprKind::If { cond: boxed(cond), then: boxed(then), otherwise: boxed(otherwise) }
        }
        Resolved::Mark(m) => ExprKind::Name(m.word().to_string()),
        Resolved::Index(i) => ExprKind::Name(format!("i{i}")),
        Resolved::Lowest => ExprKind::Name("lowest".to_string()),
        Resolved::Read(r) => ExprKind::Index {
            base: ident(format!("x{}", r.input)),
            index: elems(&r.index),
            otherwise: r.otherwise.as_deref().map(boxed),
        },
        Resolved::Reduce(r) => {
            let axis = |v: &expr::IndexVar| {
                let e = Expr { kind: ExprKind::Name(v.name.to_string()), span: e.span };
                if v.segment { Elem::Splice(e) } else { Elem::One(e) }
            };
            let axes = r.over.iter().map(axis).collect();
            ExprKind::Reduce { monoid: ident(r.monoid.word()), axes, body: boxed(&r.body) }
        }
        Resolved::Ask(q, args) => call(&q.to_string(), all(args)),
        Resolved::Tuple(args) => ExprKind::Tuple(all(args)),
        Resolved::Apply(a) => {
            let (callee, first) = match &a.callee {
                Callee::Split => ("split", None),
                Callee::Fold(operator) => ("fold", Some(operator)),
                Callee::Scalar => ("scalar", None),
                Callee::Unsupported => ("unsupported", None),
                Callee::Operator(name, ..) => (&**name, None),
            };
            let operator =
                first.map(|n| Expr { kind: ExprKind::Name(n.to_string()), span: e.span });
            let operator =
                operator.map(|value| Arg { name: None, each: false, pack: false, value });
            let arg = |a: &onnx::Arg| {
                let name = a.name.as_ref().map(|n| ident(&**n));
                Arg { name, each: false, pack: false, value: written(&a.value) }
            };
            let args = operator.into_iter().chain(a.args.iter().map(arg)).collect();
            ExprKind::Call { callee: ident(callee), args }
        }
    };
    Expr { kind, span: e.span }
}
