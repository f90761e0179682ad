//! The f32 GEMM: packed panels, register tiles, and an epilogue on each finished block.
//!
//! The summation order depends on the depth alone: a result is bitwise the same for any number of threads, rows and columns, and any
//! strides.

mod constants;
pub mod direct;
pub mod epilogue;
pub mod f16_panels;
mod gemv;
pub mod pack;

use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::Context;
use crate::runtime::threads::{SharedSlice, Threads};
pub use constants::{SubMatrix, Taps};
use f16_panels::{ComputedPanels, RightPanels};
pub use gemv::MOST_ROWS as GEMV_ROWS;
use mlc_vector::epilogue::NO_EPILOGUE;
pub use mlc_vector::epilogue::TileEpilogue;
use mlc_vector::simd::{VectorLevel, level};
use mlc_vector::tile::{self, LeftPanels, TileOutput, shape};
pub use pack::{FilterShape, Matrix, PackedFilters, PackedLeft, PackedRight};
use pack::{block_depth, pack_left, pack_right, right_len, wide_rows, widest_strip};
use std::ops::Range;

/// A right operand computed during packing, such as an im2col matrix.
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
    /// Computed block by block, once for all rows.
    Implicit(&'a dyn ImplicitColumns),
    /// Computed strip by strip, so that it is read from the first-level cache, and again for each part of the rows.
    Strips(&'a dyn ImplicitColumns),
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

/// A function on a finished span of the result: the index of its first element, and the elements.
pub type BlockEpilogue<'a> = dyn Fn(usize, &mut [f32]) + Sync + 'a;

/// What is applied to the product.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one for each run of a kernel, and it is read by every tile"
)]
#[derive(Clone, Copy)]
pub enum GemmEpilogue<'a> {
    /// None.
    Identity,
    /// Steps on register tiles.
    Tile(TileEpilogue<'a>),
    /// Any function, on a finished block.
    Block(&'a BlockEpilogue<'a>),
}

impl<'a> GemmEpilogue<'a> {
    /// The epilogue for a result with rows of `n` elements, computed `m` at a time: on register tiles if possible, else by `block`.
    pub fn new(
        cx: &'a Context<'_>,
        m: usize,
        n: usize,
        block: &'a BlockEpilogue<'a>,
    ) -> GemmEpilogue<'a> {
        match cx.epilogue {
            Some((epilogue, inputs)) => match epilogue::tile_epilogue(epilogue, inputs, m, n) {
                Some(tile) => GemmEpilogue::Tile(tile),
                None => GemmEpilogue::Block(block),
            },
            None => GemmEpilogue::Identity,
        }
    }

    /// Finishes a part of the result that begins at element `at`, with rows of `n` elements.
    pub fn apply(&self, at: usize, part: &mut [f32], n: usize) {
        match self {
            GemmEpilogue::Identity => {}
            GemmEpilogue::Tile(tile) => tile.apply(at, part, n),
            GemmEpilogue::Block(f) => f(at, part),
        }
    }

    /// Finishes some columns of the rows of a result, which has `n` of them.
    ///
    /// # Safety
    /// Nothing else accesses these elements meanwhile.
    pub unsafe fn rows(
        &self,
        out: &SharedSlice<'_, f32>,
        rows: Range<usize>,
        columns: &Range<usize>,
        n: usize,
    ) {
        match self {
            GemmEpilogue::Identity => {}
            GemmEpilogue::Tile(tile) => tile.apply_rows(out, rows, columns, n),
            GemmEpilogue::Block(f) => rows.for_each(|r| {
                let at = r * n + columns.start;
                // SAFETY: as promised.
                f(at, unsafe { out.part(at, columns.len()) });
            }),
        }
    }

    /// The epilogue of register tiles, if this is the `last` block of the depth.
    pub fn of_tiles(&self, last: bool) -> &TileEpilogue<'a> {
        match self {
            GemmEpilogue::Tile(tile) if last => tile,
            _ => &NO_EPILOGUE,
        }
    }
}

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
const BLOCK_COLS: usize = 256;

