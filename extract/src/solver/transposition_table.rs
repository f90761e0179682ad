//! A transposition table: results for problems that the search met before, because different branches often leave the same problem.
//!
//! A problem is identified by a 128-bit hash of all that determines its solutions; the probability of a collision is far
//! below that of a hardware fault.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::solver::problem::Problem;
use crate::solver::{BestFound, SearchOutcome};

/// Nodes of solutions kept, and problems; beyond, nothing new is remembered.
const NODES: usize = 1 << 23;
const PROBLEMS: usize = 1 << 20;

/// What tells a problem from others.
pub(crate) type Key = (u64, u64);

/// Bounds and solutions of problems.
#[derive(Default)]
pub(crate) struct TranspositionTable {
    known: HashMap<Key, SearchOutcome>,
    nodes: usize,
}

impl TranspositionTable {
    pub(crate) fn key(problem: &Problem) -> Key {
        let hash = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            seed.hash(&mut hasher);
            problem.first.hash(&mut hasher);
            problem.cost.hash(&mut hasher);
            problem.required.hash(&mut hasher);
            problem.origin.hash(&mut hasher);
            for node in 0..problem.size() {
                problem.children.get(node).hash(&mut hasher);
            }
            hasher.finish()
        };
        (hash(0), hash(1))
    }

    /// What is known, if it answers for solutions below `cap`; else the lower bound alone.
    pub(crate) fn recall(&self, key: Key, cap: u64) -> Result<SearchOutcome, u64> {
        let Some(known) = self.known.get(&key) else { return Err(0) };
        if known.lower >= cap {
            return Ok(SearchOutcome { lower: known.lower, best: None });
        }
        match &known.best {
            Some(best) if best.cost <= known.lower => Ok(SearchOutcome {
                lower: known.lower,
                best: Some(BestFound { cost: best.cost, nodes: best.nodes.clone() }),
            }),
            _ => Err(known.lower),
        }
    }

    /// Remembers what became of a problem.
    pub(crate) fn learn(&mut self, key: Key, outcome: &SearchOutcome) {
        if self.known.len() >= PROBLEMS || self.nodes >= NODES {
            return;
        }
        let known = self.known.entry(key).or_insert(SearchOutcome { lower: 0, best: None });
        known.lower = known.lower.max(outcome.lower);
        let cheapest = known.best.as_ref().map_or(u64::MAX, |best| best.cost);
        if let Some(best) = outcome.best.as_ref().filter(|best| best.cost < cheapest) {
            self.nodes += best.nodes.len();
            known.best = Some(best.clone());
        }
    }
}
