//! Traps: small ONNX graphs that resemble a layer or an identity, but differ.
//!
//! Each says what distinguishes it. Optimisation must not change any value, shape or NaN; nothing
//! here says what the result looks like.

mod activation;
mod algebra;
mod attention;
mod attributes;
mod careless;
mod conv;
pub mod export;
mod graph;
mod integer;
mod linear;
mod modern;
mod norm;
pub mod run;
mod shape;
mod softmax;
pub mod text;
mod values;

use mlc_rewrite::pipeline::Options;

/// Options of the pipeline as users have them, but for the self-check, which would turn a wrong law off.
pub fn trap_options() -> Options {
    Options { self_check: false, ..crate::checked_options() }
}

/// How a trap must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// With the reference interpreter's values of the graph as read.
    Equal,
    /// The same, but where infinities meet or a pole is hit: there laws of the class `reorder` may yield the limit
    /// where the graph as read yields NaN, or NaN where it is infinite.
    Limit,
    /// With an error that has these words.
    Refused(&'static str),
}

/// A graph that is nearly something else.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    /// Its name, unique.
    pub name: &'static str,
    /// What sets it apart.
    pub why: &'static str,
    /// The graph; see [`text`].
    pub text: &'static str,
    /// How it must end.
    pub ends: Ends,
}

/// A trap whose values must not change.
const fn trap(name: &'static str, why: &'static str, text: &'static str) -> Trap {
    Trap { name, why, text, ends: Ends::Equal }
}

/// A trap whose values must not change but where infinities meet.
const fn limit(name: &'static str, why: &'static str, text: &'static str) -> Trap {
    Trap { name, why, text, ends: Ends::Limit }
}

/// A trap that must be refused.
const fn refused(
    name: &'static str,
    why: &'static str,
    words: &'static str,
    text: &'static str,
) -> Trap {
    Trap { name, why, text, ends: Ends::Refused(words) }
}

/// Traps of one kind.
#[derive(Clone, Copy)]
pub struct Family {
    /// What the command line and the table call it.
    pub name: &'static str,
    /// In the order of the table.
    pub traps: &'static [Trap],
}

/// Every family.
pub const FAMILIES: &[Family] = &[
    Family { name: "norm", traps: norm::TRAPS },
    Family { name: "activation", traps: activation::TRAPS },
    Family { name: "softmax", traps: softmax::TRAPS },
    Family { name: "attention", traps: attention::TRAPS },
    Family { name: "conv", traps: conv::TRAPS },
    Family { name: "linear", traps: linear::TRAPS },
    Family { name: "algebra", traps: algebra::TRAPS },
    Family { name: "integer", traps: integer::TRAPS },
    Family { name: "shape", traps: shape::TRAPS },
    Family { name: "attributes", traps: attributes::TRAPS },
    Family { name: "graph", traps: graph::TRAPS },
    Family { name: "modern", traps: modern::TRAPS },
    Family { name: "careless", traps: careless::TRAPS },
];
