//! The CPU backend against the judge.

mod attention;
mod graphs;
mod operators;
mod plans;
mod random;
mod support;
