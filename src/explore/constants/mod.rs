//! What depends on constants alone.

mod broadcast_constants;
mod computed;
pub(crate) mod evaluation;
pub mod folding;
