//! The LM-cut lower bound on the cost of every solution.
//!
//! Landmark cuts of M. Helmert, C. Domshlak, "Landmarks, critical paths and abstractions", ICAPS 2009, a dual ascent.
//! Take a set of classes that contains a required one, and its nodes with no operand in the set: the first class of the set that
//! a program computes is computed by one of these. Their least cost is moved from them to the bound, until the remaining
//! costs no longer distinguish required classes from free ones. Cycles cannot be used to avoid a cost.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::solver::budget::Budget;
use crate::solver::problem::{Problem, index};

/// What cannot be reached costs this.
pub(crate) const FAR: u64 = u64::MAX;

/// Which of equally dear classes a cut follows. The two bounds differ: what one of them rules out, the other need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ties {
    Lowest,
    Highest,
}

impl Ties {
    /// The place of a class among equally dear ones, and the class at a place.
    fn place(self, class: u32) -> u32 {
        match self {
            Self::Lowest => !class,
            Self::Highest => class,
        }
    }
}

/// The bound, and what it leaves.
pub(crate) struct LmCutBound {
    /// No solution costs less.
    pub(crate) lower: u64,
    /// Price of each node that the bound has not used.
    pub(crate) left: Vec<u64>,
    /// Least price left over of the most expensive chain below each class.
    below: Vec<u64>,
    /// Least price left over of a chain from each class up to a required one.
    above: Vec<u64>,
}

impl LmCutBound {
    /// The bound for a problem all of whose classes can be computed; lower if the budget ends first.
    pub(crate) fn new(problem: &Problem, ties: Ties, budget: &mut Budget<'_>) -> Self {
        let mut ascent = Ascent::new(problem, ties);
        let mut lower = 0_u64;
        while let Some(paid) = ascent.cut() {
            lower += paid;
            budget.steps += std::mem::take(&mut ascent.steps);
            if budget.spent() {
                break;
            }
        }
        let above = ascent.above();
        let Ascent { left, below, steps, .. } = ascent;
        budget.steps += steps;
        Self { lower, left, below, above }
    }

    /// No solution with this node costs less: what lies below a node, the node, and what lies above it are different nodes.
    pub(crate) fn with(&self, problem: &Problem, node: u32) -> u64 {
        let under = problem.children(node).iter().map(|&c| self.below[c as usize]).max();
        let over = self.above[problem.class_of[node as usize] as usize];
        self.lower
            .saturating_add(self.left[node as usize])
            .saturating_add(under.unwrap_or(0))
            .saturating_add(over)
    }
}

struct Ascent<'p> {
    problem: &'p Problem,
    ties: Ties,
    left: Vec<u64>,
    below: Vec<u64>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// Classes of the set of the present cut.
    inside: Vec<bool>,
    zone: Vec<u32>,
    goals: BinaryHeap<(u64, u32)>,
    steps: u64,
}

impl<'p> Ascent<'p> {
    fn new(problem: &'p Problem, ties: Ties) -> Self {
        let classes = problem.classes();
        let mut this = Self {
            problem,
            ties,
            left: problem.cost.clone(),
            below: vec![FAR; classes],
            queue: BinaryHeap::new(),
            inside: vec![false; classes],
            zone: Vec::new(),
            goals: BinaryHeap::new(),
            steps: 0,
        };
        for node in 0..problem.size() {
            if problem.children.get(node).is_empty() {
                this.queue.push(Reverse((this.left[node], problem.class_of[node])));
            }
        }
        this.settle();
        let goals = (0..index(classes)).filter(|&c| problem.required[c as usize]);
        this.goals = goals.map(|goal| (this.below[goal as usize], ties.place(goal))).collect();
        this
    }

    /// The required class that costs most, if any still costs something.
    fn goal(&mut self) -> Option<u32> {
        while let Some((value, place)) = self.goals.pop() {
            let goal = self.ties.place(place);
            let now = self.below[goal as usize];
            if now > 0 {
                self.goals.push((now, place));
                if now == value {
                    return Some(goal);
                }
            }
        }
        None
    }

    /// Price left over of the most expensive chain below and with a node.
    fn value(&self, node: u32) -> u64 {
        let under = self.problem.children(node).iter().map(|&c| self.below[c as usize]).max();
        under.unwrap_or(0).saturating_add(self.left[node as usize])
    }

    /// Lowers classes by what is queued, and what they serve, cheapest first (Knuth 1977).
    fn settle(&mut self) {
        while let Some(Reverse((value, class))) = self.queue.pop() {
            self.steps += 1;
            if value >= self.below[class as usize] {
                continue;
            }
            self.below[class as usize] = value;
            for &user in self.problem.users.get(class as usize) {
                self.steps += 1;
                let above = self.problem.class_of[user as usize];
                // A value is at least that of each operand, so what cannot lower the class is left early.
                if value < self.below[above as usize] {
                    let new = self.value(user);
                    if new < self.below[above as usize] {
                        self.queue.push(Reverse((new, above)));
                    }
                }
            }
        }
    }

    /// Moves the price of one cut to the bound; `None` if required classes cost nothing any more.
    fn cut(&mut self) -> Option<u64> {
        let goal = self.goal()?;
        let problem = self.problem;
        self.enter(goal);
        let mut next = 0;
        while let Some(&class) = self.zone.get(next) {
            next += 1;
            for node in problem.nodes(class) {
                self.steps += 1;
                if self.left[node as usize] == 0
                    && let Some(dearest) = self.supporter(node)
                {
                    self.enter(dearest);
                }
            }
        }
        let outer: Vec<u32> = self
            .zone
            .iter()
            .flat_map(|&class| problem.nodes(class))
            .filter(|&node| problem.children(node).iter().all(|&c| !self.inside[c as usize]))
            .collect();
        let paid = outer.iter().map(|&node| self.left[node as usize]).min().unwrap_or(0);
        for class in self.zone.drain(..) {
            self.inside[class as usize] = false;
        }
        for node in outer {
            self.left[node as usize] -= paid;
            let class = problem.class_of[node as usize];
            let value = self.value(node);
            if value < self.below[class as usize] {
                self.queue.push(Reverse((value, class)));
            }
        }
        self.settle();
        (paid > 0).then_some(paid)
    }

    fn enter(&mut self, class: u32) {
        if !std::mem::replace(&mut self.inside[class as usize], true) {
            self.zone.push(class);
        }
    }

    /// The most expensive operand.
    fn supporter(&self, node: u32) -> Option<u32> {
        let children = self.problem.children(node).iter();
        children.copied().max_by_key(|&c| (self.below[c as usize], self.ties.place(c)))
    }

    fn above(&mut self) -> Vec<u64> {
        let mut above = vec![FAR; self.problem.classes()];
        let classes = 0..index(self.problem.classes());
        let goals = classes.filter(|&class| self.problem.required[class as usize]);
        self.queue.extend(goals.map(|goal| Reverse((0, goal))));
        while let Some(Reverse((value, class))) = self.queue.pop() {
            if value >= above[class as usize] {
                continue;
            }
            above[class as usize] = value;
            for node in self.problem.nodes(class) {
                self.steps += 1;
                let through = value.saturating_add(self.left[node as usize]);
                for &child in self.problem.children(node) {
                    if through < above[child as usize] {
                        self.queue.push(Reverse((through, child)));
                    }
                }
            }
        }
        above
    }
}
