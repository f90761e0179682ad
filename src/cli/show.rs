//! `show MODEL`: a model as text.

use super::model::load;
use super::{Common, Found};
use crate::show;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<Found> {
    let model = load(&args.model, &args.common.rules)?;
    print!("{}", show::program(&model.program, &model.library, "model"));
    Ok(Found::Nothing)
}
