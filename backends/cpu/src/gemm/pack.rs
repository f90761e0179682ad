//! Packs matrices into the panels that the register tile streams through.
//!
//! Left panels are `rows` wide, right panels [`TileShape::cols`] wide (the last one half as wide if that suffices), both
//! contiguous along the depth. Lanes beyond the matrix are zero.

use super::f16_panels::{self, RightPanels};
use crate::pointwise::convert::narrow;
use crate::runtime::buffer::{Buffer, Floats, with_scratch};
use crate::runtime::threads::{SharedSlice, Threads};
use half::slice::HalfBitsSliceExt;
use mlc_dsl::ir::DType;
use mlc_vector::arrays::array;
use mlc_vector::tile::{MOST_VECTORS, TileShape, WideTile, shape, wide};
use mlc_vector::transpose::{LINES, transpose_lines};
use std::ops::Range;

/// Largest depth of a block: a right panel of it stays in the first-level cache.
const DEPTH: usize = 512;

/// Depth of each block of `k`: as equal as possible.
pub fn block_depth(k: usize) -> usize {
    k.div_ceil(k.div_ceil(DEPTH).max(1)).max(1)
}

/// A strided matrix.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T = f32> {
    pub data: &'a [T],
    /// Element (0, 0).
    pub offset: usize,
    /// Row stride.
    pub row: isize,
    /// Column stride.
    pub col: isize,
}

impl<T> Matrix<'_, T> {
    /// The index of an element.
    #[inline(always)]
    pub fn at(&self, r: usize, c: usize) -> usize {
        (self.offset as isize + r as isize * self.row + c as isize * self.col) as usize
    }
}

/// Rows that a tile of two vectors takes as long as, if it has fewer: sums wait for the ones before them.
const LEAST: usize = 4;

/// Rows of each left panel for `m` rows: as equal as possible, so that no panel is thin.
pub fn panel_rows(m: usize) -> usize {
    equal_panels(m, shape().rows)
}

/// The same for tiles that take several right panels of `n` columns at once.
pub fn wide_rows(m: usize, n: usize) -> usize {
    let WideTile { rows, panels } = wide();
    match m > shape().rows && n >= panels * shape().cols {
        true => equal_panels(m, rows),
        false => panel_rows(m),
    }
}

/// Rows of each of the panels that `m` rows are cut into, `most` at most.
fn equal_panels(m: usize, most: usize) -> usize {
    if m == 0 {
        return most;
    }
    let equal = m.div_ceil(m.div_ceil(most));
    let time = |rows: usize| {
        let rest = m % rows;
        m / rows * rows.max(LEAST) + if rest == 0 { 0 } else { rest.max(LEAST) }
    };
    // One row less may leave more for the last panel.
    let less = equal - 1;
    if less > LEAST && time(less) < time(equal) { less } else { equal }
}

/// Right panels of `n` columns: where each begins and how wide it is packed.
pub fn panels(cols: Range<usize>) -> impl Iterator<Item = (Range<usize>, usize)> {
    let full = shape().cols;
    let end = cols.end;
    cols.step_by(full).map(move |c| {
        let left = (end - c).min(full);
        (c..c + left, if left * 2 <= full { full / 2 } else { full })
    })
}

/// Elements of packed right panels of `n` columns and `depth`.
pub fn right_len(n: usize, depth: usize) -> usize {
    n.div_ceil(shape().cols) * shape().cols * depth
}

/// Elements of the widest strip of right panels.
pub fn widest_strip(depth: usize) -> usize {
    MOST_VECTORS * shape().lanes() * depth
}

