//! Imports ONNX models as programs.
//!
//! Every operator is imported as its `onnx` item says; none is known by name here, except control flow, which items cannot
//! express. Shape computations of a model are evaluated to extents (see [`mlc_dsl::shape_values`]).

mod apply;
pub(crate) mod bind;
pub(crate) mod broadcast;
mod call;
pub(crate) mod control;
pub(crate) mod data_dependent;
mod einsum;
pub(crate) mod error;
mod expression;
mod extent_equations;
mod facts;
mod interface;
mod item_calls;
pub(crate) mod items;
mod lists;
pub(crate) mod read_as;
pub(crate) mod read_facts;
pub(crate) mod value;

use super::export::types::{NEWEST_OPSET, is_implemented};
use super::opaque::{self, Opaque};
use super::raw::{RawDim, RawGraph, RawModel, RawNode, RawValueInfo};
use apply::ImportBuilder;
use bind::bind;
use control::{FEW_REPEATED, MAX_REPEATED};
use data_dependent::deferral::DeferredNodes;
use data_dependent::passthrough::{DataDependentExtents, UntypedReason};
use data_dependent::{KnownValues, MissingValues, ModelCut};
use error::ImportError;
use expression::OnnxItemInterpreter;
use extent_equations::ExtentEquation;
use facts::bound_text;
use items::{Items, NodeItems, imports};
use mlc_dsl::ir::{DType, Extent, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{Library, OnnxItem};
use mlc_dsl::shown;
use read_facts::ReadFacts;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use value::{NodeValue, origin};

/// A model as a program, with what an export needs to look like the original.
#[derive(Clone, Debug)]
pub struct Imported {
    /// What the graph computes, typed; names of inputs and outputs are those of the file.
    pub program: Program,
    /// The rest of the model.
    pub model: ModelInfo,
    /// Symbols of the model that had to be equal, each with what it was replaced by.
    pub assumed: Vec<(String, String)>,
    /// What is odd about the model and does not matter to its values.
    pub notes: Vec<String>,
}

/// What a model says beside its computation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelInfo {
    /// Version of the file format.
    pub ir_version: i64,
    /// Operator set version by domain.
    pub opset_imports: BTreeMap<String, i64>,
    /// The graph's name.
    pub graph_name: String,
    /// The tool that made the model.
    pub producer_name: String,
    /// The version of that tool.
    pub producer_version: String,
    /// The model's own namespace.
    pub domain: String,
    /// The model's own version.
    pub model_version: i64,
    /// Free text.
    pub doc_string: String,
    /// Free key-value pairs.
    pub metadata_props: BTreeMap<String, String>,
    /// Declared inputs.
    pub inputs: Vec<RawValueInfo>,
    /// Declared outputs.
    pub outputs: Vec<RawValueInfo>,
    /// Inputs that a run need not give, each with its value where it does not.
    pub defaults: Vec<(RawValueInfo, Tensor)>,
    /// Nodes of the main graph; constants are not counted.
    pub nodes: usize,
    /// Nodes that the program does not contain.
    pub opaque: Opaque,
    /// What reading found out.
    pub facts: ReadFacts,
}

impl ModelInfo {
    /// Version of the standard operator set, 0 if the model does not use it.
    pub fn opset(&self) -> i64 {
        self.opset_imports.get("").copied().unwrap_or(0)
    }
}

/// How often a model may be read again because two of its symbols turn out to be equal.
const MAX_UNIFICATIONS: usize = 64;
/// The first version of the file format whose initializers need not be inputs: before, those were constants, too.
const CONSTANT_INITIALIZERS: i64 = 4;

/// Reads a model as a program. A node that no declaration reads is an error.
pub fn import(raw: RawModel, library: &Library) -> Result<Imported, ImportError> {
    done(import_with_options(raw, library, &ImportOptions::default())?)
}

/// Reads a model as a program. A node that no declaration reads is [opaque](Opaque), and so are those whose name, or
/// first result if they have none, is among `kept`, and `loops` that are not written out.
pub fn import_with_opaque_nodes(
    raw: RawModel,
    library: &Library,
    kept: &BTreeSet<String>,
    loops: Loops,
) -> Result<Imported, ImportError> {
    done(import_with_options(
        raw,
        library,
        &ImportOptions { kept: Some(kept), loops, ..ImportOptions::default() },
    )?)
}

/// What becomes of loops that run a known number of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loops {
    /// They are written out as long as a model may be: what runs here has no loops.
    #[default]
    WrittenOut,
    /// They stay loops, unless they are few nodes when written out, or constant: runtimes have loops.
    Kept,
}

