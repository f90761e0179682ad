//! NVRTC, the CUDA C++ compiler as a library: opened at run time, used without a device.

use super::{library, search};
use libloading::Library;
use mlc_backends::device::DriverError;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, ptr};

/// Names the library file to open, or the folder that it lies in, in place of a search.
pub const VARIABLE: &str = "MLC_NVRTC";

/// Versions of the library that are searched for, in this order.
const MAJORS: [u32; 2] = [13, 12];

/// What every compilation is asked for, apart from the architecture. The figures of `f32` are those of IEEE 754: numbers below the normal ones
/// stay, quotients and roots are the nearest numbers. A product that is added to something is not rounded before.
const OPTIONS: [&str; 5] =
    ["--std=c++17", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--fmad=true"];

/// Sources that are compiled at the same time at most: each takes some 50 MB.
const MOST_THREADS: usize = 16;

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Handle,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
type Fill = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;
type Number = unsafe extern "C" fn(*mut c_int) -> c_int;

/// The library's functions.
struct Functions {
    create: Create,
    destroy: unsafe extern "C" fn(*mut Handle) -> c_int,
    compile: Compile,
    log: (Size, Fill),
    cubin: (Size, Fill),
    ptx: (Size, Fill),
    count: Number,
    architectures: Number,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    describe: unsafe extern "C" fn(c_int) -> *const c_char,
    /// Keeps the functions valid.
    _library: Library,
}

impl Functions {
    fn of(library: Library) -> Result<Functions, libloading::Error> {
        // SAFETY: the types are those of nvrtc.h; its codes are plain numbers here.
        unsafe {
            Ok(Functions {
                create: *library.get(b"nvrtcCreateProgram\0")?,
                destroy: *library.get(b"nvrtcDestroyProgram\0")?,
                compile: *library.get(b"nvrtcCompileProgram\0")?,
                log: (
                    *library.get(b"nvrtcGetProgramLogSize\0")?,
                    *library.get(b"nvrtcGetProgramLog\0")?,
                ),
                cubin: (*library.get(b"nvrtcGetCUBINSize\0")?, *library.get(b"nvrtcGetCUBIN\0")?),
                ptx: (*library.get(b"nvrtcGetPTXSize\0")?, *library.get(b"nvrtcGetPTX\0")?),
                count: *library.get(b"nvrtcGetNumSupportedArchs\0")?,
                architectures: *library.get(b"nvrtcGetSupportedArchs\0")?,
                version: *library.get(b"nvrtcVersion\0")?,
                describe: *library.get(b"nvrtcGetErrorString\0")?,
                _library: library,
            })
        }
    }

    fn meaning(&self, code: c_int) -> String {
        // SAFETY: the function takes any code and yields a static text.
        let text = unsafe { (self.describe)(code) };
        match text.is_null() {
            true => format!("error {code}"),
            // SAFETY: the text ends with a NUL and is never freed.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        }
    }
}

/// The compiler, opened by the first use and never closed.
fn compiler() -> Result<&'static Functions, DriverError> {
    static COMPILER: OnceLock<Result<Functions, DriverError>> = OnceLock::new();
    COMPILER.get_or_init(open).as_ref().map_err(DriverError::clone)
}

fn open() -> Result<Functions, DriverError> {
    if let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) {
        let Some(file) = search::within(&path, &names()) else {
            let why =
                format!("{VARIABLE} names a folder without a libnvrtc.so.N that the driver takes");
            return Err(DriverError::NoCompiler(why));
        };
        return opened(&file).map_err(|e| {
            let why = e.source().map_or_else(|| e.to_string(), |cause| cause.to_string());
            DriverError::NoCompiler(format!("{VARIABLE} names a file that cannot be used: {why}"))
        });
    }
    search::candidates(&names()).find_map(|path| opened(&path).ok()).ok_or_else(|| {
        let reason = format!(
            "libnvrtc.so.13 and libnvrtc.so.12 are neither on the library path nor in a usual folder of the CUDA \
             toolkit or in a package of Python's; `pip install nvidia-cuda-nvrtc` brings it, {VARIABLE} may name the file"
        );
        DriverError::NoCompiler(reason)
    })
}

fn opened(path: &Path) -> Result<Functions, libloading::Error> {
    for library in builtins(path) {
        // SAFETY: these libraries are data; loading them runs nothing of its own.
        if let Ok(library) = unsafe { Library::new(library) } {
            std::mem::forget(library);
        }
    }
    // SAFETY: loading NVRTC runs only its own initialisation, which has no requirements.
    unsafe { Library::new(path) }.and_then(Functions::of)
}

