//! A neutral e-graph: classes of equal values, nodes that compute them, and their costs.
//!
//! Knows nothing of operators, tensors or egg: whoever builds a view maps its own ids to these.
//! Immutable once built; ids are dense and in the order of insertion, so every traversal is
//! deterministic.

use std::cmp::Ordering;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use thiserror::Error;

/// A class of equal values; dense from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(u32);

/// A node that computes the value of its class; dense from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

macro_rules! dense_id {
    ($id:ident) => {
        impl $id {
            /// The id with this number; a view says whether it exists.
            #[must_use]
            pub const fn new(number: u32) -> Self {
                Self(number)
            }

            /// Position in any table that has one row for each.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<$id> for u32 {
            fn from(id: $id) -> u32 {
                id.0
            }
        }
    };
}
dense_id!(ClassId);
dense_id!(NodeId);

/// A price in seconds (or any other unit used throughout one view), totally ordered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost(f64);

impl Cost {
    /// The price of what is free.
    pub const ZERO: Self = Self(0.0);

    /// A price; [`EGraphViewBuilder::build`] refuses one that is negative or not finite.
    #[must_use]
    pub fn new(seconds: f64) -> Self {
        // Adding zero turns -0.0 into 0.0, so that equal prices compare equal.
        Self(seconds + 0.0)
    }

    /// The price as a number.
    #[must_use]
    pub const fn seconds(self) -> f64 {
        self.0
    }
}

impl Ord for Cost {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cost {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Cost {}

impl Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.0 + other.0)
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::ZERO, Self::add)
    }
}

/// Why a view cannot be built.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EGraphViewError {
    /// A node was added to a class that does not exist.
    #[error("node {} is added to class {}, which does not exist", node.0, class.0)]
    NoClass {
        /// The node in question.
        node: NodeId,
        /// The class it names.
        class: ClassId,
    },
    /// A node has a child that does not exist.
    #[error("node {} has class {} as a child, which does not exist", node.0, child.0)]
    NoChild {
        /// The node in question.
        node: NodeId,
        /// The child it names.
        child: ClassId,
    },
    /// A root does not exist.
    #[error("class {} is a root but does not exist", root.0)]
    NoRoot {
        /// The class that was named as a root.
        root: ClassId,
    },
    /// A cost is negative or not finite.
    #[error("node {} costs {}; a cost is finite and not negative", node.0, cost.0)]
    BadCost {
        /// The node in question.
        node: NodeId,
        /// What it was said to cost.
        cost: Cost,
    },
    /// A bundle names a node that does not exist.
    #[error("bundle {bundle} names node {}, which does not exist", node.0)]
    NoBundleNode {
        /// Position of the bundle in the order of adding.
        bundle: usize,
        /// The node it names.
        node: NodeId,
    },
    /// A bundle has two nodes in one class, so they can never be chosen together.
    #[error("bundle {bundle} has two nodes in class {}", class.0)]
    BundleClash {
        /// Position of the bundle in the order of adding.
        bundle: usize,
        /// The class they share.
        class: ClassId,
    },
}

/// Collects classes and nodes; [`build`](Self::build) checks them all at once.
#[derive(Clone, Debug, Default)]
pub struct EGraphViewBuilder {
    classes: u32,
    class_of: Vec<ClassId>,
    cost: Vec<Cost>,
    children: CompressedLists<ClassId>,
    roots: Vec<ClassId>,
    bundles: Vec<Vec<NodeId>>,
}

