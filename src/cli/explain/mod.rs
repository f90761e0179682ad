//! `explain MODEL | LAW`.

mod questions;
mod two_models;

use super::common::{Common, Findings, named};
use super::options::model::{Tuning, library, load_for};
use super::options::shapes::ShapeOptions;
use super::terminal::progress;
use crate::cli::completing;
use crate::explain::{Asked, Explanation, Place};
use crate::optimizer::{OptimizedModel, Optimizer};
use crate::pipeline::{self, selfcheck};
use crate::{explain, names};
use anyhow::bail;
use clap_complete::ArgValueCompleter;
use mlc_dsl::shown;
use mlc_files::Named;
use questions::Questions;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// A model, or the name of a law or operator.
    #[arg(add = ArgValueCompleter::new(completing::models_and_declarations))]
    what: String,
    /// Another model: whether both are equal by the laws, and if not, where they differ; exit with 1 unless they are proved equal.
    #[arg(value_name = "OTHER", conflicts_with_all = ["why_not", "at", "gains", "replay"])]
    other: Option<PathBuf>,
    /// What the result is to run on: `standard` for ONNX models, else `cpu`.
    #[arg(long, add = ArgValueCompleter::new(completing::targets))]
    target: Option<String>,
    /// What each law gains: the model is optimised once more without it, one law after another.
    #[arg(long, conflicts_with = "question")]
    gains: bool,
    /// Why a law did not fire, or an operator is not in the result.
    #[arg(long, value_name = "NAME", conflicts_with = "question", add = ArgValueCompleter::new(completing::declarations))]
    why_not: Option<String>,
    /// The node of the model that is asked about; all by default.
    #[arg(long, value_name = "NODE", conflicts_with = "question", add = ArgValueCompleter::new(completing::nodes))]
    at: Option<String>,
    /// Leave nothing out: unchanged kernels, every name, equations of the proof.
    #[arg(long)]
    all: bool,
    /// Run both sides of every equation of the proof on seeded inputs.
    #[arg(long, conflicts_with = "question")]
    replay: bool,
    /// Write the explanation as one page for a browser: both graphs, with laws, prices and proofs; `-` is standard output. The
    /// result is checked as `optimize` checks it; with `--measure`, its kernels have measured times. Of two models: both, with what
    /// is equal linked and what differs marked.
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["why_not", "at", "question"])]
    html: Option<PathBuf>,
    #[command(flatten)]
    questions: Questions,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    if args.other.is_some() {
        return two_models::run(args);
    }
    let path = PathBuf::from(&args.what);
    if !path.exists() && !mlc_files::is_input_stream(&path) {
        args.common.begin(&[], &[])?;
        let library = library(&args.common)?;
        let Some(found) = explain::declaration(&library, &args.what) else {
            let known = names::declared(&library);
            bail!(
                "`{}` is neither a file nor a law nor an operator{}",
                shown(&args.what),
                names::hint(
                    &args.what,
                    &known,
                    "`mlc-rewrite list` names them; a model is given by its path"
                )
            );
        };
        args.common.report(&found)?;
        args.common.screen.print(&found.human())?;
        return Ok(Findings::Nothing);
    }
    let reads: Vec<_> =
        [("MODEL", path.as_path())].into_iter().chain(args.tuning.files()).collect();
    let writes: Vec<Named<'_>> = named("--html", &args.html).into_iter().collect();
    args.common.begin(&reads, &writes)?;
    let mut model = load_for(&path, &args.common, &args.shapes)?;
    explain::name_all(&mut model.program, &model.library);
    let place = args.at.as_deref();
    let place = place.map(|at| explain::place(&model.program, &model, at)).transpose()?;
    if let Some(Place { node: None, told }) = &place {
        args.common.report(&Told { notes: told })?;
        args.common.screen.print_wrapped(&lines(told))?;
        return Ok(Findings::Nothing);
    }
    let (at, told) = place.map_or((None, vec![]), |p| (p.node, p.told));
    let default = if model.info.is_some() { "standard" } else { "cpu" };
    let target = args.target.as_deref().unwrap_or(default);
    let mut options = args.tuning.options(target, &args.common)?;
    // An operator that is asked for is looked for in the whole program.
    options.share_blocks &= args.why_not.is_none();
    // The page says how far the result is from the model as read.
    options.self_check = args.html.is_some();
    let optimizer = Optimizer::from(options).ranges(args.shapes.ranges());
    let optimize = || Ok(optimizer.optimize(&model)?);
    let how = (&args.common, args.all, args.tuning.measure.is_some());
    if let Some(done) = args.questions.answer(&model, &optimize, how)? {
        return Ok(done);
    }
    let optimized = optimize()?;
    if let Some(name) = &args.why_not {
        let found = optimized.why_not_at(name, at.as_deref())?;
        progress::done();
        args.common.report(&found)?;
        args.common.screen.print_wrapped(&(lines(&told) + &found.human()))?;
        return Ok(Findings::Nothing);
    }
    let mut explanation = match args.gains {
        true => optimized.explain_gains()?,
        false => optimized.explain()?,
    };
    if let Some(at) = &at {
        explanation.keep_only(at);
    }
    if let Some(to) = &args.html {
        draw(&args, &optimized, &explanation, to)?;
        if mlc_files::is_output_stream(to) {
            progress::done();
            return Ok(Findings::Nothing);
        }
    }
    args.common.report(&explanation)?;
    progress::done();
    args.common
        .screen
        .print_wrapped(&(lines(&told) + &explanation.human(args.all || at.is_some())))?;
    if args.replay {
        return replay(optimized.result(), &model.library, &args.common);
    }
    Ok(Findings::Nothing)
}

