//! Anytime search: can be stopped at any time, and knows its optimality gap.
//!
//! Rounds of growing budgets: branch and bound on the whole problem; in parallel the same with small costs ignored, and
//! large-neighbourhood search from the best program. They synchronise after each round.
//! Steps are the only clock, so a run that is not stopped from outside has one result, whatever the number of threads.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::egraph_view::{Cost, EGraphView, NodeId};
use crate::extractor::{ExtractError, Extraction, Extractor, GreedyDag, GreedyTree, Stop, better};
use crate::solver::budget::Budget;
use crate::solver::large_neighbourhood::LargeNeighbourhoodSearch;
use crate::solver::problem::{ProblemDraft, Scale};
use crate::solver::pruned::Pruned;
use crate::solver::solution::Solution;
use crate::solver::{BranchAndBound, SearchOutcome};

/// Steps of the first round, and how many times that the next has.
const ROUND: u64 = 16_000_000;
const GROWTH: u64 = 8;

/// Steps for a bound beside an answer of another kind.
const BOUND: u64 = 4_000_000;

/// Bytes of stack for branches above one another.
const STACK: usize = 64 << 20;

/// Steps of the greedy start at most.
const START: u64 = 30_000_000;

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
    /// Some tenths of a second where the optimum is not proven sooner.
    fn default() -> Self {
        Self { steps: 5_000_000, threads: 2 }
    }
}

impl Extractor for Anytime {
    fn extract(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
    ) -> Result<Solution, ExtractError> {
        Ok(self.search(view, incumbent, &|| false)?.solution)
    }

