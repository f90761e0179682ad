//! NVIDIA's driver library, opened at run time.
//!
//! `cuda-sys` declares the driver's functions as linked. Those that this crate calls are defined here: each forwards to
//! the function of the same name in `libcuda.so.1`, and returns "no device" where there is none. A call of a function
//! that is not forwarded fails to link.

use cuda_sys::cuda::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUmodule, CUresult,
    CUstream,
};
use libloading::Library;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_void};
use std::sync::OnceLock;

/// The driver's library; it comes with the driver, not with a toolkit.
const NAME: &str = "libcuda.so.1";

/// The code for a name that is not there.
pub const NOT_FOUND: u32 = CUresult::CUDA_ERROR_NOT_FOUND as u32;
/// The code for a missing device.
pub const NO_DEVICE: u32 = CUresult::CUDA_ERROR_NO_DEVICE as u32;
/// The code for a lack of memory.
pub const OUT_OF_MEMORY: u32 = CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;

/// A call of a library of NVIDIA's that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub call: &'static str,
    pub reason: String,
}

/// What a library of NVIDIA's knows something by.
pub type Handle = *mut c_void;
pub type Destroy = unsafe extern "C" fn(Handle) -> c_int;

/// What a library gave, given back when this is dropped.
pub struct Owned {
    pub handle: Handle,
    pub destroy: Destroy,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own; what it describes is not in use.
        let _ = unsafe { (self.destroy)(self.handle) };
    }
}

thread_local! {
    /// The code of this thread's last call, as the driver returned it.
    static CODE: Cell<u32> = const { Cell::new(0) };
}

/// The driver's library, opened by the first call and never closed.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    // SAFETY: loading NVIDIA's driver runs only its own initialisation, which has no requirements.
    LIBRARY.get_or_init(|| unsafe { Library::new(NAME) }.ok()).as_ref()
}

/// A function of the driver by its name, which ends with a NUL; `None` if there is no driver or if it has none of that name.
///
/// # Safety
/// `T` is the type of that function.
pub unsafe fn function<T: Copy>(name: &str) -> Option<T> {
    // SAFETY: as the caller guarantees.
    unsafe { library()?.get::<T>(name.as_bytes()) }.ok().map(|f| *f)
}

/// Keeps the driver's code aside and yields the variant for it: a driver may know codes that the enumeration lacks.
fn result(code: u32) -> CUresult {
    CODE.set(code);
    KNOWN.iter().copied().find(|&r| r as u32 == code).unwrap_or(CUresult::CUDA_ERROR_UNKNOWN)
}

macro_rules! forwarded {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            type Function = unsafe extern "C" fn($($type),*) -> u32;
            static FUNCTION: OnceLock<Option<Function>> = OnceLock::new();
            // SAFETY: the driver's function of this name has these parameters and returns a 32-bit enumeration.
            let found = FUNCTION.get_or_init(|| unsafe { function(concat!(stringify!($name), "\0")) });
            result(match found {
                // SAFETY: the caller meets the requirements of the driver's function.
                Some(f) => unsafe { f($($argument),*) },
                None => NO_DEVICE,
            })
        }
    )*};
}

forwarded! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    cuCtxDestroy_v2(context: CUcontext);
    cuCtxPushCurrent_v2(context: CUcontext);
    cuCtxPopCurrent_v2(context: *mut CUcontext);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamSynchronize(stream: CUstream);
    cuStreamDestroy_v2(stream: CUstream);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventElapsedTime(milliseconds: *mut f32, from: CUevent, to: CUevent);
    cuEventDestroy_v2(event: CUevent);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize);
    cuMemFreeHost(address: *mut c_void);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemsetD8Async(at: CUdeviceptr, value: c_uchar, bytes: usize, stream: CUstream);
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleUnload(module: CUmodule);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream,
        parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
}

/// True if the driver's library can be opened.
pub fn present() -> bool {
    library().is_some()
}

/// The version of CUDA that the driver supports, e.g. 13.0.
pub fn cuda_version() -> Option<(u32, u32)> {
    let mut version = 0;
    // SAFETY: the pointer is valid for the call; the function needs no initialisation.
    let result = unsafe { cuda_sys::cuda::cuDriverGetVersion(&mut version) };
    let version =
        u32::try_from(version).ok().filter(|&v| result == CUresult::CUDA_SUCCESS && v > 0)?;
    Some((version / 1000, version % 1000 / 10))
}