/// Computes `products(i)` for `i` in `0..count`, over threads.
pub fn gemm<'a>(
    threads: &Threads,
    sizes: GemmSizes,
    count: usize,
    products: impl Fn(usize) -> Product<'a> + Sync,
    out: &mut [f32],
    finish: GemmEpilogue<'_>,
) {
    let GemmSizes { m, n, k } = sizes;
    if m == 0 || n == 0 || count == 0 {
        return;
    }
    let first = products(0);
    if let (Left::Plain(_), Right::Plain(b)) = (first.left, first.right)
        && m <= gemv::MOST_ROWS
        // Other levels have no fused multiply-add, which GEMV sums with.
        && level() != VectorLevel::Base
        && (b.col == 1 || b.row == 1)
    {
        return gemv::gemv(threads, sizes, count, products, out, finish);
    }
    let rows = match first.left {
        Left::Packed(p) => p.rows,
        Left::Plain(_) => wide_rows(m, n),
    };
    let packed = (matches!(first.left, Left::Packed(_)), matches!(first.right, Right::Packed(_)));
    let grid = Grid::new(threads.count(), sizes, rows, count, packed);
    let shared = SharedSlice::new(out);
    threads.each(count * grid.down * grid.across, |task| {
        let (i, part) = (task / (grid.down * grid.across), task % (grid.down * grid.across));
        let product = products(i);
        let all_rows = cut(m, rows, grid.down, part / grid.across);
        let all_cols = cut(n, shape().cols, grid.across, part % grid.across);
        let wide = match product.right {
            // The left operand is packed again for each block of columns.
            Right::Packed(_) | Right::Strips(_) => 8 * BLOCK_COLS,
            Right::Plain(_) | Right::Implicit(_) if k < BLOCK_COLS / 4 => 2 * BLOCK_COLS,
            Right::Plain(_) | Right::Implicit(_) => BLOCK_COLS,
        };
        for c in all_cols.clone().step_by(wide) {
            let cols = c..(c + wide).min(all_cols.end);
            let block = Block { rows: all_rows.clone(), cols };
            run_block(&product, sizes, rows, &block, &shared, &finish);
        }
    });
}

/// Partition of the result into tasks.
struct Grid {
    down: usize,
    across: usize,
}

/// Cost of reading an element of the right operand, in operations: it dominates products of few rows.
const READ: usize = 16;

/// Rows of a left operand that each column block may pack again.
const FEW_ROWS: usize = 256;

