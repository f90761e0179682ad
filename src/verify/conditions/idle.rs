//! Finds redundant conditions: each is violated in isolation; if the law still holds, the condition is idle.

use crate::compare::{SampleOutcome, has_pole as has_pole_at};
use crate::law::facts::Conjunct;
use crate::sample::draft::RangePolicy;
use crate::sample::values::ElementStyle;
use crate::sample::{self, DrawOutcome};
use crate::{Checker, Evidence};
use mlc_dsl::expr::Predicate;
use std::time::{Duration, Instant};

/// Samples taken to break one condition, and all conditions of a law.
const BREAKING: usize = 700;
const BREAKING_ALL: usize = 1400;

/// The elements beside a special value, one sample after the other.
const SPECIAL: [ElementStyle; 6] = [
    ElementStyle::Zeros,
    ElementStyle::Zeros,
    ElementStyle::Zeros,
    ElementStyle::Zeros,
    ElementStyle::Normal,
    ElementStyle::Integers,
];

/// Samples that break a condition, after which it is idle although there could be more.
const ENOUGH: usize = 64;

/// Work that is done to break all conditions of a law, in draws of attributes.
const WORK: usize = 40_000;

/// The outcome of violating one condition in isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakOutcome {
    /// The sides differ.
    Refutes,
    /// The right side has no type, or another condition no value.
    Forbids,
    /// The law still holds.
    Nothing,
    /// It cannot be broken.
    Impossible,
    /// Too few samples were taken to tell.
    Unknown,
}

impl Checker<'_, '_> {
    /// Breaks each condition alone; a law that still holds does not need it.
    pub(crate) fn break_conditions(&mut self, evidence: &mut Evidence) {
        let mut left = BREAKING_ALL;
        let end = self.work() + WORK;
        let conjuncts = self.facts.conjuncts.len();
        for i in 0..conjuncts {
            let text = self.facts.conjunct_text(i);
            let now = self.work();
            let share = end.saturating_sub(now) / (conjuncts - i);
            match self.break_condition(i, &mut left, now + share) {
                BreakOutcome::Refutes => {
                    evidence.refuting.push(text.clone());
                    evidence.needed.push(text);
                }
                BreakOutcome::Forbids => evidence.needed.push(text),
                BreakOutcome::Unknown => {}
                BreakOutcome::Nothing => self.warnings.push(format!(
                    "condition `{text}` is idle: the law also holds on the samples that break it"
                )),
                BreakOutcome::Impossible => self.warnings.push(format!(
                    "condition `{text}` is idle: no instance of the left side breaks it"
                )),
            }
        }
    }

    fn break_condition(&mut self, i: usize, left: &mut usize, end: usize) -> BreakOutcome {
        let mut wanted = vec![true; self.facts.conjuncts.len()];
        let mut met = BreakOutcome::Impossible;
        if matches!(self.facts.conjuncts[i], Conjunct::Static(_)) {
            wanted[i] = false;
        }
        let specials = self.specials_of(i);
        let (mut has_pole, mut broken, mut enough) = (false, 0, true);
        for k in 0..BREAKING {
            let late = Instant::now() > self.deadline + Duration::from_secs(2);
            if *left == 0 || late || self.work() > end {
                enough = broken >= ENOUGH;
                break;
            }
            *left -= 1;
            let mut rng = self.rng.fork();
            let before: usize = self.tally.right_refused.values().sum();
            let mut tally = std::mem::take(&mut self.tally);
            tally.refused.clear();
            // A number that no range has breaks a condition on it, beside zeros and beside other numbers.
            let special = specials.get(k / SPECIAL.len());
            let ranges = match special {
                Some(k) => RangePolicy::Only(*k),
                None if rng.chance(0.7) => RangePolicy::Any(rng.below(1000)),
                None => RangePolicy::No,
            };
            let extents = sample::emptied(self.facts, k);
            let drawn = sample::draw(self.facts, &wanted, extents, ranges, &mut tally, &mut rng);
            self.tally = tally;
            if self.tally.right_refused.values().sum::<usize>() > before {
                return BreakOutcome::Forbids;
            }
            match drawn {
                Some(DrawOutcome::Types(..)) => return BreakOutcome::Refutes,
                Some(DrawOutcome::Instance(instance)) => {
                    met = BreakOutcome::Nothing;
                    broken += 1;
                    let round = match &self.facts.conjuncts[i] {
                        Conjunct::Element(_, p) if p.asks == Predicate::Finite => {
                            ElementStyle::unbounded(rng.below(3))
                        }
                        _ if special.is_some() => SPECIAL[k % SPECIAL.len()],
                        _ => ElementStyle::of(rng.below(ElementStyle::COUNT)),
                    };
                    let (sample, trial) = sample::trial(
                        self.facts,
                        *instance,
                        round,
                        Some(i),
                        &mut self.tally,
                        &mut rng,
                    );
                    if let SampleOutcome::Differ(_) = trial {
                        return BreakOutcome::Refutes;
                    }
                    has_pole |= special.is_some() && has_pole_at(&self.facts.codes, &sample);
                }
                // What gives other conditions their meaning cannot be broken alone.
                None if self.tally.undecided() => return BreakOutcome::Forbids,
                None if special.is_some() => {}
                None if k >= 12 + specials.len() * SPECIAL.len()
                    && met == BreakOutcome::Impossible =>
                {
                    return met;
                }
                None => {}
            }
        }
        // At a pole nothing is held against a law: what keeps away from it is not idle.
        if has_pole || !enough { BreakOutcome::Unknown } else { met }
    }

    /// Special values of the attributes that a condition speaks of.
    fn specials_of(&self, i: usize) -> Vec<usize> {
        let Conjunct::Static(e) = &self.facts.conjuncts[i] else { return vec![] };
        let named = |name: &str| e.any(&mut |e| e.as_name().is_some_and(|n| **n == *name));
        let all = self.facts.specials.iter().enumerate();
        all.filter(|(_, (name, _))| named(name)).map(|(k, _)| k).collect()
    }
}
