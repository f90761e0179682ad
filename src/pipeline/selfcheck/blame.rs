//! Finds the laws to blame: evaluates every equation of a result's proof on the inputs on which the result is
//! wrong.

use super::report::InputSet;
use super::verdict::{Rule, Runs};
use super::{Check, Failure, INTERPRETED, beside, verdict};
use crate::error::Error;
use crate::pipeline::result::Optimized;
use mlc_backends::reference::{Array, Precision, Reference};
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_explore::{Proof, ProofStep, Reason};
use mlc_extract::resources::operations;
use mlc_verify::random_inputs::{self, Style};
use std::collections::HashMap;
use std::sync::Arc;

fn unproven() -> Error {
    Error::unexpected("the log does not prove the result")
}

/// A step of a proof that numbers contradict.
pub struct Contradiction {
    /// The step.
    pub step: ProofStep,
    /// By how much.
    pub verdict: String,
}

/// Holds every step of the proof against numbers: the number of steps, and those that do not hold.
pub fn replay(
    o: &Optimized,
    library: &Arc<Library>,
    seed: u64,
    threads: usize,
) -> Result<(usize, Vec<Contradiction>), Error> {
    let proof = o.explored.prove(&o.extracted).ok_or_else(unproven)?;
    let program = o.explored.replay(&proof)?;
    let inputs =
        random_inputs::inputs(&program, library, seed).ok_or_else(Error::unsized_inputs)?;
    let values = super::run(&program, library, &inputs, threads)?;
    let mut wrong = Vec::new();
    for (&step, sides) in proof.steps.iter().zip(values.chunks_exact(2)) {
        let verdict = match super::difference(&sides[0], &sides[1]) {
            Ok(e) if e <= 1e-3 => continue,
            Ok(e) => format!("relative error {e:.1e}"),
            Err(e) => e.to_string(),
        };
        wrong.push(Contradiction { step, verdict });
    }
    Ok((proof.steps.len(), wrong))
}

/// The reference interpreter may do that many times the work of a check once something is known to be wrong.
const THOROUGH: f64 = 20.0;

/// A law that is to blame, with the equation that shows it.
#[derive(Clone, Debug)]
pub struct Blamed {
    /// Its name.
    pub law: String,
    /// What it replaced.
    pub left: String,
    /// By what.
    pub right: String,
}

/// The law of an equation that does not hold on the inputs of a failure. Of the equations in the proof only the
/// first that fails is looked at: what later ones matched may rest on it. The same is true of that one and
/// of equations beneath it which the proof does without, so the first of these that fails is the one.
pub fn blame(o: &Optimized, check: &Check<'_>, failure: &Failure) -> Result<Option<Blamed>, Error> {
    let proof = o.explored.prove(&o.extracted).ok_or_else(unproven)?;
    let Some(mut step) = first_wrong(o, check, failure, &proof, false)? else { return Ok(None) };
    let beneath = o.explored.beneath(&step);
    if let Some(earlier) = first_wrong(o, check, failure, &beneath, true)? {
        step = earlier;
    }
    let Reason::Law(law) = step.reason else { return Ok(None) };
    Ok(Some(Blamed {
        law: check.library.laws[law as usize].name.to_string(),
        left: o.explored.term(step.left),
        right: o.explored.term(step.right),
    }))
}

/// The first equation of a law that does not hold; none if `bounded` and the reference interpreter would take too long.
fn first_wrong(
    o: &Optimized,
    check: &Check<'_>,
    failure: &Failure,
    proof: &Proof,
    bounded: bool,
) -> Result<Option<ProofStep>, Error> {
    let program = o.explored.replay(proof)?;
    let affordable = operations(&program, check.library) <= THOROUGH * INTERPRETED;
    if bounded && !affordable {
        return Ok(None);
    }
    let inputs = inputs(&program, &o.source, check, &failure.set)?;
    if !check.holds_all(&program, &inputs) {
        return Ok(None);
    }
    let moved = beside(&inputs, check.seed);
    let plan = check.plan(&program);
    let mut runs = check.runs(&plan, &[&inputs, &moved])?.into_iter();
    let (Some(Ok(here)), Some(Ok(there))) = (runs.next(), runs.next()) else {
        return Ok(None);
    };
    let interpreted = |precision: Precision, inputs: &[Tensor]| match affordable {
        true => {
            let reference = Reference { precision, ..Reference::default() };
            reference.run_values(&program, check.library, inputs).ok()
        }
        false => None,
    };
    let (truth, beside_truth) =
        (interpreted(Precision::F64, &inputs), interpreted(Precision::F64, &moved));
    let disturbed = interpreted(Precision::Disturbed(check.seed), &inputs);
    let rule = Rule { overflows: true, ..check.rule(&program) };
    let (truth, beside_truth) = (truth.as_deref(), beside_truth.as_deref());
    // What the law replaced is the source, what it put there the result.
    let sides = |i: usize, truth: Option<&[Array]>, here: &[Tensor], moved: &[Tensor]| {
        let (left, right) = (2 * i, 2 * i + 1);
        let runs = Runs {
            truth: truth.map(|t| &t[left]),
            source: &here[left],
            moved: Some(&moved[left]),
            disturbed: disturbed.as_ref().map(|d| &d[left]),
            result: &here[right],
        };
        verdict(&runs, &rule)
    };
    let is_wrong = |i: usize| {
        let (first, second) =
            (sides(i, truth, &here, &there), sides(i, beside_truth, &there, &here));
        first.wrong.iter().any(|w| second.is_wrong(w.at))
    };
    let laws = (0..proof.steps.len()).filter(|&i| matches!(proof.steps[i].reason, Reason::Law(_)));
    Ok(laws.into_iter().find(|&i| is_wrong(i)).map(|i| proof.steps[i]))
}

/// The failure's inputs for the program of a proof; a program whose repeated block was explored once has
/// further inputs that stand for values inside, which are drawn in the same style.
fn inputs(
    program: &Program,
    source: &Program,
    check: &Check<'_>,
    set: &InputSet,
) -> Result<Vec<Tensor>, Error> {
    let mut inputs = set.inputs.clone();
    if program.inputs.len() > inputs.len() {
        let mut symbols: HashMap<String, i64> = HashMap::new();
        for ((_, ty), t) in source.inputs.iter().zip(&set.inputs) {
            for (e, &n) in ty.shape.iter().zip(t.shape()) {
                for s in e.symbols() {
                    if *e == mlc_dsl::ir::Extent::sym(&s) {
                        symbols.insert(s.to_string(), n as i64);
                    }
                }
            }
        }
        let style = set.style.unwrap_or(Style::Ordinary);
        let drawn = random_inputs::styled(program, check.library, style, check.seed, &symbols)
            .ok_or_else(Error::unsized_inputs)?;
        inputs.extend(drawn.into_iter().skip(set.inputs.len()));
    }
    Ok(inputs)
}
