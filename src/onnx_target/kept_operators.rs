//! Operators whose composition gains nothing are written as themselves.
//!
//! A node that is read as a composition of operators, and would be written as several nodes, is compared with itself: the model
//! is read once more with such nodes kept as they are, and is optimised around them. That file is taken if it has fewer nodes and
//! the rest of the model takes no longer. An operator that a runtime has takes it no longer than what it is composed of.
//! If there still are more nodes than in the model's file, and they gain nothing, the file is written as it is.

use crate::error::Error;
use crate::explain;
use crate::model::Model;
use crate::onnx_target::{self, Written};
use crate::optimizer::info;
use crate::pipeline::evaluation::CLOSE;
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::options::Objective;
use crate::pipeline::options::Options;
use crate::pipeline::{Optimized, Report};
use mlc_dsl::library::Library;
use mlc_onnx::{ModelInfo, RawModel, domains};
use std::collections::BTreeSet;

/// Optimises a model for an ONNX runtime with options that are [prepared](onnx_target::prepare), and writes the result.
///
/// # Errors
/// A stage fails, or the result cannot be written.
pub(crate) fn optimize(
    model: &Model,
    info: &ModelInfo,
    opset: i64,
    options: &Options,
) -> Result<(Optimized, RawModel), Error> {
    let (program, library) = (model.program.clone(), &model.library);
    let first = onnx_target::optimize_counted(program, library, info, opset, options)?;
    // A node can only be kept at its own operator set, and inputs of the user are those of the whole model.
    let may = opset == info.opset()
        && options.objective == Objective::Latency
        && options.guard.given.is_empty();
    if !may {
        return Ok((first.optimized, first.raw));
    }
    let (mut optimized, raw, note) = with_kept(model, info, opset, options, first)?;
    let (raw, note) = match unchanged(model, info, options, &optimized.report, &raw) {
        Some(file) => {
            let (is, would_be) = (info.nodes, raw.graph.nodes.len());
            optimized.report.nodes_after = is;
            let note = format!(
                "the file is written as it is: {would_be} nodes instead of {is} would gain nothing"
            );
            (file, Some(note))
        }
        None => (raw, note),
    };
    optimized.report.notes.extend(note);
    Ok((optimized, raw))
}

/// The file of the model, if what is written instead has more nodes and is not estimated to be faster.
fn unchanged(
    model: &Model,
    info: &ModelInfo,
    options: &Options,
    report: &Report,
    raw: &RawModel,
) -> Option<RawModel> {
    let more = raw.graph.nodes.len().saturating_sub(info.nodes);
    if more == 0 || report.gains(more) || !info.facts.has_kernels() {
        return None;
    }
    let mut file = model.read_as()?.clone();
    let known = domains(&model.library, &options.target);
    let runs = |d: &&str| d.is_empty() || known.contains_key(*d);
    if !file.graph.domains().iter().all(runs) {
        return None;
    }
    file.ir_version = file.ir_version.max(raw.ir_version);
    declare(&mut file, raw);
    Some(file)
}

/// What a file leaves open of its outputs is known by another form of it.
fn declare(file: &mut RawModel, known: &RawModel) {
    for output in &mut file.graph.outputs {
        let Some(known) = known.graph.outputs.iter().find(|o| o.name == output.name) else {
            continue;
        };
        output.dtype = output.dtype.or(known.dtype);
        output.dims = output.dims.take().or_else(|| known.dims.clone());
    }
}

/// The result, or the one with the nodes kept that grew, if that is the better file, and what is to be told of it.
fn with_kept(
    model: &Model,
    info: &ModelInfo,
    opset: i64,
    options: &Options,
    mut first: Written,
) -> Result<(Optimized, RawModel, Option<String>), Error> {
    let Some((mut second, kept)) = around(model, info, opset, options, &first)? else {
        return Ok((first.optimized, first.raw, None));
    };
    let composed: usize = kept.iter().filter_map(|name| first.counts.get(name)).sum();
    first.optimized.report.nodes_after = second.raw.graph.nodes.len();
    let note = format!(
        "{} operators are written as themselves: the {composed} nodes that they are composed of gain nothing",
        kept.len()
    );
    declare(&mut second.raw, &first.raw);
    Ok((first.optimized, second.raw, Some(note)))
}

/// The result with the nodes kept that grew, if it is the better file, and which these are.
fn around(
    model: &Model,
    info: &ModelInfo,
    opset: i64,
    options: &Options,
    first: &Written,
) -> Result<Option<(Written, BTreeSet<String>)>, Error> {
    let library = &model.library;
    let grown = onnx_target::grown(first, library, info, opset);
    let names = model.may_stay(&grown, &domains(library, &options.target));
    if names.is_empty() {
        return Ok(None);
    }
    // What is read with less understood may not be readable.
    let Ok(model) = model.keeping(&names).and_then(|m| m.written_at(opset)) else {
        return Ok(None);
    };
    let mut of_rest = self::info(&model);
    let mut options = options.clone();
    onnx_target::prepare(&mut options, &mut of_rest, library, opset);
    let program = model.program.clone();
    let Ok(second) = onnx_target::optimize_counted(program, library, &of_rest, opset, &options)
    else {
        return Ok(None);
    };
    let nodes = |w: &Written| w.raw.graph.nodes.len();
    let most = first.optimized.report.cost_after * (1.0 + CLOSE);
    let takes = second.optimized.report.cost_after
        + seconds_of(&first.optimized, &names, library, &options)?;
    let is_better = nodes(&second) < nodes(first) && takes <= most;
    Ok(is_better.then_some((second, names)))
}

/// Estimated seconds of the kernels of a result that compute these nodes alone.
fn seconds_of(
    o: &Optimized,
    names: &BTreeSet<String>,
    library: &Library,
    options: &Options,
) -> Result<f64, Error> {
    let Some(plan) = o.planned() else { return Ok(0.0) };
    let of = explain::names(&plan.program);
    let seconds = Evaluation::new(options, library, &o.source)?.prices.by_kernel(plan);
    let own = plan
        .kernels
        .iter()
        .zip(seconds)
        .filter(|(k, _)| k.nodes.iter().all(|n| names.contains(of[n.0 as usize])));
    Ok(own.map(|(_, seconds)| seconds).sum())
}
