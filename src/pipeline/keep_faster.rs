//! Times the optimised plan against the plan of the original program, and keeps the faster one, if kernels were calibrated.
//!
//! Timing decides if it is enabled and the inputs have a known size, and its outcomes are stored. Otherwise the
//! optimised plan must be better by more than the error of the fitted costs.

use crate::error::Error;
use crate::pipeline::costing::{Measured, Verdict};
use crate::pipeline::measure::{self, MARGIN, Runs, keep_read, least, time_recompiled};
use crate::pipeline::options::Objective;
use crate::pipeline::options::Options;
use crate::pipeline::planning::CPU;
use crate::pipeline::planning::target;
use crate::pipeline::result::{Found, Optimized};
use crate::show;
use mlc_backends::memory;
use mlc_cpu::Cpu;
use mlc_dsl::ir::{DType, Program, Tensor};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::CostModel;
use mlc_extract::cost::fit::KernelClass;
use mlc_extract::cost::work::Works;
use mlc_extract::resources::RunResources;
use mlc_verify::random_inputs;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for the runs of both plans, once there are enough.
const BUDGET: Duration = Duration::from_secs(2);

/// Keeps the optimised plan if it is faster, else the plan as read. Does nothing for other places to run than this
/// machine's processor, for other objectives than time, and where no kernel was timed.
pub fn keep_faster(
    source: &Program,
    library: &Arc<Library>,
    options: &Options,
    found: Found,
) -> Result<Optimized, Error> {
    let Found { mut optimized, as_read: plain } = found;
    let applies = library.is_kind_of(&options.target, CPU)
        && options.operators.is_none()
        && options.objective == Objective::Latency
        && options.costing.fits.is_some()
        && options.costing.jitter.is_none();
    if !applies {
        return Ok(optimized);
    }
    let cpu = target(library, &options.target)?;
    let model = options.costing.model(&cpu, source);
    let texts = [&plain, &optimized.plan].map(|p| measure::text(p, library));
    if texts[0] == texts[1] {
        return Ok(optimized);
    }
    let began = Instant::now();
    let needs = RunResources::of_plan(&plain, library, &random_inputs::symbols(source, library));
    let affordable = needs.afford(memory::limit(options.guard.memory)).is_ok();
    let inputs = affordable.then(|| random_inputs::inputs(source, library, options.seed)).flatten();
    match (&options.costing.confirm, inputs) {
        (Some(confirm), Some(inputs)) => {
            let key = key(&texts);
            let verdict = match confirm.recall(&key)? {
                Some(known) => known,
                None => {
                    let plans = [&plain, &optimized.plan];
                    let verdict = timed(plans, library, options.threads, &inputs)?;
                    if let Err(e) = confirm.remember(&key, &verdict) {
                        optimized.report.notes.push(format!("what was timed is forgotten: {e:#}"));
                    }
                    verdict
                }
            };
            let estimates = [plain.cost, optimized.plan.cost];
            let faster = verdict.optimized < (1.0 - MARGIN) * verdict.read;
            if !faster {
                keep_read(&mut optimized, plain, source, options, library);
                let note = "the clock does not find the optimised plan faster: the program as read is kept";
                optimized.report.notes.push(note.into());
            }
            optimized.report.measured = rows(&verdict, estimates, faster);
        }
        _ => {
            let doubt = doubt([&plain, &optimized.plan], library, &model);
            if optimized.plan.cost + doubt >= plain.cost {
                keep_read(&mut optimized, plain, source, options, library);
                let note = "the optimised plan is better by less than costs are off: the program as read is kept";
                optimized.report.notes.push(note.into());
            }
        }
    }
    optimized.report.seconds.insert("measure".into(), began.elapsed().as_secs_f64());
    Ok(optimized)
}

/// What was timed, the kept plan first.
fn rows(verdict: &Verdict, [read, found]: [f64; 2], faster: bool) -> Vec<Measured> {
    let row = |point: &str, estimate, least| Measured { point: point.into(), estimate, least };
    let mut out =
        vec![row("as read", read, verdict.read), row("optimised", found, verdict.optimized)];
    if faster {
        out.reverse();
    }
    out
}

fn timed(
    plans: [&Plan; 2],
    library: &Arc<Library>,
    threads: usize,
    inputs: &[Tensor],
) -> Result<Verdict, Error> {
    let times = time_recompiled(&Cpu::new(threads), &plans, library, inputs, Runs::within(BUDGET))?;
    Ok(Verdict { read: least(&times[0]), optimized: least(&times[1]) })
}

/// A name for two plans: FNV-1a of their texts from two starts.
fn key(texts: &[String; 2]) -> String {
    let hash = |start: u64| {
        let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        texts.iter().flat_map(|t| t.bytes().chain([0])).fold(start, step)
    };
    format!("{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(0x8422_2325_cbf2_9ce4))
}

/// How far the difference of two plans' estimates may be off: kernels that both have are equally wrong in both, the
/// others independently of each other.
fn doubt(plans: [&Plan; 2], library: &Library, model: &CostModel) -> f64 {
    let works = Works::new(library);
    let mut kernels: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (plan, sign) in plans.into_iter().zip([1.0, -1.0]) {
        for k in &plan.kernels {
            let dtype = k.outputs.first().map_or(DType::F32, |v| plan.program.ty(*v).dtype);
            let work = works.kernel(&plan.program, k);
            let seconds = model.seconds(&k.name, dtype, &work);
            let fit = model.fits().kernels.get(&k.name);
            let error = fit.map_or(1.0, |f| f.of(KernelClass::of(&work)).error);
            let nodes = show::signature(&plan.program, k.nodes.iter().copied(), library);
            let entry = kernels.entry(format!("{}: {nodes}", k.name)).or_insert((0.0, 0.0));
            *entry = (entry.0 + sign, seconds * error);
        }
    }
    kernels.values().map(|(count, off)| (count * off).powi(2)).sum::<f64>().sqrt()
}
