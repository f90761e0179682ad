//! Symbolic dimensions: how named axes of terms are aligned, as attribute expressions.

use super::Bound;
use crate::diagnostics::span::Span;
use crate::eval::functions::Function;
use crate::expr::{BinaryOp, Elem, Expr, ExprKind};
use crate::ir::Extent;
use crate::library::{Dim, Name};
use std::cell::RefCell;
use std::collections::HashMap;

/// An expression without a place of its own.
pub fn expr(kind: ExprKind, span: Span) -> Expr {
    Expr { kind, span }
}

/// `f(args)`.
pub fn call(f: Function, args: Vec<Expr>, span: Span) -> Expr {
    expr(ExprKind::Call(f, args), span)
}

fn size(name: &Name, span: Span) -> Expr {
    expr(ExprKind::Size(name.clone()), span)
}

/// A dimension as it is written.
pub fn key(d: &Dim) -> String {
    match d {
        Dim::Axis(n) => n.to_string(),
        Dim::Seg(n) => format!("..{n}"),
        Dim::Value(e) => format!("={e}"),
        Dim::Splice(e) => format!("..={e}"),
    }
}

/// All dimensions in one text.
pub fn keys(dims: &[Dim]) -> String {
    dims.iter().map(key).collect::<Vec<_>>().join(",")
}

/// True of an extent, and of what an operator computed.
pub fn bears_no_name(d: &Dim) -> bool {
    match d {
        Dim::Axis(n) | Dim::Seg(n) => n.contains('#'),
        Dim::Value(_) | Dim::Splice(_) => true,
    }
}

/// True of what an operator computed, whose extent is no number.
pub fn is_computed(d: &Dim) -> bool {
    bears_no_name(d) && !is_nameless(d, &[])
}

/// All dimensions as a message shows them, with how those are named that have no name.
pub fn shown(dims: &[Dim]) -> String {
    let list = without_fresh(&keys(dims));
    if !dims.iter().any(bears_no_name) {
        return format!("[{list}]");
    }
    let names = dims.iter().enumerate().map(|(i, d)| match d {
        Dim::Axis(_) | Dim::Seg(_) if !bears_no_name(d) => key(d),
        Dim::Axis(_) | Dim::Value(_) => format!("a{i}"),
        Dim::Seg(_) | Dim::Splice(_) => format!("..a{i}"),
    });
    let names: Vec<String> = names.collect();
    format!("[{list}]; name the unnamed ones by position, e.g. `[{}]`", names.join(", "))
}

/// The text with `_` in place of generated names.
pub fn without_fresh(text: &str) -> String {
    let mut parts = text.split('#');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let name = out.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        // Two dots before a name say that it is a segment.
        let dots = if out[name.len()..].starts_with("..") { ".." } else { "" };
        out.truncate(name.len());
        out += dots;
        out.push('_');
        out += part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    out
}

/// Where `d` stands in `dims`.
pub fn find(dims: &[Dim], d: &Dim) -> Option<usize> {
    dims.iter().position(|e| e == d)
}

/// The list of extents of a dimension, as list elements.
fn extents(d: &Dim, span: Span) -> Elem {
    match d {
        Dim::Axis(n) => Elem::One(size(n, span)),
        Dim::Seg(n) => Elem::Splice(size(n, span)),
        Dim::Value(e) => Elem::One(e.clone()),
        Dim::Splice(e) => Elem::Splice(e.clone()),
    }
}

/// The shape that `dims` have, as a list expression.
pub fn shape(dims: &[Dim], span: Span) -> Expr {
    expr(ExprKind::List(dims.iter().map(|d| extents(d, span)).collect()), span)
}

/// The number of axes of a dimension.
fn length(d: &Dim, span: Span) -> Expr {
    match d {
        Dim::Axis(_) | Dim::Value(_) => expr(ExprKind::Int(1), span),
        Dim::Seg(n) => call(Function::Length, vec![size(n, span)], span),
        Dim::Splice(e) => call(Function::Length, vec![e.clone()], span),
    }
}

fn add(a: Expr, b: Expr) -> Expr {
    let span = a.span;
    match (&a.kind, &b.kind) {
        (ExprKind::Int(x), ExprKind::Int(y)) => expr(ExprKind::Int(x + y), span),
        (ExprKind::Int(0), _) => b,
        (_, ExprKind::Int(0)) => a,
        _ => expr(ExprKind::Binary(BinaryOp::Add, Box::new(a), Box::new(b)), span),
    }
}

/// The position of the first axis of `dims[i]`.
pub fn position(dims: &[Dim], i: usize, span: Span) -> Expr {
    dims[..i].iter().fold(expr(ExprKind::Int(0), span), |at, d| add(at, length(d, span)))
}

/// The positions in `dims` of all axes of `dims[i]`, as list elements.
fn positions(dims: &[Dim], i: usize, span: Span) -> Elem {
    let at = position(dims, i, span);
    match &dims[i] {
        Dim::Axis(_) | Dim::Value(_) => Elem::One(at),
        d @ (Dim::Seg(_) | Dim::Splice(_)) => {
            let end = add(at.clone(), length(d, span));
            Elem::Splice(call(Function::Range, vec![at, end], span))
        }
    }
}

/// The positions in `dims` of the dimensions `at`, as a list expression.
pub fn positions_of(dims: &[Dim], at: &[usize], span: Span) -> Expr {
    let list = at.iter().map(|&i| positions(dims, i, span)).collect();
    expr(ExprKind::List(list), span)
}

