//! Operators on element types besides floats.

mod integers;
mod small_types;
pub(crate) mod strings;
