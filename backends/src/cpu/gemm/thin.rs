//! Products with few rows, where packing the right operand would cost more than it saves.
//!
//! Sums are added in the same order for any number of threads.

use super::{Epilogue, Left, Matrix, Product, Right, Sizes};
use crate::cpu::simd::simd;
use crate::cpu::threads::{Shared, Threads};

/// Most rows of a thin product.
pub const MOST_ROWS: usize = 2;

/// Columns summed at once.
const WIDE: usize = 64;

/// Computes every product, row by row.
pub fn products<'a>(
    threads: &Threads,
    sizes: Sizes,
    count: usize,
    products: impl Fn(usize) -> Product<'a> + Sync,
    out: &mut [f32],
    epilogue: Option<&Epilogue<'_>>,
) {
    let Sizes { m, n, k } = sizes;
    // A task below some hundred thousand operations is not worth handing over.
    let parts = (count * m * n * k / (1 << 18)).clamp(1, threads.count() * 4);
    let blocks = n.div_ceil(WIDE);
    let across = parts.div_ceil(count * m).min(blocks);
    let shared = Shared::new(out);
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
        if let Some(epilogue) = epilogue {
            epilogue(at, out);
        }
    });
}

simd! {
    /// Rows of `b` are contiguous: they are added, four at a time, in blocks that stay in the first-level cache.
    fn across_columns(a: &Matrix<'_>, b: &Matrix<'_>, r: usize, first: usize, k: usize, out: &mut [f32]) {
        const BLOCK: usize = 2048;
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            out.fill(0.0);
            let n = out.len();
            let row = |l: usize| &b.data[b.at(l, first + i * BLOCK)..][..n];
            let mut l = 0;
            while l + 4 <= k {
                let x: [f32; 4] = std::array::from_fn(|j| a.data[a.at(r, l + j)]);
                let y: [&[f32]; 4] = std::array::from_fn(|j| row(l + j));
                let rows = y[0].iter().zip(y[1]).zip(y[2]).zip(y[3]);
                for (o, (((&p, &q), &s), &t)) in out.iter_mut().zip(rows) {
                    let sum = x[1].mul_add(q, x[0].mul_add(p, *o));
                    *o = x[3].mul_add(t, x[2].mul_add(s, sum));
                }
                l += 4;
            }
            for l in l..k {
                let x = a.data[a.at(r, l)];
                out.iter_mut().zip(row(l)).for_each(|(o, &y)| *o = x.mul_add(y, *o));
            }
        }
    }
}

simd! {
    /// Columns of `b` are contiguous.
    fn along_columns(a: &Matrix<'_>, b: &Matrix<'_>, r: usize, first: usize, k: usize, out: &mut [f32]) {
        const LANES: usize = 32;
        for (j, out) in out.iter_mut().enumerate() {
            let column = &b.data[b.at(0, first + j)..][..k];
            let mut acc = [0f32; LANES];
            if a.col == 1 {
                let row = &a.data[a.at(r, 0)..][..k];
                let (x, x_rest) = row.as_chunks::<LANES>();
                let (y, y_rest) = column.as_chunks::<LANES>();
                for (x, y) in x.iter().zip(y) {
                    acc.iter_mut().zip(x).zip(y).for_each(|((s, &x), &y)| *s = x.mul_add(y, *s));
                }
                acc.iter_mut().zip(x_rest).zip(y_rest).for_each(|((s, &x), &y)| *s = x.mul_add(y, *s));
            } else {
                for (l, &y) in column.iter().enumerate() {
                    acc[l % LANES] += a.data[a.at(r, l)] * y;
                }
            }
            let mut half = LANES / 2;
            while half > 0 {
                for i in 0..half {
                    acc[i] += acc[i + half];
                }
                half /= 2;
            }
            *out = acc[0];
        }
    }
}
