//! Times plans from different points of the search on the CPU backend, and keeps the fastest.
//!
//! Runs are interleaved, so that other load on the machine affects all plans alike.

use crate::error::Error;
use crate::pipeline::costing::Measured;
use crate::pipeline::options::{Fp, Options, Solver};
use crate::pipeline::planning::CPU;
use crate::pipeline::planning::{plan_with, target};
use crate::pipeline::report::{kernels, operators};
use crate::pipeline::result::{Found, Optimized};
use crate::pipeline::search::search;
use crate::show;
use mlc_backends::memory;
use mlc_backends::{Backend, Executable};
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Kernel, Plan};
use mlc_extract::cost::target::Jitter;
use mlc_extract::resources::RunResources;
use mlc_verify::random_inputs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part by which a plan must be faster than the plan as read to be taken in its place: by as much the fastest runs of
/// one plan differ from one compilation to the next, as its buffers lie elsewhere.
pub const MARGIN: f64 = 0.03;

/// Runs of each plan at least.
const RUNS: usize = 5;
/// Runs of each plan at most.
const MOST: usize = 200;
/// Time for all runs, once there are enough.
const BUDGET: Duration = Duration::from_secs(6);

/// Other points of the search than the options', the most different first.
pub fn points(options: &Options, count: usize) -> Vec<(String, Options)> {
    let with = |name: &str, change: &dyn Fn(&mut Options)| {
        let mut o = options.clone();
        change(&mut o);
        (name.to_string(), o)
    };
    let jitter = |seed: u64, spread: f64| {
        let name = format!("prices off by {spread}, seed {seed}");
        with(&name, &|o| {
            o.costing.jitter = Some(Jitter { seed, spread });
            o.solver = Solver::Greedy;
        })
    };
    let mut out = vec![
        jitter(1, 0.5),
        with("2 rounds", &|o| o.limits.rounds = o.limits.rounds.min(2)),
        with("greedy", &|o| o.solver = Solver::Greedy),
        with("laws of class exact", &|o| o.fp = Fp::Exact),
        with("1 round", &|o| o.limits.rounds = o.limits.rounds.min(1)),
        with("4 rounds", &|o| o.limits.rounds = o.limits.rounds.min(4)),
    ];
    for seed in 2.. {
        if out.len() >= count {
            break;
        }
        out.push(jitter(seed, [0.5, 1.0, 2.0][seed as usize % 3]));
    }
    out.truncate(count);
    out
}

/// A plan in words that are equal for equal plans.
pub fn text(plan: &Plan, library: &Library) -> String {
    let kernel = |k: &Kernel| {
        let nodes: Vec<String> = k.nodes.iter().map(|n| n.0.to_string()).collect();
        format!("{}({})", k.name, nodes.join(" "))
    };
    let kernels: Vec<String> = plan.kernels.iter().map(kernel).collect();
    format!("{}{}", show::program(&plan.program, library, "plan"), kernels.join(" "))
}

/// How often plans are run.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// Runs of each plan before any is timed.
    pub warmup: usize,
    /// Timed runs of each plan at least.
    pub least: usize,
    /// Timed runs of each plan at most.
    pub most: usize,
    /// What ends them in between.
    pub budget: Duration,
}

impl Runs {
    /// As many as there is time for.
    pub fn within(budget: Duration) -> Runs {
        Runs { warmup: 1, least: 2 * RUNS, most: 2 * MOST, budget }
    }

    /// Exactly so many.
    pub fn exactly(count: usize) -> Runs {
        Runs { warmup: 1, least: count, most: count, budget: Duration::ZERO }
    }

    /// One of two parts; both together are the whole.
    fn half(self, second: bool) -> Runs {
        let of = |n: usize| if second { n / 2 } else { n.div_ceil(2) };
        Runs { least: of(self.least), most: of(self.most), budget: self.budget / 2, ..self }
    }
}

