//! `explain --at NODE` and `--node NODE`: the node of the program that a node or value of the model is read as, or what else reading
//! made of it.

use crate::explain::Makers;
use crate::model::Model;
use crate::names;
use anyhow::bail;
use mlc_dsl::shown;
use mlc_onnx::{RawModel, origin};
use std::collections::BTreeSet;

/// Where to look.
pub(crate) struct Place {
    /// The node of the program as read; `None` if it has none.
    pub node: Option<String>,
    /// What became of the node of the model, if it is not that one.
    pub told: Vec<String>,
}

/// Finds a node of a model whose nodes all have names.
pub(crate) fn find(model: &Model, at: &str) -> anyhow::Result<Place> {
    let known: BTreeSet<&str> = model.program.nodes.iter().map(|n| n.origin.as_str()).collect();
    if known.contains(at) {
        return Ok(Place { node: Some(at.to_string()), told: vec![] });
    }
    let raw = model.raw()?;
    let is_known = |n: &str| known.contains(n);
    if let Some(place) = raw.as_ref().and_then(|raw| of_value(raw, at, &is_known)) {
        return Ok(place);
    }
    let read = raw.as_ref().and_then(|raw| mlc_onnx::read_as(raw, &model.library, at));
    let (Some(read), Some(raw)) = (read, &raw) else {
        let mut all: Vec<&str> = known.iter().copied().filter(|n| !n.is_empty()).collect();
        let nodes = raw.iter().flat_map(|raw| &raw.graph.nodes);
        let names = nodes.flat_map(|n| std::iter::once(&n.name).chain(&n.outputs));
        all.extend(names.map(String::as_str).filter(|n| !n.is_empty()));
        let help = names::hint(at, &all, "`mlc-rewrite show MODEL` names its nodes");
        bail!("the model has no node `{}`{help}", shown(at));
    };
    let (label, results) = read.map_err(|e| model.refused(e))?;
    let makers = Makers::new(raw);
    let mut place = Place { node: None, told: vec![] };
    for (result, read) in results {
        let Some(node) = makers.of(&result) else { continue };
        let became = makers.became(node, &read, &is_known);
        place.told.push(format!(
            "{label} is not in the program that is read: `{}` is {} ({})",
            shown(&result),
            became.is,
            became.step
        ));
        place.node = place.node.or(became.node);
    }
    Ok(place)
}

/// A value of the file that has another name than its node, or that no node yields.
fn of_value(raw: &RawModel, at: &str, is_known: &dyn Fn(&str) -> bool) -> Option<Place> {
    let graph = &raw.graph;
    if graph.nodes.iter().any(|n| n.name == at) {
        return None;
    }
    if let Some(node) = Makers::new(raw).of(at).map(origin).filter(|n| is_known(n)) {
        let told = vec![format!("`{}` is a result of `{}`", shown(at), shown(node))];
        return Some(Place { node: Some(node.to_string()), told });
    }
    let readers = graph.nodes.iter().filter(|n| n.inputs.iter().any(|i| i == at));
    let readers: Vec<String> = readers.map(|n| format!("`{}`", shown(origin(n)))).collect();
    let read = if readers.is_empty() { "no node".into() } else { readers.join(", ") };
    let is_input = graph.inputs.iter().any(|v| v.name == at);
    let told = match (is_input, graph.initializers.get(at)) {
        (true, _) => format!("`{}` is an input of the model, read by {read}", shown(at)),
        (false, Some(t)) => format!(
            "`{}` is a constant of the file, {}{:?}, read by {read}",
            shown(at),
            t.dtype(),
            t.shape()
        ),
        (false, None) => return None,
    };
    Some(Place { node: None, told: vec![told] })
}
