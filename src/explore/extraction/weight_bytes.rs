//! The size of stored weights as a cost: bytes are charged where an operator at run time reads a constant.
//!
//! Every constant class that is read at run time gets a second class, its stored value.
//! This is computed from the first at the price of its bytes or, if a change of layout enlarges it, by that change from
//! the stored operand, which is what folding leaves. Constants that only other constants are computed from cost nothing.

use super::{ExtractionError, Kernel, Producer, SubprogramView};
use crate::graph::language::{ENode, Head};
use crate::graph::lower::Explored;
use egg::Id;
use mlc_dsl::ir::Type;
use mlc_extract::{ClassId, Cost, EGraphViewBuilder, NodeId, Solution};
use std::collections::{HashMap, HashSet};

/// The nodes of stored classes, which follow all others.
#[derive(Default)]
pub(crate) struct WeightClasses {
    /// How many nodes come before them.
    first: usize,
    /// The class whose value each one stores, and the change of layout that yields it from another stored value.
    nodes: Vec<(Id, Option<ENode>)>,
    /// Stored classes, and the class that each belongs to.
    classes: Vec<(ClassId, Id)>,
}

/// The price of one stored byte, and how many copies share what is stored once for all.
pub(crate) struct StoredBytePrice<'a> {
    /// Seconds that a byte counts for.
    pub per_byte: f64,
    /// Copies of the part.
    pub copies: usize,
    /// Classes that are the same in all copies.
    pub shared: &'a HashSet<Id>,
}

impl StoredBytePrice<'_> {
    fn of(&self, id: Id, bytes: f64) -> f64 {
        let copies = if self.shared.contains(&id) { self.copies } else { 1 };
        self.per_byte * bytes / copies as f64
    }
}

fn elements(ty: &Type) -> Option<usize> {
    Some(ty.known_shape()?.iter().product())
}

impl Explored {
    /// True if folding replaces the class by its value.
    fn folds(&self, id: Id) -> bool {
        let facts = self.graph.facts(id);
        facts.is_constant && facts.types.iter().all(|t| elements(t).is_some())
    }

    fn stored_bytes(&self, id: Id) -> f64 {
        let size = |t: &Type| elements(t).unwrap_or(0) as f64 * t.dtype.size() as f64;
        self.graph.facts(id).types.iter().map(size).sum()
    }

    /// A change of layout that folding leaves in the program.
    fn enlarges(&self, id: Id, n: &ENode) -> bool {
        let Head::Apply(call, _) = n.head else { return false };
        let args: Vec<&Type> =
            n.args.iter().filter_map(|a| self.graph.facts(*a).types.first()).collect();
        args.len() == n.args.len()
            && self.graph.library.call(call).enlarges(&args, &self.graph.facts(id).types)
    }

    /// The same view, in which stored bytes have a price.
    pub(crate) fn weighed(
        &self,
        p: SubprogramView,
        weight: &StoredBytePrice<'_>,
    ) -> Result<SubprogramView, ExtractionError> {
        let old = p.view.clone();
        let mut b = EGraphViewBuilder::new();
        let all: Vec<ClassId> = old.classes().map(|_| b.add_class()).collect();
        let mut of_class: Vec<Option<Id>> = vec![None; all.len()];
        for (id, class) in &p.index {
            of_class[class.index()] = Some(*id);
        }
        let is_leaf =
            |c: ClassId| p.alone(c, |chosen| matches!(chosen, Producer::Leaf(_))).is_some();
        let folded = |c: ClassId| of_class[c.index()].filter(|id| self.folds(*id) && !is_leaf(c));
        let mut stores = WeightClasses { first: old.node_count(), ..WeightClasses::default() };
        let mut stored: HashMap<ClassId, ClassId> = HashMap::new();
        let mut wanted: Vec<(ClassId, Id)> = Vec::new();
        let mut store = |c: ClassId, b: &mut EGraphViewBuilder, wanted: &mut Vec<(ClassId, Id)>| {
            let Some(id) = folded(c) else { return c };
            *stored.entry(c).or_insert_with(|| {
                let own = b.add_class();
                stores.classes.push((own, id));
                wanted.push((own, id));
                own
            })
        };
        for i in 0..old.node_count() {
            let n = NodeId::new(i as u32);
            let class = old.class_of(n);
            let runs = folded(class).is_none();
            let args: Vec<ClassId> = old
                .children(n)
                .iter()
                .map(|&c| if runs { store(c, &mut b, &mut wanted) } else { c })
                .collect();
            let mut price = old.cost(n).seconds();
            let head = p.entries.get(i).and_then(|(id, chosen)| match chosen {
                Producer::Node(n) => Some((id, n.head)),
                Producer::Leaf(_) => None,
            });
            if let Some((id, head @ (Head::Const(_) | Head::PerCopyConstant(_)))) = head
                && runs
            {
                price += weight.of(*id, self.constant(head, 0).bytes().len() as f64);
            }
            b.add_node(class, &args, Cost::new(price));
        }
        for &root in old.roots() {
            let root = store(root, &mut b, &mut wanted);
            b.add_root(root);
        }
        while let Some((own, id)) = wanted.pop() {
            let class = p.index[&id];
            b.add_node(own, &[class], Cost::new(weight.of(id, self.stored_bytes(id))));
            stores.nodes.push((id, None));
            for &n in old.nodes(class) {
                let Some((_, Producer::Node(node))) = p.entries.get(n.index()) else { continue };
                if self.enlarges(id, node) {
                    let arg = store(old.children(n)[0], &mut b, &mut wanted);
                    b.add_node(own, &[arg], old.cost(n));
                    stores.nodes.push((id, Some(node.clone())));
                }
            }
        }
        for bundle in old.bundles() {
            b.add_bundle(bundle.iter().copied());
        }
        Ok(SubprogramView { view: b.build()?, stores, ..p })
    }

