//! Both sides of one equation as programs of their own, over the values that both read.
//!
//! What is computed alike on both sides is cut off, so that running them tells of this equation alone.

use super::log::{LogId, Reason};
use super::replay::TermValues;
use super::{Equation, ProofStep};
use crate::graph::language::Head;
use crate::graph::lower::Explored;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{NodeId, Program, Value};
use mlc_dsl::typing::infer::TypeError;
use std::collections::{BTreeSet, HashMap};

/// Both sides of an equation.
#[derive(Clone, Debug)]
pub struct Sides {
    /// Over the inputs of the explored program: the values that the sides read.
    pub operands: Program,
    /// Over these values: what was matched.
    pub left: Program,
    /// Over these values: what it equals.
    pub right: Program,
}

impl Explored {
    /// The equations that a law asserted, in the order in which they were found.
    pub fn equations_of(&self, law: u32) -> Vec<ProofStep> {
        let all = self.graph.log.steps().iter().enumerate();
        let own = all.filter(|(_, e)| e.reason == Reason::Law(law));
        own.map(|(step, &Equation { reason, left, right, round })| ProofStep {
            step,
            reason,
            left,
            right,
            round,
        })
        .collect()
    }

    /// Both sides of an equation.
    ///
    /// # Errors
    /// A side does not type by itself.
    pub fn sides(&self, step: &ProofStep) -> Result<Sides, TypeError> {
        let shared = self.operands(step);
        let library = self.library().clone();
        let mut b = Builder::new(&library);
        let inputs: Vec<Value> =
            self.source.inputs.iter().map(|(n, t)| b.input(n, t.clone())).collect();
        let values = self.built(&mut b, shared.iter().copied(), &inputs, TermValues::new())?;
        let named = |i: usize| format!("v{i}");
        let outputs = shared.iter().enumerate().map(|(i, t)| (named(i), values[t][0]));
        let operands = b.finish(outputs.collect());
        let side = |root: LogId| {
            let mut b = Builder::new(&library);
            let leaves = shared.iter().zip(&operands.outputs).enumerate();
            let leaves = leaves
                .map(|(i, (t, (_, v)))| (*t, vec![b.input(&named(i), operands.ty(*v).clone())]));
            let leaves: TermValues = leaves.collect();
            let values = self.built(&mut b, std::iter::once(root), &[], leaves)?;
            Ok::<Program, TypeError>(b.finish(vec![("y".into(), values[&root][0])]))
        };
        Ok(Sides { left: side(step.left)?, right: side(step.right)?, operands })
    }

    /// For each equation the nodes of the explored program whose values its sides compute on their own, those inside of them included.
    pub fn touched(&self, steps: &[ProofStep]) -> Vec<Vec<NodeId>> {
        let origins = self.origins();
        let mut classes = HashMap::new();
        let mut own = |step: &ProofStep| {
            let terms = self.apart(step).1.into_iter();
            let classes = terms.filter_map(|t| self.class_of_term(t, &mut classes));
            let nodes: BTreeSet<NodeId> =
                classes.filter_map(|c| origins.get(&c).copied()).collect();
            nodes.into_iter().collect()
        };
        steps.iter().map(&mut own).collect()
    }

    /// The applications of the left side that the right one has not.
    pub(super) fn own_left(&self, step: &ProofStep) -> Vec<LogId> {
        let left = self.terms_of(step.left);
        let own = self.apart(step).1.into_iter().filter(|t| left.contains(t));
        own.filter(|t| matches!(self.graph.log.get(*t).0, Head::Apply(..))).collect()
    }

    /// The topmost terms that both sides have, and the inputs that one of them has. What depends on constants alone stays in the
    /// sides: they may fold it.
    fn operands(&self, step: &ProofStep) -> BTreeSet<LogId> {
        self.apart(step).0
    }

    /// These terms, and those above them.
    fn apart(&self, step: &ProofStep) -> (BTreeSet<LogId>, BTreeSet<LogId>) {
        let (left, right) = (self.terms_of(step.left), self.terms_of(step.right));
        let varies = self.varying(left.union(&right));
        let is_leaf = |t: LogId| match self.graph.log.get(t).0 {
            Head::Input(_) => true,
            _ => left.contains(&t) && right.contains(&t) && varies[&t],
        };
        let (mut out, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut open = vec![(step.left, false), (step.right, false)];
        while let Some((t, is_whole)) = open.pop() {
            // Several results together are no value.
            if !is_whole && is_leaf(t) {
                out.insert(t);
            } else if seen.insert(t) {
                let (head, args) = self.graph.log.get(t);
                open.extend(args.iter().map(|a| (*a, matches!(head, Head::Output(_)))));
            }
        }
        (out, seen)
    }

    /// A term and all that it is computed from.
    fn terms_of(&self, root: LogId) -> BTreeSet<LogId> {
        let (mut out, mut open) = (BTreeSet::new(), vec![root]);
        while let Some(t) = open.pop() {
            if out.insert(t) {
                open.extend(self.graph.log.get(t).1);
            }
        }
        out
    }

    /// For terms with all that they are computed from, arguments first: whether they depend on an input.
    fn varying<'t>(&self, terms: impl Iterator<Item = &'t LogId>) -> HashMap<LogId, bool> {
        let mut out: HashMap<LogId, bool> = HashMap::new();
        for &t in terms {
            let (head, args) = self.graph.log.get(t);
            let varies = matches!(head, Head::Input(_)) || args.iter().any(|a| out[a]);
            out.insert(t, varies);
        }
        out
    }
}
