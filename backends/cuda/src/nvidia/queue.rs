//! Streams of an NVIDIA device: staged copies, launches, captured graphs, timing.

use super::device::Nvidia;
use super::driver_extensions::{self, Handle, StreamCapture, THREAD_LOCAL};
use super::nvrtc;
use super::staging::{MOST, PIECE, Staging, wanted};
use crate::autotune::library_candidate::{LibraryKind, LibraryOp};
use crate::code::Code;
use crate::driver::{Address, Driver, Graph, Invocation, Library, Module, Prepared, Stream};
use cuda_sys::cuda::*;
use mlc_backends::device::{DriverError, Room};
use std::env;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// Keeps the launches of a run apart, if it is `off`.
const MERGED: &str = "MLC_CUDA_MERGED";

/// Starts every launch when the one ahead of it has ended, if it is `off`.
const EARLY: &str = "MLC_CUDA_EARLY";

/// Cuts products as is estimated to be the fastest, without asking the clock, if it is `off`.
const TILINGS: &str = "MLC_CUDA_TILINGS";

/// Leaves products by warpgroups away, if it is `off`.
const WARPGROUPS: &str = "MLC_CUDA_WGMMA";

/// The only compute capability that has them.
const HOPPER: (i32, i32) = (9, 0);

/// Bytes that a block may share without being allowed to share more.
const SHARED: u32 = 48 << 10;

/// A stream that does not wait for the stream that the context has by default.
const NON_BLOCKING: u32 = 1;

/// A stream, and what its copies go through.
pub(super) struct Queue {
    stream: CUstream,
    /// Allocated by the first copy.
    staging: Option<Staging>,
}

// SAFETY: the driver's handles may be used by any thread that has made the context current.
unsafe impl Send for Queue {}

impl Queue {
    /// Gives back what the driver holds for it, once all is done. The context is current.
    pub(super) fn close(&mut self) {
        // SAFETY: the handles are this value's own, nothing runs once the stream was waited for, and none is used again.
        unsafe {
            let _ = cuStreamSynchronize(self.stream);
            if let Some(staging) = self.staging.take() {
                let _ = cuMemFreeHost(staging.into_raw());
            }
            let _ = cuStreamDestroy_v2(self.stream);
        }
    }
}

fn unknown(call: &'static str) -> DriverError {
    DriverError::Call { call, reason: "there is no such stream".into() }
}

/// The compute capability that has launches which wait for those ahead of them in their own code.
const EARLIEST: (i32, i32) = (9, 0);

/// The arguments of a launch, of 64 bits each: pointers, then numbers.
fn words(what: &Invocation<'_>) -> Vec<u64> {
    let pointers = what.arguments.iter().map(|(a, _)| a.0);
    pointers.chain(what.numbers.iter().map(|n| n.cast_unsigned())).collect()
}

/// Calls the driver with a launch's arguments: with CU_LAUNCH_PARAM_BUFFER_POINTER and a buffer of them, CU_LAUNCH_PARAM_BUFFER_SIZE and its
/// size, and CU_LAUNCH_PARAM_END, all valid for the call; with null if there are none. The driver never reads past a buffer of a stated size,
/// whatever number of parameters the function has.
fn in_a_buffer<T>(what: &Invocation<'_>, call: impl FnOnce(*mut *mut c_void) -> T) -> T {
    let mut words = words(what);
    let mut bytes = size_of_val(words.as_slice());
    let (buffer, size): (*mut c_void, *mut usize) = (words.as_mut_ptr().cast(), &mut bytes);
    let mut extra: [*mut c_void; 5] = [
        ptr::without_provenance_mut(1),
        buffer,
        ptr::without_provenance_mut(2),
        size.cast(),
        ptr::null_mut(),
    ];
    call(if words.is_empty() { ptr::null_mut() } else { extra.as_mut_ptr() })
}

impl Nvidia {
    fn queue(&self, on: Stream) -> Result<Arc<Mutex<Queue>>, DriverError> {
        self.state().queues.get(&on).cloned().ok_or_else(|| unknown("a stream"))
    }

