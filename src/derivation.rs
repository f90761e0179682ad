//! Derivations: whether equality saturation finds both sides of a law equal by other laws.
//!
//! Both sides become two outputs of one program, which is explored as a model is. Never says whether a law is true.

use crate::names;
use crate::pipeline::Fp;
use mlc_dsl::ir::{Program, Value};
use mlc_dsl::library::{Law, LawOrigin, Library};
use mlc_explore::{Explored, Limits, explore};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Instances that are tried of each law.
const INSTANCES: usize = 3;

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
    let next = AtomicUsize::new(0);
    let work = || {
        let mut out = Vec::new();
        while let Some((i, law)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            asked.get(i).map(|law| (i, *law))
        } {
            out.push((i, derive(library, law, first, seed)));
            done();
        }
        out
    };
    let mut found: Vec<(usize, Derivation)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut out = work();
        for other in others {
            match other.join() {
                Ok(more) => out.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        out
    });
    found.sort_by_key(|(i, _)| *i);
    found.into_iter().map(|(_, d)| d).collect()
}

/// Whether the laws of the texts before number `first` derive a law.
pub fn derive(library: &Arc<Library>, law: &Law, first: u32, seed: u64) -> Derivation {
    let known: Vec<u32> = (0u32..)
        .zip(&library.laws)
        .filter(|(_, l)| l.source.file < first && Fp::Reorder.admits(l.error))
        .map(|(i, _)| i)
        .collect();
    derive_by(library, law, &known, seed)
}

/// Whether these laws derive a law. Those that keep no error class count for laws that keep none either.
pub fn derive_by(library: &Arc<Library>, law: &Law, by: &[u32], seed: u64) -> Derivation {
    let loose = !Fp::Reorder.admits(law.error);
    let admits = |i: &u32| loose || Fp::Reorder.admits(library.laws[*i as usize].error);
    let known: Vec<u32> = by.iter().copied().filter(admits).collect();
    let programs = mlc_verify::instances(library, law, INSTANCES, seed);
    let mut by = BTreeSet::new();
    let (instances, mut derived) = (programs.len(), 0);
    for program in programs {
        let sides = sides(&program);
        let explored = explore(library.clone(), program, &known, &Limits::default());
        if sides.iter().all(|(l, r)| explored.are_equal(*l, *r)) {
            derived += 1;
            by.extend(reasons(&explored, &sides));
        }
    }
    Derivation { law: law.name.to_string(), instances, derived, by: by.into_iter().collect() }
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
