//! Laws compiled for matching: left sides in normal form, sums and products flattened.
//!
//! A law marked `when normal` rewrites the patterns of all other laws too, so that `x / sqrt(2)` in a
//! law matches whatever spelling the program has.

use mlc_dsl::library::{CallId, DTypePattern, Dim, Law, LawOrigin};
use mlc_dsl::syntax::ast::{Expr, ExprKind};

/// Index of a pattern node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PatId(pub u32);

/// A pattern node.
#[derive(Clone, Debug)]
pub struct Pat {
    /// What it matches.
    pub kind: PatKind,
    /// Its dimensions.
    pub dims: Vec<Dim>,
    /// Its element type.
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
}

impl Compiled {
    /// The operators that every match has an application of.
    pub fn operators(&self) -> Vec<CallId> {
        let mut out = Vec::new();
        let mut stack = self.roots.clone();
        while let Some(p) = stack.pop() {
            match &self.pats[p.0 as usize].kind {
                PatKind::Apply(call, _, args) => {
                    out.push(*call);
                    stack.extend(args);
                }
                PatKind::Flat(_, args, _) => stack.extend(args),
                PatKind::Broadcast(arg, _) | PatKind::Output(_, arg) => stack.push(*arg),
                PatKind::Var(_) | PatKind::Scalar(_) => {}
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// True if the law is a normalising one.
pub fn is_normal(law: &Law) -> bool {
    law.origin == LawOrigin::Rule && has_hint(law, "normal")
}

/// True if a word stands among the hints of the law.
pub fn has_hint(law: &Law, word: &str) -> bool {
    law.hints.iter().any(|h| matches!(&h.kind, ExprKind::Name(n) if n == word))
}

/// True if `name` is an attribute variable of the law.
pub fn is_attr(law: &Law, name: &str) -> bool {
    law.attrs.iter().any(|a| &*a.name == name)
}
