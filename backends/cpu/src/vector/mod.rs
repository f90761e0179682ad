//! Kernels that are written once for all kinds of vectors: a module per level defines the operations, macros the bodies.
//!
//! The only place with intrinsics. Every body is held against the reference interpreter at every level that the machine has.

// The coefficients are written as they were fitted, in decimal.
#![allow(clippy::excessive_precision, reason = "minimax coefficients keep their published digits")]

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
pub mod functions;
pub mod halves;
pub mod lines;
#[cfg(target_arch = "aarch64")]
pub mod neon;
pub mod norms;
pub mod operands;
pub mod peak;
pub mod picks;
pub mod planes;
pub mod pools;
pub mod portable;
pub mod rows;
pub mod strided_rows;
pub mod tiles;
pub mod transpose;
pub mod window_rows;
pub mod winograd;
