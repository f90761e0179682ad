//! Where a session runs, and how much memory and how many threads it may use.

use crate::error::Error;
#[cfg(not(feature = "cuda"))]
use crate::error::ErrorKind;
use mlc_backends::Backend;
use mlc_backends::cpu::Cpu;
use mlc_backends::memory;
use mlc_backends::reference::Reference;
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::resources::{RunResources, Symbols};
#[cfg(feature = "cuda")]
use std::sync::Arc;

/// A backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// The f64 interpreter of meanings.
    Reference,
    /// This machine's processor.
    #[default]
    Cpu,
    /// An NVIDIA device.
    Cuda,
}

/// Where a session runs, and what it may take: `Device::cpu().threads(2)`.
#[derive(Clone, Debug, Default)]
pub struct Device {
    place: BackendKind,
    threads: Option<usize>,
    memory: Option<u64>,
}

impl Device {
    /// This machine's processor, on all cores.
    pub fn cpu() -> Device {
        Device::of(BackendKind::Cpu)
    }

    /// The float64 reference interpreter: slow, and the reference for everything else.
    pub fn reference() -> Device {
        Device::of(BackendKind::Reference)
    }

    pub(crate) fn of(place: BackendKind) -> Device {
        Device { place, ..Device::default() }
    }

    /// The same with so many threads, which share the work of a run; results do not depend on their number.
    pub fn threads(self, threads: usize) -> Device {
        Device { threads: Some(threads.clamp(1, MOST_THREADS)), ..self }
    }

    /// The same with so many bytes that a run may take, in place of what the machine has free.
    pub fn memory(self, bytes: u64) -> Device {
        Device { memory: Some(bytes), ..self }
    }

    pub(crate) fn backend(&self) -> Result<Box<dyn Backend>, Error> {
        Ok(match self.place {
            BackendKind::Reference => Box::new(Reference::default()),
            BackendKind::Cpu => Box::new(Cpu::new(self.threads.unwrap_or(0)).within(self.memory)),
            BackendKind::Cuda => cuda()?,
        })
    }

    /// What running a plan takes.
    pub(crate) fn needs(&self, plan: &Plan, library: &Library, symbols: &Symbols) -> RunResources {
        match self.place {
            BackendKind::Reference => RunResources::of_reference(&plan.program, library, symbols),
            BackendKind::Cpu | BackendKind::Cuda => RunResources::of_plan(plan, library, symbols),
        }
    }

    /// Refuses what takes more than there is.
    pub(crate) fn afford(
        &self,
        plan: &Plan,
        library: &Library,
        symbols: &Symbols,
    ) -> Result<(), Error> {
        Ok(self.needs(plan, library, symbols).afford(memory::limit(self.memory))?)
    }
}

/// The first NVIDIA device.
#[cfg(feature = "cuda")]
fn cuda() -> Result<Box<dyn Backend>, Error> {
    use mlc_backends::BackendError;
    use mlc_backends::cuda::{Cuda, Nvidia};
    let driver = Nvidia::new(0).map_err(BackendError::Device)?;
    Ok(Box::new(Cuda::new(Arc::new(driver))))
}

/// There is no CUDA backend without the feature `cuda`.
#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<Box<dyn Backend>, Error> {
    let help =
        "run on this machine's processor (`--backend cpu`), or build with the feature `cuda`";
    let error = Error::new(ErrorKind::Setting, "this build has no CUDA backend");
    Err(error.at("cuda").with_help(help))
}

/// More threads than any machine that this runs on has cores.
pub(crate) const MOST_THREADS: usize = 1024;

/// As many threads as there are cores.
pub(crate) fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get()).clamp(1, MOST_THREADS)
}
