//! Bodies of nodes that hold graphs (`If`, `Loop`, `Scan`), as the file has them.

use super::drawn::Graph;
use super::nodes::short;
use super::steps::Term;
use mlc_onnx::{RawGraph, RawModel, RawNode};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Boxes of a body that is drawn.
const BOXES: usize = 300;

/// Bodies in bodies that are drawn.
const DEPTH: usize = 4;

/// A graph that a node holds.
#[derive(Debug, Serialize)]
pub(super) struct Body {
    /// The attribute.
    pub name: String,
    pub nodes: usize,
    /// Nothing where it is too large.
    pub drawn: Option<Term>,
    /// Bodies of its own nodes, by these.
    pub inner: Vec<(String, Vec<Body>)>,
}

/// By the name that a node is read under the graphs that it holds.
pub(super) fn bodies(raw: &RawModel) -> BTreeMap<String, Vec<Body>> {
    within(&raw.graph, DEPTH).into_iter().collect()
}

fn within(graph: &RawGraph, depth: usize) -> Vec<(String, Vec<Body>)> {
    let all = graph.nodes.iter().filter(|_| depth > 0).map(|n| (n, of_node(n, depth)));
    let held = all.filter(|(_, bodies)| !bodies.is_empty());
    held.map(|(n, bodies)| (mlc_onnx::origin(n).to_string(), bodies)).collect()
}

fn of_node(node: &RawNode, depth: usize) -> Vec<Body> {
    let graphs = node.attrs.iter().flat_map(|(name, a)| a.graphs().iter().map(move |g| (name, g)));
    let body = |(name, graph): (&String, &RawGraph)| Body {
        name: name.clone(),
        nodes: graph.nodes.len(),
        drawn: drawn(graph),
        inner: within(graph, depth - 1),
    };
    graphs.map(body).collect()
}

/// The graph with its inputs, outputs, and the values that it reads from around it.
fn drawn(graph: &RawGraph) -> Option<Term> {
    if graph.nodes.len() + graph.inputs.len() + graph.outputs.len() > BOXES {
        return None;
    }
    let mut term = Drawing::default();
    graph.inputs.iter().for_each(|v| term.push(&v.name, "input", &v.name));
    let made = graph.nodes.iter().flat_map(|n| &n.outputs).chain(graph.initializers.keys());
    let made: BTreeSet<&String> = made.collect();
    for value in graph.nodes.iter().flat_map(|n| &n.inputs).filter(|v| !v.is_empty()) {
        if !made.contains(value) && !term.maker.contains_key(value) {
            term.push(value, "from around", value);
        }
    }
    for node in &graph.nodes {
        let at = term.boxes.len();
        term.graph.edges.extend(node.inputs.iter().filter_map(|v| Some((*term.maker.get(v)?, at))));
        term.push(&node.op_type, &short(mlc_onnx::origin(node)), "");
        term.maker.extend(node.outputs.iter().map(|v| (v.clone(), at)));
    }
    for output in &graph.outputs {
        let at = term.boxes.len();
        term.graph.edges.extend(term.maker.get(&output.name).map(|from| (*from, at)));
        term.push("output", &output.name, "");
    }
    Some(Term { boxes: term.boxes, view: term.graph.drawn().folded })
}

/// A drawing under way.
#[derive(Default)]
struct Drawing {
    boxes: Vec<(String, String, bool)>,
    graph: Graph,
    /// The box of each value.
    maker: HashMap<String, usize>,
}

impl Drawing {
    /// Adds a box of two lines, which yields a value if that has a name.
    fn push(&mut self, first: &str, second: &str, value: &str) {
        let at = self.boxes.len();
        self.graph.push(&[first, second], at);
        self.boxes.push((first.to_string(), second.to_string(), true));
        if !value.is_empty() {
            self.maker.insert(value.to_string(), at);
        }
    }
}
