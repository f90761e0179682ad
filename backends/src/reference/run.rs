//! Runs programs node by node, and plans kernel by kernel.

use super::array::Array;
use super::code::cache::CodeCache;
use super::inputs::{SymbolBindings, unify};
use super::{Reference, apply};
use crate::BackendError;
use mlc_dsl::ir::{Attr, Node, NodeId, NodeKind, Program, Value};
use mlc_dsl::library::{CallId, Library};
use mlc_dsl::plan::Plan;
use std::collections::HashMap;

/// Runs a program on inputs that are checked against its types.
pub(super) fn program(
    reference: &Reference,
    program: &Program,
    codes: &CodeCache<'_>,
    inputs: &[Array],
) -> Result<Vec<Array>, BackendError> {
    let symbols = unify(program, inputs)?;
    codes.begin();
    let mut values = Values::new(program);
    for (i, node) in program.nodes.iter().enumerate() {
        let NodeKind::Apply(call, attrs) = &node.kind else { continue };
        if values.uses[i] == 0 {
            continue;
        }
        let args: Vec<Array> = node.args.iter().map(|&v| values.get(v, inputs)).collect();
        let results = application(reference, codes, node, *call, attrs, &symbols, &args)?;
        drop(args);
        values.set(NodeId(i as u32), results);
    }
    Ok(program.outputs.iter().map(|(_, v)| values.get(*v, inputs)).collect())
}

/// Runs a plan's kernels in their order, each by what its nodes mean. A value is dropped after its last use.
pub(super) fn plan(
    reference: &Reference,
    plan: &Plan,
    codes: &CodeCache<'_>,
    inputs: &[Array],
) -> Result<Vec<Array>, BackendError> {
    let program = &plan.program;
    let symbols = unify(program, inputs)?;
    codes.begin();
    let mut uses: HashMap<Value, usize> = HashMap::new();
    let read = plan.kernels.iter().flat_map(|k| &k.inputs);
    for v in read.chain(program.outputs.iter().map(|(_, v)| v)) {
        *uses.entry(*v).or_default() += 1;
    }
    let mut values: HashMap<Value, Array> = HashMap::new();
    for kernel in &plan.kernels {
        let mut inside: HashMap<Value, Array> = HashMap::new();
        for &v in &kernel.inputs {
            inside.insert(v, taken(v, program, &mut uses, &mut values, inputs)?);
        }
        let mut left: HashMap<Value, usize> = HashMap::new();
        let args = kernel.nodes.iter().flat_map(|n| &program.node(*n).args);
        args.chain(&kernel.outputs).for_each(|v| *left.entry(*v).or_default() += 1);
        for &id in &kernel.nodes {
            let node = program.node(id);
            let NodeKind::Apply(call, attrs) = &node.kind else { continue };
            let args = node.args.iter().map(|v| inside.get(v).cloned().ok_or_else(|| missing(*v)));
            let args: Vec<Array> = args.collect::<Result<_, _>>()?;
            for v in &node.args {
                let uses = left.entry(*v).or_default();
                *uses = uses.saturating_sub(1);
                if *uses == 0 {
                    inside.remove(v);
                }
            }
            let results = application(reference, codes, node, *call, attrs, &symbols, &args)?;
            let named = results.into_iter().zip(0..);
            inside.extend(named.map(|(a, output)| (Value { node: id, output }, a)));
        }
        for v in &kernel.outputs {
            values.insert(*v, inside.remove(v).ok_or_else(|| missing(*v))?);
        }
    }
    let outputs = program.outputs.iter();
    outputs.map(|(_, v)| taken(*v, program, &mut uses, &mut values, inputs)).collect()
}

