//! Repairs sample drafts: changes that may make a condition or an application hold, or fail.

use super::draft::SampleDraft;
use crate::conditions::solve::{common_divisor, solutions};
use crate::law::facts::{LawFacts, single_name};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{AttrKind, BinaryOp, Elem, Expr, ExprKind};
use mlc_dsl::ir::Attr;
use mlc_dsl::library::{Dim, Name};
use mlc_dsl::random::Random;
use std::cell::Cell;

/// One change that may repair a draft.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Repair {
    /// An axis gets this extent.
    Axis(Name, i64),
    /// A segment gets these extents.
    Seg(Name, Vec<i64>),
    /// A segment gets that many axes.
    Rank(Name, usize),
    /// A segment is refactored to that many elements.
    Elements(Name, i64),
    /// An axis becomes a multiple.
    Multiple(Name, i64),
    /// An attribute gets this value.
    Attr(Name, Attr),
}

impl SampleDraft {
    /// Takes over attributes, but for positions of axes, which follow from the types.
    pub(crate) fn keep(&mut self, facts: &LawFacts, attrs: Vec<(Name, Attr)>) {
        let kind = |name: &Name| facts.law.attrs.iter().find(|a| a.name == *name);
        let moves = |name: &Name| kind(name).is_some_and(|a| a.ty.kind == AttrKind::Axis);
        self.attrs = attrs.into_iter().filter(|(name, _)| !moves(name)).collect();
    }

    /// Changes the draft; false if that changes nothing or is impossible.
    pub(crate) fn apply(&mut self, fix: &Repair, rng: &mut Random) -> bool {
        const CAP: i64 = 64;
        let find_axis = |d: &mut SampleDraft, n: &Name| d.axes.iter().position(|(a, _)| a == n);
        let find_seg = |d: &mut SampleDraft, n: &Name| d.segs.iter().position(|(a, _)| a == n);
        match fix {
            Repair::Axis(n, v) if (0..=CAP).contains(v) => match find_axis(self, n) {
                Some(i) => {
                    let changed = self.axes[i].1.iter().any(|old| old != v);
                    self.axes[i].1.iter_mut().for_each(|old| *old = *v);
                    changed
                }
                None => false,
            },
            Repair::Multiple(n, k) if *k > 1 && *k <= CAP => match find_axis(self, n) {
                Some(i) => {
                    // What it is a multiple of already may be needed, too.
                    let common = rng.chance(0.5);
                    for v in &mut self.axes[i].1 {
                        let both = least_common_multiple(*v, *k).filter(|m| common && *m <= CAP);
                        *v = both.unwrap_or((*v / k).clamp(1, 3) * k);
                    }
                    true
                }
                None => false,
            },
            Repair::Seg(n, v) if v.iter().all(|e| (0..=CAP).contains(e)) => match find_seg(self, n)
            {
                Some(i) => {
                    let changed = self.segs[i].1.iter().any(|old| old != v);
                    self.segs[i].1.iter_mut().for_each(|old| old.clone_from(v));
                    changed
                }
                None => false,
            },
            Repair::Rank(n, rank) if *rank <= 5 => match find_seg(self, n) {
                Some(i) => {
                    let changed = self.segs[i].1.iter().any(|old| old.len() != *rank);
                    for list in &mut self.segs[i].1 {
                        while list.len() < *rank {
                            list.push(rng.between(1, 3));
                        }
                        list.truncate(*rank);
                    }
                    changed
                }
                None => false,
            },
            Repair::Elements(n, count) if (0..=4096).contains(count) => match find_seg(self, n) {
                Some(i) => {
                    let shape = rng.shape(*count);
                    self.segs[i].1.iter_mut().for_each(|old| old.clone_from(&shape));
                    true
                }
                None => false,
            },
            Repair::Attr(n, a) => match self.attrs.iter_mut().find(|(b, _)| b == n) {
                Some((_, old)) if old == a => false,
                Some((_, old)) => {
                    *old = a.clone();
                    true
                }
                None => {
                    self.attrs.push((n.clone(), a.clone()));
                    true
                }
            },
            Repair::Axis(..)
            | Repair::Multiple(..)
            | Repair::Seg(..)
            | Repair::Rank(..)
            | Repair::Elements(..) => false,
        }
    }
}

fn least_common_multiple(a: i64, b: i64) -> Option<i64> {
    (a > 0 && b > 0).then(|| a / common_divisor(a, b) * b)
}

/// Maps the names of a condition to the law's names.
pub(crate) trait NameMap {
    /// The law's axis behind a name.
    fn axis(&self, name: &str) -> Option<Name>;
    /// The law's segment behind a name.
    fn seg(&self, name: &str) -> Option<Name>;
    /// Changes to the law's names that give a name this value.
    fn set(&self, name: &str, v: &Attr) -> Vec<Repair>;
}

