//! What is known of the values of classes, derived from the meanings of operators.

pub(crate) mod broadcasts;
pub(crate) mod interval;
pub(crate) mod scalar_factors;
pub(crate) mod sign;
