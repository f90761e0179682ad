//! Elaborated terms: positional applications whose shapes are still symbolic.
//!
//! There are no named axes any more: an operand that lacks axes of the other one is wrapped in a `broadcast`,
//! whose attributes compute positions and shape from the sizes of axes and segments.

use crate::diagnostics::span::Span;
use crate::expr::Expr;
use crate::library::{CallId, DTypePattern, Dim};
use serde::{Deserialize, Serialize};

/// Index of a term in its [`Terms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TermId(pub u32);

/// What a term is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TermKind {
    /// The tensor variable of that index.
    Var(usize),
    /// A scalar (rank 0) computed from attributes and extents, of the term's dtype.
    Scalar(Expr),
    /// An operator with one expression per declared attribute; `None` takes the default.
    Apply(CallId, Vec<Option<Expr>>),
    /// The output of that index of a term with several.
    Output(usize),
    /// `f(each a, …)`: the members of a family folded by a binary operator, left to right.
    EachFold(CallId, Vec<Option<Expr>>),
    /// `part(e, axis)`: the slice of `e` along `axis` that belongs to the member, by its extent there.
    EachPart(Expr),
}

/// A term.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Term {
    /// What it is.
    pub kind: TermKind,
    /// Arguments, earlier terms.
    pub args: Vec<TermId>,
    /// Its dimensions: axes, segments, or computed ones. `None` if unknown.
    pub dims: Option<Vec<Dim>>,
    /// Element type.
    pub dtype: DTypePattern,
    /// Where it was written.
    pub span: Span,
}

/// Terms in topological order; equal subterms need not be shared.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Terms {
    terms: Vec<Term>,
}

impl Terms {
    /// Appends a term.
    pub fn push(&mut self, term: Term) -> TermId {
        debug_assert!(term.args.iter().all(|a| (a.0 as usize) < self.terms.len()));
        self.terms.push(term);
        TermId(self.terms.len() as u32 - 1)
    }

    /// The term of an id.
    pub fn get(&self, id: TermId) -> &Term {
        &self.terms[id.0 as usize]
    }

    /// All terms with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (TermId, &Term)> {
        self.terms.iter().enumerate().map(|(i, t)| (TermId(i as u32), t))
    }

    /// Number of terms.
    pub fn len(&self) -> usize {
        self.terms.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}
