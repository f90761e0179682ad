//! The search: from a program to the best of the equal programs that exploration finds. Nothing is run or compared here.

use crate::error::Error;
use crate::pipeline::evaluation::{Candidate, Evaluation, distinct, stored};
use crate::pipeline::laws::active_laws;
use crate::pipeline::options::{Fp, Objective, Options};
use crate::pipeline::planning::target;
use crate::pipeline::report::{Clock, kernels, peak_process_bytes, report};
use crate::pipeline::result::{Found, Optimized, Searched};
use crate::pipeline::subnormals;
use mlc_dsl::ir::{NodeId, NodeKind, Program};
use mlc_dsl::library::{CallId, Library};
use mlc_dsl::pattern::{is_early, is_normal};
use mlc_dsl::plan::Plan;
use mlc_explore::constants::folding::{self, ConstantMemo};
use mlc_explore::outline::{OutlinedProgram, RepeatedBlock};
use mlc_explore::progress;
use mlc_explore::{Explored, Extracted, Limits, explore};
use mlc_extract::cost::target::{Jitter, Surrogate, TargetPrices};
use mlc_extract::kernels::selection::select_kernels_with_incumbent;
use mlc_extract::{GreedyDag, Size};
use std::sync::Arc;

/// The best of the programs that exploration finds equal to `source`. Nothing is compared or timed.
///
/// # Errors
/// There is no such target or law; a constant cannot be computed.
pub fn search(source: Program, library: &Arc<Library>, options: &Options) -> Result<Found, Error> {
    let mut clock = Clock::default();
    let target = target(library, &options.target)?;
    let laws = active_laws(library, &target, options, &source)?;
    let model = options.costing.model(&target, &source);
    let mut notes = Vec::new();
    let evaluation = Evaluation::new(options, library, &source)?;
    let plain = evaluation.plain();
    let at = |aim, size: &Size| {
        TargetPrices::new(library, &target, options.operators.clone())
            .with_model(model.clone())
            .with_surrogate(aim)
            .at(size.clone())
    };
    let first = if options.costing.few { Surrogate::OperatorCount } else { Surrogate::Time };
    // What is best at one size may be bad at another: each size has an extraction of its own, and the best for all is kept.
    let mut all: Vec<_> = evaluation
        .prices
        .sizes()
        .map(|size| at(first, size).jittered(options.costing.jitter))
        .collect();
    let main = evaluation.prices.first().works().size().clone();
    all.extend(
        options
            .objective
            .surrogates()
            .into_iter()
            .map(|aim| at(aim, &main).jittered(options.costing.jitter)),
    );
    clock.stage("constants");
    let limits = options.limits.for_gain(plain.seconds);
    let (begun, early) = begin_with(&source, library, &laws, &limits, &all[0])?;
    let begin = begun.as_ref().unwrap_or(&source);
    clock.stage("early laws");
    let shared = if options.share_blocks {
        shared(begin, library, &laws, options, &limits, &all, &mut clock)?
    } else {
        None
    };
    // Where little is to be explored, the whole shows what only all copies together allow.
    let is_small = |e: &Explored, copies: usize| e.size().0 * copies / KEPT <= options.limits.nodes;
    let rest = match &shared {
        Some(s) if s.one_for_all => Some(&s.extracted[0].program),
        Some(s) if !is_small(&s.explored, s.copies) => None,
        _ => Some(begin),
    };
    let whole = rest.map(|program| -> Result<(Explored, Vec<Extracted>), Error> {
        let mut explored = explore(library.clone(), program.clone(), &laws, &limits);
        clock.stage("explore");
        progress::report("extracting", None);
        let extracted = each(&all, |p| explored.extract(p, &*options.extractor_for(p)))?;
        clock.stage("extract");
        Ok((explored, extracted))
    });
    let mut copies = vec![];
    let (explored, extracted) = match (shared, whole.transpose()?) {
        (Some(s), Some(whole)) if whole.1[0].cost < s.extracted[0].cost * (1.0 - SAME) => whole,
        (Some(s), _) => {
            notes.push(s.note());
            copies = s.named(begin);
            (s.explored, s.extracted)
        }
        (None, Some(whole)) => whole,
        (None, None) => return Err(Error::unexpected("nothing was explored")),
    };
    let mut found = distinct(extracted)
        .into_iter()
        .map(|e| Ok((evaluation.of_extracted(&e)?, e)))
        .collect::<Result<Vec<(Candidate, Extracted)>, Error>>()?;
    clock.stage("constants");
    let best = (1..found.len()).fold(0, |best, i| match found[i].0.beats(&found[best].0) {
        true => i,
        false => best,
    });
    let (mut chosen, extracted) = found.swap_remove(best);
    let permitted = extracted.source_cost.is_some()
        || options.objective != Objective::Latency
        || operators_of(&plain.plan.program).all(|c| evaluation.prices.first().permits(c));
    let kept = permitted && options.costing.jitter.is_none() && plain.beats(&chosen);
    if kept {
        // Candidates are bounded and a block's cut is not crossed: the plan has the last word.
        notes.push("the program as read is the best found: it is kept".to_string());
        chosen = plain.clone();
    }
    if options.fp != Fp::Exact {
        notes.extend(subnormals::flush(&mut chosen.plan.program, library).note());
    }
    clock.stage("plan");
    let program = chosen.plan.program.clone();
    let mut report = report(&source, &program, &explored, &extracted, library);
    report.gap = match extracted.cost > 0.0 {
        true => (1.0 - extracted.lower_bound / extracted.cost).max(0.0),
        false => 0.0,
    };
    report.cost_model = model.source.clone();
    report.cost_model_given = options.costing.is_given();
    report.figures(&evaluation, stored(&source), &chosen);
    report.kernels = kernels(&chosen.plan, library);
    report.notes = notes;
    report.as_read = kept;
    if kept {
        report.proof.clear();
    }
    clock.stage("report");
    report.seconds = clock.stages;
    report.peak_process_bytes = peak_process_bytes();
    let as_read = plain.plan.clone();
    let plan = chosen.plan;
    let optimized = Optimized { source, program, plan, explored, extracted, early, copies, report };
    Ok(Found { optimized, as_read })
}

