//! `bench MODEL`: times the optimised plan against the original model, interleaved.

mod data;
mod kernels;
mod peer;
mod turns;

use super::common::{Common, Findings, named};
use super::options::model::{Tuning, fitting_symbols, load_for};
use super::options::place::Place;
use super::options::selfcheck;
use super::options::selfcheck::{CheckReport, Checking};
use super::options::shapes::ShapeOptions;
use super::run::optimized;
use crate::device::{BackendKind, Device};
use crate::error::Error;
use crate::explain::seconds;
use crate::kernel_times::{KernelTime, Timed, WatchedPlan, interleave};
use crate::model::input_names;
use crate::optimizer::Optimizer;
use crate::pipeline::costing::Measured;
use crate::pipeline::measure;
use crate::pipeline::measure::Runs;
use anyhow::ensure;
use kernels::{chart, table};
use mlc_backends::{Backend, Executable};
use mlc_cpu::Roofline;
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::Size;
use mlc_extract::resources;
use mlc_files::Named;
use mlc_verify::random_inputs;
use peer::{Peer, PeerReport, Runtime};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use turns::Ready;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The model.
    pub(super) model: PathBuf,
    #[command(flatten)]
    pub(super) place: Place,
    /// An archive with one array per input, or several samples of arrays named K/INPUT: the first is timed, all
    /// are checked.
    #[arg(long, value_name = "FILE.npz")]
    pub(super) inputs: Option<PathBuf>,
    /// Another runtime to time in turns with the optimised plan, through the Python that MLC_PYTHON names (else python3).
    #[arg(long, value_enum, value_name = "RUNTIME")]
    pub(super) against: Option<Runtime>,
    /// Timed runs of each plan; as many as fit into `--seconds` by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "seconds")]
    pub(super) iterations: Option<u32>,
    /// Seconds for the timed runs of both plans; every plan runs ten times at least, and 400 times at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0)]
    seconds: f64,
    /// Runs of each plan before any is timed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) warmup: u32,
    /// Print `ready` to standard error when plans are found and, for a device, compiled, and time nothing before a line
    /// or the end of standard input: so several can prepare at once, and be timed one after the other.
    #[arg(long)]
    wait: bool,
    /// Time runs when asked, for programs that take turns with others: print a line of JSON when plans are found, then answer
    /// each line of standard input, `optimised` or `as read`, with the seconds of a run of that plan, or with the mean of N runs if a tab and N follow.
    #[arg(long, conflicts_with_all = ["wait", "kernels", "svg", "against", "iterations", "seconds", "json"])]
    pub(super) turns: bool,
    /// Print what every kernel takes, measured and estimated, its share, and the percent of this machine's roofline that it reaches.
    #[arg(long)]
    pub(super) kernels: bool,
    /// Draw the kernels of the optimised plan as a bar chart, those that take longest first; `-` is standard output.
    #[arg(long, value_name = "FILE.svg", requires = "kernels")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    pub(super) checking: Checking,
    #[command(flatten)]
    pub(super) tuning: Tuning,
    #[command(flatten)]
    pub(super) common: Common,
}

impl Args {
    /// How often plans run.
    pub(super) fn count(&self) -> Runs {
        let count = match self.iterations {
            Some(n) => Runs::exactly(n as usize),
            None => Runs::within(self.budget()),
        };
        Runs { warmup: self.warmup as usize, ..count }
    }

    /// The least number of runs in turns with another runtime, and the time for them.
    pub(super) fn turns(&self) -> (usize, Duration) {
        self.iterations.map_or((3, self.budget()), |n| (n as usize, Duration::ZERO))
    }

