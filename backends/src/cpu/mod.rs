//! The CPU backend.

mod buffer;
mod gemm;
mod layout;
mod math;
mod pointwise;
mod simd;
mod threads;