/// The libraries beside a compiler that it opens by their names: unless they are open, it finds them only on the library
/// path.
fn builtins(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = folder.and_then(|folder| folder.read_dir().ok()).into_iter().flatten();
    let named = |p: &PathBuf| {
        let name = p.file_name().map(|n| n.to_string_lossy());
        name.is_some_and(|n| n.starts_with("libnvrtc-builtins.so."))
    };
    let mut all: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(named).collect();
    all.sort();
    all
}

/// Names of the library, in the order of the search.
fn names() -> Vec<String> {
    search::names("libnvrtc.so", &MAJORS, library::cuda_version().map(|v| v.0))
}

/// The compiler's version, e.g. 13.0.
///
/// # Errors
/// There is no compiler.
pub fn version() -> Result<(i32, i32), DriverError> {
    let compiler = compiler()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are valid for the call.
    match unsafe { (compiler.version)(&mut major, &mut minor) } {
        0 => Ok((major, minor)),
        code => Err(DriverError::NoCompiler(compiler.meaning(code))),
    }
}

/// The architectures that the compiler knows, as compute capabilities without their points: `[…, 90, 100, 120]`.
///
/// # Errors
/// There is no compiler.
pub fn architectures() -> Result<Vec<i32>, DriverError> {
    let compiler = compiler()?;
    let failed = |code| DriverError::NoCompiler(compiler.meaning(code));
    let mut count = 0;
    // SAFETY: the pointer is valid for the call.
    let code = unsafe { (compiler.count)(&mut count) };
    if code != 0 {
        return Err(failed(code));
    }
    let mut known = vec![0; count.max(0) as usize];
    // SAFETY: the function writes as many numbers as it counted.
    let code = unsafe { (compiler.architectures)(known.as_mut_ptr()) };
    if code != 0 { Err(failed(code)) } else { Ok(known) }
}

/// What to compile for, given a device's compute capability: its own architecture with all its instructions, or, if the
/// compiler does not know it, the latest virtual one below, which the driver translates.
///
/// # Errors
/// There is no compiler, or it no longer knows devices as old.
pub fn architecture(major: i32, minor: i32) -> Result<String, DriverError> {
    let own = 10 * major + minor;
    let known = architectures()?;
    match known.iter().copied().filter(|&a| a <= own).max() {
        Some(a) if a == own && major >= 9 => Ok(format!("sm_{own}a")),
        Some(a) if a == own => Ok(format!("sm_{own}")),
        Some(a) => Ok(format!("compute_{a}")),
        None => {
            let (has, wants) = (version()?, format!("{major}.{minor}"));
            let reason = format!(
                "version {}.{} does not compile for compute capability {wants}",
                has.0, has.1
            );
            Err(DriverError::NoCompiler(reason))
        }
    }
}

/// Everything that decides what [`compile`] yields: equal keys have equal results.
pub(super) fn key(source: &str, arch: &str) -> Result<Vec<u8>, DriverError> {
    let (major, minor) = version()?;
    Ok(format!("nvrtc {major}.{minor} {arch} {}\n{source}", OPTIONS.join(" ")).into_bytes())
}

/// A source that the library holds.
struct Unit {
    compiler: &'static Functions,
    handle: Handle,
}

impl Drop for Unit {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is one that the library made, and is not used any more.
            unsafe { (self.compiler.destroy)(&mut self.handle) };
        }
    }
}

impl Unit {
    /// What a pair of functions yields: the size, then as many bytes.
    fn bytes(&self, (size, fill): (Size, Fill)) -> Result<Vec<u8>, DriverError> {
        let failed = |code| DriverError::Compile(self.compiler.meaning(code));
        let mut bytes = 0;
        // SAFETY: the handle is valid, and so is the pointer for the call.
        let code = unsafe { size(self.handle, &mut bytes) };
        if code != 0 {
            return Err(failed(code));
        }
        let mut out = vec![0u8; bytes];
        // SAFETY: the function writes as many bytes as the other one said.
        match unsafe { fill(self.handle, out.as_mut_ptr().cast()) } {
            0 => Ok(out),
            code => Err(failed(code)),
        }
    }

    fn log(&self) -> String {
        let log = self.bytes(self.compiler.log).unwrap_or_default();
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_string()
    }
}

/// Compiles CUDA C++ for an architecture: machine code (a cubin) for `sm_XY`, PTX for `compute_XY`. Needs no device.
///
/// # Errors
/// There is no compiler, or the source has mistakes: the compiler's log is in the error.
pub fn compile(source: &str, arch: &str) -> Result<Vec<u8>, DriverError> {
    let unit = compiled(source, arch, &OPTIONS)?;
    unit.bytes(if arch.starts_with("sm_") { unit.compiler.cubin } else { unit.compiler.ptx })
}

