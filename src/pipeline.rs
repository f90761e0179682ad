//! The pipeline: a program in, a cheaper equal program and its plan out, each stage its own type.

use crate::explore::{Explored, Extracted, Limits, explore};
use crate::prices::TargetPrices;
use crate::repeat::{Repeat, Repeated};
use crate::{constants, selfcheck};
use anyhow::Context;
use mlc_dsl::ir::{NodeKind, Program};
use mlc_dsl::library::{CallId, ErrorClass, Law, LawOrigin, Library, TargetItem};
use mlc_dsl::plan::Plan;
use mlc_extract::{Anytime, Exact, ExtractError, Extraction, Extractor, GreedyDag, Solution, View};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which laws may fire, by how far they may stray.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Fp {
    /// Same bits.
    Exact,
    /// Same real function, differently rounded.
    #[default]
    Reorder,
    /// Other functions within the laws' stated bounds.
    Approx,
}

impl Fp {
    /// True if a law of this class may fire.
    pub fn admits(self, class: ErrorClass) -> bool {
        match class {
            ErrorClass::Exact => true,
            ErrorClass::Reorder => self != Fp::Exact,
            ErrorClass::Approx { .. } => self == Fp::Approx,
        }
    }
}

/// How the cheapest program is searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Solver {
    /// Greedy over the DAG with local improvement, and a quick lower bound.
    Greedy,
    /// Exact search and neighbourhoods in turns, until the optimum is proven or the budget is spent.
    #[default]
    Anytime,
    /// Branch and bound alone, until the optimum is proven or the budget is spent.
    Exact,
}

/// Steps of an exact search without a deadline: about half a minute.
const EXACT_STEPS: u64 = 1_000_000_000;

/// An extractor that ends at a deadline, if there is one; without one it ends after a number of steps, so
/// that every run has the same result.
struct Budgeted {
    solver: Solver,
    deadline: Option<Duration>,
    threads: usize,
}

impl Extractor for Budgeted {
    fn extract(&self, view: &View, incumbent: Option<&Solution>) -> Result<Solution, ExtractError> {
        Ok(self.search(view, incumbent, &|| false)?.solution)
    }

    fn search(
        &self,
        view: &View,
        incumbent: Option<&Solution>,
        stop: mlc_extract::Stop<'_>,
    ) -> Result<Extraction, ExtractError> {
        let began = Instant::now();
        let over = || stop() || self.deadline.is_some_and(|d| began.elapsed() >= d);
        let endless = |steps: u64| if self.deadline.is_some() { u64::MAX } else { steps };
        let threads = self.threads.clamp(1, 2);
        match self.solver {
            Solver::Greedy => GreedyDag::default().search(view, incumbent, &over),
            Solver::Anytime => {
                let steps = endless(Anytime::default().steps);
                Anytime { steps, threads }.search(view, incumbent, &over)
            }
            Solver::Exact => {
                let steps = endless(EXACT_STEPS);
                Exact { steps, ..Exact::default() }.search(view, incumbent, &over)
            }
        }
    }
}

/// What the user decides.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the target.
    pub target: String,
    /// Which laws may fire.
    pub fp: Fp,
    /// Limits of exploration.
    pub limits: Limits,
    /// Laws that must not fire, by name.
    pub without: Vec<String>,
    /// Operators that the result may have; `None` for all that the target computes.
    pub operators: Option<HashSet<CallId>>,
    /// How the cheapest program is searched for.
    pub solver: Solver,
    /// Time for that, in place of a number of steps; each part of a program that repeats a block has it.
    pub deadline: Option<Duration>,
    /// Explore a block that the program repeats once for all its copies.
    pub share_blocks: bool,
    /// Hold the result against the source on seeded inputs.
    pub self_check: bool,
    /// Seed of the self-check.
    pub seed: u64,
    /// Threads of the self-check's runs.
    pub threads: usize,
}

impl Options {
    fn extractor(&self) -> Budgeted {
        Budgeted { solver: self.solver, deadline: self.deadline, threads: self.threads }
    }
}