    /// Time for all runs, once there are enough.
    fn budget(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.min(1e9))
    }

    /// Waits for leave to time what is compiled, if it is asked for.
    pub(super) fn turn(&self) -> anyhow::Result<()> {
        if self.wait {
            eprintln!("ready");
            std::io::stdin().read_line(&mut String::new())?;
        }
        Ok(())
    }

    /// Writes the chart, if one is wanted.
    fn draw(&self, kernels: &[KernelTime]) -> anyhow::Result<()> {
        let Some(path) = &self.svg else { return Ok(()) };
        let model = self.model.file_name().unwrap_or_default().display();
        let title = format!("{model}, optimised, {}", self.place.told(self.common.threads()));
        Ok(mlc_files::write(path, chart(&title, kernels).as_bytes())?)
    }

    /// Another runtime with the model, if one is to be timed.
    pub(super) fn peer(&self, named: &[(String, Tensor)]) -> anyhow::Result<Option<Peer>> {
        let Some(runtime) = self.against else { return Ok(None) };
        let on = (self.place.backend, self.place.device.unwrap_or(0));
        Peer::start(runtime, &self.model, named, self.common.threads(), on).map(Some)
    }
}

#[derive(Default, Serialize)]
pub(super) struct BenchReport {
    runs: usize,
    /// The fastest runs.
    least_seconds: f64,
    least_seconds_unoptimized: f64,
    median_seconds: f64,
    median_seconds_unoptimized: f64,
    /// Runs of which so many percent took no longer.
    percentiles: Percentiles,
    percentiles_unoptimized: Percentiles,
    /// Of the fastest runs.
    ratio: f64,
    /// Seconds per stage besides the runs.
    seconds: BTreeMap<String, f64>,
    #[serde(flatten)]
    check: CheckReport,
    /// The optimised plan is the plan as read.
    same_plan: bool,
    /// Plans that were timed to choose between them, the chosen one first.
    measured: Vec<Measured>,
    /// Another runtime in turns with the optimised plan.
    pub(super) against: Option<PeerReport>,
    /// What times are taken by: the `device`'s own events, without copies of inputs and outputs, or the `host`'s clock.
    clock: &'static str,
    /// Launches of a run, on a device.
    launches: Option<usize>,
    launches_unoptimized: Option<usize>,
    /// What the device's sessions chose, and what did not work out.
    pub(super) notes: Vec<String>,
    kernels: Vec<KernelTime>,
    kernels_unoptimized: Vec<KernelTime>,
}

/// Seconds that a part of all runs stayed within.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Percentiles {
    p50: f64,
    p90: f64,
    p99: f64,
}

impl Percentiles {
    /// Of at least one run.
    fn of(times: &[f64]) -> Percentiles {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        // The smallest time that so many percent of the runs stayed within.
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
        };
        Percentiles { p50: at(50), p90: at(90), p99: at(99) }
    }

    fn human(&self) -> String {
        let [a, b, c] = [self.p50, self.p90, self.p99].map(seconds);
        format!("{a:>10} {b:>10} {c:>10}")
    }
}

impl BenchReport {
    /// Of the runs of the optimised model, and of the model as read.
    pub fn of(fast: &[f64], plain: &[f64]) -> BenchReport {
        let (least_seconds, least_seconds_unoptimized) =
            (measure::least(fast), measure::least(plain));
        BenchReport {
            runs: fast.len(),
            least_seconds,
            least_seconds_unoptimized,
            median_seconds: measure::median(fast),
            median_seconds_unoptimized: measure::median(plain),
            percentiles: Percentiles::of(fast),
            percentiles_unoptimized: Percentiles::of(plain),
            ratio: least_seconds / least_seconds_unoptimized,
            clock: "host",
            ..BenchReport::default()
        }
    }

    /// The times, and those of the other runtime.
    pub fn human(&self) -> (String, String) {
        let times = format!(
            "{:<12} {:>10} {:>10} {:>10} {:>10}\noptimised    {:>10} {}\nunoptimised  {:>10} {}\n\
             ratio        {:>10.3} of the fastest of {} runs each\n",
            "",
            "fastest",
            "p50",
            "p90",
            "p99",
            seconds(self.least_seconds),
            self.percentiles.human(),
            seconds(self.least_seconds_unoptimized),
            self.percentiles_unoptimized.human(),
            self.ratio,
            self.runs
        );
        let against = self.against.as_ref().map(|p| {
            format!(
                "{:<12} {:>10} against {} of the optimised plan in turns with it: ratio {:.3} of the fastest of {} runs each\n",
                p.name,
                seconds(p.least_seconds),
                seconds(p.own_least_seconds),
                p.ratio,
                p.runs
            )
        });
        (times, against.unwrap_or_default())
    }
}

