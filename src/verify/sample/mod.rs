//! Draws samples of a law.

pub(crate) mod attrs;
pub(crate) mod draft;
pub(crate) mod repair;
pub(crate) mod special_values;
pub(crate) mod values;

use super::compare::{Sample, Trial, compare};
use super::law::facts::{Conjunct, Facts};
use super::law::instance::{self, Instance, InstanceRefusal};
use draft::{ExtentStyle, SampleDraft, Stray};
use mlc_dsl::expr::AttrKind;
use mlc_dsl::ir::{Tensor, Type};
use mlc_dsl::library::ErrorClass;
use mlc_dsl::random::Random;
use std::collections::BTreeMap;
use values::{LONG, Named, Round, SATURATED, Shared};

/// Drafts tried for one sample, and changes tried on one draft.
const DRAFTS: usize = 60;
const CHANGES: usize = 8;

/// Samples of laws that name integers, with parts, windows and steps of these.
const NAMED: usize = 12;

/// Samples at either end of the range: several numbers overflow alike, small ones are lost beside others.
const ENDS: usize = 12;

/// Samples of laws of sums that hold bit by bit, in which the order of summands decides.
const ABSORBING: usize = 12;

/// Drafts tried for a sample with a special value.
const FEW: usize = 6;

/// What drawing has met so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Why drafts failed on the left side, with how often.
    pub refused: BTreeMap<String, usize>,
    /// Why right sides failed, with how often.
    pub right_refused: BTreeMap<String, usize>,
    /// Integers serve as indices.
    pub indices: bool,
}

impl Tally {
    /// True if a condition had no value in some draft.
    pub(super) fn undecided(&self) -> bool {
        self.refused.keys().any(|r| r.starts_with(instance::UNDECIDED))
    }
}

/// A draw.
pub(super) enum Draw {
    /// Both sides stand.
    Instance(Box<Instance>),
    /// Both sides stand with different types.
    Types(Box<Instance>, usize),
}

/// What sample `i` looks like: extents, if special ones are asked for, whether ranges are left, and
/// elements.
pub(super) fn plan(facts: &Facts, i: usize) -> (Option<ExtentStyle>, Stray, Round) {
    // One sample in four leaves the declared ranges and domains, in every round of elements.
    // Definitions hold by definition, wherever their operators have a value.
    let stray =
        |leaves: bool| if !facts.defined() && leaves { Stray::Any(i / 4) } else { Stray::No };
    // One in six has no elements along one axis, each axis in turn: there sums are zero, whatever
    // stands beside them.
    let slots = slots(facts);
    let (empty, turn) = (i / 6, i % 6);
    if turn != 5 || slots == 0 {
        let round = Round::of(i - empty);
        // The more elements, the more numbers meet.
        let extents = (round == Round::Met).then_some(ExtentStyle::Roomy);
        return (extents, stray((i + i / 12).is_multiple_of(4)), round);
    }
    let again = empty / slots;
    (Some(ExtentStyle::Empty(empty % slots)), stray(again % 2 == 1), Round::of_empty(again))
}

/// Samples that are taken of every law first, whatever the seed is: what has refuted laws before is not left to chance. Each special value of
/// an attribute, beside windows in paddings and beside nothing; each axis empty, beside NaN and infinities; parts beyond their ranges.
pub(super) fn directed_first(facts: &Facts) -> Vec<(Option<ExtentStyle>, Stray, Round)> {
    let mut out = Vec::new();
    if facts.defined() {
        return out;
    }
    for k in 0..facts.specials.len() {
        out.push((Some(ExtentStyle::Padded), Stray::Only(k), Round::Normal));
        out.push((Some(ExtentStyle::Padded), Stray::Only(k), Round::Zeros));
        out.push((None, Stray::Only(k), Round::Normal));
        out.push((None, Stray::Only(k), Round::Met));
    }
    let missing = |(_, (_, a)): &(usize, &(_, mlc_dsl::ir::Attr))| {
        a.as_f64().is_some_and(|v| v.is_nan() || v == f64::INFINITY)
    };
    let missing: Vec<usize> =
        facts.specials.iter().enumerate().filter(missing).map(|(k, _)| k).collect();
    for slot in 0..slots(facts) {
        let empty = Some(ExtentStyle::Empty(slot));
        for round in [Round::Missing, Round::Endless] {
            out.extend([(empty, Stray::No, round), (empty, Stray::No, round)]);
        }
        out.extend(missing.iter().map(|k| (empty, Stray::Only(*k), Round::Normal)));
    }
    if facts.parts {
        let beyond = (Some(ExtentStyle::Beyond), Stray::No, Round::Normal);
        out.extend([beyond; 8]);
    }
    out
}

