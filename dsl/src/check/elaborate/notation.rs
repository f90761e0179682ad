//! Special notation: transposition by naming axes, reductions, `split`, `part`, folds
//! over a family.

use super::apply::axis_index;
use super::dims::{self, Origin};
use super::{ElaboratedOperand, Elaborator};
use crate::diagnostics::span::{Ident, Span};
use crate::eval::functions::Function;
use crate::expr::{self, BinaryOp};
use crate::library::{CallId, Dim, Name};
use crate::syntax::ast::{Elem, Expr, ExprKind};
use crate::term::{Term, TermId, TermKind};

impl Elaborator<'_> {
    /// `x[..h, n, m]`: the axes of `x` in that order.
    pub(crate) fn reorder(
        &mut self,
        base: &Expr,
        index: &[Elem],
        span: Span,
    ) -> Option<ElaboratedOperand> {
        let t = self.term(base)?;
        let of = match &base.kind {
            ExprKind::Name(name) => format!("`{name}`"),
            _ => "the term".into(),
        };
        let (t, own) = self.named(t, index);
        let mut order = Vec::new();
        for item in index {
            let (d, e) = match item {
                Elem::One(e @ Expr { kind: ExprKind::Name(n), .. }) => {
                    (Dim::Axis(Name::from(n.as_str())), e)
                }
                Elem::Splice(e @ Expr { kind: ExprKind::Name(n), .. }) => {
                    (Dim::Seg(Name::from(n.as_str())), e)
                }
                Elem::One(e) | Elem::Splice(e) => {
                    return self.error(
                        "R011",
                        e.span,
                        "only names of axes reorder a tensor".into(),
                        "use `slice` or `gather` to take elements",
                    );
                }
            };
            let Some(i) = dims::find(&own, &d) else {
                let message = format!("{of} has no axis `{}`", dims::key(&d));
                let help = format!("its axes are {}", dims::shown(&own));
                return self.error("R004", e.span, message, &help);
            };
            order.push(i);
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != (0..own.len()).collect::<Vec<_>>() {
            let help = format!("its axes are {}", dims::shown(&own));
            let message = format!("every axis of {of} must be named once");
            return self.error("R004", span, message, &help);
        }
        if order.is_sorted() {
            return Some(ElaboratedOperand::Term(t));
        }
        Some(ElaboratedOperand::Term(self.transpose(t, &order, span)))
    }

    /// `t` with the names that an index gives to its computed axes, which have none of their own:
    /// of `let r = concat(a, b, axis=-1)`, `r[..h, n]` names the last axis `n`.
    fn named(&mut self, t: TermId, index: &[Elem]) -> (TermId, Vec<Dim>) {
        let own = self.dims(t);
        if index.len() != own.len() {
            return (t, own);
        }
        let mut named = own.clone();
        for (d, item) in named.iter_mut().zip(index) {
            let nameless = dims::bears_no_name(d);
            let given = match (&*d, item) {
                (Dim::Axis(_) | Dim::Value(_), Elem::One(Expr { kind: ExprKind::Name(n), .. })) => {
                    Dim::Axis(Name::from(n.as_str()))
                }
                (
                    Dim::Seg(_) | Dim::Splice(_),
                    Elem::Splice(Expr { kind: ExprKind::Name(n), .. }),
                ) => Dim::Seg(Name::from(n.as_str())),
                _ => continue,
            };
            if nameless && dims::find(&own, &given).is_none() {
                *d = given;
            }
        }
        if own == named {
            return (t, own);
        }
        let term = Term { dims: Some(named.clone()), ..self.terms.get(t).clone() };
        (self.terms.push(term), named)
    }

    pub(crate) fn reduce(
        &mut self,
        monoid: &Ident,
        axes: &[Elem],
        body: &Expr,
        span: Span,
    ) -> Option<ElaboratedOperand> {
        let t = self.term(body)?;
        let own = self.dims(t);
        let mut at = Vec::new();
        for item in axes {
            let (Elem::One(e) | Elem::Splice(e)) = item;
            let ExprKind::Name(n) = &e.kind else {
                let help = format!("its axes are {}", dims::shown(&own));
                return self.error("R004", e.span, "expected the name of an axis".into(), &help);
            };
            let name = Name::from(n.as_str());
            let d = match item {
                Elem::One(_) => Dim::Axis(name),
                Elem::Splice(_) => Dim::Seg(name),
            };
            match dims::find(&own, &d) {
                Some(i) => at.push(i),
                None => {
                    let message = format!("axis `{}` is unknown here", dims::key(&d));
                    let help = format!("the axes are {}", dims::shown(&own));
                    return self.error("R004", e.span, message, &help);
                }
            }
        }
        at.sort_unstable();
        at.dedup();
        let list = dims::positions_of(&own, &at, span);
        let rest = own.iter().enumerate().filter(|(i, _)| !at.contains(i));
        let rest = rest.map(|(_, d)| d.clone()).collect();
        if self.library.find(&monoid.text).is_none() {
            let message = format!("the reduction `{}` is not declared", monoid.text);
            return self.error("R003", monoid.span, message, "read `rules/ops/reduce.rules` first");
        }
        Some(ElaboratedOperand::Term(self.structural(&monoid.text, t, vec![list], rest, span)))
    }

    /// `split(x, axis=…, sizes=[…])` or `split(x, axis=…, parts=n)`: slices of `x` along one axis.
    pub(crate) fn split(
        &mut self,
        operands: Vec<ElaboratedOperand>,
        named: &[(&Ident, &Expr)],
        span: Span,
    ) -> Option<ElaboratedOperand> {
        let find = |k: &str| named.iter().find(|(n, _)| n.text == k).map(|(_, e)| *e);
        let usage = "write `split(x, axis=-1, sizes=[|m|, |n|])` or `split(x, axis=-1, parts=2)`";
        let ([ElaboratedOperand::Term(t)], Some(axis)) = (operands.as_slice(), find("axis")) else {
            return self.fail("R006", span, "`split` takes one tensor and an axis".into(), usage);
        };
        let own = self.dims(*t);
        let Some(at) = axis_index(&self.resolve(axis)?, &own) else {
            return self.fail("R004", axis.span, "this is not an axis of the tensor".into(), usage);
        };
        let sizes: Vec<expr::Expr> = match (find("sizes"), find("parts")) {
            (Some(Expr { kind: ExprKind::List(items), .. }), None) => {
                let one = items.iter().map(|i| match i {
                    Elem::One(e) => self.resolve(e),
                    Elem::Splice(_) => None,
                });
                match one.collect() {
                    Some(sizes) => sizes,
                    None => {
                        return self.fail("R006", span, "sizes are listed singly".into(), usage);
                    }
                }
            }
            (None, Some(Expr { kind: ExprKind::Int(n @ 1..=64), .. })) => {
                let whole = dims::shape(&own[at..=at], span);
                let whole = dims::call(Function::Total, vec![whole], span);
                let n_expr = dims::expr(expr::ExprKind::Int(*n), span);
                let op = BinaryOp::Div;
                let part = expr::ExprKind::Binary(op, Box::new(whole), Box::new(n_expr));
                vec![dims::expr(part, span); *n as usize]
            }
            _ => return self.fail("R006", span, "`split` needs `sizes` or `parts`".into(), usage),
        };
        let mut start = dims::expr(expr::ExprKind::Int(0), span);
        let mut parts = Vec::new();
        for size in sizes {
            parts.push(self.slice(*t, &own, at, start.clone(), size.clone(), span)?);
            let op = BinaryOp::Add;
            start = dims::expr(expr::ExprKind::Binary(op, Box::new(start), Box::new(size)), span);
        }
        Some(ElaboratedOperand::Tuple(parts))
    }

    fn slice(
        &mut self,
        t: TermId,
        own: &[Dim],
        at: usize,
        start: expr::Expr,
        size: expr::Expr,
        span: Span,
    ) -> Option<ElaboratedOperand> {
        let Some(call) = self.library.find("slice") else {
            let message = "the operator `slice` that this notation denotes is not declared";
            return self.fail("R003", span, message.into(), "read `rules/ops` before this text");
        };
        let mut result = own.to_vec();
        result[at] = match &size.kind {
            expr::ExprKind::Size(n) => Dim::Axis(n.clone()),
            _ => {
                let from = Origin::Part(own.to_vec(), size.clone());
                Dim::Axis(self.fresh.name("split", "n", from))
            }
        };
        let one = dims::expr(expr::ExprKind::Int(1), span);
        let attrs = vec![
            Some(dims::uniform_but(own, 0, at, start, span)),
            Some(dims::shape_but(own, at, size, span)),
            Some(dims::uniform_but(own, 1, at, one, span)),
        ];
        let dtype = self.terms.get(t).dtype.clone();
        let kind = TermKind::Apply(call, attrs);
        let term = Term { kind, args: vec![t], dims: Some(result), dtype, span };
        Some(ElaboratedOperand::Term(self.terms.push(term)))
    }

    /// `part(e, axis=…)` in the right side of an `each` rule.
    pub(crate) fn part(
        &mut self,
        operands: Vec<ElaboratedOperand>,
        named: &[(&Ident, &Expr)],
        span: Span,
    ) -> Option<ElaboratedOperand> {
        let usage = "write `part(e, axis=-1)`";
        let ([ElaboratedOperand::Term(t)], [(_, axis)]) = (operands.as_slice(), named) else {
            return self.fail("R006", span, "`part` takes one tensor and an axis".into(), usage);
        };
        let own = self.dims(*t);
        let Some(at) = axis_index(&self.resolve(axis)?, &own) else {
            return self.fail("R004", axis.span, "this is not an axis of the tensor".into(), usage);
        };
        let kind = TermKind::EachPart(dims::position(&own, at, span));
        let dtype = self.terms.get(*t).dtype.clone();
        let dims = self.each_dims.clone();
        Some(ElaboratedOperand::Term(self.terms.push(Term {
            kind,
            args: vec![*t],
            dims,
            dtype,
            span,
        })))
    }

    /// `concat(each a, axis=…)`: a binary operator folded over the members of the family.
    pub(crate) fn each_fold(
        &mut self,
        id: CallId,
        operands: Vec<ElaboratedOperand>,
        named: &[(&Ident, &Expr)],
        span: Span,
    ) -> Option<ElaboratedOperand> {
        let callee = self.library.call(id);
        let [ElaboratedOperand::Term(t)] = operands.as_slice() else {
            let help = "write e.g. `concat(each a, axis=-1)`";
            return self.fail("R006", span, "`each` marks one tensor argument".into(), help);
        };
        if callee.inputs.len() != 2 {
            let message =
                format!("`{}` does not fold a family: it does not take two tensors", callee.name);
            return self.fail("R006", span, message, "fold with an operator of two tensors");
        }
        let pair = vec![ElaboratedOperand::Term(*t), ElaboratedOperand::Term(*t)];
        let folded = match self.apply(id, pair, named, span)? {
            ElaboratedOperand::Term(f) => f,
            ElaboratedOperand::Tuple(_) | ElaboratedOperand::Scalar(_) => return None,
        };
        // The pair shows dtype, axes and attributes of the fold; the family decides its extents.
        let pair = self.terms.get(folded).clone();
        let TermKind::Apply(_, attrs) = pair.kind else { return None };
        let mut result = pair.dims.unwrap_or_default();
        for d in &mut result {
            match d {
                Dim::Axis(n) if n.contains('#') => *d = Dim::Axis(Name::from(format!("{n}*"))),
                Dim::Value(e) if !matches!(e.kind, expr::ExprKind::Int(_)) => {
                    let from = Origin::Value(e.clone());
                    *d = Dim::Axis(self.fresh.name(&format!("each.{}", callee.name), "n", from));
                }
                _ => {}
            }
        }
        let kind = TermKind::EachFold(id, attrs);
        let term = Term { kind, args: vec![*t], dims: Some(result), dtype: pair.dtype, span };
        Some(ElaboratedOperand::Term(self.terms.push(term)))
    }
}
