//! Hides what other crates export: the driver's functions that this project defines would take the place of the driver in a process that
//! also runs another library of CUDA.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