/// What the search begins with, if an early law applies, and how it was found: the result of first searches, each of which begins with that of the one
/// before. Sums of many terms have too many parts for one search to meet them all.
fn begin_with(
    source: &Program,
    library: &Arc<Library>,
    laws: &[u32],
    limits: &Limits,
    prices: &TargetPrices<'_>,
) -> Result<(Option<Program>, Vec<Searched>), Error> {
    let (mut begin, mut searches): (Option<Program>, _) = (None, vec![]);
    for _ in 0..FIRST_SEARCHES {
        let from = begin.as_ref().unwrap_or(source);
        let Some((better, search)) = first_search(from, library, laws, limits, prices)? else {
            break;
        };
        begin = Some(better);
        searches.push(search);
    }
    Ok((begin, searches))
}

/// The result of a search with the early laws and the normal form alone, and the search, if an early law applies.
fn first_search(
    source: &Program,
    library: &Arc<Library>,
    laws: &[u32],
    limits: &Limits,
    prices: &TargetPrices<'_>,
) -> Result<Option<(Program, Searched)>, Error> {
    let law = |l: u32| &library.laws[l as usize];
    let early: Vec<u32> =
        laws.iter().copied().filter(|&l| is_early(law(l)) || is_normal(law(l))).collect();
    if !early.iter().any(|&l| is_early(law(l))) {
        return Ok(None);
    }
    // Most of what these laws make is smaller than what it stands for, but stands beside it.
    let limits = Limits { nodes: limits.nodes.max(GROWTH * source.nodes.len()), ..limits.clone() };
    let mut explored = explore(library.clone(), source.clone(), &early, &limits);
    if !explored.profiles.iter().any(|(l, p)| is_early(law(*l)) && p.applications > 0) {
        return Ok(None);
    }
    let extracted = explored.extract(prices, &QUICK)?;
    let is_better = extracted.source_cost.is_none_or(|before| extracted.cost < before);
    if !is_better {
        return Ok(None);
    }
    Ok(Some((folding::fold(&extracted.program, library)?, (explored, extracted))))
}

