//! Differential fuzzing: random programs, an oracle that compares every way of running them with the
//! reference interpreter, and test-case reduction.
//!
//! Refers to no operator by name and does not depend on the optimiser: programs are generated from the declarations of a library,
//! and what is tested is passed in as closures.

mod aim;
mod aimed;
pub mod campaign;
pub mod generate;
pub mod input_values;
mod near_miss;
pub mod network_sizes;
pub mod oracle;
pub mod primitive;
pub mod shrink;
pub mod sides;
mod signature;

pub use aim::{Aim, Explored, GivenLaw, LawTally};
pub use campaign::{Budget, Campaign, Failure, Summary};
pub use generate::{Generator, Size};
pub use oracle::{Finding, Stage, Subject, Verdict};
pub use sides::Application;
