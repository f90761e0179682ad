//! `explain MODEL | LAW`.

use super::model::{Tuning, load};
use super::{Common, Found};
use crate::prices::TargetPrices;
use crate::{explain, onnx, pipeline, stdlib};
use anyhow::bail;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// A model, or the name of a law or operator.
    what: String,
    /// What the result is to run on: `standard` for ONNX models, else `cpu`.
    #[arg(long)]
    target: Option<String>,
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
    Ok(Found::Nothing)
}
