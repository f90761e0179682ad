//! The GEMM micro-kernel: a tile of up to [`TileShape::rows`] × [`TileShape::cols`] sums in registers.
//!
//! One body for all vector levels. Operands are addressed through packed panels, pointers or an indirection table, never through a
//! matrix's strides. The epilogue is applied before the sums leave the registers.

use crate::arrays::array;
pub use crate::bodies::operands::{PanelRows, Piece, PointerPanel, StridedPanels};
pub use crate::bodies::window_rows::{Groups, WindowLine, WindowRows, has_row};
use crate::epilogue::TileEpilogue;
use crate::simd::{VectorLevel, level};
use half::{bf16, f16};
use std::ops::Range;

/// Size of the largest register tile of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// Rows.
    pub rows: usize,
    /// Columns: two vectors.
    pub cols: usize,
}

impl TileShape {
    /// Columns of one vector.
    pub fn lanes(self) -> usize {
        self.cols / 2
    }
}

/// The register tile of this machine.
pub fn shape() -> TileShape {
    match level() {
        VectorLevel::V4 => TileShape { rows: 14, cols: 32 },
        VectorLevel::V3 => TileShape { rows: 6, cols: 16 },
        VectorLevel::Neon => TileShape { rows: 12, cols: 8 },
        VectorLevel::Base => TileShape { rows: 4, cols: 8 },
    }
}

/// A tile of fewer rows that spans several right panels.
pub struct WideTile {
    /// Rows.
    pub rows: usize,
    /// Whole right panels.
    pub panels: usize,
}

/// The widest tile for any number of rows. Result rows that lie a page apart alias in the first-level cache, so fewer and longer ones are
/// better.
pub fn wide() -> WideTile {
    match level() {
        VectorLevel::V4 | VectorLevel::Neon => WideTile { rows: 6, panels: 2 },
        _ => WideTile { rows: shape().rows, panels: 1 },
    }
}

/// How many right panels a tile of so few rows spans: one row by one panel has too few independent sums to hide the latency of FMA.
pub fn strip_panels(rows: usize) -> usize {
    match (level(), rows) {
        (VectorLevel::V4 | VectorLevel::Neon, 1..=3) => 4,
        (VectorLevel::V4 | VectorLevel::Neon, 4) => 3,
        (VectorLevel::V4 | VectorLevel::Neon, 5 | 6) | (VectorLevel::V3, 3) => 2,
        (VectorLevel::V3, 1) => 4,
        (VectorLevel::V3, 2) => 3,
        _ => 1,
    }
}

/// How many right panels a tile of up to so many rows spans.
pub fn wide_panels(rows: usize) -> usize {
    let wide = wide();
    if rows <= wide.rows { wide.panels } else { 1 }
}

/// Cuts columns into tiles that span `panels` panels, or one.
pub fn strips(columns: Range<usize>, panels: usize) -> impl Iterator<Item = Range<usize>> {
    let (cols, Range { mut start, end }) = (shape().cols, columns);
    std::iter::from_fn(move || {
        let (first, left) = (start, end.saturating_sub(start));
        start += if left >= panels * cols { panels * cols } else { left.min(cols) };
        (left > 0).then_some(first..start)
    })
}

/// Vectors of a tile of so many columns; the last panel is packed half as wide where that suffices.
#[inline]
pub fn vectors(columns: usize) -> usize {
    if columns <= shape().lanes() { 1 } else { columns.div_ceil(shape().cols) * 2 }
}

/// Most vectors across a tile.
pub const MOST_VECTORS: usize = 8;

