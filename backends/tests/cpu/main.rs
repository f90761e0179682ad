//! The CPU backend against the judge.

mod attention;
mod graphs;
mod operators;
mod random;
mod support;
