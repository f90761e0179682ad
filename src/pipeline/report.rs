//! The report of the pipeline, as text and as JSON.

use crate::pipeline::costing::Measured;
use crate::pipeline::evaluation::{CLOSE, Candidate, Evaluation};
use crate::pipeline::options::Objective;
use crate::pipeline::selfcheck::report::{SelfCheck, TurnedOff};
use mlc_dsl::ir::{NodeKind, Program};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_explore::{Explored, Extracted, LawProfile};
use mlc_extract::Size;
use mlc_extract::cost::target::VIEW;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Seconds that a runtime takes to start a node. Prices are those of kernels, without the nodes that compute shapes.
const LAUNCH: f64 = 1e-6;

/// What happened, for people and programs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Nodes of the model before.
    pub nodes_before: usize,
    /// Nodes of the model after.
    pub nodes_after: usize,
    /// Kernels of the program as read.
    #[serde(skip)]
    pub kernels_before: usize,
    /// Core operators before.
    pub operators_before: usize,
    /// Core operators after.
    pub operators_after: usize,
    /// Estimated seconds before; where extents are open, the mean over the sizes.
    pub cost_before: f64,
    /// Estimated seconds after; where extents are open, that times the mean over the sizes of what part of the time before is left.
    pub cost_after: f64,
    /// Both at each size, where extents are open.
    pub sizes: Vec<SizeReport>,
    /// How far the extracted program may be from the cheapest of the e-graph: `(cost - bound) / cost`.
    pub gap: f64,
    /// The target.
    pub target: String,
    /// Where the costs of its kernels are from.
    pub cost_model: String,
    /// Whether these are others than the target's text has.
    #[serde(skip)]
    pub cost_model_given: bool,
    /// Medians of the plans that were timed, the chosen one first; empty if none were.
    pub measured: Vec<Measured>,
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
    /// Bytes of the plan's buffers alive at once: no placement takes less.
    pub alive_bytes: Option<u64>,
    /// No order of the plan's kernels has fewer bytes alive at once.
    pub least_bytes: Option<u64>,
    /// The planned peak of the program as read.
    pub peak_bytes_before: Option<u64>,
    /// Bytes of the constants of the program as read.
    pub weights_bytes_before: u64,
    /// Bytes of the constants that the result stores.
    pub weights_bytes: u64,
    /// What was to be least.
    pub objective: String,
    /// That figure of the program as read, in seconds or bytes; symbols at their nominal value.
    pub objective_before: f64,
    /// That figure of the result.
    pub objective_after: f64,
    /// Peak memory of this process in bytes, where the system tells.
    pub peak_process_bytes: Option<u64>,
    /// Largest relative error of the self-check on ordinary inputs and the user's; `None` if it did not run.
    pub self_check_error: Option<f64>,
    /// What the self-check compared; `None` if it did not run.
    pub self_check: Option<SelfCheck>,
    /// Laws that were turned off, as the result was wrong with them.
    pub laws_turned_off: Vec<TurnedOff>,
    /// The result is the program as read.
    pub as_read: bool,
    /// Why the program was kept as read: the result was wrong, and no law could be blamed.
    pub kept_as_read: Option<String>,
    /// What the user should know besides.
    pub notes: Vec<String>,
    /// Bodies of the nodes that are kept, each with what optimising it found. Seconds, laws and the proof are of these, too.
    pub bodies: Vec<BodyReport>,
}

/// What optimising a body of control flow found.
#[derive(Clone, Debug, Serialize)]
pub struct BodyReport {
    /// Which body.
    pub place: String,
    /// It is best as it is.
    pub is_kept: bool,
    /// What happened.
    #[serde(flatten)]
    pub report: Report,
    /// What every law did.
    #[serde(skip)]
    pub profiles: Vec<(u32, LawProfile)>,
}

/// What a program whose extents are open takes at one size.
#[derive(Clone, Debug, Serialize)]
pub struct SizeReport {
    /// The extents of its symbols.
    pub size: String,
    /// Estimated seconds of the program as read.
    pub before: f64,
    /// Estimated seconds of the result.
    pub after: f64,
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

impl Report {
    /// Adds what optimising a body of the model found.
    pub(crate) fn add_body(&mut self, body: BodyReport) {
        let add = |to: &mut BTreeMap<String, usize>, from: &BTreeMap<String, usize>| {
            from.iter().for_each(|(law, n)| *to.entry(law.clone()).or_default() += n);
        };
        add(&mut self.laws, &body.report.laws);
        if !body.is_kept {
            add(&mut self.proof, &body.report.proof);
        }
        for (stage, seconds) in &body.report.seconds {
            *self.seconds.entry(stage.clone()).or_default() += seconds;
        }
        self.bodies.push(body);
    }

    /// True if the result is estimated to be faster than what was read, and at no size slower, although it is written as so many nodes more.
    ///
    /// A runtime starts one kernel for a node that is read as a composition of several: what these take to start was never lost.
    pub(crate) fn gains(&self, more_nodes: usize) -> bool {
        let composed = self.kernels_before.saturating_sub(self.nodes_before);
        let launches = LAUNCH * (more_nodes + composed) as f64;
        let slower = |s: &SizeReport| s.after + launches > s.before * (1.0 + CLOSE);
        self.cost_after + launches < self.cost_before * (1.0 - CLOSE)
            && !self.sizes.iter().any(slower)
    }

    /// Figures of the program as read and of the chosen one.
    pub(crate) fn figures(
        &mut self,
        evaluation: &Evaluation<'_>,
        weights: u64,
        chosen: &Candidate,
    ) {
        let (options, plain) = (evaluation.options, evaluation.plain());
        let seconds = plain.at_sizes.iter().zip(&chosen.at_sizes);
        let size = |(size, (before, after)): (&Size, (&f64, &f64))| SizeReport {
            size: size.to_string(),
            before: *before,
            after: *after,
        };
        self.sizes = match plain.at_sizes.len() {
            1 => vec![],
            _ => evaluation.prices.sizes().zip(seconds).map(size).collect(),
        };
        let kernels = plain.plan.kernels.iter();
        self.kernels_before = kernels.filter(|k| k.name != VIEW).count();
        // A sum of nothing is -0.
        (self.cost_before, self.cost_after) = (plain.seconds + 0.0, chosen.seconds + 0.0);
        self.target = options.target.clone();
        self.objective = options.objective.name().to_string();
        self.objective_before = match options.objective {
            Objective::Size => weights as f64,
            Objective::Latency | Objective::Memory => plain.figure,
        };
        self.objective_after = chosen.figure;
        self.peak_bytes = chosen.plan.peak_bytes();
        self.alive_bytes = self.peak_bytes.map(|_| chosen.plan.memory.alive);
        self.least_bytes = self.peak_bytes.map(|_| chosen.plan.memory.least);
        self.peak_bytes_before = plain.plan.peak_bytes();
        (self.weights_bytes_before, self.weights_bytes) = (weights, chosen.weights);
    }
}

/// What exploration and extraction tell.
pub(crate) fn report(
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
        *proof.entry(crate::names::reason(library, step.reason)).or_default() += 1;
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
