//! The tests of the crate as one program.

mod anytime;
mod candidates;
mod fit;
mod graphs;
mod memory;
mod optimum;
mod tables;
