//! An extraction problem in the form that the search modifies: classes, nodes, integer costs, and which classes are required.
//!
//! Invariant of every change made here and in `presolve`: a solution of what is left, with what was settled, is a solution of
//! the previous problem at the same cost, and some optimal solution is kept. Nodes remember the node of the view that they stand for;
//! classes may be renumbered.

use crate::egraph_view::CompressedLists;
use crate::solver::pruned::Pruned;

/// The price in ticks that an incumbent is scaled to. Sums of as many prices below it as fit into memory never overflow
/// where they are not saturated.
const UNIT: f64 = (1_u64 << 52) as f64;

/// Prices below so many ticks count as nothing: about 2e-13 of the incumbent, and 3e-8 on the coarse scale.
const FINE: u64 = 1 << 10;
const COARSE: u64 = 1 << 27;

/// Prices in ticks, rounded down, so that a bound in ticks is a bound in prices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    factor: f64,
    noise: u64,
}

impl Scale {
    /// The scale for an incumbent at this price.
    pub(crate) fn of(price: f64) -> Self {
        Self { factor: if price > 0.0 { UNIT / price } else { 1.0 }, noise: FINE }
    }

    /// The same scale without small change: shared values that cost next to nothing tie the parts of a problem together.
    pub(crate) fn coarse(self) -> Self {
        Self { noise: COARSE, ..self }
    }

    pub(crate) fn ticks(self, price: f64) -> u64 {
        let ticks = (price * self.factor) as u64;
        if ticks < self.noise { 0 } else { ticks }
    }

    pub(crate) fn price(self, ticks: u64) -> f64 {
        ticks as f64 / self.factor
    }
}

/// A problem in the form that is cheap to read.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    /// Nodes of class `c` are `first[c]..first[c + 1]`.
    pub(crate) first: Vec<u32>,
    pub(crate) class_of: Vec<u32>,
    pub(crate) cost: Vec<u64>,
    /// Operands of each node, sorted, without repeats.
    pub(crate) children: CompressedLists<u32>,
    /// Nodes that have the class as an operand.
    pub(crate) users: CompressedLists<u32>,
    /// Classes that every solution computes.
    pub(crate) required: Vec<bool>,
    /// The node of the view.
    pub(crate) origin: Vec<u32>,
}

impl Problem {
    pub(crate) fn classes(&self) -> usize {
        self.required.len()
    }

    pub(crate) fn size(&self) -> usize {
        self.cost.len()
    }

    pub(crate) fn nodes(&self, class: u32) -> std::ops::Range<u32> {
        self.first[class as usize]..self.first[class as usize + 1]
    }

    pub(crate) fn children(&self, node: u32) -> &[u32] {
        self.children.get(node as usize)
    }

    /// Parts that share no class, smallest first; the whole if there is only one.
    pub(crate) fn components(&self) -> Vec<ProblemDraft> {
        let mut parent: Vec<u32> = (0..index(self.classes())).collect();
        for node in 0..self.size() {
            for &child in self.children.get(node) {
                let (a, b) = (find(&mut parent, self.class_of[node]), find(&mut parent, child));
                parent[a.max(b) as usize] = a.min(b);
            }
        }
        let mut place = vec![u32::MAX; self.classes()];
        let mut members: Vec<Vec<u32>> = Vec::new();
        for class in 0..index(self.classes()) {
            let root = find(&mut parent, class) as usize;
            if place[root] == u32::MAX {
                place[root] = index(members.len());
                members.push(Vec::new());
            }
            members[place[root] as usize].push(class);
        }
        let mut parts: Vec<ProblemDraft> =
            members.iter().map(|classes| self.part(classes)).collect();
        parts.sort_by_key(|part| part.cost.len());
        parts
    }

    /// All of it, to be changed.
    pub(crate) fn draft(&self) -> ProblemDraft {
        let all: Vec<u32> = (0..index(self.classes())).collect();
        self.part(&all)
    }

    fn part(&self, classes: &[u32]) -> ProblemDraft {
        let mut number = vec![u32::MAX; self.classes()];
        for (new, &class) in classes.iter().enumerate() {
            number[class as usize] = index(new);
        }
        let mut draft = ProblemDraft::default();
        for (new, &class) in classes.iter().enumerate() {
            draft.required.push(self.required[class as usize]);
            draft.nodes.push(Vec::new());
            for node in self.nodes(class) {
                let children = self.children(node).iter().map(|&c| number[c as usize]).collect();
                let (cost, origin) = (self.cost[node as usize], self.origin[node as usize]);
                draft.add(index(new), children, cost, origin);
            }
        }
        draft
    }
}

