//! GEMV: products of so few rows that packing the right operand does not pay.
//!
//! The summation order is that of the packed product, so both give bitwise the same results.

use super::pack::Matrix;
use super::pack::{block_depth, pack_right};
use super::{GemmEpilogue, GemmSizes, Left, Product, Right};
use crate::runtime::buffer::with_scratch;
use crate::runtime::threads::{SharedSlice, Threads};
use mlc_vector::arrays::array;
use mlc_vector::epilogue::NO_EPILOGUE;
use mlc_vector::simd;
use mlc_vector::tile::{self, LeftPanels, TileOutput, shape};

/// Most rows that are computed as GEMV.
pub const MOST_ROWS: usize = 2;

/// Columns summed at once.
const WIDE: usize = 64;

/// Computes every product, row by row.
pub fn gemv<'a>(
    threads: &Threads,
    sizes: GemmSizes,
    count: usize,
    products: impl Fn(usize) -> Product<'a> + Sync,
    out: &mut [f32],
    finish: GemmEpilogue<'_>,
) {
    let GemmSizes { m, n, k } = sizes;
    // A task that reads less than some hundred kilobytes is not worth handing over.
    let parts = (count * m * n * k / (1 << 16)).clamp(1, threads.count() * 4);
    // A few chains of sums alone take no longer one after the other.
    if n == 1 && count * m >= ABREAST / 2 {
        return dot_products(threads, sizes, count, parts, products, out, finish);
    }
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
            add_rows(&a, &b, r, from, k, out);
        } else {
            dot_columns(&a, &b, r, from, k, out);
        }
        finish.apply(at, out, n);
    });
}

/// Independent dot products computed at once, to hide the latency of FMA.
const ABREAST: usize = 8;

/// Computes products with one column, as dot products side by side.
fn dot_products<'a>(
    threads: &Threads,
    GemmSizes { m, k, .. }: GemmSizes,
    count: usize,
    parts: usize,
    products: impl Fn(usize) -> Product<'a> + Sync,
    out: &mut [f32],
    finish: GemmEpilogue<'_>,
) {
    let groups = (count * m).div_ceil(ABREAST);
    let parts = parts.min(groups);
    let shared = SharedSlice::new(out);
    threads.each(parts, |task| {
        for group in groups * task / parts..groups * (task + 1) / parts {
            let lines = group * ABREAST..(count * m).min((group + 1) * ABREAST);
            let mut places = [0; ABREAST];
            let mut factors = [[Factor::default(); 2]; ABREAST];
            for (line, (place, factor)) in lines.clone().zip(places.iter_mut().zip(&mut factors)) {
                let product = products(line / m);
                let (Left::Plain(a), Right::Plain(b)) = (product.left, product.right) else {
                    return;
                };
                *place = product.at + line % m;
                *factor = [
                    Factor { data: a.data, from: a.at(line % m, 0), step: a.col },
                    Factor { data: b.data, from: b.at(0, 0), step: b.row },
                ];
            }
            let mut sums = [0.0; ABREAST];
            dots(&factors, k, &mut sums);
            for (at, sum) in places.into_iter().zip(sums).take(lines.len()) {
                // SAFETY: every task has its own elements.
                let out = unsafe { shared.part(at, 1) };
                out[0] = sum;
                finish.apply(at, out, 1);
            }
        }
    });
}

/// A strided vector.
#[derive(Clone, Copy, Default)]
struct Factor<'a> {
    data: &'a [f32],
    from: usize,
    step: isize,
}

impl Factor<'_> {
    /// Some elements from number `l` on; zeros for a factor that has none.
    #[inline(always)]
    fn read<const N: usize>(&self, l: usize) -> [f32; N] {
        let place = |i: usize| (self.from as isize + (l + i) as isize * self.step) as usize;
        match (self.data.is_empty(), self.step) {
            (true, _) => [0.0; N],
            (_, 1) => self.data[place(0)..place(N)].try_into().expect("as many"),
            _ => array(|i| self.data[place(i)]),
        }
    }
}

simd! {
    /// Sums of the products of both factors, side by side.
    fn dots(factors: &[[Factor<'_>; 2]; ABREAST], k: usize, out: &mut [f32; ABREAST]) {
        const AT_ONCE: usize = 8;
        let depth = block_depth(k);
        for d in (0..k).step_by(depth) {
            let (mut sums, end) = ([0f32; ABREAST], (d + depth).min(k));
            let mut l = d;
            while l + AT_ONCE <= end {
                let x: [[f32; AT_ONCE]; ABREAST] = array(|g| factors[g][0].read(l));
                let y: [[f32; AT_ONCE]; ABREAST] = array(|g| factors[g][1].read(l));
                for i in 0..AT_ONCE {
                    for g in 0..ABREAST {
                        sums[g] = x[g][i].mul_add(y[g][i], sums[g]);
                    }
                }
                l += AT_ONCE;
            }
            for l in l..end {
                for (sum, [a, b]) in sums.iter_mut().zip(factors) {
                    let ([x], [y]) = (a.read(l), b.read(l));
                    *sum = x.mul_add(y, *sum);
                }
            }
            // Blocks of the depth are summed by themselves, as the packed product sums them.
            for (o, sum) in out.iter_mut().zip(sums) {
                *o = if d == 0 { sum } else { *o + sum };
            }
        }
    }
}

simd! {
    /// Row-major `b`: adds multiples of its rows, four at a time, in blocks that stay in the first-level cache.
    fn add_rows(a: &Matrix<'_>, b: &Matrix<'_>, r: usize, first: usize, k: usize, out: &mut [f32]) {
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
                    let x: [f32; 4] = array(|j| a.data[a.at(r, l + j)]);
                    let y: [&[f32]; 4] = array(|j| row(l + j));
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

/// Column-major `b`: packed panel by panel.
fn dot_columns(a: &Matrix<'_>, b: &Matrix<'_>, r: usize, first: usize, k: usize, out: &mut [f32]) {
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
                let parts = tile::parts(0, 0, out.len());
                let target = TileOutput {
                    out: out.as_mut_ptr(),
                    len: out.len(),
                    parts: &parts[..vectors],
                    stride: wide,
                    row: 0,
                    add: d > 0,
                    epilogue: &NO_EPILOGUE,
                };
                let right = tile::RightOperand::Packed(panel);
                let panels =
                    LeftPanels { count: 1, rows: 1, depth: depth.len(), data: row, ahead: &[] };
                // SAFETY: the target is `out`, one row.
                unsafe { tile::tiles(panels, right, &target) };
            }
        }
    });
}
