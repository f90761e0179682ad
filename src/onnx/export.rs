//! Programs as ONNX models: the inverse of the import.
//!
//! From the outputs down, every value is written by the largest `onnx` pattern that covers it (see
//! [`super::export_rules`]). A definition that no pattern writes at this operator set is written as
//! its body. No operator is known by name here.

use super::export_graph::Graph;
use super::export_rules::Rules;
use super::export_types::NEWEST_OPSET;
use super::export_write::Writer;
use super::import::ModelInfo;
use super::raw::{RawDim, RawModel, RawValueInfo};
use mlc_dsl::ir::{NodeId, NodeKind, Program, Type};
use mlc_dsl::library::{CallKind, Library};
use mlc_dsl::unfold::{Rest, once};
use mlc_dsl::{shown, told};
use std::collections::HashSet;
use thiserror::Error;

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
            ExportError::OperatorSet { .. } => {
                Some("leave `--opset` out to keep the version of the model")
            }
            ExportError::Extent { .. } => Some(
                "give the extent a number in the model's inputs, or name an input's axis after it",
            ),
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

/// Writes a program as a model at version `opset` of the standard operator set.
pub fn export(
    program: &Program,
    library: &Library,
    model: &ModelInfo,
    opset: i64,
) -> Result<RawModel, ExportError> {
    let mut opsets = model.opset_imports.clone();
    opsets.insert(String::new(), opset);
    let rules = Rules::of(library, &opsets);
    if !(1..=NEWEST_OPSET).contains(&opset) {
        return Err(ExportError::OperatorSet { opset });
    }
    let mut current = program.clone().with_empty_constants().pruned();
    for _ in 0..MAX_ROUNDS {
        let graph = Graph::of(&current, library);
        let mut writer = Writer::new(graph, &rules, model, opset);
        writer.outputs()?;
        let unwritten = writer.take_unwritten();
        if unwritten.is_empty() {
            let mut raw = writer.finish();
            raw.graph.outputs =
                current.outputs.iter().map(|(n, v)| value_info(n, current.ty(*v))).collect();
            raw.graph.inputs = current.inputs.iter().map(|(n, t)| value_info(n, t)).collect();
            let used: HashSet<&str> = raw.graph.nodes.iter().map(|n| n.domain.as_str()).collect();
            opsets.retain(|d, _| d.is_empty() || used.contains(d.as_str()));
            return Ok(RawModel {
                ir_version: model.ir_version.max(ir_version(opset)),
                opset_imports: opsets,
                producer_name: model.producer_name.clone(),
                producer_version: model.producer_version.clone(),
                domain: model.domain.clone(),
                model_version: model.model_version,
                doc_string: model.doc_string.clone(),
                metadata_props: model.metadata_props.clone(),
                graph: raw.graph,
            });
        }
        current = expand(&current, library, &unwritten, opset)?.with_empty_constants().pruned();
    }
    Err(ExportError::Body {
        op: "its own body".into(),
        reason: "definitions are nested too deeply".into(),
    })
}

fn value_info(name: &str, ty: &Type) -> RawValueInfo {
    let dim = |e: &mlc_dsl::ir::Extent| match e.as_const().and_then(|v| u64::try_from(v).ok()) {
        Some(v) => RawDim::Known(v),
        None => RawDim::Symbol(e.to_string()),
    };
    let dims = Some(ty.shape.iter().map(dim).collect());
    RawValueInfo { name: name.to_string(), dtype: Some(ty.dtype), dims }
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
fn expand(
    program: &Program,
    library: &Library,
    unwritten: &HashSet<NodeId>,
    opset: i64,
) -> Result<Program, ExportError> {
    let callable = |id: NodeId| match &program.node(id).kind {
        NodeKind::Apply(call, _) => Some(library.call(*call)),
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    };
    let named = |id: NodeId| callable(id).map_or(String::new(), |c| c.name.to_string());
    let primitive =
        |id: &&NodeId| callable(**id).is_some_and(|c| !matches!(c.kind, CallKind::Def(_)));
    if let Some(id) = unwritten.iter().filter(primitive).min() {
        let origin = program.node(*id).origin.clone();
        return Err(ExportError::Operator { op: named(*id), origin, opset });
    }
    once(program, library, Rest::Canonical, &|id, _| unwritten.contains(&id))
        .map_err(|(id, e)| ExportError::Body { op: named(id), reason: e.to_string() })
}
