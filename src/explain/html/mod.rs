//! An explanation as one stand-alone page: the model as read and the result as planned, drawn side by side, with the laws,
//! prices and proofs behind every kernel.
//!
//! The page loads nothing, holds no weights, and is the same for the same result. All that it says is computed here; its script
//! draws and searches.

mod bodies;
mod drawn;
pub(super) mod errors;
pub(super) mod laws;
mod layout;
mod nodes;
mod pair;
mod planned;
pub(super) mod prices;
mod read;
mod repeats;
mod steps;

use super::regions::{KernelLine, Region, lines};
use super::{Explanation, noted, priced, searches, told};
use crate::error::Error;
use crate::explain::apart::Apart;
use crate::kernel_times::KernelTime;
use crate::pipeline::Optimized;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::options::Options;
use crate::svg::escaped;
use bodies::Body;
use drawn::Drawn;
use errors::Runs;
use laws::{Barred, Law};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::cost::target::{TargetPrices, VIEW};
use mlc_onnx::RawModel;
pub(super) use pair::page as pair_page;
use planned::Link;
use prices::{Kernels, Other};
use read::LeftOut;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use steps::{Drawing, Step};

const HTML: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
/// What all pages begin their script with; parts stand in the order in which they use each other.
const COMMON: [&str; 3] =
    [include_str!("base.js"), include_str!("graph.js"), include_str!("frame.js")];
/// The rest of the page of one model.
const SCRIPT: [&str; 4] = [
    include_str!("sides.js"),
    include_str!("panel.js"),
    include_str!("tables.js"),
    include_str!("page.js"),
];

/// The version of the data in the page.
const VERSION: u32 = 1;

/// What a page is of.
pub struct Asked<'a> {
    /// What the model is called.
    pub title: &'a str,
    /// Its file, if it has one.
    pub raw: Option<&'a RawModel>,
    /// Times of the result's kernels, if they were taken.
    pub measured: Option<&'a [KernelTime]>,
    /// The explanation with what each law gains, if that was tried.
    pub gains: Option<&'a Explanation>,
}

/// All that the page says.
#[derive(Serialize)]
struct Page<'a> {
    version: u32,
    title: &'a str,
    summary: Summary<'a>,
    model: Side<read::Item>,
    planned: Side<planned::Item>,
    links: Vec<Link>,
    reasons: Vec<String>,
    regions: Vec<RegionItem<'a>>,
    laws: Vec<Law>,
    steps: Vec<Step>,
    drawings: Vec<Drawing>,
    /// Steps that are told without a drawing since there are too many.
    undrawn: usize,
    left_out: Vec<LeftOut>,
    /// By the node that holds them.
    bodies: BTreeMap<String, Vec<Body>>,
    searches: Vec<Search>,
    barred: Vec<Barred>,
}

/// One side: its items, and where they are drawn.
#[derive(Serialize)]
struct Side<T> {
    items: Vec<T>,
    drawn: Drawn,
}

/// Before and after.
#[derive(Serialize)]
struct Summary<'a> {
    target: &'a str,
    cost_model: &'a str,
    fp: String,
    objective: &'a str,
    is_kept: bool,
    cost: (f64, f64),
    kernels: (usize, usize),
    operators: (usize, usize),
    peak_bytes: Option<(u64, u64)>,
    weights_bytes: (u64, u64),
    is_measured: bool,
    stop: &'a str,
    gap: f64,
    notes: &'a [String],
    self_check: Value,
    self_check_error: Option<f64>,
}

/// A region, with its steps and what the kernels as read would take.
#[derive(Serialize)]
struct RegionItem<'a> {
    #[serde(flatten)]
    region: &'a Region,
    unchanged: bool,
    /// The steps of the proof that were taken here.
    proof: Vec<usize>,
    /// The kernels as read, in place of those of the result, in one copy.
    as_read: Option<Other>,
}

