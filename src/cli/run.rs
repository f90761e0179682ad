//! `run MODEL [--inputs IN.npz | --input NAME=FILE.npy]…`.

use super::common::{Common, Findings, met, named};
use super::options::model::{Tuning, fitting_symbols, load_offering, told_notes};
use super::options::place::Place;
use super::options::run_inputs::RunInputs;
use super::options::selfcheck::{CheckReport, Checking, told, warn};
use super::options::shapes::ShapeOptions;
use super::terminal::progress;
use crate::device::Device;
use crate::error::Error;
use crate::model::Model;
use crate::optimizer::{OptimizedModel, Optimizer, optimizing};
use crate::pipeline::costing::Measured;
use crate::pipeline::{self, Options};
use crate::session::data_dependent;
use crate::session::in_order;
use anyhow::Context;
use mlc_dsl::diagnostics::message_text::bytes;
use mlc_dsl::ir::{DType, Program, Tensor};
use mlc_extract::resources;
use mlc_files::Named;
use mlc_files::npz::{read_npy, write_npz};
use mlc_verify::random_inputs;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The model: an ONNX file, or a `.rules` text whose last `def` is run; `-` is standard input.
    model: PathBuf,
    /// An archive with one array per input, keyed by the input's name, or several samples of arrays named K/INPUT, of
    /// which the first is run.
    #[arg(long, value_name = "FILE.npz", conflicts_with = "input")]
    inputs: Option<PathBuf>,
    /// Which sample of `--inputs` is run, instead of the first.
    #[arg(long, value_name = "K", requires = "inputs")]
    sample: Option<String>,
    /// One input; may be given several times.
    #[arg(long, value_name = "NAME=FILE.npy")]
    input: Vec<String>,
    /// Where the outputs go, keyed by the outputs' names; `-` is standard output.
    #[arg(long, value_name = "FILE.npz")]
    outputs: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// Run the model as it is.
    #[arg(long)]
    no_optimize: bool,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    checking: Checking,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Serialize)]
struct RunReport {
    backend: String,
    optimized: bool,
    /// Plans that were timed, the chosen one first.
    measured: Vec<Measured>,
    kernels: Vec<pipeline::KernelReport>,
    seconds: BTreeMap<String, f64>,
    outputs: BTreeMap<String, OutputReport>,
    /// Bytes of the plan's buffers, if extents are known.
    peak_bytes: Option<u64>,
    /// Bytes of buffers that the backend allocated.
    allocated_bytes: Option<u64>,
    peak_process_bytes: Option<u64>,
    /// What the session chose, and what did not work out.
    notes: Vec<String>,
    #[serde(flatten)]
    check: CheckReport,
}

