//! GEMM with an indirection table: right operand rows are read in place at table offsets, without packing.
//!
//! Computes convolutions over a padded frame, and pointwise ones as they are, without im2col. The summation order is that of the packed
//! product.

use super::pack::PackedLeft;
use super::pack::block_depth;
use super::{BLOCK_ROWS, GemmEpilogue, GemmSizes, cut, share};
use crate::runtime::threads::{SharedSlice, Threads};
use mlc_vector::tile::{
    self, IndirectionTable, LeftPanels, RightOperand, TileOutput, VectorSpan, shape,
};
use std::ops::Range;

/// The result's columns as rows of `wide` elements, and the addresses of these in the operand.
#[derive(Clone, Copy, Debug)]
pub struct PlaneLayout {
    /// Elements of a row of columns.
    pub wide: usize,
    /// From one row to the next of a plane in the operand.
    pub pitch: usize,
    /// Rows of a plane.
    pub high: usize,
    /// From one plane to the next in the operand.
    pub deep: usize,
}

/// Addresses of a right operand that is read in place.
pub struct IndirectOperand {
    /// Offsets of its rows.
    pub lines: IndirectionTable,
    /// Offsets of its columns.
    pub rows: PlaneLayout,
}

/// One product.
pub struct DirectProduct<'a> {
    /// `m` × `k`.
    pub left: &'a PackedLeft,
    /// The memory of the right operand. Vectors may read to its end.
    pub data: &'a [f32],
    /// Where the result begins.
    pub at: usize,
}

/// Pairs of vectors computed at a time, so that a block's rows stay in the second-level cache.
const BLOCK_PAIRS: usize = 32;

/// How many vectors the columns take, of which the last of each row may be partial.
fn vectors(rows: PlaneLayout, n: usize) -> usize {
    n / rows.wide.max(1) * rows.wide.div_ceil(shape().lanes())
}

/// Whether reading rows in place is cheaper than packing them: partial vectors cost what packing saves.
pub fn pays(rows: PlaneLayout, GemmSizes { m, n, .. }: GemmSizes) -> bool {
    let lanes = shape().lanes();
    // Packing an element takes about as long as six rows of products.
    let (direct, packed) = (vectors(rows, n) * lanes * m, n.next_multiple_of(lanes) * (m + 6));
    direct <= packed
}

/// Computes `products(i)` for `i` in `0..count`, over threads; `operand` holds for all right operands.
pub fn direct<'a>(
    threads: &Threads,
    sizes: GemmSizes,
    count: usize,
    products: impl Fn(usize) -> DirectProduct<'a> + Sync,
    operand: &IndirectOperand,
    out: &mut [f32],
    finish: GemmEpilogue<'_>,
) {
    let GemmSizes { m, n, k } = sizes;
    let IndirectOperand { lines, rows } = operand;
    let rows = *rows;
    if m == 0 || n == 0 || k == 0 || count == 0 {
        return;
    }
    let high = products(0).left.rows;
    let pairs = vectors(rows, n).div_ceil(2);
    // A task below about a million operations is not worth handing over.
    let work = (m * n).saturating_mul(k).saturating_mul(count) * 2;
    let wanted = if threads.count() == 1 { 1 } else { (work >> 20).clamp(1, threads.count() * 4) };
    let wanted = wanted.div_ceil(count);
    let across = wanted.min(pairs.div_ceil(4));
    let down = wanted.div_ceil(across).min(m.div_ceil(high));
    let shared = SharedSlice::new(out);
    threads.each(count * down * across, |task| {
        let (i, part) = (task / (down * across), task % (down * across));
        let product = products(i);
        let all = cut(m, high, down, part / across);
        let own = cut(pairs, 1, across, part % across);
        for first in own.clone().step_by(BLOCK_PAIRS) {
            let pairs = first..(first + BLOCK_PAIRS).min(own.end);
            let block = Block { sizes, rows, lines, rows_of_left: all.clone(), pairs };
            block.run(&product, &shared, &finish);
        }
    });
}

/// A part of one product.
struct Block<'a> {
    sizes: GemmSizes,
    rows: PlaneLayout,
    lines: &'a IndirectionTable,
    rows_of_left: Range<usize>,
    /// Pairs of vectors.
    pairs: Range<usize>,
}

