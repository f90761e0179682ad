//! Programs that hold both sides of a law at extents, types and attributes that are drawn from a seed.
//! Never says whether the sides are equal.

use crate::law::facts::LawFacts;
use crate::law::instance::Instance;
use crate::sample::draft::{ExtentStyle, RangePolicy};
use crate::sample::values::ElementStyle;
use crate::sample::{self, DrawOutcome, DrawTally};
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
                DrawOutcome::Instance(i) => Some(with_constants(&facts, *i, &mut rng)),
                DrawOutcome::Types(..) => None,
            }
        })
        .collect()
}

/// The program of an instance in which what the law wants constant is so.
fn with_constants(facts: &LawFacts, instance: Instance, rng: &mut Random) -> Program {
    let sample = sample::fill(facts, instance, ElementStyle::Normal, None, Some(1), rng);
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
