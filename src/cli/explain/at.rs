//! `explain --at NODE`: the node of the program that a node of the model is read as, or what else reading made of it.

use crate::model::Model;
use crate::names;
use anyhow::bail;
use mlc_dsl::shown;
use mlc_onnx::ReadAs;
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
    let read = raw.as_ref().and_then(|raw| mlc_onnx::read_as(raw, &model.library, at));
    let Some(read) = read else {
        let mut all: Vec<&str> = known.iter().copied().filter(|n| !n.is_empty()).collect();
        let nodes = raw.iter().flat_map(|raw| &raw.graph.nodes);
        all.extend(nodes.map(|n| n.name.as_str()).filter(|n| !n.is_empty()));
        let help = names::hint(at, &all, "`mlc-rewrite show MODEL` names its nodes");
        bail!("the model has no node `{}`{help}", shown(at));
    };
    let (label, results) = read.map_err(|e| model.refused(e))?;
    let mut place = Place { node: None, told: vec![] };
    for (result, read) in results {
        let is = match read {
            ReadAs::Constant(ty) => format!("a constant, {ty}"),
            ReadAs::Input(name) => format!("the input `{}`", shown(&name)),
            ReadAs::Node(name) if known.contains(name.as_str()) => {
                let is = format!("what `{}` computes", shown(&name));
                place.node.get_or_insert(name);
                is
            }
            ReadAs::Node(_) => "no part of what the outputs are computed from".to_string(),
            ReadAs::Nothing => "made of extents alone".to_string(),
        };
        place.told.push(format!(
            "{label} is not in the program that is read: `{}` is {is}",
            shown(&result)
        ));
    }
    Ok(place)
}
