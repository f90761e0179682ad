//! Which values of two programs stand in each other's place, by how they are used: outputs of the same name, and what
//! equal operators read at the same place. Says nothing of their numbers.

use mlc_dsl::ir::{NodeKind, Program, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// For values of the second program those of the first in whose place they stand.
pub(super) fn partners(a: &Program, b: &Program) -> BTreeMap<Value, Vec<Value>> {
    let mut out: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    let mut seen: HashSet<(Value, Value)> = HashSet::new();
    let outputs = a.outputs.iter().zip(&b.outputs).map(|((_, a), (_, b))| (*a, *b));
    let mut open: Vec<(Value, Value)> = outputs.collect();
    let named = by_name(a);
    while let Some((va, vb)) = open.pop() {
        if !seen.insert((va, vb)) {
            continue;
        }
        if a.ty(va) == b.ty(vb) {
            let all = out.entry(vb).or_default();
            if !all.contains(&va) {
                all.push(va);
            }
        }
        let (x, y) = (a.node(va.node), b.node(vb.node));
        let alike = match (&x.kind, &y.kind) {
            (NodeKind::Apply(f, _), NodeKind::Apply(g, _)) => {
                f == g || x.args.len() == y.args.len()
            }
            _ => false,
        };
        let same_types = x.args.iter().zip(&y.args).all(|(p, q)| a.ty(*p) == b.ty(*q));
        if alike && same_types && x.args.len() == y.args.len() {
            open.extend(x.args.iter().copied().zip(y.args.iter().copied()));
        } else if let Some(&other) = named.get(&(y.origin.as_str(), kind(&y.kind))) {
            // A node that was fused with others often keeps its name.
            let other = &a.nodes[other];
            open.extend(other.args.iter().copied().zip(y.args.iter().copied()));
        }
    }
    out
}

fn kind(kind: &NodeKind) -> Option<u32> {
    match kind {
        NodeKind::Apply(call, _) => Some(call.0),
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    }
}

/// The nodes that alone have their name and operator.
fn by_name(a: &Program) -> HashMap<(&str, Option<u32>), usize> {
    let mut out: HashMap<(&str, Option<u32>), usize> = HashMap::new();
    let mut twice = HashSet::new();
    for (i, node) in a.nodes.iter().enumerate().filter(|(_, n)| !n.origin.is_empty()) {
        let key = (node.origin.as_str(), kind(&node.kind));
        if out.insert(key, i).is_some() {
            twice.insert(key);
        }
    }
    out.retain(|key, _| !twice.contains(key));
    out
}
