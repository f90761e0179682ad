//! Hides what other crates export: the driver's functions that this project defines would take the place of the driver in a process that
//! also runs another library of CUDA.

use std::path::Path;

/// What Python looks for.
const EXPORTED: &str = "{ global: PyInit_*; local: *; };\n";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={ZIG}");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // Zig's linker takes the last list of exports where others join them, and knows no libraries to exclude.
    if std::env::var(ZIG).is_err() {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
        return;
    }
    let folder = std::env::var("OUT_DIR").expect("cargo sets it");
    let list = Path::new(&folder).join("exported");
    std::fs::write(&list, EXPORTED).expect("the folder is cargo's");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", list.display());
}

/// Set where cargo-zigbuild, and so maturin with `--zig`, links.
const ZIG: &str = "CARGO_ZIGBUILD_TARGET";
