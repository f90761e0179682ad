//! Predicted against measured latency of plans from different points of the search.
//!
//! `fidelity [--threads N] [--store FILE] [--plans N] [--svg OUT.svg] [--json OUT.json] MODEL...` takes models from
//! files, makes up to N plans of each (20) with different kernels, runs them interleaved on the CPU backend with two
//! threads or N, and prints Markdown. What is measured of a kernel is the median, over the plans that have an equal one,
//! of the fastest times of its launches; of a plan, the sum over its kernels: where two plans are alike they take alike. The
//! plan as read runs among all others; by its times those of different minutes are brought to one scale. Rank correlations
//! and the median relative error are those of each model and of all; "apart" is the rank correlation (Goodman and
//! Kruskal's gamma) of the pairs of plans that differ by more than a tenth. Exit code 1 if that is below 0.7 for a model.

use mlc_cpu::Cpu;
use mlc_dsl::plan::{Kernel, Plan};
use mlc_explore::Limits;
use mlc_extract::Size;
use mlc_extract::cost::fit::features;
use mlc_extract::cost::target::Jitter;
use mlc_extract::cost::work::Works;
use mlc_extract::kernels::selection::estimate;
use mlc_proptests::scatter::{Group, svg};
use mlc_rewrite::calibrate::machine::Hardware;
use mlc_rewrite::calibrate::store::{Store, usual_path};
use mlc_rewrite::calibrate::stored;
use mlc_rewrite::kernel_times::{KernelTime, Timed, Watcher, interleave};
use mlc_rewrite::pipeline::costing::Costing;
use mlc_rewrite::pipeline::measure::{least, median, points};
use mlc_rewrite::pipeline::{self, Options};
use mlc_rewrite::show;
use mlc_rewrite::{Device, Model};
use mlc_verify::random_inputs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Plans that are compiled and run at once, beside the plan as read.
const TOGETHER: usize = 6;
/// Time for the runs of such plans, once there are enough.
const BUDGET: Duration = Duration::from_secs(5);
/// Runs of each plan, at least and at most.
const RUNS: (usize, usize) = (8, 60);
/// Plans that differ by more than this part must be ordered.
const APART: f64 = 0.1;
/// Rank correlation from which they are.
const ORDERED: f64 = 0.7;
/// How far prices are off for other plans.
const SPREADS: [f64; 3] = [0.5, 2.0, 4.0];

