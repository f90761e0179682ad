//! Extraction: builds the neutral view of (a part of) the e-graph, and reads off the chosen nodes.

mod emit;
mod stored;
mod weight_bytes;

use super::graph::language::{ENode, Head};
use super::graph::lower::Explored;
use super::proof::log::LogId;
use egg::Id;
use mlc_dsl::ir::{DType, Extent, NodeKind, Program, Type, Value};
use mlc_dsl::library::{CallId, OpClass};
use mlc_extract::cost::target::{Site, TargetPrices};
use mlc_extract::cost::work::Works;
use mlc_extract::kernels::candidates::{Class, KernelCandidate, OperatorNode, candidates};
use mlc_extract::resources::runs_once;
use mlc_extract::{
    ClassId, Cost, EGraphView, EGraphViewBuilder, Extractor, NodeId, Solution, Work,
};
use std::collections::{HashMap, HashSet};
use stored::{StoredClass, StoredClasses};
use thiserror::Error;
use weight_bytes::{StoredBytePrice, WeightClasses};

/// Why no program was extracted.
#[derive(Debug, Error)]
pub enum ExtractionError {
    /// An output cannot be computed with the target's operators.
    #[error(transparent)]
    Extract(#[from] mlc_extract::ExtractError),
    /// The e-graph is inconsistent.
    #[error("the extracted program does not type: {0}")]
    Type(#[from] mlc_dsl::typing::infer::TypeError),
    /// A part of the program does not yield what it should.
    #[error("the parts of the program yield no output `{0}`")]
    Output(String),
    /// The view was not accepted.
    #[error(transparent)]
    EGraphView(#[from] mlc_extract::EGraphViewError),
}

/// What extraction chose.
pub struct Extracted {
    /// The cheapest program found.
    pub program: Program,
    /// The nodes of each kernel that was chosen.
    pub kernels: Vec<Vec<mlc_dsl::ir::NodeId>>,
    /// Values of the explored program and the logged terms that compute them now, for proofs.
    pub(crate) ends: Vec<(Value, LogId)>,
    /// The sum of its kernels' prices and of its constants' bytes.
    pub cost: f64,
    /// No program of the e-graph costs less; where a block is cut, none that is cut there.
    pub lower_bound: f64,
    /// The same of the program that was explored, if the target has all its operators.
    pub source_cost: Option<f64>,
}

/// A part of the explored program that is extracted by itself: what lies between some of its values.
#[derive(Clone, Debug, Default)]
pub struct Subprogram {
    /// Values that it yields.
    pub roots: Vec<Value>,
    /// Values that are handed to it.
    pub leaves: Vec<Value>,
    /// Inputs that it must not read.
    pub barred: HashSet<u32>,
    /// Inputs that differ in every copy.
    pub own: HashSet<u32>,
    /// A class that only this operator may compute.
    pub forced: Option<(Id, CallId)>,
    /// How often it occurs. What reads nothing of a copy's own is computed once for all copies.
    pub copies: usize,
}

/// The nodes chosen for a part.
pub struct Choice {
    /// Kernels, operands before users.
    pub(super) kernels: Vec<Kernel>,
    /// Classes of the part's roots.
    pub(super) roots: Vec<Id>,
    /// The sum of the prices for one copy.
    pub cost: f64,
    /// No choice costs less.
    pub lower_bound: f64,
    /// The same of the part as it was read, if the target has all its operators.
    pub source_cost: Option<f64>,
}

/// The classes inside a kernel and what computes them, operands before users, its result last.
pub(super) type Kernel = Vec<(Id, Producer)>;

/// What computes a class in a solution.
#[derive(Clone, Debug)]
pub(super) enum Producer {
    /// The part's leaf of that index.
    Leaf(usize),
    /// A node.
    Node(ENode),
}

/// A subprogram as extractors see it: each node of the view is a kernel.
pub(super) struct SubprogramView {
    pub(super) view: EGraphView,
    /// What computes which class.
    pub(super) entries: Vec<(Id, Producer)>,
    /// The entries inside each node of the view; the first nodes are kernels of one entry, in order.
    pub(super) kernels: Vec<KernelCandidate>,
    pub(super) index: HashMap<Id, ClassId>,
    /// Classes whose stored value is one of its own.
    pub(super) stored: HashMap<ClassId, StoredClass>,
    /// What constants weigh.
    pub(super) stores: WeightClasses,
}

impl SubprogramView {
    /// What is inside a node that is a kernel.
    pub(super) fn kernel(&self, n: NodeId) -> Option<Kernel> {
        let entries = self.kernels.get(n.index())?.entries.iter();
        Some(entries.map(|&e| self.entries[e as usize].clone()).collect())
    }

    /// The node of a class whose kernel is one entry that passes.
    pub(super) fn alone(
        &self,
        class: ClassId,
        passes: impl Fn(&Producer) -> bool,
    ) -> Option<NodeId> {
        let fits =
            |n: &NodeId| self.entries.get(n.index()).is_some_and(|(_, chosen)| passes(chosen));
        let stored = self.stored.get(&class).map_or(&[][..], |s| self.view.nodes(s.class));
        self.view.nodes(class).iter().chain(stored).copied().find(fits)
    }
}

/// What a node costs.
enum Price {
    /// What the kernel that it shares does.
    Site(Site),
    /// Seconds.
    Fixed(f64),
}

/// What computes a constant runs once, before the first run, as if the program ran so often.
const RUNS: f64 = 1e7;

/// Seconds per byte of a constant that is stored: it only breaks ties.
const BYTE: f64 = 1e-16;

impl Explored {
    /// The cheapest program under these prices.
    pub fn extract(
        &mut self,
        prices: &TargetPrices<'_>,
        extractor: &dyn Extractor,
    ) -> Result<Extracted, ExtractionError> {
        let roots: Vec<Value> = self.source.outputs.iter().map(|(_, v)| *v).collect();
        let part = Subprogram { roots: roots.clone(), copies: 1, ..Subprogram::default() };
        let choice = self.choose(&part, prices, extractor)?;
        let library = self.graph.library.clone();
        let mut b = mlc_dsl::ir::build::Builder::new(&library);
        let inputs: Vec<Value> =
            self.source.inputs.iter().map(|(n, t)| b.input(n, t.clone())).collect();
        let origin = |n: mlc_dsl::ir::NodeId| self.source.node(n).origin.clone();
        let values = self.emit(&choice, &mut b, &|i| inputs[i as usize], &[], 0, &origin)?;
        let names = self.source.outputs.iter().map(|(n, _)| n.clone());
        let (program, kernels) = b.finish_grouped(names.zip(values).collect());
        let ends = roots.into_iter().zip(self.logged(&choice)).collect();
        let Choice { cost, lower_bound, source_cost, .. } = choice;
        Ok(Extracted { program, kernels, ends, cost, lower_bound, source_cost })
    }

    /// The cheapest nodes for a part under these prices.
    pub fn choose(
        &self,
        part: &Subprogram,
        prices: &TargetPrices<'_>,
        extractor: &dyn Extractor,
    ) -> Result<Choice, ExtractionError> {
        let p = self.view(part, prices)?;
        let incumbent = self.incumbent(&p);
        let found = extractor.search(&p.view, incumbent.as_ref(), &|| false)?;
        let roots: Vec<Id> = part.roots.iter().map(|r| self.class_of(*r)).collect();
        Ok(Choice {
            kernels: self.chosen(&p, &found.solution, &roots),
            roots,
            cost: found.cost.seconds(),
            lower_bound: found.lower_bound.seconds(),
            source_cost: incumbent.map(|i| i.dag_cost(&p.view).seconds()),
        })
    }

    /// What the cheapest nodes cost that an extractor finds for a part; nothing is proven of it.
    pub fn price_of(
        &self,
        part: &Subprogram,
        prices: &TargetPrices<'_>,
        extractor: &dyn Extractor,
    ) -> Result<f64, ExtractionError> {
        let p = self.view(part, prices)?;
        let solution = extractor.extract(&p.view, self.incumbent(&p).as_ref())?;
        Ok(solution.dag_cost(&p.view).seconds())
    }

    /// True if two values of the source are known to be equal.
    pub fn are_equal(&self, a: Value, b: Value) -> bool {
        self.class_of(a) == self.class_of(b)
    }

    /// The class of a value of the source.
    fn class_of(&self, v: Value) -> Id {
        self.graph.egg.find(self.places[v.node.0 as usize].0[v.output as usize])
    }

    /// Classes and nodes that the part's roots can reach, priced. A leaf is free, and nothing behind it
    /// is looked at.
    fn view(
        &self,
        part: &Subprogram,
        prices: &TargetPrices<'_>,
    ) -> Result<SubprogramView, ExtractionError> {
        let egg = &self.graph.egg;
        let mut leaves: HashMap<Id, usize> = HashMap::new();
        for (i, l) in part.leaves.iter().enumerate() {
            leaves.entry(self.class_of(*l)).or_insert(i);
        }
        let mut b = EGraphViewBuilder::new();
        let mut index: HashMap<Id, ClassId> = HashMap::new();
        let mut order: Vec<Id> = Vec::new();
        let mut stack: Vec<Id> = part.roots.iter().map(|r| self.class_of(*r)).collect();
        while let Some(id) = stack.pop() {
            if index.contains_key(&id) {
                continue;
            }
            index.insert(id, b.add_class());
            order.push(id);
            if !leaves.contains_key(&id) {
                stack
                    .extend(egg[id].nodes.iter().flat_map(|n| n.args.iter()).map(|&a| egg.find(a)));
            }
        }
        let shared =
            if part.copies > 1 { self.shared(part, &order, &leaves) } else { HashSet::new() };
        let (classes, dtypes) = self.values(&order, &index, prices.works());
        let mut entries: Vec<(Id, Producer)> = Vec::new();
        let mut sites: Vec<OperatorNode> = Vec::new();
        for id in &order {
            let class = index[id].index() as u32;
            if let Some(&leaf) = leaves.get(id) {
                entries.push((*id, Producer::Leaf(leaf)));
                sites.push(OperatorNode::free(class));
                continue;
            }
            let mut list: Vec<&ENode> = egg[*id].nodes.iter().collect();
            list.sort();
            for n in list {
                let barred = matches!(n.head, Head::Input(i) if part.barred.contains(&i));
                let other = part.forced.is_some_and(|(class, call)| {
                    class == *id && !matches!(n.head, Head::Apply(c, _) if c == call)
                });
                let Some(price) = self.price(*id, n, prices).filter(|_| !barred && !other) else {
                    continue;
                };
                let args = n.args.iter().map(|&a| index[&egg.find(a)].index() as u32).collect();
                sites.push(match price {
                    Price::Site(site) => site.entry(class, args),
                    Price::Fixed(seconds) => OperatorNode::priced(class, args, seconds),
                });
                entries.push((*id, Producer::Node(n.clone())));
            }
        }
        let price = |kernel: u32, class: u32, work: &Work| {
            prices.seconds(kernel, dtypes[class as usize], work)
        };
        let kernels = candidates(&classes, &sites, &price);
        let ids: Vec<ClassId> = order.iter().map(|id| index[id]).collect();
        let common: Vec<bool> = order.iter().map(|id| shared.contains(id)).collect();
        let stored = StoredClasses::add(&classes, &sites, &kernels, &mut b);
        for k in &kernels {
            let Some(&root) = k.entries.last() else { continue };
            let class = sites[root as usize].class as usize;
            let once = common[class] && k.reads.iter().all(|&r| common[r as usize]);
            let cost = if once { k.cost / part.copies as f64 } else { k.cost };
            let (computes, reads) = stored.seen(k, &ids);
            b.add_node(computes, &reads, Cost::new(cost));
        }
        let stored = stored.join(prices, (&classes, &dtypes), &ids, &mut b);
        for r in &part.roots {
            b.add_root(index[&self.class_of(*r)]);
        }
        let place = |(i, (id, chosen)): (usize, &(Id, Producer))| match chosen {
            Producer::Node(n) => Some(((*id, n.clone()), NodeId::new(i as u32))),
            Producer::Leaf(_) => None,
        };
        let by_node = entries.iter().enumerate().filter_map(place).collect();
        for bundle in self.bundles(&by_node) {
            b.add_bundle(bundle);
        }
        let stores = WeightClasses::default();
        let p = SubprogramView { view: b.build()?, entries, kernels, index, stored, stores };
        match prices.stored_byte() {
            Some(per_byte) => {
                self.weighed(p, &StoredBytePrice { per_byte, copies: part.copies, shared: &shared })
            }
            None => Ok(p),
        }
    }

    /// What reading and writing the classes takes, and their element types.
    fn values(
        &self,
        order: &[Id],
        index: &HashMap<Id, ClassId>,
        works: &Works<'_>,
    ) -> (Vec<Class>, Vec<DType>) {
        let mut shapes: HashMap<&[Extent], u32> = HashMap::new();
        let mut readers: HashMap<Id, u32> = HashMap::new();
        for value in self.graph.source_reads().values().flatten() {
            *readers.entry(*value).or_default() += 1;
        }
        let (mut classes, mut dtypes) = (Vec::new(), Vec::new());
        for id in order {
            let types = &self.graph.facts(*id).types;
            let fresh = shapes.len() as u32;
            let shape = types.first().map_or(&[][..], |t| &t.shape);
            let shape = *shapes.entry(shape).or_insert(fresh);
            let written: f64 = types.iter().map(|t| works.size().bytes(t)).sum();
            let readers = readers.get(id).copied().unwrap_or(0);
            let fixed = self.graph.facts(*id).is_constant;
            classes.push(Class { shape, read: written, written, readers, fixed });
            dtypes.push(types.first().map_or(DType::F32, |t| t.dtype));
        }
        // A repetition is read where it comes from.
        loop {
            let mut changed = false;
            for (i, id) in order.iter().enumerate().rev() {
                for n in self.graph.egg[*id].nodes.iter().filter(|n| self.is_view(n)) {
                    for a in &n.args {
                        let Some(from) = index.get(&self.graph.egg.find(*a)) else { continue };
                        let least = classes[from.index()].read;
                        if least < classes[i].read {
                            classes[i].read = least;
                            changed = true;
                        }
                    }
                }
            }
            if !changed {
                return (classes, dtypes);
            }
        }
    }

    fn is_view(&self, n: &ENode) -> bool {
        let Head::Apply(call, _) = n.head else { return false };
        self.graph.library.call(call).class == OpClass::View
    }

    /// Classes that can be computed from nothing of a copy's own.
    fn shared(&self, part: &Subprogram, order: &[Id], leaves: &HashMap<Id, usize>) -> HashSet<Id> {
        let egg = &self.graph.egg;
        let mut shared: HashSet<Id> = HashSet::new();
        loop {
            let before = shared.len();
            // Operands were found after their users.
            for id in order.iter().rev().filter(|id| !leaves.contains_key(id)) {
                let common = |n: &ENode| match n.head {
                    Head::Input(i) => !part.own.contains(&i) && !part.barred.contains(&i),
                    Head::PerCopyConstant(_) => false,
                    _ => n.args.iter().all(|&a| shared.contains(&egg.find(a))),
                };
                if !shared.contains(id) && egg[*id].nodes.iter().any(common) {
                    shared.insert(*id);
                }
            }
            if shared.len() == before {
                return shared;
            }
        }
    }

    /// Nodes that pay only together: each family's slices.
    fn bundles(&self, by_node: &HashMap<(Id, ENode), NodeId>) -> Vec<Vec<NodeId>> {
        let egg = &self.graph.egg;
        let slice = self.graph.structural.slice;
        let mut out = Vec::new();
        for classes in &self.bundles {
            let mut bundle: Vec<(Id, NodeId)> = Vec::new();
            for &c in classes {
                let c = egg.find(c);
                let part = egg[c]
                    .nodes
                    .iter()
                    .find(|n| matches!(n.head, Head::Apply(call, _) if Some(call) == slice));
                let node = part.and_then(|n| by_node.get(&(c, n.clone())));
                if let Some(&n) = node
                    && !bundle.iter().any(|(d, _)| *d == c)
                {
                    bundle.push((c, n));
                }
            }
            if bundle.len() >= 2 {
                out.push(bundle.into_iter().map(|(_, n)| n).collect());
            }
        }
        out
    }

    /// A node as kernels see it; `None` if it may not be chosen.
    fn price(&self, class: Id, n: &ENode, prices: &TargetPrices<'_>) -> Option<Price> {
        let graph = &self.graph;
        let (call, attrs) = match n.head {
            Head::Apply(call, attrs) => (call, attrs),
            // Of equal constants the smaller one is kept: a repetition is read, not stored.
            Head::Const(_) | Head::PerCopyConstant(_) => {
                let bytes = self.constant(n.head, 0).bytes().len();
                return Some(Price::Fixed(BYTE * bytes as f64));
            }
            Head::Input(_) | Head::Output(_) => return Some(Price::Fixed(0.0)),
        };
        let args: Vec<&Type> = n.args.iter().map(|&a| graph.type_of(a)).collect();
        let results = &graph.facts(class).types;
        let fed = graph.facts(class).is_constant;
        if fed && !n.args.iter().all(|&a| graph.facts(a).is_constant) {
            return None;
        }
        let attrs = graph.attrs(attrs);
        if graph.facts(class).is_foldable {
            // Whatever computes a constant, the reference interpreter can evaluate it; what would take it long is left to the run.
            let price = prices.alone(call, attrs, &args, results).unwrap_or(1e-3);
            let once = runs_once(prices.works(), &graph.library, call, attrs, &args, results);
            return Some(Price::Fixed(price / if once { RUNS } else { 1.0 }));
        }
        let mut site = prices.site(call, attrs, &args, results)?;
        let copied: Vec<Option<f64>> =
            n.args.iter().map(|&a| self.copied(a, prices.works())).collect();
        site.work = prices.works().of_copies(site.work, &args, &copied);
        Some(Price::Site(site))
    }

    /// Elements that a class repeats along an open axis, if it does.
    fn copied(&self, id: Id, works: &Works<'_>) -> Option<f64> {
        let ty = self.graph.type_of(id);
        let nodes = self.graph.egg[self.graph.egg.find(id)].nodes.iter();
        let views = nodes.filter(|n| self.is_view(n));
        let sizes = views.filter_map(|n| works.copied(self.graph.type_of(*n.args.first()?), ty));
        sizes.reduce(f64::min)
    }

    /// The part as it was read, as a choice.
    fn incumbent(&self, p: &SubprogramView) -> Option<Solution> {
        let egg = &self.graph.egg;
        let mut choice: Vec<Option<NodeId>> = vec![None; p.view.class_count()];
        for c in p.index.values() {
            choice[c.index()] = p.alone(*c, |chosen| matches!(chosen, Producer::Leaf(_)));
        }
        for (node, (classes, _)) in self.source.nodes.iter().zip(&self.places) {
            for &class in classes {
                let class = egg.find(class);
                let Some(&c) = p.index.get(&class) else { continue };
                if choice[c.index()].is_some() {
                    continue;
                }
                let wanted = |n: &ENode| match (&node.kind, n.head) {
                    (NodeKind::Input(i), Head::Input(j)) => *i == j,
                    (NodeKind::Const(a), Head::Const(b)) => *a == b,
                    (NodeKind::Const(_), Head::PerCopyConstant(_)) => true,
                    (NodeKind::Apply(call, attrs), Head::Apply(c, id)) => {
                        *call == c
                            && **self.graph.attrs(id) == **attrs
                            && node
                                .args
                                .iter()
                                .zip(&n.args)
                                .all(|(v, &a)| self.class_of(*v) == egg.find(a))
                    }
                    (NodeKind::Apply(..), Head::Output(_)) => classes.len() > 1,
                    _ => false,
                };
                choice[c.index()] =
                    p.alone(c, |chosen| matches!(chosen, Producer::Node(node) if wanted(node)));
            }
        }
        // The applications behind the outputs of operators with several.
        for i in 0..choice.len() {
            if let Some(n) = choice[i]
                && matches!(&p.entries[n.index()].1, Producer::Node(n) if matches!(n.head, Head::Output(_)))
            {
                let whole = p.view.children(n)[0];
                if choice[whole.index()].is_none() {
                    choice[whole.index()] = p.view.nodes(whole).first().copied();
                }
            }
        }
        for (class, stored) in &p.stored {
            let at = choice[class.index()];
            let computed = at.filter(|&n| p.view.class_of(n) == stored.class);
            choice[stored.class.index()] = Some(computed.unwrap_or(stored.copied));
            choice[class.index()] = if computed.is_some() { Some(stored.read) } else { at };
        }
        p.complete(&mut choice);
        let solution = Solution::new(choice);
        solution.validate(&p.view).is_ok().then_some(solution)
    }
}
