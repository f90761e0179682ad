//! Types of applications: inferred, instantiated, and why they do not fit.

pub mod infer;
pub mod instantiate;
pub mod mismatch;
pub mod open_conditions;