/// The history of a search.
#[derive(Serialize)]
struct Search {
    stop: String,
    nodes: usize,
    classes: usize,
    /// Nodes after each round.
    rounds: Vec<usize>,
    /// By round, the equations that laws asserted.
    equations: Vec<usize>,
    /// Laws that asserted equations: name, matches, equations.
    laws: Vec<(String, usize, usize)>,
}

/// The page of a result.
///
/// # Errors
/// The program as read cannot be planned.
pub fn page(
    o: &Optimized,
    library: &Arc<Library>,
    options: &Options,
    asked: &Asked<'_>,
) -> Result<String, Error> {
    let evaluation = Evaluation::new(options, library, &o.source)?;
    let (before, after) = priced(o, &evaluation);
    let noted = noted(o, library);
    let own;
    let explanation = match asked.gains {
        Some(known) => known,
        None => {
            own = told(o, library, (&before, &after), &noted);
            &own
        }
    };
    let prices = evaluation.prices.first();
    let regions = read::by_name(&explanation.regions);
    let (old, new) = (lines(library, &before), lines(library, &after));
    let mut model = read::model_side(&o.source, library, asked.raw, &old, &new, &regions);
    let joined = laws::joined(o, library, prices);
    let result = Apart { plan: &o.plan, library, prices, target: &options.target, joined: &joined };
    let planned = result.side(&new, &regions, asked.measured);
    // Kernels stand behind the inputs.
    let first = o.plan.program.inputs.len();
    model.items.iter_mut().flat_map(|i| &mut i.kernels).for_each(|k| *k += first);
    let names = laws::names(noted.iter().map(|n| &*n.name));
    let law = |name: &str| names.iter().position(|n| n == name).expect("it is one of them");
    let runs = Runs { library, seed: options.seed, threads: options.threads };
    let steps = steps::steps(&noted, &runs, prices, &model.known, &law);
    let rivals = rivals(explanation, &regions, ((before.plan, &old), (after.plan, &new)), prices);
    let left_out = asked.raw.map(|raw| read::left_out(raw, library, &model)).unwrap_or_default();
    let page = Page {
        version: VERSION,
        title: asked.title,
        summary: summary(o, options, (before.plan, after.plan), asked.measured.is_some()),
        regions: region_items(explanation, rivals, &steps.steps, &model.items),
        laws: laws::laws(&names, library, explanation, &steps.steps, &steps.drawings),
        model: Side { drawn: model.graph.drawn(), items: model.items },
        planned: Side { drawn: planned.graph.drawn(), items: planned.items },
        links: planned.links,
        reasons: planned.reasons,
        steps: steps.steps,
        drawings: steps.drawings,
        undrawn: steps.undrawn,
        left_out,
        bodies: asked.raw.map(bodies::bodies).unwrap_or_default(),
        searches: history(o, library),
        barred: laws::barred(o, library, options),
    };
    let script: Vec<&str> = COMMON.into_iter().chain(SCRIPT).collect();
    Ok(written(asked.title, "explained", &script, &page))
}

/// A page with its data, which no text in them can leave.
fn written(title: &str, what: &str, script: &[&str], page: &impl Serialize) -> String {
    let data = serde_json::to_string(page).unwrap_or_else(|e| panic!("it has no odd keys: {e}"));
    // In JSON a less-than sign is only in strings.
    let data = data.replace('<', "\\u003c");
    // In one pass, since a title may be called like a part.
    let mut out = String::with_capacity(data.len() + (1 << 16));
    let mut rest = HTML;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out.push_str(before);
        match name {
            "title" => out.push_str(&escaped(title)),
            "css" => out.push_str(CSS),
            "what" => out.push_str(what),
            "script" => script.iter().for_each(|part| out.push_str(part)),
            _ => out.push_str(&data),
        }
        rest = after;
    }
    out + rest
}

