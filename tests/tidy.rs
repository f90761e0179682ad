//! The structure of the repository, tested like behaviour; the invariants are those of ARCHITECTURE.md.

use mlc_dsl::syntax::ast::ItemKind;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Lines that a file may have.
const LINES: usize = 600;

/// Written by a program.
const GENERATED: &[&str] = &["src/onnx/proto.rs"];

/// Layers whose names are everyday words as well.
const EVERYDAY: &[&str] = &["clip", "shrink"];

/// A source file: its path from the root, and its text.
struct File {
    path: String,
    text: String,
}

impl File {
    /// True if it lies in one of these folders, or is one of these files.
    fn within(&self, places: &[&str]) -> bool {
        places.iter().any(|p| self.path == *p || self.path.starts_with(&format!("{p}/")))
    }

    /// True if it holds tests and nothing else.
    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests" || part == "proptests" || part == "benches")
            || self.path.ends_with("_tests.rs")
            || self.path.ends_with("/tests.rs")
    }

    /// The lines of code, without comments and without a test module at the end.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        let before_tests = lines.take_while(|(_, l)| l.trim() != "#[cfg(test)]");
        before_tests.filter(|(_, l)| !l.trim_start().starts_with("//")).map(|(i, l)| (i + 1, l))
    }
}

fn collect(folder: &Path, extensions: &[&str], out: &mut Vec<File>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            let skipped = ["target", "shared", "node_modules", "corpus", "artifacts"];
            if !name.starts_with('.') && !skipped.contains(&name.as_str()) {
                collect(&path, extensions, out);
            }
        } else if path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
            let root = env!("CARGO_MANIFEST_DIR");
            let path = path.strip_prefix(root).expect("below the root").display().to_string();
            let text = std::fs::read_to_string(Path::new(root).join(&path)).unwrap();
            out.push(File { path, text });
        }
    }
}

/// Files of the repository with one of these extensions.
fn files(extensions: &[&str]) -> Vec<File> {
    let mut out = Vec::new();
    collect(Path::new(env!("CARGO_MANIFEST_DIR")), extensions, &mut out);
    out
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|w| !w.is_empty())
}

/// True if the line says `name::` or `use name;`.
fn names_crate(line: &str, name: &str) -> bool {
    let path = format!("{name}::");
    let whole =
        |at: usize| !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "_:".contains(c));
    line.contains(&format!("use {name};")) || line.match_indices(&path).any(|(at, _)| whole(at))
}

/// Where code outside `places` names one of these crates.
fn naming(crates: &[&str], places: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    for f in files(&["rs"]).iter().filter(|f| !f.within(places) && !f.is_test()) {
        for (i, line) in f.code().filter(|(_, l)| crates.iter().any(|c| names_crate(l, c))) {
            out.push(format!("{}:{i}: {}", f.path, line.trim()));
        }
    }
    out
}

#[track_caller]
fn none(found: Vec<String>, invariant: &str) {
    assert!(found.is_empty(), "{invariant}; see ARCHITECTURE.md:\n{}", found.join("\n"));
}

/// The names of the crates that a manifest's `section` lists.
fn dependencies(manifest: &str, section: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(manifest);
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{manifest}: {e}"));
    let mut inside = false;
    let mut out = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == format!("[{section}]");
        } else if inside
            && let Some(name) = line.split(['.', '=', ' ']).next()
            && !name.is_empty()
            && !name.starts_with('#')
        {
            out.insert(name.to_string());
        }
    }
    out
}

