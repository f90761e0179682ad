//! The pipeline: from a program to a cheaper equal program and its plan; every stage has its own type.

pub mod confirm;
pub mod costing;
mod decode;
pub(crate) mod extent_ranges;
pub(crate) mod guard;
pub mod measure;
pub mod objective;
pub mod options;
pub mod report;
pub mod selfcheck;
pub mod sized_prices;
mod widen;

use crate::device::CPU;
use crate::error::{Error, ErrorKind};
use crate::names;
use mlc_dsl::ir::{NodeKind, Program};
use mlc_dsl::library::{CallId, ErrorClass, Law, LawOrigin, Library, TargetItem};
use mlc_dsl::pattern::{is_early, is_late, is_normal};
use mlc_dsl::plan::Plan;
use mlc_dsl::shown;
use mlc_explore::UnusableOperators;
use mlc_explore::constants::folding;
use mlc_explore::constants::folding::ConstantMemo;
use mlc_explore::outline::{OutlinedProgram, RepeatedBlock};
use mlc_explore::progress;
use mlc_explore::{Explored, Extracted, Limits, explore};
use mlc_extract::cost::target::{Jitter, Surrogate, TargetPrices};
use mlc_extract::kernels::selection::select_kernels_with_incumbent;
use mlc_extract::{CostModel, GreedyDag, Size};
use objective::{Candidate, Evaluation, Objective, distinct, is_same, stored};
pub use options::{Fp, Options, Solver};
use report::report;
pub use report::{
    Clock, GraphReport, KernelReport, Report, kernels, operators, peak_process_bytes,
};
use sized_prices::SizedPrices;
use std::collections::BTreeSet;
use std::sync::Arc;

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
    /// The search with the late laws, which began with what was extracted, and what it gave, if the result is from there.
    pub late: Option<Searched>,
    /// What happened.
    pub report: Report,
}

/// A search, and what it gave.
pub type Searched = (Explored, Extracted);

impl Optimized {
    /// True if the result is the program as read.
    pub fn is_kept(&self) -> bool {
        self.report.as_read
    }

    /// The plan of the result. A program that is kept as it was read because no other could be trusted has none that
    /// stands for it in a file: whoever runs the file chooses.
    pub fn planned(&self) -> Option<&Plan> {
        self.report.kept_as_read.is_none().then_some(&self.plan)
    }
}

/// Runs all stages on a program. If the self-check finds the result to be wrong, the law whose equation does not
/// hold is turned off, which the report says, and the run is repeated; where none can be blamed the program is
/// kept as it is read.
pub fn optimize(
    source: Program,
    library: &Arc<Library>,
    options: &Options,
) -> Result<Optimized, Error> {
    let is_run_here = options.operators.is_none() && library.is_kind_of(&options.target, CPU);
    let other = match &options.operators {
        Some(operators) => decode::decoded(&source, library, operators)?,
        None if is_run_here => widen::widened(&source, library),
        None => None,
    };
    let source = other.unwrap_or(source);
    let once = |options: &Options| {
        let mut optimized = optimize_once(source.clone(), library, options)?;
        optimized = match options.costing.measure {
            0 => confirm::settle(&source, library, options, optimized)?,
            _ => measure::choose(&source, library, options, optimized)?,
        };
        let unread = source.consts.unread();
        if unread > 0 {
            optimized.report.notes.push(format!(
                "{:.0} GiB of weights are not read: no law computes with them, and the self-check is left out",
                unread as f64 / (1u64 << 30) as f64
            ));
        }
        Ok(optimized)
    };
    guard::hold(&source, library, options, &once)
}

/// The program as read in the place of a result that is wrong.
pub(crate) fn keep_as_read(
    mut o: Optimized,
    library: &Library,
    options: &Options,
) -> Result<Optimized, Error> {
    let evaluation = Evaluation::new(options, library, &o.source)?;
    let plain = evaluation.plain();
    o.program = match options.operators {
        None => plain.plan.program.clone(),
        Some(_) => o.source.clone(),
    };
    o.report.figures(&evaluation, stored(&o.source), plain);
    o.report.kernels = kernels(&plain.plan, library);
    o.report.operators_after = operators(&o.program);
    o.report.nodes_after = o.report.operators_after;
    o.report.proof.clear();
    o.report.as_read = true;
    o.plan = plain.plan.clone();
    Ok(o)
}

