//! A program as the nodes of its model: applications put together by the node that they are of, with inputs and outputs.

use super::drawn::Graph;
use crate::show;
use mlc_dsl::ir::{NodeId, NodeKind, Program};
use mlc_dsl::library::Library;
use mlc_onnx::RawModel;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A node of the model, or one of its inputs and outputs.
#[derive(Debug, Serialize)]
pub(in crate::explain) struct Item {
    pub name: String,
    /// The operator of the file, or those that it is read as.
    pub op: String,
    /// The types of its results.
    pub ty: String,
    /// What it is read as.
    pub text: Vec<String>,
    #[serde(skip)]
    pub kind: Kind,
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::explain) enum Kind {
    Input,
    Node,
    Output,
}

/// The items of a program, in an order in which edges lead on.
pub(in crate::explain) struct Nodes {
    pub items: Vec<Item>,
    /// By item the nodes of the program; none of an output.
    pub parts: BTreeMap<usize, Vec<NodeId>>,
    /// By node of the program its item; none of a constant.
    pub item_of: Vec<Option<usize>>,
    /// By name; where a node is called like an input, the one that comes last.
    pub known: HashMap<String, usize>,
    /// What reads what; boxes are added by who knows what they look like.
    pub graph: Graph,
}

/// The nodes of a program, with the operators of its file if it has one.
pub(in crate::explain) fn nodes(
    program: &Program,
    library: &Library,
    raw: Option<&RawModel>,
) -> Nodes {
    let mut out = Nodes {
        items: vec![],
        parts: BTreeMap::new(),
        item_of: vec![None; program.nodes.len()],
        known: HashMap::new(),
        graph: Graph::default(),
    };
    for (i, node) in program.nodes.iter().enumerate() {
        let (name, kind) = match &node.kind {
            NodeKind::Const(_) => continue,
            NodeKind::Input(n) => (&program.inputs[*n as usize].0, Kind::Input),
            NodeKind::Apply(..) => (&node.origin, Kind::Node),
        };
        let known = out.known.get(name).copied().filter(|&k| out.items[k].kind == kind);
        let at = known.unwrap_or_else(|| {
            out.known.insert(name.clone(), out.items.len());
            out.push(name, kind)
        });
        out.item_of[i] = Some(at);
        out.parts.entry(at).or_default().push(NodeId(i as u32));
    }
    out.lead(program);
    out.describe(program, library, raw);
    for (name, value) in &program.outputs {
        let from = out.item_of[value.node.0 as usize];
        let at = out.push(name, Kind::Output);
        out.graph.edges.extend(from.map(|from| (from, at)));
        out.items[at].op = "output".into();
        out.items[at].ty = program.ty(*value).to_string();
    }
    out
}

impl Nodes {
    fn push(&mut self, name: &str, kind: Kind) -> usize {
        let (op, ty, text) = (String::new(), String::new(), vec![]);
        self.items.push(Item { name: name.to_string(), op, ty, text, kind });
        self.items.len() - 1
    }

    /// The edges: who reads whom. What of an item is computed from constants alone may have been read for several others that have
    /// the same constants: it is no part of what the item leads to.
    fn lead(&mut self, program: &Program) {
        let mut varies = vec![false; program.nodes.len()];
        for (i, node) in program.nodes.iter().enumerate() {
            let is_input = matches!(node.kind, NodeKind::Input(_));
            varies[i] = is_input || node.args.iter().any(|a| varies[a.node.0 as usize]);
        }
        let of_item = |parts: &Vec<NodeId>| parts.iter().any(|n| varies[n.0 as usize]);
        let moves: BTreeSet<usize> =
            self.parts.iter().filter(|(_, p)| of_item(p)).map(|(at, _)| *at).collect();
        for (node, item) in program.nodes.iter().zip(&self.item_of) {
            let Some(at) = *item else { continue };
            for read in node.args.iter().map(|a| a.node.0 as usize) {
                let Some(from) = self.item_of[read].filter(|from| *from != at) else { continue };
                if varies[read] || !moves.contains(&from) {
                    self.graph.edges.insert((from, at));
                }
            }
        }
    }

    /// Says of every item what it is.
    fn describe(&mut self, program: &Program, library: &Library, raw: Option<&RawModel>) {
        let ops: HashMap<&str, &str> = raw.map(operators).unwrap_or_default();
        for (&at, nodes) in &self.parts {
            let item = &mut self.items[at];
            let last = program.node(*nodes.last().expect("it was made with one"));
            item.ty = last.types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            item.text = nodes.iter().map(|n| show::application(program, library, *n)).collect();
            item.text.retain(|t| !t.is_empty());
            item.op = match (ops.get(&*item.name), item.kind) {
                (Some(op), _) => (*op).to_string(),
                (None, Kind::Input) => "input".into(),
                (None, _) => shortened(nodes.iter().map(|n| library.node_name(program, *n))),
            };
        }
    }
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
