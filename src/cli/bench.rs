//! `bench MODEL`: median time of runs, optimised against the model as it is, interleaved.

use super::model::{Tuning, load};
use super::run::{Place, prepare};
use super::{Common, Found};
use crate::explain::seconds;
use crate::samples;
use anyhow::{Context, bail};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

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

/// Runs of each kind at least.
const RUNS: usize = 5;
/// No further runs after this time.
const LIMIT: Duration = Duration::from_secs(20);

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
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while a.len() < RUNS || start.elapsed() < LIMIT / 4 {
        for (e, times) in [(&fast, &mut a), (&plain, &mut b)] {
            let began = Instant::now();
            e.run(&inputs)?;
            times.push(began.elapsed().as_secs_f64());
        }
        if start.elapsed() > LIMIT && !a.is_empty() {
            break;
        }
    }
    let (fast, plain) = (median(&mut a), median(&mut b));
    println!(
        "optimised    {}\nunoptimised  {}\nratio        {:.3}",
        seconds(fast),
        seconds(plain),
        fast / plain
    );
    args.common.report(&BenchReport {
        runs: a.len(),
        median_seconds: fast,
        median_seconds_unoptimized: plain,
        ratio: fast / plain,
    })?;
    Ok(Found::Nothing)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
