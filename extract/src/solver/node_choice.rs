//! A program under change: one chosen node for every class, with reference counts from the
//! roots.
//!
//! Swapping the node of one class costs only what it adds and removes. Unreferenced classes keep a
//! chosen node at no cost, which is what they contribute if a swap makes them needed.
//! Invariant: the graph of all choices, needed or not, is acyclic between transactions.

use crate::egraph_view::number;
use crate::solver::greedy::{NONE, Sharing, settle};
use crate::solver::pruned::Pruned;

/// A place in the log to go back to.
#[derive(Clone, Copy)]
pub(crate) struct Checkpoint {
    length: usize,
    total: f64,
    floor: u32,
}

pub(crate) struct NodeChoice<'t> {
    pub(crate) trim: &'t Pruned,
    pub(crate) choice: Vec<u32>,
    refs: Vec<u32>,
    /// Place of each class in a topological order taken earlier; `NONE` for those not needed then.
    place: Vec<u32>,
    /// Classes placed below this have the choice that they had when the order was taken.
    floor: u32,
    pub(crate) total: f64,
    log: Vec<(u32, u32)>,
    /// Classes that became needed since the caller last cleared this.
    pub(crate) fresh: Vec<u32>,
    /// Elementary steps done: the clock of every budget.
    pub(crate) steps: u64,
    visits: usize,
    seen: Vec<u32>,
    stamp: u32,
    stack: Vec<u32>,
}

impl<'t> NodeChoice<'t> {
    /// Starts from a valid choice; classes it does not need are given standing choices.
    pub(crate) fn new(trim: &'t Pruned, choice: Vec<u32>) -> Self {
        let classes = trim.class_count();
        let mut this = Self {
            trim,
            choice,
            refs: vec![0; classes],
            place: vec![NONE; classes],
            floor: NONE,
            total: 0.0,
            log: Vec::new(),
            fresh: Vec::new(),
            steps: 0,
            visits: 0,
            seen: vec![0; classes],
            stamp: 0,
            stack: Vec::new(),
        };
        this.stack.extend(&trim.roots);
        this.acquire();
        this.fresh.clear();
        this.stand(Sharing::Tree);
        this
    }

    pub(crate) fn needed(&self, class: u32) -> bool {
        self.refs[class as usize] > 0
    }

    pub(crate) fn needed_classes(&self) -> Vec<u32> {
        (0..number(self.refs.len())).filter(|&class| self.needed(class)).collect()
    }

    /// Chooses anew for the classes not needed, taking what is needed as free.
    pub(crate) fn stand(&mut self, sharing: Sharing<'_>) {
        let settled = settle(self.trim, |class| self.refs[class] > 0, sharing);
        for (class, node) in settled.into_iter().enumerate() {
            if self.refs[class] == 0 {
                self.choice[class] = node;
            }
        }
        self.steps += number(self.trim.cost.len()) as u64;
        self.reorder();
    }

    /// Takes the topological order and the total afresh; not within a transaction.
    pub(crate) fn reorder(&mut self) {
        self.log.clear();
        self.floor = NONE;
        self.visits = 0;
        self.place.fill(NONE);
        let mut waiting = self.refs.clone();
        for &root in &self.trim.roots {
            waiting[root as usize] -= 1;
        }
        // Users before operands, then reversed, by counting down the references.
        let mut order: Vec<u32> =
            self.trim.roots.iter().copied().filter(|&root| waiting[root as usize] == 0).collect();
        let mut next = 0;
        while let Some(&class) = order.get(next) {
            next += 1;
            for &child in self.trim.children.get(self.choice[class as usize] as usize) {
                waiting[child as usize] -= 1;
                if waiting[child as usize] == 0 {
                    order.push(child);
                }
            }
        }
        self.total = 0.0;
        for (place, &class) in order.iter().rev().enumerate() {
            self.place[class as usize] = number(place);
            self.total += self.trim.cost[self.choice[class as usize] as usize];
        }
        self.steps += order.len() as u64;
    }

    pub(crate) fn mark(&self) -> Checkpoint {
        Checkpoint { length: self.log.len(), total: self.total, floor: self.floor }
    }

    /// Undoes every swap since the mark.
    pub(crate) fn undo(&mut self, mark: Checkpoint) {
        while self.log.len() > mark.length {
            let Some((class, node)) = self.log.pop() else { break };
            self.replace(class, node);
        }
        self.total = mark.total;
        self.floor = mark.floor;
    }

    /// Keeps every swap; takes a new order when stale places have made cycle checks dear.
    pub(crate) fn commit(&mut self) {
        self.log.clear();
        if self.visits > self.refs.len() {
            self.reorder();
        }
    }

    /// Chooses `node` for its class, whether or not that makes a cycle: ask
    /// [`cyclic`](Self::cyclic) next.
    pub(crate) fn swap(&mut self, node: u32) {
        let class = self.trim.class_of[node as usize];
        self.log.push((class, self.choice[class as usize]));
        self.replace(class, node);
    }

