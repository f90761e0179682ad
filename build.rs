//! Embeds the texts of `rules/` in the library, in the order of their paths.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn texts(folder: &Path, out: &mut Vec<PathBuf>) {
    println!("cargo::rerun-if-changed={}", folder.display());
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            texts(&path, out);
        } else if path.extension().is_some_and(|e| e == "rules") {
            out.push(path);
        }
    }
}

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let mut paths = Vec::new();
    texts(&root.join("rules"), &mut paths);
    paths.sort();
    let mut code = String::from("&[\n");
    for p in paths {
        println!("cargo::rerun-if-changed={}", p.display());
        let name = p.strip_prefix(&root).expect("below the root").display().to_string();
        let _ = writeln!(code, "    ({name:?}, include_str!({:?})),", p.display().to_string());
    }
    code.push_str("]\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    std::fs::write(out.join("stdlib.rs"), code).expect("the output folder is writable");
}