impl Grid {
    fn new(threads: usize, s: GemmSizes, rows: usize, count: usize, packed: (bool, bool)) -> Grid {
        // A task below about half a million operations is not worth handing over.
        let each = (s.n * s.k.max(1)).saturating_mul(2 * s.m + READ);
        let work = each.saturating_mul(count);
        let wanted = if threads == 1 { 1 } else { (work >> 19).clamp(1, threads * 4) };
        let wanted = wanted.div_ceil(count);
        let (most_down, most_across) = (s.m.div_ceil(rows), s.n.div_ceil(shape().cols));
        // Cut so that what must be packed again for each part is what is packed already, or the smaller.
        let by_rows = match packed {
            (true, false) => false,
            // A left operand of few rows is soon packed again; the right one, the weights, is read from afar.
            (false, true) => s.m > FEW_ROWS,
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
pub fn cut(len: usize, unit: usize, parts: usize, i: usize) -> Range<usize> {
    let units = len.div_ceil(unit);
    let edge = |i: usize| (units * i / parts * unit).min(len);
    edge(i)..edge(i + 1)
}

/// Part `i` of `parts` of what is fetched ahead.
pub fn share(next: &[f32], i: usize, parts: usize) -> &[f32] {
    &next[next.len() * i / parts..next.len() * (i + 1) / parts]
}

struct Block {
    rows: Range<usize>,
    cols: Range<usize>,
}

/// Computes a block of columns. The right operand is packed once for all rows, the left one in parts.
fn run_block(
    product: &Product<'_>,
    s: GemmSizes,
    rows: usize,
    block: &Block,
    out: &SharedSlice<'_, f32>,
    finish: &GemmEpilogue<'_>,
) {
    let depth = block_depth(s.k);
    let high = BLOCK_ROWS.div_ceil(rows) * rows;
    let left_len = match product.left {
        Left::Plain(_) => block.rows.len().min(high).div_ceil(rows) * rows * depth,
        Left::Packed(_) => 0,
    };
    let right_len = match product.right {
        Right::Packed(p) => p.strip_len(depth),
        Right::Strips(_) => widest_strip(depth),
        Right::Plain(_) | Right::Implicit(_) => right_len(block.cols.len(), depth),
    };
    if s.k == 0 {
        for r in block.rows.clone() {
            let at = product.at + r * s.n + block.cols.start;
            // SAFETY: blocks do not overlap.
            let line = unsafe { out.part(at, block.cols.len()) };
            line.fill(0.0);
            finish.apply(at, line, s.n);
        }
    }
    with_scratch::<f32, 2, _>([left_len, right_len], |[left, right]| {
        for d in (0..s.k).step_by(depth) {
            let depth = d..(d + depth).min(s.k);
            // The memory holds what is packed here, or a strip of what was packed in 16 bits.
            let (b, strip) = match product.right {
                Right::Packed(p) => (p.block(block.cols.start, depth.clone()), &mut right[..]),
                Right::Strips(columns) => {
                    let (depth, cols) = (depth.clone(), block.cols.clone());
                    (RightPanels::Computed(ComputedPanels { columns, depth, cols }), &mut right[..])
                }
                Right::Plain(b) => {
                    pack_right(&b, depth.clone(), block.cols.clone(), right);
                    (RightPanels::Floats(right), &mut [][..])
                }
                Right::Implicit(c) => {
                    c.pack(depth.clone(), block.cols.clone(), right);
                    (RightPanels::Floats(right), &mut [][..])
                }
            };
            for r in block.rows.clone().step_by(high) {
                let part = r..(r + high).min(block.rows.end);
                let mut next: &[f32] = &[];
                let a: &[f32] = match product.left {
                    Left::Packed(p) => {
                        if !matches!(product.right, Right::Packed(_)) {
                            next = match part.end < block.rows.end {
                                true => p.upcoming(part.end, high, depth.start),
                                false => p.upcoming(block.rows.start, high, depth.end),
                            };
                        }
                        p.block(r, depth.clone())
                    }
                    Left::Plain(a) => {
                        pack_left(&a, part.clone(), depth.clone(), rows, left);
                        left
                    }
                };
                let packed = PackedBlock {
                    m: part.len(),
                    n: block.cols.len(),
                    k: depth.len(),
                    rows,
                    at: product.at + r * s.n + block.cols.start,
                    stride: s.n,
                    row: product.at / s.n + r,
                    column: block.cols.start,
                    add: depth.start > 0,
                    next,
                };
                let last = depth.end == s.k;
                packed.product(a, &b, strip, finish.of_tiles(last), out);
                if let (true, GemmEpilogue::Block(f)) = (last, finish) {
                    finish_block(product.at, s.n, &part, &block.cols, out, f);
                }
            }
        }
    });
}

/// A product of packed panels, and the block of the result that it is.
pub struct PackedBlock<'a> {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Depth.
    pub k: usize,
    /// Rows of each left panel.
    pub rows: usize,
    /// The block's first element.
    pub at: usize,
    /// Elements from one row of the result to the next.
    pub stride: usize,
    /// Row of the result, over all products, and column of the first element.
    pub row: usize,
    pub column: usize,
    /// Add to what is there instead of replacing it.
    pub add: bool,
    /// What is read after this block, for the second-level cache; if nothing, the right panels are what comes from far.
    pub next: &'a [f32],
}

impl PackedBlock<'_> {
    /// Computes all register tiles; right panels of 16-bit floats are widened into `scratch`. No other task may access the block.
    pub fn product(
        &self,
        a: &[f32],
        b: &RightPanels<'_>,
        scratch: &mut [f32],
        epilogue: &TileEpilogue<'_>,
        out: &SharedSlice<'_, f32>,
    ) {
        let (k, full, lanes) = (self.k, shape().cols, shape().lanes());
        let epilogue = epilogue.from_row(self.row);
        // Few rows take more panels at once than tiles of as many do that others follow.
        let panels = match self.m <= self.rows {
            true => tile::strip_panels(self.m.max(1)),
            false => tile::wide_panels(self.rows),
        };
        let strip = panels * full;
        for columns in tile::strips(0..self.n, panels) {
            let (col, wide) = (columns.start, columns.len());
            let vectors = tile::vectors(wide);
            let (right, next) = b.strip(col * k, vectors * lanes * k, self.m, scratch);
            let ahead = match self.next {
                [] => next,
                next => share(next, col / strip, self.n.div_ceil(strip)),
            };
            tile::each_height(self.m, self.rows, |r, count, rows| {
                let parts = tile::parts(self.at + r * self.stride + col, self.column + col, wide);
                let target = TileOutput {
                    out: out.at(0),
                    len: out.len(),
                    parts: &parts[..vectors],
                    stride: self.stride,
                    row: r,
                    add: self.add,
                    epilogue: &epilogue,
                };
                // SAFETY: blocks of different tasks do not overlap.
                unsafe {
                    tile::tiles(
                        LeftPanels { count, rows, depth: k, data: &a[r * k..], ahead },
                        right,
                        &target,
                    )
                };
            });
        }
    }
}

/// Applies an epilogue to a finished block of the result that begins at element `first` and has rows of `n` elements, in spans as long as
/// possible. No other task may access the block.
pub fn finish_block(
    first: usize,
    n: usize,
    rows: &Range<usize>,
    cols: &Range<usize>,
    out: &SharedSlice<'_, f32>,
    f: &BlockEpilogue<'_>,
) {
    if cols.len() == n {
        let (at, len) = (first + rows.start * n, rows.len() * n);
        // SAFETY: whole rows of this block; blocks of different tasks do not overlap.
        return f(at, unsafe { out.part(at, len) });
    }
    for r in rows.clone() {
        let at = first + r * n + cols.start;
        // SAFETY: part of a row of this block; blocks of different tasks do not overlap.
        f(at, unsafe { out.part(at, cols.len()) });
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
        let finish = GemmEpilogue::Block(&epilogue);
        gemm(&Threads::new(threads), GemmSizes { m, n, k }, 1, product, &mut out, finish);
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
            let sizes = GemmSizes { m, n, k };
            gemm(&Threads::new(threads), sizes, 1, product, &mut out, GemmEpilogue::Identity);
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
    fn elements_of_many_products_have_the_bits_of_each_by_itself() {
        let (count, k) = (21, 700);
        let value = |i: usize| ((i * 7919 + 13) % 997) as f32 / 500.0 - 1.0;
        let data: Vec<f32> = (0..2 * count * k).map(value).collect();
        for (m, row, col, down) in [(1, 0, 1, 1), (2, k, 1, -1), (2, 1, 2, 1), (1, 0, -1, 0)] {
            let start = |i: usize, step: isize| i * 2 * k + if step < 0 { k - 1 } else { 0 };
            let product = |i: usize| {
                let left = Matrix { data: &data, offset: start(i, col), row: row as isize, col };
                let right =
                    Matrix { data: &data, offset: start(count - 1 - i, down), row: down, col: 1 };
                Product { left: Left::Plain(left), right: Right::Plain(right), at: i * m }
            };
            let sizes = GemmSizes { m, n: 1, k };
            let mut out = vec![f32::NAN; count * m];
            gemm(&Threads::new(2), sizes, count, product, &mut out, GemmEpilogue::Identity);
            for i in 0..count {
                let mut alone = vec![f32::NAN; m];
                let only = |_| Product { at: 0, ..product(i) };
                // Of one row, so that it is no group of elements.
                for (r, sum) in alone.iter_mut().enumerate() {
                    let Left::Plain(left) = only(0).left else { unreachable!() };
                    let left = Matrix { offset: left.at(r, 0), ..left };
                    let one = |_| Product { left: Left::Plain(left), ..only(0) };
                    let sizes = GemmSizes { m: 1, ..sizes };
                    gemm(
                        &Threads::new(1),
                        sizes,
                        1,
                        one,
                        std::slice::from_mut(sum),
                        GemmEpilogue::Identity,
                    );
                }
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&out[i * m..(i + 1) * m]), bits(&alone), "product {i}, {m} rows");
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
