//! The `.rules` language and the typed tensor IR.
//!
//! What a tensor program and a law *are*. No e-graph, no arrays, no files, no clock.

pub mod arena;
mod boxes;
pub mod build;
pub mod canon;
pub mod check;
pub mod diag;
pub mod eval;
pub mod evaluate;
pub mod expr;
mod function;
pub mod functions;
pub mod infer;
pub mod instantiate;
pub mod ir;
pub mod known;
pub mod layout;
pub mod library;
pub mod lists;
pub mod names;
pub mod onnx;
pub mod pattern;
pub mod plan;
pub mod pointwise;
pub mod shown;
pub mod span;
mod spec;
pub mod syntax;
pub mod term;
pub mod unfold;
pub mod views;

pub use shown::{shown, told};