/// How an import ended.
pub(super) enum ImportOutcome {
    Done(Box<Imported>),
    NeedsValues(Box<MissingValues>),
    Cut(Box<ModelCut>),
}

/// How a model is to be read.
#[derive(Default)]
pub(super) struct ImportOptions<'a> {
    /// Whether nodes that are not understood are kept, and what others are.
    pub kept: Option<&'a BTreeSet<String>>,
    pub loops: Loops,
    /// What a run has computed so far.
    pub known_values: KnownValues,
    /// Whether nodes that ask for more wait, so that others can be read.
    pub waits: bool,
    /// Whether the model is cut before those.
    pub cuts: bool,
    /// What its operator sets admit, if that is known.
    pub items: Option<&'a NodeItems<'a>>,
}

fn done(importing: ImportOutcome) -> Result<Imported, ImportError> {
    match importing {
        ImportOutcome::Done(imported) => Ok(*imported),
        ImportOutcome::NeedsValues(asked) => Err(asked.error),
        ImportOutcome::Cut(cut) => Err(cut.error),
    }
}

pub(super) fn import_with_options(
    mut raw: RawModel,
    library: &Library,
    options: &ImportOptions<'_>,
) -> Result<ImportOutcome, ImportError> {
    if raw.opset_imports.get("").is_some_and(|&o| o > NEWEST_OPSET) {
        let opset = raw.opset_imports[""];
        return Err(ImportError::Graph {
            place: "the model".into(),
            reason: format!(
                "it is of operator set {opset}; versions up to {NEWEST_OPSET} are read"
            ),
            help: format!(
                "export it at operator set {NEWEST_OPSET} or below, or convert it with \
                 `onnx.version_converter`"
            ),
        });
    }
    raw.opset_imports = imports(&raw, library);
    let own = std::cell::OnceCell::new();
    let of_model = || own.get_or_init(|| Items::of(library, &raw.opset_imports));
    let items = options.items.map_or_else(of_model, |known| &known.items);
    let mut assumed: Vec<ExtentEquation> = Vec::new();
    let mut facts: Vec<Extent> = Vec::new();
    let mut keeps = options.kept.cloned();
    let (program, notes, opaque, read_facts) =
        loop {
            let mut importer = Importer {
                items,
                draft: ImportBuilder::new(library, &options.known_values, &assumed, &facts),
                values: HashMap::new(),
                symbols: HashSet::new(),
                opsets: &raw.opset_imports,
                notes: vec![],
                declared: HashMap::new(),
                keeps: keeps.as_ref(),
                loops: options.loops,
                at: 0,
                most_repeated: MAX_REPEATED,
                opaque: Opaque::default(),
                facts: ReadFacts::default(),
                untyped: HashMap::new(),
                data_dependent: DataDependentExtents::default(),
                repeated: 0,
                listed: 0,
                may_wait: options.waits,
                cuts: options.cuts,
                deferred: DeferredNodes::default(),
            };
            let replaceable = replaceable(&raw);
            let read = importer.model(&raw.graph, &replaceable);
            if let (Ok(_), Some(error)) = (&read, importer.deferred.error.take()) {
                return Ok(importer.left(&raw, error));
            }
            match read {
                Ok(outputs) => {
                    let makers = importer.makers_of_kept_lists(&raw.graph);
                    if keeps.as_ref().is_some_and(|kept| !makers.is_subset(kept)) {
                        drop(importer);
                        keeps.iter_mut().for_each(|kept| kept.extend(makers.iter().cloned()));
                        continue;
                    }
                    let positive = std::mem::take(&mut importer.draft.positive);
                    let mut read_facts = std::mem::take(&mut importer.facts);
                    read_facts.positive = positive;
                    let program = importer.draft.finish(outputs).with_empty_constants().pruned();
                    let program = program.with_late_constants();
                    let mut notes = importer.notes;
                    notes.extend(facts.iter().map(|f| {
                        format!("its operators fit each other only where {}", bound_text(f))
                    }));
                    break (program, notes, importer.opaque, read_facts);
                }
                Err(e) => match importer.draft.take_conflict() {
                    Some(need) if assumed.len() < MAX_UNIFICATIONS && !assumed.contains(&need) => {
                        drop(importer);
                        assumed.push(need);
                    }
                    _ if let Some(fact) = importer.draft.take_needed_fact()
                        && facts.len() < MAX_UNIFICATIONS
                        && !facts.contains(&fact) =>
                    {
                        drop(importer);
                        facts.push(fact);
                    }
                    _ => return Err(e.fitting(importer.draft.misfit(), &raw.graph.inputs)),
                },
            }
        };
    let defaults = replaceable(&raw).into_iter().map(|(i, t)| (i.clone(), t.clone())).collect();
    let model = ModelInfo {
        defaults,
        ir_version: raw.ir_version,
        opset_imports: raw.opset_imports,
        graph_name: raw.graph.name,
        producer_name: raw.producer_name,
        producer_version: raw.producer_version,
        domain: raw.domain,
        model_version: raw.model_version,
        doc_string: raw.doc_string,
        metadata_props: raw.metadata_props,
        inputs: raw.graph.inputs,
        outputs: raw.graph.outputs,
        nodes: raw.graph.nodes.len(),
        opaque,
        facts: read_facts,
    };
    let of_symbol = |need: ExtentEquation| Some((need.symbol()?, need.is.to_string()));
    let assumed = assumed.into_iter().filter_map(of_symbol).collect();
    Ok(ImportOutcome::Done(Box::new(Imported { program, model, assumed, notes })))
}