    fn search(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
        stop: Stop<'_>,
    ) -> Result<Extraction, ExtractError> {
        let greedy = GreedyDag { steps: self.steps.min(START) };
        let start = greedy.extract(view, incumbent)?;
        let trim = Pruned::new(view);
        let mut proof = Proof::new(view, &trim, start)?;
        let mut budget = ROUND;
        let mut round = 0;
        while !proof.closed() && proof.steps < self.steps && !stop() {
            budget = budget.min(self.steps - proof.steps);
            let ended = AtomicBool::new(false);
            let halt = || ended.load(Ordering::Relaxed) || stop();
            let exact = || {
                let result = proof.exact(proof.scale, budget, stop);
                ended.store(result.outcome.lower >= result.cap, Ordering::Relaxed);
                result
            };
            // The same in small change left out, then neighbourhoods: of no use once the optimum is proven.
            let nodes = proof.nodes()?;
            let beside = || {
                let coarse = proof.exact(proof.scale.coarse(), budget, &halt);
                let regions = LargeNeighbourhoodSearch::new(&trim, proof.scale, &nodes, round);
                (coarse, roomy(|| regions.run(budget / 2, &halt)))
            };
            let (exact, beside) = if self.threads > 1 {
                std::thread::scope(|scope| {
                    let beside = scope.spawn(beside);
                    let exact = exact();
                    (exact, Some(beside.join().unwrap_or_else(|e| std::panic::resume_unwind(e))))
                })
            } else {
                let exact = exact();
                (exact, (!ended.load(Ordering::Relaxed)).then(beside))
            };
            proof.steps += exact.steps;
            proof.learn(exact);
            if let Some((coarse, near)) = beside.filter(|_| !proof.closed()) {
                proof.learn(coarse);
                near.into_iter().for_each(|found| proof.take(found.nodes));
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
    fn extract(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
    ) -> Result<Solution, ExtractError> {
        Ok(self.search(view, incumbent, &|| false)?.solution)
    }

    fn search(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
        stop: Stop<'_>,
    ) -> Result<Extraction, ExtractError> {
        let start = match self.start {
            0 => GreedyTree.extract(view, incumbent)?,
            steps => GreedyDag { steps }.extract(view, incumbent)?,
        };
        let trim = Pruned::new(view);
        let mut proof = Proof::new(view, &trim, start)?;
        let result = proof.exact(proof.scale, self.steps, stop);
        proof.steps = result.steps;
        proof.learn(result);
        Ok(proof.extraction())
    }
}

/// Runs on a stack that is large enough for the deepest branches, whatever the caller's is.
fn roomy<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let work = thread.spawn_scoped(scope, work).expect("the system has a thread to give");
        work.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

/// A program with a lower bound that takes little to find.
pub(crate) fn bound(view: &EGraphView, solution: Solution) -> Result<Extraction, ExtractError> {
    let trim = Pruned::new(view);
    let mut proof = Proof::new(view, &trim, solution)?;
    let result = proof.exact(proof.scale, BOUND, &|| false);
    proof.lower = result.outcome.lower.min(result.cap);
    proof.steps = result.steps;
    Ok(proof.extraction())
}

/// What came of branch and bound.
struct BranchAndBoundResult {
    outcome: SearchOutcome,
    /// The price that solutions had to be below.
    cap: u64,
    steps: u64,
}

/// What is known: a program, a bound.
struct Proof<'v> {
    view: &'v EGraphView,
    trim: &'v Pruned,
    scale: Scale,
    solution: Solution,
    /// Price of the solution in ticks.
    cap: u64,
    lower: u64,
    steps: u64,
}

impl<'v> Proof<'v> {
    fn new(
        view: &'v EGraphView,
        trim: &'v Pruned,
        solution: Solution,
    ) -> Result<Self, ExtractError> {
        let scale = Scale::of(solution.dag_cost(view).seconds());
        let mut this = Self { view, trim, scale, solution, cap: 0, lower: 0, steps: 0 };
        this.cap = this.ticks(scale, &this.nodes()?);
        Ok(this)
    }

    fn nodes(&self) -> Result<Vec<u32>, ExtractError> {
        Ok(self.solution.topological(self.view)?.into_iter().map(u32::from).collect())
    }

    fn ticks(&self, scale: Scale, nodes: &[u32]) -> u64 {
        nodes.iter().map(|&node| scale.ticks(self.trim.cost[node as usize])).sum()
    }

    fn closed(&self) -> bool {
        self.lower >= self.cap
    }

    /// Branch and bound on the whole, at the prices of a scale.
    fn exact(&self, scale: Scale, steps: u64, stop: Stop<'_>) -> BranchAndBoundResult {
        let chosen = self.solution.topological(self.view).into_iter().flatten().map(u32::from);
        let cap = self.ticks(scale, &chosen.collect::<Vec<u32>>());
        let mut budget = Budget::new(steps, stop);
        let draft = ProblemDraft::within(self.trim, scale, |_| None);
        let outcome = roomy(|| BranchAndBound::new(&mut budget).solve(draft, cap, 0));
        BranchAndBoundResult { outcome, cap, steps: budget.steps }
    }

    fn learn(&mut self, searched: BranchAndBoundResult) {
        if let Some(found) = searched.outcome.best {
            self.take(found.nodes);
        }
        self.lower = self.lower.max(searched.outcome.lower.min(searched.cap));
    }

    fn take(&mut self, nodes: Vec<u32>) {
        let mut choice = vec![None; self.view.class_count()];
        for node in nodes {
            choice[self.trim.class_of[node as usize] as usize] = Some(NodeId::new(node));
        }
        let solution = Solution::new(choice);
        let chosen = solution.topological(self.view);
        let chosen = chosen.expect("every move of the search keeps a program").into_iter();
        let cap = self.ticks(self.scale, &chosen.map(u32::from).collect::<Vec<u32>>());
        if cap < self.cap {
            self.solution = better(self.view, solution, Some(&self.solution));
            self.cap = cap;
        }
    }

    fn extraction(self) -> Extraction {
        let cost = self.solution.dag_cost(self.view);
        let bound = Cost::new(self.scale.price(self.lower)).min(cost);
        let lower_bound = if self.closed() { cost } else { bound };
        Extraction { solution: self.solution, cost, lower_bound, steps: self.steps }
    }
}
