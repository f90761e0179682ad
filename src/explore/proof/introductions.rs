//! Which equation brought each operator of a result into the search.
//!
//! A proof does not say so: its equations hold between classes, and whatever was found equal beneath them is left out of it.

use super::ProofStep;
use super::log::{Equation, LogId};
use crate::extraction::Extracted;
use crate::graph::language::{ENode, Head};
use crate::graph::lower::Explored;
use egg::Id;
use std::collections::{BTreeSet, HashMap, HashSet};

impl Explored {
    /// The equations whose right sides were the first to have an application that the result has and the explored program has not, and
    /// those that introduced what these matched, in the order in which they were found.
    pub fn introductions(&self, extracted: &Extracted) -> Vec<ProofStep> {
        let mut classes = HashMap::new();
        let mut node = |t: LogId| self.node_of_term(t, &mut classes);
        let mut seen = HashSet::new();
        let read = self.places.iter().flat_map(|(_, log)| self.fresh(*log, &mut seen));
        let read: HashSet<ENode> = read.filter_map(&mut node).collect();
        let all = self.graph.log.steps();
        let mut firsts: HashMap<ENode, usize> = HashMap::new();
        for (at, step) in all.iter().enumerate() {
            self.fresh(step.left, &mut seen);
            for n in self.fresh(step.right, &mut seen).into_iter().filter_map(&mut node) {
                firsts.entry(n).or_insert(at);
            }
        }
        let step = |step: usize| {
            let Equation { reason, left, right, round } = all[step];
            ProofStep { step, reason, left, right, round }
        };
        let mut seen = HashSet::new();
        let ends = extracted.ends.iter().flat_map(|(_, end)| self.fresh(*end, &mut seen));
        let mut open: Vec<LogId> = ends.collect();
        let mut found: BTreeSet<usize> = BTreeSet::new();
        while let Some(t) = open.pop() {
            let introduced = node(t).filter(|n| !read.contains(n));
            if let Some(&at) = introduced.and_then(|n| firsts.get(&n))
                && found.insert(at)
            {
                open.extend(self.own_left(&step(at)));
            }
        }
        found.into_iter().map(step).collect()
    }

    /// The applications of a term that were not seen yet.
    fn fresh(&self, term: LogId, seen: &mut HashSet<LogId>) -> Vec<LogId> {
        let (mut open, mut out) = (vec![term], vec![]);
        while let Some(t) = open.pop() {
            if seen.insert(t) {
                let (head, args) = self.graph.log.get(t);
                out.extend(matches!(head, Head::Apply(..)).then_some(t));
                open.extend(args);
            }
        }
        out
    }

    /// The node of the e-graph that a term is.
    fn node_of_term(&self, term: LogId, known: &mut HashMap<LogId, Option<Id>>) -> Option<ENode> {
        let (head, args) = self.graph.log.get(term);
        let args: Option<Vec<Id>> = args.iter().map(|&a| self.class_of_term(a, known)).collect();
        Some(ENode { head, args: args?.into() })
    }
}