/// One run of all stages, without the self-check.
pub fn optimize_once(
    source: Program,
    library: &Arc<Library>,
    options: &Options,
) -> Result<Optimized, Error> {
    let mut clock = Clock::default();
    let target = target(library, &options.target)?;
    let (late, laws): (Vec<u32>, Vec<u32>) = active_laws(library, &target, options, &source)?
        .into_iter()
        .partition(|&l| is_late(&library.laws[l as usize]));
    let model = options.costing.model(&target, &source);
    let mut notes = Vec::new();
    let evaluation = Evaluation::new(options, library, &source)?;
    let plain = evaluation.plain();
    let at = |surrogate, size: &Size| {
        TargetPrices::new(library, &target, options.operators.clone())
            .with_model(model.clone())
            .with_surrogate(surrogate)
            .at(size.clone())
    };
    let first = if options.costing.few { Surrogate::OperatorCount } else { Surrogate::Time };
    // What is best at one size may be bad at another: each size has an extraction of its own, and the best for all is kept.
    let mut all: Vec<_> = evaluation
        .prices
        .sizes()
        .map(|size| at(first, size).jittered(options.costing.jitter))
        .collect();
    let (main, sizes) = (evaluation.prices.first().works().size().clone(), all.len());
    all.extend(
        options
            .objective
            .surrogates()
            .into_iter()
            .map(|surrogate| at(surrogate, &main).jittered(options.costing.jitter)),
    );
    let with = |kernel, factor, size| {
        at(first, size).with_model(model.clone().with_factor(kernel, factor))
    };
    let convolves = !late.is_empty() && plain.plan.kernels.iter().any(|k| k.name == CONV);
    if convolves {
        all.push(with(CONV, OF_CONV, &main));
    }
    clock.stage("constants");
    let limits = options.limits.for_gain(plain.seconds);
    let begun = begin_with(&source, library, &laws, &limits, &all[0])?;
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
    let (explored, mut extracted) = match (shared, whole.transpose()?) {
        (Some(s), Some(whole)) if whole.1[0].cost < s.extracted[0].cost * (1.0 - SAME) => whole,
        (Some(s), _) => {
            notes.push(s.note());
            (s.explored, s.extracted)
        }
        (None, Some(whole)) => whole,
        (None, None) => return Err(Error::unexpected("nothing was explored")),
    };
    let of_convolutions = if convolves { extracted.pop() } else { None };
    let mut found = distinct(extracted)
        .into_iter()
        .map(|e| Ok((evaluation.of_extracted(&e)?, e)))
        .collect::<Result<Vec<(Candidate, Extracted)>, Error>>()?;
    clock.stage("constants");
    let best = (1..found.len()).fold(0, |best, i| match found[i].0.beats(&found[best].0) {
        true => i,
        false => best,
    });
    let (mut chosen, mut extracted) = found.swap_remove(best);
    let lean: Vec<_> = evaluation.prices.sizes().map(|size| with(RELAYOUT, 0.0, size)).collect();
    let prices = all[..sizes].iter().zip(&lean).flat_map(|(true_, lean)| [true_, lean]).collect();
    let late = Late { laws: &late, prices, evaluation: &evaluation };
    let mut of_late = None;
    if let Some((better, search)) = late.search(&chosen, &chosen, library, &limits)? {
        (chosen, of_late) = (better, Some(search));
    }
    if let Some(e) = of_convolutions.filter(|e| !is_same(&e.program, &extracted.program)) {
        let start = evaluation.of_extracted(&e)?;
        if let Some((better, search)) = late.search(&start, &chosen, library, &limits)? {
            (chosen, extracted, of_late) = (better, e, Some(search));
        }
    }
    clock.stage("late laws");
    let permitted = extracted.source_cost.is_some()
        || options.objective != Objective::Latency
        || operators_of(&plain.plan.program).all(|c| evaluation.prices.first().permits(c));
    let kept = permitted && options.costing.jitter.is_none() && plain.beats(&chosen);
    if kept {
        // Candidates are bounded and a block's cut is not crossed: the plan has the last word.
        notes.push("the program as read is the best found: it is kept".to_string());
        chosen = plain.clone();
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
    Ok(Optimized { source, program, plan: chosen.plan, explored, extracted, late: of_late, report })
}

/// What the search begins with, if an early law applies: the result of first searches, each of which begins with that of the one
/// before. Sums of many terms have too many parts for one search to meet them all.
fn begin_with(
    source: &Program,
    library: &Arc<Library>,
    laws: &[u32],
    limits: &Limits,
    prices: &TargetPrices<'_>,
) -> Result<Option<Program>, Error> {
    let mut begin: Option<Program> = None;
    for _ in 0..FIRST_SEARCHES {
        let from = begin.as_ref().unwrap_or(source);
        match first_search(from, library, laws, limits, prices)? {
            Some(better) => begin = Some(better),
            None => break,
        }
    }
    Ok(begin)
}

/// The result of a search with the early laws and the normal form alone, if an early law applies.
fn first_search(
    source: &Program,
    library: &Arc<Library>,
    laws: &[u32],
    limits: &Limits,
    prices: &TargetPrices<'_>,
) -> Result<Option<Program>, Error> {
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
    Ok(is_better.then(|| folding::fold(&extracted.program, library)).transpose()?)
}

/// The kernel that changes layouts, and that of convolutions, whose channels late laws put last: what it is priced at for a search that
/// begins with convolutions where products take as long.
const RELAYOUT: &str = "relayout";
const CONV: &str = "conv";
const OF_CONV: f64 = 0.8;

/// A search with the late laws alone.
struct Late<'a> {
    laws: &'a [u32],
    /// Of each size those that are true, and those at which layouts change for nothing: a chain of operators in another layout pays only as a whole,
    /// and a search that is not exhaustive meets no part of it that does.
    prices: Vec<&'a TargetPrices<'a>>,
    evaluation: &'a Evaluation<'a>,
}

