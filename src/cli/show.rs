//! `show MODEL`: a model as text.

use super::model::load_for;
use super::shape_option::ShapeOptions;
use super::{Common, Findings};
use crate::show;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The model: an ONNX file or a `.rules` text, `-` for standard input.
    model: PathBuf,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    args.common.begin(&[("MODEL", &args.model)], &[])?;
    let model = load_for(&args.model, &args.common, &args.shapes)?;
    let text = show::program(&model.program, &model.library, "model");
    args.common.report(&serde_json::json!({ "program": text }))?;
    args.common.screen.print(&text)?;
    Ok(Findings::Nothing)
}
