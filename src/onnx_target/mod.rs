//! Models optimised for an ONNX runtime: of results with about the same estimated time, the one with fewer nodes.

mod bodies;
pub(crate) mod kept_operators;

use crate::error::{Error, ErrorKind};
use crate::pipeline::costing::Costing;
use crate::pipeline::evaluation::CLOSE;
use crate::pipeline::options::Objective;
use crate::pipeline::options::Options;
use crate::pipeline::planning::is_run_here;
use crate::pipeline::verified::both_ways;
use crate::pipeline::{self, Optimized};
use mlc_dsl::ir::{NodeKind, Program};
use mlc_dsl::library::{Law, Library};
use mlc_dsl::term::TermKind;
use mlc_onnx::printable;
use mlc_onnx::{
    Counts, ExportError, ModelInfo, NEWEST_OPSET, RawModel, domains, export_counted,
    export_plan_counted, spelled_out, unwritten_operators,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// True if results for a target are files for a runtime, and not run here.
pub fn is_written(library: &Library, target: &str) -> bool {
    !is_run_here(library, target)
}

/// The operator set of a result: the one that is asked for, else that of the model.
///
/// # Errors
/// It is not known.
pub fn opset(info: &ModelInfo, asked: Option<i64>) -> Result<i64, Error> {
    // A model of other domains alone has no version of the standard one.
    let of_model = if info.opset() == 0 { NEWEST_OPSET } else { info.opset() };
    let opset = asked.unwrap_or(of_model);
    if (1..=NEWEST_OPSET).contains(&opset) {
        return Ok(opset);
    }
    Err(Error::new(ErrorKind::Setting, format!("operator set {opset} is not known"))
        .at(format!("operator set {opset}"))
        .with_help(format!(
            "give a version from 1 to {NEWEST_OPSET} (`--opset`), or leave it out to keep that of the model"
        )))
}

/// A program of which nothing was chosen for an ONNX runtime, as ONNX.
///
/// # Errors
/// An operator or extent cannot be written.
pub fn written(
    program: &Program,
    library: &Library,
    info: &ModelInfo,
    opset: i64,
) -> Result<RawModel, Error> {
    Ok(counted(program, library, info, opset)?.0)
}

/// The same, with how many nodes are written for each node of the model.
fn counted(
    program: &Program,
    library: &Library,
    info: &ModelInfo,
    opset: i64,
) -> Result<(RawModel, Counts), Error> {
    match spelled_out(program, library, info, opset) {
        Some((program, info)) => Ok(export_counted(&program, library, &info, opset)?),
        None => Ok(export_counted(program, library, info, opset)?),
    }
}

/// A result as ONNX: its plan's kernels, or the program that is kept as it was read.
fn result(
    o: &Optimized,
    library: &Library,
    info: &ModelInfo,
    opset: i64,
) -> Result<(RawModel, Counts), Error> {
    match o.planned() {
        // Kernels that compute what a kept node reads together with what follows it would need it before and after.
        Some(plan) => match export_plan_counted(plan, library, info, opset) {
            Err(ExportError::Opaque { .. }) => counted(&o.source, library, info, opset),
            done => Ok(done?),
        },
        None => counted(&o.program, library, info, opset),
    }
}

/// Limits options to operators that can be written, and gives a model the domains of the target's own.
pub fn prepare(options: &mut Options, info: &mut ModelInfo, library: &Library, opset: i64) {
    options.operators = Some(printable(library, opset, &options.target));
    for (domain, version) in domains(library, &options.target) {
        info.opset_imports.entry(domain).or_insert(version);
    }
}

/// Optimises with options that are [prepared](prepare), and writes the result. Nodes in the report are those of the files.
///
/// # Errors
/// A stage fails, or the result cannot be written.
pub fn optimize(
    source: Program,
    library: &Arc<Library>,
    info: &ModelInfo,
    opset: i64,
    options: &Options,
) -> Result<(Optimized, RawModel), Error> {
    let Written { optimized, raw, .. } = optimize_counted(source, library, info, opset, options)?;
    Ok((optimized, raw))
}

/// A result and what it is written as.
pub(crate) struct Written {
    pub optimized: Optimized,
    pub raw: RawModel,
    /// How many nodes are written for each node of the model.
    pub counts: Counts,
}

/// Nodes of the model, by name, that grew: several are written for each, and no operator would write one of them at once.
pub(crate) fn grown(
    result: &Written,
    library: &Library,
    info: &ModelInfo,
    opset: i64,
) -> BTreeSet<String> {
    let several = |counts: &Counts| -> BTreeSet<String> {
        counts.iter().filter(|(_, n)| **n > 1).map(|(name, _)| name.clone()).collect()
    };
    let found = several(&result.counts);
    if found.is_empty() {
        return found;
    }
    // A node that is one operator here was rewritten because that gains.
    let plain = counted(&result.optimized.source, library, info, opset);
    let plain = plain.map_or_else(|_| BTreeSet::new(), |(_, counts)| several(&counts));
    &found & &plain
}

/// The same as [`optimize`], with how many nodes are written for each node of the model.
///
/// # Errors
/// As there.
pub(crate) fn optimize_counted(
    mut source: Program,
    library: &Arc<Library>,
    info: &ModelInfo,
    opset: i64,
    options: &Options,
) -> Result<Written, Error> {
    let mut info = info.clone();
    if let Some((program, model)) = spelled_out(&source, library, &info, opset) {
        (source, info) = (program, model);
    }
    let told = bodies::optimize(&mut info, &mut source, library, opset, options);
    let info = &info;
    let mut options = options.clone();
    let (first, written) = loop {
        let found = pipeline::optimize(source, library, &options)?;
        match result(&found, library, info, opset) {
            Ok(written) => break (found, written),
            Err(_) if drop_unprintable_operator(&mut options, &found, library, info, opset) => {
                source = found.source;
            }
            Err(e) => return Err(e),
        }
    };
    let (mut optimized, (raw, counts)) =
        with_few_nodes(first, written, library, info, opset, &options)?;
    optimized.report.notes.extend(told.notes);
    told.bodies.into_iter().for_each(|body| optimized.report.add_body(body));
    optimized.report.laws_turned_off.extend(told.off);
    optimized.report.nodes_before = info.nodes;
    optimized.report.nodes_after = raw.graph.nodes.len();
    Ok(Written { optimized, raw, counts })
}

/// Takes an operator that cannot be written from those that a result may have; if the model itself has it, takes away the laws that put it
/// where it cannot be written. `false` if there is nothing left to take.
fn drop_unprintable_operator(
    options: &mut Options,
    found: &Optimized,
    library: &Library,
    info: &ModelInfo,
    opset: i64,
) -> bool {
    let Some(plan) = found.planned() else { return false };
    let unwritten = unwritten_operators(plan, library, info, opset);
    let Some(call) = unwritten.iter().find_map(|op| library.find(op)) else { return false };
    let nodes = &found.source.nodes;
    let is_it = |k: &NodeKind| matches!(k, NodeKind::Apply(own, _) if *own == call);
    if !nodes.iter().any(|n| is_it(&n.kind)) {
        return options.operators.as_mut().is_some_and(|all| all.remove(&call));
    }
    let applies = |law: &Law| {
        let terms = law.terms.iter();
        terms.into_iter().any(|(_, t)| matches!(t.kind, TermKind::Apply(own, _) if own == call))
    };
    let used: Vec<&Law> =
        library.laws.iter().filter(|l| found.report.proof.contains_key(&*l.name)).collect();
    let before = options.without.len();
    let own = used.iter().filter(|l| applies(l));
    options.without.extend(own.flat_map(|l| both_ways(library, &l.name)));
    if options.without.len() == before {
        options.without.extend(used.iter().flat_map(|l| both_ways(library, &l.name)));
    }
    options.without.len() > before
}

/// The written model. If it has more nodes than the model as read, one of fewer nodes that is about as fast is looked
/// for.
fn with_few_nodes(
    optimized: Optimized,
    written: (RawModel, Counts),
    library: &Arc<Library>,
    info: &ModelInfo,
    opset: i64,
    options: &Options,
) -> Result<(Optimized, (RawModel, Counts)), Error> {
    let nodes = written.0.graph.nodes.len();
    if nodes <= info.nodes || options.objective != Objective::Latency {
        return Ok((optimized, written));
    }
    let costing = Costing { few: true, ..options.costing.clone() };
    let options = Options { costing, ..options.clone() };
    let mut other = pipeline::optimize(optimized.source.clone(), library, &options)?;
    let Ok(shorter) = result(&other, library, info, opset) else {
        return Ok((optimized, written));
    };
    let fewer = shorter.0.graph.nodes.len();
    let most = optimized.report.cost_after * (1.0 + CLOSE);
    if fewer >= nodes || other.report.cost_after > most {
        return Ok((optimized, written));
    }
    let gain = other.report.cost_after / optimized.report.cost_after - 1.0;
    if gain > 0.0 {
        other.report.notes.push(format!(
            "{nodes} nodes would be estimated {:.1} % faster: {fewer} are kept",
            100.0 * gain
        ));
    }
    Ok((other, shorter))
}
