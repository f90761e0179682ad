//! The law verifier: tests every law on samples with the float64 reference interpreter, and tries to prove it.
//!
//! A law is true if both sides agree in f64 on every well-typed instance that meets its conditions; it
//! keeps its error class if the error of the right side then stays within the bounds of the class. `when`
//! is ignored: a profitability hint must not be needed for soundness. Every condition is violated in isolation and must then
//! yield a counterexample. Declared ranges and domains are not conditions: a share of the samples lies outside
//! them. Never refers to an operator by name, and never trusts an error bound.

pub mod commutation_table;
mod compare;
mod conditions;
mod declarations;
mod instances;
mod law;
mod lint;
mod proof;
pub mod random_inputs;
mod report;
mod sample;

pub use conditions::infer::Proposal;
pub use declarations::{body_programs, declarations};
pub use instances::{LeftSides, instances};
pub use lint::{Lint, lint};
pub use proof::identity_testing::Exactness;
pub use report::counterexample_model::CounterexampleModel;
pub use report::{CheckReport, Counterexample, Reported, TensorText};

use compare::rounding_error::RoundingErrors;
use compare::{BrokenPromise, SampleOutcome};
use conditions::infer::FailingSamples;
use law::facts::LawFacts;
use mlc_dsl::expr::Expr;
use mlc_dsl::library::{ErrorClass, Law, LawOrigin, Library};
use mlc_dsl::random::Random;
use proof::identity_testing::ProofOutcome;
use sample::draft::SampleDraft;
use sample::values::ElementStyle;
use sample::{DrawOutcome, DrawTally};
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How thoroughly laws are checked.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// The same seed gives the same samples.
    pub seed: u64,
    /// Samples per law; of a definition's own laws a few are enough, see `DEFINED`.
    pub samples: usize,
    /// No further samples of a law are drawn after that many milliseconds: a safety net, which alone
    /// can make verdicts depend on the machine.
    pub time_ms: u64,
    /// Laws checked at a time; results do not depend on it.
    pub threads: usize,
    /// Search for the smallest counterexample and for a condition that makes a false law true, and for
    /// conditions that a true one does not need.
    pub explain: bool,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions { seed: 0, samples: 250, time_ms: 60_000, threads: 2, explain: true }
    }
}

/// What is found about a law.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Whether it holds.
    pub outcome: Outcome,
    /// What is suspicious without being false.
    pub warnings: Vec<String>,
    /// The work of sampling, in draws of attributes; the same on every machine.
    #[serde(skip)]
    pub work: usize,
}

/// Whether a law holds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Outcome {
    /// No sample is a counterexample.
    Holds(Evidence),
    /// A sample is a counterexample.
    Fails(Box<Counterexample>),
    /// Its left side has no instance under its conditions, or its right side has none there: it can
    /// never fire.
    NoSample {
        /// The most frequent reasons.
        reason: String,
    },
}

/// What was sampled of a law that holds.
#[derive(Clone, Debug, Serialize)]
pub struct Evidence {
    /// Samples on which both sides agree.
    pub samples: usize,
    /// Samples whose left side had no value, e.g. an index out of range.
    pub void: usize,
    /// Per working type: how far each side strays from the truth, relative to the largest element.
    #[serde(rename = "damage")]
    pub rounding_errors: Vec<WorstRoundingError>,
    /// The conditions that are needed, as breaking them alone showed.
    pub needed: Vec<String>,
    /// Those among them without which the sides differ.
    pub refuting: Vec<String>,
    /// Whether it is proved, or rests on samples.
    pub exactness: Exactness,
}

impl Evidence {
    /// Of no samples.
    fn of(exactness: Exactness) -> Evidence {
        let (samples, void) = (0, 0);
        Evidence {
            samples,
            void,
            rounding_errors: vec![],
            needed: vec![],
            refuting: vec![],
            exactness,
        }
    }
}

/// Rounding errors in one working type, relative to the largest element: of the sample where the right side
/// errs most beside the left.
#[derive(Clone, Debug, Serialize)]
pub struct WorstRoundingError {
    /// The working type: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// Of the left side.
    pub left: f64,
    /// Of the right side, beyond what the error class allows.
    pub right: f64,
    /// How many times the right side's is the left's and one unit of roundoff.
    pub growth: f64,
}

