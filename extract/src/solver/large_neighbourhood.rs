//! Large-neighbourhood search: a few nearby classes are chosen anew, all others keep their node.
//!
//! P. Shaw, "Using constraint programming and local search methods to solve vehicle routing
//! problems", CP 1998. Each neighbourhood is solved by branch and bound under a budget of its own; if that runs out, the
//! next is smaller, if nothing is found, the next is larger. Randomness is a fixed sequence.

use crate::extractor::Stop;
use crate::solver::budget::Budget;
use crate::solver::greedy::NONE;
use crate::solver::local_search::Xorshift;
use crate::solver::problem::{ProblemDraft, Scale};
use crate::solver::pruned::Pruned;
use crate::solver::{BestFound, BranchAndBound};

/// Steps that one neighbourhood may take.
const STEPS: u64 = 1_000_000;

/// Classes with a choice in the first neighbourhood, in the smallest, and in the largest.
const FIRST: usize = 12;
const SMALLEST: usize = 4;
const LARGEST: usize = 400;

/// Neighbourhoods solved without gain before they grow.
const PATIENCE: usize = 20;

/// Improves a choice of nodes, one for each class it needs, until the budget is spent.
pub(crate) struct LargeNeighbourhoodSearch<'t> {
    trim: &'t Pruned,
    scale: Scale,
    choice: Vec<u32>,
    needed: Vec<u32>,
    cost: u64,
    improved: bool,
    width: usize,
    chance: Xorshift,
}

impl<'t> LargeNeighbourhoodSearch<'t> {
    /// Starts from a valid choice; `round` gives each run another sequence of chance.
    pub(crate) fn new(trim: &'t Pruned, scale: Scale, nodes: &[u32], round: u64) -> Self {
        let seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(round + 1) | 1;
        let mut this = Self {
            trim,
            scale,
            choice: Vec::new(),
            needed: Vec::new(),
            cost: 0,
            improved: false,
            width: FIRST,
            chance: Xorshift(seed),
        };
        this.take(nodes);
        this
    }

    /// What was found, if it is cheaper than the start.
    pub(crate) fn run(mut self, steps: u64, stop: Stop<'_>) -> Option<BestFound> {
        let mut budget = Budget::new(steps, stop);
        let mut idle = 0;
        while !budget.spent() {
            let open: Vec<u32> =
                self.needed.iter().copied().filter(|&c| self.branches(c)).collect();
            if open.is_empty() {
                break;
            }
            let start = open[self.chance.below(open.len())];
            let draft = self.draft(start);
            let mut inner = budget.part(STEPS);
            let outcome = BranchAndBound::new(&mut inner).solve(draft, self.cost, 0);
            let ended = inner.spent();
            budget.steps += inner.steps + self.trim.class_count() as u64;
            if let Some(found) = outcome.best {
                self.take(&found.nodes);
                self.improved = true;
                idle = 0;
            } else if ended {
                self.width = (self.width * 3 / 4).max(SMALLEST);
            } else {
                idle += 1;
                if idle >= PATIENCE {
                    self.width = (self.width * 3 / 2).min(LARGEST);
                    idle = 0;
                }
            }
            if self.width >= open.len() && !ended {
                break;
            }
        }
        let nodes = || self.needed.iter().map(|&class| self.choice[class as usize]).collect();
        self.improved.then(|| BestFound { cost: self.cost, nodes: nodes() })
    }

    fn branches(&self, class: u32) -> bool {
        self.trim.nodes.get(class as usize).len() > 1
    }

    /// Makes a choice the one to improve; drops what the roots do not need.
    fn take(&mut self, nodes: &[u32]) {
        self.choice = vec![NONE; self.trim.class_count()];
        for &node in nodes {
            self.choice[self.trim.class_of[node as usize] as usize] = node;
        }
        let mut seen = vec![false; self.trim.class_count()];
        self.needed.clear();
        let mut open = self.trim.roots.clone();
        while let Some(class) = open.pop() {
            if !std::mem::replace(&mut seen[class as usize], true) {
                self.needed.push(class);
                open.extend(self.trim.children.get(self.choice[class as usize] as usize));
            }
        }
        self.needed.sort_unstable();
        let costs = self.needed.iter().map(|&class| self.choice[class as usize]);
        self.cost = costs.map(|node| self.scale.ticks(self.trim.cost[node as usize])).sum();
    }

    /// The problem in which the classes with a choice nearest to `start` choose anew.
    fn draft(&mut self, start: u32) -> ProblemDraft {
        let mut free = vec![false; self.trim.class_count()];
        let mut users: Vec<Vec<u32>> = vec![Vec::new(); self.trim.class_count()];
        for &class in &self.needed {
            for &child in self.trim.children.get(self.choice[class as usize] as usize) {
                users[child as usize].push(class);
            }
        }
        let mut queue = std::collections::VecDeque::from([start]);
        let mut width = 0;
        while width < self.width
            && let Some(class) = queue.pop_front()
        {
            if std::mem::replace(&mut free[class as usize], true) {
                continue;
            }
            width += usize::from(self.branches(class));
            let children = self.trim.children.get(self.choice[class as usize] as usize);
            let near = users[class as usize].iter().chain(children);
            // A class of many users is near to everything and says nothing.
            let near: Vec<u32> =
                near.copied().filter(|&c| users[c as usize].len() <= self.width).collect();
            let first = self.chance.below(near.len().max(1));
            queue.extend(near[first..].iter().chain(&near[..first]));
        }
        let fixed = |class: u32| {
            let node = self.choice[class as usize];
            (node != NONE && !free[class as usize]).then_some(node)
        };
        ProblemDraft::within(self.trim, self.scale, fixed)
    }
}
