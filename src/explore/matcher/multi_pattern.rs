//! Multi-pattern matching for `each` rules: which matches form a family that is rewritten at once, and its outcome.
//!
//! Only values of the original program, or reshapes of them, are members: merging values that laws created would not
//! terminate.

use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use crate::proof::log::LogId;
use crate::saturation::PendingMatch;
use crate::saturation::apply::{family_key, refusal};
use egg::Id;
use mlc_dsl::library::Law;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What may be a member: values of the program, and what they are another shape of.
struct SourceValues {
    /// Where each comes in the program.
    places: HashMap<Id, LogId>,
    /// What each is computed from.
    reads: HashMap<Id, BTreeSet<Id>>,
}

impl SourceValues {
    fn of(graph: &Graph) -> SourceValues {
        let source = graph.source_reads();
        let mut places: HashMap<Id, LogId> = HashMap::new();
        let mut reads: HashMap<Id, BTreeSet<Id>> = HashMap::new();
        for (&value, read) in &source {
            let place = graph.facts(value).rep;
            let read: BTreeSet<Id> = read.iter().flat_map(|&r| shapes(graph, r)).collect();
            for id in shapes(graph, value) {
                let at = places.entry(id).or_insert(place);
                *at = (*at).min(place);
                reads.entry(id).or_default().extend(read.iter().filter(|&&r| r != id));
            }
        }
        SourceValues { places, reads }
    }
}

/// A class and those that it is a reshape of.
fn shapes(graph: &Graph, id: Id) -> impl Iterator<Item = Id> {
    let is_reshape =
        |n: &&ENode| matches!(n.head, Head::Apply(c, _) if Some(c) == graph.structural.reshape);
    let below = graph.egg[id].nodes.iter().filter(is_reshape).map(|n| graph.egg.find(n.args[0]));
    std::iter::once(graph.egg.find(id)).chain(below)
}

/// Leaves in a family only members that are not computed from others of it: a value and what is made of
/// it are no siblings, whatever law makes them look alike.
fn independent(graph: &Graph, reads: &HashMap<Id, BTreeSet<Id>>, family: &mut PendingMatch) {
    let members: Vec<Id> = family.sites.iter().map(|s| graph.egg.find(s.1)).collect();
    let inside: HashSet<Id> = members.iter().copied().collect();
    let is_made_of_others = |m: Id| {
        let mut stack: Vec<Id> = reads.get(&m).into_iter().flatten().copied().collect();
        let mut seen: HashSet<Id> = stack.iter().copied().collect();
        while let Some(id) = stack.pop() {
            if id != m && inside.contains(&id) {
                return true;
            }
            stack.extend(reads.get(&id).into_iter().flatten().filter(|v| seen.insert(**v)));
        }
        false
    };
    let keep: Vec<bool> = members.iter().map(|&m| !is_made_of_others(m)).collect();
    let (mut sites, mut states) = (keep.iter(), keep.iter());
    family.sites.retain(|_| sites.next() == Some(&true));
    family.states.retain(|_| states.next() == Some(&true));
}

/// Families of `each` laws: which were formed, and what they made.
#[derive(Default)]
pub(crate) struct MultiPatternMatches {
    /// By law and key: the members that were merged.
    formed: HashMap<(u32, String), Vec<Id>>,
    /// By law: classes below the slices that it made; they are no members themselves.
    products: HashMap<u32, HashSet<Id>>,
    /// The slices that each family was turned into.
    pub(crate) bundles: Vec<Vec<Id>>,
}

impl MultiPatternMatches {
    /// Matches grouped into families of at least two members that are new in their composition.
    pub(crate) fn group(
        &mut self,
        graph: &Graph,
        law: &Law,
        index: u32,
        found: Vec<PendingMatch>,
    ) -> Vec<PendingMatch> {
        // One match is no family.
        if found.len() < 2 {
            return Vec::new();
        }
        let products: HashSet<Id> =
            self.products.get(&index).into_iter().flatten().map(|&id| graph.egg.find(id)).collect();
        let values = SourceValues::of(graph);
        let mut groups: BTreeMap<String, PendingMatch> = BTreeMap::new();
        let mut inside: HashMap<String, HashSet<Id>> = HashMap::new();
        for f in found {
            let [(node, class)] = f.sites.as_slice() else { continue };
            let class = graph.egg.find(*class);
            let st = &f.states[0];
            let own = values.places.contains_key(&class) && !products.contains(&class);
            if !own || st.rest.is_some() || refusal(graph, law, st).is_some() {
                continue;
            }
            let key = family_key(graph, law, st);
            if inside.entry(key.clone()).or_default().insert(class) {
                let none = || PendingMatch { sites: vec![], states: vec![], family: true };
                let g = groups.entry(key).or_insert_with(none);
                g.sites.push((node.clone(), class));
                g.states.push(st.clone());
            }
        }
        let mut out = Vec::new();
        for (key, mut g) in groups {
            independent(graph, &values.reads, &mut g);
            // In the program's order, whatever laws found them first.
            let mut order: Vec<usize> = (0..g.sites.len()).collect();
            order.sort_by_key(|&i| values.places.get(&graph.egg.find(g.sites[i].1)));
            g.sites = order.iter().map(|&i| g.sites[i].clone()).collect();
            g.states = order.iter().map(|&i| g.states[i].clone()).collect();
            let mut members: Vec<Id> = g.sites.iter().map(|s| s.1).collect();
            members.sort();
            let formed = self.formed.entry((index, key)).or_default();
            let before: HashSet<Id> = formed.iter().map(|&id| graph.egg.find(id)).collect();
            let new = members.iter().any(|m| !before.contains(m));
            if members.len() >= 2 && new {
                *formed = members;
                out.push(g);
            }
        }
        out
    }

    /// Notes the slices that a law made, and the products that they are slices of.
    pub(crate) fn note(&mut self, graph: &Graph, index: u32, made: &[Id]) {
        if made.is_empty() {
            return;
        }
        let products = self.products.entry(index).or_default();
        for &m in made {
            for node in &graph.egg[m].nodes {
                let slice = graph.structural.slice;
                if matches!(node.head, Head::Apply(c, _) if Some(c) == slice) {
                    products.insert(graph.egg.find(node.args[0]));
                }
            }
        }
        self.bundles.push(made.to_vec());
    }
}
