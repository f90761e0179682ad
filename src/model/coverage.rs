//! What of an ONNX model is not understood, operator by operator, each with the declaration that it lacks.
//!
//! Reads models only. A stub parses and types; it never pretends to compute anything: its `extern` has no reference, which `check` says.

use crate::model::Model;
use mlc_dsl::ir::{DType, Type};
use mlc_dsl::syntax;
use mlc_onnx::{ImportError, RawAttr, RawNode};
use std::fmt::Write;

/// Operators of one name that are not understood for one reason.
pub(crate) struct Missing {
    /// The operator, with its domain unless that is the standard one.
    pub(crate) operator: String,
    /// How many nodes.
    pub(crate) nodes: usize,
    /// Where the first one stands.
    pub(crate) first: String,
    /// Why it is not understood.
    pub(crate) reason: String,
    /// Whether a run computes what is missing.
    pub(crate) decided: Decided,
    /// What to do.
    pub(crate) help: String,
    /// A `.rules` text that declares it, if nothing does.
    pub(crate) stub: Option<String>,
}

/// When it is known what a node computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    /// Never: it lacks a declaration.
    Never,
    /// By the data of a run, which computes them first.
    ByData,
}

/// What is not understood, most frequent first.
pub(crate) fn missing(model: &Model) -> Vec<Missing> {
    let mut found: Vec<Missing> = Vec::new();
    for (node, why) in model.info().iter().flat_map(|i| &i.opaque.nodes) {
        let (operator, reason) = (named(node), reason(why));
        let decided = match why {
            ImportError::Undecided { .. } => Decided::ByData,
            _ => Decided::Never,
        };
        let same = |m: &&mut Missing| m.operator == operator && m.reason == reason;
        match found.iter_mut().find(same) {
            Some(m) => m.nodes += 1,
            None => found.push(Missing {
                stub: stub(model, node, why),
                first: node.label(),
                help: why.help().unwrap_or_default().to_string(),
                nodes: 1,
                operator,
                reason,
                decided,
            }),
        }
    }
    found.sort_by_key(|m| std::cmp::Reverse(m.nodes));
    found
}

/// Why a node is not understood, without its place.
fn reason(why: &ImportError) -> String {
    match why {
        ImportError::UnknownOperator { opset, .. } => {
            format!("no declaration reads it at operator set {opset}")
        }
        ImportError::Node { reason, .. }
        | ImportError::Undecided { reason, .. }
        | ImportError::TooLong { reason, .. }
        | ImportError::Graph { reason, .. } => reason.clone(),
    }
}

fn named(node: &RawNode) -> String {
    match node.domain.as_str() {
        "" => node.op_type.clone(),
        domain => format!("{domain}.{}", node.op_type),
    }
}

/// The declaration of an operator that has none, with the types and attributes of this node.
fn stub(model: &Model, node: &RawNode, why: &ImportError) -> Option<String> {
    let ImportError::UnknownOperator { opset, .. } = why else { return None };
    let name = unused(model, &snake(&node.op_type));
    let types: Vec<Option<Type>> = node.inputs.iter().map(|i| type_of(model, i)).collect();
    let inputs = types.iter().enumerate().map(|(i, t)| parameter(i, t.as_ref()));
    let attrs: Vec<(String, &'static str, String)> =
        node.attrs.iter().filter_map(|(n, a)| attribute(n, a)).collect();
    let declared = attrs.iter().map(|(n, kind, _)| format!("{n}: {kind}"));
    let params: Vec<String> = inputs.chain(declared).collect();
    let results: Vec<String> =
        node.outputs.iter().enumerate().map(|(i, o)| result(model, i, o)).collect();
    let names = |n: usize| (0..n).map(|i| format!("x{i}")).collect::<Vec<_>>().join(", ");
    let defaults: Vec<String> = attrs.iter().map(|(n, _, v)| format!("{n} = {v}")).collect();
    let given = attrs.iter().map(|(n, ..)| format!(", {n}={n}")).collect::<String>();
    let outputs: Vec<String> = (0..node.outputs.len()).map(|i| format!("y{i}")).collect();
    let (x, semicolon) = (names(node.inputs.len()), if attrs.is_empty() { "" } else { "; " });
    let domain = match node.domain.as_str() {
        "" => String::new(),
        domain => format!(" in \"{domain}\""),
    };
    let mut text = String::new();
    let _ = writeln!(
        text,
        "/// What `{}` computes, as the first node applies it. Make it an `op` with an equation, or a",
        named(node)
    );
    let _ =
        writeln!(text, "/// `def` over other operators; `mlc-rewrite check` says what it lacks.");
    let _ = writeln!(
        text,
        "extern {name}({}) -> {}\n  reference \"{name}\"\n",
        params.join(", "),
        results.join(", ")
    );
    let _ = writeln!(text, "/// How the node is read.");
    let _ = writeln!(
        text,
        "onnx {}({x}{semicolon}{}) -> {} since {opset}{domain}\n  = {name}({x}{given})",
        node.op_type,
        defaults.join(", "),
        outputs.join(", ")
    );
    let (file, diags) = syntax::parse(&text);
    Some(if diags.is_empty() { syntax::print_file(&file) } else { text })
}

/// A name that no operator has.
fn unused(model: &Model, name: &str) -> String {
    match model.library().find(name) {
        Some(_) => format!("{name}_of_onnx"),
        None => name.to_string(),
    }
}

/// `GridSample` as `grid_sample`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    let mut before = '_';
    for c in name.chars() {
        if c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            out.push('_');
        }
        out.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
        before = c;
    }
    match out.starts_with(|c: char| c.is_ascii_lowercase()) {
        true => out,
        false => format!("op_{out}"),
    }
}

