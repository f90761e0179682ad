//! Proofs by polynomial identity testing: both sides of an instance are evaluated at random points of a prime field.
//!
//! If the sides were different rational functions of the inputs and of hashed values, they would differ
//! at a random point, except with a probability that the degrees bound (Schwartz and Zippel). So agreement proves
//! that the instance holds for all real numbers at which both sides are defined, up to that
//! probability. It says nothing about rounding, NaN and infinities, which samples cover, and nothing
//! about other extents and attributes than those of the instance.

use super::prime_field::{Field, FieldElement, P, POLE};
use crate::law::facts::{ElementRule, LawFacts};
use crate::law::instance::Instance;
use crate::sample::draft::{ExtentStyle, RangePolicy};
use crate::sample::{self, DrawOutcome, DrawTally};
use mlc_backends::reference::{Element, Lifted, lift};
use mlc_dsl::ir::{DType, Program};
use mlc_dsl::library::ErrorClass;
use mlc_dsl::random::Random;
use serde::Serialize;

/// How a law that holds is known to hold.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Exactness {
    /// Both sides are equal for all extents, attributes and numbers of axes: as functions of real numbers, or of integers that
    /// wrap around.
    Everywhere,
    /// Both sides are the same function of real numbers on every instance that was tried.
    Proved {
        /// The probability that an instance is none all the same is below 2 to the minus this.
        bits: u32,
        /// Choices of extents, attributes and indices.
        instances: usize,
        /// Points per instance.
        points: usize,
        /// Why it is not shown for every rank and size.
        confined: String,
    },
    /// It is an instance of a schema that asks nothing of its operators, as this law is, which was checked.
    Shared {
        /// Name of the law that was checked.
        law: String,
    },
    /// It says what a name means: the body of a definition, on both sides.
    Defined,
    /// It is verified by samples only.
    Sampled {
        /// Why there is no proof.
        reason: String,
    },
}

/// What the field shows.
pub(crate) enum ProofOutcome {
    /// A proof, or why there is none.
    Exactness(Exactness),
    /// Both sides are rational functions, and different ones.
    Differ(Box<Instance>),
}

/// Instances that are proved, and draws for one.
const INSTANCES: usize = 3;
const DRAWS: usize = 12;

/// Operations for one evaluation of both sides.
const WORK: usize = 60_000;

/// Points go on until the error is below 2 to the minus this, but not beyond that many.
const BITS: f64 = 100.0;
const MOST_POINTS: usize = 6;

/// Integers are drawn from no more than that many.
const MOST_INDICES: i64 = 16;

/// Whole numbers below this are the same in the field.
const MOST_WHOLE: f64 = 9e15;

/// Evaluations whose point lies on a pole, or whose index does not exist.
const RETRIES: usize = 8;

enum FieldComparison {
    /// Bits of certainty and points.
    Agree(f64, usize),
    Differ {
        rational: bool,
    },
    Silent(String),
}

/// Tries to prove a law.
pub(crate) fn prove(facts: &LawFacts, rng: &mut Random) -> ProofOutcome {
    let silent =
        |reason: &str| ProofOutcome::Exactness(Exactness::Sampled { reason: reason.into() });
    if matches!(facts.law.error, ErrorClass::Approx { .. }) {
        return silent("it is approximate");
    }
    let mut proof: Option<(f64, usize, usize)> = None;
    let mut reason = "no instance of real numbers was found".to_string();
    for i in 0..INSTANCES {
        let style = if i < 2 { ExtentStyle::Few } else { ExtentStyle::Distinct };
        let Some(instance) = instance(facts, style, rng) else { continue };
        match compare(facts, &instance, rng) {
            FieldComparison::Agree(bits, points) => {
                let (least, n, most) = proof.unwrap_or((bits, 0, points));
                proof = Some((least.min(bits), n + 1, most.max(points)));
            }
            FieldComparison::Differ { rational: true } => {
                return ProofOutcome::Differ(Box::new(instance));
            }
            FieldComparison::Differ { rational: false } => {
                return silent("it is no identity of rational functions");
            }
            FieldComparison::Silent(why) => reason = why,
        }
    }
    match proof {
        Some((bits, instances, points)) => {
            let (bits, confined) = (bits as u32, String::new());
            ProofOutcome::Exactness(Exactness::Proved { bits, instances, points, confined })
        }
        None => silent(&reason),
    }
}

/// An instance whose numbers are floats, with elements.
fn instance(facts: &LawFacts, style: ExtentStyle, rng: &mut Random) -> Option<Instance> {
    let wanted = vec![true; facts.conjuncts.len()];
    for _ in 0..DRAWS {
        let mut tally = DrawTally::default();
        let drawn = sample::draw(facts, &wanted, Some(style), RangePolicy::No, &mut tally, rng);
        let Some(DrawOutcome::Instance(i)) = drawn else { continue };
        let fits =
            i.draft.dtypes.iter().all(|(name, d)| {
                d.is_float() || matches!(name.as_bytes().first(), Some(b'I' | b'B'))
            });
        let empty = |p: &Program| {
            let of = |t: &mlc_dsl::ir::Type| t.elements().is(0);
            p.nodes.iter().any(|n| n.types.iter().any(of))
        };
        if fits && !empty(&i.truth) {
            return Some(*i);
        }
    }
    None
}

