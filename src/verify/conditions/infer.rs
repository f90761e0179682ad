//! Infers a condition under which a false law holds.
//!
//! Small predicates over extents, attributes and elements are evaluated on failing and
//! passing samples; one that no failing sample satisfies is added to the law, and the law is sampled again.

use crate::compare::{Sample, SampleOutcome};
use crate::law::facts::{LawFacts, Predicate};
use crate::sample::{self, DrawOutcome, DrawTally};
use crate::{CheckOptions, Outcome};
use mlc_dsl::eval::truth;
use mlc_dsl::expr::{self, AttrKind, Expr, ExprKind};
use mlc_dsl::library::{DTypePattern, Law};
use mlc_dsl::random::Random;
use serde::Serialize;

/// A condition that excludes all counterexamples of a law.
#[derive(Clone, Debug, Serialize)]
pub struct Proposal {
    /// As it would stand in an `if` clause.
    pub condition: String,
    /// Samples that meet it; all pass.
    pub passing: usize,
    /// Samples that fail; none meets it.
    pub failing: usize,
}

/// Samples to separate, and samples of the law with a proposal.
const SAMPLES: usize = 72;
const CONFIRM: usize = 36;

/// Proposals that are tried: single predicates and pairs.
const TRIED: usize = 32;

/// Proposals that are checked as a whole.
const CHECKS: usize = 2;

/// How often what the right side asks for is added.
const GUARDS: usize = 4;

/// Bounds of elements that are tried, the wider ones first.
const BOUNDS: [(f64, f64); 4] = [(-100.0, 100.0), (0.01, 100.0), (-8.0, 8.0), (-4.0, 4.0)];

struct LabelledSample {
    sample: Sample,
    fails: bool,
}

struct CandidateCondition {
    text: String,
    expr: Expr,
    /// What it speaks of: that numbers are finite, their sign, their bounds, then integers, then extents and ranks.
    rank: usize,
    /// The samples that meet it.
    met: Samples,
}

/// Some of the samples, as bits: those that are labelled, and one more for each proposal that is refuted.
type Samples = u128;
const _: () = assert!(2 + SAMPLES + TRIED <= Samples::BITS as usize);

/// A law's failing samples, and what its right side asks for beside its conditions.
pub(crate) struct FailingSamples<'a> {
    pub samples: [&'a Sample; 2],
    pub guards: &'a [Expr],
}

/// The weakest small condition found under which the law holds when it is checked again, and which these failing samples do not meet.
/// What refutes one is a failing sample for all others.
pub(crate) fn propose(
    facts: &LawFacts,
    failing: &FailingSamples<'_>,
    options: &CheckOptions,
    rng: &mut Random,
) -> Option<Proposal> {
    let known = failing.samples.map(|s| LabelledSample { sample: s.clone(), fails: true });
    let mut seen: Vec<LabelledSample> = known.into_iter().collect();
    if !failing.guards.is_empty() {
        return guarded(facts, failing.guards, options);
    }
    seen.extend(labelled(facts, rng));
    let mut all: Vec<CandidateCondition> =
        candidates(facts).into_iter().filter_map(|text| candidate(facts, text, &seen)).collect();
    let mut useless: Vec<Vec<usize>> = Vec::new();
    let mut checks = 0;
    for _ in 0..TRIED {
        let set = separating(&all, &seen).into_iter().find(|set| !useless.contains(set))?;
        let chosen: Vec<&Expr> = set.iter().map(|i| &all[*i].expr).collect();
        let refuted = match confirm(facts, &chosen, rng) {
            Confirmation::Passing if checks == CHECKS => return None,
            Confirmation::Passing => {
                checks += 1;
                match checked_again(facts, &chosen, options) {
                    Recheck::Holds(passing) => {
                        let texts: Vec<&str> = set.iter().map(|i| all[*i].text.as_str()).collect();
                        let failing = seen.iter().filter(|l| l.fails).count();
                        return Some(Proposal { condition: texts.join(", "), passing, failing });
                    }
                    Recheck::Fails(sample, _) => Some(*sample),
                    Recheck::Never => None,
                }
            }
            Confirmation::Refuted(sample) => Some(*sample),
            Confirmation::Useless => None,
        };
        match refuted {
            Some(sample) => {
                let next = seen.len();
                all.iter_mut()
                    .for_each(|c| c.met |= Samples::from(meets(facts, &c.expr, &sample)) << next);
                let before = separating(&all, &seen);
                seen.push(LabelledSample { sample, fails: true });
                // Elements of a sample that is not whole do not tell conditions apart.
                if before.first() == separating(&all, &seen).first() {
                    useless.push(set);
                }
            }
            None => useless.push(set),
        }
    }
    None
}

