//! `calibrate`: times the kernels of this machine or of a device, and fits their costs.

use super::common::{Common, Findings};
use super::options::place::Place;
use crate::calibrate::machine::Hardware;
use crate::calibrate::store::{Store, TimingRecord, usual_path};
use crate::calibrate::{Calibration, Done, fits, layers};
use crate::pipeline;
use anyhow::ensure;
use mlc_extract::Fits;
use mlc_extract::cost::fit::{Fit, KernelClass};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Where times are kept; a file in the user's folder for data by default.
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// Seconds after which no further kernel is timed; a later call goes on.
    #[arg(long, value_name = "SECONDS", default_value_t = 240.0)]
    time: f64,
    /// Time nothing; print what the store has.
    #[arg(long)]
    show: bool,
    /// Write the fitted costs as a profile, for `--profile` of other verbs.
    #[arg(long, value_name = "OUT.toml")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Serialize)]
struct CalibrationReport {
    hardware: String,
    store: String,
    done: Option<Done>,
    kernels: Vec<KernelReport>,
    times: Vec<TimingRecord>,
}

#[derive(Serialize)]
struct KernelReport {
    kernel: String,
    /// What its class of shapes is; none for all of them.
    class: Option<String>,
    samples: usize,
    median_relative_error: f64,
    interval: [f64; 2],
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    ensure!(args.time.is_finite() && args.time >= 0.0, "--time takes a number of seconds");
    let profile: Vec<_> = super::common::named("--profile", &args.profile).into_iter().collect();
    // The store is written, but never as a whole.
    args.common.begin(&[], &profile)?;
    if let (Some(store), Some(profile)) = (&args.store, &args.profile) {
        mlc_files::distinct(&[("--store", store)], &[("--profile", profile)])?;
    }
    let library = Arc::new(layers::library(&args.common.rules)?);
    let device = args.place.on(args.common.threads())?;
    let target = pipeline::target(&library, &device.target(&library)?)?;
    let Hardware { key: hardware, caches } = Hardware::of(&device)?;
    let path = args.store.clone().map_or_else(usual_path, Ok)?;
    let store = if args.show { Store::open(&path)? } else { Store::create(&path)? };
    let done = match args.show {
        true => None,
        false => {
            let calibration = Calibration {
                library: &library,
                target: &target,
                device: &device,
                budget: Duration::from_secs_f64(args.time.min(1e9)),
                most: usize::MAX,
                seed: args.common.seed,
            };
            let bar = args.common.screen.progress("kernels", 1);
            let done = calibration.run(&store, &|at, of| {
                bar.set_length(of as u64);
                bar.set_position(at as u64);
            })?;
            bar.finish_and_clear();
            Some(done)
        }
    };
    let times = store.entries(&hardware)?;
    let found = fits(&times, caches);
    if let Some(out) = &args.profile {
        let text = crate::profile::written(&found, &target, &hardware)?;
        mlc_files::write(out, text.as_bytes())?;
    }
    let text = format!("{}times in {}\n", human(&found, done, &hardware), path.display());
    args.common.report(&CalibrationReport {
        hardware,
        store: path.display().to_string(),
        done,
        kernels: rows(&found),
        times,
    })?;
    args.common.screen.print(&text)?;
    Ok(Findings::Nothing)
}

fn rows(fits: &Fits) -> Vec<KernelReport> {
    let row = |kernel: &str, class: Option<&KernelClass>, f: &Fit| KernelReport {
        kernel: kernel.into(),
        class: class.map(KernelClass::to_string),
        samples: f.samples,
        median_relative_error: f.error,
        interval: [f.low, f.high],
    };
    let rows = |(kernel, f): (&String, &Fit)| -> Vec<KernelReport> {
        let classes = f.classes.iter().map(|(c, f)| row(kernel, Some(c), f));
        std::iter::once(row(kernel, None, f)).chain(classes).collect()
    };
    fits.kernels.iter().flat_map(rows).collect()
}

/// The table of fits.
fn human(fits: &Fits, done: Option<Done>, hardware: &str) -> String {
    let mut out = format!("{hardware}\n");
    if let Some(d) = done {
        let _ = writeln!(
            out,
            "{} kernels timed, {} known before, {} that the backend does not run, {} left",
            d.timed, d.known, d.refused, d.left
        );
    }
    let _ = writeln!(out, "{:<24} {:>8} {:>8}  80 % within", "kernel", "samples", "error");
    for r in rows(fits) {
        let [low, high] = r.interval;
        let _ = writeln!(
            out,
            "{:<24} {:>8} {:>7.1}%  {low:.2} to {high:.2} of the prediction",
            r.class.map_or(r.kernel, |c| format!("  {c}")),
            r.samples,
            100.0 * r.median_relative_error
        );
    }
    out
}
