//! Programs that hold both sides of a law, or its left side, at extents, types and attributes that are drawn from a seed.
//! Never says whether the sides are equal.

use crate::conditions::alternatives;
use crate::law::facts::{Conjunct, LawFacts};
use crate::law::instance::Instance;
use crate::sample::draft::{ExtentStyle, RangePolicy};
use crate::sample::values::ElementStyle;
use crate::sample::{self, DrawOutcome, DrawTally};
use mlc_dsl::expr::Expr;
use mlc_dsl::ir::{NodeKind, Program};
use mlc_dsl::library::{Law, Library};
use mlc_dsl::random::Random;

/// Programs whose outputs are those of a law's left side, then as many of its right side; fewer than `count`, or none, where the
/// conditions are hard to meet. Axes have extents of their own; what the law wants constant is a constant, everything else an input.
pub fn instances(library: &Library, law: &Law, count: usize, seed: u64) -> Vec<Program> {
    let facts = LawFacts::of(library, law);
    let mut rng = Random::of_name(seed, &law.name);
    let mut tally = DrawTally::default();
    let wanted = vec![true; facts.conjuncts.len()];
    let styles = [ExtentStyle::Distinct, ExtentStyle::Roomy];
    (0..count)
        .filter_map(|i| {
            let style = Some(styles[i % styles.len()]);
            let drawn =
                sample::draw(&facts, &wanted, style, RangePolicy::No, &mut tally, &mut rng)?;
            match drawn {
                DrawOutcome::Instance(i) => {
                    Some(with_constants(&facts, *i, (ElementStyle::Normal, None), &mut rng))
                }
                DrawOutcome::Types(..) => None,
            }
        })
        .collect()
}

/// Draws left sides of one law.
pub struct LeftSides<'l> {
    /// The law under each way to meet its conditions.
    ways: Vec<LawFacts<'l>>,
}

/// Draws that are tried where the right side has another type than the left one.
const TYPED: usize = 4;

impl<'l> LeftSides<'l> {
    /// Those of a law.
    pub fn of(library: &'l Library, law: &'l Law) -> LeftSides<'l> {
        let ways = alternatives::ways(&law.conditions);
        let of = |c: &Vec<Expr>| LawFacts::with_conditions(library, law, c);
        LeftSides { ways: ways.iter().map(of).collect() }
    }

    /// A program whose outputs are those of the left side, at extents, types and attributes of every kind that the law admits. What
    /// a condition says of elements is true of constants; everything else is an input. With `broken`, one of the
    /// conditions does not hold, or nothing is a constant.
    ///
    /// # Errors
    /// None was found; the most frequent reason.
    pub fn draw(&self, broken: bool, seed: u64) -> Result<Program, String> {
        let mut rng = Random::of_name(seed, &self.ways[0].law.name);
        let facts = &self.ways[rng.below(self.ways.len())];
        let mut tally = DrawTally::default();
        let mut wanted = vec![true; facts.conjuncts.len()];
        let broken = broken.then(|| rng.below(wanted.len() + 1));
        if let Some(w) = broken.and_then(|i| wanted.get_mut(i)) {
            *w = false;
        }
        let ranges = match rng.below(4) {
            0 if !facts.defined() => RangePolicy::Any(rng.below(64)),
            _ => RangePolicy::No,
        };
        let mut instance = None;
        for _ in 0..TYPED {
            let extents = extents(facts, &mut rng);
            match sample::draw(facts, &wanted, extents, ranges, &mut tally, &mut rng) {
                Some(DrawOutcome::Instance(i)) => {
                    instance = Some(*i);
                    break;
                }
                Some(DrawOutcome::Types(i, _)) => instance = Some(*i),
                None => break,
            }
        }
        let mut instance = instance.ok_or_else(|| tally.most_frequent())?;
        let outputs = instance.outputs;
        instance.given = match broken == Some(wanted.len()) {
            true => vec![false; facts.given.len()],
            false => constants(facts),
        };
        let broken = broken.filter(|i| *i < wanted.len());
        let mut program = with_constants(facts, instance, (rng.pick(ELEMENTS), broken), &mut rng);
        program.outputs.truncate(outputs);
        Ok(program.pruned())
    }
}

/// Extents of a left side; one in seven has no elements along one axis, each axis in turn.
fn extents(facts: &LawFacts, rng: &mut Random) -> Option<ExtentStyle> {
    let slots = sample::slots(facts);
    match rng.chance(0.15) && slots > 0 {
        true => Some(ExtentStyle::Empty(rng.below(slots))),
        false => rng.pick(EXTENTS),
    }
}

/// Per variable: whether a condition or a hint speaks of a constant or of elements there.
fn constants(facts: &LawFacts) -> Vec<bool> {
    let mut out = facts.given.clone();
    for c in &facts.conjuncts {
        if let Conjunct::Element(var, _) = c {
            out[*var] = true;
        }
    }
    out
}

/// Extents of drawn left sides; none leaves the choice to the draw.
const EXTENTS: &[Option<ExtentStyle>] = &[
    None,
    Some(ExtentStyle::Distinct),
    Some(ExtentStyle::Small),
    Some(ExtentStyle::Ones),
    Some(ExtentStyle::Few),
    Some(ExtentStyle::Equal),
    Some(ExtentStyle::Zeros),
    Some(ExtentStyle::Roomy),
];

/// Elements of constants in drawn left sides.
const ELEMENTS: &[ElementStyle] = &[
    ElementStyle::Normal,
    ElementStyle::Normal,
    ElementStyle::Integers,
    ElementStyle::Zeros,
    ElementStyle::Units,
    ElementStyle::Nan,
];

/// The program of an instance in which what the law wants constant is so.
fn with_constants(
    facts: &LawFacts,
    instance: Instance,
    (style, broken): (ElementStyle, Option<usize>),
    rng: &mut Random,
) -> Program {
    let sample = sample::fill(facts, instance, style, broken, Some(1), rng);
    let instance = sample.instance;
    let is_constant: Vec<bool> = instance.vars.iter().map(|&v| instance.given[v]).collect();
    let mut program = instance.program;
    // Inputs that stay are numbered anew.
    let place = |i: usize| is_constant[..i].iter().filter(|c| !**c).count() as u32;
    for node in &mut program.nodes {
        if let NodeKind::Input(i) = node.kind {
            let i = i as usize;
            node.kind = match is_constant[i] {
                true => NodeKind::Const(program.consts.intern(sample.inputs[i].clone())),
                false => NodeKind::Input(place(i)),
            };
        }
    }
    let mut is_constant = is_constant.iter();
    program.inputs.retain(|_| is_constant.next() == Some(&false));
    program
}
