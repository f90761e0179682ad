//! The model as it was read: its nodes, and what became of each, those among them that reading leaves out.

use super::drawn::Graph;
use super::nodes::{self, Kind, Nodes, short};
use crate::explain::left_out::Makers;
use crate::explain::regions::{KernelLine, Region};
use mlc_dsl::ir::Program;
use mlc_dsl::library::Library;
use mlc_dsl::shown;
use mlc_onnx::{RawModel, read_each};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// A node of the model, or one of its inputs and outputs.
#[derive(Debug, Serialize)]
pub(super) struct Item {
    #[serde(flatten)]
    pub is: nodes::Item,
    pub state: State,
    pub region: Option<usize>,
    /// The kernels of the result that compute its value, by their numbers.
    pub kernels: Vec<usize>,
}

/// What became of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Input,
    Output,
    /// A kernel of the result computes its value.
    Kept,
    /// The result does without its value.
    Gone,
    /// It is computed from constants, before the first run.
    Known,
}

/// A node that reading leaves out.
#[derive(Debug, Serialize)]
pub(super) struct LeftOut {
    pub name: String,
    pub op: String,
    /// What its results are read as.
    pub why: String,
    /// The node that computes its value, if there is one.
    pub node: Option<usize>,
    /// Its results that are inputs of what is drawn, since it is kept as it is.
    pub inputs: Vec<usize>,
}

/// The model's side of the page.
pub(super) struct ModelSide {
    pub items: Vec<Item>,
    pub graph: Graph,
    /// By name.
    pub known: HashMap<String, usize>,
}

/// For every node of the model its region.
pub(super) fn by_name(regions: &[Region]) -> HashMap<&str, usize> {
    let all = regions.iter().enumerate();
    all.flat_map(|(i, r)| r.nodes.iter().chain(r.alike.iter().flatten()).map(move |n| (&**n, i)))
        .collect()
}

/// The program as read, and what became of its nodes.
pub(super) fn model_side(
    program: &Program,
    library: &Library,
    raw: Option<&RawModel>,
    before: &[KernelLine],
    after: &[KernelLine],
    regions: &HashMap<&str, usize>,
) -> ModelSide {
    let runs: BTreeSet<&String> = before.iter().flat_map(|l| &l.nodes).collect();
    let mut kernels: HashMap<&String, Vec<usize>> = HashMap::new();
    for (k, line) in after.iter().enumerate() {
        line.nodes.iter().for_each(|n| kernels.entry(n).or_default().push(k));
    }
    let Nodes { items, mut graph, known, .. } = nodes::nodes(program, library, raw);
    let told = |is: nodes::Item| {
        let state = match is.kind {
            Kind::Input => State::Input,
            Kind::Output => State::Output,
            Kind::Node if kernels.contains_key(&is.name) => State::Kept,
            Kind::Node if runs.contains(&is.name) => State::Gone,
            Kind::Node => State::Known,
        };
        let is_read = is.kind != Kind::Output;
        let region = regions.get(&*is.name).copied().filter(|_| is_read);
        let kernels = kernels.get(&is.name).filter(|_| is_read).cloned().unwrap_or_default();
        Item { is, state, region, kernels }
    };
    let items: Vec<Item> = items.into_iter().map(told).collect();
    for Item { is, state, .. } in &items {
        graph.push(&[&is.op, &short(&is.name)], (&is.op, &is.ty, *state as u8));
    }
    ModelSide { items, graph, known }
}

/// The nodes of a file that the program as read does not have. None are told where what reading makes of them cannot be said.
pub(super) fn left_out(raw: &RawModel, library: &Library, side: &ModelSide) -> Vec<LeftOut> {
    let nodes = raw.graph.nodes.iter();
    let missing: Vec<_> = nodes.filter(|n| !side.known.contains_key(mlc_onnx::origin(n))).collect();
    if missing.is_empty() {
        return vec![];
    }
    let Ok(read) = read_each(raw, library, &missing) else { return vec![] };
    let makers = Makers::new(raw);
    let told = missing.iter().zip(read).map(|(node, results)| {
        let (mut of, mut inputs) = (None, vec![]);
        let mut why: Vec<String> = Vec::new();
        for (result, read) in results {
            let is_input = |i: &usize| side.items[*i].state == State::Input;
            if let Some(input) = side.known.get(&result).copied().filter(is_input) {
                inputs.push(input);
                why.push(format!("`{}` is kept as it is, and an input of what is shown here: the rest is optimised around it", shown(&result)));
                continue;
            }
            let became = makers.became(node, &read, &|n| side.known.contains_key(n));
            of = of.or(became.node.and_then(|n| side.known.get(&n).copied()));
            why.push(format!("`{}` is {} ({})", shown(&result), became.is, became.step));
        }
        let name = mlc_onnx::origin(node).to_string();
        LeftOut { name, op: node.op_type.clone(), why: why.join("; "), node: of, inputs }
    });
    told.collect()
}
