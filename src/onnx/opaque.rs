//! Nodes that are not understood: they are kept as they are, and what is around them is a program.
//!
//! An opaque node is cut out of the graph. Its results are inputs of the program, and what it reads are outputs; equal
//! programs then agree on whatever the node computes, so nothing needs to know its meaning. Writing puts the node back.

use super::export::ExportError;
use super::import::error::ImportError;
use super::import::value::origin;
use super::raw::{RawAttr, RawDim, RawGraph, RawNode, RawValueInfo};
use super::read::order;
use indexmap::IndexMap;
use mlc_dsl::ir::Tensor;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Why nodes are kept whose declaration is `opaque`.
pub(super) const RECOGNISED: &str = "runtimes recognise the operator and what is around it";

/// The opaque nodes of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opaque {
    /// The nodes, in the order of the model, each with the reason.
    pub nodes: Vec<(RawNode, ImportError)>,
    /// Constants that they read.
    pub constants: IndexMap<String, Tensor>,
    /// Inputs of the graph that are no tensors, or of unknown rank; only such nodes read them.
    pub inputs: Vec<RawValueInfo>,
}

impl Opaque {
    /// What messages say of each node; those that are kept because their declaration says so are told of together.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let is_recognised = |(_, why): &&(RawNode, ImportError)| matches!(why, ImportError::Node { reason, .. } if reason == RECOGNISED);
        let recognised = self.nodes.iter().filter(is_recognised);
        let operators: BTreeSet<&str> =
            recognised.clone().map(|(n, _)| n.op_type.as_str()).collect();
        let list: Vec<String> = operators.into_iter().map(|o| format!("`{o}`")).collect();
        let list = list.join(", ");
        let together = (!list.is_empty()).then(|| {
            format!("{} nodes of {list} are kept as they are: {RECOGNISED}", recognised.count())
        });
        let others = self.nodes.iter().filter(move |n| !is_recognised(n));
        others.map(|(_, why)| format!("{why}; the node is kept as it is")).chain(together)
    }

    /// Inputs whose values decide what some of the nodes compute.
    pub fn needed_inputs(&self) -> impl Iterator<Item = String> {
        let inputs = |why: &ImportError| match why {
            ImportError::Undecided { inputs, .. } => inputs.clone(),
            _ => vec![],
        };
        self.nodes.iter().flat_map(move |(_, why)| inputs(why))
    }

    /// The values that the nodes define.
    pub fn defined(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().flat_map(|(n, _)| &n.outputs).map(String::as_str)
    }

    /// All names that the nodes bear, define, read or use inside: nothing else may be called so.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = self.constants.keys().cloned().collect();
        for (node, _) in &self.nodes {
            names.extend(node.outputs.iter().chain([&node.name]).cloned());
            node.attrs.values().flat_map(RawAttr::graphs).for_each(|g| inner(g, &mut names));
        }
        names.extend(self.inputs.iter().map(|i| i.name.clone()));
        names
    }

    /// Puts the nodes into the graph of a program that they were cut out of; `inputs` and `outputs` are those of the model.
    pub(super) fn put_back(
        &self,
        graph: &mut RawGraph,
        inputs: &[RawValueInfo],
        outputs: &[RawValueInfo],
    ) -> Result<(), ExportError> {
        let defined: HashSet<&str> = self.defined().collect();
        let (made, left) = std::mem::take(&mut graph.inputs)
            .into_iter()
            .partition::<Vec<_>, _>(|i| defined.contains(i.name.as_str()));
        let own = symbols(&left);
        let at_run: HashSet<String> = &symbols(&made) - &own;
        graph.inputs = left;
        graph.inputs.extend(self.inputs.iter().cloned());
        if !self.inputs.is_empty() {
            graph.inputs.sort_by_key(|i| inputs.iter().position(|m| m.name == i.name));
        }
        let computed: HashMap<String, RawValueInfo> =
            std::mem::take(&mut graph.outputs).into_iter().map(|o| (o.name.clone(), o)).collect();
        let of_model = |o: &RawValueInfo| match computed.get(&o.name) {
            Some(info) => with_names(info.clone(), o, &at_run),
            None => o.clone(),
        };
        graph.outputs = outputs.iter().map(of_model).collect();
        for (name, tensor) in &self.constants {
            graph.initializers.insert(name.clone(), tensor.clone());
        }
        let kept = graph.nodes.len();
        graph.nodes.extend(self.nodes.iter().map(|(n, _)| n.clone()));
        read_past_copies(graph, kept);
        order::sort(graph)
            .and_then(|()| order::verify(graph))
            .map_err(|e| ExportError::Opaque { reason: e.to_string() })
    }
}

