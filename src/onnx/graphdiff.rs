//! Compares two ONNX graphs.
//!
//! A node is the same if it computes the same value from the same inputs, whatever the names of intermediate values. Of the others, a node is
//! kept if the other graph has a node with the same operator, attributes and constants but other inputs. The rest is paired by
//! operator and name, by operator and largest constant, and by operator in graph order: these nodes were changed.

use crate::export::defaults::without_defaults;
use crate::raw::{RawAttr, RawGraph, RawModel, RawNode, RawValueInfo};
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What differs.
#[derive(Debug, Default, Serialize)]
pub struct Difference {
    /// Operator sets, inputs and outputs that differ: what it is, the first model's, the second's.
    pub interface: Vec<(String, String, String)>,
    /// Operators of which the models have different nodes.
    pub operators: BTreeMap<String, Operators>,
    /// Constants of the first and of the second model alone: how many, and their bytes.
    pub constants: [Constants; 2],
    /// Nodes that compute the same value in both models.
    pub same: usize,
    /// Nodes of the same operator, attributes and constants, of other values.
    pub kept: usize,
}

/// The nodes of one operator.
#[derive(Debug, Default, Serialize)]
pub struct Operators {
    /// Nodes of the first model.
    pub before: usize,
    /// Nodes of the second model.
    pub after: usize,
    /// Nodes that the first model alone has, by name or first output.
    pub removed: Vec<String>,
    /// Nodes that the second model alone has.
    pub added: Vec<String>,
    /// Nodes that stand for each other, and what about them differs.
    pub changed: Vec<(String, String)>,
}

/// Constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Constants {
    /// How many.
    pub count: usize,
    /// Bytes of all of them together.
    pub bytes: u64,
}

impl Difference {
    /// True if the graphs are the same.
    pub fn is_none(&self) -> bool {
        self.interface.is_empty() && self.operators.is_empty() && self.kept == 0
    }
}

/// Compares two models. An attribute with its default value is as one that is absent.
pub fn compare(a: &RawModel, b: &RawModel, library: &Library) -> Difference {
    let [a, b] = [a, b].map(|m| without_defaults(m, library));
    let (a, b) = (&a, &b);
    let mut out = Difference { interface: interface(a, b), ..Difference::default() };
    let [first, second] = [a, b].map(|m| Keyed::of(&m.graph));
    let mut left: Vec<usize> = (0..first.nodes.len()).collect();
    let mut right: Vec<usize> = (0..second.nodes.len()).collect();
    out.same =
        pairs(&mut left, &mut right, |i| first.nodes[i].value, |j| second.nodes[j].value).len();
    out.kept =
        pairs(&mut left, &mut right, |i| first.nodes[i].alone, |j| second.nodes[j].alone).len();
    let (of_a, of_b) = (&a.graph.nodes, &b.graph.nodes);
    let name = |n: &RawNode| hash(&(n.operator(), called(n)));
    let mut changes = pairs(&mut left, &mut right, |i| name(&of_a[i]), |j| name(&of_b[j]));
    // A node without constants is not known by them.
    let known = |k: &Keyed, i: usize, side: &str| k.nodes[i].constant.unwrap_or(hash(&(side, i)));
    changes.extend(pairs(
        &mut left,
        &mut right,
        |i| known(&first, i, "a"),
        |j| known(&second, j, "b"),
    ));
    let operator = |n: &RawNode| hash(&n.operator());
    changes.extend(pairs(&mut left, &mut right, |i| operator(&of_a[i]), |j| operator(&of_b[j])));
    changes.sort_unstable();
    for (i, j) in changes {
        let (a, b) = (&of_a[i], &of_b[j]);
        let entry = out.operators.entry(a.operator()).or_default();
        entry.changed.push((called(a), changed(a, b)));
    }
    for &i in &left {
        out.operators.entry(of_a[i].operator()).or_default().removed.push(called(&of_a[i]));
    }
    for &j in &right {
        out.operators.entry(of_b[j].operator()).or_default().added.push(called(&of_b[j]));
    }
    if out.operators.is_empty() && out.kept == 0 && first.outputs != second.outputs {
        let (before, after) = ("computed by one node".into(), "computed by another".into());
        out.interface.push(("an output".into(), before, after));
    }
    for (graph, at) in [(&a.graph, true), (&b.graph, false)] {
        for n in &graph.nodes {
            if let Some(o) = out.operators.get_mut(&n.operator()) {
                *if at { &mut o.before } else { &mut o.after } += 1;
            }
        }
    }
    out.constants = [alone(&first, &second), alone(&second, &first)];
    out
}