/// The initializers that a run may replace: those that are inputs, too, in files whose version knows others.
fn replaceable(raw: &RawModel) -> Vec<(&RawValueInfo, &Tensor)> {
    if raw.ir_version < CONSTANT_INITIALIZERS {
        return vec![];
    }
    let graph = &raw.graph;
    graph.defaults.iter().filter_map(|i| Some((i, graph.initializers.get(&i.name)?))).collect()
}

pub(super) struct Importer<'a> {
    pub(super) items: &'a Items<'a>,
    pub(super) draft: ImportBuilder<'a>,
    pub(super) values: HashMap<String, NodeValue>,
    /// Names of symbols that are taken.
    pub(super) symbols: HashSet<String>,
    pub(super) opsets: &'a BTreeMap<String, i64>,
    pub(super) notes: Vec<String>,
    /// What the model says of the types of its values.
    pub(super) declared: HashMap<String, RawValueInfo>,
    /// Whether nodes that are not understood are kept, or are errors; and the names of others that are kept.
    pub(super) keeps: Option<&'a BTreeSet<String>>,
    loops: Loops,
    /// The place of the current node of the main graph.
    pub(super) at: usize,
    pub(super) opaque: Opaque,
    facts: ReadFacts,
    /// Results of such nodes whose type is not known, and inputs that are no tensors: each with what a run makes of it.
    pub(super) untyped: HashMap<String, UntypedReason>,
    /// Symbols whose extents only a run computes.
    pub(super) data_dependent: DataDependentExtents,
    /// Nodes of bodies that were read for one more time, and elements of sequences that were made: both are bounded.
    pub(super) repeated: usize,
    pub(super) most_repeated: usize,
    pub(super) listed: usize,
    /// Whether nodes may wait for a run, whether the model is cut before them then, and those that wait.
    pub(super) may_wait: bool,
    pub(super) cuts: bool,
    pub(super) deferred: DeferredNodes,
}

