//! From the e-graph to the cheapest nodes: the neutral view of a part of the program, and the choice.

use super::language::{ENode, Head};
use super::log::LogId;
use super::lower::Explored;
use egg::Id;
use mlc_dsl::ir::{Attr, NodeKind, Program, Type, Value};
use mlc_dsl::library::CallId;
use mlc_extract::{ClassId, Cost, Extractor, NodeId, Solution, View, ViewBuilder};
use std::collections::{HashMap, HashSet};
use thiserror::Error;

/// Prices of operator applications on a target.
pub trait Prices {
    /// Seconds of one application; `None` if the target does not have the operator.
    fn seconds(
        &self,
        call: CallId,
        attrs: &[Attr],
        args: &[&Type],
        results: &[Type],
    ) -> Option<f64>;
}

/// Why no program was extracted.
#[derive(Debug, Error)]
pub enum ExtractionError {
    /// An output cannot be computed with the target's operators.
    #[error(transparent)]
    Extract(#[from] mlc_extract::ExtractError),
    /// The e-graph is inconsistent.
    #[error("the extracted program does not type: {0}")]
    Type(#[from] mlc_dsl::infer::TypeError),
    /// A part of the program does not yield what it should.
    #[error("the parts of the program yield no output `{0}`")]
    Output(String),
    /// The view was not accepted.
    #[error(transparent)]
    View(#[from] mlc_extract::ViewError),
}

/// What extraction chose.
pub struct Extracted {
    /// The program.
    pub program: Program,
    /// Values of the explored program and the logged terms that compute them now, for proofs.
    pub(crate) ends: Vec<(Value, LogId)>,
    /// The sum of its operators' prices, each once, and of its constants' bytes.
    pub cost: f64,
    /// No program of the e-graph costs less; where a block is cut, none that is cut there.
    pub lower_bound: f64,
    /// The same of the program that was explored, if the target has all its operators.
    pub source_cost: Option<f64>,
}

/// A part of the explored program that is extracted by itself: what lies between some of its values.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Values that it yields.
    pub roots: Vec<Value>,
    /// Values that are handed to it.
    pub leaves: Vec<Value>,
    /// Inputs that it must not read.
    pub barred: HashSet<u32>,
    /// Inputs that are others in every copy.
    pub own: HashSet<u32>,
    /// How often it occurs. What reads nothing of a copy's own is computed once for all copies.
    pub copies: usize,
}

/// The nodes chosen for a part.
pub struct Choice {
    /// Classes and what computes them, operands before users.
    pub(super) nodes: Vec<(Id, Chosen)>,
    /// Classes of the part's roots.
    pub(super) roots: Vec<Id>,
    /// The sum of the prices for one copy.
    pub cost: f64,
    /// No choice costs less.
    pub lower_bound: f64,
    /// The same of the part as it was read, if the target has all its operators.
    pub source_cost: Option<f64>,
}

/// What computes a class.
#[derive(Clone, Debug)]
pub(super) enum Chosen {
    /// The part's leaf of that index.
    Leaf(usize),
    /// A node.
    Node(ENode),
}

/// A part as the extractors see it: what is behind the nodes of a view, and the view's class of each
/// e-class.
struct PartView {
    view: View,
    nodes: Vec<(Id, Chosen)>,
    index: HashMap<Id, ClassId>,
}

/// Constants are computed once, before the first run: their price only breaks ties.
const CONSTANT: f64 = 1e-7;

/// Seconds per byte of a constant, before [`CONSTANT`].
const BYTE: f64 = 1e-9;

impl Explored {
    /// The cheapest program under these prices.
    pub fn extract(
        &mut self,
        prices: &dyn Prices,
        extractor: &dyn Extractor,
    ) -> Result<Extracted, ExtractionError> {
        let roots: Vec<Value> = self.source.outputs.iter().map(|(_, v)| *v).collect();
        let part = Part { roots: roots.clone(), copies: 1, ..Part::default() };
        let choice = self.choose(&part, prices, extractor)?;
        let library = self.graph.library.clone();
        let mut b = mlc_dsl::build::Builder::new(&library);
        let inputs: Vec<Value> =
            self.source.inputs.iter().map(|(n, t)| b.input(n, t.clone())).collect();
        let values = self.emit(&choice, &mut b, &|i| inputs[i as usize], &[], 0)?;
        let names = self.source.outputs.iter().map(|(n, _)| n.clone());
        let program = b.finish(names.zip(values).collect());
        let ends = roots.into_iter().zip(self.logged(&choice)).collect();
        let Choice { cost, lower_bound, source_cost, .. } = choice;
        Ok(Extracted { program, ends, cost, lower_bound, source_cost })
    }

    /// The cheapest nodes for a part under these prices.
    pub fn choose(
        &self,
        part: &Part,
        prices: &dyn Prices,
        extractor: &dyn Extractor,
    ) -> Result<Choice, ExtractionError> {
        let p = self.view(part, prices)?;
        let incumbent = self.incumbent(&p);
        let found = extractor.search(&p.view, incumbent.as_ref(), &|| false)?;
        let order = found.solution.topological(&p.view).unwrap_or_default();
        Ok(Choice {
            nodes: order.into_iter().map(|n| p.nodes[n.index()].clone()).collect(),
            roots: part.roots.iter().map(|r| self.class_of(*r)).collect(),
            cost: found.cost.seconds(),
            lower_bound: found.lower_bound.seconds(),
            source_cost: incumbent.map(|i| i.dag_cost(&p.view).seconds()),
        })
    }

    /// What the cheapest nodes cost that an extractor finds for a part; nothing is proven of it.
    pub fn price_of(
        &self,
        part: &Part,
        prices: &dyn Prices,
        extractor: &dyn Extractor,
    ) -> Result<f64, ExtractionError> {
        let p = self.view(part, prices)?;
        let solution = extractor.extract(&p.view, self.incumbent(&p).as_ref())?;
        Ok(solution.dag_cost(&p.view).seconds())
    }

    /// The class of a value of the source.
    fn class_of(&self, v: Value) -> Id {
        self.graph.egg.find(self.places[v.node.0 as usize].0[v.output as usize])
    }

    /// Classes and nodes that the part's roots can reach, priced. A leaf is free, and nothing behind it
    /// is looked at.
    fn view(&self, part: &Part, prices: &dyn Prices) -> Result<PartView, ExtractionError> {
        let egg = &self.graph.egg;
        let mut leaves: HashMap<Id, usize> = HashMap::new();
        for (i, l) in part.leaves.iter().enumerate() {
            leaves.entry(self.class_of(*l)).or_insert(i);
        }
        let mut b = ViewBuilder::new();
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
        let mut nodes: Vec<(Id, Chosen)> = Vec::new();
        let mut by_node: HashMap<(Id, ENode), NodeId> = HashMap::new();
        for id in order {
            if let Some(&leaf) = leaves.get(&id) {
                b.add_node(index[&id], &[], Cost::ZERO);
                nodes.push((id, Chosen::Leaf(leaf)));
                continue;
            }
            let mut list: Vec<&ENode> = egg[id].nodes.iter().collect();
            list.sort();
            for n in list {
                let barred = matches!(n.head, Head::Input(i) if part.barred.contains(&i));
                let Some(price) = self.price(id, n, prices).filter(|_| !barred) else { continue };
                let all_shared = n.args.iter().all(|&a| shared.contains(&egg.find(a)));
                let once = shared.contains(&id) && all_shared;
                let price = if once { price / part.copies as f64 } else { price };
                let args: Vec<ClassId> = n.args.iter().map(|&a| index[&egg.find(a)]).collect();
                let node = b.add_node(index[&id], &args, Cost::new(price));
                by_node.insert((id, n.clone()), node);
                nodes.push((id, Chosen::Node(n.clone())));
            }
        }
        for r in &part.roots {
            b.add_root(index[&self.class_of(*r)]);
        }
        for bundle in self.bundles(&by_node) {
            b.add_bundle(bundle);
        }
        Ok(PartView { view: b.build()?, nodes, index })
    }

    /// Classes that can be computed from nothing of a copy's own.
    fn shared(&self, part: &Part, order: &[Id], leaves: &HashMap<Id, usize>) -> HashSet<Id> {
        let egg = &self.graph.egg;
        let mut shared: HashSet<Id> = HashSet::new();
        loop {
            let before = shared.len();
            // Operands were found after their users.
            for id in order.iter().rev().filter(|id| !leaves.contains_key(id)) {
                let common = |n: &ENode| match n.head {
                    Head::Input(i) => !part.own.contains(&i) && !part.barred.contains(&i),
                    Head::Series(_) => false,
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

    /// Seconds of a node; `None` if it may not be chosen.
    fn price(&self, class: Id, n: &ENode, prices: &dyn Prices) -> Option<f64> {
        let graph = &self.graph;
        let (call, attrs) = match n.head {
            Head::Apply(call, attrs) => (call, attrs),
            // Of equal constants the smaller one is kept: a repetition is read, not stored.
            Head::Const(_) | Head::Series(_) => {
                let bytes = self.constant(n.head, 0).bytes().len();
                return Some(CONSTANT * BYTE * bytes as f64);
            }
            Head::Input(_) | Head::Output(_) => return Some(0.0),
        };
        let args: Vec<&Type> = n.args.iter().map(|&a| graph.type_of(a)).collect();
        let results = &graph.facts(class).types;
        let fed = graph.facts(class).fed_by_constants;
        if fed && !n.args.iter().all(|&a| graph.facts(a).fed_by_constants) {
            return None;
        }
        let price = prices.seconds(call, graph.attrs(attrs), &args, results);
        if fed {
            // Whatever computes a constant, the judge can evaluate it.
            return Some(CONSTANT * price.unwrap_or(1e-3));
        }
        price
    }

    /// The part as it was read, as a choice.
    fn incumbent(&self, p: &PartView) -> Option<Solution> {
        let egg = &self.graph.egg;
        let mut choice: Vec<Option<NodeId>> = vec![None; p.view.class_count()];
        for (id, c) in &p.index {
            if let [only] = p.view.nodes(*c)
                && matches!(p.nodes[only.index()], (leaf, Chosen::Leaf(_)) if leaf == *id)
            {
                choice[c.index()] = Some(*only);
            }
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
                    (NodeKind::Const(_), Head::Series(_)) => true,
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
                    p.view.nodes(c).iter().copied().find(
                        |n| matches!(&p.nodes[n.index()].1, Chosen::Node(node) if wanted(node)),
                    );
            }
        }
        // The applications behind the outputs of operators with several.
        for i in 0..choice.len() {
            if let Some(n) = choice[i]
                && matches!(&p.nodes[n.index()].1, Chosen::Node(n) if matches!(n.head, Head::Output(_)))
            {
                let whole = p.view.children(n)[0];
                if choice[whole.index()].is_none() {
                    choice[whole.index()] = p.view.nodes(whole).first().copied();
                }
            }
        }
        let solution = Solution::new(choice);
        solution.validate(&p.view).is_ok().then_some(solution)
    }
}