/// Samples that are taken last: what others refute, too, they would refute with rarer numbers. Parts of the integers that the law names;
/// numbers at which functions lose all digits of what they come near, and the largest and smallest; sums that depend on their order.
pub(super) fn directed_last(facts: &Facts) -> Vec<(Option<ExtentStyle>, Stray, Round)> {
    let mut out = Vec::new();
    if facts.defined() {
        return out;
    }
    if facts.parts && !facts.sizes.is_empty() {
        out.extend([(Some(ExtentStyle::Named), Stray::No, Round::Normal); NAMED]);
    }
    if facts.applies() {
        out.extend(saturated());
    }
    // Windows over long axes cost much, and each sees few elements.
    for round in [Round::Huge, Round::Zeros].into_iter().filter(|_| !facts.parts) {
        out.extend([(Some(ExtentStyle::Long), Stray::No, round); ENDS]);
    }
    if facts.law.error == ErrorClass::Exact && facts.sums() {
        out.extend([(Some(ExtentStyle::Long), Stray::No, Round::Absorbing); ABSORBING]);
    }
    out
}

/// Samples where functions saturate.
pub(super) fn saturated() -> impl Iterator<Item = (Option<ExtentStyle>, Stray, Round)> {
    (0..2 * SATURATED).map(|turn| (None, Stray::No, Round::Saturated(turn)))
}

/// What can be empty: every axis, every segment, and the shapes among the attributes.
fn slots(facts: &Facts) -> usize {
    let shapes = facts.law.attrs.iter().any(|a| a.ty.kind == AttrKind::Shape);
    facts.axes.len() + facts.segs.len() + usize::from(shapes)
}

/// Extents of the `k`-th try to break a condition: every third lacks the elements along one axis.
pub(super) fn emptied(facts: &Facts, k: usize) -> Option<ExtentStyle> {
    let slots = slots(facts);
    (k % 3 == 2 && slots > 0).then(|| ExtentStyle::Empty(k / 3 % slots))
}

/// Conditions often exclude what is empty: where one is to be broken, that is drawn more often.
fn style(facts: &Facts, breaking: bool, rng: &mut Random) -> ExtentStyle {
    if breaking && rng.chance(0.3) {
        return ExtentStyle::Zeros;
    }
    if breaking && rng.chance(0.2) {
        return ExtentStyle::Ones;
    }
    if facts.parts && rng.chance(0.4) {
        return ExtentStyle::Roomy;
    }
    match rng.below(20) {
        0..=6 => ExtentStyle::Distinct,
        7..=12 => ExtentStyle::Small,
        13..=14 => ExtentStyle::Ones,
        15..=16 => ExtentStyle::Equal,
        _ => ExtentStyle::Zeros,
    }
}

