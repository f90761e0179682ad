//! The tests of the crate as one program.

mod checker;
mod library;
mod names;
mod syntax;
