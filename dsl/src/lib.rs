//! The `.rules` language and the typed tensor IR.
//!
//! Defines what a tensor program and a law *are*. No e-graph, no arrays, no files, no clock.

pub mod architecture;
pub mod arena;
pub mod build;
pub mod canon;
pub mod check;
pub mod definition_values;
pub mod diag;
pub mod eval;
pub mod expr;
mod function;
pub mod functions;
pub mod infer;
pub mod instantiate;
pub mod ir;
pub mod layout;
pub mod library;
pub mod list_patterns;
pub mod message_text;
pub mod mismatch;
pub mod onnx;
mod onnx_shapes;
mod onnx_slices;
pub mod pattern;
pub mod plan;
pub mod pointwise;
pub mod recurrence;
mod reshape_boxes;
pub mod shape_values;
pub mod span;
pub mod strided_views;
pub mod suggestions;
pub mod syntax;
pub mod term;
pub mod unfold;
pub mod whole_tensors;

pub use message_text::{shown, told};
