//! Extents of results, computed symbolically: an axis whose extent equals that of a named axis keeps the name.
//!
//! A transpose by a known permutation moves names, a convolution with same-size padding keeps them, and
//! equal polynomials are one axis, whoever computed them. Extents that depend on an attribute variable or on a segment of
//! unknown length stay unnamed.

use super::dims::{self, Fresh, Origin};
use super::{Bound, Elaborator};
use crate::diagnostics::span::Span;
use crate::eval::{Env, eval};
use crate::expr::{AttrKind, Expr, ExprKind};
use crate::ir::{Atom, Attr, Extent};
use crate::library::{Callable, Dim, Name};

/// What the names of an application stand for, as far as the text shows.
pub(crate) struct Symbols<'a> {
    callee: &'a Callable,
    env: Env,
    /// Unnamed extents of arguments, and how they are written.
    stated: Vec<(Extent, Dim)>,
}

impl<'a> Symbols<'a> {
    /// Evaluates the `where` clauses of `callee` in the names of the caller.
    pub(crate) fn of(
        callee: &'a Callable,
        bound: &Bound,
        attrs: &[Option<Expr>],
        caller: &Elaborator<'_>,
    ) -> Symbols<'a> {
        let mut s = Symbols { callee, env: Env::default(), stated: Vec::new() };
        if callee.wheres.is_empty() && !computes(callee) {
            return s;
        }
        for (n, own) in &bound.names {
            let Some(extents) = own.iter().map(|d| extent(d, caller)).collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            let unnamed = extents.iter().zip(own).filter(|(_, d)| matches!(d, Dim::Value(_)));
            s.stated.extend(unnamed.map(|(e, d)| (e.clone(), d.clone())));
            let axis = callee.inputs.iter().flat_map(|i| i.ty.dims.iter().flatten());
            let axis = axis.into_iter().any(|d| matches!(d, Dim::Axis(a) if a == n));
            match (axis, extents.as_slice()) {
                (true, [one]) => s.env.bind_axis(n, one.clone()),
                (true, _) => false,
                (false, _) => s.env.bind_seg(n, extents),
            };
        }
        for (param, e) in callee.attrs.iter().zip(attrs) {
            let value = e.as_ref().and_then(|e| eval(e, &env(e, caller)).ok());
            let fits =
                |a: &Attr| param.ty.kind != AttrKind::Axis || a.as_i64().is_some_and(|a| a >= 0);
            if let Some(a) = value.filter(fits) {
                s.env.bind_attr(&param.name, a);
            }
        }
        for (n, e) in &callee.wheres {
            match eval(e, &s.env) {
                Ok(Attr::Int(v)) => s.env.bind_axis(n, v),
                Ok(Attr::Ints(v)) => s.env.bind_seg(n, v),
                Ok(_) | Err(_) => false,
            };
        }
        s
    }

    /// The axes that a dimension of the result's declaration yields beside those that stand before it; `None` if
    /// they are open.
    pub(crate) fn dims(
        &self,
        pattern: &Dim,
        before: &[Dim],
        fresh: &Fresh,
        span: Span,
    ) -> Option<Vec<Dim>> {
        let extents = match pattern {
            Dim::Axis(n) => vec![self.env.axis(n)?.clone()],
            Dim::Seg(n) => self.env.seg(n)?.to_vec(),
            Dim::Value(e) => match eval(e, &self.env).ok()? {
                Attr::Int(v) => vec![v],
                _ => return None,
            },
            Dim::Splice(e) => match eval(e, &self.env).ok()? {
                Attr::Ints(v) => v,
                _ => return None,
            },
        };
        let mut out: Vec<Dim> = before.to_vec();
        for e in extents {
            out.push(self.dim(&e, &out, fresh, span)?);
        }
        Some(out.split_off(before.len()))
    }

    /// The axis of that extent. Of two axes with one name the second one is another axis.
    fn dim(&self, e: &Extent, before: &[Dim], fresh: &Fresh, span: Span) -> Option<Dim> {
        if let Some(v) = e.as_const() {
            let fits = (0..=i64::from(i32::MAX)).contains(&v);
            return fits.then(|| Dim::Value(dims::expr(ExprKind::Int(v), span)));
        }
        let own = symbol(e).map(Dim::Axis);
        let own = own.or_else(|| self.stated.iter().find(|(s, _)| s == e).map(|(_, d)| d.clone()));
        let of_extent = || fresh.name("extent", "n", Origin::Extent(None, e.clone()));
        let d = own.unwrap_or_else(|| Dim::Axis(of_extent()));
        if dims::find(before, &d).is_none() || matches!(d, Dim::Value(_)) {
            return Some(d);
        }
        let from = Origin::Extent(Some(before.len()), e.clone());
        Some(Dim::Axis(fresh.name(&self.callee.name, "n", from)))
    }
}

/// True if an extent of a result is written as an expression.
fn computes(callee: &Callable) -> bool {
    let open = |d: &Dim| matches!(d, Dim::Value(_) | Dim::Splice(_));
    callee.outputs.iter().any(|(_, ty)| ty.dims.iter().flatten().any(open))
}

/// The extent of one axis; `None` of a segment.
fn extent(d: &Dim, caller: &Elaborator<'_>) -> Option<Extent> {
    match d {
        Dim::Axis(n) => Some(Extent::sym(n)),
        Dim::Value(e) => match eval(e, &env(e, caller)).ok()? {
            Attr::Int(v) => Some(v),
            _ => None,
        },
        Dim::Seg(_) | Dim::Splice(_) => None,
    }
}

/// The caller's axes that an expression mentions, as symbols.
fn env(e: &Expr, caller: &Elaborator<'_>) -> Env {
    let mut env = Env::default();
    e.walk(&mut |e| {
        if let ExprKind::Size(n) | ExprKind::Name(n) = &e.kind
            && caller.is_axis(n)
        {
            env.bind_axis(n, Extent::sym(n));
        }
    });
    env
}

/// The name of an extent that is a symbol alone.
fn symbol(e: &Extent) -> Option<Name> {
    match e.terms().as_slice() {
        [(m, 1)] => match m.as_slice() {
            [(Atom::Sym(s), 1)] => Some(s.clone()),
            _ => None,
        },
        _ => None,
    }
}