/// Changes that may make a condition hold that does not.
pub(crate) fn fixes(e: &Expr, env: &Env, names: &dyn NameMap) -> Vec<Repair> {
    let mut out = Vec::new();
    match &e.kind {
        ExprKind::Binary(BinaryOp::And | BinaryOp::Or, a, b) => {
            out.extend(fixes(a, env, names));
            out.extend(fixes(b, env, names));
        }
        ExprKind::Binary(BinaryOp::Eq | BinaryOp::Ge | BinaryOp::Le, a, b) => {
            equate(a, b, env, names, &mut out);
            equate(b, a, env, names, &mut out);
        }
        ExprKind::Binary(op @ (BinaryOp::Gt | BinaryOp::Lt), a, b) => {
            let (less, more) = if *op == BinaryOp::Lt { (a, b) } else { (b, a) };
            equate(less, &moved(more, BinaryOp::Sub), env, names, &mut out);
            equate(more, &moved(less, BinaryOp::Add), env, names, &mut out);
        }
        ExprKind::Call(Function::All, args) if args.len() == 1 => {
            out.extend(fixes(&args[0], env, names));
        }
        _ => {}
    }
    out
}

/// The neighbour of a number.
fn moved(e: &Expr, op: BinaryOp) -> Expr {
    let of = |kind| Expr { kind, span: e.span };
    of(ExprKind::Binary(op, Box::new(e.clone()), Box::new(of(ExprKind::Int(1)))))
}

/// Changes that may make a comparison fail that holds: both sides become equal, or neighbours.
pub(crate) fn breaks(e: &Expr, env: &Env, names: &dyn NameMap) -> Vec<Repair> {
    let mut out = Vec::new();
    match &e.kind {
        ExprKind::Binary(BinaryOp::Gt | BinaryOp::Lt | BinaryOp::Ne, a, b) => {
            equate(a, b, env, names, &mut out);
            equate(b, a, env, names, &mut out);
        }
        ExprKind::Call(Function::All, args) if args.len() == 1 => {
            out.extend(breaks(&args[0], env, names));
        }
        _ => {}
    }
    out
}

/// Ways to give `target` the value of `other`.
fn equate(target: &Expr, other: &Expr, env: &Env, names: &dyn NameMap, out: &mut Vec<Repair>) {
    let Ok(value) = eval(other, env) else { return };
    if let ExprKind::Call(f, args) = &target.kind
        && let [arg] = args.as_slice()
        && let Some(n) = single_name(arg)
        && let Some(v) = value.as_i64()
    {
        match f {
            Function::Rank | Function::Length => {
                if let (Some(s), Ok(v)) = (names.seg(n), usize::try_from(v)) {
                    out.push(Repair::Rank(s, v));
                    return;
                }
            }
            Function::Product => out.extend(names.seg(n).map(|s| Repair::Elements(s, v))),
            _ => {}
        }
    }
    if let ExprKind::Binary(BinaryOp::Mod, n, k) = &target.kind
        && value.as_i64() == Some(0)
        && let Some(axis) = single_name(n).and_then(|n| names.axis(n))
        && let Some(k) = eval(k, env).ok().and_then(|k| k.as_i64())
    {
        out.push(Repair::Multiple(axis, k));
    }
    for (name, v) in solutions(target, &value, env) {
        out.extend(names.set(&name, &v));
    }
}

/// A law's own names.
pub(crate) struct OwnNames<'a, 'l>(pub &'a LawFacts<'l>);

impl NameMap for OwnNames<'_, '_> {
    fn axis(&self, name: &str) -> Option<Name> {
        self.0.axes.iter().find(|a| &*a.name == name).map(|a| a.name.clone())
    }

    fn seg(&self, name: &str) -> Option<Name> {
        self.0.segs.iter().find(|s| &*s.name == name).map(|s| s.name.clone())
    }

    fn set(&self, name: &str, v: &Attr) -> Vec<Repair> {
        let attr = self.0.law.attrs.iter().find(|a| &*a.name == name).map(|a| a.name.clone());
        let axis = self.axis(name).zip(v.as_i64()).map(|(n, v)| Repair::Axis(n, v));
        let seg = self.seg(name).zip(v.as_i64s()).map(|(n, v)| Repair::Seg(n, v));
        let attr = attr.map(|n| Repair::Attr(n, v.clone()));
        axis.into_iter().chain(seg).chain(attr).collect()
    }
}

/// Dimensions as the entries of a list.
fn elems(dims: &[Dim]) -> Vec<Elem> {
    let value = |d: &Dim| match d {
        Dim::Axis(n) => Elem::One(Expr::new(ExprKind::Size(n.clone()))),
        Dim::Seg(n) => Elem::Splice(Expr::new(ExprKind::Size(n.clone()))),
        Dim::Value(e) => Elem::One(e.clone()),
        Dim::Splice(e) => Elem::Splice(e.clone()),
    };
    dims.iter().map(value).collect()
}

/// An operator's names as expressions of the law's.
pub(crate) struct CalleeNames<'a, 'l> {
    /// The law's names.
    pub own: OwnNames<'a, 'l>,
    /// Their values.
    pub env: &'a Env,
    /// What the operator's attributes, axes and segments are given as; a name of several arguments as often.
    pub given: Vec<(Name, Expr)>,
    /// Lists of extents that must have so many entries.
    pub ranks: Vec<(usize, Expr)>,
}