#[derive(Serialize)]
struct OutputReport {
    dtype: String,
    shape: Vec<usize>,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    let mut clock = pipeline::Clock::default();
    let mut reads: Vec<Named<'_>> = vec![("MODEL", &args.model)];
    reads.extend(named("--inputs", &args.inputs));
    reads.extend(args.tuning.files());
    let files =
        args.input.iter().filter_map(|i| Some(("--input", Path::new(i.split_once('=')?.1))));
    reads.extend(files);
    let writes: Vec<Named<'_>> = named("--outputs", &args.outputs).into_iter().collect();
    args.common.begin(&reads, &writes)?;
    let given = gather(&args)?;
    let offered = given.as_ref().map(RunInputs::offered).unwrap_or_default();
    let model = load_offering(&args.model, &args.common, &args.shapes, offered)?;
    let given = given.map(|inputs| inputs.of(&model, &args.common.screen));
    let device = args.place.device(&args.common, &args.tuning)?;
    let mut options = args.place.options(&args.tuning, &args.common, model.library())?;
    let Some(model) = decided(&model, given.as_ref(), &device, &options)? else {
        return in_parts(&args, &model, given.unwrap_or_default(), &device, &options);
    };
    told_notes(&model, &args.common);
    model.all_understood()?;
    clock.stage("read");
    let given = match given {
        None if !model.program.inputs.is_empty() => None,
        given => {
            let mut given = given.unwrap_or_default();
            model.decided_inputs().iter().for_each(|name| drop(given.remove(name)));
            Some(in_order(&model.program, given)?)
        }
    };
    args.checking.enter(&mut options, given.iter().cloned().collect())?;
    let optimizer =
        Optimizer::from(options).on(device.clone()).ranges(args.shapes.ranges()).for_given();
    let symbols = match &given {
        Some(inputs) => resources::symbols_of(&model.program, inputs),
        None => fitting_symbols(&model.program, &model.library)?,
    };
    let plain = optimizer.plan_as_read(&model)?;
    device.afford(&plain, &model.library, &symbols)?;
    let backend = device.backend()?;
    let inputs = match given {
        Some(inputs) => inputs,
        None => {
            args.common.screen.note("note: no inputs are given; seeded ones are used\n");
            random_inputs::inputs(&model.program, &model.library, args.common.seed)
                .ok_or_else(Error::unsized_inputs)?
        }
    };
    let (mut check, mut self_check_seconds) = (CheckReport::default(), None);
    let (plan, measured) = match args.no_optimize {
        true => (plain, vec![]),
        false => {
            let done = optimized(&optimizer, &model, &args.common)?;
            let report = done.report();
            check = CheckReport::of(report);
            self_check_seconds = report.seconds.get("self-check").copied();
            (done.result().plan.clone(), report.measured.clone())
        }
    };
    let kernels = pipeline::kernels(&plan, &model.library);
    let peak_bytes = plan.peak_bytes();
    let executable = backend.compile(&plan, model.library.clone())?;
    clock.stage("compile");
    if let Some(spent) = self_check_seconds {
        *clock.stages.entry("compile".into()).or_default() -= spent;
        clock.stages.insert("self-check".into(), spent);
    }
    let start = Instant::now();
    let outputs = executable.run(&inputs)?;
    let took = start.elapsed().as_secs_f64();
    clock.stage("run");
    let names = model.program.outputs.iter().map(|(n, _)| n.clone());
    let (named, mut text) = written(&args, names.zip(outputs).collect())?;
    let _ = writeln!(text, "ran in {} on {:?}", crate::explain::seconds(took), args.place.backend);
    let allocated_bytes = executable.allocated().map(|a| a.arena + a.results);
    if let (Some(planned), Some(used)) = (peak_bytes, allocated_bytes) {
        let (planned, used) = (bytes(planned), bytes(used));
        let _ = writeln!(text, "buffers of {planned} planned, {used} allocated");
    }
    let notes = executable.notes();
    for note in &notes {
        let _ = writeln!(text, "note: {note}");
    }
    args.common.report(&RunReport {
        backend: format!("{:?}", args.place.backend).to_lowercase(),
        optimized: !args.no_optimize,
        measured,
        kernels,
        seconds: clock.stages,
        outputs: reported(&named),
        peak_bytes,
        allocated_bytes,
        peak_process_bytes: pipeline::peak_process_bytes(),
        notes,
        check,
    })?;
    args.common.screen.say(&text)?;
    Ok(Findings::Nothing)
}

/// Runs a model whose parts the data decide one after the other.
fn in_parts(
    args: &Args,
    model: &Model,
    mut given: HashMap<String, Tensor>,
    device: &Device,
    options: &Options,
) -> anyhow::Result<Findings> {
    let session = match args.no_optimize {
        true => model.session_on(device)?,
        false => model.session_of_data(device, optimizing(model, device, options)?)?,
    };
    model.decided_inputs().iter().for_each(|name| drop(given.remove(name)));
    let start = Instant::now();
    let outputs = session.run_tensors(given)?;
    let took = start.elapsed().as_secs_f64();
    progress::done();
    let (named, mut text) = written(args, outputs)?;
    let made = met(&session.reports_of_runs());
    let note = format!("the data decide what the model computes: it ran in parts; {made}");
    let seconds = crate::explain::seconds(took);
    let _ = writeln!(text, "ran in {seconds} on {:?}\nnote: {note}", args.place.backend);
    args.common.report(&RunReport {
        backend: format!("{:?}", args.place.backend).to_lowercase(),
        optimized: !args.no_optimize,
        measured: vec![],
        kernels: vec![],
        seconds: BTreeMap::from([("run".to_string(), took)]),
        outputs: reported(&named),
        peak_bytes: None,
        allocated_bytes: None,
        peak_process_bytes: pipeline::peak_process_bytes(),
        notes: vec![note],
        check: CheckReport::default(),
    })?;
    args.common.screen.say(&text)?;
    Ok(Findings::Nothing)
}

