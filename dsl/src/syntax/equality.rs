//! Equality of syntax trees, independent of their position.
//!
//! `==` on a tree ignores spans; everything else counts, including comments.

use crate::syntax::ast::{AttrType, Expr, File, Item, Param, TensorType};

/// Whether two files are equal up to spans.
pub fn same(a: &File, b: &File) -> bool {
    a == b
}

impl PartialEq for Item {
    fn eq(&self, other: &Item) -> bool {
        let Item { comments, doc, name, span: _, kind } = self;
        *comments == other.comments
            && *doc == other.doc
            && *name == other.name
            && *kind == other.kind
    }
}

impl PartialEq for Param {
    fn eq(&self, other: &Param) -> bool {
        let Param { each, name, pack, kind, default, span: _ } = self;
        *each == other.each
            && *pack == other.pack
            && *name == other.name
            && *kind == other.kind
            && *default == other.default
    }
}

impl PartialEq for TensorType {
    fn eq(&self, other: &TensorType) -> bool {
        let TensorType { dtype, dims, domain, span: _ } = self;
        *dtype == other.dtype && *dims == other.dims && *domain == other.domain
    }
}

impl PartialEq for AttrType {
    fn eq(&self, other: &AttrType) -> bool {
        let AttrType { name, of, range, span: _ } = self;
        *name == other.name && *of == other.of && *range == other.range
    }
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        let Expr { kind, span: _ } = self;
        *kind == other.kind
    }
}