    fn replace(&mut self, class: u32, node: u32) {
        let trim = self.trim;
        let old = std::mem::replace(&mut self.choice[class as usize], node);
        self.floor = self.floor.min(self.place[class as usize]);
        if !self.needed(class) {
            return;
        }
        // Acquire before releasing, so that what both share is not dropped and fetched again.
        self.total += trim.cost[node as usize] - trim.cost[old as usize];
        self.stack.extend(trim.children.get(node as usize));
        self.acquire();
        self.stack.extend(trim.children.get(old as usize));
        self.release();
    }

    fn acquire(&mut self) {
        let trim = self.trim;
        while let Some(class) = self.stack.pop() {
            self.steps += 1;
            let refs = &mut self.refs[class as usize];
            *refs += 1;
            if *refs == 1 {
                let node = self.choice[class as usize] as usize;
                self.total += trim.cost[node];
                self.fresh.push(class);
                self.stack.extend(trim.children.get(node));
            }
        }
    }

    fn release(&mut self) {
        let trim = self.trim;
        while let Some(class) = self.stack.pop() {
            self.steps += 1;
            let refs = &mut self.refs[class as usize];
            *refs -= 1;
            if *refs == 0 {
                let node = self.choice[class as usize] as usize;
                self.total -= trim.cost[node];
                self.stack.extend(trim.children.get(node));
            }
        }
    }

    /// Whether the class now needs itself, every other cycle being excluded.
    ///
    /// A class placed below both the floor and `class` has only such classes beneath it, so it is
    /// not followed.
    pub(crate) fn cyclic(&mut self, class: u32) -> bool {
        let trim = self.trim;
        let floor = self.floor.min(self.place[class as usize]);
        self.stamp += 1;
        self.stack.extend(trim.children.get(self.choice[class as usize] as usize));
        while let Some(below) = self.stack.pop() {
            self.steps += 1;
            self.visits += 1;
            if below == class {
                self.stack.clear();
                return true;
            }
            let seen = std::mem::replace(&mut self.seen[below as usize], self.stamp) == self.stamp;
            if !seen && self.place[below as usize] >= floor {
                self.stack.extend(trim.children.get(self.choice[below as usize] as usize));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egraph_view::{ClassId, Cost, EGraphView, EGraphViewBuilder, NodeId};
    use crate::solver::solution::Solution;

    /// Classes of three nodes each, most with operands anywhere, the first also a leaf.
    fn tangled(draw: &mut impl FnMut(u32) -> u32) -> EGraphView {
        let mut builder = EGraphViewBuilder::new();
        let classes: Vec<ClassId> = (0..30).map(|_| builder.add_class()).collect();
        for &class in &classes {
            let below = u32::from(class).max(1);
            builder.add_node(class, &[], Cost::new(f64::from(draw(100))));
            for bound in [30, below] {
                let children = [ClassId::new(draw(bound)), ClassId::new(draw(bound))];
                builder.add_node(class, &children, Cost::new(f64::from(draw(20))));
            }
        }
        builder.add_root(classes[29]);
        builder.add_root(classes[28]);
        builder.build().expect("a sound view")
    }

    #[test]
    fn totals_and_cycles_agree_with_a_solution_recomputed_from_scratch() {
        let mut state = 1_u64;
        let mut draw = |bound: u32| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((state >> 33) % u64::from(bound)).expect("below the bound")
        };
        let (mut kept, mut refused) = (0, 0);
        for _ in 0..50 {
            let view = tangled(&mut draw);
            let trim = Pruned::new(&view);
            let mut selection = NodeChoice::new(&trim, settle(&trim, |_| false, Sharing::Tree));
            for step in 0..200 {
                let class = draw(30);
                let nodes = trim.nodes.get(class as usize);
                if nodes.is_empty() || !selection.needed(class) {
                    continue;
                }
                let mark = selection.mark();
                let (before, choice) = (selection.total, selection.choice.clone());
                selection.swap(nodes[draw(number(nodes.len())) as usize]);
                let recomputed = |selection: &NodeChoice<'_>| {
                    let choice = selection.choice.iter();
                    Solution::new(choice.map(|&n| (n != NONE).then(|| NodeId::new(n))).collect())
                };
                let now = recomputed(&selection);
                let cyclic = selection.cyclic(class);
                assert_eq!(cyclic, now.validate(&view).is_err());
                if cyclic || draw(3) == 0 {
                    selection.undo(mark);
                    assert_eq!((selection.total, &selection.choice), (before, &choice));
                    refused += 1;
                } else {
                    assert!((selection.total - now.dag_cost(&view).seconds()).abs() < 1e-9);
                    selection.commit();
                    kept += 1;
                }
                if step % 20 == 0 {
                    selection.stand(Sharing::Tree);
                    assert!(recomputed(&selection).validate(&view).is_ok());
                }
            }
        }
        assert!(kept > 500 && refused > 500, "{kept} kept, {refused} refused");
    }
}
