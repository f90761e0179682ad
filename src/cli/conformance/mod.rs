//! `conformance FOLDER`: runs ONNX test cases, and tells which pass.
//!
//! [`crate::conformance`] finds and runs them.

mod files;

use super::common::{Common, Findings, named};
use super::options::model::reader;
use super::options::place::Place;
use super::options::shapes::ShapeOptions;
use crate::conformance::{Runner, Skipped, cases_in};
use crate::device::BackendKind;
use crate::pipeline::Options;
use anyhow::{Context, ensure};
use mlc_onnx::{RawModel, read_onnx};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Folders that hold test cases, at any depth up to four.
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// Run the models as they are.
    #[arg(long)]
    no_optimize: bool,
    /// Only cases whose name has this in it.
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// A table of cases to leave out, each with the reason, as TOML.
    #[arg(long, value_name = "FILE.toml")]
    skip: Option<PathBuf>,
    /// Run nothing: write what `optimize` makes of each case to FOLDER/CASE.onnx, which `passed` counts.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["backend", "device", "no_optimize"])]
    write: Option<PathBuf>,
    /// What will run what is written.
    #[arg(long, value_name = "NAME", default_value = "standard", requires = "write")]
    target: String,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum CaseResult {
    Passed,
    /// It runs, and the outputs differ.
    Failed,
    /// It is not read, or does not run.
    Refused,
    Skipped,
}

/// One case.
#[derive(Clone, Debug, Serialize)]
struct CaseReport {
    case: String,
    /// The operator that the case is about: that of its only node, else `(graph)`.
    operator: String,
    result: CaseResult,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// What `--json` holds.
#[derive(Serialize)]
struct ConformanceReport {
    passed: usize,
    failed: usize,
    refused: usize,
    skipped: usize,
    cases: Vec<CaseReport>,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    let reads: Vec<_> = named("--skip", &args.skip).into_iter().collect();
    args.common.begin(&reads, &[])?;
    if let Some(folder) = &args.write {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    let skip = match &args.skip {
        Some(path) => Skipped::read(path)?,
        None => Skipped::default(),
    };
    let mut folders = vec![];
    for folder in &args.folders {
        let found = cases_in(folder);
        folders.extend(found.with_context(|| format!("{} cannot be searched", folder.display()))?);
    }
    let wanted = |f: &PathBuf| args.only.as_ref().is_none_or(|part| name(f).contains(part));
    folders.retain(wanted);
    folders.sort();
    ensure!(
        !folders.is_empty(),
        "no test case is found\nhelp: a case is a folder with `model.onnx` and `test_data_set_0`"
    );
    // Where nothing can run, no case is refused for it.
    args.place.on(1)?.backend()?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.common.threads())
        .stack_size(crate::stack::BYTES)
        .build()?;
    let cases: Vec<CaseReport> =
        pool.install(|| folders.par_iter().map(|f| case(f, &args, &skip)).collect());
    let count = |r| cases.iter().filter(|c| c.result == r).count();
    let report = ConformanceReport {
        passed: count(CaseResult::Passed),
        failed: count(CaseResult::Failed),
        refused: count(CaseResult::Refused),
        skipped: count(CaseResult::Skipped),
        cases,
    };
    args.common.report(&report)?;
    args.common.screen.print(&text(&report))?;
    let bad = report.failed + report.refused > 0;
    Ok(if bad { Findings::Something } else { Findings::Nothing })
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn case(folder: &Path, args: &Args, skip: &Skipped) -> CaseReport {
    let case = name(folder);
    let report =
        |operator, result, reason| CaseReport { case: case.clone(), operator, result, reason };
    if let Some(reason) = skip.by_name(&case) {
        return report("(graph)".into(), CaseResult::Skipped, reason.into());
    }
    let raw = match read_onnx(folder.join("model.onnx")) {
        Ok(raw) => raw,
        Err(e) => return report("(graph)".into(), CaseResult::Refused, flat(&e.into())),
    };
    let operator = match raw.graph.nodes.as_slice() {
        [only] => only.operator(),
        _ => "(graph)".into(),
    };
    if let Some(reason) = skip.by_domain(&raw) {
        return report(operator, CaseResult::Skipped, reason.into());
    }
    let result = match &args.write {
        None => difference(folder, &raw, args),
        Some(into) => {
            let output = into.join(format!("{case}.onnx"));
            files::write(&folder.join("model.onnx"), &output, &args.target, &args.common)
                .map(|()| None)
        }
    };
    match result {
        Ok(None) => report(operator, CaseResult::Passed, String::new()),
        Ok(Some(reason)) => report(operator, CaseResult::Failed, reason),
        Err(e) => report(operator, CaseResult::Refused, flat(&e)),
    }
}

/// A message on one line.
fn flat(e: &anyhow::Error) -> String {
    crate::error::text(e).lines().next().unwrap_or_default().to_string()
}

/// What differs where the case runs as the user says.
fn difference(folder: &Path, raw: &RawModel, args: &Args) -> anyhow::Result<Option<String>> {
    let is_cuda = args.place.backend == BackendKind::Cuda;
    let options = Options {
        target: if is_cuda { "cuda" } else { "cpu" }.into(),
        threads: 1,
        seed: args.common.seed,
        ..Options::default()
    };
    let backend = args.place.on(1)?.backend()?;
    let reader = reader(&args.common, &ShapeOptions::default());
    let halves: Option<fn(_) -> _> = if is_cuda { Some(mlc_cuda::tolerance) } else { None };
    let as_read = args.no_optimize;
    let runner = Runner { reader, backend: &*backend, options, as_read, halves };
    runner.difference(folder, raw)
}

/// The table by operator, and each case that does not pass with its reason.
fn text(report: &ConformanceReport) -> String {
    let mut by_operator: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for c in &report.cases {
        by_operator.entry(&c.operator).or_default()[c.result as usize] += 1;
    }
    let mut out = String::new();
    let _ = writeln!(out, "{:32}  passed  failed refused skipped", "operator");
    for (operator, [passed, failed, refused, skipped]) in by_operator {
        let _ = writeln!(out, "{operator:32} {passed:>7} {failed:>7} {refused:>7} {skipped:>7}");
    }
    let ConformanceReport { passed, failed, refused, skipped, cases } = report;
    for c in cases.iter().filter(|c| matches!(c.result, CaseResult::Failed | CaseResult::Refused)) {
        let word = if c.result == CaseResult::Failed { "failed" } else { "refused" };
        let _ = writeln!(out, "{word} {}: {}", c.case, c.reason);
    }
    let _ = writeln!(
        out,
        "{} cases: {passed} passed, {failed} failed, {refused} refused, {skipped} skipped",
        cases.len()
    );
    out
}
