//! Deferral of nodes that need values of a run, and cutting the model before them.
//!
//! What deferred nodes read becomes inputs of the rest of the model, or constants where it is known. Only tensors of known extents
//! cross a cut: nodes that make a sequence or an optional belong to the rest, too.

use super::super::apply::ImportBuilder;
use super::super::error::ImportError;
use super::super::{ImportOutcome, Importer};
use super::{DeferredControl, MissingValues, ModelCut, RequestSite, ValueRequests, ValueSource};
use crate::opaque;
use crate::raw::{RawDim, RawGraph, RawModel, RawNode, RawValueInfo};
use crate::subgraphs::at_run;
use crate::subgraphs::at_run::{is_control, of_any_type};
use mlc_dsl::ir::{Extent, NodeKind, Tensor, Type, Value};
use mlc_dsl::shape_values::MAX_ELEMENTS;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The nodes of the main graph that wait.
#[derive(Default)]
pub(crate) struct DeferredNodes {
    /// All of them.
    nodes: BTreeSet<usize>,
    /// What they define.
    results: HashSet<String>,
    /// What some of them ask for.
    requests: Vec<(RequestSite, Value)>,
    /// Those that are to be run by themselves, and whether data decide what they are.
    controls: BTreeMap<usize, bool>,
    /// Why the first of them waits.
    pub error: Option<ImportError>,
}

impl DeferredNodes {
    /// True if a node reads what another one that waits defines.
    pub fn holds_up(&self, node: &RawNode) -> bool {
        !self.results.is_empty() && opaque::reads(node).iter().any(|n| self.results.contains(n))
    }

    /// Leaves a node for later.
    pub fn add(&mut self, at: usize, node: &RawNode) {
        self.nodes.insert(at);
        self.results.extend(node.outputs.iter().filter(|o| !o.is_empty()).cloned());
    }
}

/// What the rest of a model reads.
#[derive(Default)]
struct CutBoundary {
    /// Nodes that the rest consists of.
    nodes: BTreeSet<usize>,
    /// Names of inputs and constants of the model.
    kept: BTreeSet<String>,
    constants: BTreeMap<String, Tensor>,
    computed: BTreeMap<String, Value>,
}

impl ImportBuilder<'_> {
    /// A node of the main graph begins, by its first result.
    pub fn begin_main(&mut self, result: &str) {
        self.main = (result.to_string(), self.step);
    }

    /// Where a question of the current node comes up.
    pub fn request_site(&self) -> RequestSite {
        (self.main.0.clone(), self.step - self.main.1)
    }

    /// True if a body of the current node of the main graph was begun.
    pub fn is_inside(&self) -> bool {
        self.step > self.main.1 + 1
    }
}

