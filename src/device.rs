//! Where a session runs, and how much memory and how many threads it may use.

use crate::error::Error;
#[cfg(not(feature = "cuda"))]
use crate::error::ErrorKind;
#[cfg(feature = "cli")]
use crate::kernel_times::Watcher;
use crate::pipeline::options::Fp;
use crate::pipeline::planning::{CPU, CUDA};
use mlc_backends::Backend;
#[cfg(feature = "cuda")]
use mlc_backends::BackendError;
use mlc_backends::memory;
use mlc_backends::reference::Reference;
use mlc_cpu::Cpu;
use mlc_dsl::library::{Library, TargetItem};
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
    /// Which of the devices of a kind.
    number: usize,
    threads: Option<usize>,
    memory: Option<u64>,
    fp: Fp,
}

/// What tells an NVIDIA device from others.
#[cfg(feature = "cli")]
pub(crate) struct Facts {
    /// The driver's name for it.
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// Bytes of the cache that all multiprocessors share.
    pub cache: u64,
}

/// Bytes of a plan's constants.
pub(crate) fn constants(plan: &Plan) -> u64 {
    plan.program.consts.bytes()
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

    /// The NVIDIA device of this number; 0 is the first one. Sessions on one device share its context, and each has a stream.
    pub fn cuda(number: usize) -> Device {
        Device { number, ..Device::of(BackendKind::Cuda) }
    }

    pub(crate) fn of(place: BackendKind) -> Device {
        Device { place, ..Device::default() }
    }

    /// The same with so many threads, which share the work of a run; results do not depend on their number. All sessions of the
    /// process take their threads from one set, and no more are at work at once than there are cores.
    pub fn threads(self, threads: usize) -> Device {
        Device { threads: Some(threads.clamp(1, MOST_THREADS)), ..self }
    }

    /// The same with so many bytes that a run may take, in place of what the machine or the device has free.
    pub fn memory(self, bytes: u64) -> Device {
        Device { memory: Some(bytes), ..self }
    }

    /// The same with results that may stray so far: with [`Fp::Approx`], an NVIDIA device rounds the factors of products in 32 bits to 19
    /// (`tf32`).
    pub fn fp(self, fp: Fp) -> Device {
        Device { fp, ..self }
    }

    pub(crate) fn backend(&self) -> Result<Box<dyn Backend>, Error> {
        Ok(match self.place {
            BackendKind::Reference => Box::new(Reference::default()),
            BackendKind::Cpu => Box::new(Cpu::new(self.threads.unwrap_or(0)).within(self.memory)),
            BackendKind::Cuda => cuda::backend(self.number, self.fp)?,
        })
    }

    /// What running a plan takes.
    pub(crate) fn needs(&self, plan: &Plan, library: &Library, symbols: &Symbols) -> RunResources {
        match self.place {
            BackendKind::Reference => RunResources::of_reference(&plan.program, library, symbols),
            BackendKind::Cpu => RunResources::of_plan(plan, library, symbols),
            BackendKind::Cuda => {
                let needs = RunResources::of_plan(plan, library, symbols);
                // Constants are on the device besides.
                RunResources { bytes: needs.bytes.saturating_add(constants(plan)), ..needs }
            }
        }
    }

    /// The target whose figures describe the device.
    pub(crate) fn target(&self, library: &Library) -> Result<String, Error> {
        Ok(match self.place {
            BackendKind::Reference | BackendKind::Cpu => CPU.into(),
            BackendKind::Cuda => {
                let known = library.target_of_device(CUDA, &cuda::name(self.number)?);
                known.map_or(CUDA.into(), |t| t.name.to_string())
            }
        })
    }

    /// The target whose figures describe this device better than those of the target that plans are for, if there is one.
    pub(crate) fn described(&self, library: &Library, target: &str) -> Option<TargetItem> {
        match self.place {
            BackendKind::Cpu if target == CPU => {
                library.target_of_device(CPU, mlc_cpu::vectors()).cloned()
            }
            _ => None,
        }
    }

    /// What kernels are chosen for here, in words.
    pub(crate) fn machine(&self) -> Result<String, Error> {
        Ok(match self.place {
            BackendKind::Reference => "the reference interpreter".into(),
            BackendKind::Cpu => format!("a processor with {} vectors", mlc_cpu::vectors()),
            BackendKind::Cuda => cuda::name(self.number)?,
        })
    }

    /// Threads that share the work of a run on this machine's processor.
    pub fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(all_threads)
    }

    /// What tells an NVIDIA device from others; `None` of other places.
    #[cfg(feature = "cli")]
    pub(crate) fn facts(&self) -> Result<Option<Facts>, Error> {
        match self.place {
            BackendKind::Reference | BackendKind::Cpu => Ok(None),
            BackendKind::Cuda => cuda::facts(self.number).map(Some),
        }
    }

    /// What times kernels one by one there.
    #[cfg(feature = "cli")]
    pub(crate) fn watcher(&self) -> Result<Watcher, Error> {
        Ok(match self.place {
            BackendKind::Reference | BackendKind::Cpu => {
                Watcher::Cpu(Cpu::new(self.thread_count()))
            }
            BackendKind::Cuda => Watcher::Device(self.backend()?),
        })
    }

    /// True if it has memory of its own.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.place == BackendKind::Cuda
    }

    /// True if plans for a target are this device's own.
    pub(crate) fn runs(&self, library: &Library, target: &str) -> bool {
        match self.place {
            BackendKind::Reference | BackendKind::Cpu => library.is_kind_of(target, CPU),
            BackendKind::Cuda => library.is_kind_of(target, CUDA),
        }
    }

    /// What runs may take at once.
    pub(crate) fn limit(&self) -> Result<u64, Error> {
        match (self.memory, self.place) {
            (None, BackendKind::Cuda) => cuda::free(self.number),
            (allowed, _) => Ok(memory::limit(allowed)),
        }
    }

    /// What holds inputs and results on their way to another device: this machine's memory.
    fn afford_here(&self, needs: &RunResources) -> Result<(), Error> {
        if self.place != BackendKind::Cuda {
            return Ok(());
        }
        let here =
            RunResources { bytes: needs.inputs.saturating_add(needs.results), ..needs.clone() };
        Ok(here.afford(memory::limit(None))?)
    }

    /// Refuses what takes more than there is; `held` bytes of it can be given back for it.
    pub(crate) fn afford_beside(&self, needs: &RunResources, held: u64) -> Result<(), Error> {
        needs.afford(self.limit()?.saturating_add(held))?;
        self.afford_here(needs)
    }

    /// Refuses what takes more than there is.
    pub(crate) fn afford(
        &self,
        plan: &Plan,
        library: &Library,
        symbols: &Symbols,
    ) -> Result<(), Error> {
        self.afford_beside(&self.needs(plan, library, symbols), 0)
    }
}

