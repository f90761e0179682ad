//! Draws samples of a law.

pub(crate) mod attrs;
pub(crate) mod crossings;
pub(crate) mod draft;
pub(crate) mod repair;
pub(crate) mod special_values;
pub(crate) mod values;

use super::compare::{Sample, SampleOutcome, compare};
use super::law::facts::{Conjunct, LawFacts};
use super::law::instance::{self, Instance, InstanceRefusal};
use draft::{ExtentStyle, RangePolicy, SampleDraft};
use mlc_dsl::expr::AttrKind;
use mlc_dsl::ir::{Tensor, Type};
use mlc_dsl::library::ErrorClass;
use mlc_dsl::random::Random;
use std::collections::BTreeMap;
use values::{ElementDraw, ElementStyle, LONG, LawNumbers, SATURATED, SharedDraw};

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

/// Counts of what was met while drawing.
#[derive(Clone, Debug, Default)]
pub(super) struct DrawTally {
    /// Why drafts failed on the left side, with how often.
    pub refused: BTreeMap<String, usize>,
    /// Why right sides failed, with how often.
    pub right_refused: BTreeMap<String, usize>,
    /// Integers serve as indices.
    pub indices: bool,
}

impl DrawTally {
    /// Why most drafts failed.
    pub(super) fn most_frequent(&self) -> String {
        let all = self.refused.iter().chain(&self.right_refused);
        let most = all.max_by_key(|(_, n)| **n).map(|(reason, _)| reason.clone());
        most.unwrap_or_else(|| "no draft has an instance".into())
    }

    /// True if a condition had no value in some draft.
    pub(super) fn undecided(&self) -> bool {
        self.refused.keys().any(|r| r.starts_with(instance::UNDECIDED))
    }
}

/// An instance that was drawn.
pub(super) enum DrawOutcome {
    /// Both sides stand.
    Instance(Box<Instance>),
    /// Both sides stand with different types.
    Types(Box<Instance>, usize),
}

/// How one sample is to be drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplePlan {
    /// Extents, if special ones are asked for.
    pub extents: Option<ExtentStyle>,
    /// Whether declared ranges are left.
    pub ranges: RangePolicy,
    /// What elements look like.
    pub elements: ElementStyle,
}

impl SamplePlan {
    fn new(
        extents: Option<ExtentStyle>,
        ranges: RangePolicy,
        elements: ElementStyle,
    ) -> SamplePlan {
        SamplePlan { extents, ranges, elements }
    }
}

/// The plan of the `i`-th ordinary sample.
pub(super) fn plan_sample(facts: &LawFacts, i: usize) -> SamplePlan {
    // One sample in four leaves the declared ranges and domains, in every round of elements.
    // Definitions hold by definition, wherever their operators have a value.
    let stray = |leaves: bool| {
        if !facts.defined() && leaves { RangePolicy::Any(i / 4) } else { RangePolicy::No }
    };
    // One in six has no elements along one axis, each axis in turn: there sums are zero, whatever
    // stands beside them.
    let slots = slots(facts);
    let (empty, turn) = (i / 6, i % 6);
    if turn != 5 || slots == 0 {
        let round = ElementStyle::of(i - empty);
        // The more elements, the more numbers meet.
        let extents = (round == ElementStyle::Met).then_some(ExtentStyle::Roomy);
        return SamplePlan::new(extents, stray((i + i / 12).is_multiple_of(4)), round);
    }
    let again = empty / slots;
    SamplePlan::new(
        Some(ExtentStyle::Empty(empty % slots)),
        stray(again % 2 == 1),
        ElementStyle::of_empty(again),
    )
}

/// Samples that are taken of every law first, whatever the seed is: what has refuted laws before is not left to chance. Each special value of
/// an attribute, beside windows in paddings and beside nothing; each axis empty, beside NaN and infinities; parts beyond their ranges.
pub(super) fn directed_first(facts: &LawFacts) -> Vec<SamplePlan> {
    let mut out = Vec::new();
    if facts.defined() {
        return out;
    }
    for k in 0..facts.specials.len() {
        out.push(SamplePlan::new(
            Some(ExtentStyle::Padded),
            RangePolicy::Only(k),
            ElementStyle::Normal,
        ));
        out.push(SamplePlan::new(
            Some(ExtentStyle::Padded),
            RangePolicy::Only(k),
            ElementStyle::Zeros,
        ));
        out.push(SamplePlan::new(None, RangePolicy::Only(k), ElementStyle::Normal));
        out.push(SamplePlan::new(None, RangePolicy::Only(k), ElementStyle::Met));
    }
    let missing = |(_, (_, a)): &(usize, &(_, mlc_dsl::ir::Attr))| {
        a.as_f64().is_some_and(|v| v.is_nan() || v == f64::INFINITY)
    };
    let missing: Vec<usize> =
        facts.specials.iter().enumerate().filter(missing).map(|(k, _)| k).collect();
    for slot in 0..slots(facts) {
        let empty = Some(ExtentStyle::Empty(slot));
        for round in [ElementStyle::Missing, ElementStyle::Endless] {
            out.extend([SamplePlan::new(empty, RangePolicy::No, round); 2]);
        }
        out.extend(
            missing
                .iter()
                .map(|k| SamplePlan::new(empty, RangePolicy::Only(*k), ElementStyle::Normal)),
        );
    }
    if facts.parts {
        let beyond =
            SamplePlan::new(Some(ExtentStyle::Beyond), RangePolicy::No, ElementStyle::Normal);
        out.extend([beyond; 8]);
    }
    out
}

