//! The CUDA backend: every kernel of a plan becomes CUDA C++, compiled for the device that runs it.
//!
//! The generator needs no device and no toolkit. Never decides what is equal; what it cannot compute is an error that names it.

use crate::{Backend, BackendError, Executable};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Fault, Plan};
use std::sync::Arc;

mod driver;
mod generate;
mod launch;
#[cfg(feature = "cuda")]
mod nvidia;
mod session;
mod shapes;

pub use driver::{Address, Driver, DriverError, Module};
pub use generate::launches;
pub use launch::{Argument, FAULT_WORDS, Launch, Launches, Place, Port};
#[cfg(feature = "cuda")]
pub use nvidia::{Nvidia, nvrtc};
pub use session::{DeviceConstants, LaunchedPlan};

/// What every translation unit begins with.
pub const PRELUDE: &str = include_str!("prelude.cuh");

/// The name of the backend on the command line.
pub(crate) const NAME: &str = "cuda";

/// A device that runs generated code.
pub struct Cuda {
    driver: Arc<dyn Driver>,
}

impl Cuda {
    /// The backend on this device.
    pub fn new(driver: Arc<dyn Driver>) -> Cuda {
        Cuda { driver }
    }
}

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        NAME
    }

    fn faults(&self, _plan: &Plan, _library: &Library) -> Vec<Fault> {
        vec![]
    }

    fn prepare(
        &self,
        plan: &Plan,
        library: Arc<Library>,
    ) -> Result<Box<dyn Executable>, BackendError> {
        Ok(Box::new(shapes::ShapedPlan::new(
            plan,
            library,
            generate::launches,
            self.driver.clone(),
        )?))
    }
}