/// A definition's own laws hold by definition, and one instance of a schema shows others: samples only show that they can be
/// applied, with the types that they declare. One in so many is taken.
const DEFINED: usize = 20;

/// A law under conditions that are met in several ways has up to so many times the samples.
const MORE: usize = 3;

/// Draws without a sample after which a way to meet the conditions is held to be none.
const MISSES: usize = 5;

/// Drafts of samples that are looked at again with open extents.
const KEPT: usize = 120;

/// Work after which no further samples of a law are drawn, in draws of attributes.
const MOST_WORK: usize = 600_000;

/// Checks one law.
pub fn check_law(library: &Library, law: &Law, options: &CheckOptions) -> Verdict {
    checked(library, law, None, options)
}

/// Checks a law, of which another instance of its schema, if one is named, shows that it holds.
fn checked(library: &Library, law: &Law, shown: Option<&str>, options: &CheckOptions) -> Verdict {
    verdict(library, law, shown, options).0
}

/// The sample that refutes a law, and what its right side asks for there.
type Refutation = (compare::Sample, Vec<Expr>);

fn verdict(
    library: &Library,
    law: &Law,
    shown: Option<&str>,
    options: &CheckOptions,
) -> (Verdict, Option<Refutation>) {
    let facts = LawFacts::of(library, law);
    let ways = match conditions::alternatives::ways(&law.conditions) {
        ways if ways.len() > 1 => {
            ways.iter().map(|c| LawFacts::with_conditions(library, law, c)).collect()
        }
        _ => vec![],
    };
    let mut c = Checker {
        facts: &facts,
        ways: if ways.is_empty() { vec![&facts] } else { ways.iter().collect() },
        rng: Random::of_name(options.seed, &law.name),
        tally: DrawTally::default(),
        deadline: Instant::now() + Duration::from_millis(options.time_ms),
        warnings: Vec::new(),
        options: *options,
        refuting: None,
        shown,
    };
    let samples = if facts.defined() || shown.is_some() {
        options.samples.div_ceil(DEFINED)
    } else {
        options.samples
    };
    let outcome = c.sample(samples);
    let work = c.work();
    (Verdict { outcome, warnings: c.warnings, work }, c.refuting)
}

struct Checker<'f, 'l> {
    facts: &'f LawFacts<'l>,
    /// The law under each way to meet its conditions.
    ways: Vec<&'f LawFacts<'l>>,
    rng: Random,
    tally: DrawTally,
    deadline: Instant,
    warnings: Vec<String>,
    options: CheckOptions,
    refuting: Option<Refutation>,
    /// The law that shows this one.
    shown: Option<&'f str>,
}