impl Late<'_> {
    /// The best result of a search that begins at `start`, if it is better than `known`, and the search.
    fn search(
        &self,
        start: &Candidate,
        known: &Candidate,
        library: &Arc<Library>,
        limits: &Limits,
    ) -> Result<Option<(Candidate, Searched)>, Error> {
        if self.laws.is_empty() {
            return Ok(None);
        }
        let mut explored = explore(library.clone(), start.plan.program.clone(), self.laws, limits);
        if explored.steps() == 0 {
            return Ok(None);
        }
        let mut best: Option<(Candidate, Extracted)> = None;
        for prices in &self.prices {
            let extractor = self.evaluation.options.extractor_for(prices);
            let extracted = explored.extract(prices, &*extractor)?;
            let found = self.evaluation.of_extracted(&extracted)?;
            if found.beats(best.as_ref().map_or(known, |b| &b.0)) {
                best = Some((found, extracted));
            }
        }
        Ok(best.map(|(found, extracted)| (found, (explored, extracted))))
    }
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
    let mut laws = active_laws(library, &target, options, source)?;
    laws.retain(|&l| !is_late(&library.laws[l as usize]));
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
    let explored = repeated.explored;
    Ok(better.then_some(Shared { explored, extracted, copies, operators, one_for_all }))
}

/// The plan of a program as it stands: constants folded, definitions without a kernel expanded.
pub fn plan(program: &Program, library: &Library, target: &TargetItem) -> Result<Plan, Error> {
    plan_with(program, library, target, &CostModel::of(target), &Size::usual())
}

/// The same for the target, the sizes and at the figures that options say.
pub fn plan_as_read(
    program: &Program,
    library: &Library,
    options: &Options,
) -> Result<Plan, Error> {
    let target = target(library, &options.target)?;
    let model = options.costing.model(&target, program);
    plan_with(program, library, &target, &model, &options.sizes)
}

/// The same, priced by a model at these sizes.
pub fn plan_with(
    program: &Program,
    library: &Library,
    target: &TargetItem,
    model: &CostModel,
    sizes: &[Size],
) -> Result<Plan, Error> {
    let at = || TargetPrices::new(library, target, None).with_model(model.clone());
    let mut prices = SizedPrices::new(library, sizes, program, at);
    let open = folding::unfold(program, library, prices.first())?;
    let mut plans = prices.select(&folding::fold(&open, library)?, &[]);
    if plans.len() > 1 {
        let all: Vec<Vec<f64>> = plans.iter().map(|p| prices.at_sizes(p)).collect();
        prices.weigh(&all[0]);
        let seconds = |i: usize| prices.seconds(&all[i]);
        let best = (1..plans.len()).fold(0, |b, i| if seconds(i) < seconds(b) { i } else { b });
        plans.swap(0, best);
    }
    Ok(plans.swap_remove(0))
}

