//! The tests of the crate as one program.

mod bounded_work;
mod check_laws;
mod identities;