/// Takes out of both lists what has one key, in the order of the lists.
fn pairs(
    left: &mut Vec<usize>,
    right: &mut Vec<usize>,
    of_left: impl Fn(usize) -> u64,
    of_right: impl Fn(usize) -> u64,
) -> Vec<(usize, usize)> {
    let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
    for &j in right.iter().rev() {
        open.entry(of_right(j)).or_default().push(j);
    }
    let mut found = Vec::new();
    left.retain(|&i| match open.get_mut(&of_left(i)).and_then(Vec::pop) {
        Some(j) => {
            found.push((i, j));
            false
        }
        None => true,
    });
    let taken: HashSet<usize> = found.iter().map(|p| p.1).collect();
    right.retain(|j| !taken.contains(j));
    found
}

/// How people call a node.
fn called(n: &RawNode) -> String {
    match n.name.as_str() {
        "" => n.outputs.iter().find(|o| !o.is_empty()).cloned().unwrap_or_default(),
        name => name.to_string(),
    }
}

/// What differs between two nodes of one name and operator.
fn changed(a: &RawNode, b: &RawNode) -> String {
    let mut parts = Vec::new();
    let names: BTreeSet<&String> = a.attrs.keys().chain(b.attrs.keys()).collect();
    let differs = |n: &&&String| a.attrs.get(**n) != b.attrs.get(**n);
    let attrs: Vec<&str> = names.iter().filter(differs).map(|n| n.as_str()).collect();
    if !attrs.is_empty() {
        parts.push(format!("attribute {}", attrs.join(", ")));
    }
    if a.inputs.len() != b.inputs.len() {
        parts.push(format!("{} -> {} inputs", a.inputs.len(), b.inputs.len()));
    } else if a.inputs != b.inputs && attrs.is_empty() {
        let pairs = a.inputs.iter().zip(&b.inputs).filter(|(a, b)| a != b);
        let pairs: Vec<String> = pairs.map(|(a, b)| format!("{a} -> {b}")).collect();
        parts.push(format!("reads {}", pairs.join(", ")));
    }
    match parts.as_slice() {
        [] => "what it reads has another value".into(),
        parts => parts.join("; "),
    }
}

fn interface(a: &RawModel, b: &RawModel) -> Vec<(String, String, String)> {
    let mut out = Vec::new();
    let mut pair = |what: String, a: String, b: String| {
        if a != b {
            out.push((what, a, b));
        }
    };
    let domains = a.opset_imports.keys().chain(b.opset_imports.keys());
    let domains: BTreeSet<&String> = domains.collect();
    for d in domains {
        let of = |m: &RawModel| m.opset_imports.get(d).map_or("-".into(), i64::to_string);
        let name =
            if d.is_empty() { "operator set".into() } else { format!("operator set of {d}") };
        pair(name, of(a), of(b));
    }
    for (what, a, b) in [
        ("input", &a.graph.inputs, &b.graph.inputs),
        ("output", &a.graph.outputs, &b.graph.outputs),
    ] {
        for i in 0..a.len().max(b.len()) {
            let of = |list: &[RawValueInfo]| list.get(i).map_or("-".into(), value);
            pair(format!("{what} {i}"), of(a), of(b));
        }
    }
    out
}

