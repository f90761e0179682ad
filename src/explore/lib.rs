//! Exploration: equality saturation of a program with the laws.
//!
//! The only crate that uses egg. Never decides what is cheap.

mod analysis;
pub mod constants;
mod extraction;
mod graph;
mod matcher;
pub mod outline;
pub mod progress;
mod proof;
mod saturation;

pub use extraction::{Choice, Extracted, ExtractionError, Subprogram};
pub use graph::lower::{
    Explored, PerCopyConstants, explore, explore_per_copy, explore_until_equal,
};
pub use proof::log::{LogId, Reason};
pub use proof::{Proof, ProofStep, Sides};
pub use saturation::target_laws::UnusableOperators;
pub use saturation::{LawProfile, Stop};

use std::time::Duration;

/// Hard limits of exploration.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Nodes that are ever added; never overshot.
    pub nodes: usize,
    /// Rounds.
    pub rounds: u32,
    /// Steps of matching for each node of the program, over all rounds and beside [`LEAST_STEPS`]; a million take about a second.
    pub effort: u64,
    /// Steps of matching at most, beside the least.
    pub most: u64,
    /// Time, a safety net: results depend on it only when it is hit.
    pub time: Duration,
    /// Threads of the search; the result is the same.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        let time = Duration::from_secs(20);
        Limits { nodes: 12_000, rounds: 24, effort: 10_000, most: MOST_STEPS, time, threads: 1 }
    }
}

/// Steps of matching that the smallest program may take, and the largest.
pub const LEAST_STEPS: u64 = 300_000;
const MOST_STEPS: u64 = 20_000_000;

/// Steps of matching for each second that a run of the program is estimated to take: a search longer than some hundred
/// thousand runs is not worth what it may gain.
const STEPS_OF_GAIN: f64 = 1e11;

impl Limits {
    /// Steps of matching for a program of so many nodes.
    pub(crate) fn steps(&self, nodes: usize) -> u64 {
        self.effort.saturating_mul(nodes as u64).min(self.most).saturating_add(LEAST_STEPS)
    }

    /// The same limits for a program that takes so many seconds: no more effort than there is to gain.
    pub fn for_gain(&self, seconds: f64) -> Limits {
        Limits { most: self.most.min((seconds * STEPS_OF_GAIN) as u64), ..self.clone() }
    }
}
