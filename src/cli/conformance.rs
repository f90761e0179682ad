//! `conformance FOLDER`: runs ONNX test cases, and tells which pass.
//!
//! A case is a folder with `model.onnx` and `test_data_set_N/{input,output}_M.pb`, as ONNX's own suite and its
//! model zoo store them. `tolerance.txt` holds the relative and the absolute tolerance of a case that has its own.

use super::model::reader;
use super::place::Place;
use super::shape_option::ShapeOptions;
use super::{Common, Findings, conformance_files, named};
use crate::device::BackendKind;
use crate::error::Error;
use crate::model::Model;
use crate::pipeline::{self, Options};
use crate::{staged, stdlib};
use anyhow::{Context, ensure};
use itertools::Itertools;
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::plan::Plan;
use mlc_onnx::{RawModel, RawNode, read_onnx, read_value};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Tolerances of cases that do not state their own: those of ONNX's test runner.
const TOLERANCE: (f64, f64) = (1e-3, 1e-7);
/// The least relative tolerance of bf16 in ONNX's test runner (`onnx/backend/test/runner`): two units in the last place.
const BF16_TOLERANCE: f64 = 1.0 / 64.0;
/// Folders are searched so deep.
const MAX_DEPTH: usize = 4;

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

/// Reasons by name of a case, or of the domain that a case uses.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkipTable {
    #[serde(default)]
    cases: BTreeMap<String, String>,
    #[serde(default)]
    domains: BTreeMap<String, String>,
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
        Some(path) => skip_table(path)?,
        None => SkipTable::default(),
    };
    let mut folders = vec![];
    for folder in &args.folders {
        cases_in(folder, 0, &mut folders)
            .with_context(|| format!("{} cannot be searched", folder.display()))?;
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

fn skip_table(path: &Path) -> anyhow::Result<SkipTable> {
    let text = stdlib::read_text(path)?;
    toml::from_str(&text).map_err(|e| {
        let help = "the table `[cases]` has lines `CASE = \"the reason why it is left out\"`";
        anyhow::anyhow!("{} is no table of cases: {e}\nhelp: {help}", path.display())
    })
}

/// Adds the folders of cases in and below a folder.
fn cases_in(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if folder.join("model.onnx").is_file() {
        found.push(folder.to_path_buf());
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if depth < MAX_DEPTH && path.is_dir() {
            cases_in(&path, depth + 1, found)?;
        }
    }
    Ok(())
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn case(folder: &Path, args: &Args, skip: &SkipTable) -> CaseReport {
    let case = name(folder);
    let report =
        |operator, result, reason| CaseReport { case: case.clone(), operator, result, reason };
    if let Some(reason) = skip.cases.get(&case) {
        return report("(graph)".into(), CaseResult::Skipped, reason.clone());
    }
    let raw = match read_onnx(folder.join("model.onnx")) {
        Ok(raw) => raw,
        Err(e) => return report("(graph)".into(), CaseResult::Refused, flat(&e.into())),
    };
    let operator = match raw.graph.nodes.as_slice() {
        [only] => only.operator(),
        _ => "(graph)".into(),
    };
    let domain = |n: &RawNode| skip.domains.get(&n.domain);
    if let Some(reason) = raw.graph.nodes.iter().find_map(domain) {
        return report(operator, CaseResult::Skipped, reason.clone());
    }
    let result = match &args.write {
        None => passes(folder, &raw, args),
        Some(into) => {
            let output = into.join(format!("{case}.onnx"));
            conformance_files::write(
                &folder.join("model.onnx"),
                &output,
                &args.target,
                &args.common,
            )
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

/// What differs from the expected outputs, in the first set of data where anything does.
fn passes(folder: &Path, raw: &RawModel, args: &Args) -> anyhow::Result<Option<String>> {
    let tolerance = tolerance(folder)?;
    let mut n = 0;
    loop {
        let data = folder.join(format!("test_data_set_{n}"));
        if !data.is_dir() {
            ensure!(n > 0, "it has no `test_data_set_0`");
            return Ok(None);
        }
        let inputs: HashMap<String, Tensor> = stored(&data, "input", &raw.graph.inputs)?;
        let expected = stored(&data, "output", &raw.graph.outputs)?;
        let reader = reader(&args.common, &ShapeOptions::default());
        let model = reader.offering(inputs.clone()).read(folder.join("model.onnx"))?;
        let mut outputs = outputs(model, inputs, args)?;
        for (name, wanted) in expected.iter().sorted_by_key(|(name, _)| *name) {
            let reason = match outputs.remove(name) {
                Some(got) => differs(&got, wanted, tolerance),
                None => Some("there is none".to_string()),
            };
            if let Some(reason) = reason {
                return Ok(Some(format!("data set {n}, output `{name}`: {reason}")));
            }
        }
        let is_stored = |i: &usize| data.join(format!("output_{i}.pb")).is_file();
        let stored = raw.graph.outputs.iter().enumerate().filter(|(i, _)| is_stored(i));
        let is_more = |name: &String| {
            let of = |o: &str| name == o || name.starts_with(&format!("{o}["));
            stored.clone().any(|(_, o)| of(&o.name))
        };
        if let Some(more) = outputs.keys().filter(|name| is_more(name)).min() {
            return Ok(Some(format!("data set {n}, output `{more}`: none is expected")));
        }
        n += 1;
    }
}

fn tolerance(folder: &Path) -> anyhow::Result<(f64, f64)> {
    let path = folder.join("tolerance.txt");
    if !path.exists() {
        return Ok(TOLERANCE);
    }
    let text = stdlib::read_text(&path)?;
    let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
    match numbers.as_deref() {
        Ok(&[relative, absolute]) => Ok((relative, absolute)),
        _ => anyhow::bail!("{} holds no two numbers", path.display()),
    }
}

/// The stored tensors of a data set by the names of the graph's inputs or outputs; elements of sequences by number.
fn stored(
    data: &Path,
    kind: &str,
    values: &[mlc_onnx::RawValueInfo],
) -> anyhow::Result<HashMap<String, Tensor>> {
    let mut all = HashMap::new();
    for (i, value) in values.iter().enumerate() {
        let path = data.join(format!("{kind}_{i}.pb"));
        if path.is_file() && !value.name.is_empty() {
            all.extend(read_value(&path, &value.name, &value.containers)?);
        }
    }
    Ok(all)
}

fn outputs(
    model: Model,
    mut inputs: HashMap<String, Tensor>,
    args: &Args,
) -> anyhow::Result<HashMap<String, Tensor>> {
    let options = Options {
        target: if args.place.backend == BackendKind::Cuda { "cuda" } else { "cpu" }.into(),
        threads: 1,
        seed: args.common.seed,
        ..Options::default()
    };
    let backend = args.place.on(1)?.backend()?;
    let library = model.library().clone();
    let run = |plan: &Plan, inputs: &[Tensor]| -> Result<Vec<Tensor>, Error> {
        Ok(backend.compile(plan, library.clone())?.run(inputs)?)
    };
    let model = staged::decided(model, &inputs, &|program, inputs| {
        run(&super::run::as_read(program, &library, &options)?, &inputs)
    })?;
    model.all_understood()?;
    inputs.retain(|name, _| model.program().inputs.iter().any(|(n, _)| n == name));
    let plan = match args.no_optimize {
        true => super::run::as_read(model.program(), &library, &options)?,
        false => pipeline::optimize(model.program().clone(), &library, &options)?.plan,
    };
    let inputs = crate::session::in_order(model.program(), inputs)?;
    let outputs = run(&plan, &inputs)?;
    Ok(model.program().outputs.iter().map(|(n, _)| n.clone()).zip(outputs).collect())
}

/// How a result differs from what is expected, beyond tolerance; NaN equals NaN.
fn differs(got: &Tensor, wanted: &Tensor, (relative, absolute): (f64, f64)) -> Option<String> {
    if got.dtype() != wanted.dtype() || got.shape() != wanted.shape() {
        let (gd, gs, wd, ws) = (got.dtype(), got.shape(), wanted.dtype(), wanted.shape());
        return Some(format!("expected {wd}{ws:?}, found {gd}{gs:?}"));
    }
    let relative = match wanted.dtype() {
        DType::BF16 => relative.max(BF16_TOLERANCE),
        _ => relative,
    };
    if wanted.dtype() == DType::Str {
        let at = (0..wanted.len()).find(|&i| got.get_str(i) != wanted.get_str(i))?;
        let (w, g) = (wanted.get_str(at), got.get_str(at));
        return Some(format!("element {at}: expected {w:?}, found {g:?}"));
    }
    let near = |i: &usize| match wanted.dtype().is_float() {
        true => {
            let (g, w) = (got.get_f64(*i), wanted.get_f64(*i));
            let equal = g == w || g.is_nan() && w.is_nan();
            equal || w.is_finite() && (g - w).abs() <= absolute + relative * w.abs()
        }
        false => {
            let apart = got.get_i128(*i).abs_diff(wanted.get_i128(*i)) as f64;
            apart <= absolute + relative * wanted.get_f64(*i).abs()
        }
    };
    let at = (0..wanted.len()).find(|i| !near(i))?;
    Some(format!("element {at}: expected {}, found {}", wanted.get_f64(at), got.get_f64(at)))
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
