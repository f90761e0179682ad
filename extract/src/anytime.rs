//! Search that can be stopped at any time and knows how far from the optimum it may be.
//!
//! Rounds of growing budgets: branch and bound on the whole problem beside search in neighbourhoods of the best program, which
//! meet after each round. Steps are the only clock, so a run that is not stopped from outside has one result, whatever the
//! number of threads.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::budget::Budget;
use crate::extractor::{ExtractError, Extraction, Extractor, GreedyDag, GreedyTree, Stop, better};
use crate::problem::{Draft, Scale};
use crate::region::Regions;
use crate::search::{Found, Outcome, Search};
use crate::solution::Solution;
use crate::trim::Trim;
use crate::view::{Cost, NodeId, View};

/// Steps of the first round, and how many times that the next has.
const ROUND: u64 = 16_000_000;
const GROWTH: u64 = 8;

/// Steps of the greedy start at most.
const START: u64 = 100_000_000;

/// The best program that a budget allows, and a lower bound: greedy over the DAG, then rounds of exact search on the whole and
/// in neighbourhoods. Ends early when the optimum is proven.
#[derive(Clone, Copy, Debug)]
pub struct Anytime {
    /// Elementary steps; some 30 million to the second.
    pub steps: u64,
    /// Threads, one or two; the result is the same.
    pub threads: usize,
}

impl Default for Anytime {
    /// About half a second for an e-graph of ten thousand nodes.
    fn default() -> Self {
        Self { steps: ROUND, threads: 2 }
    }
}

impl Extractor for Anytime {
    fn extract(&self, view: &View, incumbent: Option<&Solution>) -> Result<Solution, ExtractError> {
        Ok(self.search(view, incumbent, &|| false)?.solution)
    }

    fn search(
        &self,
        view: &View,
        incumbent: Option<&Solution>,
        stop: Stop<'_>,
    ) -> Result<Extraction, ExtractError> {
        let greedy = GreedyDag { steps: self.steps.min(START) };
        let start = greedy.extract(view, incumbent)?;
        let trim = Trim::new(view);
        let mut proof = Proof::new(view, &trim, start)?;
        let mut budget = ROUND;
        let mut round = 0;
        while !proof.closed() && proof.steps < self.steps && !stop() {
            budget = budget.min(self.steps - proof.steps);
            let nodes = proof.nodes()?;
            let ended = AtomicBool::new(false);
            let halt = || ended.load(Ordering::Relaxed) || stop();
            let exact = || {
                let outcome = proof.exact(budget, stop);
                ended.store(outcome.0.lower >= proof.cap, Ordering::Relaxed);
                outcome
            };
            let near = || Regions::new(&trim, proof.scale, &nodes, round).run(budget, &halt);
            let ((outcome, steps), found) = if self.threads > 1 {
                std::thread::scope(|scope| {
                    let near = scope.spawn(near);
                    let outcome = exact();
                    (outcome, near.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
                })
            } else {
                let outcome = exact();
                let found = if ended.load(Ordering::Relaxed) { None } else { near() };
                (outcome, found)
            };
            proof.learn(outcome, steps);
            if let Some(found) = found.filter(|_| !proof.closed()) {
                proof.take(found);
            }
            budget = budget.saturating_mul(GROWTH);
            round += 1;
        }
        Ok(proof.extraction())
    }
}

/// The optimum, proven by branch and bound alone; where the budget ends first, the best found and a lower bound.
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    /// Elementary steps; some 30 million to the second.
    pub steps: u64,
    /// Steps of the greedy start; none takes the cheapest trees as they are.
    pub start: u64,
}

impl Default for Exact {
    fn default() -> Self {
        Self { steps: u64::MAX, start: START }
    }
}

impl Extractor for Exact {
    fn extract(&self, view: &View, incumbent: Option<&Solution>) -> Result<Solution, ExtractError> {
        Ok(self.search(view, incumbent, &|| false)?.solution)
    }

    fn search(
        &self,
        view: &View,
        incumbent: Option<&Solution>,
        stop: Stop<'_>,
    ) -> Result<Extraction, ExtractError> {
        let start = match self.start {
            0 => GreedyTree.extract(view, incumbent)?,
            steps => GreedyDag { steps }.extract(view, incumbent)?,
        };
        let trim = Trim::new(view);
        let mut proof = Proof::new(view, &trim, start)?;
        let (outcome, steps) = proof.exact(self.steps, stop);
        proof.learn(outcome, steps);
        Ok(proof.extraction())
    }
}

/// A program with a lower bound that takes little to find.
pub(crate) fn bound(view: &View, solution: Solution) -> Result<Extraction, ExtractError> {
    let trim = Trim::new(view);
    let mut proof = Proof::new(view, &trim, solution)?;
    let (outcome, steps) = proof.exact(ROUND, &|| false);
    proof.lower = outcome.lower.min(proof.cap);
    proof.steps = steps;
    Ok(proof.extraction())
}

/// What is known: a program, a bound.
struct Proof<'v> {
    view: &'v View,
    trim: &'v Trim,
    scale: Scale,
    solution: Solution,
    /// Price of the solution in ticks.
    cap: u64,
    lower: u64,
    steps: u64,
}

impl<'v> Proof<'v> {
    fn new(view: &'v View, trim: &'v Trim, solution: Solution) -> Result<Self, ExtractError> {
        let scale = Scale::of(solution.dag_cost(view).seconds());
        let mut this = Self { view, trim, scale, solution, cap: 0, lower: 0, steps: 0 };
        let ticks = this.nodes()?.into_iter().map(|node| scale.ticks(trim.cost[node as usize]));
        this.cap = ticks.sum();
        Ok(this)
    }

    fn nodes(&self) -> Result<Vec<u32>, ExtractError> {
        Ok(self.solution.topological(self.view)?.into_iter().map(u32::from).collect())
    }

    fn closed(&self) -> bool {
        self.lower >= self.cap
    }

    /// Branch and bound on the whole; what came of it, and the steps it took.
    fn exact(&self, steps: u64, stop: Stop<'_>) -> (Outcome, u64) {
        let mut budget = Budget::new(steps, stop);
        let draft = Draft::within(self.trim, self.scale, |_| None);
        let outcome = Search::new(&mut budget).solve(draft, self.cap, 0);
        (outcome, budget.steps)
    }

    fn learn(&mut self, outcome: Outcome, steps: u64) {
        self.steps += steps;
        if let Some(found) = outcome.best {
            self.take(found);
        }
        self.lower = self.lower.max(outcome.lower.min(self.cap));
    }

    fn take(&mut self, found: Found) {
        if found.cost >= self.cap {
            return;
        }
        let mut choice = vec![None; self.view.class_count()];
        for node in found.nodes {
            choice[self.trim.class_of[node as usize] as usize] = Some(NodeId::new(node));
        }
        let solution = Solution::new(choice);
        assert_eq!(
            solution.validate(self.view),
            Ok(()),
            "every move of the search keeps a program"
        );
        self.solution = better(self.view, solution, Some(&self.solution));
        self.cap = found.cost;
    }

    fn extraction(self) -> Extraction {
        let cost = self.solution.dag_cost(self.view);
        let bound = Cost::new(self.scale.price(self.lower)).min(cost);
        let lower_bound = if self.closed() { cost } else { bound };
        Extraction { solution: self.solution, cost, lower_bound, steps: self.steps }
    }
}