/// Where each of `own` lies in `whole`: what has a name lies where that name does; those without one meet from the last
/// one backwards, as NumPy aligns axes. `None` if one has no such place.
pub fn places(own: &[Dim], whole: &[Dim]) -> Option<Vec<usize>> {
    if own == whole {
        return Some((0..own.len()).collect());
    }
    let nameless = |d: &Dim| is_nameless(d, own) || is_nameless(d, whole);
    let mut free: Vec<usize> = (0..whole.len()).filter(|&i| nameless(&whole[i])).collect();
    let mut at = vec![0; own.len()];
    for (i, d) in own.iter().enumerate().rev() {
        at[i] = match nameless(d) {
            true => free.pop().filter(|&j| whole[j] == *d)?,
            false => find(whole, d)?,
        };
    }
    (1..at.len()).all(|i| !at[..i].contains(&at[i])).then_some(at)
}

/// True if a dimension is known by its extent alone: a number, or what is computed in the same way as
/// another extent of the tensor.
pub fn is_nameless(d: &Dim, among: &[Dim]) -> bool {
    match d {
        Dim::Axis(_) | Dim::Seg(_) => false,
        Dim::Value(e) if matches!(e.kind, ExprKind::Int(_)) => true,
        Dim::Value(_) | Dim::Splice(_) => among.iter().filter(|e| *e == d).count() > 1,
    }
}

/// True if a tensor of the axes `own` can have the axes `declared` for no extents: where every axis of both bears a
/// name that no `where` computes, or an extent, or where the numbers of axes differ.
pub fn differ(own: &[Dim], declared: &[Dim], wheres: &[(Name, Expr)]) -> bool {
    let computed = |d: &Dim| match d {
        Dim::Axis(n) | Dim::Seg(n) => n.contains('#') || wheres.iter().any(|(w, _)| w == n),
        Dim::Value(e) => !matches!(e.kind, ExprKind::Int(_)),
        Dim::Splice(_) => true,
    };
    let single = |d: &Dim| matches!(d, Dim::Axis(_) | Dim::Value(_));
    if own.iter().chain(declared).all(single) && own.len() > declared.len() {
        return true;
    }
    !own.iter().chain(declared).any(computed)
}

/// The axes that a pointwise operator's result has: those of the operand that has all axes of the
/// other, else the left's and then what is new on the right. `None` if axes without names, or computed ones, cannot be aligned.
pub fn union(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    if places(b, a).is_some() {
        return Some(a.to_vec());
    }
    if places(a, b).is_some() {
        return Some(b.to_vec());
    }
    // New axes come last, which would move those without a name.
    if a.iter().any(|d| is_nameless(d, a)) || b.iter().any(|d| is_nameless(d, b)) {
        return None;
    }
    // Whether computed axes are equal cannot be decided here.
    let alone = |own: &[Dim], other: &[Dim]| {
        own.iter().any(|d| bears_no_name(d) && find(other, d).is_none())
    };
    if alone(a, b) || alone(b, a) {
        return None;
    }
    let new = b.iter().filter(|d| find(a, d).is_none());
    Some(a.iter().chain(new).cloned().collect())
}

/// A list with the same entry for every axis of `dims`, but for the axis `dims[i]`.
pub fn uniform_but(dims: &[Dim], fill: i64, i: usize, other: Expr, span: Span) -> Expr {
    let fill = expr(ExprKind::Int(fill), span);
    let list = dims.iter().enumerate().map(|(j, d)| match d {
        _ if i == j => Elem::One(other.clone()),
        Dim::Axis(_) | Dim::Value(_) => Elem::One(fill.clone()),
        d => Elem::Splice(call(Function::Fill, vec![length(d, span), fill.clone()], span)),
    });
    expr(ExprKind::List(list.collect()), span)
}

/// The extents of `dims`, but `other` at `dims[i]`.
pub fn shape_but(dims: &[Dim], i: usize, other: Expr, span: Span) -> Expr {
    let list = dims
        .iter()
        .enumerate()
        .map(|(j, d)| if i == j { Elem::One(other.clone()) } else { extents(d, span) });
    expr(ExprKind::List(list.collect()), span)
}

/// What computes a dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An application of the operator: the dimensions of its arguments, its attributes.
    Application(Vec<Vec<Dim>>, Vec<Option<Expr>>),
    /// An expression in the caller's names.
    Value(Expr),
    /// A part of a tensor of these dimensions.
    Part(Vec<Dim>, Expr),
    /// An extent, of the dimension at that place where a name is taken.
    Extent(Option<usize>, Extent),
}

/// Names of computed dimensions: the same computation has the same name.
#[derive(Debug, Default)]
pub struct Fresh(RefCell<HashMap<(String, Origin), usize>>);

impl Fresh {
    /// The name of dimension `dim` of what `operator` yields. The mark in it occurs in no name that is written.
    pub fn name(&self, operator: &str, dim: &str, from: Origin) -> Name {
        let place = format!("{operator}.{dim}");
        let mut known = self.0.borrow_mut();
        let next = known.len();
        let number = *known.entry((place.clone(), from)).or_insert(next);
        Name::from(format!("{place}#{number}"))
    }
}

/// A pattern's axes where all its names are bound.
pub fn resolved(pattern: &[Dim], bound: &Bound) -> Option<Vec<Dim>> {
    let mut out = Vec::new();
    for d in pattern {
        match d {
            Dim::Axis(n) | Dim::Seg(n) => out.extend(bound.get(n)?.iter().cloned()),
            Dim::Value(_) | Dim::Splice(_) => out.push(d.clone()),
        }
    }
    Some(out)
}

fn known(d: &Dim, bound: &Bound) -> bool {
    match d {
        Dim::Seg(s) => bound.get(s).is_some(),
        _ => true,
    }
}

/// How many names of a pattern are not bound.
pub fn unknown(pattern: &[Dim], bound: &Bound) -> usize {
    pattern.iter().filter(|d| !known(d, bound)).count()
}
