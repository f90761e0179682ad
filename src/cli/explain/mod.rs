//! `explain MODEL | LAW`.

mod at;

use super::options::model::{Tuning, library, load_for};
use super::options::shapes::ShapeOptions;
use super::{Common, Findings};
use crate::pipeline::{self, selfcheck};
use crate::{explain, names, onnx_target};
use anyhow::bail;
use at::Place;
use mlc_dsl::shown;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// A model, or the name of a law or operator.
    what: String,
    /// What the result is to run on: `standard` for ONNX models, else `cpu`.
    #[arg(long)]
    target: Option<String>,
    /// What each law gains: the model is optimised once more without it, one law after another.
    #[arg(long)]
    gains: bool,
    /// Why a law did not fire, or an operator is not in the result.
    #[arg(long, value_name = "NAME")]
    why_not: Option<String>,
    /// The node of the model that is asked about; all by default.
    #[arg(long, value_name = "NODE")]
    at: Option<String>,
    /// Leave nothing out: unchanged kernels, every name, equations of the proof.
    #[arg(long)]
    all: bool,
    /// Run both sides of every equation of the proof on seeded inputs.
    #[arg(long)]
    replay: bool,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
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
    args.common.begin(&reads, &[])?;
    let mut model = load_for(&path, &args.common, &args.shapes)?;
    explain::name_all(&mut model.program, &model.library);
    let place = args.at.as_deref().map(|at| at::find(&model, at)).transpose()?;
    if let Some(Place { node: None, told }) = &place {
        args.common.report(&Told { notes: told })?;
        args.common.screen.print(&lines(told))?;
        return Ok(Findings::Nothing);
    }
    let (at, told) = place.map_or((None, vec![]), |p| (p.node, p.told));
    let default = if model.info.is_some() { "standard" } else { "cpu" };
    let target = args.target.as_deref().unwrap_or(default);
    let mut options = args.tuning.options(target, &args.common)?;
    options.without.extend(model.own_laws());
    args.shapes.enter(&mut options, &model.program)?;
    // What runs here is planned as it is; for a runtime of its own the result is written.
    if let Some(info) =
        model.info.as_ref().filter(|_| onnx_target::is_written(&model.library, target))
    {
        options.operators = Some(mlc_onnx::printable(&model.library, info.opset(), target));
    }
    // An operator that is asked for is looked for in the whole program.
    options.share_blocks &= args.why_not.is_none();
    let optimized = pipeline::optimize(model.program, &model.library, &options)?;
    if let Some(name) = &args.why_not {
        let prices = pipeline::prices(&model.library, &options, &optimized.source)?;
        let opset = model.info.as_ref().map_or(mlc_onnx::NEWEST_OPSET, |i| i.opset());
        let calls = mlc_onnx::named(&model.library, opset, target, name);
        let asked = (name.as_str(), calls.as_slice());
        let found =
            explain::why_not(&optimized, &model.library, &prices, &options, asked, at.as_deref());
        let Some(found) = found else {
            let mut known = names::declared(&model.library);
            known.extend(model.library.onnx.iter().map(|o| &*o.name));
            let help = names::hint(name, &known, "`mlc-rewrite list` names them");
            bail!("there is no law and no operator `{}`{help}", shown(name))
        };
        super::terminal::progress::done();
        args.common.report(&found)?;
        args.common.screen.print(&(lines(&told) + &found.human()))?;
        return Ok(Findings::Nothing);
    }
    let mut explanation = explain::explain(&optimized, &model.library, &options)?;
    if args.gains {
        explain::leave_out(&mut explanation, &optimized.source, &model.library, &options)?;
    }
    if let Some(at) = &at {
        explanation.keep_only(at);
    }
    args.common.report(&explanation)?;
    super::terminal::progress::done();
    args.common.screen.print(&(lines(&told) + &explanation.human(args.all || at.is_some())))?;
    if args.replay {
        return replay(&optimized, &model.library, &args.common);
    }
    Ok(Findings::Nothing)
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
        let law = explain::reason(library, c.step.reason);
        let round = c.step.round;
        let _ = writeln!(text, "round {round}, {law}: {}\n      {left}\n   =  {right}", c.verdict);
    }
    let _ = writeln!(text, "{steps} steps replayed, {} do not hold", wrong.len());
    common.screen.print(&text)?;
    Ok(if wrong.is_empty() { Findings::Nothing } else { Findings::Something })
}
