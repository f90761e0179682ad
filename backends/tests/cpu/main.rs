//! The CPU backend against the judge.

mod graphs;
mod operators;
mod support;
