//! Fused pointwise expressions: register code interpreted over tiles.
//!
//! Never refers to an operator by name; it reads meanings. 16-bit floats are computed in f32 and rounded where a
//! value leaves the kernel or is cast, not after every operator: this is never less accurate.

mod casts;
pub mod code;
pub(crate) mod convert;
pub(crate) mod fused;
pub mod lower;
pub mod ops;
pub mod source;
mod tile;

pub use code::{Binary, CodeBuilder, Dst, Instr, Op, Ref, RegisterCode, Unary};
pub use source::{ElementSource, load, store, strided_copy};
pub use tile::Fused;
