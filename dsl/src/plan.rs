//! Plans: which kernels compute a program, and in which order.
//!
//! A plan is what extraction yields and what every backend takes.

use crate::ir::{NodeId, Program, Value};

/// One launch: a set of nodes computed together.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name in the backend's registry, e.g. `gemm`, `pointwise`, `view`, `reference`.
    pub name: String,
    /// The nodes it computes, in topological order. The last one is its root.
    pub nodes: Vec<NodeId>,
    /// Values it reads that it does not compute; each once, constants included.
    pub inputs: Vec<Value>,
    /// Values it computes that are read outside it.
    pub outputs: Vec<Value>,
}

/// A program covered by kernels, in execution order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program.
    pub program: Program,
    /// Each node that is neither input nor constant belongs to exactly one kernel, except that cheap
    /// nodes may be computed again inside several.
    pub kernels: Vec<Kernel>,
    /// Where intermediate values lie.
    pub memory: Memory,
    /// Estimated seconds by the target's cost model.
    pub cost: f64,
}

impl Plan {
    /// Bytes of all buffers of a run, constants and inputs aside, if the shapes are known.
    pub fn peak_bytes(&self) -> Option<u64> {
        (!self.memory.nominal).then(|| self.memory.peak())
    }
}

/// A buffer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The value that it holds; views of that value have no buffer of their own.
    pub value: Value,
    /// Where it begins in the arena.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// The buffers of a plan: intermediate values share one arena, results have memory of their own, which the caller keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Buffers in the arena, in order of execution.
    pub places: Vec<Place>,
    /// Bytes of the arena.
    pub arena: u64,
    /// Bytes of the results.
    pub results: u64,
    /// The most bytes alive at once in this order of kernels: no placement takes less.
    pub alive: u64,
    /// No order of these kernels has fewer bytes alive at once.
    pub least: u64,
    /// Some extent is symbolic: all bytes are estimates.
    pub nominal: bool,
}

impl Memory {
    /// Bytes of all buffers.
    pub fn peak(&self) -> u64 {
        self.arena.saturating_add(self.results)
    }
}
