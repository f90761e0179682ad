//! Generated CUDA code, run by the emulator: it computes what the reference interpreter does.

use mlc_backends::Backend;
use mlc_backends::cuda::Cuda;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::CallId;
use mlc_dsl::plan::Plan;
use mlc_extract::kernel_selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs, tame};
use mlc_fuzz::oracle::{examine, hold};
use mlc_fuzz::{Generator, Subject, Verdict};
use mlc_onnx::import;
use mlc_proptests::emulated::Emulated;
use mlc_proptests::spellings::{families, run::models};
use mlc_proptests::{checked_options, library, options, program};
use mlc_rewrite::pipeline::{Options, optimize};
use mlc_rewrite::show;
use std::sync::Arc;

/// Generated programs.
const PROGRAMS: u64 = 60;
/// Applications per operator.
const SEEDS: u64 = 2;

/// Runs a plan on a device that is emulated, and gives everything back.
fn run_plan(plan: &Plan, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let device = Arc::new(Emulated::default());
    let backend = Cuda::new(device.clone());
    let result = backend.compile(plan, library().clone()).and_then(|e| e.run(inputs));
    assert_eq!(device.left(), 0, "memory or modules are left on the device");
    result.map_err(|e| e.to_string())
}

#[test]
fn generated_code_computes_every_operator_as_the_reference_does() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library();
    let generator = Generator::new(library);
    let run = |p: &_, i: &[_]| {
        let plan = Plan::of_nodes(Program::clone(p), library, "reference");
        run_plan(&plan, i)
    };
    let keep = |p: &Program| Ok(p.clone());
    let subject = Subject { library, optimise: &keep, run: &run };
    let only = std::env::var("ONLY").ok();
    let mut wrong = Vec::new();
    let mut refused = std::collections::BTreeSet::new();
    for (i, call) in library.calls.iter().enumerate() {
        if only.as_ref().is_some_and(|o| *o != *call.name) {
            continue;
        }
        for seed in 0..SEEDS {
            let Some(p) = generator.single(CallId(i as u32), seed) else { continue };
            wrong.extend(Style::ALL.into_iter().find_map(|style| {
                let values = inputs(&p, style, seed)?;
                let runs = [tame(&values), values];
                let mut failures =
                    runs.iter().filter_map(|v| hold(&subject, &p, &p, style, v).err());
                let (stage, message) = failures.next()?;
                if message.contains("does not support") {
                    refused.insert(format!("{}: {message}", call.name));
                    return None;
                }
                let text = show::program(&p, library, "case");
                Some(format!(
                    "{} (seed {seed}, {style:?}, {stage:?}): {message}\n{text}",
                    call.name
                ))
            }));
        }
    }
    println!("refused: {refused:#?}");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn generated_code_computes_programs_as_the_reference_does() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library();
    let target = library.target("cuda").expect("shipped");
    let run = |p: &Program, i: &[_]| {
        let plan = select_kernels(p.clone(), library, target);
        run_plan(&plan, i)
    };
    let options = Options { target: "cuda".into(), ..options(500, 3) };
    let optimise = |p: &Program| {
        let done = optimize(p.clone(), library, &options).map_err(|e| e.to_string())?;
        Ok(done.program)
    };
    let subject = Subject { library, optimise: &optimise, run: &run };
    let mut wrong = Vec::new();
    let mut compared = 0;
    for seed in 0..PROGRAMS {
        let p = program(seed, 14);
        match examine(&subject, &p, &[Style::Normal, Style::Whole], seed) {
            Verdict::Agrees(runs) => compared += runs,
            Verdict::Skipped(_) => {}
            Verdict::Differs(f) => {
                let text = show::program(&p, library, "case");
                wrong.push(format!(
                    "seed {seed}, {:?}, {:?}: {}\n{text}",
                    f.stage, f.style, f.message
                ));
            }
        }
    }
    println!("{compared} runs compared");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn generated_code_computes_layers_as_the_reference_does() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library();
    let target = library.target("cuda").expect("shipped");
    let run = |p: &Program, i: &[_]| run_plan(&select_kernels(p.clone(), library, target), i);
    let options = Options { target: "cuda".into(), self_check: false, ..checked_options() };
    let optimise = |p: &Program| {
        let done = optimize(p.clone(), library, &options).map_err(|e| e.to_string())?;
        Ok(done.program)
    };
    let subject = Subject { library, optimise: &optimise, run: &run };
    let only = std::env::var("ONLY").ok();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for family in families() {
        if only.as_ref().is_some_and(|o| *o != family.name) {
            continue;
        }
        for (model, _) in models(&family, 1) {
            let p = import(model, library).expect("imports").program;
            match examine(&subject, &p, &[Style::Normal], 1) {
                Verdict::Agrees(runs) => compared += runs,
                Verdict::Skipped(why) => println!("{}: {why}", family.name),
                Verdict::Differs(f) => {
                    let text = show::program(&p, library, "case");
                    wrong.push(format!("{}, {:?}: {}\n{text}", family.name, f.stage, f.message));
                }
            }
        }
    }
    println!("{compared} runs compared");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
