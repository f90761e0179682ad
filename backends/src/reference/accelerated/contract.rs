//! Accelerated evaluation of contractions as dense matrix products.
//!
//! An output axis of the first factor alone is a row axis, one of the second alone a column axis, one of both a batch axis. The matrices hold
//! the values of the factors, zeros of padding included, so that infinities and NaN meet the same operands as in the plain sum; only the order
//! of summation differs.

use super::super::code::compile::{Body, MeaningCode};
use super::super::code::{Fault, InputElements, Machine, Real, Slot};
use super::super::scalar::{Monoid, RealOp};
use super::affine::visitor::AffineVisitor;
use super::rows::{Axis, fill, merge};
use crate::workers;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ShapeBuilder};
use std::sync::OnceLock;

/// Below this many products the plain sum is as fast.
const WORTHWHILE: u128 = 1 << 13;
/// Rows or columns of a block at most.
const BLOCK: usize = 2048;
/// Elements of a factor's block at most, as long as that leaves a row.
const SCRATCH: usize = 1 << 21;

/// An output axis and its stride in the output.
#[derive(Clone, Copy)]
struct Out {
    slot: Slot,
    len: i64,
    stride: usize,
}

/// A sum of products, sorted out.
struct Product<'a> {
    left: &'a Real,
    right: &'a Real,
    matrices: Vec<Out>,
    rows: Vec<Out>,
    columns: Vec<Out>,
    over: Vec<Axis>,
}

fn size<'a>(axes: impl IntoIterator<Item = &'a Out>) -> u128 {
    axes.into_iter().map(|a| a.len as u128).product()
}

impl<'a> Product<'a> {
    /// The code as a sum of products, if it is one.
    fn of(code: &'a MeaningCode) -> Option<Product<'a>> {
        let Body::Real(Real::Reduce(r)) = &code.body else { return None };
        let (Monoid::Sum, Real::Binary(RealOp::Mul, left, right)) = (r.monoid, &r.body) else {
            return None;
        };
        let over = r.over.iter().map(|&(slot, len)| Axis { slot, start: 0, len }).collect();
        let (left, right) = (&**left, &**right);
        let mut p = Product { left, right, matrices: vec![], rows: vec![], columns: vec![], over };
        let mut stride = 1;
        for &(slot, len) in code.axes.iter().rev() {
            let kind = match (left.reads(slot), right.reads(slot)) {
                (true, true) => &mut p.matrices,
                (true, false) => &mut p.rows,
                (false, _) => &mut p.columns,
            };
            kind.insert(0, Out { slot, len, stride });
            stride *= len as usize;
        }
        Some(p)
    }

    fn depth(&self) -> u128 {
        self.over.iter().map(|a| a.len as u128).product()
    }

    fn worthwhile(&self) -> bool {
        let (m, n, k) = (size(&self.rows), size(&self.columns), self.depth());
        m >= 4 && n >= 4 && k >= 2 && size(&self.matrices) * m * n * k >= WORTHWHILE
    }
}

/// The boxes of at most `limit` indices that cover the axes.
fn boxes(axes: &[Out], limit: usize) -> Vec<Vec<Axis>> {
    let whole = |a: &Out| Axis { slot: a.slot, start: 0, len: a.len };
    let Some((first, rest)) = axes.split_first().filter(|_| size(axes) > limit as u128) else {
        return vec![axes.iter().map(whole).collect()];
    };
    let inner = boxes(rest, limit);
    let step = if inner.len() > 1 { 1 } else { (limit as u128 / size(rest).max(1)).max(1) as i64 };
    let parts = (first.len + step - 1) / step;
    // Equal parts rather than a small last one.
    let step = (first.len + parts - 1) / parts;
    (0..first.len)
        .step_by(step as usize)
        .flat_map(|start| {
            let part = Axis { slot: first.slot, start, len: step.min(first.len - start) };
            inner
                .iter()
                .map(move |rest| std::iter::once(part).chain(rest.iter().copied()).collect())
        })
        .collect()
}

/// The offsets in the output of the indices of a box, in row-major order.
fn offsets(part: &[Axis], axes: &[Out]) -> Vec<usize> {
    let mut out = vec![0];
    for (p, a) in part.iter().zip(axes) {
        out = out
            .iter()
            .flat_map(|&o| (p.start..p.start + p.len).map(move |v| o + v as usize * a.stride))
            .collect();
    }
    out
}

fn count(axes: &[Axis]) -> usize {
    axes.iter().map(|a| a.len as usize).product()
}

/// A factor as a matrix of `rows` by `columns`, stored in whichever order has the longer runs.
struct Factor {
    elements: Vec<f64>,
    shape: (usize, usize),
    transposed: bool,
}

impl Factor {
    fn gather(
        body: &Real,
        rows: &[Axis],
        columns: &[Axis],
        m: &mut Machine,
    ) -> Result<Factor, Fault> {
        let upright = merge(body, &[rows, columns].concat());
        let turned = merge(body, &[columns, rows].concat());
        let run = |axes: &[Axis]| axes.last().map_or(1, |a| a.len);
        let transposed = run(&turned) > run(&upright);
        let shape = (count(rows), count(columns));
        let mut elements = vec![0.0; shape.0 * shape.1];
        let axes = if transposed { &turned } else { &upright };
        rows.iter().chain(columns).for_each(|a| m.slots[a.slot] = 0);
        let single = rows.iter().chain(columns).filter(|a| a.len == 1);
        single.for_each(|a| m.slots[a.slot] = a.start);
        fill(body, axes, m, 0, &mut elements)?;
        Ok(Factor { elements, shape, transposed })
    }