/// Packs rows × depth of `a` into panels of `rows` rows; `dst` holds whole panels.
pub fn pack_left(
    a: &Matrix<'_>,
    at: Range<usize>,
    depth: Range<usize>,
    rows: usize,
    dst: &mut [f32],
) {
    let k = depth.len();
    for (p, first) in at.clone().step_by(rows).enumerate() {
        let n = rows.min(at.end - first);
        let panel = &mut dst[p * rows * k..][..n * k];
        if a.col == 1 {
            transpose_into(a.data, |r| a.at(first + r, depth.start), n, k, n, panel);
        } else {
            for (kk, out) in panel.chunks_exact_mut(n).enumerate() {
                for (r, o) in out.iter_mut().enumerate() {
                    *o = a.data[a.at(first + r, depth.start + kk)];
                }
            }
        }
    }
}

/// Rows of a matrix of `d` columns, one after the other.
pub fn copy_lines(a: &Matrix<'_>, rows: Range<usize>, d: usize, to: &mut [f32]) {
    for (r, line) in rows.zip(to.chunks_exact_mut(d)) {
        match a.col {
            1 => line.copy_from_slice(&a.data[a.at(r, 0)..][..d]),
            _ => line.iter_mut().enumerate().for_each(|(c, l)| *l = a.data[a.at(r, c)]),
        }
    }
}

/// Packs depth × cols of `b` into panels.
pub fn pack_right(b: &Matrix<'_>, depth: Range<usize>, cols: Range<usize>, dst: &mut [f32]) {
    let k = depth.len();
    let full = shape().cols;
    for (p, (cols, width)) in panels(cols).enumerate() {
        let panel = &mut dst[p * full * k..][..width * k];
        let n = cols.len();
        if n < width {
            panel.fill(0.0);
        }
        if b.col == 1 {
            for (kk, out) in panel.chunks_exact_mut(width).enumerate() {
                let src = &b.data[b.at(depth.start + kk, cols.start)..][..n];
                // Whole panels are copied with a known length.
                match (<&mut [f32; 32]>::try_from(&mut *out), <&[f32; 32]>::try_from(src)) {
                    (Ok(out), Ok(src)) => *out = *src,
                    _ => out[..n].copy_from_slice(src),
                }
            }
        } else if b.row == 1 {
            transpose_into(b.data, |c| b.at(depth.start, cols.start + c), n, k, width, panel);
        } else {
            for (kk, out) in panel.chunks_exact_mut(width).enumerate() {
                for (c, o) in out[..n].iter_mut().enumerate() {
                    *o = b.data[b.at(depth.start + kk, cols.start + c)];
                }
            }
        }
    }
}

/// `dst[k * width + i] = line(i)[k]` for lines that are contiguous along the depth.
pub fn transpose_into(
    data: &[f32],
    line: impl Fn(usize) -> usize,
    lines: usize,
    depth: usize,
    width: usize,
    dst: &mut [f32],
) {
    if lines < LINES {
        let mut done = 0;
        if width == lines && width >= LINES / 2 && depth > LINES {
            // The last line stands for those that are missing: what it yields is overwritten.
            done = (depth - 1) / LINES * LINES;
            let src = array(|j| &data[line(j.min(lines - 1))..][..depth]);
            transpose_lines(src, done, dst, width);
        }
        for i in 0..lines {
            let src = &data[line(i)..][..depth];
            (done..depth).for_each(|k| dst[k * width + i] = src[k]);
        }
        return;
    }
    for first in (0..lines).step_by(LINES) {
        // The last block begins among the lines of the one before, and writes what is there again.
        let first = first.min(lines - LINES);
        let src: [&[f32]; LINES] = array(|j| &data[line(first + j)..][..depth]);
        transpose_lines(src, depth, &mut dst[first..], width);
    }
}

/// A left matrix packed once.
pub struct PackedLeft {
    data: Floats,
    /// Rows of the matrix.
    pub m: usize,
    /// Rows of each panel.
    pub rows: usize,
}