impl Block<'_> {
    fn run(
        &self,
        product: &DirectProduct<'_>,
        out: &SharedSlice<'_, f32>,
        finish: &GemmEpilogue<'_>,
    ) {
        let GemmSizes { n, k, .. } = self.sizes;
        let high = product.left.rows;
        let most = (BLOCK_ROWS / high).max(1) * high;
        for first in self.rows_of_left.clone().step_by(most) {
            let rows = first..(first + most).min(self.rows_of_left.end);
            for d in (0..k).step_by(block_depth(k)) {
                let depth = d..(d + block_depth(k)).min(k);
                let a = product.left.block(rows.start, depth.clone());
                let next = match depth.end < k {
                    true => product.left.upcoming(rows.start, rows.len(), depth.end),
                    false => product.left.upcoming(rows.end, most, 0),
                };
                let epilogue = finish.of_tiles(depth.end == k);
                let epilogue = epilogue.from_row(product.at / n + rows.start);
                for pair in self.pairs.clone() {
                    let ahead = share(next, pair - self.pairs.start, self.pairs.len());
                    let (parts, from, count) = self.parts(pair, product.at + rows.start * n);
                    let right = RightOperand::Indirect {
                        data: product.data,
                        lines: self.lines,
                        first: d,
                        from,
                    };
                    tile::each_height(rows.len(), high, |r, panels, high| {
                        let parts = parts.map(|p| VectorSpan { at: p.at + r * n, ..p });
                        let target = TileOutput {
                            out: out.at(0),
                            len: out.len(),
                            parts: &parts[..count],
                            stride: n,
                            row: r,
                            add: d > 0,
                            epilogue: &epilogue,
                        };
                        let data = &a[r * depth.len()..];
                        let panels = LeftPanels {
                            count: panels,
                            rows: high,
                            depth: depth.len(),
                            data,
                            ahead,
                        };
                        // SAFETY: parts of different tasks do not overlap.
                        unsafe { tile::tiles(panels, right, &target) };
                    });
                }
            }
            if let GemmEpilogue::Block(f) = finish {
                self.finish(product, &rows, out, f);
            }
        }
    }

    /// The vectors of a pair: their spans in the result's row that begins at `row`, their offsets in the operand, and their number.
    fn parts(&self, pair: usize, row: usize) -> ([VectorSpan; 2], [usize; 2], usize) {
        let lanes = shape().lanes();
        let PlaneLayout { wide, pitch, high, deep } = self.rows;
        let place = |y: usize| y / high * deep + y % high * pitch;
        let per_row = wide.div_ceil(lanes);
        let count = (vectors(self.rows, self.sizes.n) - 2 * pair).min(2);
        let mut from = [0; 2];
        let mut parts = [VectorSpan::default(); 2];
        for v in 0..count {
            let (y, x) = ((2 * pair + v) / per_row, (2 * pair + v) % per_row * lanes);
            // The last vector of a row begins earlier rather than reading beyond it.
            let skip = (x + lanes).saturating_sub(wide).min(x);
            let column = y * wide + x;
            let len = (wide - x).min(lanes);
            from[v] = place(y) + x - skip;
            parts[v] = VectorSpan { at: row + column, column, skip, len };
        }
        if count == 1 {
            from[1] = from[0];
        }
        (parts, from, count)
    }

    /// Applies the epilogue to the columns of this block.
    fn finish(
        &self,
        product: &DirectProduct<'_>,
        rows: &Range<usize>,
        out: &SharedSlice<'_, f32>,
        f: &super::BlockEpilogue<'_>,
    ) {
        let first = self.parts(self.pairs.start, 0).0[0].column;
        let (last, _, count) = self.parts(self.pairs.end - 1, 0);
        let end = last[count - 1].column + last[count - 1].len;
        let n = self.sizes.n;
        if (first, end) == (0, n) {
            let (at, len) = (product.at + rows.start * n, rows.len() * n);
            // SAFETY: whole rows of this block; blocks of different tasks do not overlap.
            return f(at, unsafe { out.part(at, len) });
        }
        for r in rows.clone() {
            let at = product.at + r * n + first;
            // SAFETY: part of a row of this block; blocks of different tasks do not overlap.
            f(at, unsafe { out.part(at, end - first) });
        }
    }
}
