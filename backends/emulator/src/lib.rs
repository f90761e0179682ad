//! Emulates generated CUDA C++ kernels on the CPU: to test them where there is no GPU, and to find errors that
//! a GPU does not report.
//!
//! A unit of kernels is compiled by the host's C++ compiler into a shared library, with a header (`cxx/emulator.hpp`)
//! that defines CUDA's keywords. The threads of a block are fibers on the calling thread, each of which runs
//! until it waits; blocks run one after another. So a launch is deterministic. It ends with an error at the first
//!
//! * access out of the bounds of a parameter or a shared array, or not aligned to its size,
//! * read of an element of a shared array that the block has not written,
//! * pair of accesses to an element by different threads, one of them writing and not both atomic, that no barrier (or,
//!   within a warp, `__syncwarp`) orders, in whichever order they happen to run here: a race. Accesses by different
//!   blocks of a launch are never ordered. Parameters may overlap: races are found between them, too,
//! * read of what a copy to shared memory (`copy_async`) brings before its group is waited for,
//! * sum of a product by a warpgroup that is read before the product is waited for, write to what such a product reads, and product whose sums,
//!   or whose factors in shared memory, were written with no fence since,
//! * barrier, or operation of a warp, that a thread which it needs does not come to.
//!
//! A kernel is `KERNEL(threads) name(GLOBAL(T) p, …, long long n, …) {…}`: pointers, then numbers. Its pointers are checked ones: elements are read and written
//! as `p[i]` and `*p`, `&p[i]` is an element's address if it may be written, and 16 bytes are accessed by `LOAD4`,
//! `STORE4`, `LOAD16` and `STORE16`. An element that may be written has no value of its own: it is read where its type
//! is known (`float v = p[i]`, not `auto v = p[i]`), and in `c ? p[i] : x` the type of `x` is the element's; everything
//! else does not compile.
//!
//! Barriers of a whole grid (`wait_for_grid`) are emulated where `PHASE(n) {…}` says what runs between them: blocks keep nothing of their own
//! from one phase to the next.
//!
//! Not emulated: what only timing decides (blocks that wait for each other otherwise never end), memory fences (a read of what
//! another block has written is a race, fence or not), `__syncwarp` of a part of a warp as an order of accesses (it
//! waits, but orders nothing), the rounding of approximate functions (`__expf` is `expf`), and the order of additions
//! in products of matrices (they are rounded once), and descriptors of matrices whose pattern is offset. Arrays of a thread's own are not checked, and what C++ leaves
//! undefined is what the host does: casts of floating point to integers that do not fit (`__float2int_rz` saturates),
//! and shifts by too much.

mod compiler;
mod kernels;

use std::{
    collections::HashMap,
    ffi::{CStr, c_char},
    ops::Range,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

use libloading::Library;
use thiserror::Error;

pub use compiler::{Effort, available};

/// Why a unit does not compile, or a launch fails.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EmulatorError {
    /// There is no C++ compiler: `$CXX`, or `c++` where that is not set, cannot be run.
    #[error("there is no C++ compiler: $CXX, or c++ where that is not set, cannot be run")]
    NoCompiler,
    /// The compiler, or what is needed to run it, refuses.
    #[error("the unit does not compile:\n{0}")]
    Compile(String),
    /// The first error of a launch: function, block, thread, and what the thread does.
    #[error("{0}")]
    Launch(String),
    /// The unit has no kernel of this name.
    #[error("the unit has no kernel {0}")]
    UnknownFunction(String),
}

/// The memory that a parameter may access. Aligned to the parameter's elements; to 16 where it is accessed by 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first byte.
    pub pointer: *mut u8,
    /// How many bytes there are.
    pub bytes: usize,
}

/// The launch that `interface.hpp` calls a request.
#[repr(C)]
struct Request {
    grid: [u32; 3],
    block: u32,
    regions: *const RawRegion,
    count: u64,
    numbers: *const i64,
    number_count: u64,
    first: u64,
    last: u64,
}

#[repr(C)]
struct RawRegion {
    base: *mut u8,
    bytes: u64,
}

/// Runs a launch; a message, if it fails, which is the unit's until its next launch.
type Entry = unsafe extern "C" fn(*const Request) -> *const c_char;

struct LoadedUnit {
    /// Its static data is the state of a launch: one launch at a time.
    launching: Mutex<()>,
    entries: HashMap<String, Entry>,
    /// What the entries point into.
    _library: Library,
}

/// A compiled unit.
#[derive(Clone)]
pub struct Unit(Arc<LoadedUnit>);

type Slot = Arc<OnceLock<Result<Unit, EmulatorError>>>;

/// The units of this process, by their source and what the compiler did to them.
static UNITS: LazyLock<Mutex<HashMap<(String, Effort), Slot>>> = LazyLock::new(Mutex::default);