    fn view(&self) -> ArrayView2<'_, f64> {
        let view = ArrayView2::from_shape(self.shape.set_f(self.transposed), &self.elements);
        view.expect("as many elements as the shape says")
    }
}

/// Evaluates the code as matrix products; `None` if it is no sum of products or too small a one.
pub(crate) fn product(
    code: &MeaningCode,
    sources: &[InputElements],
    n: usize,
) -> Option<Result<Vec<f64>, Fault>> {
    let p = Product::of(code).filter(Product::worthwhile)?;
    let threads = workers::share();
    let depth = usize::try_from(p.depth()).ok()?;
    let limit = (SCRATCH / depth).clamp(1, BLOCK);
    let per_thread = usize::try_from(size(&p.columns)).ok()?.div_ceil(threads);
    let mut tasks = Vec::new();
    for matrix in boxes(&p.matrices, 1) {
        for rows in boxes(&p.rows, limit) {
            for columns in boxes(&p.columns, limit.min(per_thread.max(64))) {
                tasks.push((matrix.clone(), rows.clone(), columns));
            }
        }
    }
    let compute = |(matrix, rows, columns): &(Vec<Axis>, Vec<Axis>, Vec<Axis>)| {
        let mut m = Machine::new(code.extents.len(), sources);
        matrix.iter().for_each(|a| m.slots[a.slot] = a.start);
        let left = Factor::gather(p.left, rows, &p.over, &mut m)?;
        let right = Factor::gather(p.right, &p.over, columns, &mut m)?;
        let mut block = Array2::zeros((left.shape.0, right.shape.1));
        general_mat_mul(1.0, &left.view(), &right.view(), 0.0, &mut block);
        Ok(block)
    };
    let mut out = vec![0.0; n];
    // In groups, so that few blocks are alive at once.
    for group in tasks.chunks(4 * threads) {
        let blocks: Vec<OnceLock<Array2<f64>>> = group.iter().map(|_| OnceLock::new()).collect();
        let done = workers::try_each(group.len(), |i| {
            let _ = blocks[i].set(compute(&group[i])?);
            Ok(())
        });
        if let Err(fault) = done {
            return Some(Err(fault));
        }
        let blocks = blocks.into_iter().filter_map(OnceLock::into_inner);
        for ((matrix, rows, columns), block) in group.iter().zip(blocks) {
            let base = offsets(matrix, &p.matrices)[0];
            let columns = offsets(columns, &p.columns);
            for (row, values) in offsets(rows, &p.rows).into_iter().zip(block.outer_iter()) {
                for (column, v) in columns.iter().zip(values) {
                    out[base + row + column] = *v;
                }
            }
        }
    }
    Some(Ok(out))
}

/// True if code is evaluated as matrix products.
pub fn is_product(code: &MeaningCode) -> bool {
    Product::of(code).is_some_and(|p| p.worthwhile())
}
