//! Interval analysis of integer elements from types, constants and arithmetic: bounds are never tighter than the truth.

use super::kernel::KernelProgram;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Affine, Int};
use mlc_backends::reference::scalar::IntOp;
use mlc_dsl::ir::Value;

/// The smallest and the largest number.
pub type Interval = (i128, i128);

/// Operators that are looked through.
const DEPTH: usize = 8;

fn within(inner: Interval, outer: Interval) -> bool {
    outer.0 <= inner.0 && inner.1 <= outer.1
}

fn union(a: Interval, b: Interval) -> Interval {
    (a.0.min(b.0), a.1.max(b.1))
}

/// The interval of the elements of a value.
fn of_value(kernel: &KernelProgram, v: Value, depth: usize) -> Option<Interval> {
    let all = kernel.program.ty(v).dtype.int_range()?;
    if let Some(t) = kernel.constant(v) {
        let number = i128::from(t.get_i64(0));
        return Some((number, number));
    }
    let own = match kernel.code(v).map(|c| &c.body) {
        Some(Body::Int(_, i)) if depth > 0 => of(kernel, v, i, depth - 1),
        _ => None,
    };
    Some(own.filter(|r| within(*r, all)).unwrap_or(all))
}

/// The interval of an expression in the code of a value.
pub fn of_term(kernel: &KernelProgram, v: Value, i: &Int) -> Option<Interval> {
    of(kernel, v, i, DEPTH)
}

fn of(kernel: &KernelProgram, v: Value, i: &Int, depth: usize) -> Option<Interval> {
    let of = |i: &Int| of(kernel, v, i, depth);
    match i {
        Int::Const(c) => Some(((*c).into(), (*c).into())),
        Int::Affine(Affine { constant, terms }) if terms.is_empty() => {
            Some(((*constant).into(), (*constant).into()))
        }
        Int::Neg(a) => of(a).map(|(low, high)| (-high, -low)),
        Int::Binary(op, a, b) => {
            let ((a, b), (c, d)) = (of(a)?, of(b)?);
            match op {
                IntOp::Add => Some((a.checked_add(c)?, b.checked_add(d)?)),
                IntOp::Sub => Some((a.checked_sub(d)?, b.checked_sub(c)?)),
                _ => None,
            }
        }
        Int::Wrap(dtype, a) => {
            let all = dtype.int_range()?;
            Some(of(a).filter(|r| within(*r, all)).unwrap_or(all))
        }
        Int::If(_, a, b) => Some(union(of(a)?, of(b)?)),
        Int::Read(read) => {
            let args = &kernel.program.node(v.node).args;
            let inside = of_value(kernel, *args.get(read.input)?, depth)?;
            match &read.otherwise {
                Some(outside) => Some(union(inside, of(outside)?)),
                None => Some(inside),
            }
        }
        Int::FromReal(dtype, _) => dtype.int_range(),
        Int::FromTruth(_) => Some((0, 1)),
        _ => None,
    }
}
