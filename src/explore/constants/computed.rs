//! What an e-graph computes of constants alone, as programs. Evaluates nothing.

use crate::graph::language::Head;
use crate::graph::lower::Explored;
use crate::proof::log::LogId;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Program, Type};
use std::collections::{BTreeSet, HashMap};

impl Explored {
    /// For each value of this type that depends on constants alone: a program of one output that computes it, by the oldest
    /// term that does.
    pub fn computed_constants(&self, ty: &Type) -> Vec<Program> {
        let facts = |c: &egg::Id| self.graph.facts(*c);
        let is_it = |c: &&egg::Id| facts(c).is_foldable && *facts(c).types == [ty.clone()];
        let classes = self.graph.reachable();
        let terms: BTreeSet<LogId> = classes.iter().filter(is_it).map(|c| facts(c).rep).collect();
        terms.into_iter().filter_map(|term| self.program_of(term)).collect()
    }

    /// A term as a program; `None` if an input is read, as in what multiplies it by zero.
    fn program_of(&self, term: LogId) -> Option<Program> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![term]);
        while let Some(t) = open.pop() {
            let (head, args) = self.graph.log.get(t);
            if matches!(head, Head::Input(_)) {
                return None;
            }
            open.extend(args.iter().copied().filter(|a| seen.insert(*a)));
        }
        let library = self.library().clone();
        let mut b = Builder::new(&library);
        let values = self.built(&mut b, std::iter::once(term), &[], HashMap::new()).ok()?;
        Some(b.finish(vec![("constant".into(), *values[&term].first()?)]))
    }
}