/// Samples that are taken last: what others refute, too, they would refute with rarer numbers. Parts of the integers that the law names;
/// numbers at which functions lose all digits of what they come near, and the largest and smallest; sums that depend on their order.
pub(super) fn directed_last(facts: &LawFacts) -> Vec<SamplePlan> {
    let mut out = Vec::new();
    if facts.defined() {
        return out;
    }
    if facts.parts && !facts.sizes.is_empty() {
        out.extend(
            [SamplePlan::new(Some(ExtentStyle::Named), RangePolicy::No, ElementStyle::Normal);
                NAMED],
        );
    }
    if facts.applies() {
        out.extend(saturated());
    }
    // Windows over long axes cost much, and each sees few elements.
    for round in [ElementStyle::Huge, ElementStyle::Zeros].into_iter().filter(|_| !facts.parts) {
        out.extend([SamplePlan::new(Some(ExtentStyle::Long), RangePolicy::No, round); ENDS]);
    }
    if facts.law.error == ErrorClass::Exact && facts.sums() {
        out.extend(
            [SamplePlan::new(Some(ExtentStyle::Long), RangePolicy::No, ElementStyle::Absorbing);
                ABSORBING],
        );
    }
    out
}

/// Samples where functions saturate.
pub(super) fn saturated() -> impl Iterator<Item = SamplePlan> {
    (0..2 * SATURATED)
        .map(|turn| SamplePlan::new(None, RangePolicy::No, ElementStyle::Saturated(turn)))
}

/// What can be empty: every axis, every segment, and the shapes among the attributes.
pub(super) fn slots(facts: &LawFacts) -> usize {
    let shapes = facts.law.attrs.iter().any(|a| a.ty.kind == AttrKind::Shape);
    facts.axes.len() + facts.segs.len() + usize::from(shapes)
}

/// Extents of the `k`-th try to break a condition: every third lacks the elements along one axis.
pub(super) fn emptied(facts: &LawFacts, k: usize) -> Option<ExtentStyle> {
    let slots = slots(facts);
    (k % 3 == 2 && slots > 0).then(|| ExtentStyle::Empty(k / 3 % slots))
}

/// Conditions often exclude what is empty: where one is to be broken, that is drawn more often.
fn style(facts: &LawFacts, breaking: bool, rng: &mut Random) -> ExtentStyle {
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
    facts: &LawFacts,
    wanted: &[bool],
    extents: Option<ExtentStyle>,
    ranges: RangePolicy,
    tally: &mut DrawTally,
    rng: &mut Random,
) -> Option<DrawOutcome> {
    let breaking = wanted.contains(&false);
    // Of special values many fit no condition.
    let drafts = if matches!(ranges, RangePolicy::Only(_)) { FEW } else { DRAFTS };
    for i in 0..drafts {
        // What leaves its range may leave no instance, nor may what is asked for.
        let ranges = match ranges {
            // A special number that the conditions exclude gives its turn to another.
            RangePolicy::Any(turn) if i < DRAFTS / 2 => RangePolicy::Any(turn + i),
            RangePolicy::Only(k) => RangePolicy::Only(k),
            RangePolicy::Any(_) | RangePolicy::No => RangePolicy::No,
        };
        let style = match extents {
            Some(s) if i < DRAFTS / 3 => s,
            _ => style(facts, breaking, rng),
        };
        let mut draft = SampleDraft::choose(facts, style, ranges, rng);
        let mut refused = false;
        for _ in 0..CHANGES {
            let (reason, fixes, attrs) = match instance::build(facts, &draft, wanted, rng) {
                Ok(i) => return Some(DrawOutcome::Instance(Box::new(i))),
                Err(InstanceRefusal::Types(i, output)) => {
                    return Some(DrawOutcome::Types(i, output));
                }
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
    facts: &LawFacts,
    instance: Instance,
    round: ElementStyle,
    broken: Option<usize>,
    index: Option<i64>,
    rng: &mut Random,
) -> Sample {
    let rules = facts.element_rules(broken, &instance.draft);
    let shared = SharedDraw::draw(rng);
    let numbers = facts.numbers_of(&instance.draft.attrs);
    let inputs = instance
        .program
        .inputs
        .iter()
        .zip(&instance.vars)
        .enumerate()
        .map(|(place, ((_, ty), &var))| {
            let shape = ty.known_shape().unwrap_or_default();
            // A predicate is broken by its own variable: the others must not blur what follows.
            let round = match broken.map(|i| &facts.conjuncts[i]) {
                Some(Conjunct::Element(own, _)) if *own != var && !round.ordinary() => {
                    rng.pick(&[ElementStyle::Normal, ElementStyle::Units])
                }
                _ => round,
            };
            let named = LawNumbers { numbers: &numbers, place };
            let draw = ElementDraw { style: round, shared, named };
            values::tensor(ty.dtype, &shape, &draw, &rules[var], index, rng)
        })
        .collect::<Vec<Tensor>>();
    Sample { instance, inputs, round }
}

/// Fills an instance and compares its sides; where integers turn out to be indices they are drawn anew.
pub(super) fn trial(
    facts: &LawFacts,
    instance: Instance,
    round: ElementStyle,
    broken: Option<usize>,
    tally: &mut DrawTally,
    rng: &mut Random,
) -> (Sample, SampleOutcome) {
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
        return (fill(facts, instance, round, broken, index, rng), SampleOutcome::Void);
    }
    loop {
        let sample = fill(facts, instance.clone(), round, broken, index, rng);
        let trial = compare(&facts.codes, facts.law.error, &sample);
        let SampleOutcome::Void = trial else { return (sample, trial) };
        index = next.next();
        if index.is_none() {
            return (sample, trial);
        }
        tally.indices = true;
    }
}
