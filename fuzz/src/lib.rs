//! Differential fuzzing: random programs, an oracle that holds every way to run them against the
//! judge, and a reducer that makes what fails small.
//!
//! Knows no operator by name and no optimiser: programs are drawn from the declarations of a library,
//! what is tested is handed in as closures.

pub mod campaign;
pub mod flat;
pub mod generate;
pub mod oracle;
pub mod random;
pub mod reduce;
pub mod shapes;
mod signature;
pub mod values;

pub use campaign::{Budget, Campaign, Failure, Summary};
pub use generate::{Generator, Size};
pub use oracle::{Finding, Stage, Subject, Verdict};
pub use random::Random;
