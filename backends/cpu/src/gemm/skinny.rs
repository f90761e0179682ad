//! Products with few rows, where packing the right operand would cost more than it saves.
//!
//! Sums are added in the order of the packed product: an element's bits do not depend on which of them computes it.

use super::chain::NONE;
use super::kernel::{self, Panels, Target, shape};
use super::pack::{block_depth, pack_right};
use super::{Finish, GemmSizes, Left, Matrix, Product, Right};
use crate::buffer::with_scratch;
use crate::simd::simd;
use crate::threads::{SharedSlice, Threads};

/// Most rows of a thin product.
pub const MOST_ROWS: usize = 2;

/// Columns summed at once.
const WIDE: usize = 64;

/// Computes every product, row by row.
pub fn products<'a>(
    threads: &Threads,
    sizes: GemmSizes,
    count: usize,
    products: impl Fn(usize) -> Product<'a> + Sync,
    out: &mut [f32],
    finish: Finish<'_>,
) {
    let GemmSizes { m, n, k } = sizes;
    // A task that reads less than some hundred kilobytes is not worth handing over.
    let parts = (count * m * n * k / (1 << 16)).clamp(1, threads.count() * 4);
    let blocks = n.div_ceil(WIDE);
    let across = parts.div_ceil(count * m).min(blocks);
    let shared = SharedSlice::new(out);
    threads.each(count * m * across, |task| {
        let (line, part) = (task / across, task % across);
        let (i, r) = (line / m, line % m);
        let (from, to) =
            (blocks * part / across * WIDE, (blocks * (part + 1) / across * WIDE).min(n));
        let product = products(i);
        let (Left::Plain(a), Right::Plain(b)) = (product.left, product.right) else { return };
        let at = product.at + r * n + from;
        // SAFETY: every task has its own part of a row.
        let out = unsafe { shared.part(at, to - from) };
        if b.col == 1 {
            across_columns(&a, &b, r, from, k, out);
        } else {
            along_columns(&a, &b, r, from, k, out);
        }
        finish.apply(at, out, n);
    });
}

simd! {
    /// Rows of `b` are contiguous: they are added, four at a time, in blocks that stay in the first-level cache.
    fn across_columns(a: &Matrix<'_>, b: &Matrix<'_>, r: usize, first: usize, k: usize, out: &mut [f32]) {
        const BLOCK: usize = 2048;
        let depth = block_depth(k);
        let mut held = [0f32; BLOCK];
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let n = out.len();
            let row = |l: usize| &b.data[b.at(l, first + i * BLOCK)..][..n];
            out.fill(0.0);
            for d in (0..k).step_by(depth) {
                // Blocks of the depth are summed by themselves, as the packed product sums them.
                let sums = if d == 0 { &mut *out } else { &mut held[..n] };
                if d > 0 {
                    sums.fill(0.0);
                }
                let end = (d + depth).min(k);
                let mut l = d;
                while l + 4 <= end {
                    let x: [f32; 4] = std::array::from_fn(|j| a.data[a.at(r, l + j)]);
                    let y: [&[f32]; 4] = std::array::from_fn(|j| row(l + j));
                    let rows = y[0].iter().zip(y[1]).zip(y[2]).zip(y[3]);
                    for (o, (((&p, &q), &s), &t)) in sums.iter_mut().zip(rows) {
                        let sum = x[1].mul_add(q, x[0].mul_add(p, *o));
                        *o = x[3].mul_add(t, x[2].mul_add(s, sum));
                    }
                    l += 4;
                }
                for l in l..end {
                    let x = a.data[a.at(r, l)];
                    sums.iter_mut().zip(row(l)).for_each(|(o, &y)| *o = x.mul_add(y, *o));
                }
                if d > 0 {
                    out.iter_mut().zip(&held).for_each(|(o, &s)| *o += s);
                }
            }
        }
    }
}

/// Columns of `b` are contiguous: they are packed panel by panel.
fn along_columns(
    a: &Matrix<'_>,
    b: &Matrix<'_>,
    r: usize,
    first: usize,
    k: usize,
    out: &mut [f32],
) {
    let (depth, wide) = (block_depth(k), shape().cols);
    if k == 0 {
        return out.fill(0.0);
    }
    with_scratch::<f32, 2, _>([depth, depth * wide], |[row, panel]| {
        for d in (0..k).step_by(depth) {
            let depth = d..(d + depth).min(k);
            for (x, l) in row.iter_mut().zip(depth.clone()) {
                *x = a.data[a.at(r, l)];
            }
            for (p, out) in out.chunks_mut(wide).enumerate() {
                let from = first + p * wide;
                pack_right(b, depth.clone(), from..from + out.len(), panel);
                let lanes = wide / 2;
                let vectors = out.len().div_ceil(lanes);
                let parts = kernel::parts(0, 0, out.len());
                let target = Target {
                    out: out.as_mut_ptr(),
                    len: out.len(),
                    parts: &parts[..vectors],
                    stride: wide,
                    row: 0,
                    add: d > 0,
                    chain: &NONE,
                };
                let right = kernel::Right::Packed(panel);
                let panels =
                    Panels { count: 1, rows: 1, depth: depth.len(), data: row, ahead: &[] };
                // SAFETY: the target is `out`, one row.
                unsafe { kernel::tiles(panels, right, &target) };
            }
        }
    });
}
