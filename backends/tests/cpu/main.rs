//! The CPU backend against the judge.

mod graphs;
mod operators;
mod random;
mod support;
