//! Constant folding: what depends only on constants is computed once, before the first run.

use crate::constants::broadcast_constants::one_period;
pub use crate::constants::evaluation::ConstantMemo;
use mlc_backends::BackendError;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::canon::Sink;
use mlc_dsl::ir::{Attr, Extent, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::Library;
use mlc_dsl::typing::infer::TypeError;
use mlc_dsl::typing::instantiate::BuildError;
use mlc_extract::cost::target::TargetPrices;
use mlc_extract::cost::work::Works;
use mlc_extract::resources;
use std::collections::HashMap;
use thiserror::Error;

/// Why constants cannot be computed.
#[derive(Debug, Error)]
pub enum ConstantError {
    /// An operator has no value on them.
    #[error(transparent)]
    Value(#[from] BackendError),
    /// The body of a layer does not fit.
    #[error(transparent)]
    Body(#[from] BuildError),
    /// What reads them is ill-typed.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// The same program with every part that only constants feed replaced by its value, computed in f64
/// and rounded after every operator, as the search rounds what it evaluates. A layout change that would enlarge a constant
/// stays: it costs nothing to read; and so does what would be large ([`resources::folds`]). A constant that repeats more than there was to make it
/// of is a view of what is repeated.
pub fn fold(program: &Program, library: &Library) -> Result<Program, ConstantError> {
    Ok(fold_keeping_kernels(program, &[], library, &mut ConstantMemo::default())?.0)
}

/// The same with a memo; also returns what is left of the kernels chosen for its nodes.
pub fn fold_keeping_kernels(
    program: &Program,
    kernels: &[Vec<NodeId>],
    library: &Library,
    memo: &mut ConstantMemo,
) -> Result<(Program, Vec<Vec<NodeId>>), ConstantError> {
    let n = program.nodes.len();
    let works = Works::new(library);
    let mut fed = vec![false; n];
    for (i, node) in program.nodes.iter().enumerate() {
        fed[i] = match &node.kind {
            NodeKind::Input(_) => false,
            NodeKind::Const(c) => program.consts.get(*c).unread().is_none(),
            NodeKind::Apply(call, attrs) => {
                let known = node.types.iter().all(|t| t.known_shape().is_some());
                let args = || node.args.iter().map(|a| program.ty(*a)).collect::<Vec<_>>();
                known
                    && attrs.iter().all(Attr::is_known)
                    && node.args.iter().all(|a| fed[a.node.0 as usize])
                    && resources::folds(&works, library, *call, attrs, &args(), &node.types)
            }
        };
    }
    let mut made_of = vec![0usize; n];
    for (i, node) in program.nodes.iter().enumerate() {
        made_of[i] = match &node.kind {
            NodeKind::Const(c) => program.consts.get(*c).bytes().len(),
            NodeKind::Input(_) => 0,
            NodeKind::Apply(..) => {
                let args = node.args.iter().map(|a| made_of[a.node.0 as usize]);
                args.fold(0, usize::saturating_add)
            }
        };
    }
    let mut pending = vec![0usize; n];
    for (i, node) in program.nodes.iter().enumerate() {
        for a in node.args.iter().filter(|_| fed[i]) {
            pending[a.node.0 as usize] += 1;
        }
    }
    let mut read = vec![false; n];
    for (i, node) in program.nodes.iter().enumerate() {
        for a in node.args.iter().filter(|_| !fed[i]) {
            read[a.node.0 as usize] = true;
        }
    }
    program.outputs.iter().for_each(|(_, v)| read[v.node.0 as usize] = true);
    // An enlarging view that is read stays, and so its operand is read.
    for i in (0..n).rev() {
        if fed[i] && read[i] && stays(program, library, i) {
            program.nodes[i].args.iter().for_each(|a| read[a.node.0 as usize] = true);
        }
    }
    let mut known: HashMap<Value, Tensor> = HashMap::new();
    let mut b = Builder::new(library);
    let mut values: HashMap<Value, Value> = HashMap::new();
    let inputs: Vec<Value> = program.inputs.iter().map(|(n, t)| b.input(n, t.clone())).collect();
    for (i, node) in program.nodes.iter().enumerate() {
        b.set_origin(&node.origin);
        match &node.kind {
            NodeKind::Input(k) => drop(values.insert(value(i, 0), inputs[*k as usize])),
            NodeKind::Const(c) => {
                let tensor = program.consts.get(*c);
                if pending[i] > 0 {
                    known.insert(value(i, 0), tensor.clone());
                }
                if read[i] || !fed[i] {
                    values.insert(value(i, 0), b.constant(tensor.clone()));
                }
            }
            NodeKind::Apply(call, attrs) => {
                // A layout that stays is evaluated only for what is computed from it.
                let wanted = pending[i] > 0 || read[i] && !stays(program, library, i);
                if fed[i] && wanted {
                    let args: Vec<&Tensor> = node.args.iter().map(|a| &known[a]).collect();
                    let made = memo.values(library, b.structural(), *call, attrs, &args)?;
                    for (k, tensor) in made.into_iter().enumerate() {
                        if pending[i] > 0 {
                            known.insert(value(i, k), tensor.clone());
                        }
                        if read[i] && !stays(program, library, i) {
                            let grew = tensor.bytes().len() / 2 > made_of[i];
                            values.insert(value(i, k), constant(&mut b, tensor, grew)?);
                        }
                    }
                }
                for a in node.args.iter().filter(|_| fed[i]) {
                    let left = &mut pending[a.node.0 as usize];
                    *left -= 1;
                    if *left == 0 {
                        let outputs = program.node(a.node).types.len() as u32;
                        (0..outputs).for_each(|output| drop(known.remove(&Value { output, ..*a })));
                    }
                }
                if !fed[i] || read[i] && stays(program, library, i) {
                    let args: Vec<Value> = node.args.iter().map(|a| values[a]).collect();
                    let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                    let made = b.raw(*call, &attrs, &args)?;
                    values.extend(made.into_iter().enumerate().map(|(k, v)| (value(i, k), v)));
                }
            }
        }
    }
    for kernel in kernels {
        let left = kernel.iter().filter_map(|node| values.get(&Value { node: *node, output: 0 }));
        b.group(left.map(|v| v.node));
    }
    let outputs = program.outputs.iter().map(|(n, v)| (n.clone(), values[v])).collect();
    Ok(b.finish_grouped(outputs))
}

/// The same program with the body of every layer that the target does not have, so that
/// what constants alone feed inside it is seen.
pub fn unfold(
    program: &Program,
    library: &Library,
    prices: &TargetPrices<'_>,
) -> Result<Program, ConstantError> {
    Ok(mlc_dsl::ir::unfold::unfold(program, library, &|call| !prices.permits(call))?)
}

fn value(node: usize, output: usize) -> Value {
    Value { node: NodeId(node as u32), output: output as u32 }
}

/// A constant; of one that grew out of smaller ones by repetition, a view of what is repeated.
fn constant(b: &mut Builder<'_>, tensor: Tensor, grew: bool) -> Result<Value, TypeError> {
    let Some((part, axes)) = grew.then(|| one_period(&tensor)).flatten() else {
        return Ok(b.constant(tensor));
    };
    let shape: Vec<Extent> = tensor.shape().iter().map(|&n| Extent::from(n as i64)).collect();
    let part = b.constant(part);
    b.broadcast(part, &axes, &shape)
}

/// True for a layout that folding leaves.
fn stays(program: &Program, library: &Library, i: usize) -> bool {
    let node = &program.nodes[i];
    let NodeKind::Apply(call, _) = &node.kind else { return false };
    let args: Vec<&Type> = node.args.iter().map(|a| program.ty(*a)).collect();
    library.call(*call).enlarges(&args, &node.types)
}