#[test]
fn arrows_between_crates_point_down() {
    for (manifest, allowed) in [
        ("dsl/Cargo.toml", &[][..]),
        ("extract/Cargo.toml", &["mlc-dsl"]),
        ("backends/Cargo.toml", &["mlc-dsl"]),
        ("backends/cpu/Cargo.toml", &["mlc-dsl", "mlc-backends", "mlc-vector"]),
        ("backends/cpu/vector/Cargo.toml", &[]),
        ("backends/cuda/Cargo.toml", &["mlc-dsl", "mlc-backends"]),
        ("backends/emulator/Cargo.toml", &[]),
        ("fuzz/Cargo.toml", &["mlc-dsl", "mlc-backends"]),
        ("src/files/Cargo.toml", &["mlc-dsl"]),
        ("src/onnx/Cargo.toml", &["mlc-dsl", "mlc-files"]),
        ("src/weights/Cargo.toml", &["mlc-dsl", "mlc-files"]),
        ("src/explore/Cargo.toml", &["mlc-dsl", "mlc-extract", "mlc-backends"]),
        ("src/verify/Cargo.toml", &["mlc-dsl", "mlc-backends", "mlc-explore"]),
        ("src/lsp/Cargo.toml", &["mlc-dsl"]),
    ] {
        let named = dependencies(manifest, "dependencies");
        let wrong =
            named.iter().filter(|d| d.starts_with("mlc-") && !allowed.contains(&d.as_str()));
        none(wrong.cloned().collect(), &format!("{manifest} depends on a crate above it"));
    }
}

#[test]
fn outside_libraries_stay_in_their_place() {
    none(naming(&["pest", "pest_derive"], &["dsl/src/syntax"]), "pest is named only in dsl");
    none(naming(&["egg"], &["src/explore"]), "egg is named only in src/explore");
    none(naming(&["ndarray"], &["backends"]), "ndarray is named only in backends");
    none(naming(&["prost"], &["src/onnx"]), "prost is named only in src/onnx");
    none(
        naming(&["lsp_server", "lsp_types", "crossbeam_channel"], &["src/lsp"]),
        "the protocol of editors is spoken only in src/lsp",
    );
    none(
        naming(&["cuda_sys"], &["backends/cuda/src/nvidia"]),
        "cuda-sys is named only in backends/cuda/src/nvidia",
    );
    none(
        naming(&["libloading"], &["backends/cuda/src/nvidia", "backends/emulator/src"]),
        "libraries are opened only for a device and by the emulator",
    );
    none(
        naming(&["annotate_snippets"], &["dsl/src/diagnostics/mod.rs"]),
        "diagnostics are drawn in one module",
    );
    for (library, homes) in [
        ("pest", &["dsl/Cargo.toml"][..]),
        ("egg", &["src/explore/Cargo.toml"]),
        ("ndarray", &["backends/Cargo.toml", "backends/cpu/Cargo.toml"]),
        ("prost", &["src/onnx/Cargo.toml"]),
        ("lsp-server", &["src/lsp/Cargo.toml"]),
        ("lsp-types", &["src/lsp/Cargo.toml"]),
        ("cuda-sys", &["backends/cuda/Cargo.toml"]),
        ("libloading", &["backends/cuda/Cargo.toml", "backends/emulator/Cargo.toml"]),
        ("annotate-snippets", &["dsl/Cargo.toml"]),
        ("postcard", &["dsl/Cargo.toml"]),
        // Weights that are read, and sessions that are saved.
        ("safetensors", &["Cargo.toml", "src/weights/Cargo.toml"]),
    ] {
        let all = [
            "Cargo.toml",
            "dsl/Cargo.toml",
            "extract/Cargo.toml",
            "backends/Cargo.toml",
            "backends/cpu/Cargo.toml",
            "backends/cpu/vector/Cargo.toml",
            "backends/cuda/Cargo.toml",
            "backends/emulator/Cargo.toml",
            "fuzz/Cargo.toml",
            "src/files/Cargo.toml",
            "src/onnx/Cargo.toml",
            "src/explore/Cargo.toml",
            "src/verify/Cargo.toml",
            "src/weights/Cargo.toml",
            "src/lsp/Cargo.toml",
        ];
        for manifest in all {
            let listed = dependencies(manifest, "dependencies").contains(library);
            assert_eq!(listed, homes.contains(&manifest), "{library} in {manifest}");
        }
    }
}

#[test]
fn syntax_trees_stay_with_the_reader_and_the_checker() {
    let homes = ["dsl/src/syntax", "dsl/src/check"];
    let mut found = Vec::new();
    for f in files(&["rs"]).iter().filter(|f| !f.within(&homes) && !f.is_test()) {
        let names = |l: &str| l.contains("syntax::ast") || names_crate(l, "ast");
        for (i, line) in f.code().filter(|(_, l)| names(l)) {
            found.push(format!("{}:{i}: {}", f.path, line.trim()));
        }
    }
    none(found, "after the checker, expressions are those of `mlc_dsl::expr`");
}

