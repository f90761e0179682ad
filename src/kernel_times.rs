//! Profiles plans: seconds of every kernel, measured and predicted.

use crate::show;
use mlc_backends::BackendError;
use mlc_backends::cpu::{Cpu, Watched};
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::CostModel;
use mlc_extract::work::Works;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A kernel of a plan: what it takes and what it was taken to take.
#[derive(Clone, Debug, Serialize)]
pub struct KernelTime {
    /// Its name in the backend's registry.
    pub kernel: String,
    /// What it computes, in a line.
    pub computes: String,
    /// Its fastest time; nothing where it is not launched.
    pub measured: f64,
    /// Estimated seconds.
    pub predicted: f64,
}

/// A plan with its kernels watched.
pub struct Timed<'a> {
    plan: &'a Plan,
    ready: Watched,
    /// The kernels that are launched.
    launched: Vec<usize>,
    /// The fastest time of each.
    least: Vec<f64>,
    /// Seconds of every run: its kernels, added up.
    pub runs: Vec<f64>,
}

impl<'a> Timed<'a> {
    /// Compiles a plan.
    pub fn new(
        plan: &'a Plan,
        backend: &Cpu,
        library: &Arc<Library>,
        inputs: &[Tensor],
    ) -> Result<Timed<'a>, BackendError> {
        let ready = backend.watched(plan, library.clone())?;
        let launched = ready.kernels(inputs)?;
        let least = vec![f64::INFINITY; launched.len()];
        Ok(Timed { plan, ready, launched, least, runs: vec![] })
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<(), BackendError> {
        let times = self.ready.run(inputs)?;
        self.runs.push(times.iter().sum());
        self.least.iter_mut().zip(times).for_each(|(l, t)| *l = l.min(t));
        Ok(())
    }

    /// The fastest time of every kernel, added up.
    pub fn least(&self) -> f64 {
        self.least.iter().sum()
    }

    /// Its kernels in the order that they run in.
    pub fn kernels(&self, library: &Library, model: &CostModel) -> Vec<KernelTime> {
        let works = Works::new(library);
        let program = &self.plan.program;
        let mut measured = vec![0.0; self.plan.kernels.len()];
        for (k, seconds) in self.launched.iter().zip(&self.least) {
            measured[*k] = *seconds;
        }
        let row = |(k, measured): (&mlc_dsl::plan::Kernel, f64)| {
            let dtype = k.outputs.first().map_or(DType::F32, |v| program.ty(*v).dtype);
            KernelTime {
                kernel: k.name.clone(),
                computes: show::signature(program, k.nodes.iter().copied(), library),
                measured,
                predicted: model.seconds(&k.name, dtype, &works.kernel(program, k)),
            }
        };
        self.plan.kernels.iter().zip(measured).map(row).collect()
    }
}

/// Runs plans in turns: `runs` is the number for each at least and at most, the budget ends those between.
pub fn interleave(
    plans: &mut [Timed<'_>],
    inputs: &[Tensor],
    runs: (usize, usize),
    budget: Duration,
) -> Result<(), BackendError> {
    for p in plans.iter() {
        p.ready.run(inputs)?;
    }
    let began = Instant::now();
    for round in 0..runs.1 {
        if round >= runs.0 && began.elapsed() >= budget {
            break;
        }
        for p in plans.iter_mut() {
            p.run(inputs)?;
        }
    }
    Ok(())
}
