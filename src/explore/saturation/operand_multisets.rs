//! Congruence modulo commutativity and, where an operator has it, associativity: classes that apply one operator to one multiset
//! of operands are one class.
//!
//! Matching looks through nests of such an operator ([`crate::matcher::flatten`]) and therefore never adds the other orders and
//! groupings of a sum; two of them that a program, or a law, has spelled are joined here. Adds no node.

use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use crate::matcher::flatten::{FlatView, FlatViewCache};
use crate::proof::log::Reason;
use egg::Id;
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::library::CallId;
use std::collections::HashMap;
use std::rc::Rc;

/// What is computed: an operator, its operands in the order of their classes, and the number among them.
type Multiset = (CallId, Vec<Id>, Option<u64>);

/// Joins those of the classes that apply one operator to one multiset. Where `exact` is set operands are exchanged but not
/// regrouped, so that bits stay. True if anything was joined.
pub(crate) fn join(graph: &mut Graph, classes: &[Id], exact: bool) -> bool {
    let pairs = equal(graph, classes, exact);
    let mut joined = false;
    for (a, b) in pairs {
        joined |= graph.union(a, b, Reason::SameOperands);
    }
    joined
}

/// Pairs of different classes that are one.
fn equal(graph: &Graph, classes: &[Id], exact: bool) -> Vec<(Id, Id)> {
    let flat = FlatViewCache::new(graph, exact);
    let mut known: HashMap<Multiset, Vec<Id>> = HashMap::new();
    let mut out = Vec::new();
    for &class in classes {
        let class = graph.egg.find(class);
        for call in operators(graph, class) {
            let views = match graph.library.call(call).associative {
                true => flat.views(graph, call, class),
                false => Rc::new(pairs(graph, call, class)),
            };
            for view in views.iter() {
                if !is_number_kept(graph.type_of(class).dtype, view.scalar) {
                    continue;
                }
                let multiset = (call, view.operands.clone(), view.scalar.map(f64::to_bits));
                let others = known.entry(multiset).or_default();
                let types = &graph.facts(class).types;
                match others.iter().find(|o| graph.facts(**o).types == *types) {
                    Some(&other) if other != class => out.push((other, class)),
                    Some(_) => {}
                    None => others.push(class),
                }
            }
        }
    }
    out
}

/// True unless numbers that were merged into one overflow or vanish as that, which they may not do one after the other.
fn is_number_kept(dtype: DType, number: Option<f64>) -> bool {
    let Some(v) = number else { return true };
    let stored = Tensor::from_f64(dtype, vec![], &[v]).get_f64(0);
    let most = if dtype.is_float() { dtype.unit_roundoff() * v.abs() } else { 0.0 };
    v.is_finite() && (stored - v).abs() <= most
}

/// The operands of a commutative operator that is not regrouped.
fn pairs(graph: &Graph, call: CallId, class: Id) -> Vec<FlatView> {
    let nodes = graph.egg[class].nodes.iter();
    let of_call = nodes.filter(|n| matches!(n.head, Head::Apply(c, _) if c == call));
    let view = |n: &ENode| {
        let mut operands: Vec<Id> = n.args.iter().map(|a| graph.egg.find(*a)).collect();
        operands.sort_unstable();
        FlatView { operands, scalar: None }
    };
    of_call.map(view).collect()
}

/// The commutative operators that a class applies, each once.
fn operators(graph: &Graph, class: Id) -> Vec<CallId> {
    let mut out: Vec<CallId> = graph.egg[class]
        .nodes
        .iter()
        .filter_map(|n| match n.head {
            Head::Apply(c, _) if n.args.len() == 2 => Some(c),
            _ => None,
        })
        .filter(|c| graph.library.call(*c).commutative)
        .collect();
    out.sort_unstable();
    out.dedup();
    out
}