/// The operators of a program's applications.
fn operators_of(program: &Program) -> impl Iterator<Item = CallId> {
    program.nodes.iter().filter_map(|n| match n.kind {
        NodeKind::Apply(call, _) => Some(call),
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    })
}

/// One extraction for each of the prices.
fn each<E: Into<Error>>(
    prices: &[TargetPrices<'_>],
    mut extract: impl FnMut(&TargetPrices<'_>) -> Result<Extracted, E>,
) -> Result<Vec<Extracted>, Error> {
    prices.iter().map(|p| extract(p).map_err(Into::into)).collect()
}

/// Plans of one e-graph under prices that are off on purpose, one for each.
pub fn variants(
    source: &Program,
    library: &Arc<Library>,
    options: &Options,
    prices_off: &[Jitter],
) -> Result<Vec<Plan>, Error> {
    let target = target(library, &options.target)?;
    let laws = active_laws(library, &target, options, source)?;
    let model = options.costing.model(&target, source);
    let mut explored = explore(library.clone(), source.clone(), &laws, &options.limits);
    let mut memo = ConstantMemo::default();
    let mut plan = |jitter: &Jitter| {
        let prices = TargetPrices::new(library, &target, options.operators.clone())
            .with_model(model.clone())
            .jittered(Some(*jitter));
        let extracted = explored.extract(&prices, &QUICK)?;
        let Extracted { program, kernels, .. } = &extracted;
        let (program, chosen) =
            folding::fold_keeping_kernels(program, kernels, library, &mut memo)?;
        let prices = TargetPrices::new(library, &target, None).with_model(model.clone());
        Ok(select_kernels_with_incumbent(program, &chosen, library, &prices))
    };
    prices_off.iter().map(&mut plan).collect()
}

/// First searches at most.
const FIRST_SEARCHES: usize = 8;

/// Nodes of the first search for each of the program.
const GROWTH: usize = 6;

/// Steps that extraction may take to compare the places where a block can be cut.
const QUICK: GreedyDag = GreedyDag { steps: 1_000_000 };

/// Copies of a block that are explored for all of them.
const KEPT: usize = 4;

/// Costs that differ by no more than this part are equal.
const SAME: f64 = 1e-9;

/// What exploring a block once for all of its copies found.
struct Shared {
    explored: Explored,
    extracted: Vec<Extracted>,
    copies: usize,
    operators: usize,
    /// One copy does for all: what is left is explored as a whole.
    one_for_all: bool,
    /// For each node of what was explored those of the whole program that it stands for.
    counterparts: Vec<Vec<NodeId>>,
}

impl Shared {
    /// The names of these nodes.
    fn named(&self, whole: &Program) -> Vec<Vec<String>> {
        let name = |n: &NodeId| whole.node(*n).origin.clone();
        self.counterparts.iter().map(|all| all.iter().map(name).collect()).collect()
    }

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
    limits: &Limits,
    prices: &[TargetPrices<'_>],
    clock: &mut Clock,
) -> Result<Option<Shared>, Error> {
    let Some(repeat) = RepeatedBlock::find(source) else { return Ok(None) };
    clock.stage("find blocks");
    let mut repeated = OutlinedProgram::explore(source, repeat, library, laws, limits);
    clock.stage("explore");
    progress::report("extracting", None);
    let extract =
        |p: &TargetPrices<'_>| repeated.extract(source, p, &QUICK, &*options.extractor_for(p));
    let extracted = each(prices, extract)?;
    clock.stage("extract");
    let first = &extracted[0];
    let better = first.source_cost.is_none_or(|before| first.cost <= before);
    let (copies, operators) = repeated.size();
    let one_for_all = repeated.is_idempotent();
    let counterparts = repeated.counterparts();
    let explored = repeated.explored;
    let shared = Shared { explored, extracted, copies, operators, one_for_all, counterparts };
    Ok(better.then_some(shared))
}
