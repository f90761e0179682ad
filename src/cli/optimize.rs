//! `optimize MODEL.onnx -o OUT.onnx`.

use super::common::{Common, Findings, named};
use super::options::model::{Tuning, load_offering, told_notes};
use super::options::run_inputs::RunInputs;
use super::options::selfcheck::{Checking, samples, told, warn};
use super::options::shapes::ShapeOptions;
use super::terminal::progress;
use crate::cli::completing;
use crate::explain::seconds;
use crate::model::{Model, input_names};
use crate::optimizer::Optimizer;
use crate::pipeline::options::Objective;
use crate::pipeline::report::BodyReport;
use crate::pipeline::{Clock, Optimized, Report};
use clap_complete::ArgValueCompleter;
use mlc_dsl::diagnostics::message_text::bytes;
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
use mlc_dsl::shown;
use mlc_explore::LawProfile;
use mlc_onnx::ExternalData;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The model: an ONNX file or a `.rules` text, `-` for standard input.
    model: PathBuf,
    /// Where the optimised model goes, `-` for standard output; may be the model itself.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What the result is to run on.
    #[arg(long, default_value = "standard", add = ArgValueCompleter::new(completing::targets))]
    target: String,
    /// Operator set of the result; that of the model by default.
    #[arg(long)]
    opset: Option<i64>,
    /// Further inputs on which the result is compared with the model: an array per input, or several samples of
    /// arrays named K/INPUT.
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,
    /// Print what every law did.
    #[arg(long)]
    laws: bool,
    /// Whether weights go to a data file beside the result: if they are more than 1 GiB, always, or never.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    external_data: External,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    checking: Checking,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) common: Common,
}

/// When weights go to a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum External {
    /// If they are more than 1 GiB.
    Auto,
    /// Those of 1 KiB and more.
    Always,
    /// None; a model of more than 2 GiB cannot be written.
    Never,
}

impl From<External> for ExternalData {
    fn from(when: External) -> ExternalData {
        match when {
            External::Auto => ExternalData::default(),
            External::Always => ExternalData::Always,
            External::Never => ExternalData::Never,
        }
    }
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    let mut clock = Clock::default();
    begin(&mut args)?;
    let model = load_offering(&args.model, &args.common, &args.shapes, offered(&args)?)?;
    told_notes(&model, &args.common);
    clock.stage("read");
    let optimized = optimizer(&args, &model)?.optimize(&model)?;
    clock.stage("optimize");
    let told = model.notes();
    let notes = optimized.model().notes().iter();
    args.common.screen.notes(notes.filter(|n| !told.contains(n)));
    let mut report = optimized.report().clone();
    warn(&report);
    progress::done();
    optimized.write_with(&args.output, args.external_data.into())?;
    clock.stage("write");
    for stage in ["read", "write"] {
        report.seconds.insert(stage.into(), clock.stages[stage]);
    }
    args.common.report(&report)?;
    args.common.screen.say(&human(&report))?;
    if args.laws || args.common.screen.verbose() {
        args.common.screen.say(&profile(optimized.result(), &model.library))?;
    }
    Ok(Findings::Nothing)
}

/// How the user asks for the model to be optimised.
fn optimizer(args: &Args, model: &Model) -> anyhow::Result<Optimizer> {
    let mut options = args.tuning.options(&args.target, &args.common)?;
    args.checking.enter(&mut options, given(args, model)?)?;
    let optimizer = Optimizer::from(options).ranges(args.shapes.ranges()).for_file();
    Ok(args.opset.into_iter().fold(optimizer, Optimizer::opset))
}

/// The inputs that a text may take its extents from: those of a file are its own.
fn offered(args: &Args) -> anyhow::Result<HashMap<String, Tensor>> {
    let is_text = args.model.extension().is_some_and(|e| e == "rules");
    Ok(match &args.inputs {
        Some(path) if is_text => RunInputs::read(path, None)?.offered(),
        _ => HashMap::new(),
    })
}

