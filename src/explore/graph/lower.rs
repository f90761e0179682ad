//! Adds a program to an e-graph and explores it.

use super::Graph;
use super::language::{ENode, Head};
use crate::Limits;
use crate::proof::log::{LogId, Reason};
use crate::saturation::{LawProfile, Stop, saturate};
use egg::Id;
use mlc_dsl::ir::canon::Sink;
use mlc_dsl::ir::{Attr, NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::Library;
use mlc_dsl::typing::instantiate;
use std::collections::HashMap;
use std::sync::Arc;

/// An explored program: the e-graph of all programs found equal, and the log that proves it.
pub struct Explored {
    pub(crate) graph: Graph,
    /// The program that was explored.
    pub source: Program,
    /// For each node of the source: its class per output, and the logged node.
    pub(crate) places: Vec<(Vec<Id>, LogId)>,
    /// What each law did, by index in the library.
    pub profiles: Vec<(u32, LawProfile)>,
    /// Why exploration ended.
    pub stop: Stop,
    /// Nodes after each round.
    pub sizes: Vec<usize>,
    pub(crate) bundles: Vec<Vec<Id>>,
}

impl Explored {
    /// The operators and laws that the e-graph was built with.
    pub fn library(&self) -> &Arc<Library> {
        &self.graph.library
    }

    /// Nodes and classes of the e-graph.
    pub fn size(&self) -> (usize, usize) {
        (self.graph.egg.total_number_of_nodes(), self.graph.egg.number_of_classes())
    }

    /// Number of equations asserted by laws.
    pub fn steps(&self) -> usize {
        self.graph.log.steps().len()
    }
}

/// Per-copy constants: for the node that holds the constant of the explored copy, the constants of all copies.
pub type PerCopyConstants = HashMap<NodeId, Vec<Tensor>>;

/// Explores a program with the laws of these indices.
pub fn explore(library: Arc<Library>, source: Program, laws: &[u32], limits: &Limits) -> Explored {
    explore_per_copy(library, source, &PerCopyConstants::new(), laws, limits)
}

/// The same with per-copy constants: what is found holds for every copy of the block.
pub fn explore_per_copy(
    library: Arc<Library>,
    source: Program,
    per_copy: &PerCopyConstants,
    laws: &[u32],
    limits: &Limits,
) -> Explored {
    explore_towards(library, source, per_copy, laws, limits, &[])
}

/// Explores a program until each of these pairs of its values is found equal, or a limit is hit.
pub fn explore_until_equal(
    library: Arc<Library>,
    source: Program,
    laws: &[u32],
    limits: &Limits,
    goal: &[(Value, Value)],
) -> Explored {
    explore_towards(library, source, &PerCopyConstants::new(), laws, limits, goal)
}

fn explore_towards(
    library: Arc<Library>,
    source: Program,
    per_copy: &PerCopyConstants,
    laws: &[u32],
    limits: &Limits,
    goal: &[(Value, Value)],
) -> Explored {
    let mut graph = Graph::new(library, source.consts.clone(), usize::MAX);
    let places = lower(&mut graph, &source, per_copy);
    graph.egg.rebuild();
    graph.seal(uses(&source, &places));
    graph.set_limit(limits.nodes.max(graph.node_count()));
    let class = |v: &Value| places[v.node.0 as usize].0[v.output as usize];
    let goal: Vec<(Id, Id)> = goal.iter().map(|(a, b)| (class(a), class(b))).collect();
    let saturation = saturate(&mut graph, laws, limits, &goal);
    Explored {
        graph,
        source,
        places,
        profiles: saturation.profiles,
        stop: saturation.stop,
        sizes: saturation.sizes,
        bundles: saturation.bundles,
    }
}

/// Who reads what: classes of values and of what is computed from them. An output reads its value, too.
fn uses(source: &Program, places: &[(Vec<Id>, LogId)]) -> Vec<(Id, Id)> {
    let class = |v: &Value| places[v.node.0 as usize].0[v.output as usize];
    let nodes = source.nodes.iter().zip(places);
    let reads = nodes.flat_map(|(n, (classes, _))| {
        let reader = classes.first().copied();
        n.args.iter().filter_map(move |a| reader.map(|r| (r, a)))
    });
    let outputs = source.outputs.iter().map(|(_, v)| (class(v), class(v)));
    reads.map(|(r, a)| (r, class(a))).chain(outputs).collect()
}

/// Adds a program's nodes. Definitions are joined with their bodies at once, so that every class has a
/// program of primitive operators whatever limit exploration hits.
fn lower(
    graph: &mut Graph,
    source: &Program,
    per_copy: &PerCopyConstants,
) -> Vec<(Vec<Id>, LogId)> {
    let mut places: Vec<(Vec<Id>, LogId)> = Vec::with_capacity(source.nodes.len());
    let mut expanded: HashMap<Id, ()> = HashMap::new();
    for (i, node) in source.nodes.iter().enumerate() {
        let args: Vec<Id> =
            node.args.iter().map(|v| places[v.node.0 as usize].0[v.output as usize]).collect();
        let classes = match &node.kind {
            NodeKind::Input(i) => {
                graph.add_input(*i, node.types[0].clone()).into_iter().collect::<Vec<_>>()
            }
            NodeKind::Const(c) => match per_copy.get(&NodeId(i as u32)) {
                Some(all) => {
                    let all: Vec<_> = all.iter().map(|t| graph.consts.intern(t.clone())).collect();
                    graph.add_per_copy_constant(&all).into_iter().collect()
                }
                None => graph.add_const(*c).into_iter().collect(),
            },
            NodeKind::Apply(call, attrs) => {
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                // A program is typed when it is built; its nodes type again.
                graph.raw(*call, &attrs, &args).unwrap_or_default()
            }
        };
        let rep = match &node.kind {
            NodeKind::Apply(call, attrs) => logged(graph, *call, attrs, &args),
            _ => classes.first().map(|&c| graph.facts(c).rep),
        };
        places.push((classes, rep.unwrap_or(LogId(0))));
        expand(graph, &mut expanded);
    }
    places
}

/// The logged term of an application.
fn logged(
    graph: &mut Graph,
    call: mlc_dsl::library::CallId,
    attrs: &[Attr],
    args: &[Id],
) -> Option<LogId> {
    let attrs = graph.find_attrs(attrs)?;
    let args = args.iter().map(|&a| graph.egg.find(a)).collect();
    Some(graph.log_node(&ENode { head: Head::Apply(call, attrs), args }))
}

/// Joins definitions that are not expanded yet with their bodies.
fn expand(graph: &mut Graph, expanded: &mut HashMap<Id, ()>) {
    while let Some(def) = graph.take_definition() {
        if expanded.insert(def.class, ()).is_some() {
            continue;
        }
        let (library, structural) = (graph.library.clone(), graph.structural);
        let attrs: Vec<Option<Attr>> = def.attrs.iter().cloned().map(Some).collect();
        let made = instantiate::expand(graph, structural, &library, def.call, &attrs, &def.args);
        let Ok(made) = made else { continue };
        for (out, m) in def.outputs.iter().zip(made) {
            if graph.facts(*out).types == graph.facts(m).types {
                graph.union(*out, m, Reason::Definition);
            }
        }
    }
}