/// What the operators of the right side ask for, in the law's names, as far as the law does not hold without.
fn guarded(facts: &LawFacts, guards: &[Expr], options: &CheckOptions) -> Option<Proposal> {
    let mut conditions: Vec<Expr> = Vec::new();
    let mut more = guards.to_vec();
    for failing in 1..=GUARDS {
        more.retain(|g| !conditions.contains(g));
        if more.is_empty() {
            return None;
        }
        conditions.append(&mut more);
        match checked_again(facts, &conditions.iter().collect::<Vec<_>>(), options) {
            Recheck::Holds(passing) => {
                let texts: Vec<String> = conditions.iter().map(Expr::to_string).collect();
                let condition = texts.join(", ");
                // What is proposed is written, and read again.
                let read = texts.iter().all(|t| mlc_dsl::check::condition(facts.law, t).is_some());
                return read.then_some(Proposal { condition, passing, failing });
            }
            Recheck::Fails(_, guards) => more = guards,
            Recheck::Never => return None,
        }
    }
    None
}

/// The result of checking a law again with a proposed condition.
enum Recheck {
    /// So many samples agree.
    Holds(usize),
    /// A sample differs; what the right side asks for there.
    Fails(Box<Sample>, Vec<Expr>),
    /// It never matches.
    Never,
}

/// Checks the law with these conditions as it would be checked if they were written.
fn checked_again(facts: &LawFacts, conditions: &[&Expr], options: &CheckOptions) -> Recheck {
    let mut law: Law = facts.law.clone();
    law.conditions.extend(conditions.iter().map(|c| (*c).clone()));
    let options = CheckOptions { explain: false, ..*options };
    let (verdict, found) = crate::verdict(facts.library, &law, None, &options);
    match (verdict.outcome, found) {
        (Outcome::Holds(e), _) => Recheck::Holds(e.samples.max(1)),
        (Outcome::Fails(_), Some((sample, guards))) => Recheck::Fails(Box::new(sample), guards),
        (Outcome::Fails(_) | Outcome::NoSample { .. }, _) => Recheck::Never,
    }
}

/// The conditions, alone or in pairs, that no failing sample meets: by what they speak of, those that no other one is weaker than
/// first, then single ones, then in the order in which they are tried. How many samples meet one is chance.
fn separating(all: &[CandidateCondition], seen: &[LabelledSample]) -> Vec<Vec<usize>> {
    let failing = bits(seen.iter().map(|l| l.fails));
    let known = bits(seen.iter().map(|_| true));
    let mut sets: Vec<(Vec<usize>, Samples)> = Vec::new();
    for (i, a) in all.iter().enumerate() {
        if a.met & failing == 0 {
            sets.push((vec![i], a.met & known));
            continue;
        }
        // Two of these together describe the samples rather than the law.
        let loose = |c: &CandidateCondition| {
            c.text.contains(" % |") || c.text.contains("| <= |") || c.text.starts_with("within(")
        };
        let others = all.iter().enumerate().skip(i + 1);
        for (j, b) in others.filter(|(_, b)| b.met & failing != 0 && !loose(a) && !loose(b)) {
            let both = a.met & b.met & known;
            if both & failing == 0 && both != 0 {
                sets.push((vec![i, j], both));
            }
        }
    }
    let rank = |set: &[usize]| set.iter().map(|i| all[*i].rank).max().unwrap_or(0);
    let stronger = |(set, met): &(Vec<usize>, Samples)| {
        let weaker = |other: &Samples| met != other && met & other == *met;
        sets.iter().any(|(other, of)| weaker(of) && rank(other) == rank(set))
    };
    let mut out: Vec<(usize, bool, &Vec<usize>)> =
        sets.iter().map(|s| (rank(&s.0), stronger(s), &s.0)).collect();
    out.sort_by_key(|(rank, stronger, set)| (*rank, *stronger, set.len()));
    out.into_iter().map(|(_, _, set)| set.clone()).collect()
}

fn bits(each: impl Iterator<Item = bool>) -> Samples {
    each.enumerate().fold(0, |all, (i, is)| all | Samples::from(is) << i)
}

/// The result of sampling a law under a proposed condition.
enum Confirmation {
    /// Many agree, and none differs.
    Passing,
    /// One differs.
    Refuted(Box<Sample>),
    /// Hardly any is found, or the sides have other types.
    Useless,
}