    /// Does something with a stream while the context is current.
    fn with<T>(
        &self,
        on: Stream,
        f: impl FnOnce(&mut Queue) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let _current = self.enter()?;
        let queue = self.queue(on)?;
        f(&mut queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for everything that was started.
    fn synchronized(&self, queue: &Queue) -> Result<(), DriverError> {
        // SAFETY: the stream is open.
        self.done("cuStreamSynchronize", unsafe { cuStreamSynchronize(queue.stream) })
    }

    /// A part of the memory for copies. If there is none left, what is under way is waited for, and `before` is called
    /// before parts are used again.
    fn part(
        &self,
        queue: &mut Queue,
        bytes: usize,
        before: &mut dyn FnMut(&mut Staging),
    ) -> Result<Range<usize>, DriverError> {
        if let Some(part) = queue.staging.as_mut().and_then(|s| s.take(bytes)) {
            return Ok(part);
        }
        self.synchronized(queue)?;
        let mut size = wanted(bytes);
        if let Some(mut full) = queue.staging.take() {
            before(&mut full);
            full.reset();
            if full.size() == MOST {
                let part = full.take(bytes).expect("a piece fits into all of it");
                queue.staging = Some(full);
                return Ok(part);
            }
            size = wanted(2 * full.size().max(bytes));
            // SAFETY: the driver allocated this memory, and no copy is under way.
            self.done("cuMemFreeHost", unsafe { cuMemFreeHost(full.into_raw()) })?;
        }
        let mut start = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        self.done("cuMemAllocHost", unsafe { cuMemAllocHost_v2(&mut start, size) })?;
        // SAFETY: the driver allocated as many bytes for this value alone; any bytes are initialised once written.
        unsafe { ptr::write_bytes(start.cast::<u8>(), 0, size) };
        // SAFETY: as above; the memory is freed when the stream is closed.
        let mut fresh = unsafe { Staging::new(start, size) };
        let part = fresh.take(bytes).expect("as large as wanted");
        queue.staging = Some(fresh);
        Ok(part)
    }

    fn uploaded(
        &self,
        queue: &mut Queue,
        mut to: Address,
        bytes: &[u8],
    ) -> Result<(), DriverError> {
        for piece in bytes.chunks(PIECE) {
            let part = self.part(queue, piece.len(), &mut |_| ())?;
            let staging = queue.staging.as_mut().expect("has a part");
            let part = staging.part(part);
            part.copy_from_slice(piece);
            let (from, n) = (part.as_ptr().cast::<c_void>(), piece.len());
            // SAFETY: the bytes stay as they are until the stream was waited for; the driver refuses wrong addresses.
            let result = unsafe { cuMemcpyHtoDAsync_v2(to.0, from, n, queue.stream) };
            self.done("cuMemcpyHtoDAsync", result)?;
            to = to.after(n as u64);
        }
        Ok(())
    }

    fn downloaded(
        &self,
        queue: &mut Queue,
        parts: &mut [(Address, &mut [u8])],
    ) -> Result<(), DriverError> {
        let mut under_way: Vec<(Range<usize>, &mut [u8])> = Vec::new();
        for (from, into) in parts {
            let mut from = *from;
            for piece in into.chunks_mut(PIECE) {
                let n = piece.len();
                let part = self.part(queue, n, &mut |staging| {
                    for (part, piece) in under_way.drain(..) {
                        piece.copy_from_slice(staging.part(part));
                    }
                })?;
                let staging = queue.staging.as_mut().expect("has a part");
                let to = staging.part(part.clone()).as_mut_ptr().cast::<c_void>();
                // SAFETY: nothing else uses the part until the stream was waited for; the driver refuses wrong addresses.
                let result = unsafe { cuMemcpyDtoHAsync_v2(to, from.0, n, queue.stream) };
                self.done("cuMemcpyDtoHAsync", result)?;
                under_way.push((part, piece));
                from = from.after(n as u64);
            }
        }
        self.synchronized(queue)?;
        if let Some(staging) = &mut queue.staging {
            for (part, piece) in under_way {
                piece.copy_from_slice(staging.part(part));
            }
            staging.reset();
        }
        Ok(())
    }

    /// What was asked for between the beginning and the end of a recording, ready to be started.
    fn recorded(
        &self,
        functions: &StreamCapture,
        stream: CUstream,
        work: &mut dyn FnMut() -> Result<(), DriverError>,
    ) -> Result<Handle, DriverError> {
        // SAFETY: the stream is open and belongs to the caller.
        self.coded("cuStreamBeginCapture", unsafe { (functions.begin)(stream, THREAD_LOCAL) })?;
        let asked = work();
        let (mut graph, mut ready) = (ptr::null_mut(), ptr::null_mut());
        // Ended in any case: a stream that records does nothing else.
        // SAFETY: the pointer is valid for the call.
        let ended = unsafe { (functions.end)(stream, &mut graph) };
        let result = asked.and_then(|()| {
            self.coded("cuStreamEndCapture", ended)?;
            // SAFETY: the graph is whole; the pointer is valid for the call.
            let code = unsafe { (functions.instantiate)(&mut ready, graph, 0) };
            self.coded("cuGraphInstantiate", code)
        });
        if !graph.is_null() {
            // SAFETY: the graph is this function's own; what was made of it does not need it.
            let _ = unsafe { (functions.destroy)(graph) };
        }
        result.map(|()| ready)
    }
}

/// Events of a device, in the order of their records.
struct Events<'a> {
    device: &'a Nvidia,
    all: Vec<CUevent>,
}

impl Events<'_> {
    fn record(&mut self, stream: CUstream) -> Result<(), DriverError> {
        let mut event = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        self.device.done("cuEventCreate", unsafe { cuEventCreate(&mut event, 0) })?;
        self.all.push(event);
        // SAFETY: both handles are valid.
        self.device.done("cuEventRecord", unsafe { cuEventRecord(event, stream) })
    }

