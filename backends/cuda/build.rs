//! Empty archives in place of the CUDA libraries that `cuda-sys` asks the linker for.
//!
//! The driver is opened at run time (`src/nvidia/library.rs`), so that building needs no CUDA, and what is built
//! starts on machines without it.

use std::path::PathBuf;
use std::{env, fs};

/// An archive without members, as `ar` writes it.
const EMPTY: &str = "!<arch>\n";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_DRIVER").is_none() {
        return;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for library in ["cuda", "cudart", "cublas"] {
        fs::write(folder.join(format!("lib{library}.a")), EMPTY).expect("OUT_DIR is writable");
    }
    println!("cargo:rustc-link-search=native={}", folder.display());
}
