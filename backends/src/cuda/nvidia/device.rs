//! A device of NVIDIA's: memory, copies and launches in the order of the calls, on one stream.

use super::library::{self, NO_DEVICE, OUT_OF_MEMORY, checked, is_final, meaning};
use super::staging::{PIECE, Staging};
use super::{cubins, nvrtc};
use crate::cuda::{Address, Driver, DriverError, Module};
use cuda_sys::cuda::*;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// A stream that does not wait for the stream that the context has by default.
const NON_BLOCKING: u32 = 1;

/// A device of NVIDIA's, in its primary context.
///
/// After a kernel fails, e.g. by an illegal address, the context is unusable: every later call returns the first error.
pub struct Nvidia {
    device: CUdevice,
    name: String,
    capability: (i32, i32),
    context: CUcontext,
    stream: CUstream,
    state: Mutex<State>,
    /// The error that made the context unusable.
    lost: OnceLock<DriverError>,
}

// SAFETY: the driver's handles may be used by any thread that has made the context current, as every call does; what
// changes lies behind a mutex.
unsafe impl Send for Nvidia {}
// SAFETY: as above.
unsafe impl Sync for Nvidia {}

#[derive(Default)]
struct State {
    modules: HashMap<Module, Loaded>,
    /// The number of the next module; numbers are never used twice.
    next: u64,
    staging: Option<Staging>,
}

struct Loaded {
    module: CUmodule,
    functions: HashMap<String, CUfunction>,
}

/// The context is current in this thread while this lives.
struct Current {
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

impl Nvidia {
    /// The device of this number; 0 is the first one.
    ///
    /// # Errors
    /// There is no driver, or no such device, or another program has it.
    pub fn new(ordinal: usize) -> Result<Nvidia, DriverError> {
        let start = |result| checked(result).map_err(no_device);
        let (mut count, mut device) = (0, 0);
        // SAFETY: takes a number, which must be zero.
        start(unsafe { cuInit(0) })?;
        // SAFETY: the pointer is valid for the call.
        start(unsafe { cuDeviceGetCount(&mut count) })?;
        let ordinal = c_int::try_from(ordinal).ok().filter(|&n| n < count);
        let Some(ordinal) = ordinal else {
            return Err(DriverError::NoDevice(format!("the driver finds {count} devices")));
        };
        // SAFETY: the pointer is valid for the call.
        start(unsafe { cuDeviceGet(&mut device, ordinal) })?;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the pointer is valid for the call.
            start(unsafe { cuDeviceGetAttribute(&mut value, attribute, device) }).map(|()| value)
        };
        use CUdevice_attribute_enum as Attribute;
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the pointer is valid for the call, for as many bytes as said.
        start(unsafe { cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device) })?;
        // The driver ends the name with a NUL; without one the last byte, which stays zero, would be it.
        name[255] = 0;
        // SAFETY: there is a NUL within the array.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        start(unsafe { cuDevicePrimaryCtxRetain(&mut context, device) })?;
        let mut out = Nvidia {
            device,
            name,
            capability,
            context,
            stream: ptr::null_mut(),
            state: Mutex::default(),
            lost: OnceLock::new(),
        };
        let current = out.enter()?;
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        out.done("cuStreamCreate", unsafe { cuStreamCreate(&mut stream, NON_BLOCKING) })?;
        drop(current);
        out.stream = stream;
        Ok(out)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's compute capability, e.g. 9.0.
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Makes the context current, unless it is unusable.
    fn enter(&self) -> Result<Current, DriverError> {
        match self.lost.get() {
            Some(e) => Err(e.clone()),
            None => self.pushed(),
        }
    }

    fn pushed(&self) -> Result<Current, DriverError> {
        // SAFETY: the context is retained as long as `self` lives.
        self.done("cuCtxPushCurrent", unsafe { cuCtxPushCurrent_v2(self.context) })?;
        Ok(Current { _context: self.context })
    }

    /// The error of a call; remembers one that makes the context unusable.
    fn done(&self, call: &'static str, result: CUresult) -> Result<(), DriverError> {
        checked(result).map_err(|code| self.failed(call, code))
    }

    fn failed(&self, call: &'static str, code: u32) -> DriverError {
        let error = match code {
            NO_DEVICE => no_device(code),
            _ => DriverError::Call { call, reason: meaning(code) },
        };
        if is_final(code) {
            let _ = self.lost.set(error.clone());
        }
        error
    }

