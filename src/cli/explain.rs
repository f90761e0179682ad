//! `explain MODEL | LAW`.

use super::model::{Tuning, load};
use super::{Common, Found};
use crate::{explain, onnx, pipeline, selfcheck, stdlib};
use anyhow::bail;
use mlc_extract::target::TargetPrices;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// A model, or the name of a law or operator.
    what: String,
    /// What the result is to run on: `standard` for ONNX models, else `cpu`.
    #[arg(long)]
    target: Option<String>,
    /// Run both sides of every equation of the proof on seeded inputs.
    #[arg(long)]
    replay: bool,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    common: Common,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<Found> {
    let path = PathBuf::from(&args.what);
    if !path.exists() {
        let library = stdlib::load_sound(&args.common.rules)?;
        match explain::declaration(&library, &args.what) {
            Some(text) => print!("{text}"),
            None => bail!("`{}` is neither a file nor a law nor an operator", args.what),
        }
        return Ok(Found::Nothing);
    }
    let model = load(&path, &args.common.rules)?;
    let default = if model.info.is_some() { "standard" } else { "cpu" };
    let target = args.target.as_deref().unwrap_or(default);
    let mut options = args.tuning.options(target, &args.common)?;
    // What runs here is planned as it is; for a runtime of its own the result is written.
    let is_written = !matches!(target, "cpu" | "cuda");
    if let Some(info) = model.info.as_ref().filter(|_| is_written) {
        options.operators = Some(onnx::printable(&model.library, info.opset(), target));
    }
    let optimized = pipeline::optimize(model.program, &model.library, &options)?;
    let item = pipeline::target(&model.library, target)?;
    let prices = TargetPrices::new(&model.library, &item, options.operators.clone())
        .with_model(options.costing.model(&item, &optimized.source));
    let explanation = explain::explain(&optimized, &model.library, &prices);
    args.common.report(&explanation)?;
    print!("{}", explanation.human());
    if args.replay {
        return replay(&optimized, &model.library, args.common.seed, args.common.threads());
    }
    Ok(Found::Nothing)
}

/// Holds every step of the proof against numbers; prints the steps that do not hold.
fn replay(
    o: &pipeline::Optimized,
    library: &std::sync::Arc<mlc_dsl::library::Library>,
    seed: u64,
    threads: usize,
) -> anyhow::Result<Found> {
    let (steps, wrong) = selfcheck::replay(o, library, seed, threads)?;
    for c in &wrong {
        let (left, right) = (o.explored.term(c.step.left), o.explored.term(c.step.right));
        let law = explain::reason(library, c.step.reason);
        println!("round {}, {law}: {}\n      {left}\n   =  {right}", c.step.round, c.verdict);
    }
    println!("{steps} steps replayed, {} do not hold", wrong.len());
    Ok(if wrong.is_empty() { Found::Nothing } else { Found::Something })
}