    /// The kernels of the solution, operands before users.
    pub(crate) fn chosen(
        &self,
        p: &SubprogramView,
        solution: &Solution,
        roots: &[Id],
    ) -> Vec<Kernel> {
        let order = solution.topological(&p.view).unwrap_or_default();
        let mut of: HashMap<Id, Kernel> = HashMap::new();
        let mut kernels: Vec<Kernel> = Vec::new();
        for n in &order {
            let Some(kernel) = p.kernel(*n) else { continue };
            let Some(&(id, _)) = kernel.last() else { continue };
            // What is stored already is not viewed as well.
            if of.contains_key(&id) && p.view.class_of(*n) == p.index[&id] {
                continue;
            }
            of.entry(id).or_insert_with(|| kernel.clone());
            kernels.push(kernel);
        }
        if p.stores.nodes.is_empty() {
            return kernels;
        }
        let mut layouts = of.clone();
        for n in &order {
            let store = n.index().checked_sub(p.stores.first).and_then(|i| p.stores.nodes.get(i));
            if let Some((id, Some(node))) = store {
                let kernel = vec![(*id, Producer::Node(node.clone()))];
                layouts.insert(*id, kernel.clone());
                of.entry(*id).or_insert(kernel);
            }
        }
        // A class that other constants are computed from, too, may need its own node.
        self.sorted(&layouts, roots).or_else(|| self.sorted(&of, roots)).unwrap_or_default()
    }

    /// What the roots need, operands before users; nothing if that has a cycle or a gap.
    fn sorted(&self, of: &HashMap<Id, Kernel>, roots: &[Id]) -> Option<Vec<Kernel>> {
        let mut done: HashMap<Id, bool> = HashMap::new();
        let mut out = Vec::new();
        let mut stack: Vec<(Id, bool)> = roots.iter().rev().map(|r| (*r, false)).collect();
        while let Some((id, ready)) = stack.pop() {
            let kernel = of.get(&id)?;
            if ready {
                done.insert(id, true);
                out.push(kernel.clone());
                continue;
            }
            match done.get(&id) {
                Some(true) => continue,
                Some(false) => return None,
                None => drop(done.insert(id, false)),
            }
            stack.push((id, true));
            let wanted = self.reads(kernel).into_iter().rev();
            stack.extend(wanted.filter(|a| done.get(a) != Some(&true)).map(|a| (a, false)));
        }
        Some(out)
    }

    /// The classes that a kernel reads.
    fn reads(&self, kernel: &Kernel) -> Vec<Id> {
        let inside: HashSet<Id> = kernel.iter().map(|(id, _)| *id).collect();
        let nodes = kernel.iter().filter_map(|(_, chosen)| match chosen {
            Producer::Node(n) => Some(n),
            Producer::Leaf(_) => None,
        });
        let args = nodes.flat_map(|n| &n.args).map(|&a| self.graph.egg.find(a));
        args.filter(|a| !inside.contains(a)).collect()
    }
}

impl SubprogramView {
    /// Completes a choice that knows nothing of stored classes.
    pub(crate) fn complete(&self, choice: &mut [Option<NodeId>]) {
        for (own, id) in &self.stores.classes {
            let below = choice[self.index[id].index()];
            let same = |n: &&NodeId| {
                let Some(below) = below else { return false };
                let stored = &self.stores.nodes[n.index() - self.stores.first].1;
                let below = self.entries.get(below.index()).map(|(_, chosen)| chosen);
                matches!((below, stored), (Some(Producer::Node(a)), Some(b)) if a == b)
            };
            let nodes = self.view.nodes(*own);
            choice[own.index()] = nodes.iter().find(same).or(nodes.first()).copied();
        }
    }
}
