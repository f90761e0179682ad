//! Source locations.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes of the source text that something came from.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The span as a range of byte offsets.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The smallest span that holds both.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A span of one of the source texts of a library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSpan {
    /// Index of the text.
    pub file: u32,
    /// Bytes of it.
    pub span: Span,
}

impl SourceSpan {
    /// A span of the text of that index.
    pub fn new(file: u32, span: Span) -> SourceSpan {
        SourceSpan { file, span }
    }
}

/// An identifier and where it stands; `==` ignores the latter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ident {
    /// As written.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

impl PartialEq for Ident {
    fn eq(&self, other: &Ident) -> bool {
        let Ident { text, span: _ } = self;
        *text == other.text
    }
}
