//! What the CUDA backend asks of a device.
//!
//! Implemented by NVIDIA's driver, and in tests by an emulator and by a device that records every call.

use super::{Code, LibraryKind, LibraryOp};
use mlc_backends::device::{DriverError, Room};

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

/// Functions that were loaded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Module(pub u64);

/// A queue of a device: what is asked for on one is done in order, on different ones at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u64);

/// What was recorded on a stream, to be started as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Graph(pub u64);

/// What a library is ready to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prepared(pub u64);

/// A loaded function, and what it is started with.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// What it was loaded with.
    pub module: Module,
    /// The function's name.
    pub function: &'a str,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes that a block shares beyond the arrays of the function's own.
    pub shared: u32,
    /// Every argument is a pointer, given with the bytes that the function may touch there.
    pub arguments: &'a [(Address, u64)],
}

/// Whether a device has a library of some kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Library {
    /// It has, or may have, but is told not to use it.
    Off,
    /// It has none: why.
    Absent(String),
    /// It has this one: its name and version.
    Present(String),
}

/// A device. What is asked for on a stream is done in order; a stream belongs to one caller at a time.
pub trait Driver: Send + Sync {
    /// Bytes of memory, at an address that is a multiple of 256. Zero bytes are an address, too.
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError>;

    /// Gives memory back that was allocated.
    fn free(&self, address: Address) -> Result<(), DriverError>;

    /// A stream of the caller's own.
    fn stream(&self) -> Result<Stream, DriverError>;

    /// Gives a stream back, once everything on it is done.
    fn end(&self, stream: Stream) -> Result<(), DriverError>;

    /// Waits until everything on a stream is done.
    fn wait(&self, stream: Stream) -> Result<(), DriverError>;

    /// Copies bytes to the device; they may change once the call returns.
    fn upload(&self, on: Stream, to: Address, bytes: &[u8]) -> Result<(), DriverError>;

    /// Copies bytes from the device and waits for them.
    fn download(&self, on: Stream, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError>;

    /// Sets bytes to zero.
    fn clear(&self, on: Stream, at: Address, bytes: u64) -> Result<(), DriverError>;

    /// Compiles and loads functions of CUDA C++.
    fn load(&self, code: &Code<'_>) -> Result<Module, DriverError>;

    /// Unloads it. None of its functions may run.
    fn unload(&self, module: Module) -> Result<(), DriverError>;

    /// Starts a function.
    fn launch(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError>;

    /// Whether warpgroups multiply matrices in shared memory: `wgmma` of compute capability 9.0.
    fn has_warpgroups(&self) -> bool {
        false
    }

    /// Whether it has a clock that decides between tilings of products.
    fn compares_tilings(&self) -> bool {
        false
    }

    /// Whether [`launch_programmatic`](Self::launch_programmatic) does what it is for.
    fn has_programmatic_launch(&self) -> bool {
        false
    }

    /// As [`launch`](Self::launch), right behind another launch, which began with waiting for those before it as this one does: its blocks may
    /// come onto the device before that one has ended.
    fn launch_programmatic(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        self.launch(on, what)
    }

    /// Starts a function whose blocks wait for each other: all of them are on the device at once, or the device refuses.
    fn launch_cooperative(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        let _ = (on, what);
        let reason = "blocks of a grid cannot wait for each other".into();
        Err(DriverError::Call { call: "launch_cooperative", reason })
    }

    /// Records what `work` clears and launches on the stream, none of which is done. `None` where a device cannot record;
    /// `work` is not called then.
    fn record(
        &self,
        on: Stream,
        work: &mut dyn FnMut() -> Result<(), DriverError>,
    ) -> Result<Option<Graph>, DriverError> {
        let _ = (on, work);
        Ok(None)
    }

    /// Does what was recorded.
    fn replay(&self, on: Stream, graph: Graph) -> Result<(), DriverError> {
        let _ = (on, graph);
        Err(DriverError::Call { call: "replay", reason: "nothing can be recorded".into() })
    }

    /// Forgets what was recorded.
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

    /// Makes something ready to be computed by its library, of what lies at these addresses: in the library's n-th way, from 0 on, or `None`
    /// if it has no more. It may use so many bytes at the last address beside.
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

    /// Computes what was prepared.
    fn multiply(&self, on: Stream, work: Prepared) -> Result<(), DriverError> {
        let _ = (on, work);
        Err(DriverError::Call { call: "multiply", reason: "there is no library".into() })
    }

    /// Gives back what was prepared.
    fn release(&self, work: Prepared) -> Result<(), DriverError> {
        let _ = work;
        Ok(())
    }

    /// How launches are computed that libraries may compute so, as was chosen on this device before, by any process.
    fn chosen(&self, of: &[LibraryOp]) -> Option<String> {
        let _ = of;
        None
    }

    /// Keeps what is chosen, if possible.
    fn choose(&self, of: &[LibraryOp], how: &str) {
        let _ = (of, how);
    }

    /// How such a run is started, as was chosen on this device before, by any process.
    fn chosen_run(&self, run: &str) -> Option<String> {
        let _ = run;
        None
    }

    /// Keeps what is chosen, if possible.
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
