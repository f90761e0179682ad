//! Finds the node that is not read as its file says: the first whose results differ.

use super::nodes::Values;
use super::{AsRead, difference};
use crate::model::Model;
use mlc_backends::reference::{Array, Reference};
use mlc_dsl::ir::{Program, Tensor};
use mlc_onnx::{RawModel, RawNode, RawValueInfo};
use std::collections::BTreeSet;

/// The first node of the file whose results are not what the program as read has for them, as messages call it.
pub(super) fn first_wrong(
    check: &AsRead<'_>,
    model: &Model,
    inputs: &[Tensor],
    values: &Values,
) -> Option<String> {
    let traced = traced(check.raw, values);
    let imported = model.import_again(traced).ok()?;
    let program = imported.program;
    let kept: BTreeSet<&str> = imported.model.opaque.defined().collect();
    let nodes: Vec<&RawNode> = check.raw.graph.nodes.iter().collect();
    let is_wrong = |upto: usize| {
        let names: BTreeSet<&String> = nodes[..upto]
            .iter()
            .flat_map(|n| &n.outputs)
            .filter(|o| !kept.contains(&***o))
            .collect();
        let mut part = program.clone();
        part.outputs.retain(|(n, _)| names.contains(n) && values.contains_key(n));
        differs(check, &part.pruned(), inputs, values)
    };
    // The least number of nodes whose results differ.
    let (mut low, mut high) = (0, nodes.len());
    if !is_wrong(high) {
        return None;
    }
    while low < high {
        let middle = (low + high) / 2;
        if is_wrong(middle) { high = middle } else { low = middle + 1 }
    }
    nodes.get(low.checked_sub(1)?).map(|n| n.label())
}

/// The file with every tensor that was computed as an output.
fn traced(raw: &RawModel, values: &Values) -> RawModel {
    let mut raw = raw.clone();
    let known: BTreeSet<String> = raw.graph.outputs.iter().map(|o| o.name.clone()).collect();
    let made = raw.graph.nodes.iter().flat_map(|n| &n.outputs);
    let more = made.filter(|o| values.contains_key(*o) && !known.contains(*o));
    let info = |name: &String| RawValueInfo { name: name.clone(), ..RawValueInfo::default() };
    let more: Vec<RawValueInfo> = more.map(info).collect();
    raw.graph.outputs.extend(more);
    raw
}

fn differs(check: &AsRead<'_>, part: &Program, inputs: &[Tensor], values: &Values) -> bool {
    let mut given = Vec::with_capacity(part.inputs.len());
    for (name, _) in &part.inputs {
        let at = check.program.inputs.iter().position(|(n, _)| n == name);
        let Some(tensor) = at.and_then(|i| inputs.get(i)) else { return false };
        given.push(tensor.clone());
    }
    let found = match Reference::default().run_values(part, check.library, &given) {
        Ok(found) => found,
        Err(_) => return true,
    };
    let wanted = part.outputs.iter().map(|(n, _)| values.get(n).cloned());
    let Some(wanted) = wanted.collect::<Option<Vec<Array>>>() else { return false };
    difference(part, &wanted, &found, &|| None).is_some()
}
