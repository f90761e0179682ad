//! Runs models in tract and in rten, to compare.
//!
//!     cargo run --release -- SUITE [PART OF A NAME]
//!     cargo run --release -- turns RUNTIME MODEL INPUTS.npz THREADS
//!     cargo run --release -- peak THREADS
//!
//! The first runs ONNX's conformance suite, as `fuzz/onnx_suite.py` writes it. A case passes if the elements are within its tolerance, under
//! the same rules as in `mlc-rewrite conformance`. A runtime that has fewer element types may use a wider or narrower one of the same kind.
//! The second runs a model when it is told to, the third measures the machine: both are for the scripts beside this crate.

mod case;
mod peak;
mod runtimes;
mod turns;

use anyhow::{Context, Result, bail};
use case::Case;
use runtimes::{Load, Runtime};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What became of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Passed,
    /// It runs, and the outputs differ.
    Failed,
    /// It is not loaded or does not run.
    Refused,
    /// The process would have ended.
    Panicked,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &*args.iter().map(String::as_str).collect::<Vec<_>>() {
        ["turns", runtime, model, inputs, threads] => {
            turns::answer(runtime, Path::new(model), Path::new(inputs), threads.parse()?)
        }
        ["peak", threads] => {
            println!("{}", peak::flops_per_second(threads.parse()?));
            Ok(())
        }
        [suite] => conformance(suite, ""),
        [suite, part] => conformance(suite, part),
        _ => bail!("give the folder of the suite, `turns` with its arguments, or `peak THREADS`"),
    }
}

/// Prints how many cases each runtime passes.
fn conformance(suite: &str, part: &str) -> Result<()> {
    let mut folders = vec![];
    search(Path::new(suite), &mut folders)?;
    folders.retain(|f| f.file_name().is_some_and(|n| n.to_string_lossy().contains(part)));
    folders.sort();
    std::panic::set_hook(Box::new(|_| {}));
    for Runtime { name, load, .. } in runtimes::ALL {
        let mut counts: BTreeMap<Outcome, usize> = BTreeMap::new();
        for folder in &folders {
            let (outcome, why) = match catch_unwind(AssertUnwindSafe(|| outcome(folder, load))) {
                Ok(Ok(None)) => (Outcome::Passed, String::new()),
                Ok(Ok(Some(why))) => (Outcome::Failed, why),
                Ok(Err(e)) => (Outcome::Refused, format!("{e:#}")),
                Err(_) => (Outcome::Panicked, String::new()),
            };
            *counts.entry(outcome).or_default() += 1;
            if outcome != Outcome::Passed {
                let word = ["", "failed", "refused", "panicked"][outcome as usize];
                let case = folder.file_name().unwrap_or_default().to_string_lossy();
                eprintln!("{name} {word} {case}: {}", why.replace('\n', " "));
            }
        }
        let count = |o| counts.get(&o).copied().unwrap_or_default();
        println!(
            "{name}: {} cases: {} passed, {} failed, {} refused, {} panicked",
            folders.len(),
            count(Outcome::Passed),
            count(Outcome::Failed),
            count(Outcome::Refused),
            count(Outcome::Panicked)
        );
    }
    Ok(())
}

/// Adds the folders of cases in and below a folder.
fn search(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if folder.join("model.onnx").is_file() {
        found.push(folder.to_path_buf());
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            search(&path, found)?;
        }
    }
    Ok(())
}

/// What differs from the expected outputs, in the first set of data where anything does.
fn outcome(folder: &Path, load: Load) -> Result<Option<String>> {
    let case = Case::read(folder)?;
    for set in &case.sets {
        let inputs: Vec<_> = case.names.iter().cloned().zip(set.inputs.iter().cloned()).collect();
        let outputs = load(&case.model, &inputs, 1)?()?()?;
        for (i, wanted) in set.outputs.iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            let got = outputs.get(i).context("there are too few outputs")?;
            if let Some(why) = case.differs(got, wanted) {
                return Ok(Some(format!("output {i}: {why}")));
            }
        }
    }
    Ok(None)
}
