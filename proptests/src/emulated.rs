//! A CUDA device that a C++ compiler and this machine's processor stand in for.

use mlc_backends::cuda::{Address, Driver, DriverError, Module, Stream};
use mlc_cuda_emulator::{Effort, EmulatorError, Region, Unit};
use mlc_dsl::ir::DType;
use mlc_dsl::library::{Callable, DTypePattern};
use std::collections::HashMap;
use std::sync::Mutex;

/// True for an operator for which no code can be generated: one of texts, or one that decodes files of images.
pub fn has_no_code(operator: &Callable) -> bool {
    let inputs = operator.inputs.iter().map(|i| &i.ty.dtype);
    let mut types = inputs.chain(operator.outputs.iter().map(|o| &o.1.dtype));
    types.any(|t| matches!(t, DTypePattern::Fixed(DType::Str)))
        || ["image_pixels", "image_size"].contains(&&*operator.name)
}

/// The emulator behind the interface of a device. Memory that is not in use is never read or written.
#[derive(Default)]
pub struct Emulated {
    effort: Effort,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By address; of 16 bytes, so that every access of 16 bytes is aligned.
    memory: HashMap<u64, Vec<u128>>,
    units: Vec<Option<Unit>>,
}

fn failed(call: &'static str, reason: impl ToString) -> DriverError {
    DriverError::Call { call, reason: reason.to_string() }
}

impl Emulated {
    /// A device for long runs: its compiler optimises.
    pub fn for_long_runs() -> Emulated {
        Emulated { effort: Effort::High, ..Emulated::default() }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// How many allocations and modules are left.
    pub fn left(&self) -> usize {
        self.with(|s| s.memory.len() + s.units.iter().flatten().count())
    }
}

impl State {
    /// The memory at an address, if so many bytes are allocated there.
    fn at(&mut self, at: Address, bytes: u64) -> Result<*mut u8, DriverError> {
        let inside = |(base, of): (&u64, &Vec<u128>)| {
            *base <= at.0 && at.0 + bytes <= base + 16 * of.len() as u64
        };
        match self.memory.iter().any(inside) {
            true => Ok(at.0 as *mut u8),
            false => Err(failed("memory", format!("{bytes} bytes at {at:?} are not allocated"))),
        }
    }
}

impl Driver for Emulated {
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
        let memory = vec![u128::MAX; bytes as usize / 16 + 1];
        let address = memory.as_ptr() as u64;
        self.with(|s| s.memory.insert(address, memory));
        Ok(Address(address))
    }

    fn free(&self, address: Address) -> Result<(), DriverError> {
        let known = self.with(|s| s.memory.remove(&address.0));
        known.map(drop).ok_or_else(|| failed("free", "this is not allocated"))
    }

    /// Everything is done at once, so that all streams are one.
    fn stream(&self) -> Result<Stream, DriverError> {
        Ok(Stream(0))
    }

    fn end(&self, _: Stream) -> Result<(), DriverError> {
        Ok(())
    }

    fn wait(&self, _: Stream) -> Result<(), DriverError> {
        Ok(())
    }

    fn upload(&self, _: Stream, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        self.with(|s| {
            let to = s.at(to, bytes.len() as u64)?;
            // SAFETY: `at` found so many bytes there, and the lock keeps them.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            Ok(())
        })
    }

    fn download(&self, _: Stream, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError> {
        self.with(|s| {
            for (from, into) in parts {
                let from = s.at(*from, into.len() as u64)?;
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
            }
            Ok(())
        })
    }

    fn clear(&self, on: Stream, at: Address, bytes: u64) -> Result<(), DriverError> {
        self.upload(on, at, &vec![0; bytes as usize])
    }

    fn load(&self, source: &str) -> Result<Module, DriverError> {
        let unit = Unit::compile_with(source, self.effort).map_err(|e| match e {
            EmulatorError::NoCompiler => DriverError::NoCompiler(e.to_string()),
            e => DriverError::Compile(e.to_string()),
        })?;
        self.with(|s| {
            s.units.push(Some(unit));
            Ok(Module(s.units.len() as u64 - 1))
        })
    }

    fn unload(&self, module: Module) -> Result<(), DriverError> {
        let known = self.with(|s| s.units.get_mut(module.0 as usize).and_then(Option::take));
        known.map(drop).ok_or_else(|| failed("unload", "this is not loaded"))
    }

    fn launch(
        &self,
        _: Stream,
        module: Module,
        function: &str,
        grid: [u32; 3],
        block: u32,
        arguments: &[(Address, u64)],
    ) -> Result<(), DriverError> {
        self.with(|s| {
            let regions = arguments
                .iter()
                .map(|(a, bytes)| Ok(Region { pointer: s.at(*a, *bytes)?, bytes: *bytes as usize }))
                .collect::<Result<Vec<Region>, DriverError>>()?;
            let unit = s.units.get(module.0 as usize).and_then(Option::as_ref);
            let unit = unit.ok_or_else(|| failed("launch", "this is not loaded"))?;
            // SAFETY: every region is allocated, and the lock keeps it.
            let done = unsafe { unit.launch(function, grid, block, &regions) };
            done.map_err(|e| failed("launch", e))
        })
    }
}