/// Compiles sources side by side, on as many threads as the machine has cores: what [`compile`] yields of each, in their order.
///
/// # Errors
/// As [`compile`], of the first source that has one.
pub fn compile_all(sources: &[&str], arch: &str) -> Result<Vec<Vec<u8>>, DriverError> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(MOST_THREADS).min(sources.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut own = vec![];
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(source) = sources.get(i) else { return own };
            own.push((i, compile(source, arch)));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let others = others.into_iter().map(|o| o.join());
        let others = others.flat_map(|o| o.unwrap_or_else(|e| std::panic::resume_unwind(e)));
        own.into_iter().chain(others).collect::<Vec<_>>()
    });
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, code)| code).collect()
}

/// What a function takes of a multiprocessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its name.
    pub function: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of registers that a thread writes to memory because there are too few of them.
    pub spilled: u32,
    /// Whether its products by warpgroups wait for each other, for the compiler could not tell that they need not.
    pub is_serialized: bool,
}

/// What the functions of a source take, by the compiler's own account, and their machine code (a cubin).
///
/// # Errors
/// As [`compile`].
pub fn usages(source: &str, arch: &str) -> Result<(Vec<Usage>, Vec<u8>), DriverError> {
    let options: Vec<&str> = OPTIONS.into_iter().chain(["--ptxas-options=-v"]).collect();
    let unit = compiled(source, arch, &options)?;
    Ok((told(&unit.log()), unit.bytes(unit.compiler.cubin)?))
}

/// Reads the assembler's account of functions.
fn told(log: &str) -> Vec<Usage> {
    let number_before = |line: &str, words: &str| -> Option<u32> {
        line[..line.find(words)?].split_whitespace().next_back()?.parse().ok()
    };
    let mut out: Vec<Usage> = Vec::new();
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            let function = name.trim().to_string();
            out.push(Usage { function, registers: 0, spilled: 0, is_serialized: false });
        }
        let Some(last) = out.last_mut() else { continue };
        if let Some(bytes) = number_before(line, " bytes spill stores") {
            last.spilled = bytes;
        }
        if let Some(registers) = number_before(line, " registers") {
            last.registers = registers;
        }
    }
    for line in log.lines().filter(|l| l.contains("wgmma.mma_async instructions are serialized")) {
        let of = |u: &&mut Usage| line.contains(&format!("'{}'", u.function));
        out.iter_mut().filter(of).for_each(|u| u.is_serialized = true);
    }
    out
}

/// A source that was compiled.
fn compiled(source: &str, arch: &str, more: &[&str]) -> Result<Unit, DriverError> {
    let compiler = compiler()?;
    let text = |s: &str| CString::new(s).map_err(|e| DriverError::Compile(e.to_string()));
    let source = text(source)?;
    let mut options = vec![text(&format!("--gpu-architecture={arch}"))?];
    for option in more {
        options.push(text(option)?);
    }
    let mut unit = Unit { compiler, handle: ptr::null_mut() };
    let (none, name) = (ptr::null(), c"kernels.cu");
    // SAFETY: the texts end with a NUL and outlive the call, and there are no headers.
    let code = unsafe {
        (compiler.create)(&mut unit.handle, source.as_ptr(), name.as_ptr(), 0, none, none)
    };
    if code != 0 {
        return Err(DriverError::Compile(compiler.meaning(code)));
    }
    let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
    // SAFETY: the handle is valid; there are as many options as said, and they outlive the call.
    let code =
        unsafe { (compiler.compile)(unit.handle, pointers.len() as c_int, pointers.as_ptr()) };
    if code != 0 {
        let log = unit.log();
        let reason = if log.is_empty() { compiler.meaning(code) } else { log };
        return Err(DriverError::Compile(reason));
    }
    Ok(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assemblers_account_is_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'kernel_0' for 'sm_90a'\n\
            ptxas info    : Function properties for kernel_0\n    \
            16 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads\n\
            ptxas info    : Used 255 registers, used 1 barriers, 372 bytes cmem[0]\n\
            ptxas info    : Function properties for kernel_1\n    \
            0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 12 registers\n\
            ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to \
            insufficient register resources for the wgmma pipeline in the function 'kernel_1'\n";
        let usage = |function: &str, registers, spilled, is_serialized| Usage {
            function: function.into(),
            registers,
            spilled,
            is_serialized,
        };
        assert_eq!(told(log), [usage("kernel_0", 255, 24, false), usage("kernel_1", 12, 0, true)]);
        assert_eq!(told(""), []);
    }
}