/// The driver's own code, if this thread's last call failed.
///
/// # Errors
/// The code, which may be one that `CUresult` lacks.
pub fn checked(result: CUresult) -> Result<(), u32> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        _ => Err(CODE.get()),
    }
}

/// What a code means, in the driver's own words.
pub fn meaning(code: u32) -> String {
    let mut name = format!("error {code}");
    // The driver's types for codes are wider than the enumeration of `cuda-sys`, so these two take numbers.
    for function in ["cuGetErrorString\0", "cuGetErrorName\0"] {
        if let Some(text) = described(function, code) {
            name = match function.starts_with("cuGetErrorName") {
                true => format!("{name} ({text})"),
                false => text,
            };
        }
    }
    name
}

fn described(name: &str, code: u32) -> Option<String> {
    type Describe = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    let mut text = std::ptr::null();
    // SAFETY: both functions that are asked for have this type, take any code, and yield a static text or null.
    let done = unsafe { function::<Describe>(name)?(code, &mut text) } == 0;
    // SAFETY: a text that the driver yields ends with a NUL and is never freed.
    (done && !text.is_null())
        .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// True if the context is unusable after a call returned this code: a kernel or the hardware failed.
pub fn is_final(code: u32) -> bool {
    matches!(code, 4 | 201 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
}

/// The codes that the enumeration of `cuda-sys` has.
const KNOWN: &[CUresult] = &[
    CUresult::CUDA_SUCCESS,
    CUresult::CUDA_ERROR_INVALID_VALUE,
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_NOT_INITIALIZED,
    CUresult::CUDA_ERROR_DEINITIALIZED,
    CUresult::CUDA_ERROR_PROFILER_DISABLED,
    CUresult::CUDA_ERROR_PROFILER_NOT_INITIALIZED,
    CUresult::CUDA_ERROR_PROFILER_ALREADY_STARTED,
    CUresult::CUDA_ERROR_PROFILER_ALREADY_STOPPED,
    CUresult::CUDA_ERROR_NO_DEVICE,
    CUresult::CUDA_ERROR_INVALID_DEVICE,
    CUresult::CUDA_ERROR_INVALID_IMAGE,
    CUresult::CUDA_ERROR_INVALID_CONTEXT,
    CUresult::CUDA_ERROR_CONTEXT_ALREADY_CURRENT,
    CUresult::CUDA_ERROR_MAP_FAILED,
    CUresult::CUDA_ERROR_UNMAP_FAILED,
    CUresult::CUDA_ERROR_ARRAY_IS_MAPPED,
    CUresult::CUDA_ERROR_ALREADY_MAPPED,
    CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUresult::CUDA_ERROR_ALREADY_ACQUIRED,
    CUresult::CUDA_ERROR_NOT_MAPPED,
    CUresult::CUDA_ERROR_NOT_MAPPED_AS_ARRAY,
    CUresult::CUDA_ERROR_NOT_MAPPED_AS_POINTER,
    CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
    CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT,
    CUresult::CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
    CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
    CUresult::CUDA_ERROR_INVALID_PTX,
    CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT,
    CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUresult::CUDA_ERROR_INVALID_SOURCE,
    CUresult::CUDA_ERROR_FILE_NOT_FOUND,
    CUresult::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
    CUresult::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
    CUresult::CUDA_ERROR_OPERATING_SYSTEM,
    CUresult::CUDA_ERROR_INVALID_HANDLE,
    CUresult::CUDA_ERROR_NOT_FOUND,
    CUresult::CUDA_ERROR_NOT_READY,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
    CUresult::CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
    CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
    CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
    CUresult::CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ASSERT,
    CUresult::CUDA_ERROR_TOO_MANY_PEERS,
    CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
    CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
    CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
    CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUresult::CUDA_ERROR_INVALID_PC,
    CUresult::CUDA_ERROR_LAUNCH_FAILED,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_NOT_SUPPORTED,
    CUresult::CUDA_ERROR_UNKNOWN,
];
