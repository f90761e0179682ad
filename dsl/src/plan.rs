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
    /// Upper bound of the bytes of all intermediate buffers alive at once, if the shapes are known.
    pub peak_bytes: Option<u64>,
    /// Estimated seconds by the target's cost model.
    pub cost: f64,
}