fn compare(facts: &LawFacts, instance: &Instance, rng: &mut Random) -> FieldComparison {
    let (mut bits, mut points) = (0.0, 0);
    while bits < BITS && points < MOST_POINTS {
        let (field, values) = match evaluate(facts, instance, rng) {
            Ok(v) => v,
            Err(reason) => return FieldComparison::Silent(reason),
        };
        match agree(instance, &field, &values) {
            Ok(Some(more)) => bits += more,
            Ok(None) => return FieldComparison::Differ { rational: field.hashed == 0 },
            Err(reason) => return FieldComparison::Silent(reason),
        }
        points += 1;
    }
    FieldComparison::Agree(bits, points)
}

/// Both sides at a random point that lies on no pole.
fn evaluate(
    facts: &LawFacts,
    instance: &Instance,
    rng: &mut Random,
) -> Result<(Field, Vec<Lifted<FieldElement>>), String> {
    let mut reason = String::new();
    for _ in 0..RETRIES {
        let mut field = Field::at(rng.bits());
        let inputs = inputs(facts, instance, rng)?;
        match lift(&mut field, &instance.truth, facts.library, &inputs, WORK) {
            Ok(values) => return Ok((field, values)),
            Err(e) if e == POLE || e.contains("out of range") => reason = e,
            Err(e) => return Err(e),
        }
    }
    Err(reason)
}

fn inputs(
    facts: &LawFacts,
    instance: &Instance,
    rng: &mut Random,
) -> Result<Vec<Lifted<FieldElement>>, String> {
    let program = &instance.truth;
    let extents = program.inputs.iter().flat_map(|(_, ty)| &ty.shape);
    let least = extents.filter_map(|e| e.as_const()).filter(|e| *e > 0).min().unwrap_or(1);
    let rules = facts.element_rules(None, &instance.draft);
    let each = program.inputs.iter().zip(&instance.vars);
    each.map(|((_, ty), &var)| {
        let shape = ty.known_shape().ok_or("an extent is not known")?;
        let n: usize = shape.iter().product();
        let dtype = ty.dtype;
        let elements = elements(dtype, n, &rules[var], least, rng);
        Ok(Lifted { dtype, shape, elements })
    })
    .collect()
}

/// Variables in a floating type; else truth values or small indices.
fn elements(
    dtype: DType,
    n: usize,
    rule: &ElementRule,
    least: i64,
    rng: &mut Random,
) -> Vec<Element<FieldElement>> {
    // What the law asks for, near zero where that is a choice.
    let low = rule.low.map_or(0, |l| l.ceil() as i64);
    let high = rule.high.map_or(low.saturating_add(least - 1), |h| h.floor() as i64);
    let low = low.max(high.saturating_sub(MOST_INDICES));
    let only =
        rule.low.filter(|l| rule.high == Some(*l) && l.fract() == 0.0 && l.abs() < MOST_WHOLE);
    let one = |rng: &mut Random| match dtype {
        d if d.is_float() && only.is_some() => {
            Element::Number(FieldElement::whole(only.unwrap_or_default()))
        }
        d if d.is_float() => Element::Number(FieldElement::variable(1 + rng.bits() % (P - 1))),
        DType::Bool => Element::Int(rng.below(2) as i64),
        _ => Element::Int(rng.between(low, high)),
    };
    if rule.uniform { vec![one(rng); n] } else { (0..n).map(|_| one(rng)).collect() }
}

/// The bits of certainty if all outputs agree; `None` if some do not.
fn agree(
    instance: &Instance,
    field: &Field,
    values: &[Lifted<FieldElement>],
) -> Result<Option<f64>, String> {
    let (left, right) = values.split_at(instance.outputs);
    let mut degree = 1;
    for (l, r) in left.iter().zip(right) {
        if l.dtype.is_int() {
            return Err("its result is of integers".into());
        }
        for pair in l.elements.iter().zip(&r.elements) {
            let equal = match pair {
                (Element::Int(a), Element::Int(b)) => a == b,
                (Element::Number(a), Element::Number(b)) => {
                    degree = degree.max(a.apart(b));
                    a.value == b.value
                }
                (Element::Int(a), Element::Number(b)) | (Element::Number(b), Element::Int(a)) => {
                    degree = degree.max(b.top).max(b.bottom);
                    b.value == *a as u64
                }
            };
            if !equal {
                return Ok(None);
            }
        }
    }
    // Two hashes may also meet by chance, or because their arguments do at this point.
    let pairs = field.hashed as f64 * field.hashed as f64 / 2.0;
    let error = (degree as f64 + pairs * (2.0 * field.deepest as f64 + 1.0)) / P as f64;
    Ok(Some(-error.min(1.0).log2()))
}
