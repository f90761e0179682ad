//! Shrinks counterexamples: fewer elements, simpler attributes, simpler values.

use crate::compare::{BrokenPromise, Mismatch, Sample, SampleOutcome, compare};
use crate::law::facts::LawFacts;
use crate::law::instance::{self, Instance, InstanceRefusal};
use crate::sample::draft::SampleDraft;
use crate::sample::fill;
use crate::sample::values::ElementStyle;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::ir::{Attr, Extent, Tensor};
use mlc_dsl::random::Random;

/// Samples compared while shrinking one counterexample.
const BUDGET: usize = 500;

struct Shrinker<'f, 'l> {
    facts: &'f LawFacts<'l>,
    rng: Random,
    left: usize,
    broken: BrokenPromise,
}

/// The smallest counterexample found beside this one that breaks the same promise.
pub(crate) fn shrink(
    facts: &LawFacts,
    sample: Sample,
    mismatch: Mismatch,
    rng: &mut Random,
) -> (Sample, Mismatch) {
    if mismatch.broken == BrokenPromise::Undefined {
        return (sample, mismatch);
    }
    let mut s = Shrinker { facts, rng: rng.fork(), left: BUDGET, broken: mismatch.broken };
    let mut best = (sample, mismatch);
    loop {
        let smaller = s.smaller_draft(&best.0);
        match smaller {
            Some(found) => best = found,
            None => break,
        }
    }
    if !matches!(best.1.broken, BrokenPromise::Types | BrokenPromise::Undefined) {
        s.plainer_values(&mut best);
    }
    best
}

impl Shrinker<'_, '_> {
    /// Tests a sample; the mismatch if it breaks the same promise.
    fn fails(&mut self, sample: &Sample) -> Option<Mismatch> {
        self.left = self.left.checked_sub(1)?;
        match compare(&self.facts.codes, self.facts.law.error, sample) {
            SampleOutcome::Differ(m) if m.broken == self.broken => Some(*m),
            _ => None,
        }
    }

    fn smaller_draft(&mut self, from: &Sample) -> Option<(Sample, Mismatch)> {
        for draft in candidates(self.facts, &from.instance.draft) {
            if self.left == 0 {
                return None;
            }
            if let Some(found) = self.fails_as(&draft, from) {
                return Some(found);
            }
        }
        None
    }

    fn fails_as(&mut self, draft: &SampleDraft, from: &Sample) -> Option<(Sample, Mismatch)> {
        let wanted = vec![true; self.facts.conjuncts.len()];
        let built = instance::build(self.facts, draft, &wanted, &mut self.rng);
        if self.broken == BrokenPromise::Types {
            self.left = self.left.checked_sub(1)?;
            return match built {
                Err(InstanceRefusal::Types(i, output)) => Some(type_mismatch(*i, output)),
                _ => None,
            };
        }
        let instance = built.ok()?;
        let mut rounds = vec![from.round, from.round, from.round];
        if from.round.ordinary() {
            rounds.extend([ElementStyle::Units, ElementStyle::Integers]);
        }
        for round in rounds {
            let mut rng = self.rng.fork();
            let sample = fill(self.facts, instance.clone(), round, None, None, &mut rng);
            if let Some(m) = self.fails(&sample) {
                return Some((sample, m));
            }
        }
        None
    }

    fn plainer_values(&mut self, best: &mut (Sample, Mismatch)) {
        let rules = self.facts.element_rules(None, &best.0.instance.draft);
        for i in 0..best.0.inputs.len() {
            let rule = &rules[best.0.instance.vars[i]];
            if rule.low.is_some() || rule.high.is_some() {
                continue;
            }
            let plain: &[f64] = if rule.nonzero { &[1.0, 2.0] } else { &[0.0, 1.0, 2.0] };
            let n = best.0.inputs[i].len();
            let whole = plain.iter().any(|&v| self.replace(best, i, 0..n, v));
            if whole || rule.uniform {
                continue;
            }
            for at in 0..n.min(64) {
                let _ = plain.iter().any(|&v| self.replace(best, i, at..at + 1, v));
            }
        }
    }

