//! The laws that a result rests on, and those that it may not use.

use super::errors::Errors;
use super::steps::{Drawing, Step};
use crate::explain::unmade::calls;
use crate::explain::{Explanation, Region, declaration};
use crate::pipeline::options::{Fp, Options};
use crate::pipeline::{Optimized, why_off};
use mlc_dsl::ir::NodeKind;
use mlc_dsl::library::{CallId, ErrorClass, LawOrigin, Library};
use mlc_extract::cost::target::TargetPrices;
use serde::Serialize;
use std::collections::BTreeSet;

/// A law, or another kind of step.
#[derive(Debug, Serialize)]
pub(super) struct Law {
    pub name: String,
    #[serde(flatten)]
    pub said: Said,
    pub equations: usize,
    /// Estimated seconds that the regions save in which it was used; other laws may have their part in that.
    pub saved: f64,
    /// Estimated seconds of the result without it, if that was tried.
    pub without: Option<f64>,
    /// The largest measured error of its steps.
    pub error: Option<Errors>,
    /// Its steps, by their numbers.
    pub steps: Vec<usize>,
}

/// What a law says of itself.
#[derive(Debug, Serialize)]
pub(super) struct Said {
    /// `exact`, `reorder` or how far an approximation strays.
    pub class: String,
    pub doc: Vec<String>,
    /// Its equation and conditions, as declared.
    pub text: String,
    pub declared: String,
    /// Whether it fires from left to right, say.
    pub direction: String,
}

/// What is said of a law, or of another kind of step.
pub(super) fn said(name: &str, library: &Library) -> Said {
    if let Some(d) = declaration(library, name) {
        let (class, direction) = d.law.unwrap_or_default();
        return Said { class, doc: d.doc, text: d.text, declared: d.declared, direction };
    }
    let doc = OTHERS.iter().filter(|(n, _)| *n == name).map(|(_, d)| (*d).into()).collect();
    let regroups = name == "(same operands)";
    let class = if regroups { ErrorClass::Reorder } else { ErrorClass::Exact }.to_string();
    Said { class, doc, text: String::new(), declared: String::new(), direction: String::new() }
}

/// What steps that are no laws do.
const OTHERS: [(&str, &str); 5] = [
    (
        "(constant folding)",
        "What depends on constants alone is computed once, before the first run.",
    ),
    ("(uniform constant)", "A constant whose elements are equal is that number, repeated."),
    ("(same elements)", "Two chains of views read the same elements in the same order."),
    ("(same operands)", "A sum or product of the same operands, in another order or grouping."),
    ("(definition)", "A layer is its definition."),
];

/// The laws and other kinds of steps of a proof, in the order of their names.
pub(super) fn names<'a>(all: impl Iterator<Item = &'a str>) -> Vec<String> {
    all.collect::<BTreeSet<&str>>().into_iter().map(String::from).collect()
}

/// What is known of each.
pub(super) fn laws(
    names: &[String],
    library: &Library,
    explanation: &Explanation,
    steps: &[Step],
    drawings: &[Drawing],
) -> Vec<Law> {
    let law = |(i, name): (usize, &String)| {
        let own: Vec<usize> = (0..steps.len()).filter(|&s| steps[s].law == i).collect();
        let measured = own.iter().filter_map(|&s| drawings[steps[s].drawing?].error);
        let error = measured.max_by(|a, b| a.between.total_cmp(&b.between));
        let used = explanation.laws.iter().find(|l| l.law == *name);
        let uses = |r: &&Region| r.laws.contains(name) || r.steps.contains(name);
        let saved = explanation.regions.iter().filter(uses).map(|r| r.saved).sum();
        Law {
            name: name.clone(),
            said: said(name, library),
            equations: own.len(),
            saved,
            without: used.and_then(|l| l.without),
            error,
            steps: own,
        }
    };
    names.iter().enumerate().map(law).collect()
}

/// A law that another error class would admit.
#[derive(Debug, Serialize)]
pub(super) struct Barred {
    pub name: String,
    pub class: String,
    pub doc: String,
    /// Why it was not searched.
    pub off: String,
}

/// The laws of a coarser error class whose operators the model or the result all has: those that might fire if they were admitted.
pub(super) fn barred(o: &Optimized, library: &Library, options: &Options) -> Vec<Barred> {
    if options.fp == Fp::Approx {
        return vec![];
    }
    let nodes = o.source.nodes.iter().chain(&o.program.nodes);
    let has: BTreeSet<CallId> = nodes
        .filter_map(|n| if let NodeKind::Apply(call, _) = n.kind { Some(call) } else { None })
        .collect();
    let mut out = Vec::new();
    for (i, law) in library.laws.iter().enumerate() {
        let left = calls(law, &law.left);
        let may = !options.fp.admits(law.error)
            && !matches!(law.origin, LawOrigin::Unfold)
            && !left.is_empty()
            && left.iter().all(|c| has.contains(c));
        if may {
            out.push(Barred {
                name: law.name.to_string(),
                class: law.error.to_string(),
                doc: law.doc.first().cloned().unwrap_or_default(),
                off: why_off(library, options, i as u32),
            });
        }
    }
    out
}

/// An operator of the target that is defined by others.
pub(in crate::explain) struct Joined {
    name: String,
    /// The operators of its definition.
    calls: BTreeSet<CallId>,
    /// How often its definition was found in the model.
    matches: usize,
    /// The law that puts it in the place of its definition.
    pub law: u32,
}

impl Joined {
    /// True if its definition was found in the model.
    pub fn is_found(&self) -> bool {
        self.matches > 0
    }

    /// True if its definition has this operator.
    pub fn has(&self, call: CallId) -> bool {
        self.calls.contains(&call)
    }
}

/// The operators of a target that are defined by others.
pub(in crate::explain) fn joined(
    o: &Optimized,
    library: &Library,
    prices: &TargetPrices<'_>,
) -> Vec<Joined> {
    let laws = library.laws.iter().enumerate().filter(|(_, l)| l.origin == LawOrigin::Fold);
    let one = laws.filter_map(|(i, law)| {
        library.find(&law.name).filter(|c| prices.permits(*c))?;
        let profile = o.explored.profiles.iter().find(|(own, _)| *own as usize == i);
        let matches = profile.map_or(0, |(_, p)| p.matches);
        let (name, law_calls) = (law.name.to_string(), calls(law, &law.left));
        Some(Joined { name, calls: law_calls, matches, law: i as u32 })
    });
    one.collect()
}

/// Operators that are named.
const NAMED: usize = 3;

/// What is said of the operators that are defined by both of two; nothing if there are none.
pub(in crate::explain) fn of_both(all: &[Joined], a: CallId, b: CallId) -> Option<String> {
    let both = |j: &&Joined| j.calls.contains(&a) && j.calls.contains(&b);
    let told = |j: &Joined| match j.matches {
        0 => format!("`{}`, whose definition was found nowhere in the model", j.name),
        1 => format!("`{}`, whose definition was found once, but not here, or dearer", j.name),
        n => format!("`{}`, whose definition was found {n} times, but not here, or dearer", j.name),
    };
    let found: Vec<String> = all.iter().filter(both).take(NAMED).map(told).collect();
    (!found.is_empty()).then(|| found.join("; "))
}