/// What a run of the pipeline yields.
pub struct Optimized {
    /// The program as read.
    pub source: Program,
    /// The cheaper program, constants folded.
    pub program: Program,
    /// Its kernels on the target.
    pub plan: Plan,
    /// The e-graph, with the log that proves the result.
    pub explored: Explored,
    /// What was extracted, before constants were folded.
    pub extracted: Extracted,
    /// What happened.
    pub report: Report,
}

/// What happened, for people and programs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Nodes of the model before.
    pub nodes_before: usize,
    /// Nodes of the model after.
    pub nodes_after: usize,
    /// Core operators before.
    pub operators_before: usize,
    /// Core operators after.
    pub operators_after: usize,
    /// Estimated seconds before.
    pub cost_before: f64,
    /// Estimated seconds after.
    pub cost_after: f64,
    /// How far the extracted program may be from the cheapest of the e-graph: `(cost - bound) / cost`.
    pub gap: f64,
    /// The target.
    pub target: String,
    /// Kernels of the plan.
    pub kernels: Vec<KernelReport>,
    /// How often each law made something new known.
    pub laws: BTreeMap<String, usize>,
    /// Laws that the result rests on, with the number of their equations in its proof.
    pub proof: BTreeMap<String, usize>,
    /// Why exploration ended.
    pub stop_reason: String,
    /// Size of the e-graph.
    pub egraph: GraphReport,
    /// Seconds per stage, in order.
    pub seconds: BTreeMap<String, f64>,
    /// Planned peak of intermediate buffers in bytes, if extents are known.
    pub peak_bytes: Option<u64>,
    /// Peak memory of this process in bytes, where the system tells.
    pub peak_process_bytes: Option<u64>,
    /// Largest relative error of the self-check; `None` if it did not run.
    pub self_check_error: Option<f64>,
    /// What the user should know besides.
    pub notes: Vec<String>,
}

/// One kernel of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// Its name in the backend's registry.
    pub name: String,
    /// The operators it covers.
    pub nodes: Vec<String>,
}

/// The size of an e-graph.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GraphReport {
    /// Nodes.
    pub nodes: usize,
    /// Classes.
    pub classes: usize,
    /// Nodes after each round.
    pub rounds: Vec<usize>,
}

/// How often a run is repeated without the laws that a failed self-check blames.
const REPEATS: usize = 3;

/// Runs all stages on a program. If the self-check fails, the proof is replayed numerically, the laws
/// whose equations do not hold are turned off, which the report says, and the run is repeated.
pub fn optimize(
    source: Program,
    library: &Arc<Library>,
    options: &Options,
) -> anyhow::Result<Optimized> {
    let mut options = options.clone();
    let mut notes = Vec::new();
    for _ in 0..REPEATS {
        let mut optimized = optimize_once(source.clone(), library, &options)?;
        let unread = source.consts.unread();
        if unread > 0 {
            optimized.report.notes.push(format!(
                "{:.0} GiB of weights are not read: no law computes with them, and the self-check is left out",
                unread as f64 / (1u64 << 30) as f64
            ));
        }
        if !options.self_check || unread > 0 {
            return Ok(optimized);
        }
        let mut clock = Clock::default();
        let checked =
            selfcheck::compare(&source, &optimized.program, library, options.seed, options.threads);
        let failure = match checked {
            Ok(error) => {
                clock.stage("self-check");
                optimized.report.self_check_error = Some(error);
                optimized.report.seconds.extend(clock.stages);
                optimized.report.peak_process_bytes = peak_process_bytes();
                optimized.report.notes.extend(notes);
                return Ok(optimized);
            }
            Err(e) => e,
        };
        let blamed = crate::explain::blame(&optimized, library, options.seed, options.threads)?;
        if blamed.is_empty() {
            return Err(failure);
        }
        for law in blamed {
            notes.push(format!(
                "law `{law}` was turned off: the self-check found it to equate different values here"
            ));
            options.without.push(law);
        }
    }
    anyhow::bail!("the self-check still fails without the laws that it blames; nothing is written")
}