    /// Seconds from each to the next one; all have happened.
    fn seconds(&self) -> Result<Vec<f64>, DriverError> {
        let between = |pair: &[CUevent]| {
            let mut milliseconds = 0.0;
            // SAFETY: the pointer is valid for the call, and so are the events.
            let result = unsafe { cuEventElapsedTime(&mut milliseconds, pair[0], pair[1]) };
            self.device.done("cuEventElapsedTime", result)?;
            Ok(f64::from(milliseconds) / 1e3)
        };
        self.all.windows(2).map(between).collect()
    }
}

impl Drop for Events<'_> {
    fn drop(&mut self) {
        for event in &self.all {
            // SAFETY: the event is this value's own and not used again; the context is current.
            let _ = unsafe { cuEventDestroy_v2(*event) };
        }
    }
}

impl Nvidia {
    /// The function of a launch, whose blocks may share as much memory as they are to.
    fn allowed(&self, what: &Invocation<'_>) -> Result<CUfunction, DriverError> {
        let function = self.function(what.module, what.function)?;
        if what.shared > SHARED {
            let call = "cuFuncSetAttribute";
            let lacking =
                || DriverError::Call { call, reason: "the driver does not have it".into() };
            let set = driver_extensions::set_attribute().ok_or_else(lacking)?;
            // SAFETY: the function belongs to a loaded module; the driver refuses numbers that are too large.
            let code = unsafe {
                set(function.cast(), driver_extensions::MOST_SHARED, what.shared as c_int)
            };
            self.coded(call, code)?;
        }
        Ok(function)
    }
}