fn main() -> ExitCode {
    match Arguments::read().and_then(|a| run(&a).map_err(|e| format!("{e:#}"))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!(
                "error: {e}\nusage: fidelity [--threads N] [--store FILE] [--plans N] [--svg OUT.svg] [--json OUT.json] MODEL..."
            );
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    store: Option<PathBuf>,
    threads: usize,
    plans: usize,
    svg: Option<PathBuf>,
    json: Option<PathBuf>,
    models: Vec<PathBuf>,
}

impl Arguments {
    fn read() -> Result<Arguments, String> {
        let (store, svg, json) = (None, None, None);
        let mut a = Arguments { store, threads: 2, plans: 20, svg, json, models: vec![] };
        let mut words = std::env::args().skip(1);
        while let Some(w) = words.next() {
            let mut value = || words.next().ok_or(format!("{w} wants a value"));
            match w.as_str() {
                "--store" => a.store = Some(value()?.into()),
                "--svg" => a.svg = Some(value()?.into()),
                "--json" => a.json = Some(value()?.into()),
                "--plans" => a.plans = value()?.parse().map_err(|_| "--plans wants a number")?,
                "--threads" => {
                    a.threads = value()?.parse().map_err(|_| "--threads wants a number")?;
                }
                _ => a.models.push(w.into()),
            }
        }
        if a.models.is_empty() { Err("no model is given".into()) } else { Ok(a) }
    }
}

/// A plan, predicted and measured.
#[derive(serde::Serialize)]
struct Point {
    model: String,
    point: String,
    predicted: f64,
    /// Its kernels' times, added up.
    measured: f64,
    /// The fastest run.
    whole: f64,
    kernels: Vec<Row>,
}

/// A kernel with the features of its work.
#[derive(serde::Serialize)]
struct Row {
    #[serde(flatten)]
    time: KernelTime,
    features: Vec<f64>,
}

impl Row {
    /// Equal for kernels that do the same.
    fn name(&self) -> String {
        format!("{}: {}", self.time.kernel, self.time.computes)
    }
}

/// True if the plans of every model that has different ones are ordered.
fn run(a: &Arguments) -> anyhow::Result<bool> {
    let path = a.store.clone().map_or_else(usual_path, Ok)?;
    let hardware = Hardware::of(&Device::cpu().threads(a.threads))?;
    let (fits, samples) = stored(&Store::open(&path)?, &hardware)?;
    let source = format!("a fit to {samples} kernels");
    let costing = Costing { fits: Some(fits), source, ..Costing::default() };
    let mut all: Vec<Point> = Vec::new();
    let mut ordered = true;
    println!("{}\n", hardware.key);
    println!(
        "| model | plans | measured, ms | slowest/fastest | Spearman | pairs apart | ordered | error, median |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for m in &a.models {
        let timed = model(m, &options(&costing, a.threads), a.plans)?;
        let Some(first) = timed.first() else { continue };
        let (low, high) = timed
            .iter()
            .fold((f64::MAX, 0.0f64), |r, t| (r.0.min(t.measured), r.1.max(t.measured)));
        let (pairs, gamma) = apart(&timed);
        ordered &= pairs == 0 || gamma >= ORDERED;
        println!(
            "| {} | {} | {:.2} to {:.2} | {:.2} | {:.3} | {pairs} | {} | {:.1} % |",
            first.model,
            timed.len(),
            low * 1e3,
            high * 1e3,
            high / low,
            spearman(&timed),
            if pairs > 0 { format!("{gamma:.3}") } else { "–".into() },
            100.0 * error(&timed)
        );
        all.extend(timed);
        // What is measured by now stays, whatever happens to the next model.
        write(a, &all)?;
    }
    println!(
        "| all | {} | | | {:.3} | | | {:.1} % |",
        all.len(),
        spearman(&all),
        100.0 * error(&all)
    );
    Ok(ordered)
}

fn write(a: &Arguments, all: &[Point]) -> anyhow::Result<()> {
    if let Some(path) = &a.svg {
        std::fs::write(path, plot(all))?;
    }
    if let Some(path) = &a.json {
        std::fs::write(path, serde_json::to_vec(all)?)?;
    }
    Ok(())
}

fn options(costing: &Costing, threads: usize) -> Options {
    Options {
        limits: Limits { time: Duration::from_secs(60), threads, ..Limits::default() },
        self_check: false,
        costing: costing.clone(),
        threads,
        ..Options::default()
    }
}

/// A model's name: that of its file, or of its folder where that says more.
fn name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folder = path.parent().and_then(Path::file_name).map(|f| f.to_string_lossy().into_owned());
    match folder {
        Some(f) if stem == "model" => f,
        _ => stem,
    }
}

/// Different plans of a model, measured.
fn model(path: &Path, base: &Options, count: usize) -> anyhow::Result<Vec<Point>> {
    let model = Model::read(path)?;
    let cpu = pipeline::target(model.library(), "cpu")?;
    let price = base.costing.model(&cpu, model.program());
    let mut plans: Vec<(String, Plan)> = vec![(
        "as read".into(),
        pipeline::plan_with(model.program(), model.library(), &cpu, &price, &Size::usual())?,
    )];
    // Plans with the same kernels in another order are one.
    let text = |plan: &Plan| {
        let kernel = |k: &Kernel| {
            let nodes = k.nodes.iter().copied();
            format!("{}: {}", k.name, show::signature(&plan.program, nodes, model.library()))
        };
        let mut all: Vec<String> = plan.kernels.iter().map(kernel).collect();
        all.sort();
        all
    };
    let mut known = vec![text(&plans[0].1)];
    let mut keep = |name: String, plan: Plan| {
        let t = text(&plan);
        if plans.len() < count && !known.contains(&t) {
            known.push(t);
            plans.push((name, plan));
        }
    };
    let mut tries = vec![("optimised".to_string(), base.clone())];
    tries.extend(points(base, 6).into_iter().filter(|(_, o)| o.costing.jitter.is_none()));
    for (name, o) in tries {
        let found = pipeline::search(model.program().clone(), model.library(), &o)?;
        keep(name, found.optimized.plan);
    }
    let spread = |seed: u64| SPREADS[seed as usize % SPREADS.len()];
    let off: Vec<Jitter> =
        (0..2 * count as u64).map(|seed| Jitter { seed, spread: spread(seed) }).collect();
    for (j, plan) in
        off.iter().zip(pipeline::variants(model.program(), model.library(), base, &off)?)
    {
        keep(format!("prices off by {}, seed {}", j.spread, j.seed), plan);
    }
    measured(path, &model, &price, base.threads, plans)
}

