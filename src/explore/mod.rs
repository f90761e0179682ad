//! Exploration: every program that the laws make equal to the one imported.
//!
//! The only folder that names egg. Never decides what is cheap.

mod apply;
mod changes;
mod compile;
mod emit;
mod extract;
mod families;
mod flatten;
mod fold;
mod graph;
mod interval;
mod language;
mod log;
mod lower;
mod matcher;
mod matcher_attrs;
mod matcher_flat;
mod normal;
mod numbers;
mod pattern;
mod proof;
mod replay;
mod schedule;
mod sign;
mod spread;
mod stored;

pub use compile::unsolved;
pub use extract::{Choice, Extracted, ExtractionError, Part};
pub use log::{LogId, Reason};
pub use lower::{Explored, Series, explore, explore_series};
pub use proof::{Proof, ProofStep};
pub use schedule::{LawProfile, Stop};

use std::time::Duration;

/// Hard limits of exploration.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Nodes that are ever added; never overshot.
    pub nodes: usize,
    /// Rounds.
    pub rounds: u32,
    /// Time, a safety net: results depend on it only when it is hit.
    pub time: Duration,
    /// Threads of the search; the result is the same.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { nodes: 12_000, rounds: 24, time: Duration::from_secs(20), threads: 1 }
    }
}