/// Writes the page.
fn draw(
    args: &Args,
    optimized: &OptimizedModel,
    explanation: &Explanation,
    to: &Path,
) -> anyhow::Result<()> {
    let title = title(Path::new(&args.what));
    let measured = args.tuning.measure.is_some().then(|| optimized.kernel_times()).transpose()?;
    let measured = measured.flatten();
    let gains = args.gains.then_some(explanation);
    let asked = Asked { title: &title, raw: None, measured: measured.as_deref(), gains };
    Ok(mlc_files::write(to, optimized.html_of(&asked)?.as_bytes())?)
}

/// What a file is called on a page. Many are called alike: the folder tells them apart.
fn title(path: &Path) -> String {
    let parts: Vec<_> = path.iter().rev().take(2).collect();
    let title: Vec<_> = parts.iter().rev().map(|p| p.to_string_lossy()).collect();
    title.join("/")
}

/// What is said of a node that the program as read does not have.
#[derive(Serialize)]
struct Told<'a> {
    notes: &'a [String],
}

fn lines(told: &[String]) -> String {
    told.iter().map(|t| format!("{t}\n")).collect()
}

/// Holds every step of the proof against numbers; prints the steps that do not hold.
fn replay(
    o: &pipeline::Optimized,
    library: &std::sync::Arc<mlc_dsl::library::Library>,
    common: &Common,
) -> anyhow::Result<Findings> {
    let (steps, wrong) = selfcheck::replay(o, library, common.seed, common.threads())?;
    let mut text = String::new();
    for c in &wrong {
        let (left, right) = (o.explored.term(c.step.left), o.explored.term(c.step.right));
        let law = names::reason(library, c.step.reason);
        let round = c.step.round;
        let _ = writeln!(text, "round {round}, {law}: {}\n      {left}\n   =  {right}", c.verdict);
    }
    let _ = writeln!(text, "{steps} steps replayed, {} do not hold", wrong.len());
    common.screen.print(&text)?;
    Ok(if wrong.is_empty() { Findings::Nothing } else { Findings::Something })
}
