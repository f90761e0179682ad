//! Patterns: what laws match in an e-graph, and what `onnx` items are written for.
//!
//! Left sides of laws are in normal form, sums and products flattened: a law marked `when normal` rewrites the patterns of all
//! other laws too, so that `x / sqrt(2)` in a law matches whatever spelling the program has. Terms of `onnx` items stand
//! as they are written ([`ExportPattern`]). Both are made once for each library.

mod compile;
mod export_patterns;
mod normal;
mod solve;
mod tables;

pub use compile::{compile, unsolved};
pub use export_patterns::{ExportPattern, Root, export_patterns};
pub use solve::solve;
pub use tables::{Table, TableExpr, tables};

use crate::eval::list_patterns;
use crate::expr::{AttrKind, Expr, ExprKind, Mark};
use crate::library::{CallId, DTypePattern, Dim, ErrorClass, Law, LawOrigin, Library, Name};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Operands of a sum or product that are looked at together.
pub const OPERANDS: usize = 6;

/// What the patterns of a law depend on besides the law.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LawContext {
    /// The laws that rewrite patterns.
    normal: Vec<u32>,
    /// No law may round differently.
    exact: bool,
}

impl LawContext {
    fn of(library: &Library, laws: &[u32]) -> LawContext {
        let law = |i: &u32| &library.laws[*i as usize];
        LawContext {
            normal: laws.iter().copied().filter(|i| is_normal(law(i))).collect(),
            exact: laws.iter().all(|i| law(i).error == ErrorClass::Exact),
        }
    }
}

/// The patterns of a law: as it is written, and with sums that it shares kept closed.
type CompiledForms = Arc<[Arc<Compiled>]>;

/// Cache of compiled patterns: a library keeps it, so that each law and item is compiled once.
#[derive(Default)]
pub struct Patterns {
    laws: Mutex<HashMap<LawContext, HashMap<u32, CompiledForms>>>,
    export_patterns: OnceLock<Vec<ExportPattern>>,
}

impl Patterns {
    /// The patterns of these laws in this context; `compile` makes those that are new.
    fn of(
        &self,
        context: &LawContext,
        laws: &[u32],
        compile: impl Fn(u32) -> CompiledForms,
    ) -> Vec<CompiledForms> {
        let mut all = self.laws.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(context.clone()).or_default();
        laws.iter().map(|&i| known.entry(i).or_insert_with(|| compile(i)).clone()).collect()
    }
}

/// Index of a pattern node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PatId(pub u32);

/// A pattern node.
#[derive(Clone, Debug)]
pub struct Pat {
    /// What it matches.
    pub kind: PatKind,
    /// The extents that it requires, by named axes.
    pub dims: Vec<Dim>,
    /// The element types that it admits.
    pub dtype: DTypePattern,
}

/// What a pattern node matches.
#[derive(Clone, Debug)]
pub enum PatKind {
    /// Any class, bound to the variable.
    Var(usize),
    /// A constant whose elements all are this number; a bare name that is not bound yet is bound.
    Scalar(Expr),
    /// An operator. A bare name among the attributes is bound.
    Apply(CallId, Vec<Option<Expr>>, Vec<PatId>),
    /// The operand of a broadcast that named axes imply; `map` gives its places in the result.
    Broadcast(PatId, Expr),
    /// A commutative, associative operator over two or more operands (or one and a number).
    Flat(CallId, Vec<PatId>, Option<Expr>),
    /// One output of an operator with several.
    Output(usize, PatId),
    /// A constant with the elements that a part of the law without variables computes.
    Table(Arc<Table>),
}

/// A law ready for matching.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Index of the law in the library.
    pub law: u32,
    /// The pattern nodes.
    pub pats: Vec<Pat>,
    /// One root per output.
    pub roots: Vec<PatId>,
    /// It rewrites patterns, too.
    pub normal: bool,
    /// What it matches as a product with a number has no other spelling.
    pub numbered: bool,
    /// Real numbers that stand nowhere by themselves: what is computed from one tells it.
    pub solved: Vec<Name>,
    /// An integer that its tables alone ask for: it is what makes them the constants of a program.
    pub sought: Option<Name>,
}

impl Pat {
    /// The number that it matches.
    fn number(&self) -> Option<&Expr> {
        match &self.kind {
            PatKind::Scalar(e) | PatKind::Flat(_, _, Some(e)) => Some(e),
            _ => None,
        }
    }
}

