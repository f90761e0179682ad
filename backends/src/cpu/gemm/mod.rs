//! The f32 matrix product: packed panels, register tiles, an epilogue on each finished block.
//!
//! The order in which a sum is added depends on the depth alone: an element has the same bits for any number of threads,
//! of rows and of columns, however the operands lie.

pub mod kernel;
pub mod pack;
mod skinny;

use crate::cpu::buffer::with_scratch;
use crate::cpu::simd::{VectorLevel, level};
use crate::cpu::threads::{SharedSlice, Threads};
use kernel::{TileTarget, shape};
pub use pack::{Matrix, PackedLeft, PackedRight};
use pack::{block_depth, pack_left, pack_right, panel_rows, panels, right_len};
pub use skinny::MOST_ROWS as SKINNY;
use std::ops::Range;

/// A right operand that is computed while it is packed, such as an im2col matrix.
pub trait ImplicitColumns: Sync {
    /// Packs depth × cols into panels as [`pack::pack_right`] does.
    fn pack(&self, depth: Range<usize>, cols: Range<usize>, dst: &mut [f32]);
}

#[derive(Clone, Copy)]
pub enum Left<'a> {
    /// As it lies.
    Plain(Matrix<'a>),
    /// Packed before.
    Packed(&'a PackedLeft),
}

#[derive(Clone, Copy)]
pub enum Right<'a> {
    /// As it lies.
    Plain(Matrix<'a>),
    /// Packed before.
    Packed(&'a PackedRight),
    /// Computed block by block.
    Implicit(&'a dyn ImplicitColumns),
}

/// One product of a batch.
pub struct Product<'a> {
    /// `m` × `k`.
    pub left: Left<'a>,
    /// `k` × `n`.
    pub right: Right<'a>,
    /// Where the result begins.
    pub at: usize,
}

/// What happens to a finished part of the result: its first element's position, and the elements.
pub type BlockEpilogue<'a> = dyn Fn(usize, &mut [f32]) + Sync + 'a;

/// Sizes of every product of a batch. Results are row-major with `n` elements per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmSizes {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Depth.
    pub k: usize,
}

/// Rows and columns that one task computes at a time, so that packed blocks stay in the second-level cache.
const BLOCK_ROWS: usize = 168;
const BLOCK_COLS: usize = 512;

/// Computes `products(i)` for `i` in `0..count`, over threads.
pub fn gemm<'a>(
    threads: &Threads,
    sizes: GemmSizes,
    count: usize,
    products: impl Fn(usize) -> Product<'a> + Sync,
    out: &mut [f32],
    epilogue: Option<&BlockEpilogue<'_>>,
) {
    let GemmSizes { m, n, .. } = sizes;
    if m == 0 || n == 0 || count == 0 {
        return;
    }
    let first = products(0);
    if let (Left::Plain(_), Right::Plain(b)) = (first.left, first.right)
        && m <= skinny::MOST_ROWS
        // Other levels have no fused multiply-add, which thin products sum with.
        && level() != VectorLevel::Base
        && (b.col == 1 || b.row == 1)
    {
        return skinny::products(threads, sizes, count, products, out, epilogue);
    }
    let rows = match first.left {
        Left::Packed(p) => p.rows,
        Left::Plain(_) => panel_rows(m),
    };
    let packed = (matches!(first.left, Left::Packed(_)), matches!(first.right, Right::Packed(_)));
    let grid = Grid::new(threads.count(), sizes, rows, count, packed);
    let shared = SharedSlice::new(out);
    threads.each(count * grid.down * grid.across, |task| {
        let (i, part) = (task / (grid.down * grid.across), task % (grid.down * grid.across));
        let product = products(i);
        let all_rows = cut(m, rows, grid.down, part / grid.across);
        let all_cols = cut(n, shape().cols, grid.across, part % grid.across);
        // Packed operands cost nothing to read again; others are packed once per block.
        let high = BLOCK_ROWS.div_ceil(rows) * rows;
        for c in all_cols.clone().step_by(BLOCK_COLS) {
            let cols = c..(c + BLOCK_COLS).min(all_cols.end);
            for r in all_rows.clone().step_by(high) {
                let block = Block { rows: r..(r + high).min(all_rows.end), cols: cols.clone() };
                run_block(&product, sizes, rows, &block, &shared);
                if let Some(epilogue) = epilogue {
                    finish(&product, n, &block, &shared, epilogue);
                }
            }
        }
    });
}

/// How the result is cut into tasks.
struct Grid {
    down: usize,
    across: usize,
}

