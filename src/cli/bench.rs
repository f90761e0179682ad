//! `bench MODEL`: median time of runs, optimised against the model as it is, interleaved.

use super::model::{Tuning, load};
use super::run::{Place, prepare};
use super::{Common, Found};
use crate::explain::seconds;
use crate::{measure, samples};
use anyhow::{Context, bail};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// Where to run.
    #[arg(long, value_enum, default_value = "cpu")]
    backend: Place,
    /// A peer to compare with; none is built in.
    #[arg(long, value_name = "PEER")]
    against: Option<String>,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct BenchReport {
    runs: usize,
    median_seconds: f64,
    median_seconds_unoptimized: f64,
    ratio: f64,
}

/// Time for all runs, once there are enough.
const BUDGET: Duration = Duration::from_secs(5);

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<Found> {
    if let Some(peer) = &args.against {
        bail!("timing against `{peer}` is not built in; see benches/ for a comparison with peers");
    }
    let model = load(&args.model, &args.common.rules)?;
    let inputs = samples::inputs(&model.program, &model.library, args.common.seed)
        .context("the model's inputs have no known size")?;
    let make = |optimize| {
        let program = model.program.clone();
        prepare(program, &model.library, args.backend, optimize, &args.tuning, &args.common)
    };
    let (fast, plain) = (make(true)?.executable, make(false)?.executable);
    let times = measure::runs(&[&*fast, &*plain], &inputs, BUDGET)?;
    let (fast, plain) = (measure::median(&times[0]), measure::median(&times[1]));
    println!(
        "optimised    {}\nunoptimised  {}\nratio        {:.3}",
        seconds(fast),
        seconds(plain),
        fast / plain
    );
    args.common.report(&BenchReport {
        runs: times[0].len(),
        median_seconds: fast,
        median_seconds_unoptimized: plain,
        ratio: fast / plain,
    })?;
    Ok(Found::Nothing)
}