fn optimize_once(
    source: Program,
    library: &Arc<Library>,
    options: &Options,
) -> anyhow::Result<Optimized> {
    let mut clock = Clock::default();
    let target = target(library, &options.target)?;
    let laws = active_laws(library, &target, options)?;
    let prices = TargetPrices::new(library, &target, options.operators.clone());
    let mut notes = Vec::new();
    let shared = if options.share_blocks {
        shared(&source, library, &laws, options, &prices, &mut clock)?
    } else {
        None
    };
    // Where little is to be explored, the whole shows what only all copies together allow.
    let is_small = |e: &Explored, copies: usize| e.size().0 * copies / KEPT <= options.limits.nodes;
    let settled = shared.as_ref().is_some_and(|s| !is_small(&s.explored, s.copies));
    let whole = (!settled).then(|| -> anyhow::Result<(Explored, Extracted)> {
        let mut explored = explore(library.clone(), source.clone(), &laws, &options.limits);
        clock.stage("explore");
        let extracted = explored.extract(&prices, &options.extractor())?;
        clock.stage("extract");
        Ok((explored, extracted))
    });
    let (explored, extracted) = match (shared, whole.transpose()?) {
        (Some(s), Some(whole)) if whole.1.cost < s.extracted.cost * (1.0 - SAME) => whole,
        (Some(s), _) => {
            notes.push(s.note());
            (s.explored, s.extracted)
        }
        (None, Some(whole)) => whole,
        (None, None) => anyhow::bail!("nothing was explored"),
    };
    let plain = plan(&source, library, &target)?;
    let mut program = constants::fold(&extracted.program, library)?;
    clock.stage("constants");
    let mut chosen = mlc_extract::cover::cover(program.clone(), library, &target);
    if chosen.cost > plain.cost && options.operators.is_none() {
        // Operators are priced one by one while they are chosen; kernels have the last word.
        notes.push("the program as read is the cheapest found: it is kept".to_string());
        (program, chosen) = (plain.program.clone(), plain.clone());
    }
    clock.stage("plan");
    let mut report = report(&source, &program, &explored, &extracted, library);
    (report.cost_before, report.cost_after) = match options.operators {
        None => (plain.cost, chosen.cost),
        Some(_) => (
            prices.program(&source).unwrap_or(plain.cost),
            prices.program(&program).unwrap_or(extracted.cost),
        ),
    };
    report.gap = match extracted.cost > 0.0 {
        true => (1.0 - extracted.lower_bound / extracted.cost).max(0.0),
        false => 0.0,
    };
    report.target = options.target.clone();
    report.kernels = kernels(&chosen, library);
    report.peak_bytes = chosen.peak_bytes;
    report.notes = notes;
    clock.stage("report");
    report.seconds = clock.stages;
    report.peak_process_bytes = peak_process_bytes();
    Ok(Optimized { source, program, plan: chosen, explored, extracted, report })
}

/// Steps that extraction may take to compare the places where a block can be cut.
const QUICK: GreedyDag = GreedyDag { steps: 1_000_000 };

/// Copies of a block that are explored for all of them.
const KEPT: usize = 4;

/// Costs that differ by no more than this part are equal.
const SAME: f64 = 1e-9;

/// What exploring a block once for all of its copies found.
struct Shared {
    explored: Explored,
    extracted: Extracted,
    copies: usize,
    operators: usize,
}

impl Shared {
    fn note(&self) -> String {
        let (copies, operators) = (self.copies, self.operators);
        format!(
            "a block of {operators} operators occurs {copies} times: explored once for all copies"
        )
    }
}

/// Explores a repeated block once for all its copies. Nothing if there is none, or if the program as read
/// is cheaper than what that finds.
fn shared(
    source: &Program,
    library: &Arc<Library>,
    laws: &[u32],
    options: &Options,
    prices: &TargetPrices<'_>,
    clock: &mut Clock,
) -> anyhow::Result<Option<Shared>> {
    let Some(repeat) = Repeat::find(source) else { return Ok(None) };
    clock.stage("find blocks");
    let mut repeated = Repeated::explore(source, repeat, library, laws, &options.limits);
    clock.stage("explore");
    let extracted = repeated.extract(source, prices, &QUICK, &options.extractor())?;
    clock.stage("extract");
    let better = extracted.source_cost.is_none_or(|before| extracted.cost <= before);
    let (copies, operators) = repeated.size();
    Ok(better.then_some(Shared { explored: repeated.explored, extracted, copies, operators }))
}

