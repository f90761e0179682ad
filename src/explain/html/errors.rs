//! What steps of a proof do to numbers: both sides, computed from the inputs that the self-check draws.
//!
//! Operands of a step are related to each other by the steps before it, so that a step is true of values that the model
//! computes, and not of any.

use crate::pipeline::selfcheck;
use mlc_backends::reference::{Array, Precision, Reference};
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::{ErrorClass, Library};
use mlc_explore::{Explored, Proof, ProofStep, Reason};
use mlc_extract::resources::operations;
use mlc_verify::random_inputs;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// Operations up to which the interpreter computes all steps in f64, and kernels those that may round otherwise.
const INTERPRETED: f64 = 1e7;
const RUN: f64 = 2e10;

/// Bytes that the values of steps may take, and the constants of the program.
const VALUES: f64 = 256.0 * 1024.0 * 1024.0;
const CONSTANTS: u64 = 1 << 30;

/// Steps of each law that kernels compute.
const OF_A_LAW: usize = 2;

/// What the element type makes of both sides, computed from the inputs that the self-check draws.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::explain) struct Errors {
    /// Largest distance of each from what f64 makes of what was there, relative to the largest element; nothing where the
    /// interpreter would take too long.
    pub sides: Option<(f64, f64)>,
    /// Largest distance between them.
    pub between: f64,
    /// Half a unit in the last place of the type.
    pub roundoff: f64,
}

/// How steps are computed.
pub(in crate::explain) struct Runs<'a> {
    pub library: &'a Arc<Library>,
    pub seed: u64,
    pub threads: usize,
}

impl Runs<'_> {
    /// The errors of steps of one search, where they can be measured.
    pub fn errors(&self, explored: &Explored, steps: &[ProofStep]) -> Vec<Option<Errors>> {
        let all = Proof { steps: steps.to_vec() };
        if let Some(program) = self.program(explored, &all, INTERPRETED) {
            return self.interpreted(&program).unwrap_or_else(|| vec![None; steps.len()]);
        }
        let mut out = vec![None; steps.len()];
        let few = self.few(steps);
        let some = Proof { steps: few.iter().map(|&i| steps[i]).collect() };
        if let Some(program) = self.program(explored, &some, RUN) {
            for (i, e) in few.into_iter().zip(self.run(&program).unwrap_or_default()) {
                out[i] = e;
            }
        }
        out
    }

    /// The first steps of each law that may round otherwise.
    fn few(&self, steps: &[ProofStep]) -> Vec<usize> {
        let mut of_law: HashMap<Reason, usize> = HashMap::new();
        let rounds = |reason| match reason {
            Reason::Law(i) => self.library.laws[i as usize].error != ErrorClass::Exact,
            Reason::SameOperands => true,
            Reason::ConstantFolding
            | Reason::UniformConstant
            | Reason::SameElements
            | Reason::Definition => false,
        };
        let mut is_one_of_few = |reason| {
            let count = of_law.entry(reason).or_default();
            *count += 1;
            *count <= OF_A_LAW
        };
        (0..steps.len())
            .filter(|&i| rounds(steps[i].reason) && is_one_of_few(steps[i].reason))
            .collect()
    }

    /// Both sides of every step, if computing them takes no more operations than these.
    fn program(&self, explored: &Explored, proof: &Proof, most: f64) -> Option<Program> {
        let program = explored.replay(proof).ok().filter(|_| !proof.steps.is_empty())?;
        let bytes = |ty: &mlc_dsl::ir::Type| {
            let elements = ty.elements().as_const().map_or(f64::INFINITY, |n| n as f64);
            elements * ty.dtype.size() as f64
        };
        let values = program.nodes.iter().flat_map(|n| &n.types).map(bytes);
        let outputs: f64 = program.outputs.iter().map(|(_, v)| bytes(program.ty(*v))).sum();
        let fits = match most == INTERPRETED {
            true => values.sum::<f64>() <= most,
            false => outputs <= VALUES && program.consts.bytes() <= CONSTANTS,
        };
        (fits && operations(&program, self.library) <= most).then_some(program)
    }

    fn inputs(&self, program: &Program) -> Option<Vec<Tensor>> {
        random_inputs::inputs(program, self.library, self.seed)
    }

    /// In the program's own types, and in f64.
    fn interpreted(&self, program: &Program) -> Option<Vec<Option<Errors>>> {
        let inputs = self.inputs(program)?;
        let run = |precision| {
            let reference = Reference { precision, ..Reference::default() };
            reference.run_values(program, self.library, &inputs).ok()
        };
        let (truth, rounded) = (run(Precision::F64)?, run(Precision::Rounded)?);
        let one = |(i, (truth, sides)): (usize, (&[Array], &[Array]))| {
            let roundoff = roundoff(program, 2 * i)?;
            let (truth, left, right) = (truth[0].to_f64(), sides[0].to_f64(), sides[1].to_f64());
            let finite = truth.iter().filter(|v| v.is_finite());
            let largest = finite.fold(0.0, |m: f64, v| m.max(v.abs()));
            let distance = |a: &[f64], b: &[f64]| {
                let each = a.iter().zip(b).filter(|(a, b)| a.is_finite() && b.is_finite());
                let most = each.fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()));
                if largest > 0.0 { most / largest } else { most }
            };
            let sides = Some((distance(&left, &truth), distance(&right, &truth)));
            Some(Errors { sides, between: distance(&left, &right), roundoff })
        };
        Some(truth.chunks_exact(2).zip(rounded.chunks_exact(2)).enumerate().map(one).collect())
    }

    /// By this machine's kernels.
    fn run(&self, program: &Program) -> Option<Vec<Option<Errors>>> {
        let inputs = self.inputs(program)?;
        let values = selfcheck::run(program, self.library, &inputs, self.threads).ok()?;
        let one = |(i, sides): (usize, &[Tensor])| {
            let roundoff = roundoff(program, 2 * i)?;
            let between = selfcheck::difference(&sides[0], &sides[1]).ok()?;
            Some(Errors { sides: None, between, roundoff })
        };
        Some(values.chunks_exact(2).enumerate().map(one).collect())
    }
}

/// Half a unit in the last place of an output; nothing of integers.
fn roundoff(program: &Program, output: usize) -> Option<f64> {
    let dtype = program.ty(program.outputs[output].1).dtype;
    dtype.is_float().then(|| dtype.unit_roundoff())
}
