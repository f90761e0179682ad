//! Weights whose rows are not aligned to 16 bytes, such as those of a vocabulary of odd size, would be loaded element by element. They are
//! stored transposed on the device if that makes their rows aligned.

use super::super::emit::Emitter;
use super::super::kernel::KernelProgram;
use super::super::stages::stages;
use super::{Product, size};
use crate::launch::Place;
use mlc_backends::reference::code::Slot;
use mlc_dsl::ir::{ConstId, NodeId, Value};
use std::collections::BTreeSet;

/// Bytes from which on it pays to have a constant in another order.
const LEAST: usize = 1 << 16;

/// Those that products of a kernel read along such rows.
pub fn unaligned_weights(kernel: &KernelProgram) -> BTreeSet<ConstId> {
    // Most kernels read none.
    let is_unaligned = |v: Value| exchangeable(kernel, v).is_some();
    let values =
        (0..kernel.program.nodes.len() as u32).map(|i| Value { node: NodeId(i), output: 0 });
    let values: Vec<Value> = values.filter(|v| kernel.input(*v).is_some()).collect();
    if !values.iter().any(|v| is_unaligned(*v)) {
        return BTreeSet::new();
    }
    let mut out = BTreeSet::new();
    for stage in stages(kernel) {
        let Some(product) = stage.schedule.product() else { continue };
        let mut e = Emitter::with_stored(kernel, values.iter());
        let Some(p) = Product::recognise(&mut e, kernel, product) else { continue };
        for (along, factor) in [&p.rows, &p.columns].into_iter().zip(&p.factors) {
            for (v, offset) in e.analyse_term(p.value, factor).offsets {
                let Some((c, row)) = exchangeable(kernel, v) else { continue };
                let last = |axes: &[(Slot, i64)]| axes.iter().rev().find(|a| a.1 != 1).map(|a| a.0);
                let factors = [along, &p.deep].map(|axes| last(axes).map(|s| offset.factor(s)));
                if factors == [Some(1), Some(row)] && size(along) == row {
                    out.insert(c);
                }
            }
        }
    }
    out
}

/// A constant in memory with unaligned rows that are aligned once its last two axes are exchanged, and the elements of a row.
fn exchangeable(kernel: &KernelProgram, v: Value) -> Option<(ConstId, i64)> {
    let Place::Constant(c) = kernel.inputs[kernel.input(v)?] else { return None };
    let ty = kernel.program.ty(v);
    let (shape, bytes) = (ty.known_shape()?, ty.dtype.size());
    let [.., rows, row] = *shape else { return None };
    let is_large = shape.iter().product::<usize>() * bytes >= LEAST;
    let is_gain = (row * bytes) % 16 != 0 && (rows * bytes) % 16 == 0;
    (is_large && is_gain).then_some((c, row as i64))
}
