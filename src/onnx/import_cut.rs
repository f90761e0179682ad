//! Cuts a model before a node that asks for what only a run computes.
//!
//! What the rest reads becomes its inputs, or its constants if it is known. Only tensors of known extents pass a cut: the
//! nodes that make a sequence or an optional stay with the rest.

use super::import::Importer;
use super::import_error::ImportError;
use super::import_stage::Cut;
use super::opaque;
use super::raw::{RawDim, RawGraph, RawModel, RawValueInfo};
use mlc_dsl::ir::{NodeKind, Tensor, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What the rest of a model reads.
#[derive(Default)]
struct Seam {
    /// Nodes that the rest consists of.
    nodes: BTreeSet<usize>,
    /// Names of inputs and constants of the model.
    kept: BTreeSet<String>,
    constants: BTreeMap<String, Tensor>,
    computed: BTreeMap<String, Value>,
}

impl Importer<'_> {
    /// The model in two parts, before the node that stopped the import with a question; `None` if a run cannot answer it,
    /// if extents decide it without one, or if nothing would come before.
    pub(super) fn cut(&mut self, raw: &RawModel, error: &ImportError) -> Option<Cut> {
        let asked = self.sheet.unanswered()?;
        let asks = matches!(error, ImportError::Undecided { .. });
        if !asks || self.at == 0 || !self.is_of_inputs(asked) {
            return None;
        }
        let seam = self.seam(&raw.graph);
        if seam.nodes.len() == raw.graph.nodes.len() {
            return None;
        }
        let rest = RawModel { graph: self.rest(&raw.graph, &seam), ..without_graph(raw) };
        let program = self.take_program(seam.computed.into_iter().collect());
        Some(Cut { program, rest, error: error.clone() })
    }

    /// True if elements of inputs decide a value.
    fn is_of_inputs(&self, v: Value) -> bool {
        let program = self.sheet.builder.program();
        let (mut open, mut seen) = (vec![v.node], BTreeSet::new());
        while let Some(id) = open.pop() {
            let node = program.node(id);
            if matches!(node.kind, NodeKind::Input(_)) {
                return true;
            }
            if seen.insert(id) {
                open.extend(node.args.iter().map(|a| a.node));
            }
        }
        false
    }

    fn seam(&mut self, graph: &RawGraph) -> Seam {
        let mut seam = Seam { nodes: (self.at..graph.nodes.len()).collect(), ..Seam::default() };
        let made = graph.nodes[..self.at].iter().enumerate();
        let makers: HashMap<&str, usize> =
            made.flat_map(|(i, n)| n.outputs.iter().map(move |o| (o.as_str(), i))).collect();
        let mut open: Vec<String> = graph.outputs.iter().map(|o| o.name.clone()).collect();
        open.extend(graph.nodes[self.at..].iter().flat_map(opaque::reads));
        let mut seen = BTreeSet::new();
        while let Some(name) = open.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let Some(&maker) = makers.get(name.as_str()) else {
                seam.kept.insert(name);
                continue;
            };
            let value = self.values.get(&name).and_then(|v| v.tensor());
            match value.filter(|&v| self.sheet.builder.ty(v).known_shape().is_some()) {
                Some(v) => match self.sheet.known(v).and_then(|k| k.tensor()) {
                    Some(tensor) => drop(seam.constants.insert(name, tensor)),
                    None => drop(seam.computed.insert(name, v)),
                },
                None => {
                    seam.nodes.insert(maker);
                    open.extend(opaque::reads(&graph.nodes[maker]));
                }
            }
        }
        let own = seam.nodes.iter().flat_map(|&i| &graph.nodes[i].outputs);
        for name in own {
            seam.constants.remove(name);
            seam.computed.remove(name);
        }
        seam
    }

    fn rest(&self, graph: &RawGraph, seam: &Seam) -> RawGraph {
        let mut inputs: Vec<RawValueInfo> =
            graph.inputs.iter().filter(|i| seam.kept.contains(&i.name)).cloned().collect();
        inputs.extend(seam.computed.iter().map(|(name, v)| {
            let ty = self.sheet.builder.ty(*v);
            let extents = ty.shape.iter().filter_map(|e| e.as_const());
            let dims = extents.map(|n| RawDim::Known(n.unsigned_abs())).collect();
            let dtype = Some(ty.dtype);
            RawValueInfo { name: name.clone(), dtype, dims: Some(dims), containers: vec![] }
        }));
        let is_read = |(name, _): &(&String, &Tensor)| seam.kept.contains(*name);
        let constants = graph.initializers.iter().filter(is_read).chain(&seam.constants);
        RawGraph {
            name: graph.name.clone(),
            inputs,
            outputs: graph.outputs.clone(),
            value_infos: graph.value_infos.clone(),
            defaults: graph.defaults.clone(),
            initializers: constants.map(|(name, t)| (name.clone(), t.clone())).collect(),
            nodes: seam.nodes.iter().map(|&i| graph.nodes[i].clone()).collect(),
        }
    }
}

/// What a model says besides its graph.
fn without_graph(raw: &RawModel) -> RawModel {
    RawModel {
        graph: RawGraph::default(),
        opset_imports: raw.opset_imports.clone(),
        metadata_props: raw.metadata_props.clone(),
        producer_name: raw.producer_name.clone(),
        producer_version: raw.producer_version.clone(),
        domain: raw.domain.clone(),
        doc_string: raw.doc_string.clone(),
        ..*raw
    }
}