fn measured(
    path: &Path,
    model: &Model,
    price: &mlc_extract::CostModel,
    threads: usize,
    plans: Vec<(String, Plan)>,
) -> anyhow::Result<Vec<Point>> {
    let inputs = random_inputs::inputs(model.program(), model.library(), 0)
        .ok_or_else(|| anyhow::anyhow!("{}: inputs of unknown size", path.display()))?;
    let watcher = Watcher::Cpu(Cpu::new(threads));
    let works = Works::new(model.library());
    let is_cold = model.program().consts.bytes() as f64 > price.fits().caches.far;
    let Some((first, rest)) = plans.split_first() else { return Ok(vec![]) };
    let mut out: Vec<(f64, Point)> = Vec::new();
    for part in rest.chunks(TOGETHER).chain(rest.is_empty().then_some(&[][..])) {
        let part: Vec<&(String, Plan)> = std::iter::once(first).chain(part).collect();
        let mut ready: Vec<Timed<'_>> = part
            .iter()
            .map(|(_, p)| Timed::new(p, &watcher, model.library()))
            .collect::<Result<_, _>>()?;
        interleave(&mut ready, &inputs, RUNS, BUDGET)?;
        let of_first = ready[0].least();
        let skip = usize::from(!out.is_empty());
        for ((point, plan), timed) in part.into_iter().zip(&ready).skip(skip) {
            let rows = timed
                .kernels(model.library(), price, &Size::default(), None)
                .into_iter()
                .zip(&plan.kernels);
            let row = |(time, k)| {
                let work = works.kernel(&plan.program, k);
                let features = features(&work, &price.fits().caches, is_cold).to_vec();
                Row { time, features }
            };
            let point = Point {
                model: name(path),
                point: point.clone(),
                predicted: estimate(&plan.program, &plan.kernels, model.library(), price),
                measured: 0.0,
                whole: least(&timed.runs),
                kernels: rows.map(row).collect(),
            };
            out.push((of_first, point));
        }
    }
    // A machine is not equally fast at all times: the plan as read, which runs among all, tells by how much.
    let best = least(&out.iter().map(|(f, _)| *f).collect::<Vec<_>>());
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (of_first, point) in &mut out {
        point.whole *= best / *of_first;
        for k in &mut point.kernels {
            k.time.measured *= best / *of_first;
            times.entry(k.name()).or_default().push(k.time.measured);
        }
    }
    let measured = |k: &Row| times.get(&k.name()).map_or(f64::NAN, |t| median(t));
    let pooled =
        |(_, p): (f64, Point)| Point { measured: p.kernels.iter().map(measured).sum(), ..p };
    Ok(out.into_iter().map(pooled).collect())
}

/// The pairs of plans that differ by more than a tenth, and how they are ordered: from -1, all wrong, to 1.
fn apart(timed: &[Point]) -> (usize, f64) {
    let (mut right, mut wrong) = (0u32, 0u32);
    for (i, a) in timed.iter().enumerate() {
        for b in &timed[..i] {
            let (x, y) = (a.measured.max(b.measured), a.measured.min(b.measured));
            if x > (1.0 + APART) * y {
                let same = (a.measured < b.measured) == (a.predicted < b.predicted);
                let equal = a.predicted == b.predicted;
                if same && !equal { right += 1 } else { wrong += 1 }
            }
        }
    }
    ((right + wrong) as usize, (f64::from(right) - f64::from(wrong)) / f64::from(right + wrong))
}

/// The ranks of values, equal ones sharing theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let less = |v: f64| values.iter().filter(|w| **w < v).count() as f64;
    let same = |v: f64| values.iter().filter(|w| **w == v).count() as f64;
    values.iter().map(|&v| less(v) + (same(v) - 1.0) / 2.0).collect()
}

/// Spearman's rank correlation of predicted and measured seconds.
fn spearman(timed: &[Point]) -> f64 {
    let x = ranks(&timed.iter().map(|t| t.predicted).collect::<Vec<_>>());
    let y = ranks(&timed.iter().map(|t| t.measured).collect::<Vec<_>>());
    let mean = (timed.len() as f64 - 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    product(&x, &y) / (product(&x, &x) * product(&y, &y)).sqrt()
}

fn error(timed: &[Point]) -> f64 {
    let errors: Vec<f64> = timed.iter().map(|t| (t.predicted / t.measured - 1.0).abs()).collect();
    median(&errors)
}

fn plot(all: &[Point]) -> String {
    let mut groups: Vec<Group> = Vec::new();
    for t in all {
        let point = (t.predicted, t.measured);
        match groups.iter_mut().find(|g| g.name == t.model) {
            Some(g) => g.points.push(point),
            None => groups.push(Group { name: t.model.clone(), points: vec![point] }),
        }
    }
    let title = format!("{} plans, Spearman {:.3}", all.len(), spearman(all));
    svg(&title, &groups)
}
