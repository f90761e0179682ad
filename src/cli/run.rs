//! `run MODEL [--inputs IN.npz | --input NAME=FILE.npy]…`.

use super::checking::{CheckReport, Checking, names, told};
use super::model::{Tuning, load};
use super::{Common, Found};
use crate::explain::bytes;
use crate::npz::{read_npy, read_npz, write_npz};
use crate::{pipeline, samples};
use anyhow::{Context, bail};
use mlc_backends::cpu::Cpu;
use mlc_backends::reference::Reference;
use mlc_backends::{Backend, Executable};
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Place {
    /// The f64 interpreter of meanings.
    Reference,
    /// This machine's processor.
    Cpu,
    /// An NVIDIA device.
    Cuda,
}

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The model: an ONNX file, or a `.rules` text whose last `def` is run.
    model: PathBuf,
    /// An archive with one array per input, keyed by the input's name.
    #[arg(long, value_name = "FILE.npz", conflicts_with = "input")]
    inputs: Option<PathBuf>,
    /// One input; may be given several times.
    #[arg(long, value_name = "NAME=FILE.npy")]
    input: Vec<String>,
    /// Where the outputs go, keyed by the outputs' names.
    #[arg(long, value_name = "FILE.npz")]
    outputs: Option<PathBuf>,
    /// Where to run.
    #[arg(long, value_enum, default_value = "cpu")]
    backend: Place,
    /// Run the model as it is.
    #[arg(long)]
    no_optimize: bool,
    #[command(flatten)]
    checking: Checking,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct RunReport {
    backend: String,
    optimized: bool,
    kernels: Vec<pipeline::KernelReport>,
    seconds: BTreeMap<String, f64>,
    outputs: BTreeMap<String, OutputReport>,
    /// Bytes of the plan's buffers, if extents are known.
    peak_bytes: Option<u64>,
    /// Bytes of buffers that the backend allocated.
    allocated_bytes: Option<u64>,
    peak_process_bytes: Option<u64>,
    #[serde(flatten)]
    check: CheckReport,
}

