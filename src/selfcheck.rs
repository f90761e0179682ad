//! The self-check: source and result run on the same seeded inputs and must agree.

use crate::samples;
use anyhow::{Context, bail};
use mlc_backends::cpu::Cpu;
use mlc_backends::{Backend, BackendError};
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::{Library, TargetItem};
use std::sync::Arc;

/// Largest difference that regrouped sums in the working type explain, relative to the largest element
/// of an output. A wrong law moves results by far more.
const TOLERANCE: f64 = 5e-3;

/// Runs both programs; yields the largest error relative to each output's largest element.
pub fn compare(
    source: &Program,
    program: &Program,
    library: &Arc<Library>,
    seed: u64,
    threads: usize,
) -> anyhow::Result<f64> {
    let inputs = samples::inputs(source, library, seed)
        .context("the program's inputs have no known size for the self-check")?;
    let (a, b) = (run(source, library, &inputs, threads), run(program, library, &inputs, threads));
    let (a, b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        // A program that fails on these inputs must fail optimised, too; nothing can be compared.
        (Err(e), _) => bail!("the self-check cannot run the program as read: {e}"),
        (Ok(_), Err(e)) => bail!("the optimised program fails where the source does not: {e}"),
    };
    let mut worst = 0.0f64;
    for ((name, _), (x, y)) in source.outputs.iter().zip(a.iter().zip(&b)) {
        let e = difference(x, y).with_context(|| format!("output `{name}`"))?;
        worst = worst.max(e);
    }
    if worst > TOLERANCE {
        bail!(
            "the self-check found a relative error of {worst:.3e}; nothing is written. \
             This is a defect of a law or a kernel: `explain --replay` shows where"
        );
    }
    Ok(worst)
}

/// Runs a program on the CPU backend, one kernel plan per call.
pub fn run(
    program: &Program,
    library: &Arc<Library>,
    inputs: &[Tensor],
    threads: usize,
) -> Result<Vec<Tensor>, BackendError> {
    let target = library.target("cpu").cloned().unwrap_or_else(|| TargetItem {
        name: "cpu".into(),
        doc: vec![],
        figures: Default::default(),
        kernels: vec![],
        pointwise: None,
    });
    let plan = mlc_extract::cover::cover(program.clone(), library, &target);
    Cpu::new(threads).compile(&plan, library.clone())?.run(inputs)
}

/// The largest difference relative to the largest finite element; NaN and infinities must agree.
pub fn difference(a: &Tensor, b: &Tensor) -> anyhow::Result<f64> {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        bail!("{:?} became {:?}", (a.dtype(), a.shape()), (b.dtype(), b.shape()));
    }
    if a.bytes() == b.bytes() {
        return Ok(0.0);
    }
    let (x, y) = (a.to_f64(), b.to_f64());
    let scale = x.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let mut worst = 0.0f64;
    for (i, (&p, &q)) in x.iter().zip(&y).enumerate() {
        if p == q || p.is_nan() && q.is_nan() {
            continue;
        }
        if !p.is_finite() || !q.is_finite() {
            bail!("element {i}: {p} became {q}");
        }
        worst = worst.max((p - q).abs());
    }
    Ok(if worst == 0.0 { 0.0 } else { worst / scale.max(f64::MIN_POSITIVE) })
}
