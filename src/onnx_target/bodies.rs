//! Bodies of control flow that a model keeps: each is optimised like a model of its own, and written back into its node.
//!
//! A body that cannot be typed or written stays as it is, which a note says. What a node computes never changes here but by the pipeline.

use crate::error::Error;
use crate::onnx_target;
use crate::pipeline::options::Options;
use crate::pipeline::report::BodyReport;
use crate::pipeline::selfcheck::TurnedOff;
use crate::pipeline::{Optimized, Report};
use mlc_dsl::ir::Program;
use mlc_dsl::library::Library;
use mlc_dsl::shown;
use mlc_explore::LawProfile;
use mlc_onnx::{
    Loops, ModelInfo, OuterValue, RawAttr, RawGraph, RawModel, RawNode, SubgraphModel,
    import_with_opaque_nodes, rename, subgraphs, unwritten,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// What a body is optimised with.
struct Bodies<'a> {
    library: &'a Arc<Library>,
    info: &'a ModelInfo,
    opset: i64,
    options: Options,
    told: Told,
}

/// What is told of bodies.
#[derive(Default)]
pub(crate) struct Told {
    pub notes: Vec<String>,
    /// Laws that the self-check turned off in them.
    pub off: Vec<TurnedOff>,
    /// What optimising each of them found.
    pub bodies: Vec<BodyReport>,
}

/// What became of a body.
struct Rewritten {
    /// Its graph; `None` if it is best as it is.
    graph: Option<RawGraph>,
    report: Report,
    profiles: Vec<(u32, LawProfile)>,
}

/// Optimises the bodies of the nodes that a model keeps, and takes from `source` what only they read and do no longer.
/// Yields what is told of it.
pub(crate) fn optimize(
    info: &mut ModelInfo,
    source: &mut Program,
    library: &Arc<Library>,
    opset: i64,
    options: &Options,
) -> Told {
    let has_body = |node: &RawNode| node.attrs.values().any(|a| !a.graphs().is_empty());
    // Bodies are of the model's operator set.
    if opset != info.opset() || !info.opaque.nodes.iter().any(|(n, _)| has_body(n)) {
        return Told::default();
    }
    let mut options = options.clone();
    options.guard.given.clear();
    let before = info.clone();
    let mut run = Bodies { library, info: &before, opset, options, told: Told::default() };
    for (node, _) in info.opaque.nodes.iter_mut().filter(|(n, _)| has_body(n)) {
        run.node(node, source);
    }
    let told = run.told;
    let read: BTreeSet<String> =
        info.opaque.nodes.iter().flat_map(|(n, _)| mlc_onnx::reads(n)).collect();
    info.opaque.constants.retain(|name, _| read.contains(name));
    let is_result = |name: &String| info.outputs.iter().any(|o| o.name == *name);
    source.outputs.retain(|(name, _)| read.contains(name) || is_result(name));
    told
}

