//! Where a session runs, and what it may take.

use crate::error::{Error, ErrorKind};
use mlc_backends::Backend;
use mlc_backends::cpu::Cpu;
use mlc_backends::memory;
use mlc_backends::reference::Reference;
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::needs::{Needs, Symbols};

/// A backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
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
    place: Place,
    threads: Option<usize>,
    memory: Option<u64>,
}

impl Device {
    /// This machine's processor, on all cores.
    pub fn cpu() -> Device {
        Device::of(Place::Cpu)
    }

    /// The f64 interpreter of the operators' meanings: slow, and what all else is held against.
    pub fn reference() -> Device {
        Device::of(Place::Reference)
    }

    pub(crate) fn of(place: Place) -> Device {
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

    /// The backend.
    pub(crate) fn backend(&self) -> Result<Box<dyn Backend>, Error> {
        Ok(match self.place {
            Place::Reference => Box::new(Reference::default()),
            Place::Cpu => Box::new(Cpu::new(self.threads.unwrap_or(0)).within(self.memory)),
            Place::Cuda => {
                let message = "this build has no CUDA backend";
                let help = "run on this machine's processor (`--backend cpu`) or on the interpreter of meanings \
                            (`--backend reference`)";
                return Err(Error::new(ErrorKind::Setting, message).at("cuda").with_help(help));
            }
        })
    }

    /// What running a plan takes.
    pub(crate) fn needs(&self, plan: &Plan, library: &Library, symbols: &Symbols) -> Needs {
        match self.place {
            Place::Reference => Needs::of_judge(&plan.program, library, symbols),
            Place::Cpu | Place::Cuda => Needs::of_plan(plan, library, symbols),
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

/// More threads than any machine that this runs on has cores.
pub(crate) const MOST_THREADS: usize = 1024;

/// As many threads as there are cores.
pub(crate) fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get()).clamp(1, MOST_THREADS)
}