/// Samples of the law, each compared.
fn labelled(facts: &LawFacts, rng: &mut Random) -> Vec<LabelledSample> {
    let wanted = vec![true; facts.conjuncts.len()];
    let mut tally = DrawTally::default();
    let mut out = Vec::new();
    for i in 0..SAMPLES {
        let mut rng = rng.fork();
        let plan = sample::plan_sample(facts, i);
        let drawn = sample::draw(facts, &wanted, plan.extents, plan.ranges, &mut tally, &mut rng);
        let (sample, fails) = match drawn {
            None => continue,
            Some(DrawOutcome::Types(instance, output)) => {
                (crate::report::shrink::type_mismatch(*instance, output).0, true)
            }
            Some(DrawOutcome::Instance(instance)) => {
                let (sample, trial) =
                    sample::trial(facts, *instance, plan.elements, None, &mut tally, &mut rng);
                match trial {
                    SampleOutcome::Void | SampleOutcome::TooLong => continue,
                    SampleOutcome::Agree(_) => (sample, false),
                    SampleOutcome::Differ(_) => (sample, true),
                }
            }
        };
        out.push(LabelledSample { sample, fails });
    }
    out
}

/// Samples the law under these conditions as well.
fn confirm(facts: &LawFacts, conditions: &[&Expr], rng: &mut Random) -> Confirmation {
    let mut law: Law = facts.law.clone();
    law.conditions.extend(conditions.iter().map(|c| (*c).clone()));
    let facts = LawFacts::of(facts.library, &law);
    let wanted = vec![true; facts.conjuncts.len()];
    let mut tally = DrawTally::default();
    let (mut passing, mut missed) = (0, 0);
    for i in 0..CONFIRM {
        let mut rng = rng.fork();
        let plan = sample::plan_sample(&facts, i);
        match sample::draw(&facts, &wanted, plan.extents, plan.ranges, &mut tally, &mut rng) {
            None => missed += 1,
            Some(DrawOutcome::Types(..)) => return Confirmation::Useless,
            Some(DrawOutcome::Instance(instance)) => {
                match sample::trial(&facts, *instance, plan.elements, None, &mut tally, &mut rng) {
                    (_, SampleOutcome::Void | SampleOutcome::TooLong) => missed += 1,
                    // That two empty tensors are equal says nothing for a law.
                    (sample, SampleOutcome::Agree(_)) => {
                        passing += usize::from(has_results(&sample))
                    }
                    (sample, SampleOutcome::Differ(_)) => {
                        return Confirmation::Refuted(Box::new(sample));
                    }
                }
            }
        }
        // What samples hardly meet would not help.
        if missed > 1 + passing {
            return Confirmation::Useless;
        }
    }
    if passing >= CONFIRM / 3 { Confirmation::Passing } else { Confirmation::Useless }
}

fn has_results(sample: &Sample) -> bool {
    let program = &sample.instance.program;
    program.outputs.iter().any(|(_, v)| !program.ty(*v).elements().is(0))
}

fn candidate(
    facts: &LawFacts,
    text: String,
    seen: &[LabelledSample],
) -> Option<CandidateCondition> {
    let expr = mlc_dsl::check::condition(facts.law, &text)?;
    let met = bits(seen.iter().map(|l| meets(facts, &expr, &l.sample)));
    let rank = rank(facts, &text, &expr);
    Some(CandidateCondition { text, expr, rank, met })
}

/// The place of a condition among all: what a number is comes before what a shape is.
fn rank(facts: &LawFacts, text: &str, e: &Expr) -> usize {
    let floats = facts.law.attrs.iter().filter(|a| a.ty.kind == AttrKind::Float);
    let real = floats.into_iter().any(|a| e.any(&mut |e| e.as_name() == Some(&a.name)));
    match &e.kind {
        ExprKind::Test(expr::Predicate::Within, _) => 4,
        ExprKind::Test(expr::Predicate::Finite, _) => 0,
        ExprKind::Test(..) => 1,
        _ if text.ends_with("< inf") => 0,
        // A single number describes no law.
        _ if real && text.contains(" == ") => 7,
        _ if real => 2,
        // That there is something at all is asked of many laws.
        _ if text.ends_with("> 0") => 3,
        _ if !text.contains('|') => 5,
        _ if text.contains(" % |") || text.contains("| <= |") => 7,
        _ => 6,
    }
}

fn meets(facts: &LawFacts, e: &Expr, sample: &Sample) -> bool {
    let draft = &sample.instance.draft;
    if let ExprKind::Test(asks, args) = &e.kind {
        let env = draft.env(facts, 0).unwrap_or_default();
        let (low, high) = Predicate::of(*asks, args).bounds(&env).unwrap_or((0.0, 0.0));
        let name = args.first().and_then(crate::law::facts::single_name);
        let var = facts.law.vars.iter().position(|v| Some(&*v.name) == name);
        let own = sample.inputs.iter().zip(&sample.instance.vars).filter(|(_, v)| Some(**v) == var);
        return own.into_iter().all(|(t, _)| {
            let values = t.to_f64();
            match asks {
                expr::Predicate::Within => {
                    values.iter().all(|v| v.is_nan() || (low <= *v && *v <= high))
                }
                expr::Predicate::Finite => values.iter().all(|v| v.is_finite()),
                expr::Predicate::Nonnegative => {
                    values.iter().all(|v| v.is_nan() || v.is_sign_positive())
                }
                expr::Predicate::Nonzero => values.iter().all(|v| *v != 0.0),
                expr::Predicate::Positive => values.iter().all(|v| *v > 0.0),
                expr::Predicate::Const | expr::Predicate::Uniform => {
                    values.windows(2).all(|w| w[0].to_bits() == w[1].to_bits())
                }
            }
        });
    }
    (0..draft.members).all(|m| {
        let env = draft.env(facts, m);
        env.is_ok_and(|env| truth(e, &env) == Ok(Some(true)))
    })
}