/// A value and its type, as text.
pub fn value(v: &RawValueInfo) -> String {
    use crate::raw::RawDim;
    let dim = |d: &RawDim| match d {
        RawDim::Known(n) => n.to_string(),
        RawDim::Symbol(s) => s.clone(),
        RawDim::Unknown => "?".into(),
    };
    let dims = v.dims.as_ref().map(|d| d.iter().map(dim).collect::<Vec<_>>().join(", "));
    let dtype = v.dtype.map_or("?".into(), |d| d.to_string());
    format!("{}: {dtype}[{}]", v.name, dims.unwrap_or_else(|| "..".into()))
}

/// A node by what it is.
struct Key {
    /// With everything that it is computed from.
    value: u64,
    /// With its constants, whatever else it reads.
    alone: u64,
    /// Its operator and its largest constant, if it has one.
    constant: Option<u64>,
}

/// A graph's nodes and constants by what they are.
struct Keyed {
    nodes: Vec<Key>,
    constants: HashMap<u64, u64>,
    outputs: Vec<Option<u64>>,
}

impl Keyed {
    fn of(graph: &RawGraph) -> Keyed {
        let mut values: HashMap<&str, u64> = HashMap::new();
        let mut constants = HashMap::new();
        for (i, v) in graph.inputs.iter().enumerate() {
            values.insert(&v.name, hash(&("input", i)));
        }
        for (name, t) in &graph.initializers {
            let key = tensor(t);
            constants.insert(key, t.bytes().len() as u64);
            values.insert(name, key);
        }
        let mut nodes = Vec::with_capacity(graph.nodes.len());
        for n in &graph.nodes {
            let value = |i: &String| values.get(i.as_str()).copied().unwrap_or_else(|| hash(i));
            let inputs: Vec<u64> = n.inputs.iter().map(value).collect();
            let fixed: Vec<Option<u64>> =
                inputs.iter().map(|k| constants.contains_key(k).then_some(*k)).collect();
            let mut attrs: Vec<(&String, u64)> =
                n.attrs.iter().map(|(k, a)| (k, attr(a))).collect();
            attrs.sort();
            let (operator, outputs) = (n.operator(), n.outputs.len());
            let largest = fixed.iter().flatten().max_by_key(|k| constants[*k]);
            let key = Key {
                value: hash(&(&operator, &inputs, &attrs, outputs)),
                alone: hash(&(&operator, &fixed, &attrs, outputs)),
                constant: largest.map(|k| hash(&(&operator, k))),
            };
            for (i, out) in n.outputs.iter().enumerate() {
                values.insert(out, hash(&(key.value, i)));
            }
            nodes.push(key);
        }
        let outputs = graph.outputs.iter().map(|o| values.get(o.name.as_str()).copied()).collect();
        Keyed { nodes, constants, outputs }
    }
}

/// Constants that the other graph does not have.
fn alone(of: &Keyed, other: &Keyed) -> Constants {
    let own = of.constants.iter().filter(|(k, _)| !other.constants.contains_key(k));
    own.fold(Constants::default(), |c, (_, b)| Constants { count: c.count + 1, bytes: c.bytes + b })
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn tensor(t: &Tensor) -> u64 {
    hash(&(t.dtype().to_string(), t.shape(), &t.bytes()[..]))
}

fn attr(a: &RawAttr) -> u64 {
    match a {
        RawAttr::Tensor(t) => tensor(t),
        RawAttr::Tensors(ts) => hash(&ts.iter().map(tensor).collect::<Vec<_>>()),
        RawAttr::Graph(g) => subgraph(g),
        RawAttr::Graphs(gs) => hash(&gs.iter().map(subgraph).collect::<Vec<_>>()),
        RawAttr::Float(v) => hash(&v.to_bits()),
        RawAttr::Floats(v) => hash(&v.iter().map(|v| v.to_bits()).collect::<Vec<_>>()),
        other => hash(&format!("{other:?}")),
    }
}

/// A nested graph by its nodes, in their order, and its results.
fn subgraph(g: &RawGraph) -> u64 {
    let outputs: Vec<String> = g.outputs.iter().map(value).collect();
    let nodes: Vec<u64> = Keyed::of(g).nodes.iter().map(|k| k.value).collect();
    hash(&(nodes, outputs, g.nodes.iter().map(|n| &n.outputs).collect::<Vec<_>>()))
}