/// The plan of a program as it stands: constants folded, definitions without a kernel expanded.
pub fn plan(program: &Program, library: &Library, target: &TargetItem) -> anyhow::Result<Plan> {
    let folded = constants::fold(&constants::unfold(program, library, target)?, library)?;
    Ok(mlc_extract::cover::cover(folded, library, target))
}

/// The target of a name.
pub fn target(library: &Library, name: &str) -> anyhow::Result<TargetItem> {
    library.target(name).cloned().with_context(|| {
        let known: Vec<&str> = library.targets.iter().map(|t| &*t.name).collect();
        format!("there is no target `{name}`; known are {}", known.join(", "))
    })
}

/// The laws that may fire. A layer's own kernel rounds otherwise than the kernels of its body: under
/// `exact` such a layer stays as it is read.
fn active_laws(
    library: &Library,
    target: &TargetItem,
    options: &Options,
) -> anyhow::Result<Vec<u32>> {
    let has_kernel = |l: &Law| {
        let layer = l.name.strip_suffix(".rev").unwrap_or(&l.name);
        matches!(l.origin, LawOrigin::Fold | LawOrigin::Unfold)
            && library
                .find(layer)
                .is_some_and(|c| target.kernels.iter().any(|k| k.covers.contains(&c)))
    };
    for name in &options.without {
        let known = library.laws.iter().any(|l| &*l.name == name.as_str());
        anyhow::ensure!(known, "there is no law `{name}`");
    }
    let active = library.laws.iter().enumerate().filter(|(_, l)| {
        options.fp.admits(l.error)
            && !(options.fp == Fp::Exact && has_kernel(l))
            && !options.without.iter().any(|w| **w == *l.name)
    });
    Ok(active.map(|(i, _)| i as u32).collect())
}

fn report(
    source: &Program,
    program: &Program,
    explored: &Explored,
    extracted: &Extracted,
    library: &Library,
) -> Report {
    let (nodes, classes) = explored.size();
    let fired = explored.profiles.iter().filter(|(_, p)| p.applications > 0);
    let name = |i: u32| library.laws[i as usize].name.to_string();
    let mut proof: BTreeMap<String, usize> = BTreeMap::new();
    for step in explored.prove(extracted).into_iter().flat_map(|p| p.steps) {
        *proof.entry(crate::explain::reason(library, step.reason)).or_default() += 1;
    }
    Report {
        operators_before: operators(source),
        operators_after: operators(program),
        nodes_before: operators(source),
        nodes_after: operators(program),
        laws: fired.map(|(i, p)| (name(*i), p.applications)).collect(),
        proof,
        stop_reason: explored.stop.to_string(),
        egraph: GraphReport { nodes, classes, rounds: explored.sizes.clone() },
        ..Report::default()
    }
}

/// Operator applications of a program.
pub fn operators(program: &Program) -> usize {
    program.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Apply(..))).count()
}

/// The kernels of a plan, by name and operators.
pub fn kernels(plan: &Plan, library: &Library) -> Vec<KernelReport> {
    let name = |n| library.node_name(&plan.program, n);
    plan.kernels
        .iter()
        .map(|k| KernelReport {
            name: k.name.clone(),
            nodes: k.nodes.iter().map(|&n| name(n)).collect(),
        })
        .collect()
}

/// Names and times stages.
pub struct Clock {
    last: Instant,
    /// Seconds by stage.
    pub stages: BTreeMap<String, f64>,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { last: Instant::now(), stages: BTreeMap::new() }
    }
}

impl Clock {
    /// Ends a stage; one that comes again goes on.
    pub fn stage(&mut self, name: &str) {
        let now = Instant::now();
        *self.stages.entry(name.to_string()).or_default() += (now - self.last).as_secs_f64();
        self.last = now;
    }
}

/// The process's largest resident size so far, on Linux.
pub fn peak_process_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
