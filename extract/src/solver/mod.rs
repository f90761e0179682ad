//! Branch and bound over a problem that is presolved, split into components and bounded again at every branch.
//!
//! A branch chooses one node of a class that every solution computes, so branches are disjoint and exhaustive; a
//! choice that closes a cycle makes something uncomputable and is infeasible. If stopped early, it still has a valid lower bound.

pub(crate) mod anytime;
mod budget;
pub(crate) mod greedy;
mod large_neighbourhood;
mod lm_cut;
pub(crate) mod local_search;
pub(crate) mod node_choice;
mod presolve;
mod problem;
pub(crate) mod pruned;
pub(crate) mod solution;
mod transposition_table;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use budget::Budget;
use lm_cut::{FAR, LmCutBound, Ties};
use problem::{Problem, ProblemDraft, index};
use transposition_table::TranspositionTable;

/// Branches above one another; beyond, a branch counts as not searched.
const DEPTH: usize = 600;

/// A problem is bounded anew when at least one of so many nodes was ruled out.
const REFIT: usize = 32;

/// A solution: nodes of the view, at most one for each class.
#[derive(Clone, Debug, Default)]
pub(crate) struct BestFound {
    pub(crate) cost: u64,
    pub(crate) nodes: Vec<u32>,
}

/// What became of a problem.
#[derive(Debug)]
pub(crate) struct SearchOutcome {
    /// No solution costs less; at least the cap if it was proven that none is below that.
    pub(crate) lower: u64,
    /// The best solution found below the cap.
    pub(crate) best: Option<BestFound>,
}

impl SearchOutcome {
    fn none(lower: u64) -> Self {
        Self { lower, best: None }
    }
}

/// A search under a budget.
pub(crate) struct BranchAndBound<'b, 'a> {
    budget: &'b mut Budget<'a>,
    table: TranspositionTable,
}

impl<'b, 'a> BranchAndBound<'b, 'a> {
    pub(crate) fn new(budget: &'b mut Budget<'a>) -> Self {
        Self { budget, table: TranspositionTable::default() }
    }

    /// The cheapest solution below `cap`, unless stopped.
    pub(crate) fn solve(
        &mut self,
        mut draft: ProblemDraft,
        cap: u64,
        depth: usize,
    ) -> SearchOutcome {
        if draft.shrink(&mut self.budget.steps).is_err() {
            return SearchOutcome::none(FAR);
        }
        if draft.base >= cap {
            return SearchOutcome::none(draft.base);
        }
        let room = cap - draft.base;
        let problem = draft.problem();
        let parts = problem.components();
        let outcome = match parts.len() {
            0 => SearchOutcome { lower: 0, best: Some(BestFound::default()) },
            1 => self.solve_connected(&problem, room, depth),
            _ => self.solve_parts(parts, room, depth),
        };
        let lower = draft.base.saturating_add(outcome.lower);
        let best = outcome.best.map(|mut found| {
            found.cost += draft.base;
            found.nodes.extend(draft.settled);
            found
        });
        SearchOutcome { lower, best }
    }

    /// The same for a problem in one part: recalled, or bounded and branched on.
    fn solve_connected(&mut self, problem: &Problem, cap: u64, depth: usize) -> SearchOutcome {
        let key = TranspositionTable::key(problem);
        self.budget.steps += problem.size() as u64;
        let floor = match self.table.recall(key, cap) {
            Ok(known) => return known,
            Err(lower) => lower,
        };
        let mut outcome = self.bounded(problem, cap, depth);
        // Nodes that only solutions from the cap on have were left out: nothing is known beyond it.
        outcome.lower = outcome.lower.max(floor).min(cap);
        self.table.learn(key, &outcome);
        outcome
    }

    /// Rules out nodes by both bounds, then starts again with what is left, or branches.
    fn bounded(&mut self, problem: &Problem, cap: u64, depth: usize) -> SearchOutcome {
        let mut doomed = vec![false; problem.size()];
        let mut best: Option<LmCutBound> = None;
        for ties in [Ties::Lowest, Ties::Highest] {
            let bound = LmCutBound::new(problem, ties, self.budget);
            if bound.lower >= cap {
                return SearchOutcome::none(bound.lower);
            }
            for (node, doomed) in doomed.iter_mut().enumerate() {
                *doomed |= bound.with(problem, index(node)) >= cap;
            }
            if best.as_ref().is_none_or(|best| best.lower <= bound.lower) {
                best = Some(bound);
            }
            if few(&doomed) {
                continue;
            }
            break;
        }
        let Some(bound) = best else { return SearchOutcome::none(0) };
        let mut rest = problem.draft();
        for nodes in &mut rest.nodes {
            nodes.retain(|&node| !doomed[node as usize]);
        }
        let outcome = if few(&doomed) {
            self.branch(problem, &bound, &rest, cap, depth)
        } else {
            self.solve(rest, cap, depth)
        };
        SearchOutcome { lower: outcome.lower.max(bound.lower), ..outcome }
    }

