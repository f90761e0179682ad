//! Detects programs that come near overflow by themselves: there regrouped sums may overflow, too.

use super::Check;
use crate::error::Error;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::OpClass;

/// Values within that factor of the largest number of their type are near overflow.
const MARGIN: f64 = 64.0;

/// True if some operator makes a value near overflow, or one that is not finite, of values that are not; or, on
/// `drawn` inputs, if a sum of products does so of any values. Inputs that a user gave are not held to be extreme.
pub(super) fn overflow(
    program: &Program,
    check: &Check<'_>,
    inputs: &[Tensor],
    drawn: bool,
) -> Result<bool, Error> {
    let program = program.pruned();
    // What cannot be looked at is no excuse.
    if !check.holds_all(&program, inputs) {
        return Ok(false);
    }
    let mut traced = program.clone();
    let mut at: Vec<Vec<usize>> = Vec::with_capacity(program.nodes.len());
    traced.outputs.clear();
    for (i, node) in program.nodes.iter().enumerate() {
        let outputs = 0..node.types.len() as u32;
        let of = |output: u32| {
            traced.outputs.push((String::new(), Value { node: NodeId(i as u32), output }));
            traced.outputs.len() - 1
        };
        at.push(outputs.map(of).collect());
    }
    let plan = check.plan(&traced);
    let values = match check.runs(&plan, &[inputs])?.swap_remove(0) {
        Ok(values) => values,
        Err(_) => return Ok(false),
    };
    let large: Vec<bool> = values.iter().map(is_near).collect();
    let sums = |call| check.library.call(call).class == OpClass::Contraction;
    Ok(program.nodes.iter().enumerate().any(|(i, node)| {
        let NodeKind::Apply(call, _) = node.kind else { return false };
        let ordinary = |a: &Value| !large[at[a.node.0 as usize][a.output as usize]];
        at[i].iter().any(|&k| large[k]) && (drawn && sums(call) || node.args.iter().all(ordinary))
    }))
}

fn is_near(t: &Tensor) -> bool {
    let most = t.dtype().largest() / MARGIN;
    t.dtype().is_float() && t.to_f64().iter().any(|v| v.is_nan() || v.abs() > most)
}
