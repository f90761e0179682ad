//! Presolve: makes a problem smaller without losing its optimum.
//!
//! Why separated parts are acyclic when they are put together again: an operand is dropped if its class is paid anyway and no path
//! leads back from it, or if it is finally settled by nodes that need nothing else. The first dropped edge of a potential cycle
//! would still have had the rest of the cycle as a path back.

use crate::solver::problem::{ProblemDraft, index};

/// Classes with more nodes are not searched for dominated ones: the search is quadratic.
const DOMINANCE_LIMIT: usize = 128;

/// Rounds before a problem is taken as it is.
const ROUNDS: usize = 8;

/// Steps that a round counts for each node, class and edge.
const PASSES: u64 = 4;

/// No solution is left.
pub(crate) struct Infeasible;

impl ProblemDraft {
    /// Applies every simplification until none changes anything; adds the steps done.
    pub(crate) fn shrink(&mut self, steps: &mut u64) -> Result<(), Infeasible> {
        let mut before = usize::MAX;
        for _ in 0..ROUNDS {
            *steps += (self.cost.len() + self.nodes.len() + self.edges()) as u64 * PASSES;
            self.computable()?;
            self.require();
            self.pay();
            self.part();
            self.settle_free();
            self.inline();
            self.dominate();
            self.reach();
            let edges = self.edges();
            if edges == before {
                break;
            }
            before = edges;
        }
        self.computable()?;
        self.reach();
        Ok(())
    }

    fn users(&self) -> Vec<Vec<u32>> {
        let mut users = vec![Vec::new(); self.nodes.len()];
        for &node in self.nodes.iter().flatten() {
            for &child in &self.children[node as usize] {
                users[child as usize].push(node);
            }
        }
        users
    }

    /// Drops nodes with an operand that nothing computes without them.
    fn computable(&mut self) -> Result<(), Infeasible> {
        let reached = self.closure(|_| true).0;
        for (class, nodes) in self.nodes.iter_mut().enumerate() {
            let children = &self.children;
            nodes.retain(|&node| {
                let mut below = children[node as usize].iter();
                below.all(|&c| reached[c as usize] && c as usize != class)
            });
            if nodes.is_empty() && self.required[class] {
                return Err(Infeasible);
            }
        }
        Ok(())
    }

    /// Classes that some of the nodes alone compute, and the first node that does in an order without cycles.
    fn closure(&self, usable: impl Fn(u32) -> bool) -> (Vec<bool>, Vec<u32>) {
        let users = self.users();
        let mut waiting: Vec<u32> = self.children.iter().map(|list| index(list.len())).collect();
        let mut reached = vec![false; self.nodes.len()];
        let mut first = vec![u32::MAX; self.nodes.len()];
        let leaf = |&&node: &&u32| self.children[node as usize].is_empty() && usable(node);
        let mut ready: Vec<u32> = self.nodes.iter().flatten().filter(leaf).copied().collect();
        while let Some(node) = ready.pop() {
            let class = self.class_of[node as usize] as usize;
            if std::mem::replace(&mut reached[class], true) {
                continue;
            }
            first[class] = node;
            for &user in &users[class] {
                waiting[user as usize] -= 1;
                if waiting[user as usize] == 0 && usable(user) {
                    ready.push(user);
                }
            }
        }
        (reached, first)
    }

    /// Requires the operands that all nodes of a required class have.
    fn require(&mut self) {
        let mut open: Vec<usize> =
            (0..self.nodes.len()).filter(|&class| self.required[class]).collect();
        while let Some(class) = open.pop() {
            let Some((&first, rest)) = self.nodes[class].split_first() else { continue };
            for &child in &self.children[first as usize] {
                let has = |&node: &u32| self.children[node as usize].binary_search(&child).is_ok();
                if !self.required[child as usize] && rest.iter().all(has) {
                    self.required[child as usize] = true;
                    open.push(child as usize);
                }
            }
        }
    }

    /// Pays for each required class what its cheapest node costs.
    fn pay(&mut self) {
        for (nodes, _) in self.nodes.iter().zip(&self.required).filter(|(_, required)| **required) {
            let least = nodes.iter().map(|&node| self.cost[node as usize]).min().unwrap_or(0);
            self.base = self.base.saturating_add(least);
            for &node in nodes {
                self.cost[node as usize] -= least;
            }
        }
    }

    /// Drops operands that are required and lie in no cycle with their user.
    fn part(&mut self) {
        let ring = self.rings();
        for class in 0..self.nodes.len() {
            for &node in &self.nodes[class] {
                let required = &self.required;
                self.children[node as usize]
                    .retain(|&c| !required[c as usize] || ring[c as usize] == ring[class]);
            }
        }
    }