#[test]
fn extraction_knows_no_tensor_program_outside_the_plan() {
    let homes = [
        "kernels/selection",
        "kernels/plan",
        "kernels/order",
        "cost/mod",
        "cost/size",
        "cost/target",
        "cost/work",
        "resources/mod",
    ]
    .map(|m| format!("extract/src/{m}.rs"));
    none(
        homes
            .iter()
            .filter(|h| !Path::new(env!("CARGO_MANIFEST_DIR")).join(h).exists())
            .cloned()
            .collect(),
        "these are where extraction may know programs",
    );
    let homes: Vec<&str> = homes.iter().map(String::as_str).collect();
    let wrong: Vec<String> = files(&["rs"])
        .iter()
        .filter(|f| f.within(&["extract/src"]) && !homes.contains(&f.path.as_str()))
        .flat_map(|f| {
            let named = f.code().filter(|(_, l)| l.contains("mlc_dsl"));
            named.map(|(i, l)| format!("{}:{i}: {l}", f.path)).collect::<Vec<_>>()
        })
        .collect();
    none(wrong, "only what prices kernels and makes plans knows programs");
}

#[test]
fn every_module_says_what_it_is() {
    let silent = files(&["rs"])
        .iter()
        .filter(|f| !f.text.trim_start().starts_with("//!"))
        .map(|f| f.path.clone())
        .collect();
    none(silent, "every module opens with `//!`");
}

#[test]
fn every_rule_text_and_item_says_what_it_is() {
    let mut silent = Vec::new();
    for f in files(&["rules"]).iter().filter(|f| f.within(&["rules", "examples"])) {
        let (file, diags) = mlc_dsl::syntax::parse(&f.text);
        assert!(
            diags.is_empty(),
            "{}",
            mlc_dsl::diagnostics::render(&diags, &f.path, &f.text, false)
        );
        if file.doc.is_empty() {
            silent.push(f.path.clone());
        }
        let items = file.items.iter().filter(|i| i.doc.is_empty());
        silent.extend(items.map(|i| format!("{}: {}", f.path, i.name.text)));
    }
    none(silent, "texts open with `//!`, and every item has its `///`");
}

/// What stands at the top level, besides what is hidden or built.
const TOP: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "backends",
    "benches",
    "build.rs",
    "docs",
    "dsl",
    "examples",
    "extract",
    "fuzz",
    "proptests",
    "python",
    "rules",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "scripts",
    "src",
    "tests",
];

