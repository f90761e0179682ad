//! The part of a view that extraction needs to consider, in plain numbers.
//!
//! A node is kept if all its operands can be computed, its class is not among them, it is reachable from the
//! roots, and no other node of its class needs only some of its operands at no greater cost. Ids
//! are those of the view; nothing is renumbered.

use crate::egraph_view::{CompressedLists, EGraphView, number};

/// Classes with more kept nodes than this are not searched for dominated ones: the search is
/// quadratic.
const DOMINANCE_LIMIT: usize = 64;

/// A view with the hopeless nodes left out of the lists.
pub(crate) struct Pruned {
    /// Kept nodes of each class.
    pub(crate) nodes: CompressedLists<u32>,
    /// Operands of each node, sorted, without repeats; also of nodes not kept.
    pub(crate) children: CompressedLists<u32>,
    /// Kept nodes that have the class as an operand.
    pub(crate) users: CompressedLists<u32>,
    pub(crate) class_of: Vec<u32>,
    pub(crate) cost: Vec<f64>,
    /// Roots without repeats.
    pub(crate) roots: Vec<u32>,
}

impl Pruned {
    pub(crate) fn new(view: &EGraphView) -> Self {
        let all = || view.classes().flat_map(|class| view.nodes(class).iter().copied());
        let mut class_of = vec![0; view.node_count()];
        for node in all() {
            class_of[node.index()] = u32::from(view.class_of(node));
        }
        let mut children = CompressedLists::default();
        let mut cost = Vec::with_capacity(view.node_count());
        let mut list: Vec<u32> = Vec::new();
        for node in (0..number(view.node_count())).map(crate::egraph_view::NodeId::new) {
            list.clear();
            list.extend(view.children(node).iter().map(|&child| u32::from(child)));
            list.sort_unstable();
            list.dedup();
            children.push(list.iter().copied());
            cost.push(view.cost(node).seconds());
        }
        let mut roots: Vec<u32> = view.roots().iter().map(|&root| root.into()).collect();
        roots.sort_unstable();
        roots.dedup();

        let mut trim = Self {
            nodes: CompressedLists::default(),
            children,
            users: CompressedLists::default(),
            class_of,
            cost,
            roots,
        };
        let mut keep = trim.computable(view.class_count());
        trim.keep_reachable(&mut keep, view.class_count());
        trim.list(&keep, view.class_count());
        trim.drop_dominated(&mut keep);
        trim.list(&keep, view.class_count());
        trim
    }

    pub(crate) fn class_count(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes all of whose operands can be computed, and not from the node's own class directly.
    fn computable(&self, classes: usize) -> Vec<bool> {
        let count = self.class_of.len();
        let users = CompressedLists::group(classes, self.edges(|_| true));
        let mut waiting: Vec<usize> =
            (0..count).map(|node| self.children.get(node).len()).collect();
        let mut ready: Vec<u32> =
            (0..number(count)).filter(|&node| waiting[node as usize] == 0).collect();
        let mut computed = vec![false; classes];
        while let Some(node) = ready.pop() {
            let class = self.class_of[node as usize] as usize;
            if !std::mem::replace(&mut computed[class], true) {
                for &user in users.get(class) {
                    waiting[user as usize] -= 1;
                    if waiting[user as usize] == 0 {
                        ready.push(user);
                    }
                }
            }
        }
        (0..count)
            .map(|node| {
                let own = self.class_of[node];
                self.children
                    .get(node)
                    .iter()
                    .all(|&child| child != own && computed[child as usize])
            })
            .collect()
    }

    fn keep_reachable(&self, keep: &mut [bool], classes: usize) {
        let nodes = CompressedLists::group(classes, self.members(|node| keep[node]));
        let mut reached = vec![false; classes];
        let mut stack = self.roots.clone();
        while let Some(class) = stack.pop() {
            if !std::mem::replace(&mut reached[class as usize], true) {
                for &node in nodes.get(class as usize) {
                    stack.extend(self.children.get(node as usize));
                }
            }
        }
        for (node, keep) in keep.iter_mut().enumerate() {
            *keep &= reached[self.class_of[node] as usize];
        }
    }

    fn drop_dominated(&self, keep: &mut [bool]) {
        for class in 0..self.class_count() {
            let nodes = self.nodes.get(class);
            if nodes.len() > DOMINANCE_LIMIT {
                continue;
            }
            for &worse in nodes {
                keep[worse as usize] = !nodes
                    .iter()
                    .any(|&better| keep[better as usize] && self.dominates(better, worse));
            }
        }
    }

    fn dominates(&self, better: u32, worse: u32) -> bool {
        let (b, w) = (better as usize, worse as usize);
        let (few, many) = (self.children.get(b), self.children.get(w));
        let strictly = self.cost[b] < self.cost[w] || few.len() < many.len() || better < worse;
        strictly
            && self.cost[b] <= self.cost[w]
            && few.len() <= many.len()
            && few.iter().all(|child| many.binary_search(child).is_ok())
    }

    fn list(&mut self, keep: &[bool], classes: usize) {
        self.nodes = CompressedLists::group(classes, self.members(|node| keep[node]));
        self.users = CompressedLists::group(classes, self.edges(|node| keep[node]));
    }

    fn members(
        &self,
        keep: impl Fn(usize) -> bool + Clone,
    ) -> impl Iterator<Item = (usize, u32)> + Clone {
        let pairs = self.class_of.iter().enumerate();
        pairs
            .filter(move |&(node, _)| keep(node))
            .map(|(node, &class)| (class as usize, number(node)))
    }

    fn edges(
        &self,
        keep: impl Fn(usize) -> bool + Clone,
    ) -> impl Iterator<Item = (usize, u32)> + Clone {
        (0..self.class_of.len()).filter(move |&node| keep(node)).flat_map(|node| {
            self.children.get(node).iter().map(move |&child| (child as usize, number(node)))
        })
    }
}
