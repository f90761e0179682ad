//! Parts of documents that are made of the code: the code map and the table of verbs. They are compared here, and
//! written when `MLC_BLESS` is set.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where Rust lies.
const ROOTS: &[&str] = &[
    "src",
    "dsl/src",
    "extract/src",
    "backends",
    "fuzz/src",
    "proptests/src",
    "python/native/src",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Holds the part of a document between its two marks against what it has to be; writes it if `MLC_BLESS` is set.
#[track_caller]
fn hold(document: &str, part: &str, wanted: &str) {
    let path = root().join(document);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{document}: {e}"));
    let (begin, end) = (format!("<!-- generated: {part} -->\n"), format!("<!-- end: {part} -->"));
    let from =
        text.find(&begin).unwrap_or_else(|| panic!("{document} has no `{begin}`")) + begin.len();
    let to = text.find(&end).unwrap_or_else(|| panic!("{document} has no `{end}`"));
    let wanted = format!("\n{}\n\n", wanted.trim());
    if std::env::var_os("MLC_BLESS").is_some() {
        std::fs::write(&path, format!("{}{wanted}{}", &text[..from], &text[to..]))
            .expect("written");
        return;
    }
    assert!(
        text[from..to] == wanted,
        "`{part}` of {document} is not what the code says; `MLC_BLESS=1 cargo test --test all generated` writes it"
    );
}

/// The sources below a folder, without tests.
fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !matches!(&*name, "tests" | "target" | "snapshots") {
                sources(&path, out);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "main.rs" {
            out.push(path);
        }
    }
}

/// The first sentence of what a module says of itself.
fn sentence(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a source");
    let about = text.lines().map_while(|l| l.strip_prefix("//!")).map(str::trim);
    let about: Vec<&str> = about.take_while(|l| !l.is_empty()).collect();
    let about = about.join(" ");
    // Initials of names, and `e.g.`, end no sentence.
    let is_short = |i: usize| {
        about[..i]
            .rsplit([' ', '.'])
            .next()
            .is_some_and(|w| w.len() == 1 && !w.starts_with(char::is_numeric))
    };
    let end = about.match_indices(". ").map(|(i, _)| i).find(|&i| !is_short(i));
    let first = end.map_or(about.as_str(), |end| &about[..end]);
    let plain = first.trim_end_matches(['.', ':']).replace('|', "\\|");
    // Links of a source lead nowhere in a document.
    plain.replace("[`", "`").replace("`]", "`")
}

/// What every folder of sources is about, and its files.
fn folders() -> BTreeMap<String, (String, Vec<(String, String)>)> {
    let mut paths = Vec::new();
    ROOTS.iter().for_each(|r| sources(&root().join(r), &mut paths));
    let mut out: BTreeMap<String, (String, Vec<(String, String)>)> = BTreeMap::new();
    for path in paths {
        let folder =
            path.parent().expect("in a folder").strip_prefix(root()).expect("below the root");
        let entry = out.entry(folder.display().to_string()).or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.as_str() {
            "mod.rs" | "lib.rs" => entry.0 = sentence(&path),
            _ => entry.1.push((name, sentence(&path))),
        }
    }
    out
}

#[test]
fn code_map() {
    let folders = folders();
    let mut short = String::from("| Folder | |\n|---|---|\n");
    for (folder, (about, _)) in folders.iter().filter(|(_, (about, _))| !about.is_empty()) {
        let _ = writeln!(short, "| `{folder}` | {about} |");
    }
    hold("ARCHITECTURE.md", "code map", &short);
    let mut whole = String::new();
    for (folder, (about, files)) in &folders {
        let _ = writeln!(whole, "## `{folder}`\n");
        if !about.is_empty() {
            let _ = writeln!(whole, "{about}.\n");
        }
        if !files.is_empty() {
            whole.push_str("| File | |\n|---|---|\n");
        }
        for (file, about) in files {
            let _ = writeln!(whole, "| `{file}` | {about} |");
        }
        whole.push('\n');
    }
    hold("docs/code-map.md", "files", &whole);
}

#[test]
fn verbs() {
    let mut table = String::from("| Verb | |\n|---|---|\n");
    for (name, about) in mlc_rewrite::cli::verbs() {
        let _ = writeln!(table, "| `{name}` | {about} |");
    }
    hold("docs/cli.md", "verbs", &table);
}

#[test]
fn codes() {
    let mut table = String::from("| Code | Meaning |\n|---|---|\n");
    for (code, meaning) in mlc_dsl::diagnostics::CODES {
        let _ = writeln!(table, "| `{code}` | {meaning} |");
    }
    hold("docs/language.md", "codes", &table);
}

#[test]
fn onnx_operators() {
    let mut domains: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for item in &mlc_rewrite::stdlib::shipped().onnx {
        let (since, until) = (item.decl.since, item.decl.until);
        let versions = match until {
            Some(until) if until == since => format!("{since}"),
            Some(until) => format!("{since} to {until}"),
            None => format!("{since} on"),
        };
        let domain = if item.decl.domain.is_empty() { "ai.onnx" } else { &*item.decl.domain };
        let forms = domains
            .entry(domain.to_string())
            .or_default()
            .entry(item.name.to_string())
            .or_default();
        if !forms.contains(&versions) {
            forms.push(versions);
        }
    }
    let mut text = String::new();
    for (domain, operators) in &domains {
        let _ = writeln!(
            text,
            "## `{domain}`\n\n{} operators.\n\n| Operator | Operator sets |\n|---|---|",
            operators.len()
        );
        for (name, versions) in operators {
            let _ = writeln!(text, "| `{name}` | {} |", versions.join(", "));
        }
        text.push('\n');
    }
    hold("docs/onnx-operators.md", "operators", &text);
}