/// Nodes from the `kept`-th on read what they knew under another name where it lies: copies that nothing else reads go.
fn read_past_copies(graph: &mut RawGraph, kept: usize) {
    let (made, own) = graph.nodes.split_at_mut(kept);
    let read: BTreeSet<String> = made.iter().flat_map(reads).collect();
    let is_output = |name: &String| graph.outputs.iter().any(|o| o.name == *name);
    let within: BTreeSet<String> = own
        .iter()
        .flat_map(|n| n.attrs.values().flat_map(RawAttr::graphs).flat_map(free))
        .collect();
    let mut copies: HashMap<String, String> = HashMap::new();
    for n in made.iter().filter(|n| n.domain.is_empty() && n.op_type == "Identity") {
        if let ([from], [to]) = (n.inputs.as_slice(), n.outputs.as_slice())
            && !(is_output(to) || read.contains(to) || within.contains(to))
        {
            copies.insert(to.clone(), from.clone());
        }
    }
    for name in own.iter_mut().flat_map(|n| &mut n.inputs) {
        if let Some(from) = copies.get(name) {
            name.clone_from(from);
        }
    }
    graph.nodes.retain(|n| !n.outputs.first().is_some_and(|o| copies.contains_key(o)));
}

/// The nodes of these names that can be kept where operators of these domains run, besides those of the standard one: no two have
/// one name, and none has a body.
pub fn may_stay(
    graph: &RawGraph,
    names: &BTreeSet<String>,
    domains: &BTreeMap<String, i64>,
) -> BTreeSet<String> {
    let mut found: BTreeMap<&str, bool> = BTreeMap::new();
    for node in &graph.nodes {
        let runs = node.domain.is_empty() || domains.contains_key(&node.domain);
        let is_plain = node.attrs.values().all(|a| a.graphs().is_empty());
        let known = found.entry(origin(node));
        known.and_modify(|may| *may = false).or_insert(runs && is_plain);
    }
    names.iter().filter(|n| found.get(n.as_str()) == Some(&true)).cloned().collect()
}

/// The names of extents in types.
fn symbols(infos: &[RawValueInfo]) -> HashSet<String> {
    let dims = infos.iter().flat_map(|i| i.dims.iter().flatten());
    dims.filter_map(|d| if let RawDim::Symbol(s) = d { Some(s.clone()) } else { None }).collect()
}

/// A type with the names that the model has for extents which only a run computes.
fn with_names(
    mut info: RawValueInfo,
    declared: &RawValueInfo,
    at_run: &HashSet<String>,
) -> RawValueInfo {
    let dims = info.dims.iter_mut().flatten();
    for (d, name) in dims.zip(declared.dims.iter().flatten()) {
        if let (RawDim::Symbol(s), RawDim::Symbol(_)) = (&*d, name)
            && at_run.contains(s)
        {
            d.clone_from(name);
        }
    }
    info
}

/// The names that a graph defines, also in the graphs inside.
fn inner(graph: &RawGraph, names: &mut BTreeSet<String>) {
    names.extend(graph.inputs.iter().map(|i| i.name.clone()));
    names.extend(graph.initializers.keys().cloned());
    for node in &graph.nodes {
        names.extend(node.outputs.iter().cloned());
        node.attrs.values().flat_map(RawAttr::graphs).for_each(|g| inner(g, names));
    }
}

/// The values from outside that a node reads, those of its subgraphs too.
pub fn reads(node: &RawNode) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = node.inputs.iter().filter(|n| !n.is_empty()).cloned().collect();
    all.extend(node.attrs.values().flat_map(RawAttr::graphs).flat_map(free));
    all
}

/// The values from outside that a body reads.
pub(super) fn free(graph: &RawGraph) -> BTreeSet<String> {
    let mut own: BTreeSet<String> = graph.inputs.iter().map(|i| i.name.clone()).collect();
    own.extend(graph.initializers.keys().cloned());
    own.extend(graph.nodes.iter().flat_map(|n| n.outputs.iter().cloned()));
    let inside = graph.nodes.iter().flat_map(reads);
    let inside = inside.chain(graph.outputs.iter().map(|o| o.name.clone()));
    inside.filter(|n| !own.contains(n)).collect()
}