impl Importer<'_> {
    fn model(
        &mut self,
        graph: &RawGraph,
        defaults: &[(&RawValueInfo, &Tensor)],
    ) -> Result<Vec<(String, Value)>, ImportError> {
        let inputs = graph.inputs.iter().chain(defaults.iter().map(|(i, _)| *i));
        let symbols = inputs.flat_map(|i| i.dims.iter().flatten());
        self.symbols = symbols
            .filter_map(|d| if let RawDim::Symbol(s) = d { Some(s.clone()) } else { None })
            .collect();
        for input in &graph.inputs {
            let why = match (input.containers.is_empty(), &input.dims) {
                (false, _) => Some(UntypedReason::Foreign),
                (true, None) => Some(UntypedReason::DataDependent),
                (true, Some(_)) => None,
            };
            if let (true, Some(why)) = (self.keeps.is_some(), why) {
                self.untyped.insert(input.name.clone(), why);
                self.opaque.inputs.push(input.clone());
                continue;
            }
            let ty = self.input_type(input)?;
            let v = self.draft.builder.input(&input.name, ty);
            self.values.insert(input.name.clone(), NodeValue::Tensor(v));
        }
        let declared = graph.value_infos.iter().chain(&graph.outputs);
        self.declared = declared.map(|v| (v.name.clone(), v.clone())).collect();
        self.constants(graph);
        for (input, tensor) in defaults {
            let of_value = Type::known(tensor.dtype(), tensor.shape());
            let ty = if input.dims.is_some() { self.input_type(input)? } else { of_value };
            let v = self.draft.builder.input(&input.name, ty);
            self.values.insert(input.name.clone(), NodeValue::Tensor(v));
        }
        self.nodes(graph, 0)?;
        if self.deferred.error.is_some() {
            return Ok(vec![]);
        }
        let mut opaque: HashSet<String> = self.opaque.defined().map(str::to_string).collect();
        opaque.extend(self.opaque.inputs.iter().map(|i| i.name.clone()));
        let output = |o: &RawValueInfo| match self.values.get(&o.name).cloned() {
            Some(v) => {
                if let NodeValue::Tensor(v) = v {
                    self.declared(o, v)?;
                }
                Ok(v.elements(&o.name))
            }
            None => Err(ImportError::Graph {
                place: format!("output `{}`", shown(&o.name)),
                reason: "nothing defines it".into(),
                help: "let a node of the graph define it, or take it off the list of outputs"
                    .into(),
            }),
        };
        let understood = graph.outputs.iter().filter(|o| !opaque.contains(&o.name));
        let outputs: Vec<Vec<(String, Value)>> =
            understood.map(output).collect::<Result<_, _>>()?;
        let mut outputs: Vec<(String, Value)> = outputs.into_iter().flatten().collect();
        self.read_by_opaque(&mut outputs);
        Ok(outputs)
    }

    /// Adds what the opaque nodes read and the program computes.
    fn read_by_opaque(&mut self, outputs: &mut Vec<(String, Value)>) {
        let program = self.draft.builder.program();
        let mut seen: HashSet<String> = outputs.iter().map(|(n, _)| n.clone()).collect();
        let nodes = std::mem::take(&mut self.opaque.nodes);
        for name in nodes.iter().flat_map(|(n, _)| opaque::reads(n)) {
            let Some(v) = self.values.get(&name).and_then(NodeValue::tensor) else { continue };
            if let Some(tensor) = program.as_const(v) {
                self.opaque.constants.insert(name, tensor.clone());
                continue;
            }
            let is_input = match program.node(v.node).kind {
                NodeKind::Input(i) => program.inputs[i as usize].0 == name,
                _ => false,
            };
            if !is_input && seen.insert(name.clone()) {
                outputs.push((name, v));
            }
        }
        self.opaque.nodes = nodes;
    }

    /// Reads the constants of a graph.
    pub(super) fn constants(&mut self, graph: &RawGraph) {
        for (name, tensor) in &graph.initializers {
            let v = self.draft.builder.constant(tensor.clone().named(name));
            self.values.insert(name.clone(), NodeValue::Tensor(v));
        }
    }

    /// Reads the nodes of a graph; what they define is in `values` afterwards.
    pub(super) fn nodes(&mut self, graph: &RawGraph, depth: usize) -> Result<(), ImportError> {
        for (i, node) in graph.nodes.iter().enumerate() {
            if depth == 0 && self.is_held_up(i, node) {
                continue;
            }
            if let Err(e) = self.node(node, depth) {
                // What a body needs is needed only where it runs.
                if depth > 0
                    && self.draft.conflict().is_some_and(|need| need.is.as_const().is_some())
                {
                    self.draft.take_conflict();
                }
                if depth > 0 {
                    self.draft.take_needed_fact();
                }
                let e = match self.draft.asked_in_vain() {
                    true => e.undecided(self.asked_name(), self.draft.undecided_inputs()),
                    false if self.draft.is_symbolic() => e.of_shapes(),
                    false => e,
                };
                if depth == 0 && self.waits(node, &e) {
                    continue;
                }
                let by_data = depth == 0 && self.is_data_dependent(node);
                let foreign = by_data
                    || self.draft.is_unsupported()
                    || matches!(
                        e,
                        ImportError::UnknownOperator { .. } | ImportError::Undecided { .. }
                    );
                // Only the main graph is written as it was.
                let fits = self.draft.conflict().is_none() && !self.draft.needs_fact();
                let main = depth == 0 && (by_data || fits);
                if !(self.keeps.is_some() && foreign && main) {
                    return Err(e);
                }
                let e = if by_data { e.data_dependent() } else { e };
                self.keep(node, e);
            }
        }
        Ok(())
    }

    /// What the model calls the value that the current node asked for in vain.
    fn asked_name(&self) -> Option<String> {
        let asked = self.draft.unanswered()?;
        let of = |(_, v): &(&String, &NodeValue)| v.tensor() == Some(asked);
        self.values.iter().filter(of).map(|(name, _)| name.clone()).min()
    }

    /// What was imported so far, with these outputs.
    pub(super) fn take_program(&mut self, outputs: Vec<(String, Value)>) -> Program {
        let (assumed, facts) = (self.draft.assumed(), self.draft.facts());
        let empty =
            ImportBuilder::new(self.draft.library(), self.draft.known_values(), assumed, facts);
        let draft = std::mem::replace(&mut self.draft, empty);
        draft.finish(outputs).with_empty_constants().pruned()
    }

    pub(super) fn node(&mut self, node: &RawNode, depth: usize) -> Result<(), ImportError> {
        let fail = |reason: String| ImportError::node(node, reason);
        self.draft.begin_node();
        self.typed(node)?;
        if depth == 0 {
            // What a body computes is of the node of the main graph: that is what can be kept.
            self.draft.builder.set_origin(origin(node));
            self.most_repeated = match self.loops == Loops::Kept && self.may_stay(node) {
                true => self.repeated.saturating_add(FEW_REPEATED).min(MAX_REPEATED),
                false => MAX_REPEATED,
            };
        }
        let kept = depth == 0 && self.keeps.is_some_and(|kept| kept.contains(origin(node)));
        if let Some(done) = self.control(node, depth) {
            done?;
            if !kept {
                return Ok(());
            }
            let is_list = |o: &String| self.values.get(o).is_some_and(|v| v.tensor().is_none());
            if node.outputs.iter().filter(|o| !o.is_empty()).all(is_list) {
                // What reads tensors of these lists is understood nevertheless.
                let why =
                    "what it makes is no tensor, and a node that is kept or an output needs it";
                self.opaque.nodes.push((node.clone(), fail(why.into())));
                return Ok(());
            }
        }
        let Some(item) = self.items.find(node) else {
            if kept && control::is_known(node) {
                let why = "what it is read as cannot be written";
                return Err(fail(self.draft.unsupported(why.into())));
            }
            return Err(self.unknown(node));
        };
        let results = self.read_item(item, node)?;
        for (i, name) in node.outputs.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            let v = results.get(i).copied().flatten();
            let v = v.ok_or_else(|| {
                let reason = format!("its output {i} (`{}`) is not supported", shown(name));
                fail(self.draft.unsupported(reason))
            })?;
            self.values.insert(name.clone(), NodeValue::Tensor(v));
        }
        self.note_kernel(node);
        if kept {
            // It was read for the types of its results.
            let why = if item.decl.opaque { opaque::RECOGNISED } else { "it cannot be written" };
            return Err(fail(self.draft.unsupported(why.into())));
        }
        Ok(())
    }

    /// Notes if a runtime has no code for a node that was read.
    fn note_kernel(&mut self, node: &RawNode) {
        let types = |names: &[String]| -> Vec<Option<DType>> {
            let of = |n: &String| self.values.get(n).and_then(NodeValue::tensor);
            names.iter().map(|n| of(n).map(|v| self.draft.builder.ty(v).dtype)).collect()
        };
        let opset = self.opsets.get("").copied().unwrap_or(0);
        let (inputs, outputs) = (types(&node.inputs), types(&node.outputs));
        if !is_implemented(&node.domain, &node.op_type, opset, &inputs, &outputs) {
            self.facts.add_without_kernel();
        }
    }

    /// The results of a node as its item says.
    pub(super) fn read_item(
        &mut self,
        item: &OnnxItem,
        node: &RawNode,
    ) -> Result<Vec<Option<Value>>, ImportError> {
        let fail = |reason: String| ImportError::node(node, reason);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for name in &node.inputs {
            inputs.push(match self.values.get(name) {
                Some(NodeValue::Tensor(v)) => Some(*v),
                Some(other) => return Err(fail(value::not("a tensor", name, other))),
                None if name.is_empty() => None,
                None => {
                    return Err(fail(format!("`{}` is read before it is defined", shown(name))));
                }
            });
        }
        let first = inputs.first().copied().flatten().map(|v| self.draft.builder.ty(v).dtype);
        self.facts.add_operator(&node.domain, &node.op_type, first);
        let bound = bind(item, node, &inputs, &mut self.draft).map_err(fail)?;
        OnnxItemInterpreter::new(item, node, bound, &mut self.draft).read().map_err(fail)
    }

    fn unknown(&self, node: &RawNode) -> ImportError {
        let opset = self.opsets.get(&node.domain).copied().unwrap_or(0);
        let operator = match node.domain.as_str() {
            "" => format!("`{}`", shown(&node.op_type)),
            d => format!("`{}` of the domain `{}`", shown(&node.op_type), shown(d)),
        };
        ImportError::UnknownOperator {
            node: node.label(),
            operator,
            opset,
            help: self.items.help(node),
        }
    }
}
