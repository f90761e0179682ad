//! What depends on constants alone.

mod broadcast_constants;
pub(crate) mod evaluation;
pub mod folding;
