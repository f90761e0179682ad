//! The host's C++ compiler: from a unit to a loaded library.

use std::{
    fs,
    process::{Command, Stdio},
    sync::OnceLock,
};

use libloading::Library;
use tempfile::TempDir;

use crate::EmulatorError;

/// The runtime and what units include.
const FILES: &[(&str, &str)] = &[
    ("interface.hpp", include_str!("../cxx/interface.hpp")),
    ("emulator.hpp", include_str!("../cxx/emulator.hpp")),
    ("memory.hpp", include_str!("../cxx/memory.hpp")),
    ("atomics.hpp", include_str!("../cxx/atomics.hpp")),
    ("arithmetic.hpp", include_str!("../cxx/arithmetic.hpp")),
    ("warp.hpp", include_str!("../cxx/warp.hpp")),
    ("warpgroup.hpp", include_str!("../cxx/warpgroup.hpp")),
    ("launch.hpp", include_str!("../cxx/launch.hpp")),
    ("runtime.hpp", include_str!("../cxx/runtime.hpp")),
    ("fibers.hpp", include_str!("../cxx/fibers.hpp")),
    ("shadow.cpp", include_str!("../cxx/shadow.cpp")),
    ("async_copies.cpp", include_str!("../cxx/async_copies.cpp")),
    ("wgmma.cpp", include_str!("../cxx/wgmma.cpp")),
    ("runtime.cpp", include_str!("../cxx/runtime.cpp")),
    (
        "all.cpp",
        "#include \"shadow.cpp\"\n#include \"async_copies.cpp\"\n#include \"wgmma.cpp\"\n#include \"runtime.cpp\"\n",
    ),
];

/// Floating point as a device has it by default except for contraction, which a reference does not have either; hidden
/// symbols, so that each unit has a runtime of its own.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-Werror=frame-larger-than=65536",
];

const UNIT_FLAGS: &[&str] =
    &["-DEMULATED", "-shared", "unit.cpp", "runtime.o", "-lm", "-o", "unit.so"];

/// How much the compiler does to a unit. On small shapes optimising a kernel takes longer than what a few launches of it
/// gain, as most of their time is the runtime's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Effort {
    /// Compiles soon.
    #[default]
    Low,
    /// Runs fast.
    High,
}

impl Effort {
    fn flag(self) -> &'static str {
        match self {
            Effort::Low => "-O0",
            Effort::High => "-O2",
        }
    }
}

/// Checks are what units spend their time in, and are compiled once in a process.
const RUNTIME_FLAGS: &[&str] = &["-O2", "-c", "all.cpp", "-o", "runtime.o"];

/// `$CXX`, which may have arguments, or `c++`.
fn compiler() -> Command {
    let words = std::env::var("CXX").unwrap_or_default();
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("c++"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Whether a C++ compiler is there.
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE
        .get_or_init(|| compiler().arg("--version").output().is_ok_and(|o| o.status.success()))
}

fn failed(error: impl std::fmt::Display) -> EmulatorError {
    EmulatorError::Compile(error.to_string())
}

/// Runs the compiler in a folder that has the emulator's files.
fn compile(folder: &TempDir, arguments: &[&str]) -> Result<(), EmulatorError> {
    for (name, text) in FILES {
        fs::write(folder.path().join(name), text).map_err(failed)?;
    }
    let mut command = compiler();
    command.current_dir(folder).args(FLAGS).args(arguments);
    let output = command.output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr)))
}

/// The object file of the runtime, compiled once in a process.
fn runtime() -> Result<&'static [u8], EmulatorError> {
    static RUNTIME: OnceLock<Result<Vec<u8>, EmulatorError>> = OnceLock::new();
    let object = RUNTIME.get_or_init(|| {
        let folder = tempfile::tempdir().map_err(failed)?;
        compile(&folder, RUNTIME_FLAGS)?;
        fs::read(folder.path().join("runtime.o")).map_err(failed)
    });
    object.as_deref().map_err(Clone::clone)
}

/// Loads a unit, as `kernels::with_entries` makes it.
pub(crate) fn library(unit: &str, effort: Effort) -> Result<Library, EmulatorError> {
    if !available() {
        return Err(EmulatorError::NoCompiler);
    }
    let runtime = runtime()?;
    let folder = tempfile::tempdir().map_err(failed)?;
    fs::write(folder.path().join("runtime.o"), runtime).map_err(failed)?;
    fs::write(folder.path().join("unit.cpp"), unit).map_err(failed)?;
    compile(&folder, &[&[effort.flag()], UNIT_FLAGS].concat())?;
    // SAFETY: the library has no initialisers; what it does is up to the callers of its functions. It needs its file
    // only to be loaded.
    unsafe { Library::new(folder.path().join("unit.so")) }.map_err(failed)
}
