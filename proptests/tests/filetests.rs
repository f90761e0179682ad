//! The cases of `tests/filetests` that have an output: what is read of an ONNX graph, what a layer and a graph become, what is said of a law.

use mlc_dsl::diagnostics::Severity;
use mlc_dsl::library::Library;
use mlc_onnx::{import, read_onnx};
use mlc_proptests::filetests::{Case, hold};
use mlc_proptests::traps::{run, text};
use mlc_rewrite::pipeline::Options;
use mlc_rewrite::pipeline::costing::Costing;
use mlc_rewrite::{Model, Optimizer, show, stdlib};
use mlc_verify::{CheckOptions, check_library, prove_for_every_size};
use std::path::Path;
use std::sync::Arc;

/// Writes the graph of a case, in the notation of traps, as a file.
fn written(case: &Case, path: &Path) -> Result<(), String> {
    let lines: Vec<&str> = case.text.lines().filter(|l| !l.starts_with("target ")).collect();
    run::write(&text::graph(&lines.join("\n"))?, path)
}

/// The targets that a case names.
fn targets(case: &Case, default: &str) -> Vec<String> {
    let named = case.text.lines().find_map(|l| l.trim_start_matches("// ").strip_prefix("target "));
    named.unwrap_or(default).split_whitespace().map(str::to_string).collect()
}

/// What a model becomes on the targets that a case names: the program, and its kernels.
fn optimized(model: &Model, targets: &[String]) -> Result<String, String> {
    let mut out = String::new();
    for target in targets {
        // Figures of the target's own text, whatever this machine is.
        let described = model.library().target(target).cloned();
        let costing = Costing { described, ..Costing::default() };
        let options = Options { target: target.clone(), costing, ..Options::default() };
        let done = Optimizer::from(options).optimize(model).map_err(|e| format!("{e:#}"))?;
        let kernels = done.report().kernels.iter();
        let kernels: Vec<String> =
            kernels.map(|k| format!("{}: {}", k.name, k.nodes.join(" "))).collect();
        out.push_str(&format!("{target}\n{}\n{}\n", done.text().trim_end(), kernels.join("\n")));
    }
    Ok(out)
}

#[test]
fn onnx_graphs_are_read_so() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("graph.onnx");
    let library = mlc_proptests::library();
    let read = |case: &Case| -> Result<String, String> {
        written(case, &path)?;
        let raw = read_onnx(&path).map_err(|e| e.to_string())?;
        let read = import(raw, library).map_err(|e| e.to_string())?;
        Ok(show::program(&read.program, library, "graph"))
    };
    hold("onnx", |case| read(case).unwrap_or_else(|e| format!("error: {e}")));
}

#[test]
fn graphs_become_these_plans() {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("graph.onnx");
    let plan = |case: &Case| -> Result<String, String> {
        written(case, &path)?;
        let model = Model::read(&path).map_err(|e| format!("{e:#}"))?;
        optimized(&model, &targets(case, "cpu standard"))
    };
    hold("plans", |case| plan(case).unwrap_or_else(|e| format!("error: {e}")));
}

#[test]
fn layers_become_these_plans() {
    let plan = |case: &Case| -> Result<String, String> {
        let model = Model::from_rules(&case.text).map_err(|e| format!("{e:#}"))?;
        optimized(&model, &targets(case, "cpu"))
    };
    hold("layers", |case| plan(case).unwrap_or_else(|e| format!("error: {e}")));
}

/// The shipped texts and that of a case.
///
/// # Errors
/// The case has mistakes.
fn with_laws(case: &Case) -> Result<Arc<Library>, String> {
    let (library, diags) = stdlib::with(&[("case.rules", case.text.as_str())]);
    let faults = diags.iter().filter(|d| own(d.source) && d.diag.severity == Severity::Error);
    let faults: Vec<String> =
        faults.map(|d| format!("error {}: {}", d.diag.code.0, d.diag.message)).collect();
    if faults.is_empty() { Ok(Arc::new(library)) } else { Err(faults.join("\n")) }
}

/// True of texts that are no shipped ones.
fn own(source: u32) -> bool {
    source as usize >= stdlib::SHIPPED_TEXTS
}

#[test]
fn laws_are_proved_for_every_size_or_not() {
    let prove = |case: &Case| -> Result<String, String> {
        let library = with_laws(case)?;
        let laws = library.laws.iter().filter(|l| own(l.source.file));
        let lines = laws.map(|law| match prove_for_every_size(&library, law, 0) {
            Ok(()) => format!("{}: for every rank and size", law.name),
            Err(why) => format!("{}: not shown, {why}", law.name),
        });
        Ok(lines.collect::<Vec<_>>().join("\n"))
    };
    hold("proofs", |case| prove(case).unwrap_or_else(|e| e));
}

#[test]
fn laws_are_judged_so() {
    hold("laws", |case| {
        let library = match with_laws(case) {
            Ok(library) => library,
            Err(faults) => return faults,
        };
        let laws = library.laws.iter().filter(|l| own(l.source.file));
        let names: Vec<String> = laws.map(|l| l.name.to_string()).collect();
        let options = CheckOptions { threads: 1, ..CheckOptions::default() };
        let report = check_library(&library, Some(&names), &options, &|_, _| ());
        // Without how long it took.
        let lines = report.human(false);
        let timeless = |l: &str| match l.split_once(" can never match") {
            Some((counts, _)) => format!("{counts} can never match"),
            None => l.to_string(),
        };
        lines.lines().map(timeless).collect::<Vec<_>>().join("\n")
    });
}
