//! What a node of a model is read as, which the program need not contain: its values may be constants, or those of another node.

use super::error::ImportError;
use super::value::origin;
use super::{Loops, import_with_opaque_nodes};
use crate::raw::{RawModel, RawNode, RawValueInfo};
use mlc_dsl::ir::{NodeKind, Program, Type, Value};
use mlc_dsl::library::Library;
use std::collections::HashMap;

/// What the value of a result is read as.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadAs {
    /// It is known before a run.
    Constant(Type),
    /// It is this input of the model.
    Input(String),
    /// What this node computes, or is read as.
    Node(String),
    /// Its extents are read, and no element of it.
    Nothing,
}

/// A node, and what each of its results is read as.
pub type ReadNode = (String, Vec<(String, ReadAs)>);

/// The node of a model that has this name, or a result of this name; and what each of its results is read as.
///
/// # Errors
/// What comes before the node is not readable.
pub fn read_as(
    raw: &RawModel,
    library: &Library,
    name: &str,
) -> Option<Result<ReadNode, ImportError>> {
    let is_it = |n: &&RawNode| n.name == name || n.outputs.iter().any(|o| o == name);
    let node = raw.graph.nodes.iter().find(is_it).filter(|_| !name.is_empty())?;
    Some(read_each(raw, library, &[node]).map(|mut read| (node.label(), read.swap_remove(0))))
}

/// For each of these nodes of a model what each of its results is read as.
///
/// # Errors
/// What comes before one of them is not readable.
pub fn read_each(
    raw: &RawModel,
    library: &Library,
    nodes: &[&RawNode],
) -> Result<Vec<Vec<(String, ReadAs)>>, ImportError> {
    let named = |o: &&String| !o.is_empty();
    let outputs = nodes.iter().flat_map(|n| n.outputs.iter().filter(named));
    let outputs = outputs.map(|o| RawValueInfo { name: o.clone(), ..Default::default() });
    let mut model = raw.clone();
    model.graph.outputs = outputs.collect();
    let imported = import_with_opaque_nodes(model, library, &Default::default(), Loops::default())?;
    let program = &imported.program;
    let found: HashMap<&String, Value> = program.outputs.iter().map(|(n, v)| (n, *v)).collect();
    let of = |node: &RawNode, name: &String| {
        let read = found.get(name).map(|v| value(program, *v));
        (name.clone(), read.unwrap_or_else(|| ReadAs::Node(origin(node).into())))
    };
    let of = |node: &&RawNode| node.outputs.iter().filter(named).map(|o| of(node, o)).collect();
    Ok(nodes.iter().map(of).collect())
}

fn value(program: &Program, v: Value) -> ReadAs {
    let node = program.node(v.node);
    match &node.kind {
        NodeKind::Const(_) => ReadAs::Constant(program.ty(v).clone()),
        NodeKind::Input(i) => ReadAs::Input(program.inputs[*i as usize].0.clone()),
        NodeKind::Apply(..) if node.args.is_empty() => ReadAs::Constant(program.ty(v).clone()),
        NodeKind::Apply(..) if node.origin.is_empty() => ReadAs::Nothing,
        NodeKind::Apply(..) => ReadAs::Node(node.origin.clone()),
    }
}