impl PackedLeft {
    /// Packs an `m` × `k` matrix.
    pub fn new(a: &Matrix<'_>, m: usize, k: usize) -> PackedLeft {
        let rows = panel_rows(m);
        let high = m.div_ceil(rows) * rows;
        let mut data = Floats::zeros(high * k);
        for d in (0..k).step_by(block_depth(k)) {
            let depth = d..(d + block_depth(k)).min(k);
            let block = &mut data[d * high..][..high * depth.len()];
            pack_left(a, 0..m, depth, rows, block);
        }
        PackedLeft { data, m, rows }
    }

    /// The panels of up to `rows` rows from `first` on, of the block of depths from `depth` on; nothing beyond the matrix.
    pub fn upcoming(&self, first: usize, rows: usize, depth: usize) -> &[f32] {
        let high = self.m.div_ceil(self.rows) * self.rows;
        let k = self.data.len() / high.max(1);
        if first >= self.m || depth >= k {
            return &[];
        }
        let depth = depth..(depth + block_depth(k)).min(k);
        let all = self.block(first, depth.clone());
        &all[..all.len().min(rows * depth.len())]
    }

    /// The panels from row `first` (a multiple of the panel's rows) on, of the block of depths from `depth.start`.
    pub fn block(&self, first: usize, depth: Range<usize>) -> &[f32] {
        let high = self.m.div_ceil(self.rows) * self.rows;
        &self.data[depth.start * high..][first * depth.len()..high * depth.len()]
    }
}

/// Elements that a thread should at least pack.
const GRAIN: usize = 1 << 14;

/// The storage of packed right panels.
enum Stored {
    Floats(Floats),
    /// 16-bit floats of this type, widened on load.
    Widened(DType, Buffer),
}

/// A right matrix packed once.
pub struct PackedRight {
    stored: Stored,
    /// Columns of the matrix.
    pub n: usize,
}

impl PackedRight {
    /// Packs a `k` × `n` matrix.
    pub fn new(b: &Matrix<'_>, k: usize, n: usize) -> PackedRight {
        let mut data = Floats::zeros(right_len(n, k));
        let (shared, deep) = (SharedSlice::new(&mut data), block_depth(k));
        Threads::of_run().each(k.div_ceil(deep), |i| {
            let depth = i * deep..((i + 1) * deep).min(k);
            // SAFETY: every block has its own part.
            let block =
                unsafe { shared.part(right_len(n, depth.start), right_len(n, depth.len())) };
            pack_right(b, depth, 0..n, block);
        });
        PackedRight { stored: Stored::Floats(data), n }
    }

    /// Packs a constant `k` × `n` matrix, in 16-bit floats where that is lossless and pays.
    pub fn of_constant(b: &Matrix<'_>, k: usize, n: usize) -> PackedRight {
        match f16_panels::worthwhile_type(b, k, n) {
            Some(dtype) => PackedRight::new_f16(b, k, n, dtype),
            None => PackedRight::new(b, k, n),
        }
    }

    /// Packs a `k` × `n` matrix in a 16-bit type that holds its elements exactly.
    pub(super) fn new_f16(b: &Matrix<'_>, k: usize, n: usize, dtype: DType) -> PackedRight {
        let mut data = Buffer::new(right_len(n, k) * size_of::<u16>());
        let (shared, deep) = (SharedSlice::new(data.bytes_mut()), block_depth(k));
        Threads::of_run().each(k.div_ceil(deep), |i| {
            let depth = i * deep..((i + 1) * deep).min(k);
            let mut at = right_len(n, depth.start);
            with_scratch::<f32, 1, _>([right_len(1, depth.len())], |[panel]| {
                for (cols, width) in panels(0..n) {
                    pack_right(b, depth.clone(), cols, panel);
                    let len = width * depth.len();
                    // SAFETY: every block has its own part, and every panel of it.
                    let to = unsafe { shared.part(at * size_of::<u16>(), len * size_of::<u16>()) };
                    narrow(dtype, &panel[..len], to);
                    at += len;
                }
            });
        });
        PackedRight { stored: Stored::Widened(dtype, data), n }
    }

