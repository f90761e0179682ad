//! Profiles plans: seconds of every kernel, measured and predicted.

use crate::explain::node_names;
use crate::show;
use mlc_backends::{Backend, BackendError, Executable};
use mlc_cpu::{Cpu, Roofline, Watched};
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::cost::work::Works;
use mlc_extract::{CostModel, Size};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A kernel of a plan: what it takes and what it was taken to take.
#[derive(Clone, Debug, Serialize)]
pub struct KernelTime {
    /// Its name in the backend's registry.
    pub kernel: String,
    /// What it computes, in a line.
    pub computes: String,
    /// Nodes of the model whose values it computes, or else those of what reads it.
    pub nodes: Vec<String>,
    /// Its fastest time; nothing where it is not launched.
    pub measured: f64,
    /// Estimated seconds.
    pub predicted: f64,
    /// Bytes that it reads and writes at least.
    pub bytes: f64,
    /// Operations that it does by definition.
    pub flops: f64,
    /// The part of this machine's roofline that it reaches: of its operations or of its traffic with memory, whichever takes longer. More than one where
    /// an algorithm needs fewer operations or caches hold the data. Nothing of a device, and of what is not launched.
    pub roofline: Option<f64>,
}

/// What times the kernels of plans one by one.
pub enum Watcher {
    /// This machine's processor, by its clock.
    Cpu(Cpu),
    /// A device, by its own clock.
    Device(Box<dyn Backend>),
}

impl Watcher {
    /// What the processor does at most, measured; nothing of a device.
    pub fn roofline(&self) -> Option<Roofline> {
        match self {
            Watcher::Cpu(cpu) => Some(cpu.roofline()),
            Watcher::Device(_) => None,
        }
    }

    /// Compiles a plan.
    pub fn watch(&self, plan: &Plan, library: &Arc<Library>) -> Result<WatchedPlan, BackendError> {
        Ok(match self {
            Watcher::Cpu(cpu) => WatchedPlan::Cpu(Box::new(cpu.watched(plan, library.clone())?)),
            Watcher::Device(backend) => {
                let name = backend.name();
                WatchedPlan::Device(backend.compile(plan, library.clone())?, name)
            }
        })
    }
}

/// A compiled plan whose kernels are timed one by one.
pub enum WatchedPlan {
    /// On this machine's processor.
    Cpu(Box<Watched>),
    /// On a device of the backend of this name.
    Device(Box<dyn Executable>, &'static str),
}

impl WatchedPlan {
    /// Runs once; the kernels that are launched, by their numbers in the plan, and the seconds of each. Empty if shapes
    /// depend on data.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<(usize, f64)>, BackendError> {
        match self {
            WatchedPlan::Cpu(watched) => {
                let times = watched.run(inputs)?;
                if times.is_empty() {
                    return Ok(vec![]);
                }
                Ok(watched.kernels(inputs)?.into_iter().zip(times).collect())
            }
            WatchedPlan::Device(ready, backend) => {
                let clock = || BackendError::Unsupported { backend, what: "a clock".into() };
                let times = ready.launch_seconds(inputs)?.ok_or_else(clock)?;
                let mut kernels: BTreeMap<usize, f64> = BTreeMap::new();
                for launch in times {
                    *kernels.entry(launch.kernel).or_default() += launch.seconds;
                }
                Ok(kernels.into_iter().collect())
            }
        }
    }

    /// True if the processor's backend leaves any of it to the reference interpreter.
    pub fn is_interpreted(&self, inputs: &[Tensor]) -> Result<bool, BackendError> {
        match self {
            WatchedPlan::Cpu(watched) => Ok(!watched.interpreted(inputs)?.is_empty()),
            WatchedPlan::Device(..) => Ok(false),
        }
    }
}

/// A plan with its kernels watched.
pub struct Timed<'a> {
    plan: &'a Plan,
    ready: WatchedPlan,
    /// The fastest time of each kernel that is launched.
    least: BTreeMap<usize, f64>,
    /// Seconds of every run: its kernels, added up.
    pub runs: Vec<f64>,
}

impl<'a> Timed<'a> {
    /// Compiles a plan.
    pub fn new(
        plan: &'a Plan,
        watcher: &Watcher,
        library: &Arc<Library>,
    ) -> Result<Timed<'a>, BackendError> {
        Ok(Timed::of(plan, watcher.watch(plan, library)?))
    }

    /// Of a plan that is compiled.
    pub fn of(plan: &'a Plan, ready: WatchedPlan) -> Timed<'a> {
        Timed { plan, ready, least: BTreeMap::new(), runs: vec![] }
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<(), BackendError> {
        let times = self.ready.run(inputs)?;
        self.runs.push(times.iter().map(|(_, t)| t).sum());
        for (kernel, t) in times {
            let least = self.least.entry(kernel).or_insert(f64::INFINITY);
            *least = least.min(t);
        }
        Ok(())
    }

    /// The fastest time of every kernel, added up.
    pub fn least(&self) -> f64 {
        self.least.values().sum()
    }

    /// Its kernels in the order that they run in; work is counted at the size of the inputs.
    pub fn kernels(
        &self,
        library: &Library,
        model: &CostModel,
        size: &Size,
        roofline: Option<Roofline>,
    ) -> Vec<KernelTime> {
        let works = Works::at(library, size.clone());
        let program = &self.plan.program;
        let measured = |k: usize| self.least.get(&k).copied().unwrap_or(0.0);
        let names = node_names(self.plan);
        let row = |(at, k): (usize, &mlc_dsl::plan::Kernel)| {
            let dtype = k.outputs.first().map_or(DType::F32, |v| program.ty(*v).dtype);
            let work = works.kernel(program, k);
            let (bytes, measured) = (work.read + work.written, measured(at));
            let reached = |r: Roofline| r.part(work.flops, bytes, measured);
            KernelTime {
                kernel: k.name.clone(),
                computes: show::signature(program, k.nodes.iter().copied(), library),
                nodes: names[at].clone(),
                measured,
                predicted: model.seconds(&k.name, dtype, &work),
                bytes,
                flops: work.flops,
                roofline: roofline.filter(|_| measured > 0.0).map(reached),
            }
        };
        self.plan.kernels.iter().enumerate().map(row).collect()
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