impl<'f, 'l> Checker<'f, 'l> {
    fn sample(&mut self, samples: usize) -> Outcome {
        if self.facts.matches_all() {
            let reason =
                "its left side is a variable or a number, which stands for everything".into();
            return Outcome::NoSample { reason };
        }
        let mut evidence = Evidence::of(Exactness::Sampled { reason: String::new() });
        let mut errors = RoundingErrors::new(self.facts.law.error);
        let mut drafts = Vec::new();
        let mut missed = vec![(0, false); self.ways.len()];
        let (first, last) = match self.shown {
            Some(_) => (vec![], vec![]),
            None => (sample::directed_first(self.facts), sample::directed_last(self.facts)),
        };
        let samples = samples * self.ways.len().min(MORE);
        let each = samples.div_ceil(self.ways.len());
        let plans = (first.len() + each + last.len()) * self.ways.len();
        let (mut refused, mut long) = (0, 0);
        for i in 0..plans {
            if self.work() > MOST_WORK {
                self.warnings.push(format!(
                    "no more than {i} of {plans} samples were taken: they take too much work"
                ));
                break;
            }
            if Instant::now() > self.deadline {
                self.warnings.push(format!("time ran out after {i} of {plans} samples"));
                break;
            }
            let mut rng = self.rng.fork();
            let way = i % self.ways.len();
            let facts = self.ways[way];
            if missed[way] == (MISSES, false) {
                continue;
            }
            let wanted = vec![true; facts.conjuncts.len()];
            let turn = i / self.ways.len();
            let special = match turn.checked_sub(first.len() + each) {
                Some(turn) => last.get(turn).copied(),
                None => first.get(turn).copied(),
            };
            let plan = special.unwrap_or_else(|| sample::plan_sample(facts, turn - first.len()));
            let before = self.refused();
            let drawn =
                sample::draw(facts, &wanted, plan.extents, plan.ranges, &mut self.tally, &mut rng);
            // What special values are refused for says nothing of ordinary ones.
            refused += if special.is_some() { 0 } else { self.refused() - before };
            let instance = match drawn {
                Some(DrawOutcome::Instance(i)) => *i,
                Some(DrawOutcome::Types(i, output)) => {
                    let (sample, mismatch) = report::shrink::type_mismatch(*i, output);
                    return self.fails(facts, sample, mismatch, vec![]);
                }
                None if special.is_some() => continue,
                None => {
                    missed[way].0 = MISSES.min(missed[way].0 + 1);
                    if missed.iter().all(|m| *m == (MISSES, false)) {
                        return self.no_sample();
                    }
                    continue;
                }
            };
            missed[way].1 = true;
            let (sample, trial) =
                sample::trial(facts, instance, plan.elements, None, &mut self.tally, &mut rng);
            match trial {
                SampleOutcome::Void => evidence.void += 1,
                SampleOutcome::TooLong => {
                    long += 1;
                    if long == MISSES && evidence.samples == 0 {
                        return self.too_long();
                    }
                }
                SampleOutcome::Agree(of_sample) => {
                    evidence.samples += 1;
                    errors.note(&sample, of_sample);
                }
                SampleOutcome::Differ(mismatch) => {
                    return self.fails(facts, sample, *mismatch, vec![]);
                }
            }
            if drafts.len() < KEPT {
                drafts.push((way, sample.instance.draft));
            }
        }
        // Empty tensors take no steps.
        if long > evidence.samples {
            return self.too_long();
        }
        let Some((_, first)) = drafts.first() else { return self.no_sample() };
        if evidence.samples == 0 {
            let reason = "the left side had a value in no sample".to_string();
            return Outcome::NoSample { reason };
        }
        if refused > 10 * (evidence.samples + evidence.void) {
            return self.no_sample();
        }
        if let Some((sample, message)) = errors.excess() {
            let mismatch = compare::furthest(self.facts.library, &sample, message);
            self.refuting = Some((sample.clone(), vec![]));
            return Outcome::Fails(Box::new(Counterexample::of(self.facts, &sample, &mismatch)));
        }
        self.warnings.extend(errors.warnings());
        evidence.rounding_errors = errors.summary();
        if refused > samples
            && let Some((reason, _)) = self.tally.right_refused.iter().max_by_key(|(_, n)| **n)
        {
            self.warnings.push(format!(
                "the right side is ill-typed on {refused} instances of the left side ({reason})"
            ));
        }
        if self.facts.law.origin != LawOrigin::Unfold {
            self.warnings.extend(proof::symbolic::check(self.facts, first));
        }
        let crossing = sample::crossings::refute(&self.ways, &drafts, &mut self.rng.fork());
        if let Some((facts, sample, mismatch)) = crossing {
            return self.fails(facts, sample, mismatch, vec![]);
        }
        if let Some((facts, found)) = self.open(&drafts) {
            return self.fails(facts, found.sample, found.mismatch, found.guards);
        }
        let mut rng = self.rng.fork();
        evidence.exactness = match (self.facts.defined(), self.shown) {
            (true, _) => Exactness::Defined,
            (false, Some(by)) => {
                evidence.exactness = Exactness::Shared { law: by.to_string() };
                return Outcome::Holds(evidence);
            }
            (false, None) => match self.prove(&mut rng) {
                Ok(exactness) => exactness,
                Err((facts, instance)) => return self.differ(facts, *instance, &mut rng),
            },
        };
        if self.options.explain {
            self.break_conditions(&mut evidence);
        }
        Outcome::Holds(evidence)
    }

    /// A sample on which the law fires if its extents are open, but does not hold.
    fn open(
        &mut self,
        drafts: &[(usize, SampleDraft)],
    ) -> Option<(&'f LawFacts<'l>, proof::open_extents::OpenExtentsRefutation)> {
        if self.facts.defined() {
            return None;
        }
        let mut rng = self.rng.fork();
        for (way, facts) in self.ways.clone().into_iter().enumerate() {
            let own: Vec<SampleDraft> =
                drafts.iter().filter(|(w, _)| *w == way).map(|(_, d)| d.clone()).collect();
            let found = proof::open_extents::refute(facts, &own, &mut self.tally, &mut rng);
            if let Some(found) = found {
                return Some((facts, found));
            }
        }
        None
    }