/// The right operand of a tile.
#[derive(Clone, Copy)]
pub enum RightOperand<'a> {
    /// Panels of two vectors each, or one panel of one vector.
    Packed(&'a [f32]),
    /// The same in f16.
    F16(&'a [f16]),
    /// The same in bf16.
    Bf16(&'a [bf16]),
    /// Row `k` of vector `v` begins at `data[from[v] + lines[first + k]]`.
    Indirect {
        /// The memory.
        data: &'a [f32],
        /// The offsets.
        lines: &'a IndirectionTable,
        /// The table's entry of the first row.
        first: usize,
        /// The base of each vector.
        from: [usize; 2],
    },
}

/// Offsets of an operand's rows (an indirection buffer).
pub struct IndirectionTable {
    pub(crate) lines: Vec<usize>,
    largest: usize,
}

impl IndirectionTable {
    /// A table of these offsets.
    pub fn new(lines: Vec<usize>) -> IndirectionTable {
        let largest = lines.iter().max().copied().unwrap_or(0);
        IndirectionTable { lines, largest }
    }
}

/// Where a vector of the tile's first row is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorSpan {
    /// Index in the result of its first element that is stored.
    pub at: usize,
    /// Column of that element.
    pub column: usize,
    /// Lanes before it, which are not stored.
    pub skip: usize,
    /// Lanes that are stored.
    pub len: usize,
}

/// Consecutive spans of a tile of `wide` columns from element `at` and column `column` on.
#[inline]
pub fn parts(at: usize, column: usize, wide: usize) -> [VectorSpan; MOST_VECTORS] {
    let lanes = shape().lanes();
    array(|v| VectorSpan {
        at: at + v * lanes,
        column: column + v * lanes,
        skip: 0,
        len: wide.saturating_sub(v * lanes).min(lanes),
    })
}

/// The spans of a tile of one panel.
pub fn panel_parts(at: usize, column: usize, wide: usize) -> [VectorSpan; 2] {
    let [first, second, ..] = parts(at, column, wide);
    [first, second]
}

/// Calls `f(first row, panels, rows of each)` for the panels of equal height that `m` rows are packed into.
#[inline]
pub fn each_height(m: usize, rows: usize, mut f: impl FnMut(usize, usize, usize)) {
    let (count, rest) = (m / rows, m % rows);
    if count > 0 {
        f(0, count, rows);
    }
    if rest > 0 {
        f(count * rows, 1, rest);
    }
}

/// Consecutive left panels of equally many rows.
#[derive(Clone, Copy)]
pub struct LeftPanels<'a> {
    /// How many.
    pub count: usize,
    /// Rows of each.
    pub rows: usize,
    /// Depth of each.
    pub depth: usize,
    /// Their elements, step by step.
    pub data: &'a [f32],
    /// What to prefetch into the second-level cache.
    pub ahead: &'a [f32],
}

/// The part of the result that a column of tiles writes, and its epilogue.
#[derive(Clone, Copy)]
pub struct TileOutput<'a> {
    /// The whole result.
    pub out: *mut f32,
    /// Its elements.
    pub len: usize,
    /// Of the first row, one per vector of a tile.
    pub parts: &'a [VectorSpan],
    /// Elements from one row to the next.
    pub stride: usize,
    /// The first row, as the epilogue counts rows.
    pub row: usize,
    /// Add to what is there instead of replacing it.
    pub add: bool,
    /// Applied to the sums before they are stored.
    pub epilogue: &'a TileEpilogue<'a>,
}

impl TileOutput<'_> {
    /// Panics unless so many rows lie inside the result and are covered by the operands of the epilogue.
    pub fn covers(&self, rows: usize) {
        for p in self.parts {
            assert!(p.skip + p.len <= shape().lanes(), "a part of a vector");
            let end = p.at + (rows - 1) * self.stride + p.len;
            assert!(end <= self.len, "tiles inside the result");
            self.epilogue.covers(self.row + rows, p.column + p.len, end);
        }
    }
}

