//! A device of NVIDIA's: its context, its memory, its modules. `queue.rs` has its streams.

use super::driver_extensions::Handle;
use super::libraries::{Libraries, PreparedOp};
use super::library::{self, NO_DEVICE, NOT_FOUND, OUT_OF_MEMORY, checked, is_final, meaning};
use super::queue::Queue;
use super::{compiled, nvrtc};
use crate::code::Code;
use crate::driver::{Address, Graph, Module, Prepared, Stream};
use cuda_sys::cuda::*;
use mlc_backends::device::{DriverError, Room};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// If set, every launch is waited for, and nothing is recorded: an error then names the function that failed.
const BLOCKING: &str = "MLC_CUDA_BLOCKING";

/// A device of NVIDIA's, in a context of its own.
///
/// After a kernel fails, e.g. by an illegal address, the context is unusable: every later call returns the first error. The driver gives
/// the process no other context then: [`new`](Self::new) returns [`DriverError::Lost`].
pub struct Nvidia {
    name: String,
    capability: (i32, i32),
    processors: u32,
    cache: u64,
    context: CUcontext,
    state: Mutex<State>,
    /// The error that made the context unusable.
    lost: OnceLock<DriverError>,
    blocking: bool,
    pub(super) libraries: Libraries,
}

// SAFETY: the driver's handles may be used by any thread that has made the context current, as every call does; what
// changes lies behind a mutex.
unsafe impl Send for Nvidia {}
// SAFETY: as above.
unsafe impl Sync for Nvidia {}

/// What the context holds, by numbers that are never used twice.
#[derive(Default)]
pub(super) struct State {
    modules: HashMap<Module, LoadedModule>,
    pub(super) queues: HashMap<Stream, Arc<Mutex<Queue>>>,
    /// Ready to be started.
    pub(super) graphs: HashMap<Graph, Handle>,
    /// Ready to be computed.
    pub(super) products: HashMap<Prepared, Arc<PreparedOp>>,
    next: u64,
}

impl State {
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Functions that were loaded together, in as many modules of the driver's as they had translation units.
struct LoadedModule {
    modules: Vec<CUmodule>,
    functions: HashMap<String, CUfunction>,
}

/// The context is current in this thread while this lives.
pub(super) struct Current {
    /// Handles belong to a thread here.
    _context: CUcontext,
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the context was pushed when this was made.
        let _ = unsafe { cuCtxPopCurrent_v2(&mut context) };
    }
}

fn no_device(code: u32) -> DriverError {
    match library::present() {
        true => DriverError::NoDevice(meaning(code)),
        false => DriverError::NoDevice("there is no driver (libcuda.so.1 cannot be opened)".into()),
    }
}

/// The compute capability that has all that generated code may use: products by tensor cores, copies ahead of their use.
const COMPLETE: (i32, i32) = (8, 0);

/// Why code does not compile for a device: one that is older lacks instructions.
fn of_older(error: DriverError, capability: (i32, i32)) -> DriverError {
    match error {
        DriverError::Compile(_) if capability < COMPLETE => {
            let ((major, minor), (has, point)) = (COMPLETE, capability);
            let what =
                format!("compute capability {has}.{point} lacks instructions of this model's code");
            DriverError::NoDevice(format!("{what}; {major}.{minor} has all of them"))
        }
        other => other,
    }
}

fn started(result: CUresult) -> Result<(), DriverError> {
    checked(result).map_err(no_device)
}

/// The driver's handle of the device of this number.
fn handle(ordinal: usize) -> Result<CUdevice, DriverError> {
    let (mut count, mut device) = (0, 0);
    // SAFETY: takes a number, which must be zero.
    started(unsafe { cuInit(0) })?;
    // SAFETY: the pointer is valid for the call.
    started(unsafe { cuDeviceGetCount(&mut count) })?;
    let Some(number) = c_int::try_from(ordinal).ok().filter(|&n| n < count) else {
        let found = if count == 1 { "one device".into() } else { format!("{count} devices") };
        let told = format!("the driver finds {found}, and number {ordinal} is asked for");
        return Err(DriverError::NoDevice(told));
    };
    // SAFETY: the pointer is valid for the call.
    started(unsafe { cuDeviceGet(&mut device, number) })?;
    Ok(device)
}