    /// How the law holds; or one way to meet its conditions in which it does not.
    fn prove(
        &self,
        rng: &mut Random,
    ) -> Result<Exactness, (&'f LawFacts<'l>, Box<law::instance::Instance>)> {
        let mut found = None;
        let everywhere =
            self.ways.iter().try_for_each(|facts| proof::every_size::prove(facts, &mut rng.fork()));
        for facts in &self.ways {
            match proof::identity_testing::prove(facts, rng) {
                ProofOutcome::Differ(instance) => return Err((facts, instance)),
                ProofOutcome::Exactness(sampled @ Exactness::Sampled { .. }) => {
                    found = Some(sampled);
                }
                ProofOutcome::Exactness(proved) => found = found.or(Some(proved)),
            }
        }
        Ok(match (everywhere, found) {
            (Ok(()), _) if !self.is_approximate() => Exactness::Everywhere,
            (Err(confined), Some(Exactness::Proved { bits, instances, points, .. })) => {
                Exactness::Proved { bits, instances, points, confined }
            }
            (_, found) => found.unwrap_or(Exactness::Sampled { reason: String::new() }),
        })
    }

    fn is_approximate(&self) -> bool {
        matches!(self.facts.law.error, ErrorClass::Approx { .. })
    }

    fn fails(
        &mut self,
        facts: &LawFacts<'_>,
        sample: compare::Sample,
        mismatch: compare::Mismatch,
        guards: Vec<Expr>,
    ) -> Outcome {
        let (sample, mismatch) = match mismatch.broken {
            BrokenPromise::WorkingPrecision if !compare::is_finite(&sample) => {
                self.finite(facts).unwrap_or((sample, mismatch))
            }
            _ => (sample, mismatch),
        };
        self.refuting = Some((sample.clone(), guards.clone()));
        if !self.options.explain {
            return Outcome::Fails(Box::new(Counterexample::of(self.facts, &sample, &mismatch)));
        }
        let (first, mut rng) = (sample.clone(), self.rng.fork());
        let (sample, mismatch) = report::shrink::shrink(facts, sample, mismatch, &mut self.rng);
        let failing = FailingSamples { samples: [&first, &sample], guards: &guards };
        let proposal = conditions::infer::propose(self.facts, &failing, &self.options, &mut rng);
        let mut example = Counterexample::of(self.facts, &sample, &mismatch);
        example.holds_when = proposal;
        Outcome::Fails(Box::new(example))
    }

    /// A sample of finite numbers that refutes the law, too: it tells more than one of infinities.
    fn finite(&mut self, facts: &LawFacts<'_>) -> Option<(compare::Sample, compare::Mismatch)> {
        let wanted = vec![true; facts.conjuncts.len()];
        sample::saturated().find_map(|plan| {
            let mut rng = self.rng.fork();
            let drawn =
                sample::draw(facts, &wanted, plan.extents, plan.ranges, &mut self.tally, &mut rng);
            let Some(DrawOutcome::Instance(instance)) = drawn else { return None };
            let (sample, trial) =
                sample::trial(facts, *instance, plan.elements, None, &mut self.tally, &mut rng);
            match trial {
                SampleOutcome::Differ(mismatch) => Some((sample, *mismatch)),
                SampleOutcome::Agree(_) | SampleOutcome::Void | SampleOutcome::TooLong => None,
            }
        })
    }

    /// Sides that are different rational functions, though no sample showed it.
    fn differ(
        &mut self,
        facts: &LawFacts<'_>,
        instance: law::instance::Instance,
        rng: &mut Random,
    ) -> Outcome {
        for i in 0..40 {
            let (sample, trial) = sample::trial(
                facts,
                instance.clone(),
                [ElementStyle::Integers, ElementStyle::Powers, ElementStyle::Normal][i % 3],
                None,
                &mut self.tally,
                rng,
            );
            if let SampleOutcome::Differ(mismatch) = trial {
                return self.fails(facts, sample, *mismatch, vec![]);
            }
        }
        let sample = sample::fill(facts, instance, ElementStyle::Integers, None, Some(1), rng);
        let message =
            "the sides are different rational functions, as a prime field shows, though they \
                       are hard to tell apart in f64"
                .to_string();
        let mismatch = compare::furthest(self.facts.library, &sample, message);
        self.refuting = Some((sample.clone(), vec![]));
        Outcome::Fails(Box::new(Counterexample::of(self.facts, &sample, &mismatch)))
    }