#[derive(Serialize)]
struct OutputReport {
    dtype: String,
    shape: Vec<usize>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<Found> {
    let mut clock = pipeline::Clock::default();
    let model = load(&args.model, &args.common.rules)?;
    clock.stage("read");
    let mut options = args.tuning.options("cpu", &args.common)?;
    let given = gather(&args, &model.program)?;
    args.checking.enter(&mut options, given.iter().cloned().collect())?;
    let inputs = match given {
        Some(inputs) => inputs,
        None => {
            eprintln!("note: no inputs are given; seeded ones are used");
            samples::inputs(&model.program, &model.library, args.common.seed)
                .context("the model's inputs have no known size")?
        }
    };
    let options = (!args.no_optimize).then_some(&options);
    let threads = args.common.threads();
    let prepared = prepare(model.program.clone(), &model.library, args.backend, threads, options)?;
    let Prepared { executable, kernels, peak_bytes, self_check_seconds, check } = prepared;
    clock.stage("compile");
    if let Some(spent) = self_check_seconds {
        *clock.stages.entry("compile".into()).or_default() -= spent;
        clock.stages.insert("self-check".into(), spent);
    }
    let start = Instant::now();
    let outputs = executable.run(&inputs)?;
    let took = start.elapsed().as_secs_f64();
    clock.stage("run");
    let named: Vec<(String, Tensor)> =
        model.program.outputs.iter().map(|(n, _)| n.clone()).zip(outputs).collect();
    if let Some(path) = &args.outputs {
        write_npz(path, &named).map_err(|e| anyhow::anyhow!("{e}"))?;
    }
    for (name, t) in &named {
        println!("{name}: {}{:?}  {}", t.dtype(), t.shape(), summary(t));
    }
    println!("ran in {} on {:?}", crate::explain::seconds(took), args.backend);
    let allocated_bytes = executable.allocated().map(|a| a.arena + a.results);
    if let (Some(planned), Some(used)) = (peak_bytes, allocated_bytes) {
        println!("buffers of {} planned, {} allocated", bytes(planned), bytes(used));
    }
    let outputs = named.iter().map(|(n, t)| {
        (n.clone(), OutputReport { dtype: t.dtype().to_string(), shape: t.shape().to_vec() })
    });
    args.common.report(&RunReport {
        backend: format!("{:?}", args.backend).to_lowercase(),
        optimized: !args.no_optimize,
        kernels,
        seconds: clock.stages,
        outputs: outputs.collect(),
        peak_bytes,
        allocated_bytes,
        peak_process_bytes: pipeline::peak_process_bytes(),
        check,
    })?;
    Ok(Found::Nothing)
}

fn summary(t: &Tensor) -> String {
    let v = t.to_f64();
    let shown: Vec<String> = v.iter().take(4).map(|x| format!("{x:.6}")).collect();
    let more = if v.len() > 4 { ", …" } else { "" };
    format!("[{}{more}]", shown.join(", "))
}

/// A program ready to run.
pub struct Prepared {
    /// What runs it.
    pub executable: Box<dyn Executable>,
    /// Its kernels.
    pub kernels: Vec<pipeline::KernelReport>,
    /// Bytes of its buffers as planned, if extents are known.
    pub peak_bytes: Option<u64>,
    /// Seconds of the self-check, if it ran.
    pub self_check_seconds: Option<f64>,
    /// What the self-check found.
    pub check: CheckReport,
}

/// A program made ready on a backend, optimised if there are options for that.
pub fn prepare(
    program: Program,
    library: &Arc<Library>,
    place: Place,
    threads: usize,
    options: Option<&pipeline::Options>,
) -> anyhow::Result<Prepared> {
    let backend: Box<dyn Backend> = match place {
        Place::Reference => Box::new(Reference::default()),
        Place::Cpu => Box::new(Cpu::new(threads)),
        Place::Cuda => bail!(
            "this build has no CUDA backend; run with `--backend cpu` or `--backend reference`"
        ),
    };
    let (mut check, mut self_check_seconds) = (CheckReport::default(), None);
    let plan = match options {
        Some(options) => {
            let done = pipeline::optimize(program, library, options)?;
            eprint!("{}{}", super::optimize::measured(&done.report), told(&done.report));
            for n in &done.report.notes {
                eprintln!("note: {n}");
            }
            check = CheckReport::of(&done.report);
            self_check_seconds = done.report.seconds.get("self-check").copied();
            done.plan
        }
        None => pipeline::plan(&program, library, &pipeline::target(library, "cpu")?)?,
    };
    let kernels = pipeline::kernels(&plan, library);
    let executable = backend.compile(&plan, library.clone())?;
    let peak_bytes = plan.peak_bytes();
    Ok(Prepared { executable, kernels, peak_bytes, self_check_seconds, check })
}

/// The inputs that were given, in the program's order; `None` if none were.
fn gather(args: &Args, program: &Program) -> anyhow::Result<Option<Vec<Tensor>>> {
    let mut given: BTreeMap<String, Tensor> = BTreeMap::new();
    if let Some(path) = &args.inputs {
        let archive = read_npz(path).map_err(|e| anyhow::anyhow!("{e}"))?;
        given.extend(archive);
    }
    for pair in &args.input {
        let (name, file) = pair.split_once('=').context("write `--input NAME=FILE.npy`")?;
        given.insert(name.into(), read_npy(file).map_err(|e| anyhow::anyhow!("{e}"))?);
    }
    if given.is_empty() && args.inputs.is_none() && !program.inputs.is_empty() {
        return Ok(None);
    }
    for name in given.keys() {
        let known = program.inputs.iter().any(|(n, _)| n == name);
        anyhow::ensure!(
            known,
            "the model has no input `{name}`; its inputs are {}",
            names(program)
        );
    }
    let find = |(name, _): &(String, _)| {
        given.get(name).cloned().with_context(|| format!("input `{name}` is missing"))
    };
    Ok(Some(program.inputs.iter().map(find).collect::<anyhow::Result<_>>()?))
}