impl Grid {
    fn new(threads: usize, s: GemmSizes, rows: usize, count: usize, packed: (bool, bool)) -> Grid {
        // A task below about a million operations is not worth handing over.
        let work = (s.m * s.n).saturating_mul(s.k.max(1)).saturating_mul(count) * 2;
        let wanted = if threads == 1 { 1 } else { (work >> 20).clamp(1, threads * 4) };
        let wanted = wanted.div_ceil(count);
        let (most_down, most_across) = (s.m.div_ceil(rows), s.n.div_ceil(shape().cols));
        // Cut so that what must be packed again for each part is what is packed already, or the smaller.
        let by_rows = match packed {
            (true, false) => false,
            (false, true) => true,
            _ => s.m >= s.n,
        };
        let (first, second) =
            if by_rows { (most_down, most_across) } else { (most_across, most_down) };
        let a = wanted.min(first);
        let b = wanted.div_ceil(a).min(second);
        if by_rows { Grid { down: a, across: b } } else { Grid { down: b, across: a } }
    }
}

/// Part `i` of `parts` of `0..len`, cut at multiples of `unit`.
fn cut(len: usize, unit: usize, parts: usize, i: usize) -> Range<usize> {
    let units = len.div_ceil(unit);
    let edge = |i: usize| (units * i / parts * unit).min(len);
    edge(i)..edge(i + 1)
}

struct Block {
    rows: Range<usize>,
    cols: Range<usize>,
}

fn run_block(
    product: &Product<'_>,
    s: GemmSizes,
    rows: usize,
    block: &Block,
    out: &SharedSlice<'_, f32>,
) {
    let depth = block_depth(s.k);
    let left_len = match product.left {
        Left::Plain(_) => block.rows.len().div_ceil(rows) * rows * depth,
        Left::Packed(_) => 0,
    };
    let right_len = match product.right {
        Right::Packed(_) => 0,
        Right::Plain(_) | Right::Implicit(_) => right_len(block.cols.len(), depth),
    };
    if s.k == 0 {
        for r in block.rows.clone() {
            // SAFETY: blocks do not overlap.
            unsafe { out.part(product.at + r * s.n + block.cols.start, block.cols.len()) }
                .fill(0.0);
        }
    }
    with_scratch::<f32, 2, _>([left_len, right_len], |[left, right]| {
        for d in (0..s.k).step_by(depth) {
            let depth = d..(d + depth).min(s.k);
            let a: &[f32] = match product.left {
                Left::Packed(p) => p.block(block.rows.start, depth.clone()),
                Left::Plain(a) => {
                    pack_left(&a, block.rows.clone(), depth.clone(), rows, left);
                    left
                }
            };
            let b: &[f32] = match product.right {
                Right::Packed(p) => p.block(block.cols.start, depth.clone()),
                Right::Plain(b) => {
                    pack_right(&b, depth.clone(), block.cols.clone(), right);
                    right
                }
                Right::Implicit(c) => {
                    c.pack(depth.clone(), block.cols.clone(), right);
                    right
                }
            };
            tiles(product.at, s.n, rows, block, &depth, a, b, out);
        }
    });
}

/// All register tiles of a block.
#[allow(clippy::too_many_arguments, reason = "one inner loop, given a name")]
fn tiles(
    at: usize,
    n: usize,
    rows: usize,
    block: &Block,
    depth: &Range<usize>,
    a: &[f32],
    b: &[f32],
    out: &SharedSlice<'_, f32>,
) {
    let (k, full) = (depth.len(), shape().cols);
    for (p, (cols, width)) in panels(block.cols.clone()).enumerate() {
        let b = &b[p * full * k..][..width * k];
        for (q, r) in block.rows.clone().step_by(rows).enumerate() {
            let high = rows.min(block.rows.end - r);
            let a = &a[q * rows * k..][..high * k];
            let first = at + r * n + cols.start;
            assert!(first + (high - 1) * n + cols.len() <= out.len(), "tile inside the result");
            let target =
                TileTarget { at: out.at(first), stride: n, cols: cols.len(), add: depth.start > 0 };
            // SAFETY: the tile lies inside the result; blocks of different tasks do not overlap.
            unsafe { kernel::tile(high, width, k, a, b, target) };
        }
    }
}