/// The type of a value that a node reads.
fn type_of(model: &Model, name: &str) -> Option<Type> {
    let program = model.program();
    let output = program.outputs.iter().find(|(n, _)| n == name).map(|(_, v)| program.ty(*v));
    let input = program.inputs.iter().find(|(n, _)| n == name).map(|(_, t)| t);
    if let Some(t) = output.or(input) {
        return Some(t.clone());
    }
    let constants = model.info().map(|i| &i.opaque.constants);
    constants.and_then(|c| c.get(name)).map(|t| Type::known(t.dtype(), t.shape()))
}

fn element(dtype: DType) -> String {
    if dtype.is_float() { "F".into() } else { dtype.to_string() }
}

/// `x0: F[a0, b0]`: every axis has a name of its own.
fn parameter(i: usize, ty: Option<&Type>) -> String {
    match ty {
        Some(t) => {
            let axes: Vec<String> =
                (0..t.rank()).map(|axis| format!("{}{i}", axis_name(axis))).collect();
            format!("x{i}: {}[{}]", element(t.dtype), axes.join(", "))
        }
        None => format!("x{i}: T{i}[..s{i}]"),
    }
}

fn axis_name(axis: usize) -> String {
    let letter = char::from(b'a' + (axis % 26) as u8);
    if axis < 26 { letter.to_string() } else { format!("{letter}{}_", axis / 26) }
}

/// `y0: F[1, 3]`: the extents of this node; those that are not known are 1, to be replaced.
fn result(model: &Model, i: usize, name: &str) -> String {
    match type_of(model, name) {
        Some(t) => {
            let extent = |e: &mlc_dsl::ir::Extent| e.as_const().unwrap_or(1).to_string();
            let extents: Vec<String> = t.shape.iter().map(extent).collect();
            format!("y{i}: {}[{}]", element(t.dtype), extents.join(", "))
        }
        None => format!("y{i}: f32[]"),
    }
}

/// Name, kind and value of an attribute, if `.rules` texts have that kind.
fn attribute(name: &str, value: &RawAttr) -> Option<(String, &'static str, String)> {
    let list = |v: Vec<String>| format!("[{}]", v.join(", "));
    let number = |v: &f32| format!("{:?}", f64::from(*v));
    let (kind, value) = match value {
        RawAttr::Int(v) => ("int", v.to_string()),
        RawAttr::Float(v) if v.is_finite() => ("float", number(v)),
        RawAttr::Str(_) => ("string", format!("{:?}", value.as_str()?)),
        RawAttr::Ints(v) => ("ints", list(v.iter().map(i64::to_string).collect())),
        RawAttr::Floats(v) if v.iter().all(|v| v.is_finite()) => {
            ("floats", list(v.iter().map(number).collect()))
        }
        _ => return None,
    };
    Some((name.to_string(), kind, value))
}
