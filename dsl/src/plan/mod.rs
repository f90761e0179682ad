//! Plans: which kernels compute a program, with which implementations, in which order and in which memory.
//!
//! Every backend executes a plan exactly as it is; [`faults`] finds what is wrong with one.

pub mod arena;
mod in_place_append;
mod incremental;
mod live_steps;
mod memory;
mod operands;
mod validate;
mod worklist;

pub use in_place_append::{Room, growing_axis};
pub use incremental::MemoryAt;
pub use live_steps::Alive;
pub use memory::{Binding, Buffers, Home, Memory, NOMINAL, PlannedBuffer, RequiredBuffer};
pub use operands::{Operand, Role};
pub use validate::{Fault, faults, kernel_faults};
pub use worklist::{Readers, Worklist};

use crate::ir::{NodeId, Program, Value};
use crate::library::Library;

/// One launch: a set of nodes computed together by one implementation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The implementation: a key of the backend's registry, from the target's text, e.g. `gemm`, `pointwise`, `view`,
    /// `reference`. Of targets that run ONNX graphs, operators of ONNX.
    pub name: String,
    /// The nodes it computes, in topological order. What is in none of the three lists below is a view.
    pub nodes: Vec<NodeId>,
    /// What the implementation is named for: one application, or a chain of one associative operator whose last is the
    /// result. None in loops over pointwise operators and in kernels of views.
    pub anchors: Vec<NodeId>,
    /// Pointwise nodes that compute what the anchor reads.
    pub prologue: Vec<NodeId>,
    /// Pointwise nodes that follow the anchor; all of a loop.
    pub epilogue: Vec<NodeId>,
    /// Values it reads that it does not compute; each once, constants included.
    pub inputs: Vec<Value>,
    /// Values it computes that are read outside it.
    pub outputs: Vec<Value>,
}

impl Kernel {
    /// True if it only shows values otherwise.
    pub fn is_view(&self) -> bool {
        self.anchors.is_empty() && self.epilogue.is_empty()
    }
}

/// A program covered by kernels, in execution order.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the kernels compute between them.
    pub program: Program,
    /// Each node that is neither input nor constant belongs to exactly one kernel, except that cheap
    /// nodes may be computed again inside several.
    pub kernels: Vec<Kernel>,
    /// Where values lie.
    pub memory: Memory,
    /// Estimated seconds by the target's cost model.
    pub cost: f64,
}

impl Plan {
    /// A plan of kernels in this order. They must come in an order in which they can run.
    pub fn new(program: Program, library: &Library, kernels: Vec<Kernel>, cost: f64) -> Plan {
        let mut plan = Plan { program, kernels, memory: Memory::default(), cost };
        plan.memory = plan.buffers(library, &|_| None).placed(&plan.order());
        plan
    }

    /// The plan in which every application is a kernel of its own.
    pub fn of_nodes(program: Program, library: &Library, name: &str) -> Plan {
        let nodes = (0..program.nodes.len() as u32).map(NodeId);
        let nodes = nodes.filter(|n| program.is_applied(*n));
        let kernel = |node: NodeId| {
            let mut inputs = program.node(node).args.clone();
            inputs.sort_unstable();
            inputs.dedup();
            let values = 0..program.node(node).types.len() as u32;
            Kernel {
                name: name.to_string(),
                nodes: vec![node],
                anchors: vec![node],
                inputs,
                outputs: values.map(|output| Value { node, output }).collect(),
                ..Kernel::default()
            }
        };
        let kernels = nodes.map(kernel).collect();
        Plan::new(program, library, kernels, 0.0)
    }

    /// The same plan where symbols have these values; what has others stays symbolic.
    pub fn bound(&self, library: &Library, symbol: &dyn Fn(&str) -> Option<i64>) -> Plan {
        let program = self.program.bound(symbol);
        Plan::new(program, library, self.kernels.clone(), self.cost)
    }

    /// The buffers where symbols have these values; what has others stays symbolic.
    pub fn buffers(&self, library: &Library, symbol: Binding) -> Buffers {
        Buffers::bound(&self.program, library, &self.kernels, symbol)
    }

    /// The same where inputs have room for outputs.
    pub fn buffers_in(&self, library: &Library, symbol: Binding, rooms: &[Room]) -> Buffers {
        Buffers::in_rooms(&self.program, library, &self.kernels, symbol, rooms)
    }

    /// The kernels in the order in which they run.
    pub fn order(&self) -> Vec<usize> {
        (0..self.kernels.len()).collect()
    }

    /// Bytes of all buffers of a run, constants and inputs aside, if the shapes are known.
    pub fn peak_bytes(&self) -> Option<u64> {
        (!self.memory.nominal).then(|| self.memory.peak())
    }

    /// The kernels that a run launches: all but those whose results are known before it, and views that strides can say.
    pub fn launches(&self) -> impl Iterator<Item = usize> {
        let written = |k: usize| !self.memory.written(k).is_empty();
        let launched =
            move |&k: &usize| !self.memory.once[k] && (!self.kernels[k].is_view() || written(k));
        (0..self.kernels.len()).filter(launched)
    }
}
