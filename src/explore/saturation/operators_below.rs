//! Which operators occur below a class, by levels: a filter that spares a pattern the classes where an operator that it needs is
//! nowhere near. Binds nothing, and passes whatever matches.

use super::PatternRunner;
use crate::graph::Graph;
use crate::graph::language::Head;
use egg::Id;
use mlc_dsl::library::CallId;
use std::collections::HashMap;

/// Sets of the operators that patterns need, by levels looked through and place of the class.
pub(super) struct OperatorsBelow {
    places: HashMap<Id, usize>,
    bits: HashMap<CallId, usize>,
    /// Words of one set.
    words: usize,
    levels: Vec<Vec<u64>>,
}

/// The operators that one root of a pattern needs, as a set.
pub(super) struct Needed(Vec<u64>);

impl OperatorsBelow {
    /// The sets for these classes.
    pub(super) fn new(graph: &Graph, ids: &[Id], runners: &[PatternRunner]) -> OperatorsBelow {
        let mut bits = HashMap::new();
        for call in runners.iter().flat_map(|r| r.below.iter().flatten()) {
            let next = bits.len();
            bits.entry(*call).or_insert(next);
        }
        let words = bits.len().div_ceil(64);
        let places: HashMap<Id, usize> = ids.iter().enumerate().map(|(i, &id)| (id, i)).collect();
        let mut own = vec![0; words * ids.len()];
        let mut below: Vec<Vec<usize>> = Vec::with_capacity(ids.len());
        for (i, &id) in ids.iter().enumerate() {
            let mut args = Vec::new();
            for n in &graph.egg[id].nodes {
                if let Head::Apply(call, _) = n.head
                    && let Some(&bit) = bits.get(&call)
                {
                    own[i * words + bit / 64] |= 1 << (bit % 64);
                }
                args.extend(n.args.iter().filter_map(|&a| places.get(&graph.egg.find(a)).copied()));
            }
            args.sort_unstable();
            args.dedup();
            below.push(args);
        }
        let deepest = runners.iter().flat_map(|r| r.depths.iter().copied()).max().unwrap_or(0);
        let mut levels = vec![own];
        for _ in 0..deepest {
            let last = &levels[levels.len() - 1];
            let mut next = levels[0].clone();
            for (i, args) in below.iter().enumerate() {
                for w in 0..words {
                    let of_args = args.iter().map(|a| last[a * words + w]);
                    next[i * words + w] |= of_args.fold(0, |all, set| all | set);
                }
            }
            if next == *last {
                break;
            }
            levels.push(next);
        }
        OperatorsBelow { places, bits, words, levels }
    }

    /// The set of these operators.
    pub(super) fn set(&self, calls: &[CallId]) -> Needed {
        let mut set = vec![0; self.words];
        for bit in calls.iter().filter_map(|c| self.bits.get(c)) {
            set[bit / 64] |= 1 << (bit % 64);
        }
        Needed(set)
    }

    /// True if all of these operators are at a class or at most so many levels below it.
    pub(super) fn has(&self, needed: &Needed, id: Id, levels: usize) -> bool {
        let Some(place) = self.places.get(&id) else { return true };
        let level = &self.levels[levels.min(self.levels.len() - 1)];
        let own = &level[place * self.words..][..self.words];
        needed.0.iter().zip(own).all(|(wanted, own)| wanted & !own == 0)
    }
}
