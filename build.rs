//! Parses and checks the texts of `rules/`, in the order of their paths, so that no process has to: the library embeds what comes of them. A mistake
//! in them ends the build.

use mlc_dsl::check::{Text, library_of, parsed};
use mlc_dsl::diagnostics::render;
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
    let read = |path: &PathBuf| {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.strip_prefix(&root).expect("below the root").display().to_string();
        (name, std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
    };
    let texts = parsed(&paths.iter().map(read).collect::<Vec<_>>());
    let (library, diags) = library_of(&texts);
    for d in &diags {
        let source = &library.sources[d.source as usize];
        eprintln!("{}", render(std::slice::from_ref(&d.diag), &source.name, &source.text, false));
    }
    assert!(diags.is_empty(), "the texts of `rules/` have mistakes");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    let write = |file: &str, bytes: Vec<u8>| {
        std::fs::write(out.join(file), bytes).expect("the output folder is writable")
    };
    write("count", texts.len().to_string().into_bytes());
    write("texts", Text::to_bytes(&texts).expect("texts are encodable"));
    write("library", library.to_bytes().expect("a library is encodable"));
}