/// The user's inputs as samples of the program, if these are all that it takes.
fn given(args: &Args, model: &Model) -> anyhow::Result<Vec<Vec<Tensor>>> {
    let Some(path) = &args.inputs else { return Ok(vec![]) };
    let names = input_names(&model.program);
    let opaque = model.info.as_ref().map(|i| &i.opaque);
    let mut made = opaque.iter().flat_map(|o| o.defined()).filter(|m| names.contains(m));
    let read = opaque.and_then(|o| o.inputs.first()).map(|i| i.name.as_str());
    let Some(unknown) = made.next().or(read) else { return samples(path, &names) };
    args.common.screen.note(&format!(
        "warning: the result is not compared on {}: nodes that are kept as they are compute or read `{}`\n",
        path.display(),
        shown(unknown)
    ));
    Ok(vec![])
}

/// Looks at the files before any work.
fn begin(args: &mut Args) -> anyhow::Result<()> {
    let output = args.output.as_path();
    anyhow::ensure!(
        !mlc_files::is_output_stream(output) || !std::io::stdout().is_terminal(),
        "a model is no text for a terminal\nhelp: send standard output to a file or a pipe, or name a file"
    );
    let mut data = output.as_os_str().to_os_string();
    data.push(".data");
    let data = PathBuf::from(data);
    // The model may be optimised in place.
    let in_place = mlc_files::same(&args.model, output);
    let model = (!in_place).then_some(("MODEL", args.model.as_path()));
    let reads: Vec<_> = model
        .into_iter()
        .chain(named("--inputs", &args.inputs))
        .chain(args.tuning.files())
        .collect();
    args.common.begin(&reads, &[("--output", output)])?;
    if let Some(json) = &args.common.json {
        mlc_files::distinct(&[], &[("--json", json), ("the data file of --output", &data)])?;
    }
    Ok(())
}

/// The one screen.
pub fn human(r: &Report) -> String {
    let mut out = String::new();
    let ratio = |a: f64, b: f64| if a > 0.0 { b / a } else { 1.0 };
    let _ = writeln!(
        out,
        "operators   {} -> {} ({:.2})",
        r.nodes_before,
        r.nodes_after,
        ratio(r.nodes_before as f64, r.nodes_after as f64)
    );
    let _ = writeln!(
        out,
        "cost        {} -> {} ({:.2}), estimated for {}",
        seconds(r.cost_before),
        seconds(r.cost_after),
        ratio(r.cost_before, r.cost_after),
        r.target
    );
    for (i, s) in r.sizes.iter().enumerate() {
        let label = if i == 0 { "sizes" } else { "" };
        let (before, after) = (seconds(s.before), seconds(s.after));
        let part = ratio(s.before, s.after);
        let _ = writeln!(out, "{label:<11} {before} -> {after} ({part:.2}) at {}", s.size);
    }
    if r.cost_model_given {
        let _ = writeln!(out, "cost model  {}", r.cost_model);
    }
    out.push_str(&measured(r));
    if r.objective != Objective::Latency.name() {
        let (a, b) = (r.objective_before, r.objective_after);
        let _ = writeln!(
            out,
            "objective   {}: {} -> {} ({:.2})",
            r.objective,
            bytes(a as u64),
            bytes(b as u64),
            ratio(a, b)
        );
    }
    let _ = writeln!(
        out,
        "weights     {} -> {} ({:.2})",
        bytes(r.weights_bytes_before),
        bytes(r.weights_bytes),
        ratio(r.weights_bytes_before as f64, r.weights_bytes as f64)
    );
    let found = if r.objective != Objective::Latency.name() {
        format!("the best for {} of several programs", r.objective)
    } else if r.gap <= 1e-9 {
        "proven the cheapest of the e-graph".to_string()
    } else {
        format!("at most {:.2} % above the cheapest of the e-graph", 100.0 * r.gap)
    };
    let _ = writeln!(out, "extraction  {found}");
    let _ = writeln!(
        out,
        "e-graph     {} nodes, {} classes, {} rounds, {}",
        r.egraph.nodes,
        r.egraph.classes,
        r.egraph.rounds.len(),
        r.stop_reason
    );
    for (i, body) in r.bodies.iter().enumerate() {
        let _ = writeln!(out, "{:<11} {}", if i == 0 { "bodies" } else { "" }, of_body(body));
    }
    match &r.self_check {
        Some(c) => {
            for (i, line) in c.lines().into_iter().enumerate() {
                let _ = writeln!(out, "{:<11} {line}", if i == 0 { "self-check" } else { "" });
            }
        }
        None => drop(writeln!(out, "self-check  skipped")),
    }
    out.push_str(&told(r));
    if let (Some(planned), Some(alive)) = (r.peak_bytes, r.alive_bytes) {
        let before = r.peak_bytes_before.map(|b| format!(" (before {})", bytes(b)));
        let _ = writeln!(
            out,
            "peak memory {} planned, {} alive at once at least{}",
            bytes(planned),
            bytes(alive),
            before.unwrap_or_default()
        );
    }
    if let Some(p) = r.peak_process_bytes {
        let _ = writeln!(out, "memory      {:.0} MiB at most", p as f64 / (1 << 20) as f64);
    }
    let total: f64 = r.seconds.values().sum();
    let stages: Vec<String> =
        r.seconds.iter().filter(|(_, s)| **s >= 5e-4).map(|(n, s)| format!("{n} {s:.2}")).collect();
    let _ = writeln!(out, "time        {total:.2} s: {}", stages.join(", "));
    for n in &r.notes {
        let _ = writeln!(out, "note        {n}");
    }
    let mut laws: Vec<(&String, &usize)> = r.proof.iter().collect();
    laws.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let _ =
        writeln!(out, "laws        {} fired, {} in the result's proof", r.laws.len(), laws.len());
    for (name, n) in laws.iter().take(12) {
        let _ = writeln!(out, "  {n:>6}  {name}");
    }
    if laws.len() > 12 {
        let _ = writeln!(out, "          and {} more; see `explain`", laws.len() - 12);
    }
    out
}

