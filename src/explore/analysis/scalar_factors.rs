//! Finds the values that can be computed without a scalar factor.
//!
//! A scalar can be attached to any factor of a product, and a multiple of one factor creates multiples of the others: laws that
//! move scalars must know where nothing is gained by it. A hint, never a condition.

use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use egg::Id;
use mlc_dsl::library::{CallKind, OpClass};
use std::collections::HashSet;

/// The classes, out of these, with a node that no number multiplies: not itself, nor an operand that it moves, sums up
/// or multiplies.
pub fn without_scalar_factor(graph: &Graph, reachable: &[Id]) -> HashSet<Id> {
    let mut out: HashSet<Id> = HashSet::new();
    loop {
        let before = out.len();
        for &id in reachable.iter().filter(|id| graph.facts(**id).uniform.is_none()) {
            let free = |n: &ENode| is_free(graph, n, &out);
            if !out.contains(&id) && graph.egg[id].nodes.iter().any(free) {
                out.insert(id);
            }
        }
        if out.len() == before {
            return out;
        }
    }
}

/// The classes with a node into a constant of which a number is multiplied: a product with one, or what moves, sums up or multiplies such a class.
pub fn taking_up_numbers(graph: &Graph) -> HashSet<Id> {
    let mut out: HashSet<Id> = HashSet::new();
    loop {
        let before = out.len();
        for class in graph.egg.classes() {
            let takes = |n: &ENode| takes_up(graph, n, &out);
            if !out.contains(&class.id) && class.nodes.iter().any(takes) {
                out.insert(class.id);
            }
        }
        if out.len() == before {
            return out;
        }
    }
}

fn takes_up(graph: &Graph, n: &ENode, known: &HashSet<Id>) -> bool {
    let Head::Apply(call, _) = n.head else { return false };
    let takes = |a: &Id| {
        let facts = graph.facts(*a);
        known.contains(&graph.egg.find(*a)) || facts.is_constant && facts.uniform.is_none()
    };
    let carries = |a: &Id| known.contains(&graph.egg.find(*a));
    let called = graph.library.call(call);
    match called.class {
        OpClass::Contraction => n.args.iter().any(takes),
        OpClass::Pointwise if graph.structural.arithmetic("mul") == Some(call) => {
            n.args.iter().any(takes)
        }
        OpClass::View => n.args.iter().any(carries),
        OpClass::Reduction if &*called.name == "sum" => n.args.iter().any(carries),
        _ => false,
    }
}

fn is_free(graph: &Graph, n: &ENode, known: &HashSet<Id>) -> bool {
    let Head::Apply(call, _) = n.head else { return true };
    let is = |name| graph.structural.arithmetic(name) == Some(call);
    let free = |a: &Id| known.contains(&graph.egg.find(*a));
    match graph.library.call(call).class {
        // A definition's body stands beside it.
        _ if matches!(graph.library.call(call).kind, CallKind::Def(_)) => false,
        OpClass::Pointwise if is("neg") => false,
        OpClass::Pointwise if is("mul") || is("div") => n.args.iter().all(free),
        OpClass::Pointwise | OpClass::Other => true,
        _ => n.args.iter().all(|a| free(a) || graph.facts(*a).uniform.is_some()),
    }
}