    /// The work that samples have taken so far, in draws of attributes.
    fn work(&self) -> usize {
        let own = self.ways.iter().filter(|w| !std::ptr::eq(**w, self.facts));
        self.facts.work() + own.map(|w| w.work()).sum::<usize>()
    }

    /// Right sides that had no instance so far.
    fn refused(&self) -> usize {
        self.tally.right_refused.values().sum()
    }

    /// Its sides take too many steps; a definition is no less one.
    fn too_long(&self) -> Outcome {
        if self.facts.defined() {
            return Outcome::Holds(Evidence::of(Exactness::Defined));
        }
        let reason = "its sides take too many steps for samples, even of small extents".into();
        Outcome::NoSample { reason }
    }

    fn no_sample(&self) -> Outcome {
        let large = !self.tally.refused.is_empty() && self.tally.right_refused.is_empty();
        if large
            && self.facts.defined()
            && self.tally.refused.keys().all(|r| r == law::instance::TOO_LARGE)
        {
            // A definition of large extents is no less a definition.
            return Outcome::Holds(Evidence::of(Exactness::Defined));
        }
        // Where the right side is the culprit, reasons of the left are only noise.
        let left =
            if self.tally.right_refused.is_empty() { Some(&self.tally.refused) } else { None };
        let right = &self.tally.right_refused;
        let mut reasons: Vec<(usize, &String)> =
            left.into_iter().flatten().chain(right).map(|(reason, n)| (*n, reason)).collect();
        reasons.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let reason: Vec<&str> = reasons.iter().take(3).map(|(_, r)| r.as_str()).collect();
        Outcome::NoSample { reason: reason.join("; ") }
    }
}

/// Whether a law is shown to hold for every rank and size, whatever samples say of it.
///
/// # Errors
/// A few words that say why it is not shown.
pub fn prove_for_every_size(library: &Library, law: &Law, seed: u64) -> Result<(), String> {
    let mut rng = Random::of_name(seed, &law.name);
    proof::every_size::prove(&LawFacts::of(library, law), &mut rng)
}

/// A list of names for many look-ups.
fn named(names: &[String]) -> HashSet<&str> {
    names.iter().map(String::as_str).collect()
}

/// Checks the laws of a library, or those named. `on_progress` hears of each law when it is done.
pub fn check_library(
    library: &Library,
    only: Option<&[String]>,
    options: &CheckOptions,
    on_progress: &(dyn Fn(&str, &Verdict) + Sync),
) -> CheckReport {
    let started = Instant::now();
    let names = only.map(named);
    let wanted = |law: &Law| {
        names.as_ref().is_none_or(|names| {
            names.contains(&*law.name)
                || law.schema.as_ref().is_some_and(|s| names.contains(&*s.name))
                || law.name.strip_suffix(".rev").is_some_and(|base| names.contains(base))
        })
    };
    let laws: Vec<&Law> = library.laws.iter().filter(|l| wanted(l)).collect();
    let shown = law::schema_instances::shown_by(library, &laws);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Verdict)>> = Mutex::new(Vec::with_capacity(laws.len()));
    std::thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, 64) {
            scope.spawn(|| {
                while let Some((i, law)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    laws.get(i).map(|law| (i, *law))
                } {
                    let by = shown[i].map(|by| &*laws[by].name);
                    let verdict = checked(library, law, by, options);
                    on_progress(&law.name, &verdict);
                    if let Ok(mut done) = done.lock() {
                        done.push((i, verdict));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(i, _)| *i);
    let mut verdicts = done.into_iter().map(|(i, v)| (laws[i], v)).collect();
    law::schema_instances::needed_somewhere(&mut verdicts);
    CheckReport::of(library, verdicts, started.elapsed().as_secs_f64())
}
