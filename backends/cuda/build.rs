//! Empty archives in place of the CUDA libraries that `cuda-sys` asks the linker for.
//!
//! The driver is opened at run time (`src/nvidia/library.rs`), so that building needs no CUDA, and what is built
//! starts on machines without it.

use std::path::PathBuf;
use std::{env, fs};

/// An archive without members, as `ar` writes it.
const EMPTY: &str = "!<arch>\n";

/// A script of the linker that names nothing.
const EMPTY_SCRIPT: &str = "INPUT()\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CARGO_ZIGBUILD_TARGET");
    if env::var_os("CARGO_FEATURE_DRIVER").is_none() {
        return;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Zig's linker, which cargo-zigbuild and maturin's `--zig` link with, looks for shared libraries alone.
    let stands_in = match env::var_os("CARGO_ZIGBUILD_TARGET") {
        Some(_) => ("so", EMPTY_SCRIPT),
        None => ("a", EMPTY),
    };
    for library in ["cuda", "cudart", "cublas"] {
        let file = folder.join(format!("lib{library}.{}", stands_in.0));
        fs::write(file, stands_in.1).expect("OUT_DIR is writable");
    }
    println!("cargo:rustc-link-search=native={}", folder.display());
}