/// The target of a name.
pub fn target(library: &Library, name: &str) -> Result<TargetItem, Error> {
    library.target(name).cloned().ok_or_else(|| {
        let known: Vec<&str> = library.targets.iter().map(|t| &*t.name).collect();
        let help = names::did_you_mean(name, &known, &format!("known are {}", known.join(", ")));
        let place = format!("target `{}`", shown(name));
        Error::new(ErrorKind::Setting, format!("there is no {place}")).at(place).or_help(help)
    })
}

/// The prices of a program under these options, at the default size.
///
/// # Errors
/// There is no such target.
pub fn prices<'l>(
    library: &'l Library,
    options: &Options,
    source: &Program,
) -> Result<TargetPrices<'l>, Error> {
    let target = target(library, &options.target)?;
    let model = options.costing.model(&target, source);
    Ok(TargetPrices::new(library, &target, options.operators.clone()).with_model(model))
}

/// Refuses names that no law has.
pub fn all_laws(library: &Library, wanted: &[String]) -> Result<(), Error> {
    let unknown = |name: &&String| !library.laws.iter().any(|l| l.answers_to(name));
    let Some(name) = wanted.iter().find(unknown) else { return Ok(()) };
    let laws = library.laws.iter();
    let laws: BTreeSet<&str> = laws.flat_map(|l| [&*l.name, l.declared_name()]).collect();
    let help = names::did_you_mean(name, laws, "`mlc-rewrite list laws` names them");
    let place = format!("law `{}`", shown(name));
    let error = Error::new(ErrorKind::Setting, format!("there is no {place}"));
    Err(error.at(place).or_help(help))
}

/// The laws that may fire. A layer's own kernel rounds otherwise than the kernels of its body: under
/// `exact` such a layer stays as it is read.
fn active_laws(
    library: &Library,
    target: &TargetItem,
    options: &Options,
    source: &Program,
) -> Result<Vec<u32>, Error> {
    let foreign = UnusableOperators::of(library, target, options.operators.as_ref(), source);
    all_laws(library, &options.without)?;
    let active = library.laws.iter().enumerate().filter(|(_, l)| {
        let off = options.without.iter().any(|w| l.answers_to(w));
        options.fp.admits(l.error) && !off && !rounds(library, target, options, l)
    });
    let useful = active.filter(|(_, l)| !foreign.concerns(l));
    Ok(useful.map(|(i, _)| i as u32).collect())
}

/// True for a definition whose kernel may give other bits than its body, where the bits must stay.
fn rounds(library: &Library, target: &TargetItem, options: &Options, law: &Law) -> bool {
    let layer = law.name.strip_suffix(".rev").unwrap_or(&law.name);
    let has_kernel = |c| target.kernels.iter().any(|k| k.covers.contains(&c));
    options.fp == Fp::Exact
        && matches!(law.origin, LawOrigin::Fold | LawOrigin::Unfold)
        && library.find(layer).is_some_and(has_kernel)
}

/// Why a law is not searched with the others.
pub fn why_off(library: &Library, options: &Options, source: &Program, index: u32) -> String {
    let law = &library.laws[index as usize];
    if options.without.iter().any(|w| law.answers_to(w)) {
        return "it is turned off by `--without`".into();
    }
    if !options.fp.admits(law.error) {
        let needed = if matches!(law.error, ErrorClass::Reorder) { "reorder" } else { "approx" };
        return format!("its error class is {}: `--fp {needed}` admits it", law.error);
    }
    let target = target(library, &options.target).ok();
    let is_active = |t| active_laws(library, t, options, source).is_ok_and(|l| l.contains(&index));
    if is_late(law) && target.as_ref().is_some_and(is_active) {
        return "its turn comes in the result of the other laws, and only what it gains there is kept".into();
    }
    match target.is_some_and(|t| rounds(library, &t, options, law)) {
        true => "its kernel may give other bits than its body, and `--fp exact` keeps them".into(),
        false => format!(
            "what it yields has no kernel on `{}`, and nothing follows from it",
            options.target
        ),
    }
}