/// Seconds of a run: by the device's own clock, where it has one and copies do not count, else by this machine's.
pub fn seconds(plan: &dyn Executable, inputs: &[Tensor]) -> Result<f64, Error> {
    if let Some(seconds) = plan.device_seconds(inputs)? {
        return Ok(seconds);
    }
    let start = Instant::now();
    plan.run(inputs)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Seconds of each plan's runs, interleaved.
pub fn runs(
    plans: &[&dyn Executable],
    inputs: &[Tensor],
    runs: Runs,
) -> Result<Vec<Vec<f64>>, Error> {
    for _ in 0..runs.warmup {
        for p in plans {
            p.run(inputs)?;
        }
    }
    let mut times = vec![Vec::new(); plans.len()];
    let began = Instant::now();
    for round in 0..runs.most {
        if round >= runs.least && began.elapsed() >= runs.budget {
            break;
        }
        for (p, times) in plans.iter().zip(&mut times) {
            times.push(seconds(*p, inputs)?);
        }
    }
    Ok(times)
}

/// Seconds of each plan's runs. Plans are compiled twice, in both orders: where the weights of a plan come to lie in memory
/// depends on what was compiled before, and may matter more than the plan.
pub fn time_recompiled(
    backend: &dyn Backend,
    plans: &[&Plan],
    library: &Arc<Library>,
    inputs: &[Tensor],
    count: Runs,
) -> Result<Vec<Vec<f64>>, Error> {
    let mut out = vec![Vec::new(); plans.len()];
    let mut order: Vec<usize> = (0..plans.len()).collect();
    for second in [false, true] {
        let ready: Vec<_> = order
            .iter()
            .map(|&i| backend.compile(plans[i], library.clone()))
            .collect::<Result<_, _>>()?;
        let ready: Vec<&dyn Executable> = ready.iter().map(|r| r.as_ref()).collect();
        for (&i, times) in order.iter().zip(runs(&ready, inputs, count.half(second))?) {
            out[i].extend(times);
        }
        order.reverse();
    }
    Ok(out)
}

/// The fastest: whatever else the machine does only adds to a time.
pub fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The median.
pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One plan to time.
struct Candidate {
    name: String,
    plan: Plan,
    /// What it belongs to; `None` for the plan as read.
    found: Option<Optimized>,
}

/// Times the result, the program as read and other points of the search; keeps the fastest. The program as
/// read is kept unless another is faster.
pub fn choose(
    source: &Program,
    library: &Arc<Library>,
    options: &Options,
    found: Found,
) -> Result<Optimized, Error> {
    let began = Instant::now();
    let cpu = target(library, CPU)?;
    let model = options.costing.model(&cpu, source);
    let plan_of = |p: &Program| plan_with(p, library, &cpu, &model, &options.sizes);
    let is_own = options.operators.is_none() && library.is_kind_of(&options.target, CPU);
    let Found { optimized, as_read } = found;
    let as_read = if is_own { as_read } else { plan_of(source)? };
    let needs = RunResources::of_plan(&as_read, library, &random_inputs::symbols(source, library));
    let afforded = needs.afford(memory::limit(options.guard.memory));
    afforded.map_err(|e| Error::from(e).before("plans cannot be timed"))?;
    let inputs = random_inputs::inputs(source, library, options.seed)
        .ok_or_else(|| Error::unsized_inputs().before("plans cannot be timed"))?;
    let mut all = vec![Candidate { name: "as read".into(), plan: as_read, found: None }];
    let mut known = vec![text(&all[0].plan, library)];
    let mut add = |name: String, o: Optimized, base: bool| -> Result<(), Error> {
        let plan = if is_own { o.plan.clone() } else { plan_of(&o.program)? };
        let t = text(&plan, library);
        if base || !known.contains(&t) {
            known.push(t);
            all.push(Candidate { name, plan, found: Some(o) });
        }
        Ok(())
    };
    add("optimised".into(), optimized, true)?;
    for (name, o) in points(options, options.costing.measure.saturating_sub(2)) {
        add(name, search(source.clone(), library, &o)?.optimized, false)?;
    }
    let backend = Cpu::new(options.threads);
    let plans: Vec<&Plan> = all.iter().map(|c| &c.plan).collect();
    let times = |plans: &[&Plan], budget| -> Result<Vec<f64>, Error> {
        let times = time_recompiled(&backend, plans, library, &inputs, Runs::within(budget))?;
        Ok(times.iter().map(|t| least(t)).collect())
    };
    let fastest = times(&plans, BUDGET)?;
    let mut best = (0..all.len()).min_by(|&a, &b| fastest[a].total_cmp(&fastest[b])).unwrap_or(0);
    if best > 0 {
        // The fastest of many is partly the luckiest: it must be so again.
        let again = times(&[plans[0], plans[best]], BUDGET / 2)?;
        if again[1] >= (1.0 - MARGIN) * again[0] {
            best = 0;
        }
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&i| (i != best, i));
    let measured = order
        .into_iter()
        .map(|i| Measured {
            point: all[i].name.clone(),
            estimate: all[i].plan.cost,
            least: fastest[i],
        })
        .collect();
    let seconds = began.elapsed().as_secs_f64();
    finish(all, best, source, library, options, measured, seconds)
}

/// Puts the program as read, with this plan, in the place of what was found.
pub(crate) fn keep_read(
    out: &mut Optimized,
    plain: Plan,
    source: &Program,
    options: &Options,
    library: &Library,
) {
    out.program = match options.operators {
        None => plain.program.clone(),
        Some(_) => source.clone(),
    };
    out.report.cost_after = out.report.cost_before;
    out.report.operators_after = operators(&out.program);
    out.report.nodes_after = out.report.operators_after;
    out.report.kernels = kernels(&plain, library);
    out.plan = plain;
}

/// The chosen result with the report of the whole.
fn finish(
    mut all: Vec<Candidate>,
    best: usize,
    source: &Program,
    library: &Library,
    options: &Options,
    measured: Vec<Measured>,
    seconds: f64,
) -> Result<Optimized, Error> {
    let plain = all[0].plan.clone();
    let chosen = all.swap_remove(best.max(1));
    let mut out = chosen.found.ok_or_else(|| Error::unexpected("no plan was found"))?;
    if best == 0 {
        keep_read(&mut out, plain, source, options, library);
        out.report.notes.push("the program as read is the fastest: it is kept".into());
    }
    out.report.measured = measured;
    out.report.seconds.insert("measure".into(), seconds);
    Ok(out)
}
