//! Documents that show what commands answer: every block that begins with `$ mlc-rewrite` is what the command prints, run in the
//! repository's folder. `MLC_BLESS=1` writes the answers.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Documents, and how many answers each has at least.
const DOCUMENTS: &[(&str, usize)] = &[("docs/why-not-fused.md", 10)];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What a command prints.
fn answer(command: &str) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
        .args(command.split_whitespace())
        .current_dir(root())
        // Times of this machine are not known there.
        .env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/answers"))
        .output()
        .expect("the binary starts");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command}: {said}");
    String::from_utf8(out.stdout).expect("text")
}

/// The document with the answers that its commands give today, and how many there are.
fn answered(text: &str) -> (String, usize) {
    let (mut out, mut count) = (String::new(), 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        let Some(command) = line.strip_prefix("$ mlc-rewrite ") else { continue };
        count += 1;
        out.push_str(&answer(command));
        let rest = lines.by_ref().find(|l| l.starts_with("```"));
        let _ = writeln!(out, "{}", rest.expect("a block ends"));
    }
    (out, count)
}

#[test]
fn documents_show_what_commands_answer() {
    for (document, least) in DOCUMENTS {
        let path = root().join(document);
        let text = std::fs::read_to_string(&path).expect("a document");
        let (wanted, count) = answered(&text);
        assert!(count >= *least, "{document} has {count} answers");
        if std::env::var_os("MLC_BLESS").is_some() {
            std::fs::write(&path, wanted).expect("written");
        } else {
            assert!(
                text == wanted,
                "{document} does not show what the commands answer; `MLC_BLESS=1 cargo test --test all answers` writes it\n{wanted}"
            );
        }
    }
}

#[test]
fn every_model_of_a_document_is_asked_about() {
    let text = std::fs::read_to_string(root().join("docs/why-not-fused.md")).expect("a document");
    let folder = std::fs::read_dir(root().join("examples/fusions")).expect("a folder");
    for path in folder.map(|e| e.expect("an entry").path()) {
        let is_model = path.extension().is_some_and(|e| e == "onnx");
        let name = Path::new("examples/fusions").join(path.file_name().expect("a file"));
        assert!(!is_model || text.contains(&*name.to_string_lossy()), "{}", name.display());
    }
}
