//! Runs every spelling through the whole pipeline: written, read, imported, optimised, checked, compared.

use super::build::Build;
use super::choices::Choices;
use super::signature::Signature;
use super::{Family, Setup};
use mlc_onnx::{RawModel, import, read_onnx, write_onnx};
use mlc_rewrite::pipeline::{Fp, Optimized, Options, optimize};
use mlc_rewrite::show;
use std::collections::BTreeSet;
use std::path::Path;

/// A spelling that did not become the expected plan.
pub struct Failure {
    /// The setup and the decisions.
    pub which: String,
    /// The program as read.
    pub source: String,
    /// What became of it, or why nothing did.
    pub became: String,
    /// Which of the family's plans it is; 0 if it has none.
    pub plan: usize,
    /// The spelling as ONNX.
    pub model: RawModel,
}

/// What became of a family.
pub struct FamilyOutcome {
    /// How many different graphs were tried.
    pub spellings: usize,
    /// How many became the expected plan.
    pub equal: usize,
    /// Different plans, the reference's first.
    pub plans: Vec<(Signature, usize)>,
    /// Spellings that became another plan, or none.
    pub failures: Vec<Failure>,
}

/// A graph and the decisions that made it.
struct Spelling {
    model: RawModel,
    choices: Choices,
    unstable: bool,
}

fn spelling(family: &Family, setup: &Setup, mut choices: Choices) -> Spelling {
    let opset = family.opsets[choices.pick(family.opsets.len())];
    let mut g = Build::new(opset, setup.dtype, setup.symbolic, choices);
    let outputs = (family.build)(&mut g);
    let unstable = g.is_unstable();
    let (model, choices) = g.finish(&outputs, setup.dtype);
    Spelling { model, choices, unstable }
}

/// At most `most` different graphs of a family in one setup, the reference first: all where there are
/// few, a seeded sample where there are many.
fn spellings(family: &Family, setup: &Setup, most: usize) -> Vec<Spelling> {
    let mut out: Vec<Spelling> = Vec::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut keep = |s: Spelling, out: &mut Vec<Spelling>| {
        if seen.insert(format!("{:?}", s.model)) {
            out.push(s);
        }
    };
    let mut script = Some(vec![]);
    let mut all: Vec<Vec<usize>> = Vec::new();
    while let Some(s) = script.take()
        && all.len() <= 4 * most
    {
        script = spelling(family, setup, Choices::scripted(s.clone())).choices.successor();
        all.push(s);
    }
    if script.is_none() && all.len() <= 4 * most {
        for s in all {
            keep(spelling(family, setup, Choices::scripted(s)), &mut out);
        }
        // A sample that reaches every part of the enumeration.
        let step = out.len().div_ceil(most).max(1);
        return out.into_iter().step_by(step).collect();
    }
    keep(spelling(family, setup, Choices::default()), &mut out);
    for seed in 0..20 * most as u64 {
        if out.len() >= most {
            break;
        }
        keep(spelling(family, setup, Choices::random(seed)), &mut out);
    }
    out
}

/// How many different graphs a family has in one setup, counted up to `most` or so.
pub fn graphs(family: &Family, setup: &Setup, most: usize) -> usize {
    spellings(family, setup, most).len()
}

/// The options under which a spelling becomes its layer.
pub(super) fn admitting(unstable: bool, options: &Options) -> Options {
    let fp = if unstable { Fp::Approx } else { options.fp };
    Options { fp, ..options.clone() }
}

/// At most `most` different graphs of a family, in all its setups, and whether each is an unstable spelling.
pub fn models(family: &Family, most: usize) -> Vec<(RawModel, bool)> {
    let share = most.div_ceil(family.setups.len()).max(1);
    let of = |setup| spellings(family, setup, share).into_iter().map(|s| (s.model, s.unstable));
    family.setups.iter().flat_map(of).collect()
}

/// Writes, reads, imports and optimises a model with the self-check on.
fn pipeline(model: &RawModel, scratch: &Path, options: &Options) -> Result<Optimized, String> {
    let program = read(model, scratch)?;
    let optimized = optimize(program, crate::library(), options).map_err(|e| format!("{e:#}"))?;
    match optimized.report.notes.iter().find(|n| n.contains("turned off")) {
        Some(note) => Err(note.clone()),
        None => Ok(optimized),
    }
}

fn read(model: &RawModel, scratch: &Path) -> Result<mlc_dsl::ir::Program, String> {
    write_onnx(model, scratch).map_err(|e| format!("not written: {e}"))?;
    let raw = read_onnx(scratch).map_err(|e| format!("not read: {e}"))?;
    import(raw, crate::library()).map(|i| i.program).map_err(|e| format!("not imported: {e}"))
}

/// Runs at most `most` spellings of a family.
pub fn run(family: &Family, most: usize, scratch: &Path, options: &Options) -> FamilyOutcome {
    let mut out = FamilyOutcome { spellings: 0, equal: 0, plans: vec![], failures: vec![] };
    let share = most.div_ceil(family.setups.len()).max(1);
    for setup in family.setups {
        let mut reference: Option<Signature> = None;
        for s in spellings(family, setup, share) {
            out.spellings += 1;
            let result = pipeline(&s.model, scratch, &admitting(s.unstable, options));
            let (became, plan, equal) = match &result {
                Ok(o) => {
                    let sig = Signature::of(&o.plan, crate::library());
                    let first = reference.get_or_insert_with(|| sig.clone());
                    let kernels = sig.kernels.join(", ");
                    let equal = sig.same(first) && family.expect.contains(&kernels.as_str());
                    let text = show::program(&o.plan.program, crate::library(), "became");
                    let stop = &o.report.stop_reason;
                    let notes = o.report.notes.join("; ");
                    (
                        format!("{text}  kernels: {kernels} ({stop}) {notes}"),
                        note(&mut out.plans, sig),
                        equal,
                    )
                }
                Err(e) => (e.clone(), 0, false),
            };
            if equal {
                out.equal += 1;
                continue;
            }
            let source = match &result {
                Ok(o) => show::program(&o.source, crate::library(), "spelling"),
                Err(_) => read(&s.model, scratch)
                    .map_or_else(|e| e, |p| show::program(&p, crate::library(), "spelling")),
            };
            let digits: Vec<String> = s.choices.made().iter().map(|m| m.0.to_string()).collect();
            let which = format!("{} {:?} decisions {}", family.name, setup, digits.join(""));
            out.failures.push(Failure { which, source, became, plan, model: s.model });
        }
    }
    out
}

/// Counts a plan; returns its number, from 1.
fn note(plans: &mut Vec<(Signature, usize)>, sig: Signature) -> usize {
    match plans.iter().position(|p| p.0.same(&sig)) {
        Some(at) => {
            plans[at].1 += 1;
            at + 1
        }
        None => {
            plans.push((sig, 1));
            plans.len()
        }
    }
}
