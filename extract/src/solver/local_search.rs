//! Local search: single swaps, compound moves with repair, and a seeded search
//! beyond local optima.
//!
//! Each move is priced by what it actually adds to and removes from the program. Neither a more expensive nor a cyclic
//! program is ever kept. Work is counted in steps, never in seconds, and randomness is a fixed
//! sequence, so equal inputs give equal answers.

use std::collections::VecDeque;

use crate::egraph_view::number;
use crate::solver::greedy::Sharing;
use crate::solver::node_choice::NodeChoice;

/// Gains below this part of the total are rounding, not gains.
const NOISE: f64 = 1e-12;

/// Steps that one compound move may spend on repair before it is evaluated as it is.
const REPAIR_STEPS: u64 = 20_000;

/// Rounds of wandering without gain before it ends, and tries in a round for each class with a
/// choice.
const IDLE_ROUNDS: usize = 3;
const TRIES_PER_CLASS: usize = 10;

/// What a fresh round will typically pay too much for one move, in mean costs of a chosen node.
/// Measured: from 2 to 3 finds most on the TENSAT graphs, 1 or 8 hardly anything.
const HEAT: f64 = 2.0;

/// Nodes a pivot may move at once.
const PIVOT_NODES: usize = 64;

/// Improves one selection until a budget of steps is spent.
pub(crate) struct Improver<'s, 't> {
    selection: &'s mut NodeChoice<'t>,
    limit: u64,
    queue: VecDeque<u32>,
    queued: Vec<bool>,
    forced: Vec<bool>,
}

impl<'s, 't> Improver<'s, 't> {
    /// An improver that may spend `steps` from now on.
    pub(crate) fn new(selection: &'s mut NodeChoice<'t>, steps: u64) -> Self {
        let classes = selection.trim.class_count();
        let limit = selection.steps.saturating_add(steps);
        Self {
            selection,
            limit,
            queue: VecDeque::new(),
            queued: vec![false; classes],
            forced: vec![false; classes],
        }
    }

    pub(crate) fn spent(&self) -> bool {
        self.selection.steps >= self.limit
    }

    /// Swaps single classes until none pays: sweeps over all needed classes, the standing choices
    /// renewed between them.
    pub(crate) fn descend(&mut self) {
        loop {
            let before = self.selection.total;
            for class in self.selection.needed_classes() {
                if self.spent() {
                    return;
                }
                if self.selection.needed(class) && self.best_swap(class) {
                    self.selection.commit();
                }
            }
            self.selection.stand(Sharing::Tree);
            if self.selection.total >= before - self.noise() {
                return;
            }
        }
    }

    /// Tries each bundle as one move; returns whether any paid.
    pub(crate) fn try_bundles(&mut self, bundles: &[Vec<u32>]) -> bool {
        let mut paid = false;
        for bundle in bundles {
            if self.spent() {
                break;
            }
            paid |= self.attempt(bundle, 0.0);
        }
        paid
    }

    /// Forces each node of each needed class in turn and repairs around it; returns whether any
    /// paid.
    ///
    /// The repair offers what became needed to every class that could use it, which finds bundles
    /// nobody declared: the first slice of a merged product does not pay, but once it is forced the
    /// other slices come at no price.
    pub(crate) fn try_forcing(&mut self) -> bool {
        let mut paid = false;
        for class in self.selection.needed_classes() {
            for &node in self.selection.trim.nodes.get(class as usize) {
                if self.spent() {
                    return paid;
                }
                if self.selection.needed(class) {
                    paid |= self.attempt(&[node], 0.0);
                }
            }
        }
        paid
    }

    /// Takes each class not needed as a pivot and moves to all that it could serve at once; returns
    /// whether any paid.
    pub(crate) fn try_pivots(&mut self) -> bool {
        let mut paid = false;
        for pivot in 0..number(self.selection.trim.class_count()) {
            if self.spent() {
                break;
            }
            if !self.selection.needed(pivot)
                && !self.selection.trim.nodes.get(pivot as usize).is_empty()
            {
                let bundle = self.served_by(pivot);
                paid |= bundle.len() > 1 && self.attempt(&bundle, 0.0);
            }
        }
        paid
    }

    /// Forces nodes drawn by a fixed sequence, until the budget is spent or several rounds have
    /// found nothing.
    ///
    /// Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983): each round starts by keeping moves
    /// that cost somewhat more, then cools. The selection is left at the best found; it must not be
    /// swapped any further.
    pub(crate) fn wander(&mut self) {
        let trim = self.selection.trim;
        let classes = 0..number(trim.class_count());
        let open: Vec<u32> =
            classes.filter(|&class| trim.nodes.get(class as usize).len() > 1).collect();
        if open.is_empty() {
            return;
        }
        let tries = (TRIES_PER_CLASS * open.len()).max(TRIES_PER_CLASS * 20);
        let mut chance = Xorshift(0x9e37_79b9_7f4a_7c15);
        let mut best = self.selection.total;
        let mut best_choice = self.selection.choice.clone();
        let mut idle = 0;
        while idle < IDLE_ROUNDS && !self.spent() {
            idle += 1;
            self.selection.stand(Sharing::Tree);
            let mean = self.selection.total / self.selection.needed_classes().len().max(1) as f64;
            for step in 0..tries {
                if self.spent() {
                    break;
                }
                self.selection.steps += 1;
                let nodes = trim.nodes.get(open[chance.below(open.len())] as usize);
                let node = nodes[chance.below(nodes.len())];
                if !self.selection.needed(trim.class_of[node as usize]) {
                    continue;
                }
                let heat = HEAT * mean * (1.0 - step as f64 / tries as f64);
                self.attempt(&[node], (chance.exponential() * heat).max(self.noise()));
                if self.selection.total < best - self.noise() {
                    best = self.selection.total;
                    best_choice.clone_from(&self.selection.choice);
                    idle = 0;
                }
            }
        }
        self.selection.choice = best_choice;
    }

