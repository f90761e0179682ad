//! Completions of a shell, and pages of the manual.

use super::verbs::{folder, told};
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn completions_and_pages_are_made() {
    let dir = folder();
    for shell in ["bash", "zsh", "fish"] {
        let script = told(dir.path(), &["completions", shell]);
        assert!(script.contains("MLC_COMPLETE") && script.contains("mlc-rewrite"), "{shell}");
    }
    assert!(told(dir.path(), &["man"]).contains(".TH mlc-rewrite"));
    assert!(told(dir.path(), &["man", "diff"]).contains(".TH mlc-rewrite-diff"));
    told(dir.path(), &["man", "--folder", "pages"]);
    let pages = fs::read_dir(dir.path().join("pages")).expect("a folder").count();
    assert!(pages > 12, "{pages}");
}

/// What a shell is told may follow these words, of which the last is being typed.
fn completed(folder: &Path, words: &[&str]) -> Vec<String> {
    let out = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
        .args(["--", "mlc-rewrite"])
        .args(words)
        .env("MLC_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_COMP_TYPE", "9")
        .env("_CLAP_COMPLETE_SPACE", "true")
        .current_dir(folder)
        .output()
        .expect("runs");
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    text.lines().map(|l| l.trim_end().to_string()).collect()
}

#[test]
fn names_are_completed() {
    let dir = folder();
    for (words, wanted) in [
        (&["insp"][..], "inspect"),
        (&["explain", "gelu_t"], "gelu_tanh"),
        (&["explain", "m.on"], "m.onnx"),
        (&["explain", "m.onnx", "--why-not", "add_zer"], "add_zero"),
        (&["explain", "m.onnx", "--would-gain", "appr"], "approx"),
        (&["explain", "m.onnx", "--would-gain", "add_zer"], "add_zero"),
        (&["optimize", "m.onnx", "--target", "onnxr"], "onnxruntime"),
        (&["run", "m.onnx", "--without", "add_zer"], "add_zero"),
        (&["list", "layers", "layern"], "layernorm"),
    ] {
        let found = completed(dir.path(), words);
        assert!(found.iter().any(|f| f == wanted), "{words:?}: {found:?}");
    }
    let mut named = super::model(1.0);
    named.graph.nodes[3].name = "/block/add_3".into();
    mlc_onnx::write_onnx(&named, dir.path().join("named.onnx")).expect("written");
    let found = completed(dir.path(), &["explain", "named.onnx", "--at", "/bl"]);
    assert_eq!(found, ["/block/add_3"]);
    assert_eq!(
        completed(dir.path(), &["explain", "bad.rules", "--at", "/bl"]),
        Vec::<String>::new()
    );
}
