//! The CPU backend: fused loops, packed products and planned memory.
//!
//! Never decides what is equal, and never fails where the reference interpreter succeeds: operators without a kernel here are computed by it.

use mlc_backends::{Backend, BackendError, Executable, sound};
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Fault, Plan};
use mlc_vector::simd;
pub use roofline::Roofline;
use std::sync::Arc;

mod attention;
mod block_quantized;
mod channels_last;
mod conv;
mod data_movement;
mod extents;
mod gemm;
mod graph;
mod half_precision;
mod int8;
mod matmul;
mod meaning;
mod pointwise;
mod pooling;
mod recurrent;
mod reduction;
mod registry;
mod resolve;
mod roofline;
mod runtime;
mod vision;

/// The processor of this machine.
pub struct Cpu {
    threads: Arc<runtime::threads::Threads>,
    memory: Option<u64>,
}

impl Cpu {
    /// The backend with a pool of `threads` threads; 0 takes one per core.
    pub fn new(threads: usize) -> Cpu {
        Cpu { threads: Arc::new(runtime::threads::Threads::new(threads)), memory: None }
    }

    /// The same with so many bytes for the buffers of a plan, in place of what the machine has free.
    pub fn within(self, memory: Option<u64>) -> Cpu {
        Cpu { memory, ..self }
    }

    /// A plan whose launches are timed one by one.
    pub fn watched(&self, plan: &Plan, library: Arc<Library>) -> Result<Watched, BackendError> {
        sound(self, plan, &library)?;
        Ok(Watched(runtime::CompiledPlan::new(plan, library, self.threads.clone(), self.memory)?))
    }

    /// What this machine does at most on as many threads; this takes a third of a second.
    pub fn roofline(&self) -> Roofline {
        Roofline::measure(&self.threads)
    }

    /// How many threads it uses.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }
}

/// The vectors that kernels are computed in here, as people call them.
pub fn vectors() -> &'static str {
    match simd::level() {
        simd::VectorLevel::V4 if simd::is_double_pumped() => "AVX-512 in halves",
        simd::VectorLevel::V4 => "AVX-512",
        simd::VectorLevel::V3 => "AVX2",
        simd::VectorLevel::Neon => "NEON",
        simd::VectorLevel::Base => "baseline",
    }
}

/// A compiled plan whose kernels are timed one by one.
pub struct Watched(runtime::CompiledPlan);

impl Watched {
    /// Runs once; the seconds of every kernel launched. Empty if shapes depend on data.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<f64>, BackendError> {
        self.0.times(inputs)
    }

    /// The kernels of the plan that are launched, in that order.
    pub fn kernels(&self, inputs: &[Tensor]) -> Result<Vec<usize>, BackendError> {
        self.0.launched(inputs)
    }

    /// How many kernels were prepared for a run with these inputs, when its extents were new, and how many there are. Nothing if shapes
    /// depend on data.
    pub fn prepared(&self, inputs: &[Tensor]) -> Result<Option<(usize, usize)>, BackendError> {
        self.0.prepared(inputs)
    }

    /// The operators that the reference interpreter computes. Empty if shapes depend on data.
    pub fn interpreted(&self, inputs: &[Tensor]) -> Result<Vec<String>, BackendError> {
        self.0.interpreted(inputs)
    }
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn faults(&self, plan: &Plan, library: &Library) -> Vec<Fault> {
        graph::faults(plan, library)
    }

    fn prepare(
        &self,
        plan: &Plan,
        library: Arc<Library>,
    ) -> Result<Box<dyn Executable>, BackendError> {
        let compiled =
            runtime::CompiledPlan::new(plan, library, self.threads.clone(), self.memory)?;
        Ok(Box::new(compiled))
    }
}