/// Runs whose kernels are watched, at least and at most.
const WATCHED: (usize, usize) = (5, 100);

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    ensure!(
        !args.kernels || args.place.backend != BackendKind::Reference,
        "the reference interpreter has no kernels\nhelp: leave `--backend` or `--kernels` out"
    );
    ensure!(args.seconds.is_finite() && args.seconds >= 0.0, "--seconds takes a number of seconds");
    let mut reads: Vec<Named<'_>> = vec![("MODEL", &args.model)];
    reads.extend(named("--inputs", &args.inputs));
    reads.extend(args.tuning.files());
    let writes: Vec<Named<'_>> = named("--svg", &args.svg).into_iter().collect();
    args.common.begin(&reads, &writes)?;
    let model = load_for(&args.model, &args.common, &args.shapes)?;
    if model.keeps_nodes() {
        return data::run(args, model);
    }
    let names = input_names(&model.program);
    let given = args.inputs.as_ref().map(|path| selfcheck::samples(path, &names));
    let given = given.transpose()?.unwrap_or_default();
    let device = args.place.device(&args.common, &args.tuning)?;
    let mut options = args.place.options(&args.tuning, &args.common, &model.library)?;
    let symbols = match given.first() {
        Some(inputs) => resources::symbols_of(&model.program, inputs),
        None => fitting_symbols(&model.program, &model.library)?,
    };
    let size = Size::default().with(symbols.clone());
    args.checking.enter(&mut options, given.clone())?;
    let optimizer =
        Optimizer::from(options).on(device.clone()).ranges(args.shapes.ranges()).for_given();
    let before = optimizer.plan_as_read(&model)?;
    let needs = device.needs(&before, &model.library, &symbols);
    device.afford_beside(&needs, 0)?;
    let inputs = match given.first() {
        Some(inputs) => inputs.clone(),
        None => random_inputs::inputs(&model.program, &model.library, args.common.seed)
            .ok_or_else(Error::unsized_inputs)?,
    };
    let done = optimized(&optimizer, &model, &args.common)?;
    let check = CheckReport::of(done.report());
    let self_check_seconds = done.report().seconds.get("self-check").copied();
    let after = &done.result().plan;
    let both = device.needs(after, &model.library, &symbols).beside(&needs);
    device.afford_beside(&both, 0)?;
    let names = model.program.inputs.iter().map(|(name, _)| name.to_string());
    let named: Vec<(String, Tensor)> = names.zip(inputs.iter().cloned()).collect();
    let bench = Bench { args: &args, library: &model.library, inputs: &inputs, named: &named };
    let plans = [after, &before];
    let same_plan = measure::text(after, &model.library) == measure::text(&before, &model.library);
    if args.turns {
        let (place, ready) = (device.backend()?, Ready::of(done.report(), same_plan));
        let compile = |i: usize| Ok(place.compile(plans[i], model.library.clone())?);
        return turns::serve(ready, &named, compile);
    }
    let taken = match device.is_elsewhere() {
        true => bench.on_device(&*device.backend()?, plans)?,
        false => bench.on_host(&device, plans)?,
    };
    let mut report = BenchReport::of(&taken.times[0], &taken.times[1]);
    let mut text = report.human().0;
    if let [Some(fast), Some(plain)] = taken.launches {
        let _ = writeln!(
            text,
            "launches     {fast:>10} optimised, {plain} unoptimised; times are the device's own"
        );
    }
    for note in &taken.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let mut kernels = [vec![], vec![]];
    if let Some(timed) = &taken.kernels {
        let price = done.cost_model()?;
        let roofline = taken.roofline;
        kernels = timed.each_ref().map(|t| t.kernels(&model.library, &price, &size, roofline));
        text.push_str(&table("optimised", &kernels[0]));
        text.push_str(&table("unoptimised", &kernels[1]));
    }
    let [kernels, kernels_unoptimized] = kernels;
    let [launches, launches_unoptimized] = taken.launches;
    report = BenchReport {
        against: taken.against,
        seconds: self_check_seconds.map(|s| ("self-check".to_string(), s)).into_iter().collect(),
        check,
        same_plan,
        measured: done.report().measured.clone(),
        kernels,
        kernels_unoptimized,
        clock: if device.is_elsewhere() { "device" } else { "host" },
        launches,
        launches_unoptimized,
        notes: taken.notes,
        ..report
    };
    text.push_str(&report.human().1);
    args.draw(&report.kernels)?;
    args.common.report(&report)?;
    args.common.screen.print(&text)?;
    Ok(Findings::Nothing)
}