impl CalleeNames<'_, '_> {
    /// The dimensions of an argument as the operator declares them, and as the law has them.
    pub(crate) fn argument(&mut self, declared: &[Dim], own: &[Dim]) {
        let seg = declared.iter().position(|d| matches!(d, Dim::Seg(_)));
        let single = |d: &Dim| matches!(d, Dim::Axis(_) | Dim::Value(_));
        let Some(at) = seg else {
            if own.iter().all(single) && declared.len() == own.len() {
                declared
                    .iter()
                    .zip(own)
                    .for_each(|(p, own)| self.dims(p, std::slice::from_ref(own)));
            } else {
                self.spliced(declared, own);
            }
            return;
        };
        let after = declared.len() - at - 1;
        if own.len() < at + after {
            return;
        }
        let (before, rest) = own.split_at(at);
        let (middle, end) = rest.split_at(rest.len() - after);
        if before.iter().chain(end).all(single) {
            let around =
                declared[..at].iter().zip(before).chain(declared[at + 1..].iter().zip(end));
            around.for_each(|(p, own)| self.dims(p, std::slice::from_ref(own)));
            self.dims(&declared[at], middle);
        }
    }

    /// Axes of an operator that are entries of lists of the law.
    fn spliced(&mut self, declared: &[Dim], own: &[Dim]) {
        let whole = Expr::new(ExprKind::List(elems(own)));
        for (i, d) in (0i64..).zip(declared) {
            let Dim::Axis(p) = d else { continue };
            let at = Expr::new(ExprKind::Int(i));
            self.given.push((p.clone(), Expr::call(Function::Entry, vec![whole.clone(), at])));
        }
        self.ranks.push((declared.len(), whole));
    }

    fn dims(&mut self, declared: &Dim, own: &[Dim]) {
        match (declared, elems(own).as_slice()) {
            (Dim::Axis(p), [Elem::One(e)]) => self.given.push((p.clone(), e.clone())),
            (Dim::Seg(p), [Elem::Splice(e)]) => self.given.push((p.clone(), e.clone())),
            (Dim::Seg(p), all) => {
                self.given.push((p.clone(), Expr::new(ExprKind::List(all.to_vec()))));
            }
            (Dim::Axis(_) | Dim::Value(_) | Dim::Splice(_), _) => {}
        }
    }

    /// Changes that give the arguments of one axis or segment one value, and arguments their ranks.
    pub(crate) fn unequal(&self) -> Vec<Repair> {
        let mut out = Vec::new();
        for (rank, e) in &self.ranks {
            let Some(mut new) = eval(e, self.env).ok().and_then(|v| v.as_i64s()) else { continue };
            if new.len() == *rank || *rank == 0 {
                continue;
            }
            let rest: i64 = new.drain((*rank - 1).min(new.len())..).product();
            new.resize(*rank - 1, 1);
            new.push(rest);
            out.extend(self.solved(e, &Attr::ints(new)));
        }
        for (n, e) in &self.given {
            let Ok(own) = eval(e, self.env) else { continue };
            for (_, other) in self.given.iter().filter(|(other, _)| other == n) {
                if let Ok(v) = eval(other, self.env)
                    && v != own
                {
                    out.extend(self.solved(e, &v));
                }
            }
        }
        out
    }

    /// A condition of the operator in the law's names; `None` if it speaks of what the law has no name for.
    pub(crate) fn restated(&self, condition: &Expr) -> Option<Expr> {
        let unknown = Cell::new(false);
        let restated = self.restate(condition, &unknown);
        (!unknown.get()).then_some(restated)
    }

    fn restate(&self, e: &Expr, unknown: &Cell<bool>) -> Expr {
        match &e.kind {
            ExprKind::Name(n) | ExprKind::Size(n) => {
                let own = self.given.iter().find(|(name, _)| name == n).map(|(_, e)| e.clone());
                unknown.set(unknown.get() || own.is_none());
                own.unwrap_or_else(|| e.clone())
            }
            ExprKind::Type(..) | ExprKind::Entry(..) => {
                unknown.set(true);
                e.clone()
            }
            _ => e.map(&mut |part| self.restate(part, unknown)),
        }
    }

    fn solved(&self, e: &Expr, v: &Attr) -> Vec<Repair> {
        let found = solutions(e, v, self.env);
        found.iter().flat_map(|(n, v)| self.own.set(n, v)).collect()
    }

    fn single(&self, name: &str) -> impl Iterator<Item = &str> {
        self.given.iter().filter(move |(n, _)| &**n == name).filter_map(|(_, e)| single_name(e))
    }
}

impl NameMap for CalleeNames<'_, '_> {
    fn axis(&self, name: &str) -> Option<Name> {
        self.single(name).find_map(|own| self.own.axis(own))
    }

    fn seg(&self, name: &str) -> Option<Name> {
        self.single(name).find_map(|own| self.own.seg(own))
    }

    fn set(&self, name: &str, v: &Attr) -> Vec<Repair> {
        let given = self.given.iter().filter(|(n, _)| &**n == name);
        given.flat_map(|(_, e)| self.solved(e, v)).collect()
    }
}
