//! Near misses: the class that matches most of a law's pattern, and the first operator that is missing there.
//!
//! Only reads the e-graph, and considers operators only, not conditions.

use crate::graph::Graph;
use crate::graph::language::Head;
use crate::graph::lower::Explored;
use egg::Id;
use mlc_dsl::ir::NodeId;
use mlc_dsl::library::CallId;
use mlc_dsl::pattern::compile;
use mlc_dsl::pattern::{Compiled, PatId, PatKind};
use std::collections::HashMap;

/// A place where a law does not match.
#[derive(Clone, Debug, PartialEq)]
pub struct NearMiss {
    /// The node of the explored program whose value it is, or the nearest that is computed from it.
    pub at: Option<NodeId>,
    /// Operators of the pattern that are there.
    pub found: usize,
    /// Operators of the pattern.
    pub all: usize,
    /// The first operator that is not, with what stands in its place; nothing if all are there.
    pub missing: Option<(CallId, Vec<CallId>)>,
}

impl Explored {
    /// The places where most of a law's pattern is, the best first, a few of them.
    pub fn nearest_matches(&self, law: u32, most: usize) -> Vec<NearMiss> {
        let origins = self.origins();
        let mut out: Vec<(NearMiss, Id)> = Vec::new();
        for compiled in compile(self.library(), &[law]) {
            let probe = Probe { graph: &self.graph, compiled: &compiled };
            let Some(&root) = compiled.roots.first() else { continue };
            for class in self.graph.reachable() {
                let mut depth = HashMap::new();
                let (found, missing) = probe.class(root, class, &mut depth);
                if found > 0 {
                    let all = compiled.operators().len().max(found);
                    out.push((NearMiss { at: None, found, all, missing }, class));
                }
            }
        }
        out.sort_by_key(|(n, class)| (std::cmp::Reverse(n.found), *class));
        out.truncate(most);
        out.into_iter().map(|(n, c)| NearMiss { at: self.nearest(c, &origins), ..n }).collect()
    }
}

struct Probe<'a> {
    graph: &'a Graph,
    compiled: &'a Compiled,
}

/// Operators found, and the first that was not.
type Score = (usize, Option<(CallId, Vec<CallId>)>);

impl Probe<'_> {
    fn class(&self, p: PatId, class: Id, known: &mut HashMap<(PatId, Id), Score>) -> Score {
        let class = self.graph.egg.find(class);
        if let Some(score) = known.get(&(p, class)) {
            return score.clone();
        }
        // What reads its own result is not looked through again.
        known.insert((p, class), (0, None));
        let score = match &self.compiled.pats[p.0 as usize].kind {
            PatKind::Var(_) | PatKind::Scalar(_) | PatKind::Table(_) => (0, None),
            PatKind::Broadcast(arg, _) => self.class(*arg, class, known),
            PatKind::Output(i, whole) => {
                let of = self.graph.egg[class].nodes.iter();
                let found = of.filter(|n| n.head == Head::Output(*i as u32)).map(|n| n.args[0]);
                let scores: Vec<Score> =
                    found.map(|whole_class| self.class(*whole, whole_class, known)).collect();
                scores.into_iter().max_by_key(|s| s.0).unwrap_or((0, None))
            }
            PatKind::Apply(call, _, args) | PatKind::Flat(call, args, _) => {
                self.applied(*call, args, class, known)
            }
        };
        known.insert((p, class), score.clone());
        score
    }

    fn applied(
        &self,
        call: CallId,
        args: &[PatId],
        class: Id,
        known: &mut HashMap<(PatId, Id), Score>,
    ) -> Score {
        let mut here: Vec<CallId> = Vec::new();
        let mut best: Option<Score> = None;
        let orders: &[bool] =
            if self.graph.library.call(call).commutative { &[false, true] } else { &[false] };
        for n in &self.graph.egg[class].nodes {
            let Head::Apply(c, _) = n.head else { continue };
            if c != call {
                here.push(c);
                continue;
            }
            for &turned in orders {
                let mut ids: Vec<Id> = n.args.to_vec();
                if turned {
                    ids.reverse();
                }
                let mut sum: Score = (1, None);
                for (&p, &id) in args.iter().zip(&ids) {
                    let (found, missing) = self.class(p, id, known);
                    sum = (sum.0 + found, sum.1.or(missing));
                }
                if best.as_ref().is_none_or(|b| sum.0 > b.0) {
                    best = Some(sum);
                }
            }
        }
        here.sort_unstable();
        here.dedup();
        best.unwrap_or((0, Some((call, here))))
    }
}
