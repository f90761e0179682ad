//! What the CUDA backend asks of a device.
//!
//! Implemented by NVIDIA's driver, and in tests by an emulator and by a device that records every call.

use crate::autotune::library_candidate::{LibraryKind, LibraryOp};
use crate::code::Code;
use mlc_backends::device::{DriverError, Room};

/// An address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` further on.
    #[must_use]
    pub fn after(self, bytes: u64) -> Address {
        Address(self.0 + bytes)
    }
}

/// A loaded module of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Module(pub u64);

/// A stream of a device: operations on one run in order, those on different ones concurrently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u64);

/// A graph captured from a stream, replayed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Graph(pub u64);

/// A library operation that is ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prepared(pub u64);

/// A launch of a loaded function.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// The module that it is in.
    pub module: Module,
    /// The function's name.
    pub function: &'a str,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// Pointers, each with the bytes that the function may touch there.
    pub arguments: &'a [(Address, u64)],
    /// The numbers behind them, of 64 bits each.
    pub numbers: &'a [i64],
}

/// Whether a device has a library of some kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Library {
    /// It may have it, but is told not to use it.
    Off,
    /// It has none: why.
    Absent(String),
    /// It has this one: its name and version.
    Present(String),
}

/// A device. Operations on a stream run in order; a stream belongs to one caller at a time.
pub trait Driver: Send + Sync {
    /// Allocates memory, aligned to 256 bytes. Zero bytes have an address, too.
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError>;

    /// Frees allocated memory.
    fn free(&self, address: Address) -> Result<(), DriverError>;

    /// Creates a stream.
    fn stream(&self) -> Result<Stream, DriverError>;

    /// Destroys a stream, once everything on it is done.
    fn end(&self, stream: Stream) -> Result<(), DriverError>;

    /// Waits until everything on a stream is done.
    fn wait(&self, stream: Stream) -> Result<(), DriverError>;

    /// Copies bytes to the device; the caller may change them once the call returns.
    fn upload(&self, on: Stream, to: Address, bytes: &[u8]) -> Result<(), DriverError>;

    /// Copies bytes from the device and waits for them.
    fn download(&self, on: Stream, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError>;

    /// Sets bytes to zero.
    fn clear(&self, on: Stream, at: Address, bytes: u64) -> Result<(), DriverError>;

    /// Compiles and loads functions of CUDA C++.
    fn load(&self, code: &Code<'_>) -> Result<Module, DriverError>;

    /// Unloads it. None of its functions may run.
    fn unload(&self, module: Module) -> Result<(), DriverError>;

    /// Launches a function.
    fn launch(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError>;

    /// Whether it has warpgroup matrix instructions (`wgmma` of compute capability 9.0).
    fn has_warpgroups(&self) -> bool {
        false
    }

    /// Whether it can time tilings of products against each other.
    fn compares_tilings(&self) -> bool {
        false
    }

    /// Whether it supports programmatic dependent launch.
    fn has_programmatic_launch(&self) -> bool {
        false
    }

    /// Programmatic dependent launch: blocks may become resident before the previous launch has ended. Both functions begin by waiting
    /// for the launches ahead of them.
    fn launch_programmatic(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        self.launch(on, what)
    }

    /// Cooperative launch: all blocks are resident at once, or the device refuses.
    fn launch_cooperative(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        let _ = (on, what);
        let reason = "blocks of a grid cannot wait for each other".into();
        Err(DriverError::Call { call: "launch_cooperative", reason })
    }

    /// Captures what `work` clears and launches on the stream, without running it. `None` where a device cannot capture;
    /// `work` is not called then.
    fn record(
        &self,
        on: Stream,
        work: &mut dyn FnMut() -> Result<(), DriverError>,
    ) -> Result<Option<Graph>, DriverError> {
        let _ = (on, work);
        Ok(None)
    }

    /// Launches a captured graph.
    fn replay(&self, on: Stream, graph: Graph) -> Result<(), DriverError> {
        let _ = (on, graph);
        Err(DriverError::Call { call: "replay", reason: "nothing can be recorded".into() })
    }

    /// Destroys a captured graph.
    fn forget(&self, graph: Graph) -> Result<(), DriverError> {
        let _ = graph;
        Ok(())
    }

    /// Seconds that each of several steps takes on the stream, by the device's own clock. `None` where a device has none;
    /// `work` is not called then.
    fn timed(
        &self,
        on: Stream,
        steps: usize,
        work: &mut dyn FnMut(usize) -> Result<(), DriverError>,
    ) -> Result<Option<Vec<f64>>, DriverError> {
        let _ = (on, steps, work);
        Ok(None)
    }

    /// The library of a kind.
    fn library(&self, of: LibraryKind) -> Library {
        let _ = of;
        Library::Off
    }

    /// Prepares a library operation on these addresses by the library's n-th algorithm, from 0 on, or `None` if it has no more. It may
    /// use the workspace besides.
    fn prepare(
        &self,
        work: &LibraryOp,
        at: &[Address],
        workspace: (Address, u64),
        way: usize,
    ) -> Result<Option<Prepared>, DriverError> {
        let _ = (work, at, workspace, way);
        Err(DriverError::Call { call: "prepare", reason: "there is no library".into() })
    }

    /// Runs a prepared library operation.
    fn multiply(&self, on: Stream, work: Prepared) -> Result<(), DriverError> {
        let _ = (on, work);
        Err(DriverError::Call { call: "multiply", reason: "there is no library".into() })
    }

    /// Releases a prepared library operation.
    fn release(&self, work: Prepared) -> Result<(), DriverError> {
        let _ = work;
        Ok(())
    }

    /// The earlier autotuning choice of any process on this device for launches with these library candidates.
    fn chosen(&self, of: &[LibraryOp]) -> Option<String> {
        let _ = of;
        None
    }

    /// Stores an autotuning choice, if possible.
    fn choose(&self, of: &[LibraryOp], how: &str) {
        let _ = (of, how);
    }

    /// The earlier autotuning choice of any process on this device for this key of a run or a product.
    fn chosen_run(&self, run: &str) -> Option<String> {
        let _ = run;
        None
    }

    /// Stores an autotuning choice, if possible.
    fn choose_run(&self, run: &str, way: &str) {
        let _ = (run, way);
    }

    /// The device's multiprocessors; `None` where it does not tell.
    fn processors(&self) -> Option<u32> {
        None
    }

    /// The device's memory; `None` where it does not tell.
    fn room(&self) -> Result<Option<Room>, DriverError> {
        Ok(None)
    }
}