    /// The strongly connected component of each class (Tarjan 1972, without recursion).
    fn rings(&self) -> Vec<u32> {
        const NEW: u32 = u32::MAX;
        let classes = self.nodes.len();
        let mut low = vec![NEW; classes];
        let mut ring = vec![NEW; classes];
        let mut stack: Vec<usize> = Vec::new();
        let mut clock = 0;
        // Each open class, its number, the node and the operand to follow next.
        let mut open: Vec<(usize, u32, usize, usize)> = Vec::new();
        for start in 0..classes {
            if low[start] != NEW {
                continue;
            }
            open.push((start, clock, 0, 0));
            low[start] = clock;
            stack.push(start);
            clock += 1;
            while let Some((class, number, node, operand)) = open.last_mut() {
                let (class, number) = (*class, *number);
                let Some(&at) = self.nodes[class].get(*node) else {
                    open.pop();
                    if low[class] == number {
                        while let Some(member) = stack.pop() {
                            ring[member] = index(class);
                            if member == class {
                                break;
                            }
                        }
                    }
                    if let Some((above, ..)) = open.last() {
                        low[*above] = low[*above].min(low[class]);
                    }
                    continue;
                };
                let Some(&child) = self.children[at as usize].get(*operand) else {
                    (*node, *operand) = (*node + 1, 0);
                    continue;
                };
                *operand += 1;
                let child = child as usize;
                if low[child] == NEW {
                    low[child] = clock;
                    open.push((child, clock, 0, 0));
                    stack.push(child);
                    clock += 1;
                } else if ring[child] == NEW {
                    low[class] = low[class].min(low[child]);
                }
            }
        }
        ring
    }

    /// Settles what free nodes alone compute.
    fn settle_free(&mut self) {
        let (free, first) = self.closure(|node| self.cost[node as usize] == 0);
        for list in &mut self.children {
            list.retain(|&c| !free[c as usize]);
        }
        for class in (0..self.nodes.len()).filter(|&class| free[class]) {
            self.nodes[class].clear();
            self.required[class] = false;
            self.settled.push(self.origin[first[class] as usize]);
        }
    }

    /// Puts the operands of an only node in place of its class, where that makes nothing longer or more expensive.
    fn inline(&mut self) {
        let mut users = self.users();
        for class in 0..self.nodes.len() {
            let [node] = self.nodes[class][..] else { continue };
            if self.children[node as usize].binary_search(&index(class)).is_ok() {
                continue;
            }
            let own = std::mem::take(&mut users[class]);
            let (cost, arity) = (self.cost[node as usize], self.children[node as usize].len());
            let alone = own.len() <= 1;
            if self.required[class] || !(alone || cost == 0 && arity <= 1) {
                continue;
            }
            let operands = self.children[node as usize].clone();
            for &user in &own {
                let list = &mut self.children[user as usize];
                list.retain(|&c| c as usize != class);
                for &operand in &operands {
                    if let Err(place) = list.binary_search(&operand) {
                        list.insert(place, operand);
                        users[operand as usize].push(user);
                    }
                }
                self.cost[user as usize] = self.cost[user as usize].saturating_add(cost);
            }
            for &operand in &operands {
                users[operand as usize].retain(|&user| user != node);
            }
            self.nodes[class].clear();
            self.settled.push(self.origin[node as usize]);
        }
        // A node that came to need its own class is no way to compute it.
        for (class, nodes) in self.nodes.iter_mut().enumerate() {
            nodes.retain(|&n| self.children[n as usize].binary_search(&index(class)).is_err());
        }
    }

    /// Drops nodes that cost no less and need no less than another of their class.
    fn dominate(&mut self) {
        for nodes in self.nodes.iter_mut().filter(|n| (2..=DOMINANCE_LIMIT).contains(&n.len())) {
            let (cost, children) = (&self.cost, &self.children);
            let mut sorted = std::mem::take(nodes);
            sorted.sort_by_key(|&n| (cost[n as usize], children[n as usize].len(), n));
            for node in sorted {
                let dominated = nodes.iter().any(|&better| {
                    let many = &children[node as usize];
                    children[better as usize].iter().all(|c| many.binary_search(c).is_ok())
                });
                if !dominated {
                    nodes.push(node);
                }
            }
            nodes.sort_unstable();
        }
    }

    /// Drops classes that no required class can come to need.
    fn reach(&mut self) {
        let mut reached = self.required.clone();
        let mut open: Vec<usize> =
            (0..self.nodes.len()).filter(|&class| self.required[class]).collect();
        while let Some(class) = open.pop() {
            for &node in &self.nodes[class] {
                for &child in &self.children[node as usize] {
                    if !std::mem::replace(&mut reached[child as usize], true) {
                        open.push(child as usize);
                    }
                }
            }
        }
        for (nodes, reached) in self.nodes.iter_mut().zip(reached) {
            if !reached {
                nodes.clear();
            }
        }
    }
}
