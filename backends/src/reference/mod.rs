//! The f64 judge.
