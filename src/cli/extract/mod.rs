//! `extract EGRAPH.json[.gz]`: the cheapest program of an e-graph from another tool, with its optimality gap.

pub mod egraphs;

use super::common::{Common, Findings};
use anyhow::{anyhow, bail};
use clap::ValueEnum;
use egraphs::{EGraph, LARGEST, parse};
use mlc_extract::{Anytime, Exact, ExtractError, Extraction, Extractor, GreedyDag, Stop};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The e-graph, in the JSON form of egraph-serialize; may be gzipped.
    egraph: PathBuf,
    /// How to search.
    #[arg(long, value_enum, default_value = "anytime")]
    solver: Solver,
    /// Seconds after which the best program so far is taken.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    deadline: f64,
    /// Most steps of the search; where they end before the deadline, a run can be repeated exactly.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Ways to search.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Solver {
    /// Greedy over the DAG with local improvement, and a quick lower bound.
    Greedy,
    /// Exact search and neighbourhoods in turns, until the optimum is proven or time is over.
    Anytime,
    /// Branch and bound alone, until the optimum is proven or time is over.
    Exact,
}

#[derive(Serialize)]
struct ExtractionReport {
    nodes: usize,
    classes: usize,
    roots: usize,
    solver: String,
    cost: f64,
    lower_bound: f64,
    gap: f64,
    proven: bool,
    steps: u64,
    seconds: f64,
    /// The chosen node of each class that the program needs.
    choices: BTreeMap<String, String>,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    args.common.begin(&[("EGRAPH", &args.egraph)], &[])?;
    let deadline = Duration::try_from_secs_f64(args.deadline).map_err(|e| {
        let given = args.deadline;
        anyhow!("`--deadline {given}` is not a number of seconds: {e}\nhelp: give zero or more, as in `--deadline 2.5`")
    })?;
    let path = args.egraph.display();
    let graph = parse(&read(&args.egraph)?);
    let graph = graph.map_err(|e| anyhow!("{path}: {e}\nhelp: {}", e.help()))?;
    let bar = args.common.screen.progress("s", deadline.as_secs() as usize);
    let start = Instant::now();
    let stop = || {
        bar.set_position(start.elapsed().as_secs());
        start.elapsed() >= deadline
    };
    let found = search(&args, &graph, &stop).map_err(|e| named(&e, &graph))?;
    let seconds = start.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let solver = format!("{:?}", args.solver).to_lowercase();
    let report = report(&graph, &found, solver, seconds)?;
    args.common.report(&report)?;
    args.common.screen.print(&human(&report))?;
    Ok(Findings::Nothing)
}

/// The bytes of a file, of which more than [`LARGEST`] are never read.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = mlc_files::bytes(path, LARGEST).map_err(|e| mlc_files::error("read", path, e))?;
    if bytes.is_empty() {
        bail!(
            "{} is empty\nhelp: give an e-graph in the JSON form of egraph-serialize",
            path.display()
        );
    }
    Ok(bytes)
}

fn search(args: &Args, graph: &EGraph, stop: Stop<'_>) -> Result<Extraction, ExtractError> {
    let steps = args.steps.unwrap_or(u64::MAX);
    let threads = args.common.threads().min(2);
    let extractor: &dyn Extractor = match args.solver {
        Solver::Greedy => &args.steps.map_or(GreedyDag::default(), |steps| GreedyDag { steps }),
        Solver::Anytime => &Anytime { steps, threads },
        Solver::Exact => &Exact { steps, ..Exact::default() },
    };
    extractor.search(&graph.view, None, stop)
}

/// The error with the names of the file.
fn named(error: &ExtractError, graph: &EGraph) -> anyhow::Error {
    match error {
        ExtractError::Uncomputable { root } => anyhow!(
            "root `{}` cannot be computed: every choice of nodes for it needs a class without nodes, or itself\n\
             help: give each class that it needs a node whose children can be computed",
            graph.classes[root.index()]
        ),
        ExtractError::Incumbent(e) => anyhow!("{e}"),
    }
}

fn report(
    graph: &EGraph,
    found: &Extraction,
    solver: String,
    seconds: f64,
) -> anyhow::Result<ExtractionReport> {
    let view = &graph.view;
    let chosen = found.solution.topological(view)?.into_iter().map(|node| {
        let class = view.class_of(node);
        (graph.classes[class.index()].clone(), graph.nodes[node.index()].clone())
    });
    Ok(ExtractionReport {
        nodes: view.node_count(),
        classes: view.class_count(),
        roots: view.roots().len(),
        solver,
        cost: found.cost.seconds(),
        lower_bound: found.lower_bound.seconds(),
        gap: found.gap(),
        proven: found.proven(),
        steps: found.steps,
        seconds,
        choices: chosen.collect(),
    })
}

fn human(r: &ExtractionReport) -> String {
    let verdict = match r.gap {
        _ if r.proven => "proven optimal".to_string(),
        small if small < 1e-4 => format!("gap {:.1e} %: not proven optimal", 100.0 * small),
        gap => format!("gap {:.2} %: not proven optimal", 100.0 * gap),
    };
    format!(
        "e-graph      {} nodes, {} classes, {} root{}\n\
         cost         {:.6} of {} chosen nodes\n\
         lower bound  {:.6}, {verdict}\n\
         time         {:.2} s with {}, {} steps of proof\n",
        r.nodes,
        r.classes,
        r.roots,
        if r.roots == 1 { "" } else { "s" },
        r.cost,
        r.choices.len(),
        r.lower_bound,
        r.seconds,
        r.solver,
        r.steps
    )
}
