//! What the CUDA backend asks of a device, and why the device refuses.
//!
//! Implemented by NVIDIA's driver, and in tests by an emulator that records every call.

use thiserror::Error;

/// An address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// So many bytes further on.
    #[must_use]
    pub fn after(self, bytes: u64) -> Address {
        Address(self.0 + bytes)
    }
}

/// A loaded translation unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Module(pub u64);

/// Why a device does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DriverError {
    /// There is no driver, or it finds no device.
    #[error("no NVIDIA device can be used: {0}")]
    NoDevice(String),
    /// The compiler of generated code cannot be loaded.
    #[error("the run-time compiler NVRTC cannot be loaded: {0}")]
    NoCompiler(String),
    /// Generated code does not compile: a defect of this library.
    #[error("generated code does not compile:\n{0}")]
    Compile(String),
    /// The device's memory does not suffice.
    #[error("{bytes} bytes of device memory are not to be had")]
    Memory {
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Call {
        /// The function of the driver.
        call: &'static str,
        /// The driver's own words.
        reason: String,
    },
}

/// A device. Calls are in order: a launch sees what was copied and launched before it.
pub trait Driver: Send + Sync {
    /// Bytes of memory, at an address that is a multiple of 256. Zero bytes are an address, too.
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError>;

    /// Gives memory back that was allocated.
    fn free(&self, address: Address) -> Result<(), DriverError>;

    /// Copies bytes to the device.
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DriverError>;

    /// Copies bytes from the device, after everything that was launched before has ended.
    fn download(&self, from: Address, into: &mut [u8]) -> Result<(), DriverError>;

    /// Sets bytes to zero.
    fn clear(&self, at: Address, bytes: u64) -> Result<(), DriverError>;

    /// Compiles and loads a translation unit of CUDA C++.
    fn load(&self, source: &str) -> Result<Module, DriverError>;

    /// Unloads it.
    fn unload(&self, module: Module) -> Result<(), DriverError>;

    /// Starts a function: every argument is a pointer, given with the bytes that the function may touch there.
    fn launch(
        &self,
        module: Module,
        function: &str,
        grid: [u32; 3],
        block: u32,
        arguments: &[(Address, u64)],
    ) -> Result<(), DriverError>;
}
