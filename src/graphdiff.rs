//! What differs between two ONNX graphs: a node is the same if it computes the same from the same, whatever the values in
//! between are called.

use crate::onnx::{RawAttr, RawGraph, RawModel, RawNode, RawValueInfo};
use mlc_dsl::ir::Tensor;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
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
    /// Nodes that both models have.
    pub same: usize,
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
    /// Nodes of one name that compute another value, and what about them differs.
    pub changed: Vec<(String, String)>,
}

/// Constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Constants {
    /// How many.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Difference {
    /// True if the graphs are the same.
    pub fn is_none(&self) -> bool {
        self.interface.is_empty() && self.operators.is_empty()
    }
}

/// Compares two models.
pub fn compare(a: &RawModel, b: &RawModel) -> Difference {
    let mut out = Difference { interface: interface(a, b), ..Difference::default() };
    let [first, second] = [a, b].map(|m| Keyed::of(&m.graph));
    // Values that both models compute: nodes with one key match, each as often as it is there.
    let mut open: HashMap<u64, Vec<usize>> = HashMap::new();
    for (i, key) in second.keys.iter().enumerate().rev() {
        open.entry(*key).or_default().push(i);
    }
    let mut left = Vec::new();
    for (i, key) in first.keys.iter().enumerate() {
        match open.get_mut(key).and_then(Vec::pop) {
            Some(_) => out.same += 1,
            None => left.push(i),
        }
    }
    let mut right: Vec<usize> = open.into_values().flatten().collect();
    right.sort_unstable();
    unmatched(&mut out, a, b, &left, &right);
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

/// Enters nodes that only one model has; those of one name and operator are one node that was changed.
fn unmatched(out: &mut Difference, a: &RawModel, b: &RawModel, left: &[usize], right: &[usize]) {
    let key = |n: &RawNode| (n.operator(), called(n));
    let mut named: HashMap<(String, String), usize> =
        right.iter().map(|&i| (key(&b.graph.nodes[i]), i)).collect();
    let mut taken = Vec::new();
    for &i in left {
        let node = &a.graph.nodes[i];
        let entry = out.operators.entry(node.operator()).or_default();
        match named.remove(&key(node)) {
            Some(j) => {
                let what = changed(node, &b.graph.nodes[j]);
                entry.changed.push((called(node), what));
                taken.push(j);
            }
            None => entry.removed.push(called(node)),
        }
    }
    for &j in right.iter().filter(|j| !taken.contains(j)) {
        let node = &b.graph.nodes[j];
        out.operators.entry(node.operator()).or_default().added.push(called(node));
    }
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
    let names: std::collections::BTreeSet<&String> = a.attrs.keys().chain(b.attrs.keys()).collect();
    let differs = |n: &&&String| a.attrs.get(**n) != b.attrs.get(**n);
    let attrs: Vec<&str> = names.iter().filter(differs).map(|n| n.as_str()).collect();
    if !attrs.is_empty() {
        parts.push(format!("attribute {}", attrs.join(", ")));
    }
    if a.inputs.len() != b.inputs.len() {
        parts.push(format!("{} -> {} inputs", a.inputs.len(), b.inputs.len()));
    } else if a.inputs != b.inputs {
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
    let domains: std::collections::BTreeSet<&String> = domains.collect();
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
    use crate::onnx::RawDim;
    let dim = |d: &RawDim| match d {
        RawDim::Known(n) => n.to_string(),
        RawDim::Symbol(s) => s.clone(),
        RawDim::Unknown => "?".into(),
    };
    let dims = v.dims.as_ref().map(|d| d.iter().map(dim).collect::<Vec<_>>().join(", "));
    let dtype = v.dtype.map_or("?".into(), |d| d.to_string());
    format!("{}: {dtype}[{}]", v.name, dims.unwrap_or_else(|| "..".into()))
}

/// A graph's nodes and constants by what they are.
struct Keyed {
    keys: Vec<u64>,
    constants: HashMap<u64, u64>,
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
        let mut keys = Vec::with_capacity(graph.nodes.len());
        for n in &graph.nodes {
            let inputs: Vec<u64> = n
                .inputs
                .iter()
                .map(|i| values.get(i.as_str()).copied().unwrap_or_else(|| hash(i)))
                .collect();
            let mut attrs: Vec<(&String, u64)> =
                n.attrs.iter().map(|(k, a)| (k, attr(a))).collect();
            attrs.sort();
            let key = hash(&(n.operator(), inputs, attrs, n.outputs.len()));
            for (i, out) in n.outputs.iter().enumerate() {
                values.insert(out, hash(&(key, i)));
            }
            keys.push(key);
        }
        Keyed { keys, constants }
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
    hash(&(Keyed::of(g).keys, outputs, g.nodes.iter().map(|n| &n.outputs).collect::<Vec<_>>()))
}
