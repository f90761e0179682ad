//! The backend interface, what backends share, and the float64 reference interpreter.
//!
//! One trait: compile a [`Plan`], run it. A backend never decides what is equal.

use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Fault, Plan, faults};
use state::{State, Step};
use std::sync::Arc;
use thiserror::Error;

pub use ndarray;

pub mod arrays;
mod cores;
pub mod device;
mod forks;
pub mod memory;
pub mod reference;
pub mod state;
pub mod symbols;
pub mod workers;

/// Why a plan does not compile or run.
#[derive(Debug, Error, Clone, PartialEq)]
pub enum BackendError {
    /// The inputs do not fit the program's.
    #[error("input `{name}`: {reason}")]
    Input {
        /// The input's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An operator failed at run time, e.g. an index out of range.
    #[error("operator `{op}`: {reason}")]
    Operator {
        /// The operator, with the imported node's name when there is one.
        op: String,
        /// What is wrong.
        reason: String,
    },
    /// It would take more memory than it may.
    #[error("operator `{op}`: {what} take {bytes} bytes where {limit} are to be had")]
    Memory {
        /// The operator, with the imported node's name when there is one.
        op: String,
        /// What takes the memory.
        what: String,
        /// Bytes that it takes.
        bytes: u64,
        /// Bytes that it may take.
        limit: u64,
    },
    /// The plan is not one that the backend executes.
    #[error("the {backend} backend cannot execute this plan: {fault}")]
    Plan {
        /// As [`Backend::name`] says it.
        backend: &'static str,
        /// The first thing wrong with the plan.
        fault: Fault,
    },
    /// The backend cannot do this.
    #[error("the {backend} backend does not support {what}")]
    Unsupported {
        /// As [`Backend::name`] says it.
        backend: &'static str,
        /// What it lacks.
        what: String,
    },
    /// A device does not do what it is asked.
    #[error(transparent)]
    Device(#[from] device::DriverError),
}

/// A compiled plan.
pub trait Executable: Send + Sync {
    /// Runs on concrete inputs, in the program's order; yields the outputs in the program's order.
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError>;

    /// Runs once within a stream of runs. Yields the outputs in the program's order; one that is fed back may lie in the memory of its
    /// input. After an error the inputs have the values that they had.
    fn step(&self, step: Step<'_, '_>) -> Result<Vec<State>, BackendError> {
        let inputs: Vec<Tensor> = step.inputs.iter().map(State::tensor).collect();
        let outputs: Vec<State> = self.run(&inputs)?.into_iter().map(State::from).collect();
        state::put(&outputs, step.memory)?;
        Ok(outputs)
    }

    /// The outputs that are an input and more after it along an axis, as far as the plan says so: number of the output, of the input.
    fn appended(&self) -> Vec<(usize, usize)> {
        vec![]
    }

    /// The buffers of all runs so far; `None` if it does not keep any.
    fn allocated(&self) -> Option<Allocated> {
        None
    }

    /// What its reader should know of how it runs: choices that were made when it was prepared, and what did not work out.
    fn notes(&self) -> Vec<String> {
        vec![]
    }

    /// Seconds of a run by the device's own clock, without copies of inputs and outputs; `None` where there is no such clock.
    fn device_seconds(&self, inputs: &[Tensor]) -> Result<Option<f64>, BackendError> {
        let _ = inputs;
        Ok(None)
    }

    /// The same of every launch of a run, each by itself, in order.
    fn launch_seconds(&self, inputs: &[Tensor]) -> Result<Option<Vec<LaunchTime>>, BackendError> {
        let _ = inputs;
        Ok(None)
    }
}

/// What a launch took on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchTime {
    /// The function that was launched.
    pub function: String,
    /// The kernel of the plan that it belongs to; one past the last for copies of outputs.
    pub kernel: usize,
    /// By the device's clock.
    pub seconds: f64,
}

/// Bytes of buffers that were allocated and are kept for the next run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// For intermediate values.
    pub arena: u64,
    /// For results.
    pub results: u64,
}

/// A place that runs plans.
pub trait Backend: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What of a plan without faults of its own this backend cannot execute.
    fn faults(&self, plan: &Plan, library: &Library) -> Vec<Fault>;

    /// Prepares a plan that it can execute.
    fn prepare(
        &self,
        plan: &Plan,
        library: Arc<Library>,
    ) -> Result<Box<dyn Executable>, BackendError>;

    /// Prepares a plan for running any number of times, or says what is wrong with it.
    fn compile(
        &self,
        plan: &Plan,
        library: Arc<Library>,
    ) -> Result<Box<dyn Executable>, BackendError> {
        sound(self, plan, &library)?;
        self.prepare(plan, library)
    }
}

/// An error if a plan is not one that a backend executes.
pub fn sound<B: Backend + ?Sized>(
    backend: &B,
    plan: &Plan,
    library: &Library,
) -> Result<(), BackendError> {
    let own = faults(plan, library).into_iter();
    match own.chain(backend.faults(plan, library)).next() {
        Some(fault) => Err(BackendError::Plan { backend: backend.name(), fault }),
        None => Ok(()),
    }
}
