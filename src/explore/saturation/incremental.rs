//! Incremental search: which classes changed, and how deep a pattern looks, so that unchanged classes are not searched again.
//!
//! A class counts as changed in a round if its nodes, its analysis data or the class of an operand differ from the
//! round before. Never decides what a pattern matches.

use crate::graph::Graph;
use crate::graph::language::Head;
use crate::matcher::flatten::DEPTH;
use crate::matcher::tables::VIEWS;
use egg::Id;
use mlc_dsl::pattern::{Compiled, PatId, PatKind};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The rounds in which classes, and what lies below them, changed last.
#[derive(Default)]
pub(crate) struct ChangeTracker {
    /// A print of each class, and the round in which it became that.
    prints: HashMap<Id, (u64, u32)>,
    places: HashMap<Id, usize>,
    /// By levels looked through, then by place: the latest change.
    levels: Vec<Vec<u32>>,
}

impl ChangeTracker {
    /// Notes what is new in these classes, looking through so many levels at most.
    pub(crate) fn update(&mut self, graph: &Graph, ids: &[Id], levels: usize) {
        let shared = graph.shared_values();
        let mut prints = HashMap::with_capacity(ids.len());
        for &id in ids {
            let print = print(graph, id, shared.contains(&id));
            let round = match self.prints.get(&id) {
                Some(&(known, round)) if known == print => round,
                _ => graph.round,
            };
            prints.insert(id, (print, round));
        }
        self.prints = prints;
        self.places = ids.iter().enumerate().map(|(i, &id)| (id, i)).collect();
        let operands = |&id: &Id| -> Vec<usize> {
            let args = graph.egg[id].nodes.iter().flat_map(|n| n.args.iter());
            let mut out: Vec<usize> =
                args.filter_map(|&a| self.places.get(&graph.egg.find(a)).copied()).collect();
            out.sort_unstable();
            out.dedup();
            out
        };
        let below: Vec<Vec<usize>> = ids.iter().map(operands).collect();
        let own: Vec<u32> = ids.iter().map(|id| self.prints[id].1).collect();
        self.levels = vec![own];
        for _ in 0..levels {
            let last = &self.levels[self.levels.len() - 1];
            let next: Vec<u32> = below
                .iter()
                .zip(&self.levels[0])
                .map(|(b, &own)| b.iter().map(|&i| last[i]).fold(own, u32::max))
                .collect();
            if next == *last {
                break;
            }
            self.levels.push(next);
        }
    }

    /// The last round in which a class changed, or what is so many levels below it.
    pub(crate) fn latest(&self, id: Id, levels: usize) -> u32 {
        let level = &self.levels[levels.min(self.levels.len() - 1)];
        self.places.get(&id).map_or(u32::MAX, |&i| level[i])
    }
}

/// A print of what a pattern may see of a class itself, whatever the order of its nodes.
fn print(graph: &Graph, id: Id, shared: bool) -> u64 {
    let facts = graph.facts(id);
    let mut h = DefaultHasher::new();
    (shared, facts.is_constant, facts.is_foldable, facts.value.is_some()).hash(&mut h);
    facts.uniform.map(f64::to_bits).hash(&mut h);
    graph.egg[id].nodes.iter().fold(h.finish(), |sum, n| {
        let mut h = DefaultHasher::new();
        n.head.hash(&mut h);
        if !matches!(n.head, Head::Input(_) | Head::Const(_) | Head::PerCopyConstant(_)) {
            n.args.iter().for_each(|&a| graph.egg.find(a).hash(&mut h));
        }
        sum.wrapping_add(h.finish())
    })
}

/// How many levels below a class a root of a law looks.
pub(crate) fn pattern_depth(compiled: &Compiled, root: PatId) -> usize {
    let of = |args: &[PatId]| args.iter().map(|&a| pattern_depth(compiled, a)).max();
    match &compiled.pats[root.0 as usize].kind {
        PatKind::Var(_) | PatKind::Scalar(_) => 0,
        // What becomes known of a constant is how it is viewed.
        PatKind::Table(_) => VIEWS,
        PatKind::Apply(_, _, args) => 1 + of(args).unwrap_or(0),
        PatKind::Output(_, whole) => 1 + pattern_depth(compiled, *whole),
        // Behind a broadcast its operand is looked for under other shapes.
        PatKind::Broadcast(arg, _) => 2 + pattern_depth(compiled, *arg),
        // A pattern of a sum or product may stand for one operand, which is then the class itself.
        PatKind::Flat(_, args, _) => 1 + DEPTH + of(args).unwrap_or(0),
    }
}