/// Applies the epilogue to a finished block, in runs as long as they get.
fn finish(
    product: &Product<'_>,
    n: usize,
    block: &Block,
    out: &SharedSlice<'_, f32>,
    f: &BlockEpilogue<'_>,
) {
    if block.cols.len() == n {
        let (at, len) = (product.at + block.rows.start * n, block.rows.len() * n);
        // SAFETY: whole rows of this block; blocks of different tasks do not overlap.
        return f(at, unsafe { out.part(at, len) });
    }
    for r in block.rows.clone() {
        let at = product.at + r * n + block.cols.start;
        // SAFETY: part of a row of this block; blocks of different tasks do not overlap.
        f(at, unsafe { out.part(at, block.cols.len()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(m: usize, n: usize, k: usize, transposed: bool, packed: bool, threads: usize) {
        let value = |i: usize| ((i * 7919 + 13) % 101) as f32 / 50.0 - 1.0;
        let a: Vec<f32> = (0..m * k).map(value).collect();
        let b: Vec<f32> = (0..k * n).map(|i| value(i + 5)).collect();
        let (br, bc) = if transposed { (1, k as isize) } else { (n as isize, 1) };
        let left = Matrix { data: &a, offset: 0, row: k as isize, col: 1 };
        let right = Matrix { data: &b, offset: 0, row: br, col: bc };
        let (pa, pb) = (PackedLeft::new(&left, m, k), PackedRight::new(&right, k, n));
        let product = |_| Product {
            left: if packed { Left::Packed(&pa) } else { Left::Plain(left) },
            right: if packed { Right::Packed(&pb) } else { Right::Plain(right) },
            at: 0,
        };
        let mut out = vec![f32::NAN; m * n];
        let epilogue = |at: usize, part: &mut [f32]| {
            part.iter_mut().enumerate().for_each(|(i, v)| *v += ((at + i) % n) as f32);
        };
        gemm(&Threads::new(threads), GemmSizes { m, n, k }, 1, product, &mut out, Some(&epilogue));
        for i in 0..m {
            for j in 0..n {
                let want: f64 = (0..k)
                    .map(|l| {
                        let at = (l as isize * br + j as isize * bc) as usize;
                        a[i * k + l] as f64 * b[at] as f64
                    })
                    .sum();
                let got = out[i * n + j] as f64 - j as f64;
                assert!((got - want).abs() < 1e-3, "{m}x{n}x{k} at {i},{j}: {got} {want}");
            }
        }
    }

    #[test]
    fn an_element_has_one_value_whatever_surrounds_it() {
        let (m, n, k) = (17, 70, 700);
        let value = |i: usize| ((i * 7919 + 13) % 997) as f32 / 500.0 - 1.0;
        let a: Vec<f32> = (0..m * k).map(value).collect();
        let b: Vec<f32> = (0..k * n).map(|i| value(i + 5)).collect();
        let c: Vec<f32> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
        let left = Matrix { data: &a, offset: 0, row: k as isize, col: 1 };
        let rows = Matrix { data: &b, offset: 0, row: n as isize, col: 1 };
        let columns = Matrix { data: &c, offset: 0, row: 1, col: k as isize };
        let run = |m: usize, n: usize, left: Left<'_>, right: Right<'_>, threads: usize| {
            let mut out = vec![f32::NAN; m * n];
            let product = |_| Product { left, right, at: 0 };
            gemm(&Threads::new(threads), GemmSizes { m, n, k }, 1, product, &mut out, None);
            out
        };
        let whole = run(m, n, Left::Plain(left), Right::Plain(rows), 1);
        for (high, wide, threads) in [(1, n, 1), (2, n, 3), (1, 33, 1), (3, 1, 2), (m, 17, 2)] {
            let packed = PackedRight::new(&rows, k, wide);
            let packed_left = PackedLeft::new(&left, high, k);
            let rights = [Right::Plain(rows), Right::Plain(columns), Right::Packed(&packed)];
            for right in rights {
                for left in [Left::Plain(left), Left::Packed(&packed_left)] {
                    let part = run(high, wide, left, right, threads);
                    for (i, v) in part.iter().enumerate() {
                        let want = whole[i / wide * n + i % wide];
                        assert_eq!(v.to_bits(), want.to_bits(), "{high}x{wide} at {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn products_of_every_shape() {
        for (m, n, k) in [
            (1, 1, 1),
            (1, 33, 7),
            (2, 16, 0),
            (13, 17, 5),
            (14, 32, 256),
            (15, 31, 257),
            (29, 65, 300),
            (128, 96, 64),
            (200, 600, 20),
            (3, 1, 1000),
        ] {
            for (transposed, packed, threads) in
                [(false, false, 1), (true, false, 2), (false, true, 2), (true, true, 1)]
            {
                check(m, n, k, transposed, packed, threads);
            }
        }
    }
}