/// What was timed of the optimised plan and of the plan as read, in this order.
struct Taken<'p> {
    times: Vec<Vec<f64>>,
    /// Of a run, on a device.
    launches: [Option<usize>; 2],
    /// Of the optimised plan's session.
    notes: Vec<String>,
    kernels: Option<[Timed<'p>; 2]>,
    roofline: Option<Roofline>,
    against: Option<PeerReport>,
}

/// What is timed on a device or on this machine's processor.
struct Bench<'a> {
    args: &'a Args,
    library: &'a Arc<Library>,
    inputs: &'a [Tensor],
    named: &'a [(String, Tensor)],
}

impl Bench<'_> {
    /// Compiles each plan twice and starts the other runtime last: what else the process holds and does decides times there.
    fn on_host<'p>(&self, device: &Device, plans: [&'p Plan; 2]) -> anyhow::Result<Taken<'p>> {
        let Bench { args, library, inputs, named } = self;
        args.turn()?;
        let place = device.backend()?;
        let times = measure::time_recompiled(&*place, &plans, library, inputs, args.count())?;
        let (mut kernels, mut roofline) = (None, None);
        if args.kernels {
            let watcher = device.watcher()?;
            roofline = watcher.roofline();
            let [fast, plain] = plans.map(|p| Timed::new(p, &watcher, library));
            let mut both = [fast?, plain?];
            interleave(&mut both, inputs, WATCHED, args.budget())?;
            kernels = Some(both);
        }
        let against = match args.peer(named)? {
            Some(peer) => {
                let own = place.compile(plans[0], (*library).clone())?;
                Some(peer.race(&*own, inputs, args.turns())?)
            }
            None => None,
        };
        Ok(Taken { times, launches: [None; 2], notes: vec![], kernels, roofline, against })
    }

    /// All that is compiled, the other runtime too, is ready before anything is timed.
    fn on_device<'p>(
        &self,
        place: &dyn Backend,
        plans: [&'p Plan; 2],
    ) -> anyhow::Result<Taken<'p>> {
        let Bench { args, library, inputs, named } = self;
        let ready = || -> anyhow::Result<[Box<dyn Executable>; 2]> {
            let [fast, plain] = plans.map(|p| place.compile(p, (*library).clone()));
            let both = [fast?, plain?];
            // Uploads constants and loads code.
            both.iter().try_for_each(|plan| plan.run(inputs).map(drop))?;
            Ok(both)
        };
        let mut both = ready()?;
        let peer = args.peer(named)?;
        args.turn()?;
        if args.wait {
            // Sessions choose by the clock, which told little beside other programs. Code is compiled once.
            drop(both);
            both = ready()?;
        }
        let [fast, plain] = both;
        let times = measure::runs(&[&*fast, &*plain], inputs, args.count())?;
        let against = peer.map(|p| p.race(&*fast, inputs, args.turns())).transpose()?;
        let count = |plan: &dyn Executable| {
            plan.launch_seconds(inputs).map(|times| times.map(|all| all.len()))
        };
        let (launches, notes) = ([count(&*fast)?, count(&*plain)?], fast.notes());
        let mut kernels = None;
        if args.kernels {
            let watched = |ready| WatchedPlan::Device(ready, place.name());
            let mut both =
                [Timed::of(plans[0], watched(fast)), Timed::of(plans[1], watched(plain))];
            interleave(&mut both, inputs, WATCHED, args.budget())?;
            kernels = Some(both);
        }
        Ok(Taken { times, launches, notes, kernels, roofline: None, against })
    }
}
