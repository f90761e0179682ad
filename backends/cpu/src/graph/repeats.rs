//! Kernels that compute the same of other values, as those of a network's layers do: what is prepared for one is the others' under other names.
//!
//! Never classes a kernel that reads a constant: implementations look at the elements of constants.

use super::Group;
use indexmap::IndexMap;
use mlc_dsl::ir::{Attr, NodeId, NodeKind, Program, Type, Value};
use mlc_dsl::library::CallId;
use mlc_dsl::plan::Kernel;
use mlc_dsl::typing::open_conditions::OpenConditions;

/// What a kernel is one of many of.
pub struct Repeat {
    /// Kernels of one class compute the same.
    pub class: usize,
    /// What it reads in the order of its nodes, by number among [`Group::reads`].
    pub reads: Vec<usize>,
    /// The plan's value that each of its nodes is.
    pub named: Vec<Option<Value>>,
}

/// Where a value comes from.
#[derive(PartialEq, Eq, Hash)]
enum Source {
    /// A node of the kernel, by number.
    Inside(usize),
    /// What the kernel reads, numbered as it is read first.
    Read(usize),
}

/// An application: the operator with its attributes, the arguments, and the type of its one result.
type Application = (CallId, Vec<Attr>, Vec<Source>, Type);

/// What kernels of a class have in common.
#[derive(PartialEq, Eq, Hash)]
struct Form {
    implementation: String,
    nodes: Vec<Application>,
    /// Views, prologue, epilogue, copies and the anchor.
    parts: [Vec<usize>; 5],
    arguments: Vec<Source>,
    outputs: Vec<Source>,
    conditions: OpenConditions,
}

/// Notes which of a plan's kernels compute the same.
pub(super) fn find(kernels: &[Kernel], program: &Program, groups: &mut [Group]) {
    let mut classes: IndexMap<Form, Vec<(usize, Vec<Value>)>> = IndexMap::new();
    for (k, (kernel, group)) in kernels.iter().zip(groups.iter()).enumerate() {
        let mut reads = vec![];
        if let Some(form) = form(kernel, program, group, &mut reads) {
            classes.entry(form).or_default().push((k, reads));
        }
    }
    let many = classes.into_values().filter(|members| members.len() > 1);
    for (class, members) in many.enumerate() {
        for (k, reads) in members {
            let group = &groups[k];
            let number = |v: &Value| group.reads.binary_search(v).ok();
            let Some(reads) = reads.iter().map(number).collect() else { continue };
            let named = |&node: &NodeId| group.named.get(&Value { node, output: 0 }).copied();
            let named = group.nodes.iter().map(named).collect();
            groups[k].repeat = Some(Repeat { class, reads, named });
        }
    }
}

/// What a kernel computes, whatever it reads; `reads` in the order of its nodes. `None` for one that is prepared but once, reads a constant or yields
/// states.
fn form(kernel: &Kernel, program: &Program, group: &Group, reads: &mut Vec<Value>) -> Option<Form> {
    let is_constant = |v: &Value| matches!(program.node(v.node).kind, NodeKind::Const(_));
    if group.symbols.is_empty() || group.lasts || group.reads.iter().any(is_constant) {
        return None;
    }
    let inside = |node: NodeId| group.nodes.iter().position(|n| *n == node);
    let mut source = |v: &Value| match inside(v.node) {
        Some(at) => Source::Inside(at),
        None => Source::Read(reads.iter().position(|r| r == v).unwrap_or_else(|| {
            reads.push(*v);
            reads.len() - 1
        })),
    };
    let mut application = |id: &NodeId| {
        let node = program.node(*id);
        let (NodeKind::Apply(call, attrs), [ty]) = (&node.kind, node.types.as_slice()) else {
            return None;
        };
        let args = node.args.iter().map(&mut source).collect();
        Some((*call, attrs.clone(), args, ty.clone()))
    };
    let nodes = group.nodes.iter().map(&mut application).collect::<Option<_>>()?;
    let arguments = group.arguments.iter().map(&mut source).collect();
    let outputs = group.outputs.iter().map(&mut source).collect();
    let numbers = |nodes: &[NodeId]| nodes.iter().map(|n| inside(*n)).collect::<Option<Vec<_>>>();
    let anchor: Vec<NodeId> = group.anchor.into_iter().collect();
    Some(Form {
        implementation: kernel.name.clone(),
        nodes,
        parts: [
            numbers(&group.views)?,
            numbers(&group.prologue)?,
            numbers(&group.epilogue)?,
            numbers(&group.copies)?,
            numbers(&anchor)?,
        ],
        arguments,
        outputs,
        conditions: group.conditions.clone(),
    })
}