impl Bodies<'_> {
    fn node(&mut self, node: &mut RawNode, source: &Program) {
        let constants = &self.info.opaque.constants;
        let outer = |name: &str| {
            if let Some(tensor) = constants.get(name) {
                return Some(OuterValue::Constant(tensor.clone()));
            }
            let output = source.outputs.iter().find(|(n, _)| n == name);
            let output = output.map(|(_, v)| source.ty(*v).clone());
            let input = || source.inputs.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone());
            output.or_else(input).map(OuterValue::Typed)
        };
        let Some(found) = subgraphs(node, &self.info.opset_imports, self.library, &outer) else {
            let label = node.label();
            self.told
                .notes
                .push(format!("{label}: its body stays as it is, as its types are not known"));
            return;
        };
        for body in found {
            let attribute = body.attribute.clone();
            match self.body(node, body) {
                Ok(rewritten) => {
                    self.checked(node, &attribute, &rewritten.report);
                    let Rewritten { graph, report, profiles } = rewritten;
                    let (label, name) = (node.label(), shown(&attribute));
                    let place = format!("`{name}` of {label}");
                    let is_kept = graph.is_none();
                    self.told.bodies.push(BodyReport { place, is_kept, report, profiles });
                    let Some(graph) = graph else { continue };
                    let Some(RawAttr::Graph(old)) = node.attrs.get_mut(&attribute) else {
                        continue;
                    };
                    let (was, is) = (old.nodes.len(), graph.nodes.len());
                    **old = graph;
                    let (label, name) = (node.label(), shown(&attribute));
                    self.told.notes.push(format!("{label}: `{name}` has {is} nodes, before {was}"));
                }
                Err(e) => {
                    let (label, name) = (node.label(), shown(&attribute));
                    self.told.notes.push(format!("{label}: `{name}` stays as it is: {e}"));
                }
            }
        }
    }

    /// Tells what the self-check of a body found.
    fn checked(&mut self, node: &RawNode, attribute: &str, report: &Report) {
        let within = format!("`{}` of {}", shown(attribute), node.label());
        let off = report.laws_turned_off.iter().cloned();
        self.told.off.extend(off.map(|o| TurnedOff { within: Some(within.clone()), ..o }));
        if let Some(why) = &report.kept_as_read {
            self.told.notes.push(format!(
                "{within} is kept as read: the result was wrong and no law could be blamed; {why}"
            ));
        }
        let not_checked = report.self_check.as_ref().and_then(|c| c.not_checked.as_ref());
        if let Some(why) = not_checked {
            self.told.notes.push(format!("{within} is not checked: {why}"));
        }
    }

    /// The optimised graph of a body; `None` if it is best as it is.
    fn body(&self, node: &RawNode, body: SubgraphModel) -> Result<Rewritten, Error> {
        let Some(RawAttr::Graph(old)) = node.attrs.get(&body.attribute) else {
            return Err(Error::unexpected("a body has no graph"));
        };
        let captured: HashMap<&String, _> = body
            .model
            .graph
            .initializers
            .iter()
            .filter(|(name, _)| !old.initializers.contains_key(*name))
            .collect();
        let (Optimized { report, explored, .. }, new) = self.optimized(&body.model)?;
        let profiles = explored.profiles;
        let (was, is) = (old.nodes.len(), new.graph.nodes.len());
        if is >= was && !report.gains(is - was) {
            return Ok(Rewritten { graph: None, report, profiles });
        }
        let mut names: HashMap<String, String> = HashMap::new();
        let mut outputs = old.outputs.clone();
        // What follows operators of a runtime's own has no type unless the body says it.
        for (o, typed) in outputs.iter_mut().zip(&new.graph.outputs) {
            o.dtype = o.dtype.or(typed.dtype);
        }
        let mut graph = RawGraph { inputs: old.inputs.clone(), outputs, ..new.graph };
        graph.name.clone_from(&old.name);
        graph.value_infos.clear();
        let kept: HashSet<&String> = old.outputs.iter().map(|o| &o.name).collect();
        let prefix = if node.name.is_empty() { node.outputs.first() } else { Some(&node.name) };
        let prefix = prefix.map_or("body", String::as_str);
        let own = |name: &String| format!("{prefix}/{}/{name}", body.attribute);
        for (name, tensor) in std::mem::take(&mut graph.initializers) {
            let same = captured.iter().find(|(_, t)| {
                t.same_storage(&tensor)
                    && t.shape() == tensor.shape()
                    && t.dtype() == tensor.dtype()
            });
            let new = same.map_or_else(|| own(&name), |(outside, _)| (*outside).clone());
            if same.is_none() {
                graph.initializers.insert(new.clone(), tensor);
            }
            names.insert(name, new);
        }
        for o in graph.nodes.iter().flat_map(|n| &n.outputs) {
            if !o.is_empty() && !kept.contains(o) {
                names.insert(o.clone(), own(o));
            }
        }
        rename(&mut graph, &names);
        Ok(Rewritten { graph: Some(graph), report, profiles })
    }

    /// A body as a model, optimised; what cannot be written stays as it is.
    fn optimized(&self, raw: &RawModel) -> Result<(Optimized, RawModel), Error> {
        let mut kept = mlc_onnx::declared_opaque(raw, self.library);
        loop {
            let imported = import_with_opaque_nodes(raw.clone(), self.library, &kept, Loops::Kept)?;
            let (program, info) = (imported.program, imported.model);
            let more = unwritten(&program, self.library, &info, self.opset);
            if more.is_subset(&kept) {
                let (optimized, written) =
                    onnx_target::optimize(program, self.library, &info, self.opset, &self.options)?;
                return Ok((optimized, written));
            }
            kept.extend(more);
        }
    }
}