fn summary<'a>(
    o: &'a Optimized,
    options: &'a Options,
    (before, after): (&Plan, &Plan),
    is_measured: bool,
) -> Summary<'a> {
    let r = &o.report;
    let kernels = |p: &Plan| p.kernels.iter().filter(|k| k.name != VIEW).count();
    Summary {
        target: &r.target,
        cost_model: &r.cost_model,
        fp: format!("{:?}", options.fp).to_lowercase(),
        objective: &r.objective,
        is_kept: o.is_kept(),
        cost: (r.cost_before, r.cost_after),
        kernels: (kernels(before), kernels(after)),
        operators: (r.operators_before, r.operators_after),
        peak_bytes: r.peak_bytes_before.zip(r.peak_bytes),
        weights_bytes: (r.weights_bytes_before, r.weights_bytes),
        is_measured,
        stop: &r.stop_reason,
        gap: r.gap,
        notes: &r.notes,
        self_check: serde_json::to_value(&r.self_check).unwrap_or(Value::Null),
        self_check_error: r.self_check_error,
    }
}

/// A plan, and its kernels as they are told.
type Told<'a> = (&'a Plan, &'a [KernelLine]);

/// For each region that changed how its kernels compare to those of the program as read.
fn rivals(
    explanation: &Explanation,
    regions: &HashMap<&str, usize>,
    (before, after): (Told<'_>, Told<'_>),
    prices: &TargetPrices<'_>,
) -> Vec<Option<Other>> {
    let count = explanation.regions.len();
    let gathered = |(plan, lines): Told<'_>| {
        let mut all = vec![Kernels::default(); count];
        for (kernel, line) in plan.kernels.iter().zip(lines) {
            let first = line.nodes.first();
            let Some((node, &at)) = first.and_then(|n| Some((n, regions.get(&**n)?))) else {
                continue;
            };
            // One copy stands for all; what takes no time is computed before the first run, or is a view.
            if explanation.regions[at].nodes.contains(node)
                && kernel.name != VIEW
                && line.seconds > 0.0
            {
                all[at].push(&plan.program, kernel, prices);
            }
        }
        all
    };
    let (old, new) = (gathered(before), gathered(after));
    let changed = |i: usize| !explanation.regions[i].is_unchanged();
    (0..count).map(|i| changed(i).then(|| new[i].against(&old[i], prices))).collect()
}

fn region_items<'a>(
    explanation: &'a Explanation,
    rivals: Vec<Option<Other>>,
    steps: &[Step],
    items: &[read::Item],
) -> Vec<RegionItem<'a>> {
    let mut proofs = vec![Vec::new(); explanation.regions.len()];
    for (s, step) in steps.iter().enumerate() {
        for region in step.nodes.iter().filter_map(|n| items[*n].region) {
            if proofs[region].last() != Some(&s) {
                proofs[region].push(s);
            }
        }
    }
    let of = |((region, proof), as_read): ((&'a Region, Vec<usize>), Option<Other>)| RegionItem {
        region,
        unchanged: region.is_unchanged(),
        proof,
        as_read,
    };
    explanation.regions.iter().zip(proofs).zip(rivals).map(of).collect()
}

/// What the searches did, round by round.
fn history(o: &Optimized, library: &Library) -> Vec<Search> {
    let search = |(explored, _, _): (&mlc_explore::Explored, _, _)| {
        let (nodes, classes) = explored.size();
        let mut equations = vec![0; explored.sizes.len()];
        let mut laws = Vec::new();
        for (law, profile) in explored.profiles.iter().filter(|(_, p)| p.applications > 0) {
            let own = explored.equations_of(*law);
            for step in &own {
                if let Some(n) = equations.get_mut((step.round as usize).saturating_sub(1)) {
                    *n += 1;
                }
            }
            let name = library.laws[*law as usize].name.to_string();
            laws.push((name, profile.matches, own.len()));
        }
        laws.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(&b.0)));
        let (stop, rounds) = (explored.stop.to_string(), explored.sizes.clone());
        Search { stop, nodes, classes, rounds, equations, laws }
    };
    searches(o).into_iter().map(search).collect()
}