impl EGraphViewBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a class without nodes.
    pub fn add_class(&mut self) -> ClassId {
        let id = ClassId(self.classes);
        self.classes += 1;
        id
    }

    /// Adds a node that computes `class` from `children` at `cost`; classes may be added later.
    pub fn add_node(&mut self, class: ClassId, children: &[ClassId], cost: Cost) -> NodeId {
        let id = NodeId(number(self.class_of.len()));
        self.class_of.push(class);
        self.cost.push(cost);
        self.children.push(children.iter().copied());
        id
    }

    /// Adds a value that the program must produce.
    pub fn add_root(&mut self, root: ClassId) {
        self.roots.push(root);
    }

    /// Adds nodes of different classes that pay only when chosen together, as all slices of one
    /// merged product do.
    pub fn add_bundle(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        self.bundles.push(nodes.into_iter().collect());
    }

    /// The finished view.
    ///
    /// # Errors
    /// Something named does not exist, a cost is negative or not finite, or a bundle has two nodes
    /// in one class.
    pub fn build(self) -> Result<EGraphView, EGraphViewError> {
        let known = |class: ClassId| class.0 < self.classes;
        for (index, (&class, &cost)) in self.class_of.iter().zip(&self.cost).enumerate() {
            let node = NodeId(number(index));
            if !known(class) {
                return Err(EGraphViewError::NoClass { node, class });
            }
            if let Some(&child) = self.children.get(index).iter().find(|&&child| !known(child)) {
                return Err(EGraphViewError::NoChild { node, child });
            }
            if !cost.0.is_finite() || cost.0 < 0.0 {
                return Err(EGraphViewError::BadCost { node, cost });
            }
        }
        if let Some(&root) = self.roots.iter().find(|&&root| !known(root)) {
            return Err(EGraphViewError::NoRoot { root });
        }
        for (bundle, nodes) in self.bundles.iter().enumerate() {
            let mut classes = Vec::with_capacity(nodes.len());
            for &node in nodes {
                let Some(&class) = self.class_of.get(node.index()) else {
                    return Err(EGraphViewError::NoBundleNode { bundle, node });
                };
                classes.push(class);
            }
            classes.sort_unstable();
            if let Some(pair) = classes.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(EGraphViewError::BundleClash { bundle, class: pair[0] });
            }
        }
        let nodes = CompressedLists::group(
            self.classes as usize,
            self.class_of
                .iter()
                .enumerate()
                .map(|(node, class)| (class.index(), NodeId(number(node)))),
        );
        let Self { class_of, cost, children, roots, bundles, .. } = self;
        Ok(EGraphView { nodes, class_of, cost, children, roots, bundles })
    }
}

/// An immutable, validated e-graph.
#[derive(Clone, Debug)]
pub struct EGraphView {
    nodes: CompressedLists<NodeId>,
    class_of: Vec<ClassId>,
    cost: Vec<Cost>,
    children: CompressedLists<ClassId>,
    roots: Vec<ClassId>,
    bundles: Vec<Vec<NodeId>>,
}

impl EGraphView {
    /// Number of classes.
    #[must_use]
    pub fn class_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.class_of.len()
    }

    /// All classes, in order of id.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = ClassId> + use<> {
        (0..number(self.class_count())).map(ClassId)
    }

    /// The nodes of a class, in order of id; may be empty.
    #[must_use]
    pub fn nodes(&self, class: ClassId) -> &[NodeId] {
        self.nodes.get(class.index())
    }

    /// The class whose value a node computes.
    #[must_use]
    pub fn class_of(&self, node: NodeId) -> ClassId {
        self.class_of[node.index()]
    }

    /// The operands of a node, as they were given (in order, with repeats).
    #[must_use]
    pub fn children(&self, node: NodeId) -> &[ClassId] {
        self.children.get(node.index())
    }

    /// What a node costs beyond its operands.
    #[must_use]
    pub fn cost(&self, node: NodeId) -> Cost {
        self.cost[node.index()]
    }

    /// The values that the program must produce.
    #[must_use]
    pub fn roots(&self) -> &[ClassId] {
        &self.roots
    }

    /// The nodes that pay only together.
    #[must_use]
    pub fn bundles(&self) -> &[Vec<NodeId>] {
        &self.bundles
    }
}

/// Many short lists in two allocations.
#[derive(Clone, Debug)]
pub(crate) struct CompressedLists<T> {
    start: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for CompressedLists<T> {
    fn default() -> Self {
        Self { start: vec![0], items: Vec::new() }
    }
}

impl<T: Copy> CompressedLists<T> {
    /// `count` lists from pairs of list and item; each list keeps the order of the pairs.
    pub(crate) fn group(count: usize, pairs: impl Iterator<Item = (usize, T)> + Clone) -> Self {
        let mut start = vec![0; count + 1];
        for (list, _) in pairs.clone() {
            start[list + 1] += 1;
        }
        for list in 0..count {
            start[list + 1] += start[list];
        }
        let mut next = start.clone();
        let Some((_, filler)) = pairs.clone().next() else {
            return Self { start, items: Vec::new() };
        };
        let mut items = vec![filler; start[count] as usize];
        for (list, item) in pairs {
            items[next[list] as usize] = item;
            next[list] += 1;
        }
        Self { start, items }
    }

    pub(crate) fn push(&mut self, list: impl IntoIterator<Item = T>) {
        self.items.extend(list);
        self.start.push(number(self.items.len()));
    }

    pub(crate) fn get(&self, list: usize) -> &[T] {
        &self.items[self.start[list] as usize..self.start[list + 1] as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.start.len() - 1
    }
}

/// A position as an id number.
pub(crate) fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a view holds fewer than 2^32 nodes and edges")
}