impl Importer<'_> {
    /// Begins a node of the main graph; leaves it for later if it reads what another one that waits defines.
    pub(crate) fn is_held_up(&mut self, at: usize, node: &RawNode) -> bool {
        self.at = at;
        self.draft
            .begin_main(node.outputs.iter().find(|o| !o.is_empty()).map_or("", String::as_str));
        let waits = self.deferred.holds_up(node);
        if waits {
            self.deferred.add(at, node);
        }
        waits
    }

    /// Leaves the current node of the main graph for later if a run can answer what it asks for, or run its body.
    pub(crate) fn waits(&mut self, node: &RawNode, error: &ImportError) -> bool {
        if !self.may_wait || self.draft.conflict().is_some() {
            return false;
        }
        let asked = match error {
            ImportError::Undecided { .. } => self.draft.unanswered(),
            _ => None,
        };
        let too_long = matches!(error, ImportError::TooLong { .. });
        let runs = too_long || asked.is_some() && self.draft.is_inside();
        match asked {
            _ if self.cuts && runs && self.is_runnable(node) => {
                self.deferred.controls.insert(self.at, !too_long);
            }
            Some(value) => self.deferred.requests.push((self.draft.request_site(), value)),
            None => return false,
        }
        self.deferred.error.get_or_insert_with(|| error.clone());
        self.deferred.add(self.at, node);
        true
    }

    /// True of control flow that reads tensors alone.
    fn is_runnable(&self, node: &RawNode) -> bool {
        let passes = |name: &String| {
            let value = self.values.get(name).and_then(|v| v.tensor());
            value.is_some_and(|v| self.draft.builder.ty(v).known_shape().is_some())
        };
        is_control(node) && opaque::reads(node).iter().all(passes)
    }

    /// What comes of an import some of whose nodes wait.
    pub(crate) fn left(mut self, raw: &RawModel, error: ImportError) -> ImportOutcome {
        let deferred = std::mem::take(&mut self.deferred);
        let data_dependent = deferred.requests.iter().any(|(_, v)| self.is_of_inputs(*v));
        if self.cuts && (data_dependent || !deferred.controls.is_empty()) {
            return ImportOutcome::Cut(Box::new(self.cut(raw, deferred, data_dependent, error)));
        }
        let (requests, asked) = self.requests(deferred.requests, data_dependent);
        let program = self.take_program(asked);
        ImportOutcome::NeedsValues(Box::new(MissingValues { program, requests, error }))
    }

    /// The questions, and what computes the answers that are not known.
    fn requests(
        &self,
        all: Vec<(RequestSite, Value)>,
        data_dependent: bool,
    ) -> (ValueRequests, Vec<(String, Value)>) {
        let program = self.draft.builder.program();
        let mut asked = vec![];
        let source = |(place, v): (RequestSite, Value)| {
            let shape = program.ty(v).known_shape();
            let is_large = shape.is_some_and(|s| s.iter().product::<usize>() > MAX_ELEMENTS);
            let source = match (is_large, program.as_const(v)) {
                (true, _) => ValueSource::Known(None),
                (false, Some(tensor)) => ValueSource::Known(Some(tensor.clone())),
                (false, None) => {
                    asked.push((format!("asked {}", asked.len()), v));
                    ValueSource::Computed
                }
            };
            (place, source)
        };
        let all = all.into_iter().map(source).collect();
        (ValueRequests { all, data_dependent }, asked)
    }

    /// The model in two parts, before the nodes that wait.
    fn cut(
        &mut self,
        raw: &RawModel,
        deferred: DeferredNodes,
        data_dependent: bool,
        error: ImportError,
    ) -> ModelCut {
        let mut boundary = self.boundary(&raw.graph, &deferred);
        let known = |name: &str| {
            boundary.constants.get(name).or_else(|| raw.graph.initializers.get(name)).cloned()
        };
        let control = |(&at, &data_dependent): (&usize, &bool)| {
            let node = raw.graph.nodes[at].clone();
            let constants = node.inputs.iter().filter_map(|n| Some((n.clone(), known(n)?)));
            let (constants, subgraphs) = (constants.collect(), at_run::of(&node, raw, &known));
            DeferredControl { constants, subgraphs, node, data_dependent }
        };
        let controls: Vec<DeferredControl> = deferred.controls.iter().map(control).collect();
        boundary.nodes.retain(|at| !deferred.controls.contains_key(at));
        let rest =
            RawModel { graph: self.rest(&raw.graph, &boundary, &controls), ..without_graph(raw) };
        let mut outputs: Vec<(String, Value)> = boundary.computed.into_iter().collect();
        let passed = outputs.len();
        let (requests, asked) = self.requests(deferred.requests, data_dependent);
        outputs.extend(asked);
        let program = self.take_program(outputs);
        ModelCut { program, passed, requests, controls, rest, error }
    }

    /// True if elements of inputs decide a value.
    fn is_of_inputs(&self, v: Value) -> bool {
        let program = self.draft.builder.program();
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

    fn boundary(&mut self, graph: &RawGraph, deferred: &DeferredNodes) -> CutBoundary {
        let mut boundary = CutBoundary { nodes: deferred.nodes.clone(), ..CutBoundary::default() };
        let made = graph.nodes.iter().enumerate().filter(|(i, _)| !deferred.nodes.contains(i));
        let makers: HashMap<&str, usize> =
            made.flat_map(|(i, n)| n.outputs.iter().map(move |o| (o.as_str(), i))).collect();
        let symbols = symbols_of(&graph.inputs);
        let mut open: Vec<String> = graph.outputs.iter().map(|o| o.name.clone()).collect();
        open.extend(deferred.nodes.iter().flat_map(|&i| opaque::reads(&graph.nodes[i])));
        let mut seen = BTreeSet::new();
        while let Some(name) = open.pop() {
            if deferred.results.contains(&name) || !seen.insert(name.clone()) {
                continue;
            }
            let Some(&maker) = makers.get(name.as_str()) else {
                boundary.kept.insert(name);
                continue;
            };
            let value = self.values.get(&name).and_then(|v| v.tensor());
            match value.filter(|&v| passes(self.draft.builder.ty(v), &symbols)) {
                Some(v) => match self.draft.known(v).and_then(|k| k.tensor()) {
                    Some(tensor) => drop(boundary.constants.insert(name, tensor)),
                    None => drop(boundary.computed.insert(name, v)),
                },
                None => {
                    boundary.nodes.insert(maker);
                    open.extend(opaque::reads(&graph.nodes[maker]));
                }
            }
        }
        let own = boundary.nodes.iter().flat_map(|&i| &graph.nodes[i].outputs);
        for name in own {
            boundary.constants.remove(name);
            boundary.computed.remove(name);
        }
        boundary
    }

    fn rest(
        &self,
        graph: &RawGraph,
        boundary: &CutBoundary,
        controls: &[DeferredControl],
    ) -> RawGraph {
        let mut inputs: Vec<RawValueInfo> =
            graph.inputs.iter().filter(|i| boundary.kept.contains(&i.name)).cloned().collect();
        inputs.extend(boundary.computed.iter().map(|(name, v)| {
            let ty = self.draft.builder.ty(*v);
            let dims = ty.shape.iter().map(dim).collect();
            let dtype = Some(ty.dtype);
            RawValueInfo { name: name.clone(), dtype, dims: Some(dims), containers: vec![] }
        }));
        let made = controls.iter().flat_map(|c| &c.node.outputs).filter(|o| !o.is_empty());
        inputs.extend(made.map(|name| of_any_type(name)));
        let is_read = |(name, _): &(&String, &Tensor)| boundary.kept.contains(*name);
        let constants = graph.initializers.iter().filter(is_read).chain(&boundary.constants);
        RawGraph {
            name: graph.name.clone(),
            inputs,
            outputs: graph.outputs.clone(),
            value_infos: graph.value_infos.clone(),
            defaults: graph.defaults.clone(),
            initializers: constants.map(|(name, t)| (name.clone(), t.clone())).collect(),
            nodes: boundary.nodes.iter().map(|&i| graph.nodes[i].clone()).collect(),
        }
    }
}

/// The symbols that inputs declare.
fn symbols_of(inputs: &[RawValueInfo]) -> HashSet<&str> {
    let dims = inputs.iter().flat_map(|i| i.dims.iter().flatten());
    dims.filter_map(|d| if let RawDim::Symbol(s) = d { Some(s.as_str()) } else { None }).collect()
}

/// True if a tensor of this type can be an input of the rest: its extents are numbers, or follow from symbols of the model's inputs.
fn passes(ty: &Type, symbols: &HashSet<&str>) -> bool {
    ty.shape.iter().flat_map(Extent::symbols).all(|s| symbols.contains(&*s))
}

/// An extent as it is declared: of those that are computed equal ones have one name.
fn dim(extent: &Extent) -> RawDim {
    match extent.as_const() {
        Some(n) => RawDim::Known(n.unsigned_abs()),
        None => RawDim::Symbol(match extent.symbols().as_slice() {
            [symbol] if *extent == Extent::sym(symbol) => symbol.to_string(),
            _ => extent.to_string(),
        }),
    }
}

/// What a model says besides its graph.
pub(crate) fn without_graph(raw: &RawModel) -> RawModel {
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
