//! Found laws against the shipped ones: which of those the found ones derive, and which found ones are new.

use super::minimise::is_definition;
use crate::derivation::{self, Derivation, INSTANCES};
use crate::stdlib;
use crate::threads;
use mlc_dsl::ir::canon::Structural;
use mlc_dsl::library::{CallId, Law, LawOrigin, Library};
use mlc_dsl::term::TermKind;
use mlc_explore::Limits;
use serde::Serialize;
use std::sync::Arc;

/// Found laws against shipped ones.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Shipped laws that speak of the named operators alone, each with whether the found ones derive it.
    pub shipped: Vec<Comparison>,
    /// Found laws, each with whether the shipped ones derive it.
    pub found: Vec<Comparison>,
}

/// A law against others.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Its error class.
    pub class: String,
    /// Whether the others derive it.
    #[serde(flatten)]
    pub derivation: Derivation,
}

/// Compares the laws of a text.
pub fn compare(
    texts: &[(String, String)],
    text: &str,
    ops: &[String],
    seed: u64,
    threads: usize,
) -> Compared {
    let mut texts = texts.to_vec();
    texts.push(("found".into(), text.to_string()));
    let (library, _) = stdlib::with(&texts);
    let library = Arc::new(library);
    let last = library.sources.len() as u32 - 1;
    let calls: Vec<CallId> = ops.iter().filter_map(|n| library.find(n)).collect();
    let rules = || library.laws.iter().filter(|l| l.origin == LawOrigin::Rule);
    let asked: Vec<&Law> =
        rules().filter(|l| l.source.file < last && speaks_only(&library, l, &calls)).collect();
    let own: Vec<&Law> = rules().filter(|l| l.source.file == last).collect();
    let is_found = |l: &Law| l.source.file == last || is_definition(&library, l, &calls);
    let limits = Limits { nodes: 5_000, rounds: 10, ..Limits::default() };
    let by = |laws: &[&Law], instances: usize, known: &dyn Fn(&Law) -> bool| {
        let known: Vec<u32> =
            (0u32..).zip(&library.laws).filter(|(_, l)| known(l)).map(|(i, _)| i).collect();
        threads::map(threads, laws.len(), &|i| Comparison {
            class: laws[i].error.to_string(),
            derivation: derivation::derive_by(&library, laws[i], &known, instances, seed, &limits),
        })
    };
    let shipped = by(&asked, INSTANCES, &is_found);
    let found = by(&own, 1, &|l| l.source.file < last);
    Compared { shipped, found }
}

/// True if both sides of a law apply nothing but these operators, and what makes a tensor of a number.
fn speaks_only(library: &Library, law: &Law, calls: &[CallId]) -> bool {
    let structural = Structural::of(library);
    let of_number = |t: &mlc_dsl::term::Term| {
        let mut arg = t.args.first().copied();
        while let Some(a) = arg {
            let t = law.terms.get(a);
            match &t.kind {
                TermKind::Scalar(_) => return true,
                TermKind::Apply(c, _) if Some(*c) == structural.cast => {
                    arg = t.args.first().copied()
                }
                _ => return false,
            }
        }
        false
    };
    law.terms.iter().all(|(_, t)| match &t.kind {
        TermKind::Var(_) | TermKind::Scalar(_) => true,
        TermKind::Apply(c, _) if calls.contains(c) => true,
        TermKind::Apply(c, _) => {
            (Some(*c) == structural.cast || Some(*c) == structural.broadcast) && of_number(t)
        }
        TermKind::Output(_) | TermKind::EachFold(..) | TermKind::EachPart(_) => false,
    })
}
