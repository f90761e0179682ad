//! What depends on constants alone.

pub(crate) mod evaluation;
pub mod folding;
mod repeated;
