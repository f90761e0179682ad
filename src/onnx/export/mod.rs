//! Plans as ONNX models, and programs: the inverse of the import.
//!
//! Kernels are written as the nodes that [`forms`] chooses for them by the patterns of
//! [`rules`]. A definition that no pattern writes at this operator set is written as
//! its body. No operator is known by name here.

mod core;
pub(crate) mod defaults;
mod forms;
mod graph;
mod kernels;
mod matching;
pub(crate) mod nodes;
pub(crate) mod printable;
mod rules;
mod shape;
pub(crate) mod types;
mod unit_axes;

use super::import::ModelInfo;
use super::raw::{RawDim, RawModel, RawValueInfo};
use super::read::order;
use forms::Forms;
use graph::Graph;
use kernels::PlannedProgram;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Type};
use mlc_dsl::library::{CallKind, Library};
use mlc_dsl::plan::{self, Fault, Plan};
use mlc_dsl::{shown, told};
use nodes::{Counts, write};
use rules::Rules;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use thiserror::Error;
use types::NEWEST_OPSET;

/// Why a program was not exported.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ExportError {
    /// No pattern writes this operator.
    #[error("`{op}`{} cannot be written at operator set {opset}", at(origin))]
    Operator {
        /// The operator.
        op: String,
        /// The imported node it comes from; may be empty.
        origin: String,
        /// The version of the operator set.
        opset: i64,
    },
    /// A plan cannot be written as it stands.
    #[error("{}", told(&fault.to_string()))]
    Kernel {
        /// What is wrong with it.
        fault: Fault,
    },
    /// The version of the operator set is not known.
    #[error("operator set {opset} is not known: versions 1 to {NEWEST_OPSET} are")]
    OperatorSet {
        /// The version.
        opset: i64,
    },
    /// An extent is not a function of the extents of the inputs.
    #[error(
        "the extent {} cannot be computed: no input has the axis `{}`",
        shown(extent),
        shown(symbol)
    )]
    Extent {
        /// The extent.
        extent: String,
        /// What is unknown of it.
        symbol: String,
    },
    /// A node of the model that is not understood cannot be put back.
    #[error("a node that is kept as it is cannot be written: {}", told(reason))]
    Opaque {
        /// Why not.
        reason: String,
    },
    /// Names of the model do not let it be written.
    #[error("the result would be no valid graph: {}", told(reason))]
    Names {
        /// What is wrong.
        reason: String,
    },
    /// The body of a definition is ill-typed.
    #[error("the definition `{op}`: {}", told(reason))]
    Body {
        /// The definition.
        op: String,
        /// What is wrong.
        reason: String,
    },
}

impl ExportError {
    /// What the user can do about it.
    pub fn help(&self) -> Option<&str> {
        match self {
            ExportError::Operator { .. } => Some(
                "choose a newer operator set, or declare how it prints with an `onnx` item in a --rules file",
            ),
            ExportError::Kernel { .. } => Some(
                "choose a newer operator set, declare an `onnx` item that prints what the kernel computes, or take the kernel out of the target's text",
            ),
            ExportError::OperatorSet { .. } => {
                Some("leave `--opset` out to keep the version of the model")
            }
            ExportError::Extent { .. } => Some(
                "give the extent a number in the model's inputs, or name an input's axis after it",
            ),
            ExportError::Opaque { .. } => Some(
                "declare the operators of the nodes that are kept (`onnx` items in a --rules file), or leave `--opset` out",
            ),
            ExportError::Names { .. } => Some("give the values of the model names that differ"),
            ExportError::Body { .. } => {
                Some("`mlc-rewrite check` on the text that declares the definition says more")
            }
        }
    }
}

fn at(origin: &str) -> String {
    if origin.is_empty() { String::new() } else { format!(" (from `{}`)", shown(origin)) }
}

/// Definitions are written out this often, one inside the other.
const MAX_ROUNDS: usize = 32;

