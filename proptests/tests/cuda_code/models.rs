//! Whole models as generated CUDA code, on the emulator: a few small ones, or those that `MLC_CUDA_MODELS` says.
//!
//! `all` stands for the models of a neighbouring `shared/models` folder, with seeded weights and small extents for symbols;
//! anything else is a folder of filled models, of which the inputs and outputs beside them are used.

#[path = "../../../tests/models/fill.rs"]
mod fill;

use mlc_backends::Backend;
use mlc_cuda::Cuda;
use mlc_dsl::ir::{Program, Tensor};
use mlc_extract::resources::operations;
use mlc_onnx::{import, read_onnx};
use mlc_proptests::emulated::Emulated;
use mlc_proptests::filled::{Case, folders, name_of, shaped};
use mlc_proptests::stacks::Decoder;
use mlc_proptests::{checked_options, library};
use mlc_rewrite::pipeline::selfcheck;
use mlc_rewrite::pipeline::{Options, optimize};
use mlc_verify::random_inputs::inputs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which models run.
const MODELS: &str = "MLC_CUDA_MODELS";
/// The largest difference that rounding explains, relative to an output's largest element.
const TOLERANCE: f64 = 1e-3;
/// After so much time no further model of a folder is begun.
const TIME: Duration = Duration::from_secs(3600);

/// The program as read, computed by the processor, and the optimised plan, computed by generated code.
fn differences(case: &Case) -> Result<String, String> {
    let library = library();
    let program = import(case.model.clone(), library).map_err(|e| e.to_string())?.program;
    let given = given(case, &program)?;
    let limits = mlc_explore::Limits { time: Duration::from_secs(60), ..Default::default() };
    let options = Options { target: "cuda".into(), self_check: false, limits, ..checked_options() };
    let start = Instant::now();
    let plan = optimize(program.clone(), library, &options).map_err(|e| format!("{e:#}"))?.plan;
    let optimised = start.elapsed().as_secs_f64();
    let emulated = Arc::new(Emulated::for_long_runs());
    let start = Instant::now();
    let compiled = Cuda::new(emulated.clone()).compile(&plan, library.clone());
    let executable = compiled.map_err(|e| e.to_string())?;
    let got = executable.run(&given).map_err(|e| e.to_string())?;
    let ran = start.elapsed().as_secs_f64();
    drop(executable);
    assert_eq!(emulated.left(), 0, "memory or modules are left on the device");
    let names: Vec<&String> = program.outputs.iter().map(|o| &o.0).collect();
    let mut worst = 0.0f64;
    let mut compare = |wanted: &[Tensor], what: &str| {
        for ((name, wanted), got) in names.iter().zip(wanted).zip(&got) {
            let error = selfcheck::difference(wanted, got).map_err(|e| format!("{name}: {e:#}"))?;
            worst = worst.max(error);
            if error > TOLERANCE {
                return Err(format!("{name} differs from {what} by {error:.1e}"));
            }
        }
        Ok(())
    };
    let own = selfcheck::run(&program, library, &given, 2).map_err(|e| e.to_string())?;
    compare(&own, "the processor's result")?;
    if let Some(outputs) = &case.outputs {
        let of = |name: &&String| outputs.iter().find(|o| o.0 == **name).map(|o| o.1.clone());
        let wanted: Option<Vec<Tensor>> = names.iter().map(of).collect();
        compare(&wanted.ok_or("an output has no reference")?, "the reference")?;
    }
    let work = operations(&program, library) / 1e9;
    Ok(format!("{work:.2} | {optimised:.0} | {ran:.0} | {worst:.1e}"))
}

/// Inputs by the order of the program.
fn given(case: &Case, program: &Program) -> Result<Vec<Tensor>, String> {
    let Some(known) = &case.inputs else {
        return inputs(program, library(), 1).ok_or_else(|| "inputs of no known size".into());
    };
    let of = |(name, _): &(String, _)| known.iter().find(|k| k.0 == *name).map(|k| k.1.clone());
    let found: Option<Vec<Tensor>> = program.inputs.iter().map(of).collect();
    found.ok_or_else(|| "an input is not there".into())
}

/// Runs the models and prints a row for each.
fn hold(cases: impl Iterator<Item = Case>) {
    let (mut failed, mut compared) = (vec![], 0);
    println!("| model | 10⁹ operations | optimised, s | emulated, s | largest difference |");
    println!("|---|---|---|---|---|");
    let start = Instant::now();
    for case in cases {
        if start.elapsed() > TIME {
            println!("| {} | – | – | – | skipped: the time is over |", case.name);
            continue;
        }
        match differences(&case) {
            Ok(row) => println!("| {} | {row} |", case.name),
            Err(e) => {
                println!("| {} | – | – | – | {e} |", case.name);
                failed.push(format!("{}: {e}", case.name));
            }
        }
        compared += 1;
    }
    println!("\n{compared} models compared");
    assert!(failed.is_empty(), "{} wrong:\n{}", failed.len(), failed.join("\n"));
}

/// Small models: one of transformers, one of convolutions.
fn small() -> impl Iterator<Item = Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/squeezenet1_1.onnx");
    let convolutions = shaped(read_onnx(path).expect("reads"), |_, _| vec![1, 3, 32, 32]);
    let cases = [("decoder", Decoder::small(2).seeded()), ("squeezenet1_1", convolutions)];
    cases.into_iter().map(|(name, model)| Case::of(name, model))
}

/// A model without weights, with seeded ones.
fn seeded(folder: &Path) -> Case {
    let dir = tempfile::tempdir().expect("a folder");
    fill::fill(folder, dir.path()).expect("weights are filled");
    Case::of(&name_of(folder), read_onnx(dir.path().join("model.onnx")).expect("reads"))
}

#[test]
fn generated_code_computes_whole_models() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let Ok(which) = std::env::var(MODELS) else { return hold(small()) };
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/models");
    let (folder, case): (PathBuf, fn(&Path) -> Case) = match which.as_str() {
        "all" => (shared, seeded),
        _ => (which.into(), Case::read),
    };
    let found = folders(&folder);
    if found.is_empty() {
        println!("skipped: no models in {}", folder.display());
        return;
    }
    hold(found.iter().map(|f| case(f)));
}