impl Unit {
    /// Compiles a unit, with `$CXX` or else `c++`. The same source is compiled once in a process.
    ///
    /// # Errors
    ///
    /// If there is no compiler, or the unit does not compile.
    pub fn compile(source: &str) -> Result<Unit, EmulatorError> {
        Unit::compile_with(source, Effort::Low)
    }

    /// The same with more effort of the compiler, for long runs.
    ///
    /// # Errors
    ///
    /// As [`compile`](Self::compile).
    pub fn compile_with(source: &str, effort: Effort) -> Result<Unit, EmulatorError> {
        let slot = {
            let mut units = UNITS.lock().unwrap_or_else(PoisonError::into_inner);
            units.entry((source.to_owned(), effort)).or_default().clone()
        };
        slot.get_or_init(|| Unit::load(source, effort)).clone()
    }

    fn load(source: &str, effort: Effort) -> Result<Unit, EmulatorError> {
        let kernels = kernels::find(source);
        let library = compiler::library(&kernels::with_entries(source, &kernels), effort)?;
        let mut entries = HashMap::new();
        for kernel in kernels {
            let symbol = kernels::entry(&kernel.name);
            // SAFETY: `with_entries` declares a function of this type for each kernel.
            let entry = unsafe { library.get::<Entry>(symbol) };
            entries.insert(
                kernel.name,
                *entry.map_err(|error| EmulatorError::Compile(error.to_string()))?,
            );
        }
        Ok(Unit(Arc::new(LoadedUnit { launching: Mutex::default(), entries, _library: library })))
    }

    /// Runs all blocks of a kernel: `grid` blocks of `block` threads, the parameter `i` with the region `i`. Launches of
    /// one unit wait for each other. The record of accesses takes 56 bytes for each element that is touched in regions
    /// that may be written.
    ///
    /// # Errors
    ///
    /// If there is no such kernel, and at the first thing that a thread does wrong: then the regions are as they were
    /// left there, and the unit can be launched again.
    ///
    /// # Safety
    ///
    /// The regions can be read, and written where the kernel's parameter is not `const`, and nothing else accesses them
    /// meanwhile. The kernel is generated code in the sense of this crate: it touches memory through its parameters, its
    /// shared arrays and its own variables, stays within the latter, and ends.
    pub unsafe fn launch(
        &self,
        function: &str,
        grid: [u32; 3],
        block: u32,
        regions: &[Region],
    ) -> Result<(), EmulatorError> {
        let blocks = grid.into_iter().map(u64::from).product();
        // SAFETY: as the caller says.
        unsafe { self.launch_part(function, grid, 0..blocks, block, regions, &[]) }
    }

    /// The same of a kernel that takes numbers behind its pointers.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch), and if it takes more or fewer of them.
    ///
    /// # Safety
    ///
    /// As [`launch`](Self::launch).
    pub unsafe fn launch_with(
        &self,
        function: &str,
        grid: [u32; 3],
        block: u32,
        regions: &[Region],
        numbers: &[i64],
    ) -> Result<(), EmulatorError> {
        let blocks = grid.into_iter().map(u64::from).product();
        // SAFETY: as the caller says.
        unsafe { self.launch_part(function, grid, 0..blocks, block, regions, numbers) }
    }

    /// Runs only these blocks of a kernel, by their numbers in the grid: of launches that would take too long.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch), and if there are no such blocks.
    ///
    /// # Safety
    ///
    /// As [`launch`](Self::launch).
    pub unsafe fn launch_blocks(
        &self,
        function: &str,
        grid: [u32; 3],
        blocks: Range<u64>,
        block: u32,
        regions: &[Region],
    ) -> Result<(), EmulatorError> {
        // SAFETY: as the caller says.
        unsafe { self.launch_part(function, grid, blocks, block, regions, &[]) }
    }

    /// # Safety
    ///
    /// As [`launch`](Self::launch).
    unsafe fn launch_part(
        &self,
        function: &str,
        grid: [u32; 3],
        blocks: Range<u64>,
        block: u32,
        regions: &[Region],
        numbers: &[i64],
    ) -> Result<(), EmulatorError> {
        let entry = self.0.entries.get(function);
        let entry = entry.ok_or_else(|| EmulatorError::UnknownFunction(function.to_owned()))?;
        let raw = |region: &Region| RawRegion { base: region.pointer, bytes: region.bytes as u64 };
        let regions: Vec<RawRegion> = regions.iter().map(raw).collect();
        let request = Request {
            grid,
            block,
            regions: regions.as_ptr(),
            count: regions.len() as u64,
            numbers: numbers.as_ptr(),
            number_count: numbers.len() as u64,
            first: blocks.start,
            last: blocks.end,
        };
        let _launching = self.0.launching.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the request is of the type that the entry takes; the rest is this function's contract.
        let message = unsafe { entry(&raw const request) };
        if message.is_null() {
            return Ok(());
        }
        // SAFETY: a message ends with a zero, and stays until the next launch, which waits for the lock.
        let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        Err(EmulatorError::Launch(format!("{function}, {message}")))
    }
}
