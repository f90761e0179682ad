//! The CPU backend against the reference interpreter.

mod attention;
mod element_types;
mod graphs;
mod operators;
mod plans;
mod random;
mod support;