    /// Waits for everything that was started.
    fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as `self`.
        self.done("cuStreamSynchronize", unsafe { cuStreamSynchronize(self.stream) })
    }

    /// The memory for copies, allocated by the first one.
    fn staging<'a>(&self, state: &'a mut State) -> Result<&'a mut Staging, DriverError> {
        if state.staging.is_none() {
            let mut start = ptr::null_mut();
            // SAFETY: the pointer is valid for the call.
            let result = unsafe { cuMemAllocHost_v2(&mut start, Staging::BYTES) };
            self.done("cuMemAllocHost", result)?;
            // SAFETY: the driver allocated as many bytes for this value alone; any bytes are initialised once written.
            unsafe { ptr::write_bytes(start.cast::<u8>(), 0, Staging::BYTES) };
            // SAFETY: as above; the memory is freed when `self` is dropped.
            state.staging = Some(unsafe { Staging::new(start) });
        }
        Ok(state.staging.as_mut().expect("allocated above"))
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

    fn function(&self, loaded: &mut Loaded, name: &str) -> Result<CUfunction, DriverError> {
        if let Some(&known) = loaded.functions.get(name) {
            return Ok(known);
        }
        let call = "cuModuleGetFunction";
        let text = CString::new(name);
        let text = text.map_err(|e| DriverError::Call { call, reason: e.to_string() })?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded; the pointers are valid for the call.
        let result = unsafe { cuModuleGetFunction(&mut function, loaded.module, text.as_ptr()) };
        self.done(call, result)?;
        loaded.functions.insert(name.to_string(), function);
        Ok(function)
    }
}

fn unknown(call: &'static str, module: Module) -> DriverError {
    DriverError::Call { call, reason: format!("module {} is not loaded", module.0) }
}

