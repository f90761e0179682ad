//! Sorts nodes topologically and checks that every value is defined before its use.
//!
//! Names follow ONNX's scoping rules: a subgraph sees the definitions before its node, and must not
//! shadow a visible name. The order of a sorted graph is never changed.

use crate::raw::error::OnnxError;
use crate::raw::{RawAttr, RawGraph, RawNode};
use mlc_dsl::shown;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// Deepest nesting of subgraphs.
pub(crate) const DEPTH: usize = 32;

/// Checks that each name has one definition, and that it stands before each use.
pub(crate) fn verify(graph: &RawGraph) -> Result<(), OnnxError> {
    scope(graph, &mut HashSet::new(), "the graph", 0)
}

fn scope<'a>(
    graph: &'a RawGraph,
    known: &mut HashSet<&'a str>,
    place: &str,
    depth: usize,
) -> Result<(), OnnxError> {
    if depth > DEPTH {
        return Err(OnnxError::TooDeep { place: place.to_string(), limit: DEPTH });
    }
    let mut own = Vec::new();
    let mut define = |known: &mut HashSet<&'a str>, name: &'a str, place: &dyn Fn() -> String| {
        if !known.insert(name) {
            return Err(OnnxError::Duplicate { name: name.to_string(), place: place() });
        }
        own.push(name);
        Ok(())
    };
    for v in &graph.inputs {
        define(known, &v.name, &|| format!("an input of {place}"))?;
    }
    for name in graph.initializers.keys() {
        define(known, name, &|| format!("an initializer of {place}"))?;
    }
    for node in &graph.nodes {
        for name in node.inputs.iter().filter(|n| !n.is_empty()) {
            if !known.contains(name.as_str()) {
                return Err(OnnxError::Undefined { name: name.clone(), place: node.label() });
            }
        }
        for (key, attr) in &node.attrs {
            for inner in attr.graphs() {
                let place = || format!("graph `{}` of {}", shown(key), node.label());
                scope(inner, known, &place(), depth + 1)?;
            }
        }
        for name in node.outputs.iter().filter(|n| !n.is_empty()) {
            define(known, name, &|| node.label())?;
        }
    }
    for v in &graph.outputs {
        if !known.contains(v.name.as_str()) {
            let place = format!("an output of {place}");
            return Err(OnnxError::Undefined { name: v.name.clone(), place });
        }
    }
    for name in own {
        known.remove(name);
    }
    Ok(())
}

/// Puts nodes into an order in which definitions stand before uses, subgraphs' nodes too.
pub(crate) fn sort(graph: &mut RawGraph) -> Result<(), OnnxError> {
    for node in &mut graph.nodes {
        for attr in node.attrs.values_mut() {
            for inner in attr.graphs_mut() {
                sort(inner)?;
            }
        }
    }
    let order = order(graph)?;
    if order.iter().copied().ne(0..graph.nodes.len()) {
        let mut nodes: Vec<Option<RawNode>> =
            std::mem::take(&mut graph.nodes).into_iter().map(Some).collect();
        graph.nodes = order.into_iter().filter_map(|i| nodes[i].take()).collect();
    }
    Ok(())
}

fn order(graph: &RawGraph) -> Result<Vec<usize>, OnnxError> {
    let nodes = &graph.nodes[..];
    let given: HashSet<&str> = graph.inputs.iter().map(|v| v.name.as_str()).collect();
    let mut maker: HashMap<&str, usize> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        for out in node.outputs.iter().filter(|o| !o.is_empty()) {
            // A second definition makes nobody wait: it is found and named later.
            if given.contains(out.as_str()) || graph.initializers.contains_key(out) {
                continue;
            }
            maker.entry(out).or_insert(i);
        }
    }
    let mut waits = vec![0usize; nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut sources: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let mut names: Vec<&str> = node.inputs.iter().map(String::as_str).collect();
        node.attrs.values().flat_map(RawAttr::graphs).for_each(|g| free_names(g, &mut names));
        // Names that no node of this graph makes come from elsewhere, or are found missing later.
        let mut from: Vec<usize> = names.iter().filter_map(|n| maker.get(n).copied()).collect();
        from.sort_unstable();
        from.dedup();
        waits[i] = from.len();
        from.iter().for_each(|&j| users[j].push(i));
        sources[i] = from;
    }
    let ready = (0..nodes.len()).filter(|&i| waits[i] == 0);
    let mut ready: BinaryHeap<Reverse<usize>> = ready.map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(i)) = ready.pop() {
        order.push(i);
        for &j in &users[i] {
            waits[j] -= 1;
            if waits[j] == 0 {
                ready.push(Reverse(j));
            }
        }
    }
    if order.len() == nodes.len() { Ok(order) } else { Err(cycle(nodes, &waits, &sources)) }
}

/// The cycle that a walk from any waiting node back to its waiting sources must meet.
fn cycle(nodes: &[RawNode], waits: &[usize], sources: &[Vec<usize>]) -> OnnxError {
    let mut path: Vec<usize> = Vec::new();
    let mut seen: HashMap<usize, usize> = HashMap::new();
    let mut at = waits.iter().position(|&w| w > 0);
    while let Some(i) = at {
        if let Some(&start) = seen.get(&i) {
            path.drain(..start);
            break;
        }
        seen.insert(i, path.len());
        path.push(i);
        at = sources[i].iter().copied().find(|&j| waits[j] > 0);
    }
    path.reverse();
    // The telling begins with the node that stands first in the file.
    let first = (0..path.len()).min_by_key(|&k| path[k]).unwrap_or(0);
    path.rotate_left(first);
    let mut names: Vec<String> = path.iter().take(8).map(|&i| nodes[i].label()).collect();
    if path.len() > 8 {
        names.push(format!("{} more", path.len() - 8));
    }
    OnnxError::Cycle { nodes: names }
}

/// Appends the names that a subgraph takes from the graphs around it.
fn free_names<'a>(graph: &'a RawGraph, names: &mut Vec<&'a str>) {
    let mut own: HashSet<&str> = graph.inputs.iter().map(|v| v.name.as_str()).collect();
    own.extend(graph.initializers.keys().map(String::as_str));
    own.extend(graph.nodes.iter().flat_map(|n| &n.outputs).map(String::as_str));
    let mut used: Vec<&str> = graph.outputs.iter().map(|v| v.name.as_str()).collect();
    for node in &graph.nodes {
        used.extend(node.inputs.iter().map(String::as_str));
        node.attrs.values().flat_map(RawAttr::graphs).for_each(|g| free_names(g, &mut used));
    }
    names.extend(used.into_iter().filter(|n| !own.contains(n)));
}