    /// Chooses each node of one class in turn; `rest` is the problem without the nodes ruled out.
    fn branch(
        &mut self,
        problem: &Problem,
        bound: &LmCutBound,
        rest: &ProblemDraft,
        mut cap: u64,
        depth: usize,
    ) -> SearchOutcome {
        let found = guess(problem, bound, &mut self.budget.steps);
        let mut best = (found.cost < cap).then_some(found);
        cap = best.as_ref().map_or(cap, |best| best.cost);
        let mut lower = FAR;
        let class = branching(problem, bound);
        if class.is_none() {
            // Only a problem that is not simplified to the end leaves nothing to choose.
            lower = bound.lower;
            if depth < DEPTH && !self.budget.spent() {
                let outcome = self.solve(rest.clone(), cap, depth + 1);
                (lower, best) = (outcome.lower, outcome.best.or(best));
            }
        }
        let open = class.map_or(&[][..], |class| &rest.nodes[class as usize]);
        let mut nodes: Vec<(u64, u32)> =
            open.iter().map(|&node| (bound.with(problem, node), node)).collect();
        nodes.sort_unstable();
        for (least, node) in nodes {
            if least >= cap || depth >= DEPTH || self.budget.spent() {
                lower = lower.min(least);
                continue;
            }
            let mut child = rest.clone();
            child.choose(problem.class_of[node as usize], node);
            let outcome = self.solve(child, cap, depth + 1);
            lower = lower.min(outcome.lower.max(least));
            if let Some(found) = outcome.best {
                cap = found.cost;
                best = Some(found);
            }
        }
        SearchOutcome { lower: lower.min(best.as_ref().map_or(FAR, |best| best.cost)), best }
    }

    /// Solves parts that have nothing to do with each other.
    fn solve_parts(&mut self, parts: Vec<ProblemDraft>, cap: u64, depth: usize) -> SearchOutcome {
        let mut lowers = Vec::with_capacity(parts.len());
        for part in &parts {
            lowers.push(LmCutBound::new(&part.problem(), Ties::Lowest, self.budget).lower);
        }
        let mut lower = lowers.iter().sum::<u64>();
        let mut found = BestFound { cost: lower, nodes: Vec::new() };
        for (part, least) in parts.into_iter().zip(lowers) {
            if found.cost >= cap {
                return SearchOutcome::none(lower);
            }
            // What is found takes the place of its bound in the price of the whole.
            let others = found.cost - least;
            let outcome = self.solve(part, cap - others, depth + 1);
            lower += outcome.lower.clamp(least, (cap - others).max(least)) - least;
            let Some(one) = outcome.best else { return SearchOutcome::none(lower) };
            found.cost = others + one.cost;
            found.nodes.extend(one.nodes);
        }
        let best = (found.cost < cap).then_some(found);
        SearchOutcome { lower, best }
    }
}

/// Whether the nodes ruled out are too few to start again for them.
fn few(doomed: &[bool]) -> bool {
    doomed.iter().filter(|doomed| **doomed).count() * REFIT < doomed.len()
}

/// The class to choose in next: required, of several nodes, all but one of which raise the bound most.
fn branching(problem: &Problem, bound: &LmCutBound) -> Option<u32> {
    let mut best: Option<(u64, Reverse<usize>, Reverse<u32>)> = None;
    for class in 0..index(problem.classes()) {
        let nodes = problem.nodes(class);
        if !problem.required[class as usize] || nodes.len() < 2 {
            continue;
        }
        let count = nodes.len();
        let mut with: Vec<u64> = nodes.map(|node| bound.with(problem, node)).collect();
        with.sort_unstable();
        best = best.max(Some((with[1], Reverse(count), Reverse(class))));
    }
    best.map(|(_, _, class)| class.0)
}

/// A solution that goes by the prices which the bound left over, true prices where those tie.
fn guess(problem: &Problem, bound: &LmCutBound, steps: &mut u64) -> BestFound {
    let mut choice = vec![u32::MAX; problem.classes()];
    let mut waiting: Vec<usize> =
        (0..problem.size()).map(|node| problem.children.get(node).len()).collect();
    let mut price: Vec<(u64, u64)> =
        bound.left.iter().copied().zip(problem.cost.iter().copied()).collect();
    let mut ready = BinaryHeap::new();
    for node in (0..problem.size()).filter(|&node| waiting[node] == 0) {
        ready.push(Reverse((price[node], node)));
    }
    while let Some(Reverse((paid, node))) = ready.pop() {
        *steps += 1;
        let class = problem.class_of[node] as usize;
        if choice[class] != u32::MAX {
            continue;
        }
        choice[class] = index(node);
        for &user in problem.users.get(class) {
            *steps += 1;
            let user = user as usize;
            price[user].0 = price[user].0.saturating_add(paid.0);
            price[user].1 = price[user].1.saturating_add(paid.1);
            waiting[user] -= 1;
            if waiting[user] == 0 {
                ready.push(Reverse((price[user], user)));
            }
        }
    }
    let mut found = BestFound { cost: 0, nodes: Vec::new() };
    let mut needed = problem.required.clone();
    let mut open: Vec<u32> =
        (0..index(problem.classes())).filter(|&class| problem.required[class as usize]).collect();
    while let Some(class) = open.pop() {
        let node = choice[class as usize];
        found.cost = found.cost.saturating_add(problem.cost[node as usize]);
        found.nodes.push(problem.origin[node as usize]);
        for &child in problem.children(node) {
            if !std::mem::replace(&mut needed[child as usize], true) {
                open.push(child);
            }
        }
    }
    found
}
