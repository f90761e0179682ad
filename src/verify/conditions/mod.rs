//! Conditions of laws: met, broken, and inferred.

pub(crate) mod alternatives;
mod idle;
pub(crate) mod infer;
pub(crate) mod solve;
