//! Samples at which numbers that a law compares meet, or a step function steps: where one side says `1 == log(x)` and the other says
//! `false`, nearly every sample agrees. Found by bisection between two samples, over rounded values.

use super::draft::{RangePolicy, SampleDraft};
use super::fill;
use super::values::ElementStyle;
use crate::compare::{Mismatch, Sample, SampleOutcome, arrays, compare};
use crate::law::facts::LawFacts;
use crate::law::instance;
use mlc_backends::reference::{Array, CodeCache, Engine, Precision, Reference};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind};
use mlc_dsl::ir::{DType, NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::{CallKind, ErrorClass, Library};
use mlc_dsl::random::Random;

/// Drafts between whose samples crossings are looked for.
const DRAFTS: usize = 8;

/// Nodes of one program that are watched, crossings of one node that are looked for, and pairs of samples between which they are.
const NODES: usize = 4;
const CROSSINGS: usize = 3;
const PAIRS: usize = 4;

/// Halvings of the way between two samples: between two numbers of f64 there are at most 2^64.
const HALVINGS: usize = 70;

/// What has a step where it crosses something.
enum Watched {
    /// Two numbers of one shape that are compared.
    Operands(Value, Value),
    /// What a function with steps yields.
    Steps(Value),
}

/// A sample at which numbers that an exact law compares meet, or nearly do, and on which its sides differ. Other classes allow a step
/// to lie where rounding puts it.
pub(crate) fn refute<'f, 'l>(
    ways: &[&'f LawFacts<'l>],
    drafts: &[(usize, SampleDraft)],
    rng: &mut Random,
) -> Option<(&'f LawFacts<'l>, Sample, Mismatch)> {
    drafts.iter().take(DRAFTS).find_map(|(way, draft)| {
        let facts = ways[*way];
        if facts.defined() || facts.law.error != ErrorClass::Exact {
            return None;
        }
        let mut samples = crossings(facts, draft, rng).into_iter();
        samples.find_map(|sample| match compare(&facts.codes, ErrorClass::Exact, &sample) {
            SampleOutcome::Differ(mismatch) => Some((facts, sample, *mismatch)),
            SampleOutcome::Agree(_) | SampleOutcome::Void | SampleOutcome::TooLong => None,
        })
    })
}

/// Samples on both sides of each crossing, and on it where rounded numbers meet.
fn crossings(facts: &LawFacts<'_>, draft: &SampleDraft, rng: &mut Random) -> Vec<Sample> {
    if draft.stray != RangePolicy::No {
        return vec![];
    }
    let wanted = vec![true; facts.conjuncts.len()];
    let Ok(instance) = instance::build(facts, draft, &wanted, rng) else { return vec![] };
    let watched = watched(facts.library, &instance.program);
    if watched.is_empty() {
        return vec![];
    }
    let styles = [ElementStyle::Normal, ElementStyle::Wide];
    let mut out = Vec::new();
    for pair in 0..PAIRS {
        let mut draw = |style| fill(facts, instance.clone(), style, None, None, rng);
        let ends = (draw(styles[pair % 2]), draw(styles[pair / 2]));
        for w in &watched {
            Bisection { codes: &facts.codes, watched: w }.between(&ends.0, &ends.1, &mut out);
        }
    }
    out
}

/// What is watched in a program: comparisons of computed floats, and functions with steps of them.
fn watched(library: &Library, program: &Program) -> Vec<Watched> {
    let computed = |v: Value| !matches!(program.nodes[v.node.0 as usize].kind, NodeKind::Const(_));
    let mut out = Vec::new();
    for (id, node) in program.nodes.iter().enumerate() {
        let NodeKind::Apply(call, _) = &node.kind else { continue };
        let float = |v: &Value| program.ty(*v).dtype.is_float();
        match node.args[..] {
            [a, b]
                if node.types[0].dtype == DType::Bool
                    && [a, b].iter().all(float)
                    && [a, b].into_iter().any(computed)
                    && program.ty(a).shape == program.ty(b).shape =>
            {
                out.push(Watched::Operands(a, b));
            }
            [a] if float(&a) && computed(a) && has_steps(&library.call(*call).kind) => {
                out.push(Watched::Steps(Value { node: NodeId(id as u32), output: 0 }));
            }
            _ => {}
        }
    }
    out.truncate(NODES);
    out
}

/// True of a pointwise function that rounds or compares.
fn has_steps(kind: &CallKind) -> bool {
    let CallKind::Op(meanings) = kind else { return false };
    let step = |e: &Expr| match &e.kind {
        ExprKind::Call(f, _) => matches!(f, Function::Floor),
        ExprKind::Binary(op, ..) => {
            matches!(op, BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le)
                || matches!(op, BinaryOp::Gt | BinaryOp::Ge)
        }
        _ => false,
    };
    meanings.iter().any(|m| m.value.any(&mut |e| step(e)))
}

struct Bisection<'a, 'l> {
    codes: &'a CodeCache<'l>,
    watched: &'a Watched,
}

impl Bisection<'_, '_> {
    /// Adds the samples of the first crossings between two.
    fn between(&self, low: &Sample, high: &Sample, out: &mut Vec<Sample>) {
        let (Some(from), Some(to)) = (self.states(low), self.states(high)) else { return };
        let differ = (0..from.len()).filter(|&i| from[i] != to[i] && from[i].is_some());
        for at in differ.take(CROSSINGS) {
            let (mut low, mut high) = (low.clone(), high.clone());
            for _ in 0..HALVINGS {
                let middle = halfway(&low, &high);
                let Some(state) = self.states(&middle).map(|s| s[at]) else { break };
                if state == Some(0) && matches!(self.watched, Watched::Operands(..)) {
                    out.push(middle);
                    break;
                }
                let end = if state == from[at] { &mut low } else { &mut high };
                if same(&end.inputs, &middle.inputs) {
                    break;
                }
                *end = middle;
            }
            out.extend([low, high]);
        }
    }

    /// Per element what must change where it crosses: the order of two numbers, or the value itself.
    fn states(&self, sample: &Sample) -> Option<Vec<Option<u64>>> {
        let mut program = sample.instance.program.clone();
        program.outputs = match *self.watched {
            Watched::Operands(a, b) => vec![(String::new(), a), (String::new(), b)],
            Watched::Steps(v) => vec![(String::new(), v)],
        };
        let rounded = Reference { precision: Precision::Rounded, engine: Engine::Fast };
        let inputs = arrays(&program, sample)?;
        let values = rounded.run_again(&program, self.codes, &inputs).ok()?;
        let numbers: Vec<Vec<f64>> = values.iter().map(Array::to_f64).collect();
        Some(match &numbers[..] {
            [a, b] => a.iter().zip(b).map(|(a, b)| order(*a, *b)).collect(),
            [v, ..] => v.iter().map(|v| Some(v.to_bits())).collect(),
            [] => vec![],
        })
    }
}

/// How two numbers compare: 0 where they meet.
fn order(a: f64, b: f64) -> Option<u64> {
    let order = a.partial_cmp(&b)?;
    Some((order as i8).rem_euclid(3) as u64)
}

/// The sample between two whose floats are halfway.
fn halfway(low: &Sample, high: &Sample) -> Sample {
    let middle = |(a, b): (&Tensor, &Tensor)| {
        if !a.dtype().is_float() {
            return a.clone();
        }
        let halves = a.to_f64().into_iter().zip(b.to_f64()).map(|(a, b)| a + (b - a) / 2.0);
        Tensor::from_f64(a.dtype(), a.shape().to_vec(), &halves.collect::<Vec<_>>())
    };
    Sample { inputs: low.inputs.iter().zip(&high.inputs).map(middle).collect(), ..low.clone() }
}

fn same(a: &[Tensor], b: &[Tensor]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.to_f64() == b.to_f64())
}
