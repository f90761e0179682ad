//! SIMD kernels, written once for all instruction sets: a module per level defines the vector operations, macros the bodies.
//!
//! The only place with intrinsics for floats. Every body is held against the reference interpreter at every level that the machine has. Nothing here
//! knows plans, layouts or operators: it is compiled apart from what changes often, since it takes longest.

// The coefficients are written as they were fitted, in decimal.
#![allow(clippy::excessive_precision, reason = "minimax coefficients keep their published digits")]

pub mod arrays;
mod bodies;
pub mod epilogue;
mod levels;
pub mod math;
mod shared;
pub mod simd;
pub mod tile;

pub use bodies::peak::multiply_adds;
pub use bodies::{
    f16, functions, lane_gather, norms, planes, pools, rows, strided_rows, transpose, winograd,
};
pub use shared::SharedSlice;
