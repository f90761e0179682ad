//! `bench MODEL`: median time of runs, optimised against the model as it is, interleaved.

use super::checking::{self, CheckReport, Checking};
use super::model::{Tuning, load};
use super::run::{Place, Prepared, prepare};
use super::{Common, Found};
use crate::explain::seconds;
use crate::{measure, samples};
use anyhow::{Context, bail};
use serde::Serialize;
use std::collections::BTreeMap;
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
    /// An archive with one array per input, or several samples of arrays named K/INPUT: the first is timed, all
    /// are checked.
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,
    /// A peer to compare with; none is built in.
    #[arg(long, value_name = "PEER")]
    against: Option<String>,
    #[command(flatten)]
    checking: Checking,
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
    /// Seconds per stage besides the runs.
    seconds: BTreeMap<String, f64>,
    #[serde(flatten)]
    check: CheckReport,
}

/// Time for all runs, once there are enough.
const BUDGET: Duration = Duration::from_secs(5);

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<Found> {
    if let Some(peer) = &args.against {
        bail!("timing against `{peer}` is not built in; see benches/ for a comparison with peers");
    }
    let model = load(&args.model, &args.common.rules)?;
    let given = args.inputs.as_ref().map(|path| checking::samples(path, &model.program));
    let given = given.transpose()?.unwrap_or_default();
    let inputs = match given.first() {
        Some(inputs) => inputs.clone(),
        None => samples::inputs(&model.program, &model.library, args.common.seed)
            .context("the model's inputs have no known size")?,
    };
    let mut options = args.tuning.options("cpu", &args.common)?;
    args.checking.enter(&mut options, given)?;
    let make = |options| {
        let (program, threads) = (model.program.clone(), args.common.threads());
        prepare(program, &model.library, args.backend, threads, options)
    };
    let Prepared { executable: fast, check, self_check_seconds, .. } = make(Some(&options))?;
    let plain = make(None)?.executable;
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
        seconds: self_check_seconds.map(|s| ("self-check".to_string(), s)).into_iter().collect(),
        check,
    })?;
    Ok(Found::Nothing)
}