impl Nvidia {
    /// The device of this number in a fresh context; 0 is the first one.
    ///
    /// # Errors
    /// There is no driver, or no such device, or another program has it, or a kernel of this process failed before.
    pub fn new(ordinal: usize) -> Result<Nvidia, DriverError> {
        let device = handle(ordinal)?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the pointer is valid for the call.
            started(unsafe { cuDeviceGetAttribute(&mut value, attribute, device) }).map(|()| value)
        };
        use CUdevice_attribute_enum as Attribute;
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let processors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let processors = u32::try_from(processors).unwrap_or(0);
        let cache = attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        let cache = u64::try_from(cache).unwrap_or(0);
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the pointer is valid for the call, for as many bytes as said.
        started(unsafe { cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device) })?;
        // The driver ends the name with a NUL; without one the last byte, which stays zero, would be it.
        name[255] = 0;
        // SAFETY: there is a NUL within the array.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        checked(unsafe { cuCtxCreate_v2(&mut context, 0, device) }).map_err(|code| {
            let (call, reason) = ("cuCtxCreate", meaning(code));
            if is_final(code) { DriverError::Lost { call, reason } } else { no_device(code) }
        })?;
        let mut current = ptr::null_mut();
        // A new context is current; every call makes it so itself.
        // SAFETY: the pointer is valid for the call.
        let _ = unsafe { cuCtxPopCurrent_v2(&mut current) };
        let blocking = std::env::var_os(BLOCKING).is_some_and(|v| v != "0");
        let (state, lost, libraries) = (Mutex::default(), OnceLock::new(), Libraries::default());
        Ok(Nvidia {
            name,
            capability,
            processors,
            cache,
            context,
            state,
            lost,
            blocking,
            libraries,
        })
    }

    /// The device of this number in the context that others in this process use, unless it is lost. It is kept until the
    /// process ends: opening one takes longer than most runs.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn shared(ordinal: usize) -> Result<Arc<Nvidia>, DriverError> {
        static OPENED: Mutex<Vec<(usize, Arc<Nvidia>)>> = Mutex::new(Vec::new());
        let mut opened = OPENED.lock().unwrap_or_else(|e| e.into_inner());
        opened.retain(|(_, device)| device.lost.get().is_none());
        if let Some((_, device)) = opened.iter().find(|(n, _)| *n == ordinal) {
            return Ok(device.clone());
        }
        let fresh = Arc::new(Nvidia::new(ordinal)?);
        opened.push((ordinal, fresh.clone()));
        Ok(fresh)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's compute capability, e.g. 9.0.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// How many multiprocessors it has.
    pub(super) fn multiprocessors(&self) -> u32 {
        self.processors
    }

    /// Bytes of the cache that all multiprocessors share.
    pub fn cache(&self) -> u64 {
        self.cache
    }

    /// True if launches are waited for one by one.
    pub(super) fn is_blocking(&self) -> bool {
        self.blocking
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes the context current, unless it is unusable.
    pub(super) fn enter(&self) -> Result<Current, DriverError> {
        match self.lost.get() {
            Some(e) => Err(e.clone()),
            None => self.pushed(),
        }
    }

    fn pushed(&self) -> Result<Current, DriverError> {
        // SAFETY: the context lives as long as `self`.
        self.done("cuCtxPushCurrent", unsafe { cuCtxPushCurrent_v2(self.context) })?;
        Ok(Current { _context: self.context })
    }

    /// The error of a call; remembers one that makes the context unusable.
    pub(super) fn done(&self, call: &'static str, result: CUresult) -> Result<(), DriverError> {
        checked(result).map_err(|code| self.failed(call, code))
    }

    /// The same of a call that returns the driver's code.
    pub(super) fn coded(&self, call: &'static str, code: u32) -> Result<(), DriverError> {
        if code == 0 { Ok(()) } else { Err(self.failed(call, code)) }
    }

    fn failed(&self, call: &'static str, code: u32) -> DriverError {
        let reason = meaning(code);
        if is_final(code) {
            let error = DriverError::Lost { call, reason };
            let _ = self.lost.set(error.clone());
            return error;
        }
        match code {
            NO_DEVICE => no_device(code),
            _ => DriverError::Call { call, reason },
        }
    }

    /// Loads machine code or PTX into the context, which is current.
    fn loaded(&self, code: &[u8]) -> Result<CUmodule, DriverError> {
        // The driver reads a text up to a NUL, and machine code as far as its header says.
        let image = [code, &[0]].concat();
        let mut module = ptr::null_mut();
        // SAFETY: the pointers are valid for the call.
        let result = unsafe { cuModuleLoadData(&mut module, image.as_ptr().cast()) };
        self.done("cuModuleLoadData", result)?;
        Ok(module)
    }

    /// A function of a module.
    pub(super) fn function(&self, module: Module, name: &str) -> Result<CUfunction, DriverError> {
        let mut state = self.state();
        let call = "cuModuleGetFunction";
        let loaded = state.modules.get_mut(&module).ok_or_else(|| unknown(call, module))?;
        if let Some(&known) = loaded.functions.get(name) {
            return Ok(known);
        }
        let text = CString::new(name);
        let text = text.map_err(|e| DriverError::Call { call, reason: e.to_string() })?;
        for &module in &loaded.modules {
            let mut function = ptr::null_mut();
            // SAFETY: the module is loaded; the pointers are valid for the call.
            let result = unsafe { cuModuleGetFunction(&mut function, module, text.as_ptr()) };
            match checked(result) {
                Err(NOT_FOUND) => {}
                Err(code) => return Err(self.failed(call, code)),
                Ok(()) => {
                    loaded.functions.insert(name.to_string(), function);
                    return Ok(function);
                }
            }
        }
        Err(self.failed(call, NOT_FOUND))
    }

    /// Memory, as [`Driver::allocate`](crate::Driver::allocate) says.
    pub(super) fn allocated(&self, bytes: u64) -> Result<Address, DriverError> {
        let _current = self.enter()?;
        let mut address = 0;
        let Ok(size) = usize::try_from(bytes.max(1)) else {
            return Err(DriverError::Memory { bytes, room: None });
        };
        // SAFETY: the pointer is valid for the call.
        match checked(unsafe { cuMemAlloc_v2(&mut address, size) }) {
            Ok(()) => Ok(Address(address)),
            Err(OUT_OF_MEMORY) => {
                Err(DriverError::Memory { bytes, room: self.room_of_context().ok() })
            }
            Err(code) => Err(self.failed("cuMemAlloc", code)),
        }
    }

    pub(super) fn freed(&self, address: Address) -> Result<(), DriverError> {
        let _current = self.enter()?;
        // SAFETY: the driver refuses addresses that it has not allocated; it waits for launches that use the memory.
        self.done("cuMemFree", unsafe { cuMemFree_v2(address.0) })
    }

    /// The device's memory; the context is current.
    pub(super) fn room_of_context(&self) -> Result<Room, DriverError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are valid for the call.
        self.done("cuMemGetInfo", unsafe { cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(Room { free: free as u64, total: total as u64 })
    }

    /// Compiles functions, or takes what was compiled before, and loads them.
    pub(super) fn module(&self, code: &Code<'_>) -> Result<Module, DriverError> {
        let arch = nvrtc::architecture(self.capability.0, self.capability.1)?;
        let cubins = compiled::compile_cached(&code.units(), &arch);
        let cubins = cubins.map_err(|e| of_older(e, self.capability))?;
        let _current = self.enter()?;
        let mut modules = Vec::with_capacity(cubins.len());
        for cubin in &cubins {
            match self.loaded(cubin) {
                Ok(module) => modules.push(module),
                Err(e) => {
                    let _ = self.given_back(&modules);
                    return Err(e);
                }
            }
        }
        let mut state = self.state();
        let id = Module(state.number());
        state.modules.insert(id, LoadedModule { modules, functions: HashMap::new() });
        Ok(id)
    }

    /// Unloads modules; the context is current, nothing runs that uses them, and none of their functions is known any more.
    fn given_back(&self, modules: &[CUmodule]) -> Result<(), DriverError> {
        modules.iter().try_for_each(|module| {
            // SAFETY: the module is loaded, and the caller sees to the rest.
            self.done("cuModuleUnload", unsafe { cuModuleUnload(*module) })
        })
    }

    pub(super) fn unloaded(&self, module: Module) -> Result<(), DriverError> {
        let call = "cuModuleUnload";
        let _current = self.enter()?;
        let loaded = self.state().modules.remove(&module).ok_or_else(|| unknown(call, module))?;
        self.given_back(&loaded.modules)
    }
}

fn unknown(call: &'static str, module: Module) -> DriverError {
    DriverError::Call { call, reason: format!("module {} is not loaded", module.0) }
}

impl Drop for Nvidia {
    /// Gives everything back as far as the driver still does so; its errors have no one to go to.
    fn drop(&mut self) {
        if let Ok(current) = self.pushed() {
            let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
            for (_, queue) in state.queues.drain() {
                queue.lock().unwrap_or_else(|e| e.into_inner()).close();
            }
            state.products.clear();
            drop(std::mem::take(&mut self.libraries));
            drop(current);
        }
        // Modules, graphs and memory go with the context.
        // SAFETY: the context is this value's own, and none of its handles is used again.
        let _ = unsafe { cuCtxDestroy_v2(self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_an_older_device_lacks_instructions_for_is_no_defect() {
        let e = || DriverError::Compile("ptxas fatal".into());
        assert_eq!(of_older(e(), (8, 0)), e());
        assert_eq!(of_older(e(), (9, 0)), e());
        let told = of_older(e(), (7, 5)).to_string();
        let words = "no NVIDIA device can be used: compute capability 7.5 lacks instructions of this model's code; 8.0 has all of them";
        assert_eq!(told, words);
        let other = || DriverError::NoCompiler("none".into());
        assert_eq!(of_older(other(), (7, 5)), other());
    }
}
