//! Ring buffers for states: of a recurrence's result that only its own steps read, memory holds the last steps alone.

use super::Kernel;
use crate::ir::{NodeKind, Program, Value};
use crate::library::Library;

/// A ring buffer of the last `n` steps of a result: step `t` is at index `t % n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    /// The axis of the steps.
    pub axis: usize,
    /// How many steps there is memory for, where there are as many.
    pub steps: usize,
}

impl Alive {
    /// Of a value that a kernel computes; `None` if all of it is in memory.
    pub fn of(program: &Program, library: &Library, kernel: &Kernel, v: Value) -> Option<Alive> {
        let follows = |n: &crate::ir::NodeId| program.node(*n).args.contains(&v);
        let is_read = kernel.outputs.contains(&v) || kernel.nodes.iter().any(follows);
        if is_read { None } else { Alive::of_unread(program, library, v) }
    }

    /// The same of a value that nothing reads.
    pub fn of_unread(program: &Program, library: &Library, v: Value) -> Option<Alive> {
        let NodeKind::Apply(call, _) = &program.node(v.node).kind else { return None };
        let callable = library.call(*call);
        let steps = callable.recurrence.as_ref()?.alive(v.output as usize)?;
        let axis = callable.axis_of_steps(v.output as usize, program.ty(v).rank())?;
        Some(Alive { axis, steps })
    }

    /// The shape in memory of a result with this shape.
    pub fn shape<S: AsMut<[usize]>>(&self, mut shape: S) -> S {
        let extent = &mut shape.as_mut()[self.axis];
        *extent = self.steps.min(*extent);
        shape
    }
}