/// A body on one line.
fn of_body(body: &BodyReport) -> String {
    let r = &body.report;
    let as_is = if body.is_kept { ", best as it is" } else { "" };
    format!(
        "{}{as_is}: {} -> {} operators, {} -> {}; {} nodes, {} rounds, {}; {:.2} s",
        body.place,
        r.nodes_before,
        r.nodes_after,
        seconds(r.cost_before),
        seconds(r.cost_after),
        r.egraph.nodes,
        r.egraph.rounds.len(),
        r.stop_reason,
        r.seconds.values().sum::<f64>()
    )
}

/// The plans that were timed, a line each.
pub fn measured(r: &Report) -> String {
    let mut out = String::new();
    for (i, m) in r.measured.iter().enumerate() {
        let (label, kept) = if i == 0 { ("measured", ", kept") } else { ("", "") };
        let (least, estimate) = (seconds(m.least), seconds(m.estimate));
        let _ = writeln!(out, "{label:<11} {least}, estimated {estimate}: {}{kept}", m.point);
    }
    out
}

/// What every law did in a model and the bodies of its nodes, slowest first.
pub fn profile(o: &Optimized, library: &Library) -> String {
    let mut all: BTreeMap<u32, LawProfile> = BTreeMap::new();
    let bodies = o.report.bodies.iter().flat_map(|b| &b.profiles);
    for (law, profile) in o.explored.profiles.iter().chain(bodies) {
        all.entry(*law).or_default().add(profile);
    }
    let mut rows: Vec<(u32, LawProfile)> = all.into_iter().collect();
    rows.sort_by(|a, b| b.1.time.cmp(&a.1.time).then(a.0.cmp(&b.0)));
    let mut out = String::from("\n     time searches  matches  applied  law (refusals)\n");
    for (i, p) in rows {
        let refusals: Vec<String> =
            p.refusals.iter().map(|(c, n)| format!("{n} by `{c}`")).collect();
        let typed = if p.ill_typed.0 > 0 {
            format!(" {} ill-typed: {}", p.ill_typed.0, p.ill_typed.1)
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "{:>7.1}ms {:>8} {:>8} {:>8}  {} {}{typed}",
            p.time.as_secs_f64() * 1e3,
            p.searches,
            p.matches,
            p.applications,
            library.laws[i as usize].name,
            refusals.join(", ")
        );
    }
    out
}
