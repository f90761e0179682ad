//! Types of results: substitutes the caller's names for the callee's, and names computed extents.

use super::dims::{self, Origin};
use super::symbols::Symbols;
use super::{Bound, Elaborator};
use crate::expr::{BinaryOp, Elem, Expr, ExprKind, TypePart};
use crate::library::{Callable, DTypePattern, Dim, Input, Name};
use crate::term::TermId;

/// The element type of a result that is declared by the variable `v`.
pub(crate) fn result_dtype(
    callee: &Callable,
    v: &Name,
    attrs: &[Option<Expr>],
    dtypes: &[(Name, DTypePattern)],
    vars: &[Input],
) -> DTypePattern {
    if let Some((_, d)) = dtypes.iter().find(|(n, _)| n == v) {
        return d.clone();
    }
    let attr = callee.attrs.iter().position(|a| a.name == *v).and_then(|i| attrs[i].as_ref());
    match attr.map(|e| &e.kind) {
        Some(ExprKind::DType(d)) => DTypePattern::Fixed(*d),
        Some(ExprKind::Name(n)) => DTypePattern::Var(n.clone()),
        Some(ExprKind::Type(TypePart::DType, n)) => {
            let of = vars.iter().find(|i| i.name == *n);
            of.map_or(DTypePattern::Var(v.clone()), |i| i.ty.dtype.clone())
        }
        _ => DTypePattern::Var(v.clone()),
    }
}

/// The dimensions of a result: bound names are replaced, computed ones get a name of their own.
pub(crate) fn result_dims(
    callee: &Callable,
    pattern: &[Dim],
    bound: &Bound,
    terms: &[TermId],
    attrs: &[Option<Expr>],
    elaborator: &Elaborator<'_>,
    from: &Origin,
) -> Vec<Dim> {
    // Where an axis attribute is a variable the callee's segments are open; a result of the same
    // shape as an argument still has that argument's axes.
    let open = pattern.iter().any(|d| match d {
        Dim::Axis(n) | Dim::Seg(n) => {
            bound.get(n).is_none() && !callee.wheres.iter().any(|(w, _)| w == n)
        }
        _ => false,
    });
    if open {
        let twin =
            callee.inputs.iter().position(|i| i.ty.dims.as_deref().is_some_and(|d| d == pattern));
        return match twin {
            Some(i) => elaborator.dims(terms[i]),
            None => vec![Dim::Seg(elaborator.fresh.name(&callee.name, "shape", from.clone()))],
        };
    }
    let span = terms.first().map_or(callee.source.span, |t| elaborator.terms.get(*t).span);
    let symbols = Symbols::of(callee, bound, attrs, elaborator);
    let mut out = Vec::new();
    for (i, d) in pattern.iter().enumerate() {
        let known = match d {
            Dim::Axis(n) | Dim::Seg(n) if bound.get(n).is_some() => None,
            Dim::Axis(_) | Dim::Seg(_) | Dim::Value(_) | Dim::Splice(_) => {
                symbols.dims(d, &out, &elaborator.fresh, span)
            }
        };
        if let Some(known) = known {
            out.extend(known);
            continue;
        }
        match d {
            Dim::Axis(n) => match bound.get(n) {
                Some(b) => out.extend_from_slice(b),
                None => out.push(Dim::Axis(computed(callee, n, bound, attrs, from, elaborator))),
            },
            Dim::Seg(n) => match bound.get(n) {
                Some(b) => out.extend_from_slice(b),
                None => match stated(callee, n, bound, attrs, elaborator) {
                    Some(stated) => out.extend(stated),
                    None => out.push(Dim::Seg(computed(callee, n, bound, attrs, from, elaborator))),
                },
            },
            Dim::Value(Expr { kind: ExprKind::Int(_), .. }) => out.push(d.clone()),
            Dim::Value(e) => out.push(match in_callers_names(e, callee, bound, attrs) {
                Some(e) if dims::find(&out, &stated_dim(&Elem::One(e.clone()))).is_none() => {
                    stated_dim(&Elem::One(e))
                }
                _ => Dim::Axis(elaborator.fresh.name(&callee.name, &i.to_string(), from.clone())),
            }),
            Dim::Splice(_) => {
                let name = elaborator.fresh.name(&callee.name, &i.to_string(), from.clone());
                out.push(Dim::Seg(name));
            }
        }
    }
    out
}

