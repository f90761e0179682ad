//! Finds the classes that are the operand of a broadcast, modulo unit axes.

use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use crate::matcher::Binding;
use egg::Id;
use mlc_dsl::ir::{Attr, Extent};
use mlc_dsl::library::CallId;

/// Everything of shape `own` whose broadcast to `shape`, with its axis `i` at `map[i]`, is `class`.
pub fn operands(
    graph: &Graph,
    class: Id,
    own: &[Extent],
    map: &[i64],
    shape: &[Extent],
) -> Vec<Binding> {
    let mut out = Vec::new();
    let mut push = |b: Binding| {
        if !out.contains(&b) {
            out.push(b);
        }
    };
    let missing = (0..shape.len()).filter(|i| !map.contains(&(*i as i64)));
    if missing.clone().all(|i| shape[i].is(1)) {
        // Only unit axes are missing: the class under another shape.
        push(reshaped(graph, class, own));
    }
    let kept: Vec<i64> = map.iter().zip(own).filter(|(_, d)| !d.is(1)).map(|(&m, _)| m).collect();
    for (base, places) in broadcasts(graph, class) {
        if places == kept {
            push(reshaped(graph, base, own));
        } else if places.iter().all(|p| kept.contains(p)) {
            let inner = places.iter().filter_map(|p| map.iter().position(|m| m == p));
            let inner = inner.map(|i| i as i64).collect();
            push(broadcast(graph, base, inner, own));
        }
    }
    out
}

fn applications(graph: &Graph, class: Id, call: Option<CallId>) -> impl Iterator<Item = &ENode> {
    graph.egg[class]
        .nodes
        .iter()
        .filter(move |n| matches!(n.head, Head::Apply(c, _) if Some(c) == call))
}

/// The broadcasts in a class: operand and places of its axes.
fn broadcasts(graph: &Graph, class: Id) -> Vec<(Id, Vec<i64>)> {
    let call = graph.structural.broadcast;
    applications(graph, class, call)
        .filter_map(|n| {
            let Head::Apply(_, attrs) = n.head else { return None };
            Some((n.args[0], graph.attrs(attrs).first()?.as_i64s()?))
        })
        .collect()
}

/// `id` under another shape: a class if there is one.
fn reshaped(graph: &Graph, id: Id, shape: &[Extent]) -> Binding {
    if graph.type_of(id).shape == shape {
        return Binding::Class(graph.egg.find(id));
    }
    let call = graph.structural.reshape;
    for n in applications(graph, id, call) {
        if graph.type_of(n.args[0]).shape == shape {
            return Binding::Class(graph.egg.find(n.args[0]));
        }
    }
    let known = call.and_then(|call| {
        let attrs = graph.find_attrs(&[Attr::Ints(shape.to_vec())])?;
        // A reshape of a reshape is one of the first operand.
        let source = applications(graph, id, Some(call)).next().map_or(id, |n| n.args[0]);
        let args = vec![graph.egg.find(source)].into_boxed_slice();
        graph.egg.lookup(ENode { head: Head::Apply(call, attrs), args })
    });
    match known {
        Some(id) => Binding::Class(graph.egg.find(id)),
        None => {
            // Row-major order is kept, so axes that are no unit axes keep their places.
            let from = graph.type_of(id).shape.clone();
            let wide: Vec<usize> = (0..shape.len()).filter(|&i| !shape[i].is(1)).collect();
            let own: Vec<usize> = (0..from.len()).filter(|&i| !from[i].is(1)).collect();
            let same = wide.len() == own.len()
                && wide.iter().zip(&own).all(|(&i, &j)| shape[i] == from[j]);
            if !same || own.len() != from.len() {
                return Binding::Spread {
                    base: graph.egg.find(id),
                    map: vec![],
                    shape: shape.to_vec(),
                };
            }
            let map = wide.iter().map(|&i| i as i64).collect();
            Binding::Spread { base: graph.egg.find(id), map, shape: shape.to_vec() }
        }
    }
}

fn broadcast(graph: &Graph, base: Id, map: Vec<i64>, shape: &[Extent]) -> Binding {
    Binding::Spread { base: graph.egg.find(base), map, shape: shape.to_vec() }
}
