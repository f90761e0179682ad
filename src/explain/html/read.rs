//! The model as it was read: its nodes, and what became of each, those among them that reading leaves out.

use super::drawn::Graph;
use crate::explain::left_out::Makers;
use crate::explain::regions::{KernelLine, Region};
use crate::show;
use mlc_dsl::ir::{NodeId, NodeKind, Program};
use mlc_dsl::library::Library;
use mlc_dsl::shown;
use mlc_onnx::{RawModel, read_each};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A node of the model, or one of its inputs and outputs.
#[derive(Debug, Serialize)]
pub(super) struct Item {
    pub name: String,
    /// The operator of the file, or those that it is read as.
    pub op: String,
    /// The types of its results.
    pub ty: String,
    pub state: State,
    pub region: Option<usize>,
    /// The kernels of the result that compute its value, by their numbers.
    pub kernels: Vec<usize>,
    /// What it is read as.
    pub text: Vec<String>,
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

/// The program as read, its applications put together by the node of the model that they are of.
pub(super) fn model_side(
    program: &Program,
    library: &Library,
    raw: Option<&RawModel>,
    before: &[KernelLine],
    after: &[KernelLine],
    regions: &HashMap<&str, usize>,
) -> ModelSide {
    let ops: HashMap<&str, &str> = raw.map(operators).unwrap_or_default();
    let runs: BTreeSet<&String> = before.iter().flat_map(|l| &l.nodes).collect();
    let mut kernels: HashMap<&String, Vec<usize>> = HashMap::new();
    for (k, line) in after.iter().enumerate() {
        line.nodes.iter().for_each(|n| kernels.entry(n).or_default().push(k));
    }
    let mut side = ModelSide { items: vec![], graph: Graph::default(), known: HashMap::new() };
    let mut item_of: Vec<Option<usize>> = vec![None; program.nodes.len()];
    let mut parts: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    for (i, node) in program.nodes.iter().enumerate() {
        let (name, state) = match &node.kind {
            NodeKind::Const(_) => continue,
            NodeKind::Input(n) => (&program.inputs[*n as usize].0, State::Input),
            NodeKind::Apply(..) => {
                let state = match kernels.contains_key(&node.origin) {
                    true => State::Kept,
                    false if runs.contains(&node.origin) => State::Gone,
                    false => State::Known,
                };
                (&node.origin, state)
            }
        };
        let known = side.known.get(name).copied().filter(|&k| side.items[k].state == state);
        let at = known.unwrap_or_else(|| {
            side.known.insert(name.clone(), side.items.len());
            side.items.push(Item {
                name: name.clone(),
                op: ops.get(&**name).map(|o| (*o).to_string()).unwrap_or_default(),
                ty: String::new(),
                state,
                region: regions.get(&**name).copied(),
                kernels: kernels.get(name).cloned().unwrap_or_default(),
                text: vec![],
            });
            side.items.len() - 1
        });
        item_of[i] = Some(at);
        parts.entry(at).or_default().push(NodeId(i as u32));
        for from in node.args.iter().filter_map(|a| item_of[a.node.0 as usize]) {
            if from != at {
                side.graph.edges.insert((from, at));
            }
        }
    }
    for (at, nodes) in parts {
        let item = &mut side.items[at];
        let last = program.node(*nodes.last().expect("it was made with one"));
        item.ty = last.types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        item.text = nodes.iter().map(|n| show::application(program, library, *n)).collect();
        item.text.retain(|t| !t.is_empty());
        if item.op.is_empty() {
            item.op = match item.state {
                State::Input => "input".into(),
                _ => shortened(nodes.iter().map(|n| library.node_name(program, *n))),
            };
        }
    }
    for (name, value) in &program.outputs {
        let at = side.items.len();
        side.graph.edges.extend(item_of[value.node.0 as usize].map(|from| (from, at)));
        let (op, ty) = ("output".to_string(), program.ty(*value).to_string());
        let (region, kernels, text) = (None, vec![], vec![]);
        let name = name.clone();
        side.items.push(Item { name, op, ty, state: State::Output, region, kernels, text });
    }
    for item in &side.items {
        side.graph.push(&[&item.op, &short(&item.name)], (&item.op, &item.ty, item.state as u8));
    }
    side
}

/// The operator of each node of a file, by the name that the node is read under.
fn operators(raw: &RawModel) -> HashMap<&str, &str> {
    let nodes = raw.graph.nodes.iter();
    nodes.map(|n| (mlc_onnx::origin(n), &*n.op_type)).collect()
}

/// Names of operators that are put together.
const OPERATORS: usize = 3;

/// The first of several operators, each once.
pub(super) fn shortened(operators: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for o in operators {
        if !all.contains(&o) {
            all.push(o);
        }
    }
    let more = all.len().saturating_sub(OPERATORS);
    all.truncate(OPERATORS);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    all.join(" + ")
}

/// Characters of a name in a box.
const NAME: usize = 28;

/// The end of a name, which tells nodes apart.
pub(super) fn short(name: &str) -> String {
    let count = name.chars().count();
    match count > NAME {
        true => format!("…{}", name.chars().skip(count + 1 - NAME).collect::<String>()),
        false => name.to_string(),
    }
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
        let mut of = None;
        let mut why: Vec<String> = Vec::new();
        for (result, read) in results {
            let is_input = |&i: &usize| side.items[i].state == State::Input;
            if side.known.get(&result).is_some_and(is_input) {
                why.push(format!("`{}` is kept as it is, and an input of what is shown here: the rest is optimised around it", shown(&result)));
                continue;
            }
            let became = makers.became(node, &read, &|n| side.known.contains_key(n));
            of = of.or(became.node.and_then(|n| side.known.get(&n).copied()));
            why.push(format!("`{}` is {} ({})", shown(&result), became.is, became.step));
        }
        let name = mlc_onnx::origin(node).to_string();
        LeftOut { name, op: node.op_type.clone(), why: why.join("; "), node: of }
    });
    told.collect()
}
