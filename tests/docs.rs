//! The documents are correct: every snippet of the manual parses, every example runs, every list is
//! complete, every link has a target.

use mlc_dsl::check::SourceDiag;
use mlc_dsl::ir::NodeKind;
use mlc_dsl::library::{ErrorClass, Library};
use mlc_explore::{Limits, explore};
use mlc_extract::GreedyDag;
use mlc_extract::cost::target::TargetPrices;
use mlc_rewrite::model::rules_model;
use mlc_rewrite::{pipeline, stdlib};
use mlc_verify::{CheckOptions, check_library};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The shipped texts and these, with the diagnostics of these alone.
fn library(own: &[(&str, &str)]) -> (Library, Vec<SourceDiag>) {
    let (library, mut diags) = stdlib::with(own);
    diags.retain(|d| d.source as usize >= stdlib::SHIPPED_TEXTS);
    (library, diags)
}

/// A fenced block: the line where it begins, the words after its fence, its text.
struct Block {
    line: usize,
    info: String,
    text: String,
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    let mut inside = false;
    for (i, line) in markdown.lines().enumerate() {
        match (line.strip_prefix("```"), inside) {
            (Some(info), false) => {
                inside = true;
                out.push(Block { line: i + 1, info: info.trim().into(), text: String::new() });
            }
            (Some(_), true) => inside = false,
            (None, true) => {
                if let Some(block) = out.last_mut() {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
            }
            (None, false) => {}
        }
    }
    assert!(!inside, "a fence is never closed");
    out
}

fn read_snippets(path: &str) -> usize {
    let mut wrong = Vec::new();
    let mut count = 0;
    for b in blocks(&read(path)) {
        let mut words = b.info.split(',');
        if words.next() != Some("rules") {
            continue;
        }
        count += 1;
        let marks: Vec<&str> = words.collect();
        let at = format!("{path}:{}", b.line);
        if marks == ["syntax"] {
            let (_, diags) = mlc_dsl::syntax::parse(&b.text);
            if !diags.is_empty() {
                wrong.push(mlc_dsl::diagnostics::render(&diags, &at, &b.text, false));
            }
            continue;
        }
        let (library, diags) = library(&[(&at, &b.text)]);
        let found: BTreeSet<&str> = diags.iter().map(|d| d.diag.code.0).collect();
        let wanted: BTreeSet<&str> =
            marks.iter().filter_map(|m| m.strip_prefix("error=")).collect();
        assert_eq!(wanted.len(), marks.len(), "{at}: unknown mark in `{}`", b.info);
        if found != wanted {
            let shown = stdlib::rendered(&library, &diags, false);
            wrong.push(format!("{at}: expected {wanted:?}, found {found:?}\n{shown}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    count
}

#[test]
fn every_snippet_of_the_manual_is_as_it_says() {
    assert!(read_snippets("docs/language.md") > 30);
}

#[test]
fn snippets_elsewhere_are_as_they_say() {
    for path in [
        "README.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "docs/cuda.md",
        "docs/cookbook.md",
        "docs/models-as-texts.md",
        "examples/README.md",
    ] {
        read_snippets(path);
    }
}

#[test]
fn the_manual_lists_every_function_and_predicate() {
    let manual = read("docs/language.md");
    let functions = mlc_dsl::eval::functions::FUNCTIONS.iter().map(|f| f.0);
    let predicates = mlc_dsl::expr::Predicate::ALL.iter().map(|p| p.1);
    let missing: Vec<&str> = functions
        .chain(predicates)
        .filter(|n| !manual.contains(&format!("`{n}(")) && !manual.contains(&format!("`{n}`")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The documents of the repository.
fn documents() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md"]
            .iter()
            .map(|f| root().join(f))
            .collect();
    for folder in ["docs", "docs/decisions"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().path());
        files.extend(entries.filter(|p| p.extension().is_some_and(|e| e == "md")));
    }
    files
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        for link in text.split("](").skip(1).filter_map(|t| t.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            // A folder without files is none once it is checked out.
            if path.is_empty() || path.contains("://") || path.ends_with('/') {
                continue;
            }
            if !file.parent().unwrap_or(Path::new("")).join(path).exists() {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Names with a folder of the repository in front.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let words = text.split(move |c: char| !is_part(c)).map(|w| w.trim_end_matches(['.', '-']));
    const FOLDERS: &[&str] = &[
        "src/",
        "dsl/",
        "extract/",
        "backends/",
        "fuzz/",
        "proptests/",
        "rules/",
        "tests/",
        "docs/",
        "benches/",
    ];
    words.filter(|w| FOLDERS.iter().any(|f| w.starts_with(f) && w.len() > f.len()))
}

#[test]
fn every_path_that_a_document_names_exists() {
    let mut wrong = Vec::new();
    for path in documents() {
        let text = std::fs::read_to_string(&path).expect("a document");
        let beside = path.parent().unwrap_or(Path::new(""));
        let lost = |p: &&str| !root().join(p).exists() && !beside.join(p).exists();
        // `NAME` stands for any name.
        let named = named_paths(&text).filter(|p| !p.contains("NAME")).filter(lost);
        wrong.extend(named.map(|p| format!("{}: {p}", path.display())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_function_of_the_walk_is_where_it_says() {
    let text = read("docs/walk.md").replace('\n', " ");
    let mut lost = Vec::new();
    let mut found = 0;
    // `Type::function` (`path`)
    for (before, after) in text.match_indices("` (`").map(|(i, _)| (&text[..i], &text[i + 4..])) {
        let name = before.rsplit('`').next().unwrap_or_default();
        let path = after.split('`').next().unwrap_or_default();
        let name = name.rsplit("::").next().unwrap_or_default();
        let places =
            ["", "backends/cuda/src/", "backends/"].map(|p| root().join(format!("{p}{path}")));
        let Some(place) = places.iter().find(|p| p.is_file()) else { continue };
        let source = std::fs::read_to_string(place).expect("a source");
        let kinds = ["fn", "struct", "enum", "trait", "type"];
        let declares = |k: &&str| {
            source.match_indices(&format!("{k} {name}")).any(|(i, d)| {
                !source[i + d.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        };
        found += 1;
        if !kinds.iter().any(declares) {
            lost.push(format!("{name}: {path}"));
        }
    }
    assert!(found >= 30, "{found} functions with a path");
    assert!(lost.is_empty(), "{lost:#?}");
}

/// The operators that the model of an example comes down to, by the laws of its rules and the shipped ones.
fn operators(rules: &str, model: &str) -> Vec<String> {
    let (layer, text) = (read(rules), read(model));
    let (library, diags) = library(&[(rules, &layer), (model, &text)]);
    assert!(diags.is_empty(), "{}", stdlib::rendered(&library, &diags, false));
    let library = Arc::new(library);
    let source = library.sources.len() as u32 - 1;
    let name = rules_model::last_definition(&library, source).expect("a definition");
    let program = rules_model::program(&library, &name).expect("a program");
    // The model is a definition, too: it must not be recognised as itself.
    let laws: Vec<u32> = (0..library.laws.len() as u32)
        .filter(|&i| {
            let law = &library.laws[i as usize];
            law.error <= ErrorClass::Reorder && law.source.file != source
        })
        .collect();
    let mut explored = explore(library.clone(), program, &laws, &Limits::default());
    let target = pipeline::target(&library, "cpu").expect("shipped");
    let prices = TargetPrices::new(&library, &target, None);
    let out = explored.extract(&prices, &GreedyDag::default()).expect("extracts");
    assert!(explored.prove(&out).is_some(), "the result is proven from the log");
    let applied = out.program.nodes.iter().filter_map(|n| match &n.kind {
        NodeKind::Apply(c, _) => Some(library.call(*c).name.to_string()),
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    });
    applied.collect()
}

#[test]
fn a_new_layer_is_recognised_in_its_decomposed_spelling() {
    let rules = "examples/my_layer.rules";
    let named = operators(rules, "examples/my_layer_use.rules");
    let decomposed = operators(rules, "examples/my_layer_decomposed.rules");
    assert!(named.contains(&"snake".to_string()), "{named:?}");
    assert!(decomposed.contains(&"snake".to_string()), "{decomposed:?}");
    assert!(!decomposed.contains(&"sin".to_string()), "{decomposed:?}");
}

#[test]
fn a_new_layer_passes_the_check() {
    let text = read("examples/my_layer.rules");
    let (library, diags) = library(&[("examples/my_layer.rules", &text)]);
    assert!(diags.is_empty(), "{}", stdlib::rendered(&library, &diags, false));
    let own = library.laws.iter().filter(|l| l.source.file as usize == stdlib::SHIPPED_TEXTS);
    let names: Vec<String> = own.map(|l| l.name.to_string()).collect();
    assert!(names.iter().any(|n| n == "snake"), "{names:?}");
    let options = CheckOptions { samples: 60, ..CheckOptions::default() };
    let report = check_library(&library, Some(&names), &options, &|_, _| {});
    assert!(report.sound(), "{}", report.human(false));
}

/// Runs the command line in the repository's folder; its standard output.
#[track_caller]
fn succeeds(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
        .args(args)
        .current_dir(root())
        .output()
        .expect("the binary starts");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{args:?}: {}\n{stdout}\n{stderr}", out.status);
    stdout.into_owned()
}

#[test]
fn the_commands_of_the_examples_succeed() {
    let mut count = 0;
    for block in blocks(&read("examples/README.md")).iter().filter(|b| b.info == "sh") {
        for line in block.text.lines().filter_map(|l| l.strip_prefix("mlc-rewrite ")) {
            let args: Vec<&str> = line.split_whitespace().collect();
            succeeds(&args);
            count += 1;
        }
    }
    assert!(count >= 5);
}

#[test]
fn both_spellings_of_an_example_yield_the_same_numbers() {
    let run = |model: &str| {
        let out = succeeds(&[
            "run",
            model,
            "--rules",
            "examples/my_layer.rules",
            "--backend",
            "reference",
        ]);
        out.lines().next().unwrap_or_default().to_string()
    };
    assert_eq!(run("examples/my_layer_use.rules"), run("examples/my_layer_decomposed.rules"));
}

#[cfg(unix)]
#[test]
fn formatting_keeps_the_permissions_of_a_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.rules");
    for mode in [0o644, 0o600, 0o664] {
        std::fs::write(&path, "def f(x: F[..s]) -> F[..s]\n      = x\n").expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("permitted");
        succeeds(&["fmt", path.to_str().expect("a path")]);
        let text = std::fs::read_to_string(&path).expect("a text");
        assert_eq!(text, "def f(x: F[..s]) -> F[..s]\n  = x\n");
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, mode);
    }
}
