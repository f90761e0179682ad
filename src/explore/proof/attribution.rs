//! Attribution of a result: which nodes of the program it computes, which laws it depends on, and where they were
//! applied. Derived from the e-graph and the log; nothing extra is recorded during the search.

use super::log::{LogId, Reason};
use super::{CongruenceClosure, Proof, ProofStep};
use crate::extraction::{Extracted, Subprogram};
use crate::graph::language::{ENode, Head};
use crate::graph::lower::Explored;
use egg::Id;
use mlc_dsl::ir::{NodeId, NodeKind, Value};
use mlc_dsl::library::{CallId, OpClass};
use mlc_extract::Extractor;
use mlc_extract::cost::target::TargetPrices;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Places of an operator that are priced.
const PLACES: usize = 8;

impl Explored {
    /// The first node of the explored program that computes a class, be it in another layout: what only a view of the same elements keeps from
    /// being a node's value, as an image with its channels last, is that node's.
    pub(crate) fn origins(&self) -> HashMap<Id, NodeId> {
        let mut out = HashMap::new();
        for (i, (classes, _)) in self.places.iter().enumerate() {
            let node = NodeId(i as u32);
            if !matches!(self.source.node(node).kind, NodeKind::Apply(..)) {
                continue;
            }
            for class in classes.iter().map(|&c| self.graph.egg.find(c)) {
                out.entry(class).or_insert(node);
                // Of several results each is an output of the whole.
                for n in self.graph.egg[class].nodes.iter().filter(|_| classes.len() > 1) {
                    if let Head::Output(_) = n.head {
                        out.entry(self.graph.egg.find(n.args[0])).or_insert(node);
                    }
                }
            }
        }
        let mut open: Vec<(NodeId, Id)> = out.iter().map(|(class, node)| (*node, *class)).collect();
        open.sort_unstable_by(|a, b| b.cmp(a));
        while let Some((node, class)) = open.pop() {
            let mut views: Vec<Id> = self.same_elements(class).collect();
            views.sort_unstable();
            for view in views {
                if let Entry::Vacant(entry) = out.entry(view) {
                    entry.insert(node);
                    open.push((node, view));
                }
            }
        }
        out
    }

    /// Classes of which a class is a view that has as many elements.
    fn same_elements(&self, class: Id) -> impl Iterator<Item = Id> {
        let count = |id: Id| self.graph.type_of(id).elements();
        let is_view = |n: &&ENode| match (n.head, &*n.args) {
            (Head::Apply(call, _), [_]) => self.graph.library.call(call).class == OpClass::View,
            _ => false,
        };
        let args = self.graph.egg[class].nodes.iter().filter(is_view);
        let args = args.map(|n| self.graph.egg.find(n.args[0]));
        args.filter(move |arg| count(*arg) == count(class))
    }

    /// For each equation the node of the explored program whose value its sides are, or the nearest that is computed from it.
    pub fn places(&self, steps: &[ProofStep]) -> Vec<Option<NodeId>> {
        self.places_of(&steps.iter().map(|s| s.left).collect::<Vec<_>>())
    }

    /// The same for terms.
    pub fn places_of(&self, terms: &[LogId]) -> Vec<Option<NodeId>> {
        let origins = self.origins();
        let mut classes: HashMap<LogId, Option<Id>> = HashMap::new();
        let mut place = |t: &LogId| {
            let class = self.class_of_term(*t, &mut classes);
            class.and_then(|c| self.nearest(c, &origins))
        };
        terms.iter().map(&mut place).collect()
    }

