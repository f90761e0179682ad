//! The typed tensor IR: what a program *is*.
//!
//! Never does I/O and knows no operator by name; operators are declared in `.rules` texts and
//! reach this module as indices into a [`crate::library::Library`].

mod attr;
pub mod build;
pub mod canon;
mod common_extent;
mod dtype;
mod extent;
pub mod halves;
mod program;
mod small_float;
pub mod strings;
mod tensor;
mod ty;
pub mod unfold;

pub use attr::Attr;
pub use common_extent::{Common, common_extent, may_equal, parts};
pub use dtype::DType;
pub use extent::{Atom, Extent, ExtentValues, Linear, Monomial, SharedExtents, WEIGHT};
pub use program::{ConstId, Consts, Node, NodeId, NodeKind, Program, Value};
pub use small_float::SmallFloat;
pub use tensor::{FileRange, Tensor, TensorError};
pub use ty::Type;