impl Driver for Nvidia {
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
        self.allocated(bytes)
    }

    fn free(&self, address: Address) -> Result<(), DriverError> {
        self.freed(address)
    }

    fn stream(&self) -> Result<Stream, DriverError> {
        let _current = self.enter()?;
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        self.done("cuStreamCreate", unsafe { cuStreamCreate(&mut stream, NON_BLOCKING) })?;
        let mut state = self.state();
        let id = Stream(state.number());
        state.queues.insert(id, Arc::new(Mutex::new(Queue { stream, staging: None })));
        Ok(id)
    }

    fn end(&self, stream: Stream) -> Result<(), DriverError> {
        let _current = self.enter()?;
        let queue = self.state().queues.remove(&stream).ok_or_else(|| unknown("end"))?;
        queue.lock().unwrap_or_else(PoisonError::into_inner).close();
        Ok(())
    }

    fn wait(&self, stream: Stream) -> Result<(), DriverError> {
        self.with(stream, |queue| {
            self.synchronized(queue)?;
            if let Some(staging) = &mut queue.staging {
                staging.reset();
            }
            Ok(())
        })
    }

    fn upload(&self, on: Stream, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        self.with(on, |queue| self.uploaded(queue, to, bytes))
    }

    fn download(&self, on: Stream, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError> {
        self.with(on, |queue| self.downloaded(queue, parts))
    }

    fn clear(&self, on: Stream, at: Address, bytes: u64) -> Result<(), DriverError> {
        if bytes == 0 {
            return Ok(());
        }
        let size = usize::try_from(bytes).map_err(|_| DriverError::Memory { bytes, room: None })?;
        self.with(on, |queue| {
            // SAFETY: the driver refuses wrong addresses.
            let result = unsafe { cuMemsetD8Async(at.0, 0, size, queue.stream) };
            self.done("cuMemsetD8Async", result)
        })
    }

    fn load(&self, code: &Code<'_>) -> Result<Module, DriverError> {
        self.module(code)
    }

    fn unload(&self, module: Module) -> Result<(), DriverError> {
        self.unloaded(module)
    }

    fn launch(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        self.with(on, |queue| {
            let function = self.allowed(what)?;
            let ([x, y, z], block, shared) = (what.grid, what.block, what.shared);
            let (none, stream) = (ptr::null_mut(), queue.stream);
            let result = in_a_buffer(what, |extra| {
                // SAFETY: the function belongs to a loaded module; `extra` is as the driver takes it.
                unsafe {
                    cuLaunchKernel(function, x, y, z, block, 1, 1, shared, stream, none, extra)
                }
            });
            self.done("cuLaunchKernel", result)?;
            if self.is_blocking() { self.synchronized(queue) } else { Ok(()) }
        })
    }

    /// Code for a newer architecture than the compiler knows, or for an older one, has no such instructions.
    fn has_warpgroups(&self) -> bool {
        let is_off = env::var_os(WARPGROUPS).is_some_and(|v| v == "off");
        let (major, minor) = self.capability();
        let compiled = || nvrtc::architecture(major, minor).is_ok_and(|a| a == "sm_90a");
        self.capability() == HOPPER && !is_off && compiled()
    }

    fn compares_tilings(&self) -> bool {
        env::var_os(TILINGS).is_none_or(|v| v != "off")
    }

    fn has_programmatic_launch(&self) -> bool {
        let is_off = env::var_os(EARLY).is_some_and(|v| v == "off");
        self.capability() >= EARLIEST && !is_off && driver_extensions::launch_kernel_ex().is_some()
    }

    fn launch_programmatic(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        let call = "cuLaunchKernelEx";
        let lacking = || DriverError::Call { call, reason: "the driver does not have it".into() };
        let start = driver_extensions::launch_kernel_ex().ok_or_else(lacking)?;
        self.with(on, |queue| {
            let function = self.allowed(what)?;
            let mut attribute = driver_extensions::Attribute::programmatic_launch();
            let (stream, attributes) = (queue.stream, ptr::from_mut(&mut attribute));
            let (grid, block, shared) = (what.grid, [what.block, 1, 1], what.shared);
            let config =
                driver_extensions::Config { grid, block, shared, stream, attributes, count: 1 };
            let code = in_a_buffer(what, |extra| {
                // SAFETY: as for `launch`; the configuration and its attribute are valid for the call.
                unsafe { start(&config, function.cast(), ptr::null_mut(), extra) }
            });
            self.coded(call, code)?;
            if self.is_blocking() { self.synchronized(queue) } else { Ok(()) }
        })
    }

    fn launch_cooperative(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        let call = "cuLaunchCooperativeKernel";
        if env::var_os(MERGED).is_some_and(|v| v == "off") {
            return Err(DriverError::Call { call, reason: format!("{MERGED} turns it off") });
        }
        let lacking = || DriverError::Call { call, reason: "the driver does not have it".into() };
        let start = driver_extensions::launch_cooperative_kernel().ok_or_else(lacking)?;
        self.with(on, |queue| {
            let function = self.function(what.module, what.function)?;
            let ([x, y, z], block) = (what.grid, what.block);
            let mut words = words(what);
            let mut each: Vec<*mut c_void> =
                words.iter_mut().map(|p| ptr::from_mut(p).cast()).collect();
            let stream = queue.stream;
            // SAFETY: the function belongs to a loaded module, and was generated with as many parameters, all of 64 bits; they
            // and the list of them are valid for the call.
            let code = unsafe {
                start(function.cast(), x, y, z, block, 1, 1, 0, stream, each.as_mut_ptr())
            };
            self.coded(call, code)?;
            if self.is_blocking() { self.synchronized(queue) } else { Ok(()) }
        })
    }

    fn record(
        &self,
        on: Stream,
        work: &mut dyn FnMut() -> Result<(), DriverError>,
    ) -> Result<Option<Graph>, DriverError> {
        let Some(functions) = driver_extensions::stream_capture().filter(|_| !self.is_blocking())
        else {
            return Ok(None);
        };
        let _current = self.enter()?;
        // `work` takes the lock of the stream for each of its calls.
        let stream = self.with(on, |queue| Ok(queue.stream))?;
        let ready = self.recorded(&functions, stream, work)?;
        let mut state = self.state();
        let id = Graph(state.number());
        state.graphs.insert(id, ready);
        Ok(Some(id))
    }

    fn replay(&self, on: Stream, graph: Graph) -> Result<(), DriverError> {
        let call = "cuGraphLaunch";
        let found =
            self.state().graphs.get(&graph).copied().zip(driver_extensions::stream_capture());
        let Some((ready, functions)) = found else { return Err(unknown(call)) };
        self.with(on, |queue| {
            // SAFETY: the graph is ready, and the stream is open.
            self.coded(call, unsafe { (functions.launch)(ready, queue.stream) })
        })
    }

    fn forget(&self, graph: Graph) -> Result<(), DriverError> {
        let _current = self.enter()?;
        let found = self.state().graphs.remove(&graph).zip(driver_extensions::stream_capture());
        let Some((ready, functions)) = found else { return Ok(()) };
        // SAFETY: the graph is not used again; what runs of it goes on.
        self.coded("cuGraphExecDestroy", unsafe { (functions.destroy_ready)(ready) })
    }

    fn timed(
        &self,
        on: Stream,
        steps: usize,
        work: &mut dyn FnMut(usize) -> Result<(), DriverError>,
    ) -> Result<Option<Vec<f64>>, DriverError> {
        let _current = self.enter()?;
        let stream = self.with(on, |queue| Ok(queue.stream))?;
        let mut events = Events { device: self, all: vec![] };
        events.record(stream)?;
        for step in 0..steps {
            work(step)?;
            events.record(stream)?;
        }
        self.wait(on)?;
        events.seconds().map(Some)
    }

    fn library(&self, of: LibraryKind) -> Library {
        self.library_of(of)
    }

    fn prepare(
        &self,
        work: &LibraryOp,
        at: &[Address],
        workspace: (Address, u64),
        way: usize,
    ) -> Result<Option<Prepared>, DriverError> {
        self.prepared(work, at, workspace, way)
    }

    fn multiply(&self, on: Stream, work: Prepared) -> Result<(), DriverError> {
        self.with(on, |queue| {
            self.multiplied(work, queue.stream.cast())?;
            if self.is_blocking() { self.synchronized(queue) } else { Ok(()) }
        })
    }

    fn release(&self, work: Prepared) -> Result<(), DriverError> {
        let _current = self.enter()?;
        drop(self.state().products.remove(&work));
        Ok(())
    }

    fn chosen(&self, of: &[LibraryOp]) -> Option<String> {
        self.choice_on_disk(of)
    }

    fn choose(&self, of: &[LibraryOp], how: &str) {
        self.keep_choice(of, how);
    }

    fn chosen_run(&self, run: &str) -> Option<String> {
        self.run_on_disk(run)
    }

    fn choose_run(&self, run: &str, way: &str) {
        self.keep_run(run, way);
    }

    fn processors(&self) -> Option<u32> {
        Some(self.multiprocessors())
    }

    fn room(&self) -> Result<Option<Room>, DriverError> {
        let _current = self.enter()?;
        self.room_of_context().map(Some)
    }
}
