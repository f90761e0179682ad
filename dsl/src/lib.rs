//! The `.rules` language and the typed tensor IR.
//!
//! What a tensor program and a law *are*. No e-graph, no arrays, no files, no clock.

pub mod ir;
pub mod library;
pub mod syntax;
