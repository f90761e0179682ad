//! The `.rules` language and the typed tensor IR.
//!
//! Defines what a tensor program and a law *are*. No e-graph, no arrays, no files, no clock.

pub mod architecture;
pub mod check;
mod deferred;
mod derived;
pub mod diagnostics;
pub mod eval;
pub mod expr;
pub mod ir;
pub mod layout;
pub mod library;
pub mod onnx;
pub mod pattern;
pub mod plan;
pub mod pointwise;
pub mod random;
pub mod recurrence;
pub mod shape_values;
pub mod syntax;
pub mod term;
pub mod typing;
pub mod whole_tensors;

pub use diagnostics::message_text::{shown, told};