/// The patterns that a pattern is made of.
fn parts(kind: &PatKind) -> &[PatId] {
    match kind {
        PatKind::Var(_) | PatKind::Scalar(_) | PatKind::Table(_) => &[],
        PatKind::Apply(_, _, args) | PatKind::Flat(_, args, _) => args,
        PatKind::Broadcast(arg, _) | PatKind::Output(_, arg) => std::slice::from_ref(arg),
    }
}

impl Compiled {
    /// Real numbers that stand nowhere by themselves, but in numbers that tell what they are.
    fn solvable(&self, law: &Law) -> Vec<Name> {
        let mut found = self.names();
        let mut out = Vec::new();
        let real =
            |n: &Name| law.attrs.iter().any(|a| a.name == *n && a.ty.kind == AttrKind::Float);
        let scalars =
            || self.reached().into_iter().filter_map(|p| self.pats[p.0 as usize].number());
        while let Some(n) = scalars().find_map(|e| solve::solvable(e, &found).filter(real)) {
            found.insert(n.clone());
            out.push(n);
        }
        out
    }

    /// The names that matching binds: of numbers and attributes that are a bare name, and of entries of lists.
    pub(super) fn names(&self) -> HashSet<Name> {
        let mut out = HashSet::new();
        for e in self.expressions() {
            match &e.kind {
                ExprKind::Name(n) => drop(out.insert(n.clone())),
                _ => out.extend(list_patterns::names(e).into_iter().map(|(_, n)| n.clone())),
            }
        }
        out
    }

    /// All names in the expressions that are compared, and those that tables ask for.
    pub(super) fn asked(&self) -> HashSet<Name> {
        let mut out = self.compared();
        for p in self.reached() {
            if let PatKind::Table(t) = &self.pats[p.0 as usize].kind {
                out.extend(t.asks.iter().cloned());
            }
        }
        out
    }

    /// All names in the expressions that are compared.
    pub(super) fn compared(&self) -> HashSet<Name> {
        let mut out = HashSet::new();
        for e in self.expressions() {
            e.walk(&mut |e| {
                if let ExprKind::Name(n) | ExprKind::Entry(n, _) = &e.kind {
                    out.insert(n.clone());
                }
            });
        }
        out
    }

    fn expressions(&self) -> impl Iterator<Item = &Expr> {
        fn of(p: &Pat) -> Vec<&Expr> {
            match &p.kind {
                PatKind::Scalar(e) => vec![e],
                PatKind::Apply(_, attrs, _) => attrs.iter().flatten().collect(),
                PatKind::Flat(_, _, e) => e.iter().collect(),
                PatKind::Var(_)
                | PatKind::Broadcast(..)
                | PatKind::Output(..)
                | PatKind::Table(_) => vec![],
            }
        }
        self.reached().into_iter().flat_map(move |p| of(&self.pats[p.0 as usize]))
    }

    /// The nodes of the pattern, each once.
    fn reached(&self) -> Vec<PatId> {
        let (mut seen, mut out) = (HashSet::new(), Vec::new());
        let mut stack = self.roots.clone();
        while let Some(p) = stack.pop() {
            if seen.insert(p) {
                out.push(p);
                stack.extend(parts(&self.pats[p.0 as usize].kind));
            }
        }
        out
    }

    /// The operators that every match has an application of.
    pub fn operators(&self) -> Vec<CallId> {
        let call = |p: &PatId| match &self.pats[p.0 as usize].kind {
            PatKind::Apply(call, ..) => Some(*call),
            PatKind::Var(_)
            | PatKind::Scalar(_)
            | PatKind::Flat(..)
            | PatKind::Broadcast(..)
            | PatKind::Output(..)
            | PatKind::Table(_) => None,
        };
        let mut out: Vec<CallId> = self.reached().iter().filter_map(call).collect();
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// True if the law is a normalising one.
pub fn is_normal(law: &Law) -> bool {
    law.origin == LawOrigin::Rule && has_mark(law, Mark::Normal)
}

/// True if a law takes part in the first search, too.
pub fn is_early(law: &Law) -> bool {
    has_mark(law, Mark::Early)
}

/// True if a law chooses a layout or moves a change of layouts.
pub fn is_layout(law: &Law) -> bool {
    has_mark(law, Mark::Layout)
}

/// True if a word stands among the hints of the law.
pub fn has_mark(law: &Law, mark: Mark) -> bool {
    law.hints.iter().any(|h| h.kind == ExprKind::Mark(mark))
}

/// True if `name` is an attribute variable of the law.
pub fn is_attr(law: &Law, name: &str) -> bool {
    law.attrs.iter().any(|a| &*a.name == name)
}
