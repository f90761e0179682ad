//! Branch and bound over a problem that is simplified, cut into parts and bounded anew at every branch.
//!
//! A branch chooses one node of a class that every solution computes, so branches exclude each other and cover everything; a
//! choice that closes a cycle leaves something uncomputable and dies. Stopped early, it still knows a valid lower bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::budget::Budget;
use crate::landmark::{Bound, FAR, Ties};
use crate::problem::{Draft, Problem, index};

/// Branches above one another; beyond, a branch counts as not searched.
const DEPTH: usize = 600;

/// Times that a problem is bounded anew after nodes fell to its bound.
const REFITS: usize = 6;

/// A solution: nodes of the view, at most one for each class.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) cost: u64,
    pub(crate) nodes: Vec<u32>,
}

/// What became of a problem.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// No solution costs less; at least the cap if it was proven that none is below that.
    pub(crate) lower: u64,
    /// The best solution found below the cap.
    pub(crate) best: Option<Found>,
}

impl Outcome {
    fn none(lower: u64) -> Self {
        Self { lower, best: None }
    }

    /// The same, where no solution is known to cost less than `floor`.
    fn above(mut self, floor: u64) -> Self {
        self.lower = self.lower.max(floor);
        self
    }
}

/// A search under a budget.
pub(crate) struct Search<'b, 'a> {
    budget: &'b mut Budget<'a>,
}

impl<'b, 'a> Search<'b, 'a> {
    pub(crate) fn new(budget: &'b mut Budget<'a>) -> Self {
        Self { budget }
    }

    /// The cheapest solution below `cap`, unless stopped.
    pub(crate) fn solve(&mut self, mut draft: Draft, cap: u64, depth: usize) -> Outcome {
        let mut floor = 0;
        let mut refits = 0;
        // Bounds of the same nodes in a row.
        let mut idle = 0;
        let (problem, bound) = loop {
            if draft.shrink(&mut self.budget.steps).is_err() {
                return Outcome::none(FAR);
            }
            if draft.base >= cap {
                return Outcome::none(draft.base);
            }
            let problem = draft.problem();
            if problem.size() == 0 {
                let best = Some(Found { cost: draft.base, nodes: draft.settled });
                return Outcome { lower: draft.base, best };
            }
            let parts = problem.components();
            if parts.len() > 1 {
                return self.solve_parts(parts, &draft, cap, depth).above(floor);
            }
            let ties = if refits % 2 == 0 { Ties::Lowest } else { Ties::Highest };
            let bound = Bound::new(&problem, ties, self.budget);
            floor = floor.max(draft.base + bound.lower);
            if floor >= cap {
                return Outcome::none(floor);
            }
            let room = cap - draft.base;
            let doomed: Vec<bool> =
                (0..index(problem.size())).map(|node| bound.with(&problem, node) >= room).collect();
            idle = if doomed.contains(&true) { 1 } else { idle + 1 };
            if (idle > 1 || refits >= REFITS) && branching(&problem, &bound).is_some() {
                break (problem, bound);
            }
            refits += 1;
            let mut next = problem.draft();
            for nodes in &mut next.nodes {
                nodes.retain(|&node| !doomed[node as usize]);
            }
            (next.base, next.settled) = (draft.base, draft.settled);
            draft = next;
        };
        self.branch(&problem, &bound, &draft, cap, depth).above(floor)
    }

    fn branch(
        &mut self,
        problem: &Problem,
        bound: &Bound,
        draft: &Draft,
        mut cap: u64,
        depth: usize,
    ) -> Outcome {
        let mut best = None;
        let found = guess(problem, bound, &mut self.budget.steps);
        if draft.base + found.cost < cap {
            cap = draft.base + found.cost;
            best = Some(joined(draft, found));
        }
        let own = draft.base + bound.lower;
        let Some(class) = branching(problem, bound) else { return Outcome { lower: own, best } };
        let mut nodes: Vec<(u64, u32)> = problem
            .nodes(class)
            .map(|node| (draft.base.saturating_add(bound.with(problem, node)), node))
            .collect();
        nodes.sort_unstable();
        let mut lower = FAR;
        for (least, node) in nodes {
            if least >= cap || depth >= DEPTH || self.budget.spent() {
                lower = lower.min(least);
                continue;
            }
            let mut child = problem.draft();
            child.choose(class, node);
            let room = cap - draft.base;
            let outcome = self.solve(child, room, depth + 1);
            lower = lower.min(draft.base.saturating_add(outcome.lower).max(least));
            if let Some(found) = outcome.best {
                cap = draft.base + found.cost;
                best = Some(joined(draft, found));
            }
        }
        if let Some(best) = &best {
            lower = lower.min(best.cost);
        }
        Outcome { lower: lower.max(own), best }
    }

    /// Solves parts that have nothing to do with each other.
    fn solve_parts(&mut self, parts: Vec<Draft>, whole: &Draft, cap: u64, depth: usize) -> Outcome {
        let mut lowers = Vec::with_capacity(parts.len());
        for part in &parts {
            let bound = Bound::new(&part.problem(), Ties::Lowest, self.budget);
            lowers.push(bound.lower);
        }
        let mut lower = whole.base + lowers.iter().sum::<u64>();
        let mut found = Some(Found { cost: lower, nodes: whole.settled.clone() });
        for (part, least) in parts.into_iter().zip(lowers) {
            // What is found takes the place of its bound in the price of the whole.
            let so_far = found.as_ref().map_or(lower, |found| found.cost);
            if lower >= cap || so_far >= cap {
                return Outcome::none(lower);
            }
            let outcome = self.solve(part, cap - (so_far - least), depth + 1);
            lower = (lower - least).saturating_add(outcome.lower.max(least));
            match (outcome.best, &mut found) {
                (Some(one), Some(found)) => {
                    found.cost = so_far - least + one.cost;
                    found.nodes.extend(one.nodes);
                }
                _ => return Outcome::none(lower),
            }
        }
        Outcome { lower, best: found.filter(|found| found.cost < cap) }
    }
}

fn joined(draft: &Draft, mut found: Found) -> Found {
    found.cost += draft.base;
    found.nodes.extend(&draft.settled);
    found
}

/// The class to choose in next: required, of several nodes, all but one of which raise the bound most.
fn branching(problem: &Problem, bound: &Bound) -> Option<u32> {
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
fn guess(problem: &Problem, bound: &Bound, steps: &mut u64) -> Found {
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
    let mut found = Found { cost: 0, nodes: Vec::new() };
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
