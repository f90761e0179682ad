//! Subgraphs of control flow that is executed at run time: each as a model that takes its types from the run.

use crate::import::data_dependent::deferral::without_graph;
use crate::opaque::free;
use crate::raw::{RawAttr, RawGraph, RawModel, RawNode, RawValueInfo};
use mlc_dsl::ir::Tensor;

/// True of a node that can be run: a `Loop`, or an `If`.
pub(crate) fn is_control(node: &RawNode) -> bool {
    node.domain.is_empty() && !attributes(node).is_empty()
}

/// The attributes that hold the bodies.
fn attributes(node: &RawNode) -> &'static [&'static str] {
    match node.op_type.as_str() {
        "Loop" => &["body"],
        "If" => &["then_branch", "else_branch"],
        _ => &[],
    }
}

/// The bodies of a node of a model, with what is known around them.
pub(crate) fn of(
    node: &RawNode,
    model: &RawModel,
    known: &dyn Fn(&str) -> Option<Tensor>,
) -> Vec<RawModel> {
    let graphs = attributes(node).iter().filter_map(|a| match node.attrs.get(*a) {
        Some(RawAttr::Graph(graph)) => Some(&**graph),
        _ => None,
    });
    graphs.map(|g| RawModel { graph: open(g, known), ..without_graph(model) }).collect()
}

/// A body with what it reads from outside among its inputs and constants.
fn open(graph: &RawGraph, known: &dyn Fn(&str) -> Option<Tensor>) -> RawGraph {
    let mut graph = graph.clone();
    let outside = free(&graph);
    for input in &mut graph.inputs {
        *input = of_any_type(&input.name);
    }
    for name in outside {
        match known(&name) {
            Some(tensor) => drop(graph.initializers.insert(name, tensor)),
            None => graph.inputs.push(of_any_type(&name)),
        }
    }
    graph
}

/// A value of whatever type a run gives it.
pub(crate) fn of_any_type(name: &str) -> RawValueInfo {
    RawValueInfo { name: name.to_string(), ..RawValueInfo::default() }
}