    /// Nodes that lead from a pivot up to needed classes, through classes not needed, operands
    /// before users.
    ///
    /// A needed class is taken over where the way to it costs no more than the node that it has
    /// now: such are the slices of a merged product, and the slices of those.
    fn served_by(&mut self, pivot: u32) -> Vec<u32> {
        let trim = self.selection.trim;
        let mut way = vec![(pivot, 0.0)];
        let mut nodes = Vec::new();
        self.forced[pivot as usize] = true;
        let mut next = 0;
        while let Some(&(class, paid)) = way.get(next) {
            next += 1;
            for &user in trim.users.get(class as usize) {
                self.selection.steps += 1;
                let above = trim.class_of[user as usize];
                let price: f64 = paid + trim.cost[user as usize];
                let now = self.selection.choice[above as usize];
                let needed = self.selection.needed(above);
                let known =
                    |&child: &u32| self.forced[child as usize] || self.selection.needed(child);
                if self.forced[above as usize]
                    || nodes.len() >= PIVOT_NODES
                    || (needed && (now == user || price > trim.cost[now as usize]))
                    || !trim.children.get(user as usize).iter().all(known)
                {
                    continue;
                }
                nodes.push(user);
                self.forced[above as usize] = true;
                if !needed {
                    way.push((above, price));
                }
            }
        }
        self.forced[pivot as usize] = false;
        for &node in &nodes {
            self.forced[trim.class_of[node as usize] as usize] = false;
        }
        nodes
    }

    fn noise(&self) -> f64 {
        self.selection.total * NOISE
    }

    /// Makes the best single swap of a class if one pays; leaves it in the log.
    fn best_swap(&mut self, class: u32) -> bool {
        let selection = &mut *self.selection;
        let mut best = selection.total - selection.total * NOISE;
        let mut winner = None;
        for &node in selection.trim.nodes.get(class as usize) {
            if node == selection.choice[class as usize] {
                continue;
            }
            let mark = selection.mark();
            let fresh = selection.fresh.len();
            selection.swap(node);
            if selection.total < best && !selection.cyclic(class) {
                best = selection.total;
                winner = Some(node);
            }
            selection.undo(mark);
            selection.fresh.truncate(fresh);
        }
        if let Some(node) = winner {
            selection.swap(node);
        }
        winner.is_some()
    }

    /// Forces nodes, repairs around them, and keeps the whole if it costs less, or at most `slack`
    /// more.
    fn attempt(&mut self, nodes: &[u32], slack: f64) -> bool {
        let mark = self.selection.mark();
        let before = self.selection.total;
        self.selection.fresh.clear();
        let mut changed = false;
        for &node in nodes {
            let class = self.selection.trim.class_of[node as usize];
            if self.selection.choice[class as usize] != node {
                self.selection.swap(node);
                changed = true;
                if self.selection.cyclic(class) {
                    self.selection.undo(mark);
                    return false;
                }
            }
        }
        if !changed {
            return false;
        }
        self.repair(nodes);
        let gain = before - self.selection.total;
        if gain > self.noise() || (slack > 0.0 && gain >= -slack) {
            self.selection.commit();
            return gain > self.noise();
        }
        self.selection.undo(mark);
        false
    }

    /// Improves by single swaps what the forced nodes made needed, what could use it, and last the
    /// forced classes.
    fn repair(&mut self, nodes: &[u32]) {
        let trim = self.selection.trim;
        let stop = self.selection.steps + REPAIR_STEPS;
        for &node in nodes {
            self.forced[trim.class_of[node as usize] as usize] = true;
        }
        self.enqueue_fresh();
        while self.selection.steps < stop
            && let Some(class) = self.queue.pop_front()
        {
            self.queued[class as usize] = false;
            if self.selection.needed(class) && self.best_swap(class) {
                self.enqueue_fresh();
            }
        }
        for class in self.queue.drain(..) {
            self.queued[class as usize] = false;
        }
        for &node in nodes {
            let class = trim.class_of[node as usize];
            self.forced[class as usize] = false;
            if nodes.len() > 1 && self.selection.needed(class) {
                self.best_swap(class);
            }
        }
    }

    fn enqueue_fresh(&mut self) {
        let trim = self.selection.trim;
        let fresh = std::mem::take(&mut self.selection.fresh);
        for &class in &fresh {
            self.enqueue(class);
            for &user in trim.users.get(class as usize) {
                let user_class = trim.class_of[user as usize];
                if self.selection.choice[user_class as usize] != user {
                    self.enqueue(user_class);
                }
            }
        }
        self.selection.fresh = fresh;
        self.selection.fresh.clear();
    }

    fn enqueue(&mut self, class: u32) {
        let index = class as usize;
        if self.selection.needed(class)
            && !self.forced[index]
            && !std::mem::replace(&mut self.queued[index], true)
        {
            self.queue.push_back(class);
        }
    }
}

/// The xorshift generator of Marsaglia (2003): chance that is the same everywhere.
pub(crate) struct Xorshift(pub(crate) u64);

impl Xorshift {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap_or(0)
    }

    /// Exponentially distributed, of mean 1.
    fn exponential(&mut self) -> f64 {
        const FINE: usize = 1 << 20;
        -((self.below(FINE) + 1) as f64 / FINE as f64).ln()
    }
}