    /// Elements of the widest strip of panels that must be widened.
    pub fn strip_len(&self, depth: usize) -> usize {
        match self.stored {
            Stored::Floats(_) => 0,
            Stored::Widened(..) => widest_strip(depth),
        }
    }

    /// The panels from column `first` (a multiple of [`TileShape::cols`]) on, of the block of depths from `depth.start`.
    pub fn block(&self, first: usize, depth: Range<usize>) -> RightPanels<'_> {
        let part = block_of_panels(self.n, first, depth);
        match &self.stored {
            Stored::Floats(data) => RightPanels::Floats(&data[part]),
            Stored::Widened(dtype, data) => {
                let bits = &bytemuck::cast_slice::<_, u16>(data.bytes())[part];
                match dtype {
                    DType::F16 => RightPanels::F16(bits.reinterpret_cast()),
                    _ => RightPanels::Bf16(bits.reinterpret_cast()),
                }
            }
        }
    }
}

/// Where the panels from column `first` on lie, of the block of depths from `depth.start`, among those of `n` columns.
fn block_of_panels(n: usize, first: usize, depth: Range<usize>) -> Range<usize> {
    let TileShape { cols, .. } = shape();
    let block = right_len(n, depth.start);
    block + first / cols * cols * depth.len()..block + right_len(n, depth.len())
}

/// The extents of a convolution's filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterShape {
    /// Output channels: filters.
    pub o: usize,
    /// Input channels of a filter.
    pub q: usize,
    /// Taps of its window.
    pub taps: usize,
}

/// Filters packed once, as a matrix with a column per filter. Its depth is tap-major, not cut into blocks.
pub struct PackedFilters {
    data: Floats,
    n: usize,
    /// Whether all elements are finite, so that their products with zero are zero.
    pub is_finite: bool,
}

impl PackedFilters {
    /// Packs contiguous filters.
    pub fn new(w: &[f32], FilterShape { o, q, taps }: FilterShape) -> PackedFilters {
        let depth = q * taps;
        let mut lines = Floats::zeros(depth * o);
        let each = o.max(1);
        Threads::of_run().chunks(&mut lines, each, GRAIN, |at, part| {
            for (k, line) in (at / each..).zip(part.chunks_exact_mut(each)) {
                let (tap, c) = (k / q, k % q);
                line.iter_mut().enumerate().for_each(|(f, v)| *v = w[(f * q + c) * taps + tap]);
            }
        });
        let mut data = Floats::zeros(right_len(o, depth));
        let b = Matrix { data: &lines, offset: 0, row: o as isize, col: 1 };
        pack_right(&b, 0..depth, 0..o, &mut data);
        let is_finite = w[..o * depth].iter().all(|w| w.is_finite());
        PackedFilters { data, n: o, is_finite }
    }

    /// The panels from column `first` (a multiple of [`TileShape::cols`]) on, of the block of depths from `depth.start`.
    pub fn block(&self, first: usize, depth: Range<usize>) -> &[f32] {
        &self.data[block_of_panels(self.n, first, depth)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_panels_hold_their_rows() {
        for (m, rows, k) in
            itertools::iproduct!([1usize, 5, 13, 30], [1, 3, 4, 6, 7, 8, 14], [1, 8, 9, 31])
        {
            let data: Vec<f32> = (0..m * k).map(|i| i as f32).collect();
            for (row, col) in [(k, 1), (1, m)] {
                let a = Matrix { data: &data, offset: 0, row: row as isize, col: col as isize };
                let mut dst = vec![f32::NAN; m.next_multiple_of(rows) * k];
                pack_left(&a, 0..m, 0..k, rows, &mut dst);
                for (r, c) in itertools::iproduct!(0..m, 0..k) {
                    let high = rows.min(m - r / rows * rows);
                    let at = r / rows * rows * k + c * high + r % rows;
                    assert_eq!(dst[at], data[r * row + c * col], "{m} {rows} {k}: {r}, {c}");
                }
            }
        }
    }
}