/// Draws an instance in which each conjunct holds as wanted, its extents as asked if there is one.
pub(super) fn draw(
    facts: &Facts,
    wanted: &[bool],
    (first, stray): (Option<ExtentStyle>, Stray),
    tally: &mut Tally,
    rng: &mut Random,
) -> Option<Draw> {
    let breaking = wanted.contains(&false);
    // Of special values many fit no condition.
    let drafts = if matches!(stray, Stray::Only(_)) { FEW } else { DRAFTS };
    for i in 0..drafts {
        // What leaves its range may leave no instance, nor may what is asked for.
        let stray = match stray {
            // A special number that the conditions exclude gives its turn to another.
            Stray::Any(turn) if i < DRAFTS / 2 => Stray::Any(turn + i),
            Stray::Only(k) => Stray::Only(k),
            Stray::Any(_) | Stray::No => Stray::No,
        };
        let style = match first {
            Some(s) if i < DRAFTS / 3 => s,
            _ => style(facts, breaking, rng),
        };
        let mut draft = SampleDraft::choose(facts, style, stray, rng);
        let mut refused = false;
        for _ in 0..CHANGES {
            let (reason, fixes, attrs) = match instance::build(facts, &draft, wanted, rng) {
                Ok(i) => return Some(Draw::Instance(Box::new(i))),
                Err(InstanceRefusal::Types(i, output)) => return Some(Draw::Types(i, output)),
                // Where the law is not applied nothing is learned: what its right side lacks is mended, too.
                Err(InstanceRefusal::Right(reason, fixes, attrs, _)) => {
                    if !refused {
                        *tally.right_refused.entry(reason).or_default() += 1;
                    }
                    refused = true;
                    (None, fixes, attrs)
                }
                Err(InstanceRefusal::Left(reason, fixes, attrs)) => (Some(reason), fixes, attrs),
            };
            if let Some(reason) = reason
                && (tally.refused.len() < 200 || tally.refused.contains_key(&reason))
            {
                *tally.refused.entry(reason).or_default() += 1;
            }
            let mut fixes = fixes;
            rng.shuffle(&mut fixes);
            // What is to be mended goes with the attributes chosen so far; other ones may be better.
            if rng.chance(0.7) {
                draft.keep(facts, attrs);
            }
            if !fixes.iter().any(|f| draft.apply(f, rng)) {
                break;
            }
        }
    }
    None
}

/// Elements for an instance.
pub(super) fn fill(
    facts: &Facts,
    instance: Instance,
    round: Round,
    broken: Option<usize>,
    index: Option<i64>,
    rng: &mut Random,
) -> Sample {
    let rules = facts.element_rules(broken, &instance.draft);
    let shared = Shared::draw(rng);
    let numbers = facts.numbers_of(&instance.draft.attrs);
    let inputs = instance
        .program
        .inputs
        .iter()
        .zip(&instance.vars)
        .enumerate()
        .map(|(place, ((_, ty), &var))| {
            let named = Named { numbers: &numbers, place };
            let shape = ty.known_shape().unwrap_or_default();
            // A predicate is broken by its own variable: the others must not blur what follows.
            let round = match broken.map(|i| &facts.conjuncts[i]) {
                Some(Conjunct::Element(own, _)) if *own != var && !round.ordinary() => {
                    rng.pick(&[Round::Normal, Round::Units])
                }
                _ => round,
            };
            values::tensor(ty.dtype, &shape, (round, shared, named), &rules[var], index, rng)
        })
        .collect::<Vec<Tensor>>();
    Sample { instance, inputs, round }
}

/// Fills an instance and compares its sides; where integers turn out to be indices they are drawn anew.
pub(super) fn trial(
    facts: &Facts,
    instance: Instance,
    round: Round,
    broken: Option<usize>,
    tally: &mut Tally,
    rng: &mut Random,
) -> (Sample, Trial) {
    let mut extents: Vec<i64> = instance
        .program
        .inputs
        .iter()
        .flat_map(|(_, ty)| ty.shape.iter().filter_map(|e| e.as_const()))
        .filter(|&e| e > 0)
        .collect();
    extents.sort_unstable();
    extents.dedup();
    let longest = extents.last().copied();
    rng.shuffle(&mut extents);
    // An axis is long only to be indexed up to its end.
    extents.sort_by_key(|&e| e < LONG || Some(e) != longest);
    extents.push(1);
    // Where there is nothing, an index may be read that names nothing.
    let nothing = instance.program.inputs.iter().any(|(_, ty)| ty.shape.iter().any(|e| e.is(0)));
    let mut index = (tally.indices && !nothing).then(|| extents[0]);
    let mut next = extents.into_iter();
    let rules = facts.element_rules(broken, &instance.draft);
    let inputs = instance.program.inputs.iter().zip(&instance.vars);
    let none = |((_, ty), var): (&(String, Type), &usize)| {
        !ty.elements().is(0) && !rules[*var].admits_some(ty.dtype)
    };
    if inputs.into_iter().any(none) {
        return (fill(facts, instance, round, broken, index, rng), Trial::Void);
    }
    loop {
        let sample = fill(facts, instance.clone(), round, broken, index, rng);
        let trial = compare(&facts.codes, facts.law.error, &sample);
        let Trial::Void = trial else { return (sample, trial) };
        index = next.next();
        if index.is_none() {
            return (sample, trial);
        }
        tally.indices = true;
    }
}