/// The predicates that are tried, the plainest first.
fn candidates(facts: &LawFacts) -> Vec<String> {
    let mut out = Vec::new();
    let axes: Vec<&str> = facts.axes.iter().map(|a| &*a.name).collect();
    let segs: Vec<&str> =
        facts.segs.iter().map(|s| &*s.name).filter(|s| !s.contains('.')).collect();
    for (i, a) in axes.iter().enumerate() {
        out.extend(axes[i + 1..].iter().map(|b| format!("|{a}| == |{b}|")));
    }
    for (i, a) in segs.iter().enumerate() {
        out.extend(segs[i + 1..].iter().map(|b| format!("|{a}| == |{b}|")));
    }
    out.extend(axes.iter().map(|a| format!("|{a}| == 1")));
    out.extend(axes.iter().map(|a| format!("|{a}| > 0")));
    out.extend(axes.iter().map(|a| format!("|{a}| > 1")));
    for s in &segs {
        out.push(format!("product(|{s}|) > 0"));
        out.push(format!("length(|{s}|) == 0"));
        out.push(format!("length(|{s}|) == 1"));
    }
    attributes(facts, &axes, &mut out);
    for (v, constant) in facts.law.vars.iter().zip(&facts.given) {
        let n = &v.name;
        let float = match &v.ty.dtype {
            DTypePattern::Fixed(d) => d.is_float(),
            DTypePattern::Var(name) => {
                let family = name.as_bytes().first();
                if matches!(family, Some(b'N' | b'T')) {
                    out.push(format!("is_float(dtype({n}))"));
                }
                matches!(family, Some(b'F' | b'N' | b'T'))
            }
        };
        if float {
            // Of what is computed these are never known: a law with them would stay silent.
            if *constant {
                let known = ["finite", "positive", "nonzero", "uniform"];
                out.extend(known.map(|p| format!("{p}({n})")));
            }
            out.push(format!("nonnegative({n})"));
            out.extend(BOUNDS.map(|(low, high)| format!("within({n}, {low}, {high})")));
        }
    }
    for a in &axes {
        let others = axes.iter().filter(|b| *b != a);
        out.extend(others.clone().map(|b| format!("|{a}| <= |{b}|")));
        out.extend(others.map(|b| format!("|{a}| % |{b}| == 0")));
    }
    out
}

fn attributes(facts: &LawFacts, axes: &[&str], out: &mut Vec<String>) {
    let attrs = &facts.law.attrs;
    for p in attrs {
        let (n, kind) = (&p.name, p.ty.kind);
        let forms: &[&str] = match kind {
            AttrKind::Int => &["% == 1", "% == 0", "% > 0", "% >= 0"],
            AttrKind::Axis => &["% == 0"],
            AttrKind::Float => {
                &["abs(%) < inf", "% > 0", "% >= 0", "% != 0", "% == 1", "% == 0", "% < 0"]
            }
            AttrKind::Ints => &["all(% == 0)", "all(% == 1)", "all(% >= 0)", "all(% > 0)"],
            AttrKind::Perm => &["% == range(length(%))", "inverse(%) == %"],
            AttrKind::Axes | AttrKind::Shape => &["length(%) == 0", "length(%) == 1"],
            AttrKind::Bool => &["%", "not %"],
            AttrKind::Floats | AttrKind::String | AttrKind::DType => &[],
        };
        out.extend(forms.iter().map(|f| f.replace('%', n)));
        if kind == AttrKind::Int {
            out.extend(axes.iter().map(|a| format!("|{a}| % {n} == 0")));
            out.extend(axes.iter().map(|a| format!("{n} == |{a}|")));
        }
    }
    for (i, p) in attrs.iter().enumerate() {
        let (n, kind) = (&p.name, p.ty.kind);
        for q in attrs[i + 1..].iter().filter(|q| q.ty.kind == kind) {
            out.push(format!("{n} == {}", q.name));
            if kind == AttrKind::Perm {
                out.push(format!("compose({n}, {0}) == compose({0}, {n})", q.name));
            }
        }
    }
}