/// A value for one of its uses.
fn taken(
    v: Value,
    program: &Program,
    uses: &mut HashMap<Value, usize>,
    values: &mut HashMap<Value, Array>,
    inputs: &[Array],
) -> Result<Array, BackendError> {
    let left = uses.entry(v).or_default();
    *left = left.saturating_sub(1);
    match program.node(v.node).kind {
        NodeKind::Input(i) => Ok(inputs[i as usize].clone()),
        NodeKind::Const(c) => Ok(Array::from_tensor(program.consts.get(c))),
        NodeKind::Apply(..) if *left == 0 => values.remove(&v).ok_or_else(|| missing(v)),
        NodeKind::Apply(..) => values.get(&v).cloned().ok_or_else(|| missing(v)),
    }
}

/// What a plan without faults does not lead to.
fn missing(v: Value) -> BackendError {
    let what = format!("this plan: nothing computes value {} of node {}", v.output, v.node.0);
    BackendError::Unsupported { backend: "reference", what }
}

/// The results of one application.
fn application(
    reference: &Reference,
    codes: &CodeCache<'_>,
    node: &Node,
    call: CallId,
    attrs: &[Attr],
    symbols: &SymbolBindings,
    args: &[Array],
) -> Result<Vec<Array>, BackendError> {
    let fail =
        |reason: String| BackendError::Operator { op: label(codes.library(), call, node), reason };
    let attrs = attrs
        .iter()
        .map(|a| symbols.attr(a).map(Some))
        .collect::<Result<Vec<_>, _>>()
        .map_err(fail)?;
    let results = apply::apply(reference, codes, call, &attrs, args).map_err(fail)?;
    check_types(node, &results, symbols).map_err(fail)?;
    Ok(results)
}

/// The operator and the names of the imported node.
fn label(library: &Library, call: CallId, node: &Node) -> String {
    let name = &library.call(call).name;
    if node.origin.is_empty() { name.to_string() } else { format!("{name} ({})", node.origin) }
}

/// The results have the types that the program states.
fn check_types(node: &Node, results: &[Array], symbols: &SymbolBindings) -> Result<(), String> {
    for (ty, result) in node.types.iter().zip(results) {
        let extents = ty.shape.iter().zip(result.shape());
        let differs = ty.rank() != result.shape().len()
            || ty.dtype != result.dtype()
            || extents.clone().any(|(e, &n)| symbols.value(e).is_some_and(|v| v != n as i64));
        if differs {
            return Err(format!("yields {}, but the program states {ty}", result.ty()));
        }
    }
    Ok(())
}

/// What is computed so far; a value is dropped after its last use.
struct Values<'a> {
    program: &'a Program,
    results: Vec<Option<Vec<Array>>>,
    /// Reads that are still to come; 0 for what no output needs.
    uses: Vec<usize>,
}

impl<'a> Values<'a> {
    fn new(program: &'a Program) -> Values<'a> {
        let mut uses = vec![0; program.nodes.len()];
        for (_, v) in &program.outputs {
            uses[v.node.0 as usize] += 1;
        }
        for (i, node) in program.nodes.iter().enumerate().rev() {
            if uses[i] > 0 {
                node.args.iter().for_each(|a| uses[a.node.0 as usize] += 1);
            }
        }
        Values { program, results: vec![None; program.nodes.len()], uses }
    }

    fn set(&mut self, node: NodeId, results: Vec<Array>) {
        self.results[node.0 as usize] = Some(results);
    }

    /// The value, for one of its uses. Constants are converted when they are first read.
    fn get(&mut self, v: Value, inputs: &[Array]) -> Array {
        let i = v.node.0 as usize;
        let array = match (&self.program.node(v.node).kind, &self.results[i]) {
            (NodeKind::Input(input), _) => inputs[*input as usize].clone(),
            (_, Some(results)) => results[v.output as usize].clone(),
            (NodeKind::Const(c), None) => {
                let array = Array::from_tensor(self.program.consts.get(*c));
                self.results[i] = Some(vec![array.clone()]);
                array
            }
            (NodeKind::Apply(..), None) => unreachable!("arguments precede their node"),
        };
        self.uses[i] -= 1;
        if self.uses[i] == 0 {
            self.results[i] = None;
        }
        array
    }
}
