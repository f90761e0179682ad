//! `fuzz`: random programs, optimised and run in every way, against the reference interpreter.

use super::common::{Common, Findings};
use super::options::place::Place;
use crate::aim;
use crate::cli::completing;
use crate::device::BackendKind;
use crate::pipeline::{self, Fp, Optimized};
use crate::show;
use anyhow::ensure;
use clap_complete::ArgValueCompleter;
use mlc_backends::BackendError;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_explore::Limits;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::campaign::{Blame, REFUSED};
use mlc_fuzz::{Aim, Budget, Campaign, Failure, LawTally, Size, Subject, Summary};
use std::fmt::Write;
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds to go on for; 60 if neither this nor `--cases` is given.
    #[arg(long, value_name = "SECONDS")]
    time: Option<f64>,
    /// Programs to try.
    #[arg(long, value_name = "N")]
    cases: Option<u64>,
    /// Different failures after which to stop.
    #[arg(long, value_name = "N", default_value_t = 20)]
    failures: usize,
    /// Which laws may fire, by how far they may stray.
    #[arg(long, value_enum, default_value = "reorder")]
    fp: Fp,
    /// A law that must not fire; may be given several times.
    #[arg(long, value_name = "LAW", add = ArgValueCompleter::new(completing::laws))]
    without: Vec<String>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Limits of exploration: small programs need no more, and a campaign needs many of them.
const LIMITS: Limits = Limits {
    nodes: 5_000,
    rounds: 6,
    effort: 100_000,
    most: 1 << 24,
    time: Duration::from_secs(10),
    threads: 1,
};

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    args.common.begin(&[], &[])?;
    let library = super::options::model::library(&args.common)?;
    pipeline::all_laws(&library, &args.without)?;
    let time = match (args.time, args.cases) {
        (Some(t), _) => {
            ensure!(t.is_finite() && t >= 0.0, "--time takes a number of seconds");
            Some(Duration::from_secs_f64(t.min(1e9)))
        }
        (None, Some(_)) => None,
        (None, None) => Some(Duration::from_secs(60)),
    };
    let device = args.place.on(1)?;
    let target = device.target(&library)?;
    let (backend, on) = (device.backend()?, pipeline::target(&library, &target)?);
    let planned_for = match args.place.backend {
        BackendKind::Cuda => target,
        BackendKind::Cpu | BackendKind::Reference => pipeline::Options::default().target,
    };
    let options = pipeline::Options {
        target: planned_for,
        fp: args.fp,
        limits: LIMITS,
        without: args.without.clone(),
        self_check: false,
        ..pipeline::Options::default()
    };
    let pipeline = |p: &Program, without: &[String]| -> Result<Optimized, String> {
        let mut options = options.clone();
        options.without.extend_from_slice(without);
        pipeline::optimize(p.clone(), &library, &options).map_err(|e| format!("{e:#}"))
    };
    let optimise = |p: &Program| pipeline(p, &[]).map(|o| o.program);
    let without = |p: &Program, off: &[String]| pipeline(p, off).map(|o| o.program);
    let fired = |p: &Program| pipeline(p, &[]).map(|o| o.report.laws.into_keys().collect());
    let run = |p: &Program, inputs: &[Tensor]| -> Result<Vec<Tensor>, String> {
        let plan = select_kernels(p.clone(), &library, &on);
        let compiled = backend.compile(&plan, library.clone());
        compiled.and_then(|ready| ready.run(inputs)).map_err(|e| match e {
            BackendError::Plan { .. } | BackendError::Unsupported { .. } => {
                format!("{REFUSED}: {e}")
            }
            e => e.to_string(),
        })
    };
    let given = aim::GivenLaws::of(&library, &options);
    let explore = |p: &Program| given.applications(p);
    let proven = |p: &Program| {
        let o = pipeline(p, &[])?;
        Ok((o.program, o.report.proof.into_keys().collect()))
    };
    let laws = given.laws();
    let aim = (!laws.is_empty()).then(|| Aim { laws, explore: &explore, optimise: &proven });
    let campaign = Campaign {
        aim,
        subject: Subject { library: &library, optimise: &optimise, run: &run },
        blame: Some(Blame { fired: &fired, without: &without }),
        print: &|p| show::program(p, &library, "case"),
        budget: Budget { cases: args.cases, time, failures: args.failures },
        seed: args.common.seed,
        size: Size::default(),
    };
    let bar = args.common.screen.progress("programs", args.cases.unwrap_or(0) as usize);
    let summary = campaign.run(&|done| bar.set_position(done));
    bar.finish_and_clear();
    args.common.report(&summary)?;
    args.common.screen.say(&human(&summary, &library))?;
    Ok(if summary.failures.is_empty() { Findings::Nothing } else { Findings::Something })
}

fn human(s: &Summary, library: &Library) -> String {
    let mut out = String::new();
    for (i, f) in s.failures.iter().enumerate() {
        let _ = writeln!(out, "failure {} of {}\n{}", i + 1, s.failures.len(), one(f, library));
    }
    for law in &s.laws {
        out.push_str(&told(law));
    }
    let skipped: u64 = s.skipped.values().sum();
    let _ = writeln!(
        out,
        "{} programs of {} operators in {:.1} s: {} runs agreed, {skipped} programs could not be run, \
         {} kinds of failure",
        s.cases,
        s.operators,
        s.seconds,
        s.agreed,
        s.failures.len()
    );
    out
}

/// What became of a given law.
fn told(law: &LawTally) -> String {
    let LawTally { law, built, near, fired, chosen, why } = law;
    let tried = format!("{built} left sides and {near} near misses were built");
    match (fired, why) {
        (0, Some(why)) => format!("law {law} was never applied: {why}; {tried}\n"),
        (0, None) => format!("law {law} was never applied; {tried}\n"),
        _ => format!(
            "law {law}: {tried}; applied in {fired} programs, {chosen} results rest on it\n"
        ),
    }
}

fn one(f: &Failure, library: &Library) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{:?}: {}", f.stage, f.message);
    out.push_str(&f.program);
    for i in &f.inputs {
        let _ = writeln!(out, "  // {i}");
    }
    for name in &f.laws {
        let law = library.laws.iter().find(|l| *l.name == **name);
        let place = law.and_then(|l| library.sources.get(l.source.file as usize));
        let file = place.map(|s| format!(" ({})", s.name)).unwrap_or_default();
        let _ = writeln!(out, "law to blame: {name}{file}");
    }
    if !f.proof.is_empty() {
        let _ = writeln!(out, "the wrong result rests on: {}", f.proof.join(", "));
    }
    let _ = writeln!(out, "seen {} times, first with --seed {}", f.count, f.seed);
    out
}