/// The dimensions of a result's segment that only rearranges what the caller knows (`where b = shape`,
/// `where b = permute(|a|, perm)`), in the caller's names: `shape=[..|h|, |m|]` yields the axes `..h, m`.
/// `None` if it computes new extents, or two segments would have one name.
fn stated(
    callee: &Callable,
    segment: &Name,
    bound: &Bound,
    attrs: &[Option<Expr>],
    elaborator: &Elaborator<'_>,
) -> Option<Vec<Dim>> {
    let (_, value) = callee.wheres.iter().find(|(w, _)| w == segment)?;
    if value.any(&mut |e| matches!(e.kind, ExprKind::Binary(..))) {
        return None;
    }
    let e = in_callers_names(value, callee, bound, attrs)?;
    let ExprKind::List(items) = &e.kind else { return Some(vec![stated_dim(&Elem::Splice(e))]) };
    let mut out: Vec<Dim> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let mut d = stated_dim(item);
        if dims::find(&out, &d).is_some() {
            // A second axis of that extent is another axis.
            let Elem::One(_) = item else { return None };
            let from = Origin::Value(e.clone());
            d = Dim::Axis(elaborator.fresh.name(&callee.name, &i.to_string(), from));
        }
        out.push(d);
    }
    Some(out)
}

/// A name for what a `where` computes: the same for all applications that compute the same.
fn computed(
    callee: &Callable,
    n: &Name,
    bound: &Bound,
    attrs: &[Option<Expr>],
    from: &Origin,
    elaborator: &Elaborator<'_>,
) -> Name {
    let value = callee.wheres.iter().find(|(w, _)| w == n).map(|(_, e)| e);
    let value = value.and_then(|e| in_callers_names(e, callee, bound, attrs));
    elaborator.fresh.name(&callee.name, n, value.map_or_else(|| from.clone(), Origin::Value))
}

fn stated_dim(e: &Elem) -> Dim {
    match e {
        Elem::One(Expr { kind: ExprKind::Size(n), .. }) => Dim::Axis(n.clone()),
        Elem::Splice(Expr { kind: ExprKind::Size(n), .. }) => Dim::Seg(n.clone()),
        Elem::One(e) => Dim::Value(e.clone()),
        Elem::Splice(e) => Dim::Splice(e.clone()),
    }
}

/// An extent in terms of the callee's names, in terms of the caller's; `None` if it says more than
/// the caller knows.
fn in_callers_names(
    e: &Expr,
    callee: &Callable,
    bound: &Bound,
    attrs: &[Option<Expr>],
) -> Option<Expr> {
    let again = |e: &Expr| in_callers_names(e, callee, bound, attrs);
    let kind = match &e.kind {
        ExprKind::Int(_) => return Some(e.clone()),
        ExprKind::Name(n) => {
            let i = callee.attrs.iter().position(|a| a.name == *n)?;
            return attrs[i].clone();
        }
        ExprKind::Size(n) => {
            let axis = callee.inputs.iter().flat_map(|i| i.ty.dims.iter().flatten());
            let axis = axis.into_iter().any(|d| matches!(d, Dim::Axis(a) if a == n));
            let list = dims::shape(bound.get(n)?, e.span);
            return match &list.kind {
                ExprKind::List(items) => match items.as_slice() {
                    [Elem::One(one)] if axis => Some(one.clone()),
                    [Elem::Splice(all)] if !axis => Some(all.clone()),
                    _ if axis => None,
                    _ => Some(list),
                },
                _ => None,
            };
        }
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (again(a)?, again(b)?);
            match (op, &a.kind, &b.kind) {
                (BinaryOp::Mul, ExprKind::Int(1), _) => return Some(b),
                (BinaryOp::Mul, _, ExprKind::Int(1)) => return Some(a),
                _ => ExprKind::Binary(*op, Box::new(a), Box::new(b)),
            }
        }
        ExprKind::Call(f, args) => {
            ExprKind::Call(*f, args.iter().map(again).collect::<Option<_>>()?)
        }
        _ => return None,
    };
    Some(Expr { kind, span: e.span })
}