/// NVIDIA devices.
#[cfg(feature = "cuda")]
mod cuda {
    use super::{Arc, Backend, BackendError, Error, Fp};
    use mlc_cuda::{Cuda, Driver, Nvidia};

    fn opened(number: usize) -> Result<Arc<Nvidia>, Error> {
        Ok(Nvidia::shared(number).map_err(BackendError::Device)?)
    }

    pub fn backend(number: usize, fp: Fp) -> Result<Box<dyn Backend>, Error> {
        let cuda = Cuda::new(opened(number)?);
        Ok(Box::new(if fp == Fp::Approx { cuda.in_tf32() } else { cuda }))
    }

    pub fn name(number: usize) -> Result<String, Error> {
        Ok(opened(number)?.name().to_string())
    }

    #[cfg(feature = "cli")]
    pub fn facts(number: usize) -> Result<super::Facts, Error> {
        let device = opened(number)?;
        let (name, capability, cache) = (device.name().into(), device.capability(), device.cache());
        Ok(super::Facts { name, capability, cache })
    }

    /// Bytes that nothing has.
    pub fn free(number: usize) -> Result<u64, Error> {
        let room = opened(number)?.room().map_err(BackendError::Device)?;
        Ok(room.map_or(u64::MAX, |room| room.free))
    }
}

/// There is no CUDA backend without the feature `cuda`.
#[cfg(not(feature = "cuda"))]
mod cuda {
    use super::{Backend, Error, ErrorKind, Fp};

    fn none<T>() -> Result<T, Error> {
        let help =
            "run on this machine's processor (`--backend cpu`), or build with the feature `cuda`";
        let error = Error::new(ErrorKind::Setting, "this build has no CUDA backend");
        Err(error.at("cuda").with_help(help))
    }

    pub fn backend(_: usize, _: Fp) -> Result<Box<dyn Backend>, Error> {
        none()
    }

    pub fn name(_: usize) -> Result<String, Error> {
        none()
    }

    #[cfg(feature = "cli")]
    pub fn facts(_: usize) -> Result<super::Facts, Error> {
        none()
    }

    pub fn free(_: usize) -> Result<u64, Error> {
        none()
    }
}

/// More threads than any machine that this runs on has cores.
pub(crate) const MOST_THREADS: usize = 1024;

/// As many threads as there are cores.
pub(crate) fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get()).clamp(1, MOST_THREADS)
}