/// A problem under change.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProblemDraft {
    /// Nodes left in each class, in order.
    pub(crate) nodes: Vec<Vec<u32>>,
    pub(crate) class_of: Vec<u32>,
    pub(crate) cost: Vec<u64>,
    pub(crate) children: Vec<Vec<u32>>,
    pub(crate) required: Vec<bool>,
    pub(crate) origin: Vec<u32>,
    /// What is paid already.
    pub(crate) base: u64,
    /// Nodes of the view chosen already.
    pub(crate) settled: Vec<u32>,
}

impl ProblemDraft {
    /// What the roots can reach if the classes that are `fixed` have this node alone; without nodes that cost more than the incumbent.
    pub(crate) fn within(trim: &Pruned, scale: Scale, fixed: impl Fn(u32) -> Option<u32>) -> Self {
        let mut number = vec![u32::MAX; trim.class_count()];
        let mut order: Vec<u32> = Vec::new();
        let mut enter = |class: u32, order: &mut Vec<u32>| {
            let place = &mut number[class as usize];
            if *place == u32::MAX {
                *place = index(order.len());
                order.push(class);
            }
            *place
        };
        let mut draft = Self::default();
        for &root in &trim.roots {
            enter(root, &mut order);
        }
        let required = order.len();
        while let Some(&class) = order.get(draft.nodes.len()) {
            let own = index(draft.nodes.len());
            draft.nodes.push(Vec::new());
            let only = fixed(class);
            let all = only.as_ref().map_or(trim.nodes.get(class as usize), std::slice::from_ref);
            for &node in all {
                let cost = scale.ticks(trim.cost[node as usize]);
                if cost as f64 <= UNIT {
                    let children = trim.children.get(node as usize).iter();
                    let mut children: Vec<u32> = children.map(|&c| enter(c, &mut order)).collect();
                    children.sort_unstable();
                    draft.add(own, children, cost, node);
                }
            }
        }
        draft.required = (0..order.len()).map(|class| class < required).collect();
        draft
    }

    /// Adds a node to a class that exists; children are sorted and without repeats.
    pub(crate) fn add(&mut self, class: u32, children: Vec<u32>, cost: u64, origin: u32) {
        self.nodes[class as usize].push(index(self.cost.len()));
        self.class_of.push(class);
        self.children.push(children);
        self.cost.push(cost);
        self.origin.push(origin);
    }

    pub(crate) fn edges(&self) -> usize {
        self.nodes.iter().flatten().map(|&node| self.children[node as usize].len() + 1).sum()
    }

    /// Leaves one node of a class.
    pub(crate) fn choose(&mut self, class: u32, node: u32) {
        self.nodes[class as usize] = vec![node];
    }

    /// What is left, in the form that is cheap to read: classes that are used or required.
    pub(crate) fn problem(&self) -> Problem {
        let kept: Vec<usize> =
            (0..self.nodes.len()).filter(|&class| !self.nodes[class].is_empty()).collect();
        let mut number = vec![u32::MAX; self.nodes.len()];
        for (new, &class) in kept.iter().enumerate() {
            number[class] = index(new);
        }
        let mut problem = Problem {
            first: vec![0],
            class_of: Vec::new(),
            cost: Vec::new(),
            children: CompressedLists::default(),
            users: CompressedLists::default(),
            required: kept.iter().map(|&class| self.required[class]).collect(),
            origin: Vec::new(),
        };
        for (new, &class) in kept.iter().enumerate() {
            for &node in &self.nodes[class] {
                let node = node as usize;
                problem.class_of.push(index(new));
                problem.cost.push(self.cost[node]);
                problem.origin.push(self.origin[node]);
                problem.children.push(self.children[node].iter().map(|&c| number[c as usize]));
            }
            problem.first.push(index(problem.cost.len()));
        }
        let edges = (0..problem.cost.len()).flat_map(|node| {
            problem.children.get(node).iter().map(move |&child| (child as usize, index(node)))
        });
        problem.users = CompressedLists::group(kept.len(), edges);
        problem
    }
}

fn find(parent: &mut [u32], mut class: u32) -> u32 {
    while parent[class as usize] != class {
        let above = parent[parent[class as usize] as usize];
        parent[class as usize] = above;
        class = above;
    }
    class
}

/// A position as an id.
pub(crate) fn index(position: usize) -> u32 {
    crate::egraph_view::number(position)
}
