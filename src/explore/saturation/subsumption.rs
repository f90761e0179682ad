//! Subsumption: of nodes of one class that differ in constants alone, one is kept.
//!
//! Laws move factors and terms into constants by many ways, each of which rounds otherwise and is a class of its own; what reads
//! them would be there once for each. A node that is dropped is neither matched nor extracted; what it is equal to stays. Never
//! drops a node of the program as read, nor one whose constant is a number or repeats where the other's does not.

use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use egg::Id;
use mlc_dsl::library::OpClass;
use std::collections::{BTreeSet, HashMap};

/// What nodes have in common of which one is kept: the operator and what it is applied to, constants apart.
type Key = (Head, Vec<Operand>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operand {
    Class(Id),
    /// A constant, and whether it repeats.
    Constant(bool),
}

/// Drops the nodes of these classes that others stand for.
pub(crate) fn subsume(graph: &mut Graph, classes: &[Id]) {
    let classes: BTreeSet<Id> = classes.iter().map(|&c| graph.egg.find(c)).collect();
    let gone = classes.into_iter().map(|c| (c, subsumed(graph, c)));
    let gone: HashMap<Id, Vec<ENode>> = gone.filter(|(_, nodes)| !nodes.is_empty()).collect();
    graph.drop_nodes(&gone);
}

/// The nodes of a class that others stand for.
fn subsumed(graph: &Graph, class: Id) -> Vec<ENode> {
    let nodes = &graph.egg[class].nodes;
    if nodes.len() < 2 {
        return vec![];
    }
    let mut groups: HashMap<Key, Vec<&ENode>> = HashMap::new();
    let mut gone = vec![];
    for node in nodes {
        if is_commutative(graph, node) || node.args.iter().any(|&a| is_table(graph, a)) {
            groups.entry(key(graph, node)).or_default().push(node);
        }
    }
    for mut group in groups.into_values() {
        group.sort_by_key(|n| (age(graph, n), *n));
        gone.extend(group.into_iter().skip(1).filter(|n| !of_source(graph, n)).cloned());
    }
    gone
}

fn is_commutative(graph: &Graph, node: &ENode) -> bool {
    matches!(node.head, Head::Apply(call, _) if graph.library.call(call).commutative)
}

fn key(graph: &Graph, node: &ENode) -> Key {
    let operand = |&a: &Id| match is_table(graph, a) {
        true => Operand::Constant(repeats(graph, a)),
        false => Operand::Class(graph.egg.find(a)),
    };
    let mut operands: Vec<Operand> = node.args.iter().map(operand).collect();
    if is_commutative(graph, node) {
        operands.sort_unstable();
    }
    (node.head, operands)
}

/// True for a constant that is no number.
fn is_table(graph: &Graph, class: Id) -> bool {
    let facts = graph.facts(class);
    facts.is_foldable && facts.uniform.is_none()
}

fn repeats(graph: &Graph, class: Id) -> bool {
    let nodes = graph.egg[graph.egg.find(class)].nodes.iter();
    let mut calls = nodes.filter_map(|n| match n.head {
        Head::Apply(call, _) => Some(call),
        _ => None,
    });
    calls.any(|c| graph.library.call(c).class == OpClass::View)
}

/// The oldest terms of its operands: those of the program as read come first.
fn age(graph: &Graph, node: &ENode) -> Vec<u32> {
    node.args.iter().map(|&a| graph.facts(a).rep.0).collect()
}

fn of_source(graph: &Graph, node: &ENode) -> bool {
    node.args.iter().all(|&a| graph.in_source(a))
}
