//! Driver functions newer than the bindings: stream capture, cooperative and programmatic launches. A driver may lack them.

use super::library::{cuda_version, function};
use cuda_sys::cuda::CUstream;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// A recorded graph, or one that is ready to be started.
pub type Handle = *mut c_void;

/// Other threads may go on allocating while one records.
pub const THREAD_LOCAL: u32 = 1;

/// Starts a function whose blocks wait for each other: the blocks' and the threads' numbers, bytes of shared memory, the stream, and pointers to
/// the arguments.
pub type LaunchCooperativeKernel = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    CUstream,
    *mut *mut c_void,
) -> u32;

/// This function, if the driver has it.
pub fn launch_cooperative_kernel() -> Option<LaunchCooperativeKernel> {
    static FOUND: OnceLock<Option<LaunchCooperativeKernel>> = OnceLock::new();
    // SAFETY: the types are those of cuda.h.
    *FOUND.get_or_init(|| unsafe { function("cuLaunchCooperativeKernel\0") })
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` of cuda.h.
pub const MOST_SHARED: c_int = 8;

/// Sets an attribute of a function to a number.
pub type SetAttribute = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> u32;

/// This function, if the driver has it.
pub fn set_attribute() -> Option<SetAttribute> {
    static FOUND: OnceLock<Option<SetAttribute>> = OnceLock::new();
    // SAFETY: the types are those of cuda.h.
    *FOUND.get_or_init(|| unsafe { function("cuFuncSetAttribute\0") })
}

/// How [`LaunchKernelEx`] starts a function, as `CUlaunchConfig` of cuda.h.
#[repr(C)]
pub struct Config {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub stream: CUstream,
    pub attributes: *mut Attribute,
    pub count: u32,
}

/// `CUlaunchAttribute` of cuda.h: what is meant, and 64 bytes that hold its value.
#[repr(C)]
pub struct Attribute {
    id: u32,
    value: [u64; 8],
}

impl Attribute {
    /// The function may begin before what is ahead of it on the stream has ended
    /// (`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`).
    pub fn programmatic_launch() -> Attribute {
        Attribute { id: 6, value: [1, 0, 0, 0, 0, 0, 0, 0] }
    }
}

/// Starts a function as is configured, with pointers to the arguments, or with a buffer of them.
pub type LaunchKernelEx =
    unsafe extern "C" fn(*const Config, *mut c_void, *mut *mut c_void, *mut *mut c_void) -> u32;

/// This function, if the driver has it and records such starts, as from CUDA 12.3 on.
pub fn launch_kernel_ex() -> Option<LaunchKernelEx> {
    static FOUND: OnceLock<Option<LaunchKernelEx>> = OnceLock::new();
    // SAFETY: the types are those of cuda.h.
    *FOUND.get_or_init(|| match cuda_version()? >= (12, 3) {
        true => unsafe { function("cuLaunchKernelEx\0") },
        false => None,
    })
}

/// What records launches and starts them again; every function returns the driver's code.
#[derive(Clone, Copy)]
pub struct StreamCapture {
    /// Begins to record what is asked for on a stream.
    pub begin: unsafe extern "C" fn(CUstream, u32) -> u32,
    /// Ends it.
    pub end: unsafe extern "C" fn(CUstream, *mut Handle) -> u32,
    /// Makes a graph ready.
    pub instantiate: unsafe extern "C" fn(*mut Handle, Handle, u64) -> u32,
    /// Starts one that is ready.
    pub launch: unsafe extern "C" fn(Handle, CUstream) -> u32,
    /// Gives back a graph.
    pub destroy: unsafe extern "C" fn(Handle) -> u32,
    /// Gives back one that is ready.
    pub destroy_ready: unsafe extern "C" fn(Handle) -> u32,
}

/// These functions, if the driver has all of them.
pub fn stream_capture() -> Option<StreamCapture> {
    static FOUND: OnceLock<Option<StreamCapture>> = OnceLock::new();
    // SAFETY: the types are those of cuda.h; its enumerations are 32-bit numbers here, its handles pointers.
    *FOUND.get_or_init(|| unsafe {
        Some(StreamCapture {
            begin: function("cuStreamBeginCapture_v2\0")?,
            end: function("cuStreamEndCapture\0")?,
            instantiate: function("cuGraphInstantiateWithFlags\0")?,
            launch: function("cuGraphLaunch\0")?,
            destroy: function("cuGraphDestroy\0")?,
            destroy_ready: function("cuGraphExecDestroy\0")?,
        })
    })
}