    /// Where an operator was found, by the node of the explored program, and what the cheapest program costs that has it
    /// there; none where the target cannot compute that.
    pub fn with_operator(
        &self,
        call: CallId,
        prices: &TargetPrices<'_>,
        extractor: &dyn Extractor,
    ) -> Vec<(Option<NodeId>, Option<f64>)> {
        let origins = self.origins();
        let has = |c: &&Id| {
            let nodes = &self.graph.egg[**c].nodes;
            nodes.iter().any(|n| matches!(n.head, Head::Apply(found, _) if found == call))
        };
        let reachable = self.graph.reachable();
        let mut places: Vec<(Option<NodeId>, Id)> =
            reachable.iter().filter(has).map(|&c| (self.nearest(c, &origins), c)).collect();
        places.sort();
        let roots: Vec<Value> = self.source.outputs.iter().map(|(_, v)| *v).collect();
        let cost = |class: Id| {
            let forced = Some((class, call));
            let part =
                Subprogram { roots: roots.clone(), copies: 1, forced, ..Subprogram::default() };
            self.choose(&part, prices, extractor).ok().map(|c| c.cost)
        };
        places.into_iter().take(PLACES).map(|(n, c)| (n, cost(c))).collect()
    }

    /// The class of a logged term.
    pub(crate) fn class_of_term(
        &self,
        term: LogId,
        known: &mut HashMap<LogId, Option<Id>>,
    ) -> Option<Id> {
        if let Some(class) = known.get(&term) {
            return *class;
        }
        let (head, args) = self.graph.log.get(term);
        let args: Option<Vec<Id>> = args.iter().map(|&a| self.class_of_term(a, known)).collect();
        let node = args.map(|args| ENode { head, args: args.into() });
        let class = node.and_then(|n| self.graph.egg.lookup(n)).map(|c| self.graph.egg.find(c));
        known.insert(term, class);
        class
    }

    /// The first node that computes a class, or else what is computed from it, the nearest first.
    pub(crate) fn nearest(&self, class: Id, origins: &HashMap<Id, NodeId>) -> Option<NodeId> {
        let (mut seen, mut level) = (HashSet::from([class]), vec![class]);
        while !level.is_empty() {
            if let Some(node) = level.iter().filter_map(|c| origins.get(c)).min() {
                return Some(*node);
            }
            let users = level.iter().flat_map(|c| self.graph.egg[*c].parents());
            let mut next: Vec<Id> = users.map(|u| self.graph.egg.find(u)).collect();
            next.sort();
            next.retain(|u| seen.insert(*u));
            level = next;
        }
        None
    }

    /// The equations that the result rests on, of as few laws as can be told: a law is left out if the log without its
    /// equations proves the result. Laws are tried in the order of their names.
    pub fn prove_with_few_laws(&self, extracted: &Extracted) -> Option<Proof> {
        let ends = self.ends(extracted);
        self.with_few_laws(&ends)
    }

    /// Why these pairs of the source's values are equal, by as few laws as can be told.
    pub fn prove_equal(&self, pairs: &[(Value, Value)]) -> Option<Proof> {
        let ends: Vec<(LogId, LogId)> =
            pairs.iter().map(|&(a, b)| (self.source_log(a), self.source_log(b))).collect();
        self.with_few_laws(&ends)
    }

    fn with_few_laws(&self, ends: &[(LogId, LogId)]) -> Option<Proof> {
        let prove = |barred: &BTreeSet<Reason>| {
            CongruenceClosure::with(&self.graph.log, &|s| !barred.contains(&s.reason))
                .prove_all(ends)
        };
        let mut proof = prove(&BTreeSet::new())?;
        let mut tried: BTreeSet<Reason> = BTreeSet::new();
        let mut without: BTreeSet<Reason> = BTreeSet::new();
        loop {
            let next = proof.steps.iter().map(|s| s.reason).filter(|r| matches!(r, Reason::Law(_)));
            let Some(reason) = next.filter(|r| !tried.contains(r)).min() else {
                return Some(proof);
            };
            tried.insert(reason);
            without.insert(reason);
            match prove(&without) {
                Some(fewer) => proof = fewer,
                None => drop(without.remove(&reason)),
            }
        }
    }

    /// Why the extracted program equals the source, where no equation of these reasons may be used.
    pub fn prove_without(
        &self,
        extracted: &Extracted,
        barred: &dyn Fn(Reason) -> bool,
    ) -> Option<Proof> {
        CongruenceClosure::with(&self.graph.log, &|s| !barred(s.reason))
            .prove_all(&self.ends(extracted))
    }
}