    /// Puts `v` at these places of an input if that still fails.
    fn replace(
        &mut self,
        best: &mut (Sample, Mismatch),
        input: usize,
        places: std::ops::Range<usize>,
        v: f64,
    ) -> bool {
        let old = &best.0.inputs[input];
        let mut sample = best.0.clone();
        let same = places.clone().all(|p| old.get_f64(p).to_bits() == v.to_bits());
        if same {
            return true;
        }
        sample.inputs[input] = if old.dtype().is_float() {
            let mut values = old.to_f64();
            values[places].fill(v);
            Tensor::from_f64(old.dtype(), old.shape().to_vec(), &values)
        } else {
            let mut values = old.to_i64();
            values[places].fill(v as i64);
            Tensor::from_i64(old.dtype(), old.shape().to_vec(), &values)
        };
        match self.fails(&sample) {
            Some(m) => {
                *best = (sample, m);
                true
            }
            None => false,
        }
    }
}

/// The mismatch of two sides of different types.
pub(crate) fn type_mismatch(instance: Instance, output: usize) -> (Sample, Mismatch) {
    let ty = |i: usize| {
        let outputs = &instance.program.outputs;
        outputs.get(i).map(|(_, v)| instance.program.ty(*v).to_string()).unwrap_or_default()
    };
    let message = format!(
        "the left side is {}, the right side {}",
        ty(output),
        ty(instance.outputs + output)
    );
    let mismatch = Mismatch {
        broken: BrokenPromise::Types,
        output,
        at: None,
        left: None,
        right: None,
        message,
    };
    (Sample { instance, inputs: vec![], round: ElementStyle::Normal }, mismatch)
}

/// Drafts one step smaller or plainer.
fn candidates(facts: &LawFacts, from: &SampleDraft) -> Vec<SampleDraft> {
    let mut out = Vec::new();
    let mut push = |change: &dyn Fn(&mut SampleDraft)| {
        let mut kept = from.clone();
        change(&mut kept);
        let mut open = kept.clone();
        open.attrs.clear();
        out.push(kept);
        if !from.attrs.is_empty() {
            out.push(open);
        }
    };
    for i in 0..from.segs.len() {
        for m in 0..from.segs[i].1.len() {
            for axis in 0..from.segs[i].1[m].len() {
                push(&|d| {
                    for s in d.segs[i].1.iter_mut().filter(|s| axis < s.len()) {
                        s.remove(axis);
                    }
                });
                for v in smaller(from.segs[i].1[m][axis]) {
                    push(&|d| d.segs[i].1[m][axis] = v);
                }
            }
        }
    }
    for i in 0..from.axes.len() {
        for m in 0..from.axes[i].1.len() {
            for v in smaller(from.axes[i].1[m]) {
                push(&|d| d.axes[i].1[m] = v);
            }
        }
    }
    for (i, (name, a)) in from.attrs.iter().enumerate() {
        let least = least(facts, name);
        for plainer in plainer(a, least) {
            let mut d = from.clone();
            d.attrs[i].1 = plainer;
            out.push(d);
        }
    }
    out
}

fn smaller(v: i64) -> Vec<i64> {
    let mut out = vec![1, 2, v - 1];
    out.retain(|&s| s >= 1 && s < v);
    out.dedup();
    out
}

/// The lowest value in the declared range of an attribute, 0 if there is none.
fn least(facts: &LawFacts, name: &str) -> i64 {
    let declared = facts.law.attrs.iter().find(|a| &*a.name == name);
    let low = declared.and_then(|a| a.ty.range.as_ref()).and_then(|(low, _)| low.as_ref());
    let low = low.and_then(|e| eval(e, &Env::default()).ok()).and_then(|a| a.as_i64());
    low.unwrap_or(0)
}

fn plainer(a: &Attr, least: i64) -> Vec<Attr> {
    let plain = || [0i64, 1].into_iter().filter(move |p| *p >= least);
    match a {
        Attr::Int(e) => match e.as_const() {
            Some(v) => plain().filter(|p| *p < v.abs()).map(Attr::int).collect(),
            None => vec![],
        },
        Attr::Ints(list) => {
            let mut out = Vec::new();
            for (i, e) in list.iter().enumerate() {
                for p in plain() {
                    if e.as_const().is_some_and(|v| v > p) {
                        let mut list = list.clone();
                        list[i] = Extent::from(p);
                        out.push(Attr::Ints(list));
                    }
                }
            }
            out
        }
        Attr::Float(bits) => {
            let v = f64::from_bits(*bits);
            let plain = |p: &f64| match v {
                1.0 => false,
                2.0 => *p == 1.0,
                _ => *p != v,
            };
            [1.0, 2.0].into_iter().filter(plain).map(Attr::float).collect()
        }
        Attr::Floats(v) => {
            let ones = Attr::floats(vec![1.0; v.len()]);
            if *a == ones { vec![] } else { vec![ones] }
        }
        Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => vec![],
    }
}