#[test]
fn the_top_level_has_what_belongs_there() {
    let listed = std::process::Command::new("git")
        .args(["ls-files", "--cached"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    // A copy without its history is not looked at: what was built there is not told from what belongs there.
    let Some(listed) = listed.ok().filter(|o| o.status.success()) else { return };
    let listed = String::from_utf8(listed.stdout).expect("names in UTF-8");
    let tops: BTreeSet<&str> = listed.lines().filter_map(|l| l.split('/').next()).collect();
    let strange = tops.iter().filter(|t| !t.starts_with('.') && !TOP.contains(t));
    none(strange.map(|t| t.to_string()).collect(), "nothing else is kept at the top level");
}

#[test]
fn no_file_is_too_long() {
    let mut long = Vec::new();
    for f in files(&["rs", "rules", "pest"]) {
        let lines = f.text.lines().count();
        if lines > LINES && !GENERATED.contains(&f.path.as_str()) {
            long.push(format!("{}: {lines} lines", f.path));
        }
    }
    none(long, "a file is taken apart before it outgrows its limit");
}

#[test]
fn nothing_is_left_to_do_by_panic() {
    let macros = ["todo", "unimplemented"].map(|m| format!("{m}!"));
    let mut found = Vec::new();
    for f in files(&["rs"]) {
        for (i, line) in f.code().filter(|(_, l)| macros.iter().any(|m| l.contains(m.as_str()))) {
            found.push(format!("{}:{i}: {}", f.path, line.trim()));
        }
    }
    none(found, "what is not done is refused with a reason");
}

/// The functions of the standard library that make arrays are not inlined across units of code generation.
#[test]
fn kernels_make_arrays_by_what_is_inlined() {
    let places = ["vector/src", "src/block_quantized", "src/int8", "src/gemm"];
    let places = places.map(|f| format!("backends/cpu/{f}"));
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(places.iter().all(|p| root.join(p).is_dir()), "kernels lie in {places:?}");
    let all = files(&["rs"]);
    let kernels = all.iter().filter(|f| f.within(&places) && !f.is_test());
    let found = kernels.flat_map(|f| {
        let lines = f.code().filter(|(_, line)| line.contains("array::from_fn"));
        lines.map(|(n, line)| format!("{}:{n}: {}", f.path, line.trim()))
    });
    none(found.collect(), "use `mlc_vector::arrays::array`");
}

#[test]
fn no_layer_is_known_by_name_outside_kernels() {
    let mut layers: BTreeSet<String> = BTreeSet::new();
    for f in files(&["rules"]).iter().filter(|f| f.within(&["rules/layers", "rules/extern"])) {
        let (file, _) = mlc_dsl::syntax::parse(&f.text);
        let named = file.items.into_iter();
        let named = named.filter(|i| matches!(i.kind, ItemKind::Def(_) | ItemKind::Extern(_)));
        layers.extend(named.map(|i| i.name.text));
    }
    assert!(layers.len() > 30);
    for word in EVERYDAY {
        layers.remove(*word);
    }
    let kernels = ["backends/cpu", "backends/cuda/src", "backends/src/reference/externs/mod.rs"];
    let mut found = Vec::new();
    for f in files(&["rs"]).iter().filter(|f| !f.within(&kernels) && !f.is_test()) {
        for (i, line) in f.code().filter(|(_, l)| words(l).any(|w| layers.contains(w))) {
            found.push(format!("{}:{i}: {}", f.path, line.trim()));
        }
    }
    none(found, "a layer is its meaning: no code knows it by name");
}

#[test]
fn shipped_texts_are_in_canonical_form() {
    let wrong = files(&["rules"])
        .into_iter()
        .filter(|f| f.within(&["rules", "examples"]))
        .filter(|f| mlc_dsl::syntax::print_file(&mlc_dsl::syntax::parse(&f.text).0) != f.text)
        .map(|f| f.path)
        .collect();
    none(wrong, "run `mlc-rewrite fmt` on these texts");
}

#[test]
fn every_test_file_is_part_of_a_program() {
    let all = files(&["rs", "toml"]);
    let text = |path: &str| all.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    let mut left_out = Vec::new();
    for main in all.iter().filter(|f| f.path.ends_with("tests/main.rs")) {
        let place = main.path.strip_suffix("tests/main.rs").expect("ends so");
        let folder = format!("{place}tests/");
        let manifest = text(&format!("{place}Cargo.toml"));
        let beside = all.iter().filter_map(|f| f.path.strip_prefix(&folder));
        for path in beside.filter(|p| *p != "main.rs") {
            let module = path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix(".rs"));
            let Some(module) = module.filter(|m| !m.contains('/')) else { continue };
            let is_module = main.text.lines().any(|l| l == format!("mod {module};"));
            if !is_module && !manifest.contains(&format!("path = \"tests/{path}\"")) {
                left_out.push(format!("{folder}{path}"));
            }
        }
    }
    none(left_out, "name these in the `main.rs` beside them, or as programs in the manifest");
}

#[test]
fn crates_are_told_from_words_that_end_like_them() {
    for (line, name, named) in [
        ("use egg::Id;", "egg", true),
        ("    pub egg: egg::EGraph<N, A>,", "egg", true),
        ("use pest;", "pest", true),
        ("let x = crate::explore::egg::Id;", "egg", false),
        ("cheapest::<u32>()", "pest", false),
        ("the cheapest", "pest", false),
    ] {
        assert_eq!(names_crate(line, name), named, "{line}");
    }
}

#[test]
fn parts_of_the_check_on_a_gpu_pass_their_own_tests() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-check");
    let Ok(out) = std::process::Command::new("python3").arg(script).arg("--self-test").output()
    else {
        return println!("1 skipped: there is no python3");
    };
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("Ran "), "{said}");
}