/// Calls the function of that name at the machine's level.
macro_rules! at_level {
    ($name:ident($($arg:expr),*)) => {
        match level() {
            #[cfg(target_arch = "x86_64")]
            VectorLevel::V4 => {
                // SAFETY: AVX-512 was detected; the assertions bound the panel and the target, the caller the rest.
                unsafe { crate::levels::avx512::$name($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            VectorLevel::V3 => {
                // SAFETY: AVX2 and FMA were detected; otherwise as above.
                unsafe { crate::levels::avx2::$name($($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: every machine has NEON; otherwise as above.
            VectorLevel::Neon => unsafe { crate::levels::neon::$name($($arg),*) },
            // SAFETY: as above.
            _ => unsafe { crate::levels::portable::$name($($arg),*) },
        }
    };
}

pub(crate) use at_level;

/// One tile for every panel: the rows of `target`, from the first on, are `panels · right`.
///
/// # Safety
/// The parts of these rows are valid for reads and writes and not aliased.
pub unsafe fn tiles(panels: LeftPanels<'_>, right: RightOperand<'_>, target: &TileOutput<'_>) {
    let shape = shape();
    let LeftPanels { count, rows, depth, data, .. } = panels;
    let vectors = target.parts.len();
    assert!(count >= 1 && rows >= 1 && rows <= shape.rows, "tiles fit the registers");
    assert!(data.len() >= count * rows * depth, "panels hold the depth");
    let is_wide = vectors == 2 * wide_panels(rows);
    let is_strip = vectors == 2 * strip_panels(rows);
    assert!(vectors == 1 || vectors == 2 || is_wide || is_strip, "whole panels");
    let holds =
        |len: usize| assert!(len >= vectors * shape.lanes() * depth, "panels hold the depth");
    match right {
        RightOperand::Packed(b) => holds(b.len()),
        RightOperand::F16(b) => holds(b.len()),
        RightOperand::Bf16(b) => holds(b.len()),
        RightOperand::Indirect { data, lines, first, from } => {
            let end = from[0].max(from[1]) + lines.largest + shape.lanes();
            let inside = first + depth <= lines.lines.len() && end <= data.len();
            assert!(vectors <= 2 && inside, "lines inside the operand");
        }
    }
    target.covers(count * rows);
    at_level!(tiles(panels, right, target))
}

/// Panics unless packed panels have all vectors of a tile of so many rows and `lines` lines.
fn check_panels(b: PanelRows<'_>, rows: usize, lines: usize, target: &TileOutput<'_>) {
    let vectors = target.parts.len();
    assert!(vectors == 1 || vectors == 2 || vectors == 2 * wide_panels(rows), "whole panels");
    assert!(b.panels.len() >= vectors * shape().lanes() * b.depth, "panels hold their lines");
    assert!(b.first + lines <= b.depth, "the panel holds the depth");
}

/// One tile of as many rows as `a` has pointers for each piece: the rows of `target`, from the first on, are the products of its pieces,
/// one after the other, with lines of the packed panels `b`. `ahead` is read next.
///
/// # Safety
/// Every pointer is valid for reads of `a.length` elements; the parts of the rows are valid for reads and writes and not aliased.
pub unsafe fn pointer_tile(
    rows: usize,
    a: PointerPanel<'_>,
    b: PanelRows<'_>,
    ahead: &[f32],
    target: &TileOutput<'_>,
) {
    assert!(rows >= 1 && rows <= shape().rows, "tiles fit the registers");
    assert!(a.rows.len().is_multiple_of(rows), "a pointer for each row and piece");
    check_panels(b, rows, a.rows.len() / rows * a.length, target);
    target.covers(rows);
    at_level!(pointer_tile(rows, a, b, ahead, target))
}

/// `count` tiles of rows at equal distances; otherwise as [`pointer_tile`].
///
/// # Safety
/// The pieces of all rows are valid for reads; otherwise as [`pointer_tile`].
pub unsafe fn strided_tiles(
    count: usize,
    rows: usize,
    a: StridedPanels<'_>,
    b: PanelRows<'_>,
    ahead: &[f32],
    target: &TileOutput<'_>,
) {
    assert!(count >= 1 && rows >= 1 && rows <= shape().rows, "tiles fit the registers");
    check_panels(b, rows, a.pieces.len() * a.length, target);
    target.covers(count * rows);
    at_level!(strided_tiles(count, rows, a, b, ahead, target))
}

/// Rows of windows that lie beside each other, over one vector of channels: an element of a row of `target` is the sum over the taps of a
/// window and the channels of its group of elements times weights.
///
/// # Safety
/// All columns inside the image have the channels of the target's groups; the parts of the rows are valid for reads and writes and not aliased.
pub unsafe fn window_rows(a: &WindowRows<'_>, target: &TileOutput<'_>) {
    assert!(a.count >= 1 && has_row(a.taps, a.stride, a.group), "rows of windows");
    assert!(a.high >= 1 && a.lines.len().is_multiple_of(a.high), "all lines of each window");
    let lines = a.high * a.taps * a.group;
    let last = lines.saturating_sub(1) * a.apart + shape().lanes();
    assert!(target.parts.len() == 1 && target.parts[0].skip == 0, "a vector of channels");
    let fits = match a.groups {
        Groups::Whole => Groups::are_whole(a.group, shape().lanes()),
        Groups::One => a.group > 1,
    };
    assert!(fits, "groups of a vector");
    assert!(a.weights.len() >= last, "weights of all taps");
    target.covers(a.count * (a.lines.len() / a.high));
    at_level!(window_rows(a, target))
}