/// Writes a program of which nothing is chosen as a model at version `opset` of the standard operator set: every
/// application is a kernel of its own.
pub fn export(
    program: &Program,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> Result<RawModel, ExportError> {
    Ok(export_counted(program, library, model, opset)?.0)
}

/// The same, with how many nodes are written for each node of the model.
pub fn export_counted(
    program: &Program,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> Result<(RawModel, Counts), ExportError> {
    let planned = PlannedProgram::of_nodes(program, library);
    chosen(planned, library, model, opset, &written).map_err(|stop| match stop {
        Stop::Unwritten(Unwritten { op, origin, .. }, _) => {
            ExportError::Operator { op, origin, opset }
        }
        Stop::Other(e) => e,
    })
}

/// Writes a plan: each kernel as the ONNX nodes that compute it, or several kernels as one node that computes them.
pub fn export_plan(
    plan: &Plan,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> Result<RawModel, ExportError> {
    Ok(export_plan_counted(plan, library, model, opset)?.0)
}

/// The same, with how many nodes are written for each node of the model.
pub fn export_plan_counted(
    plan: &Plan,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> Result<(RawModel, Counts), ExportError> {
    if let Some(fault) = plan::faults(plan, library).into_iter().next() {
        return Err(ExportError::Kernel { fault });
    }
    let planned = PlannedProgram::of_plan(&plan.program, library, &plan.kernels);
    chosen(planned, library, model, opset, &written).map_err(|stop| match stop {
        Stop::Unwritten(first, _) => ExportError::Kernel { fault: first.fault(plan, opset) },
        Stop::Other(e) => e,
    })
}

/// What is wrong with a plan that is to be written at version `opset` of the standard operator set: what is wrong with it
/// whatever runs it, and kernels that no `onnx` item writes.
pub fn faults(plan: &Plan, library: &Library, model: &ModelInfo, opset: i64) -> Vec<Fault> {
    let found = plan::faults(plan, library);
    if !found.is_empty() {
        return found;
    }
    let planned = PlannedProgram::of_plan(&plan.program, library, &plan.kernels);
    match chosen(planned, library, model, opset, &|_| Ok(())) {
        Ok(()) => Vec::new(),
        Err(Stop::Unwritten(first, rest)) => {
            std::iter::once(first).chain(rest).map(|u| u.fault(plan, opset)).collect()
        }
        Err(Stop::Other(e)) => vec![Fault { kernel: None, what: e.to_string() }],
    }
}

/// The operators of a plan's program that no `onnx` item writes at version `opset` of the standard operator set, as far as they are found
/// at once.
pub fn unwritten_operators(
    plan: &Plan,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> Vec<String> {
    let planned = PlannedProgram::of_plan(&plan.program, library, &plan.kernels);
    without_form(planned, library, model, opset).map(|u| u.op).collect()
}

/// The imported nodes of a program that no pattern writes at version `opset`: each by its name, or first result.
pub fn unwritten(
    program: &Program,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> BTreeSet<String> {
    let planned = PlannedProgram::of_nodes(program, library);
    without_form(planned, library, model, opset).map(|u| u.origin).collect()
}

/// What no pattern writes, as far as it is found at once.
fn without_form(
    planned: PlannedProgram,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> impl Iterator<Item = Unwritten> {
    let (first, rest) = match chosen(planned, library, model, opset, &|_| Ok(())) {
        Err(Stop::Unwritten(first, rest)) => (Some(first), rest),
        Ok(()) | Err(Stop::Other(_)) => (None, vec![]),
    };
    first.into_iter().chain(rest)
}

/// A program with the definitions opened that have no form, and what no pattern writes of it; `None` if all is written.
pub(super) fn stuck(
    program: &Program,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> Option<(Program, Vec<NodeId>)> {
    let mut opsets = model.opset_imports.clone();
    opsets.insert(String::new(), opset);
    let rules = Rules::of(library, &opsets);
    let mut current = PlannedProgram::of_nodes(program, library);
    for _ in 0..MAX_ROUNDS {
        let unwritten =
            Forms::of(Graph::of(&current, library), &rules, &model.facts, opset).ok()?.unwritten;
        let is_primitive = |id: &&NodeId| match &current.program.node(**id).kind {
            NodeKind::Apply(call, _) => !matches!(library.call(*call).kind, CallKind::Def(_)),
            NodeKind::Input(_) | NodeKind::Const(_) => false,
        };
        let mut primitives: Vec<NodeId> = unwritten.iter().filter(is_primitive).copied().collect();
        if !primitives.is_empty() {
            primitives.sort_unstable();
            return Some((current.program, primitives));
        }
        if unwritten.is_empty() {
            return None;
        }
        current = opened(&current, library, &unwritten).ok()?;
    }
    None
}

/// An operator that no pattern writes.
struct Unwritten {
    op: String,
    origin: String,
    /// The place of the first kernel that has it.
    kernel: Option<u32>,
}

impl Unwritten {
    /// What is wrong with the plan that has it.
    fn fault(self, plan: &Plan, opset: i64) -> Fault {
        let Unwritten { op, origin, kernel } = self;
        let named = |k: u32| Some((k as usize, plan.kernels.get(k as usize)?.name.clone()));
        let what = ExportError::Operator { op, origin, opset }.to_string();
        Fault { kernel: kernel.and_then(named), what }
    }
}

/// Why nothing is written.
enum Stop {
    /// An operator has no form, and others.
    Unwritten(Unwritten, Vec<Unwritten>),
    /// Anything else.
    Other(ExportError),
}

impl From<ExportError> for Stop {
    fn from(e: ExportError) -> Stop {
        Stop::Other(e)
    }
}

/// A program all of whose nodes have a form.
struct ChosenForms<'c> {
    program: &'c Program,
    forms: Forms<'c, 'c>,
    opsets: BTreeMap<String, i64>,
    model: &'c ModelInfo,
    opset: i64,
}

/// Chooses the nodes that a program is written as. Definitions without a form are opened, as often as it takes.
fn chosen<T>(
    planned: PlannedProgram,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
    then: &dyn Fn(ChosenForms<'_>) -> Result<T, ExportError>,
) -> Result<T, Stop> {
    let mut opsets = model.opset_imports.clone();
    opsets.insert(String::new(), opset);
    let rules = Rules::of(library, &opsets);
    if !(1..=NEWEST_OPSET).contains(&opset) {
        return Err(ExportError::OperatorSet { opset }.into());
    }
    let mut current = planned;
    for _ in 0..MAX_ROUNDS {
        let forms = Forms::of(Graph::of(&current, library), &rules, &model.facts, opset)?;
        if forms.unwritten.is_empty() {
            return Ok(then(ChosenForms {
                program: &current.program,
                forms,
                opsets,
                model,
                opset,
            })?);
        }
        let unwritten = forms.unwritten;
        current = opened(&current, library, &unwritten)?;
    }
    Err(Stop::Other(ExportError::Body {
        op: "its own body".into(),
        reason: "definitions are nested too deeply".into(),
    }))
}

fn written(chosen: ChosenForms<'_>) -> Result<(RawModel, Counts), ExportError> {
    let ChosenForms { program, forms, mut opsets, model, opset } = chosen;
    let (mut graph, counts) = write(forms, model, opset)?;
    graph.outputs = program.outputs.iter().map(|(n, v)| value_info(n, program.ty(*v))).collect();
    graph.inputs = program.inputs.iter().map(|(n, t)| interface(n, t, model)).collect();
    if let Some((node, _)) = model.opaque.nodes.first() {
        if opset != model.opset() && model.opset() > 0 {
            let reason = format!("it is of operator set {}, not {opset}", model.opset());
            return Err(ExportError::Opaque { reason: format!("{}: {reason}", node.label()) });
        }
        model.opaque.put_back(&mut graph, &model.inputs, &model.outputs)?;
    }
    let is_default = |i: &RawValueInfo| model.defaults.iter().any(|(d, _)| d.name == i.name);
    (graph.defaults, graph.inputs) = graph.inputs.into_iter().partition(is_default);
    for (input, tensor) in &model.defaults {
        if graph.defaults.iter().any(|d| d.name == input.name) {
            graph.initializers.insert(input.name.clone(), tensor.clone());
        }
    }
    order::verify(&graph).map_err(|e| ExportError::Names { reason: e.to_string() })?;
    let used = graph.domains();
    opsets.retain(|d, _| d.is_empty() || used.contains(d.as_str()));
    let model = RawModel {
        ir_version: model.ir_version.max(ir_version(opset)),
        opset_imports: opsets,
        producer_name: model.producer_name.clone(),
        producer_version: model.producer_version.clone(),
        domain: model.domain.clone(),
        model_version: model.model_version,
        doc_string: model.doc_string.clone(),
        metadata_props: model.metadata_props.clone(),
        graph,
    };
    Ok((model, counts))
}

pub(super) fn value_info(name: &str, ty: &Type) -> RawValueInfo {
    let dim = |e: &mlc_dsl::ir::Extent| match e.as_const().and_then(|v| u64::try_from(v).ok()) {
        Some(v) => RawDim::Known(v),
        None => RawDim::Symbol(e.to_string()),
    };
    let dims = Some(ty.shape.iter().map(dim).collect());
    RawValueInfo { name: name.to_string(), dtype: Some(ty.dtype), dims, ..RawValueInfo::default() }
}

/// An input as the model declares it: what its symbols have to be for the rest to have a meaning does not narrow them.
fn interface(name: &str, ty: &Type, model: &ModelInfo) -> RawValueInfo {
    let mut info = value_info(name, ty);
    let all = model.inputs.iter().chain(model.defaults.iter().map(|(info, _)| info));
    let declared = all.filter(|i| i.name == name).find_map(|i| i.dims.as_ref());
    let Some(declared) = declared.filter(|d| d.len() == ty.rank()) else { return info };
    for (d, declared) in info.dims.iter_mut().flatten().zip(declared) {
        match declared {
            RawDim::Symbol(_) => d.clone_from(declared),
            RawDim::Unknown if matches!(d, RawDim::Known(_)) => d.clone_from(declared),
            RawDim::Unknown | RawDim::Known(_) => {}
        }
    }
    info
}

/// The first version of the file format that may hold an operator set.
fn ir_version(opset: i64) -> i64 {
    match opset {
        ..=8 => 3,
        9 => 4,
        10 => 5,
        11 => 6,
        12..=14 => 7,
        15..=18 => 8,
        19..=20 => 9,
        21..=22 => 10,
        23 => 11,
        24 => 12,
        25.. => 13,
    }
}

/// The program with these definitions replaced by their bodies.
fn opened(
    planned: &PlannedProgram,
    library: &Library,
    unwritten: &HashSet<NodeId>,
) -> Result<PlannedProgram, Stop> {
    let program = &planned.program;
    let callable = |id: NodeId| match &program.node(id).kind {
        NodeKind::Apply(call, _) => Some(library.call(*call)),
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    };
    let named = |id: NodeId| callable(id).map_or(String::new(), |c| c.name.to_string());
    let primitive =
        |id: &NodeId| callable(*id).is_some_and(|c| !matches!(c.kind, CallKind::Def(_)));
    let mut primitives: Vec<NodeId> = unwritten.iter().copied().filter(primitive).collect();
    primitives.sort_by_key(|n| (planned.place(*n), *n));
    if let Some((first, rest)) = primitives.split_first() {
        let unwritten = |id: NodeId| Unwritten {
            op: named(id),
            origin: program.node(id).origin.clone(),
            kernel: planned.place(id),
        };
        return Err(Stop::Unwritten(
            unwritten(*first),
            rest.iter().map(|n| unwritten(*n)).collect(),
        ));
    }
    planned
        .opened(library, &|id, _| unwritten.contains(&id))
        .map_err(|(id, e)| Stop::Other(ExportError::Body { op: named(id), reason: e.to_string() }))
}