/// Writes the outputs where they are to go, and describes them.
fn written(
    args: &Args,
    outputs: Vec<(String, Tensor)>,
) -> anyhow::Result<(Vec<(String, Tensor)>, String)> {
    // An output that a file lists twice is one value.
    let mut seen = HashSet::new();
    let named: Vec<(String, Tensor)> =
        outputs.into_iter().filter(|(n, _)| seen.insert(n.clone())).collect();
    if let Some(path) = &args.outputs {
        write_npz(path, &named).map_err(Error::from)?;
    }
    let mut text = String::new();
    for (name, t) in &named {
        let _ = writeln!(text, "{name}: {}{:?}  {}", t.dtype(), t.shape(), summary(t));
    }
    Ok((named, text))
}

fn reported(outputs: &[(String, Tensor)]) -> BTreeMap<String, OutputReport> {
    let report =
        |t: &Tensor| OutputReport { dtype: t.dtype().to_string(), shape: t.shape().to_vec() };
    outputs.iter().map(|(n, t)| (n.clone(), report(t))).collect()
}

/// Rounds of questions for which a model is read again as a whole, to be optimised as such.
const AS_A_WHOLE: usize = 4;

/// The model as it is for these inputs, where their values decide that; `None` if it is better run in parts.
fn decided(
    model: &Model,
    given: Option<&HashMap<String, Tensor>>,
    device: &Device,
    options: &Options,
) -> anyhow::Result<Option<Model>> {
    let library = model.library().clone();
    let (none, backend) = (HashMap::new(), std::cell::OnceCell::new());
    let compute = |program: &Program, inputs: Vec<Tensor>| -> Result<Vec<Tensor>, Error> {
        let plan = pipeline::plan_as_read(program, &library, options)?;
        device.afford(&plan, &library, &resources::symbols_of(program, &inputs))?;
        if backend.get().is_none() {
            backend.set(device.backend()?).ok();
        }
        let Some(backend) = backend.get() else { return Ok(vec![]) };
        Ok(backend.compile(&plan, library.clone())?.run(&inputs)?)
    };
    Ok(data_dependent::decided(model, given.unwrap_or(&none), &compute, AS_A_WHOLE)?)
}

fn summary(t: &Tensor) -> String {
    let element = |i| match t.dtype() {
        DType::Str => format!("{:?}", t.get_str(i)),
        _ => format!("{:.6}", t.get_f64(i)),
    };
    let shown: Vec<String> = (0..t.len().min(4)).map(element).collect();
    let more = if t.len() > 4 { ", …" } else { "" };
    format!("[{}{more}]", shown.join(", "))
}

/// The optimised model; what happened goes to standard error.
pub(super) fn optimized(
    optimizer: &Optimizer,
    model: &Model,
    common: &Common,
) -> anyhow::Result<OptimizedModel> {
    let done = optimizer.optimize(model)?;
    progress::done();
    let (screen, report) = (&common.screen, done.report());
    screen.note(&super::optimize::measured(report));
    screen.note(&told(report));
    warn(report);
    screen.notes(&report.notes);
    Ok(done)
}

/// The inputs that were given; `None` if none were.
fn gather(args: &Args) -> anyhow::Result<Option<RunInputs>> {
    if let Some(path) = &args.inputs {
        return Ok(Some(RunInputs::read(path, args.sample.as_deref())?));
    }
    let mut given: HashMap<String, Tensor> = HashMap::new();
    for pair in &args.input {
        let (name, file) = pair.split_once('=').with_context(|| {
            format!("`{pair}` names no input\nhelp: write `--input NAME=FILE.npy`")
        })?;
        given.insert(name.into(), read_npy(file).map_err(Error::from)?);
    }
    Ok((!given.is_empty()).then(|| RunInputs::of_arrays(given)))
}
