//! What control flow a node is, for whoever runs a file node by node. Nothing is read or executed here.

use crate::raw::{RawAttr, RawGraph, RawNode};

/// Control flow of a node.
#[derive(Clone, Copy, Debug)]
pub enum Flow<'n> {
    /// One of two bodies, by the first input.
    Branch {
        /// If it is true.
        then: &'n RawGraph,
        /// If it is not.
        otherwise: &'n RawGraph,
    },
    /// A body that runs again and again: inputs are the most times, whether it runs at all, and what is carried.
    Repeat {
        /// Its inputs are the time, whether it goes on, and what is carried; its outputs all but the first of these, and what is kept of
        /// every time.
        body: &'n RawGraph,
    },
}

/// The control flow that a node is, if its bodies can be run one by one.
pub fn flow(node: &RawNode) -> Option<Flow<'_>> {
    let body = |key: &str| match node.attrs.get(key) {
        Some(RawAttr::Graph(g)) => Some(&**g),
        _ => None,
    };
    match (node.domain.as_str(), node.op_type.as_str()) {
        ("", "If") => {
            Some(Flow::Branch { then: body("then_branch")?, otherwise: body("else_branch")? })
        }
        ("", "Loop") => Some(Flow::Repeat { body: body("body")? }),
        _ => None,
    }
}