impl Driver for Nvidia {
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
        let _current = self.enter()?;
        let mut address = 0;
        let size = usize::try_from(bytes.max(1)).map_err(|_| DriverError::Memory { bytes })?;
        // SAFETY: the pointer is valid for the call.
        match checked(unsafe { cuMemAlloc_v2(&mut address, size) }) {
            Ok(()) => Ok(Address(address)),
            Err(OUT_OF_MEMORY) => Err(DriverError::Memory { bytes }),
            Err(code) => Err(self.failed("cuMemAlloc", code)),
        }
    }

    fn free(&self, address: Address) -> Result<(), DriverError> {
        let _current = self.enter()?;
        // SAFETY: the driver refuses addresses that it has not allocated; it waits for launches that use the memory.
        self.done("cuMemFree", unsafe { cuMemFree_v2(address.0) })
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        let _current = self.enter()?;
        let mut state = self.state();
        let staging = self.staging(&mut state)?;
        let mut at = to;
        for piece in bytes.chunks(PIECE) {
            if !staging.fits(piece.len()) {
                self.wait()?;
                staging.reset();
            }
            let part = staging.part(piece.len()).expect("a piece fits into what is free");
            part.copy_from_slice(piece);
            let (from, n) = (part.as_ptr().cast::<c_void>(), piece.len());
            // SAFETY: the bytes stay as they are until the stream was waited for; the driver refuses wrong addresses.
            let result = unsafe { cuMemcpyHtoDAsync_v2(at.0, from, n, self.stream) };
            self.done("cuMemcpyHtoDAsync", result)?;
            at = at.after(n as u64);
        }
        Ok(())
    }

    fn download(&self, from: Address, into: &mut [u8]) -> Result<(), DriverError> {
        let _current = self.enter()?;
        let mut state = self.state();
        let staging = self.staging(&mut state)?;
        let mut at = from;
        for piece in into.chunks_mut(Staging::BYTES) {
            if !staging.fits(piece.len()) {
                self.wait()?;
                staging.reset();
            }
            let part = staging.part(piece.len()).expect("a piece fits into what is free");
            let (to, n) = (part.as_mut_ptr().cast::<c_void>(), piece.len());
            // SAFETY: the part is used by nothing else until the stream was waited for; the driver refuses wrong addresses.
            let result = unsafe { cuMemcpyDtoHAsync_v2(to, at.0, n, self.stream) };
            self.done("cuMemcpyDtoHAsync", result)?;
            self.wait()?;
            piece.copy_from_slice(part);
            staging.reset();
            at = at.after(n as u64);
        }
        Ok(())
    }

    fn clear(&self, at: Address, bytes: u64) -> Result<(), DriverError> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.enter()?;
        let size = usize::try_from(bytes).map_err(|_| DriverError::Memory { bytes })?;
        // SAFETY: the driver refuses wrong addresses.
        let result = unsafe { cuMemsetD8Async(at.0, 0, size, self.stream) };
        self.done("cuMemsetD8Async", result)
    }

    fn load(&self, source: &str) -> Result<Module, DriverError> {
        let arch = nvrtc::architecture(self.capability.0, self.capability.1)?;
        let key = nvrtc::key(source, &arch)?;
        let known = cubins::find(&key);
        let _current = self.enter()?;
        let module = known.and_then(|code| self.loaded(&code).ok());
        let module = match module {
            Some(module) => module,
            None => {
                let code = nvrtc::compile(source, &arch)?;
                let module = self.loaded(&code)?;
                cubins::keep(&key, &code);
                module
            }
        };
        let mut state = self.state();
        let id = Module(state.next);
        state.next += 1;
        state.modules.insert(id, Loaded { module, functions: HashMap::new() });
        Ok(id)
    }

    fn unload(&self, module: Module) -> Result<(), DriverError> {
        let call = "cuModuleUnload";
        let _current = self.enter()?;
        let loaded = self.state().modules.remove(&module).ok_or_else(|| unknown(call, module))?;
        self.wait()?;
        // SAFETY: the module is loaded, nothing runs that uses it, and its functions are forgotten with it.
        self.done(call, unsafe { cuModuleUnload(loaded.module) })
    }

    fn launch(
        &self,
        module: Module,
        function: &str,
        [x, y, z]: [u32; 3],
        block: u32,
        arguments: &[(Address, u64)],
    ) -> Result<(), DriverError> {
        let call = "cuLaunchKernel";
        let _current = self.enter()?;
        let mut state = self.state();
        let loaded = state.modules.get_mut(&module).ok_or_else(|| unknown(call, module))?;
        let function = self.function(loaded, function)?;
        let mut pointers: Vec<u64> = arguments.iter().map(|(a, _)| a.0).collect();
        let mut bytes = size_of_val(pointers.as_slice());
        // One buffer of a stated size: the driver never reads past it, whatever number of parameters the function has.
        let (buffer, size): (*mut c_void, *mut usize) = (pointers.as_mut_ptr().cast(), &mut bytes);
        let mut extra: [*mut c_void; 5] = [
            ptr::without_provenance_mut(1),
            buffer,
            ptr::without_provenance_mut(2),
            size.cast(),
            ptr::null_mut(),
        ];
        let extra = if pointers.is_empty() { ptr::null_mut() } else { extra.as_mut_ptr() };
        // SAFETY: the function belongs to a loaded module; `extra` holds CU_LAUNCH_PARAM_BUFFER_POINTER and a buffer,
        // CU_LAUNCH_PARAM_BUFFER_SIZE and its size, and CU_LAUNCH_PARAM_END; all are valid for the call.
        let result = unsafe {
            cuLaunchKernel(function, x, y, z, block, 1, 1, 0, self.stream, ptr::null_mut(), extra)
        };
        self.done(call, result)
    }
}

impl Drop for Nvidia {
    /// Gives everything back as far as the driver still does so; its errors have no one to go to.
    fn drop(&mut self) {
        if let Ok(current) = self.pushed() {
            let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
            // SAFETY: all handles are this value's own, nothing runs once the stream was waited for, and none is used again.
            unsafe {
                let _ = cuStreamSynchronize(self.stream);
                for (_, loaded) in state.modules.drain() {
                    let _ = cuModuleUnload(loaded.module);
                }
                if let Some(staging) = state.staging.take() {
                    let _ = cuMemFreeHost(staging.into_raw());
                }
                if !self.stream.is_null() {
                    let _ = cuStreamDestroy_v2(self.stream);
                }
            }
            drop(current);
        }
        // SAFETY: the context was retained once, when this value was made.
        let _ = unsafe { cuDevicePrimaryCtxRelease(self.device) };
    }
}
