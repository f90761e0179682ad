//! Derivations: whether equality saturation finds both sides of a law equal by other laws.
//!
//! Both sides become two outputs of one program, which is explored as a model is. Never says whether a law is true.

use crate::names;
use crate::pipeline::Fp;
use crate::threads;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{Expr, ExprKind, Predicate};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::{Law, LawOrigin, Library};
use mlc_explore::{Explored, Limits, explore};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Instances that are tried of each law.
pub const INSTANCES: usize = 3;

/// Whether other laws find both sides of a law equal.
#[derive(Clone, Debug, Serialize)]
pub struct Derivation {
    /// The law's name.
    pub law: String,
    /// Instances of the law that were explored, each with extents of its own.
    pub instances: usize,
    /// Those whose sides were found equal.
    pub derived: usize,
    /// The laws that the proofs rest on, and steps that are no law, by name; as few as can be told.
    pub by: Vec<String>,
}

impl Derivation {
    /// True if the sides were found equal in every instance.
    pub fn is_derived(&self) -> bool {
        self.instances > 0 && self.derived == self.instances
    }

    /// One line for people.
    pub fn human(&self) -> String {
        let Derivation { law, instances, derived, by } = self;
        match (instances, derived) {
            (0, _) => format!("not tried: `{law}` has no instance\n"),
            _ if self.is_derived() && by.is_empty() => {
                format!("derived: `{law}`, whose sides are read alike\n")
            }
            _ if self.is_derived() => format!("derived: `{law}` by {}\n", by.join(", ")),
            (_, 0) => format!("not derived: `{law}`\n"),
            _ => format!("not derived: `{law}`, but in {derived} of {instances} instances\n"),
        }
    }
}

/// For each law of the texts from number `first` on whether the laws of the texts before derive it.
pub fn derivations(
    library: &Arc<Library>,
    first: u32,
    seed: u64,
    threads: usize,
    done: &(dyn Fn() + Sync),
) -> Vec<Derivation> {
    let asked = library.laws.iter().filter(|l| l.source.file >= first);
    let asked: Vec<&Law> = asked.filter(|l| l.origin == LawOrigin::Rule).collect();
    threads::map(threads, asked.len(), &|i| {
        let found = derive(library, asked[i], first, seed);
        done();
        found
    })
}

/// Whether the laws of the texts before number `first` derive a law.
pub fn derive(library: &Arc<Library>, law: &Law, first: u32, seed: u64) -> Derivation {
    let known: Vec<u32> = (0u32..)
        .zip(&library.laws)
        .filter(|(_, l)| l.source.file < first && Fp::Reorder.admits(l.error))
        .map(|(i, _)| i)
        .collect();
    derive_by(library, law, &known, INSTANCES, seed, &Limits::default())
}

/// Whether these laws derive a law. Those that keep no error class count for laws that keep none either.
pub fn derive_by(
    library: &Arc<Library>,
    law: &Law,
    by: &[u32],
    instances: usize,
    seed: u64,
    limits: &Limits,
) -> Derivation {
    let loose = !Fp::Reorder.admits(law.error);
    let admits = |i: &u32| loose || Fp::Reorder.admits(library.laws[*i as usize].error);
    let known: Vec<u32> = by.iter().copied().filter(admits).collect();
    let programs = mlc_verify::instances(library, law, instances, seed);
    let mut by = BTreeSet::new();
    let (instances, mut derived) = (programs.len(), 0);
    for program in programs {
        let program = assumed(library, law, &program).unwrap_or(program);
        let sides = sides(&program);
        let explored = explore(library.clone(), program, &known, limits);
        if sides.iter().all(|(l, r)| explored.are_equal(*l, *r)) {
            derived += 1;
            by.extend(reasons(&explored, &sides));
        }
    }
    Derivation { law: law.name.to_string(), instances, derived, by: by.into_iter().collect() }
}

/// The same program where what the law asks of elements is known: an operand is computed so that they are as asked, for nothing is
/// known of an input. `None` if the law asks for nothing of that kind.
fn assumed(library: &Library, law: &Law, program: &Program) -> Option<Program> {
    let asked = |name: &str| law.conditions.iter().find_map(|c| asked_of(c, name));
    if !program.inputs.iter().any(|(name, _)| asked(name).is_some()) {
        return None;
    }
    let mut builder = Builder::new(library);
    let mut values: Vec<Vec<Value>> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let args: Vec<Value> =
            node.args.iter().map(|v| values[v.node.0 as usize][v.output as usize]).collect();
        values.push(match &node.kind {
            NodeKind::Input(i) => {
                let (name, ty) = &program.inputs[*i as usize];
                let input = builder.input(name, ty.clone());
                let bounds = asked(name).filter(|_| ty.dtype.is_float());
                vec![bounds.map_or(Some(input), |b| bounded(&mut builder, input, b))?]
            }
            NodeKind::Const(c) => vec![builder.constant(program.consts.get(*c).clone())],
            NodeKind::Apply(call, attrs) => {
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                builder.apply(*call, &attrs, &args).ok()?
            }
        });
    }
    let value = |v: &Value| values[v.node.0 as usize][v.output as usize];
    let outputs = program.outputs.iter().map(|(n, v)| (n.clone(), value(v))).collect();
    Some(builder.finish(outputs))
}

/// The bounds that a condition states of a variable's elements as numbers.
fn asked_of(condition: &Expr, name: &str) -> Option<(f64, f64)> {
    let ExprKind::Test(predicate, args) = &condition.kind else { return None };
    let (tensors, bounds) = predicate.split(args);
    let number = |e: &Expr| eval(e, &Env::default()).ok()?.as_f64();
    if !tensors.iter().any(|t| t.as_name().is_some_and(|n| **n == *name)) {
        return None;
    }
    match (predicate, bounds) {
        (Predicate::Nonnegative, _) => Some((0.0, f64::INFINITY)),
        (Predicate::Within, [low, high]) => number(low).zip(number(high)),
        _ => None,
    }
}

/// A value within bounds; of those below zero its absolute value.
pub fn bounded(builder: &mut Builder<'_>, v: Value, (low, high): (f64, f64)) -> Option<Value> {
    let structural = builder.structural();
    let ty = builder.ty(v).clone();
    let apply = |builder: &mut Builder<'_>, name: &str, v: Value, bound: Option<f64>| {
        let mut args = vec![v];
        if let Some(bound) = bound {
            let number = builder.constant(Tensor::from_f64(ty.dtype, vec![], &[bound]));
            args.push(builder.broadcast(number, &[], &ty.shape).ok()?);
        }
        builder.apply(structural.arithmetic(name)?, &[], &args).ok()?.first().copied()
    };
    if (low, high) == (0.0, f64::INFINITY) {
        return apply(builder, "abs", v, None);
    }
    let v = if low.is_finite() { apply(builder, "maximum", v, Some(low))? } else { v };
    if high.is_finite() { apply(builder, "minimum", v, Some(high)) } else { Some(v) }
}

/// The outputs of the left side, each with that of the right.
fn sides(program: &Program) -> Vec<(Value, Value)> {
    let (left, right) = program.outputs.split_at(program.outputs.len() / 2);
    left.iter().zip(right).map(|((_, l), (_, r))| (*l, *r)).collect()
}

/// What a proof that the sides are equal rests on.
fn reasons(explored: &Explored, sides: &[(Value, Value)]) -> Vec<String> {
    let Some(proof) = explored.prove_equal(sides) else { return vec![] };
    proof.steps.iter().map(|s| names::reason(explored.library(), s.reason)).collect()
}
