//! `explain MODEL | LAW`.

use super::model::{Tuning, load};
use super::{Common, Found};
use crate::prices::TargetPrices;
use crate::{explain, onnx, pipeline, samples, selfcheck, stdlib};
use anyhow::{Context, bail};
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
    if let Some(info) = model.info.as_ref().filter(|_| target == "standard") {
        options.operators = Some(onnx::printable(&model.library, info.opset(), target));
    }
    let optimized = pipeline::optimize(model.program, &model.library, &options)?;
    let item = pipeline::target(&model.library, target)?;
    let prices = TargetPrices::new(&model.library, &item, options.operators.clone());
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
    let proof = o.explored.prove(&o.extracted).context("the log does not prove the result")?;
    let program = o.explored.replay(&proof)?;
    let inputs = samples::inputs(&program, library, seed)
        .context("the model's inputs have no known size")?;
    let values = selfcheck::run(&program, library, &inputs, threads)?;
    let mut wrong = 0;
    for (i, (step, sides)) in proof.steps.iter().zip(values.chunks_exact(2)).enumerate() {
        let verdict = match selfcheck::difference(&sides[0], &sides[1]) {
            Ok(e) if e <= 1e-3 => continue,
            Ok(e) => format!("relative error {e:.1e}"),
            Err(e) => e.to_string(),
        };
        wrong += 1;
        let (left, right) = (o.explored.term(step.left), o.explored.term(step.right));
        let law = explain::reason(library, step.reason);
        println!("step {i}, round {}, {law}: {verdict}\n      {left}\n   =  {right}", step.round);
    }
    println!("{} steps replayed, {wrong} do not hold", proof.steps.len());
    Ok(if wrong > 0 { Found::Something } else { Found::Nothing })
}
