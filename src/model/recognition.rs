//! Whether definitions are found in their own bodies: what a text calls a layer is looked for in what it says the layer is.
//!
//! The body is instantiated at small extents, as a program without the name, and explored with the laws that `optimize` uses. That the
//! law of the definition applies there is all that is asked: cost has no say.

use crate::pipeline::Fp;
use mlc_dsl::diagnostics::Severity;
use mlc_dsl::library::{CallId, CallKind, LawOrigin, Library};
use mlc_explore::{Explored, LawProfile, Limits, explore};
use mlc_verify::{Lint, body_programs};
use std::sync::Arc;

/// Arguments that a definition is tried at.
const PROGRAMS: usize = 2;

/// Nodes of a search, and its rounds: bodies are small.
const NODES: usize = 4000;
const ROUNDS: u32 = 10;

/// Definitions of the texts from number `first` on that are not found in their own bodies.
pub fn check(library: &Arc<Library>, first: u32, seed: u64) -> Vec<Lint> {
    let admitted = |law: u32| Fp::Reorder.admits(library.laws[law as usize].error);
    let laws: Vec<u32> = (0..library.laws.len() as u32).filter(|i| admitted(*i)).collect();
    let mut out = Vec::new();
    for (i, law) in (0u32..).zip(&library.laws) {
        if law.origin != LawOrigin::Fold || law.source.file < first {
            continue;
        }
        let call = library.find(&law.name);
        let Some(call) = call.filter(|c| matches!(library.call(*c).kind, CallKind::Def(_))) else {
            continue;
        };
        let Some(reason) = unfound(library, call, i, &laws, seed) else { continue };
        let message = format!("`{}` is not found in its own body: {reason}", law.name);
        let help = "it still runs, and stands for its body wherever it is written by name; to be found in models, its body must \
                    say the same after the laws have put it in order: name every axis, write one quotient or product where \
                    there are several, and take what is computed from parameters as a parameter of its own";
        let warning = Severity::Warning;
        out.push(Lint::at(library, law.source, &law.name, "V012", warning, message, help));
    }
    out
}

/// Why a definition is not found in its body; `None` if it is, or if it has no body that could be tried.
fn unfound(
    library: &Arc<Library>,
    call: CallId,
    law: u32,
    laws: &[u32],
    seed: u64,
) -> Option<String> {
    let limits = Limits { nodes: NODES, rounds: ROUNDS, ..Limits::default() };
    let mut reason = None;
    for program in body_programs(library, call, PROGRAMS, seed) {
        let explored = explore(library.clone(), program, laws, &limits);
        let profile = explored.profiles.iter().find(|(i, _)| *i == law).map(|(_, p)| p);
        if profile.is_some_and(|p| p.applications > 0) {
            return None;
        }
        reason.get_or_insert_with(|| in_the_way(library, &explored, law, profile));
    }
    reason
}

/// What stands in the way of a law that should have applied.
fn in_the_way(
    library: &Library,
    explored: &Explored,
    law: u32,
    profile: Option<&LawProfile>,
) -> String {
    let refused = profile.and_then(|p| p.refusals.iter().max_by_key(|(_, n)| **n));
    if let Some((clause, n)) = refused {
        return format!("{n} matches are refused by `{clause}`");
    }
    if let Some(p) = profile.filter(|p| p.ill_typed.0 > 0) {
        return format!("where it matches, {}", p.ill_typed.1);
    }
    let name = |call: &CallId| format!("`{}`", library.call(*call).name);
    match explored.nearest_matches(law, 1).into_iter().find_map(|near| near.missing) {
        Some((call, here)) if here.is_empty() => {
            format!("where {} is looked for, there is a parameter or a number", name(&call))
        }
        Some((call, here)) => {
            let here: Vec<String> = here.iter().map(name).collect();
            format!("where {} is looked for, there is {}", name(&call), here.join(", "))
        }
        None => {
            "all its operators are there, but their numbers, axes or operands are others".into()
        }
    }
}
