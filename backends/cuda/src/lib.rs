//! The CUDA backend: every kernel of a plan becomes CUDA C++, compiled for the device that runs it.
//!
//! The generator needs no device and no toolkit. Never decides what is equal; what it cannot compute is an error that names it.

use mlc_backends::{Backend, BackendError, Executable};
use mlc_dsl::ir::{NodeId, NodeKind};
use mlc_dsl::library::{self, CallKind};
use mlc_dsl::plan::{Fault, Kernel, Plan};
use std::sync::Arc;

mod autotune;
mod bound_launch;
mod buffers;
mod code;
mod convolution;
mod driver;
mod dynamic_shapes;
mod function_cache;
mod generate;
mod launch;
mod matrix_product;
#[cfg(feature = "driver")]
mod nvidia;
mod session;

pub use autotune::comparison::tolerance;
pub use autotune::library_candidate::{LibraryCandidate, LibraryKind, LibraryOp, PermutedArgument};
pub use buffers::DeviceConstants;
pub use code::Code;
pub use convolution::{ChannelOrder, Convolution, ConvolutionTensor, WindowAxis};
pub use driver::{Address, Driver, Graph, Invocation, Library, Module, Prepared, Stream};
pub use generate::{Policy, Tuning, Warpgroups, launches, launches_for, launches_in_tf32};
pub use launch::{Argument, FAULT_WORDS, GRID_BYTES, Launch, Launches, Place, Port, Variant};
pub use matrix_product::{Activation, Matrix, MatrixProduct};
pub use mlc_backends::device::{DriverError, Room};
#[cfg(feature = "driver")]
pub use nvidia::{Nvidia, nvrtc};
pub use session::LaunchedPlan;

/// What every translation unit begins with.
pub const PRELUDE: &str = concat!(
    include_str!("prelude.cuh"),
    include_str!("functions.cuh"),
    include_str!("attention.cuh"),
    include_str!("warpgroups.cuh")
);

/// The name of the backend on the command line.
pub(crate) const NAME: &str = "cuda";

/// A device that runs generated code.
pub struct Cuda {
    driver: Arc<dyn Driver>,
    tuning: Tuning,
}

impl Cuda {
    /// The backend on this device; its code is cut for as many multiprocessors as the device says that it has.
    pub fn new(driver: Arc<dyn Driver>) -> Cuda {
        let usual = Tuning::default();
        let processors = driver.processors().filter(|&p| p > 0).unwrap_or(usual.processors);
        let warpgroups = match driver.has_warpgroups() {
            true => Warpgroups::Offered,
            false => Warpgroups::Never,
        };
        let offers_tilings = driver.compares_tilings();
        Cuda { driver, tuning: Tuning { processors, warpgroups, offers_tilings, ..usual } }
    }

    /// The same with products as [`launches_in_tf32`] has them.
    pub fn in_tf32(self) -> Cuda {
        Cuda { tuning: Tuning { tf32: true, ..self.tuning }, ..self }
    }
}

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Code is generated from meanings and procedures: what has neither cannot be computed.
    fn faults(&self, plan: &Plan, library: &library::Library) -> Vec<Fault> {
        let lacks = |(k, kernel): (usize, &Kernel)| {
            let without = |n: &&NodeId| match plan.program.node(**n).kind {
                NodeKind::Apply(call, _) => {
                    let callable = library.call(call);
                    let without = matches!(callable.kind, CallKind::Extern(_));
                    without && !generate::has_procedure(&callable.name)
                }
                NodeKind::Input(_) | NodeKind::Const(_) => false,
            };
            let node = kernel.nodes.iter().find(without)?;
            let op = library.node_name(&plan.program, *node);
            let what = format!("`{op}` has a Rust reference, and no code is generated for it");
            Some(Fault { kernel: Some((k, kernel.name.clone())), what })
        };
        plan.kernels.iter().enumerate().filter_map(lacks).collect()
    }

    fn prepare(
        &self,
        plan: &Plan,
        library: Arc<library::Library>,
    ) -> Result<Box<dyn Executable>, BackendError> {
        let generate = (generate::launches_at as dynamic_shapes::Generate, self.tuning);
        Ok(Box::new(dynamic_shapes::DynamicShapePlan::new(
            plan,
            library,
            generate,
            self.driver.clone(),
        )?))
    }
}
