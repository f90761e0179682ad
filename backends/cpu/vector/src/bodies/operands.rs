//! Addressing of the register tile's operands: packed panels, strided pieces, pointers, or an indirection table.

use crate::arrays::array;

/// Packed right panels, and the rows of them that a tile multiplies with.
#[derive(Clone, Copy)]
pub struct PanelRows<'a> {
    /// The panels, one after the other.
    pub panels: &'a [f32],
    /// Rows of each panel.
    pub depth: usize,
    /// The first row.
    pub first: usize,
}

impl<'a> PanelRows<'a> {
    /// All rows.
    pub fn all(panels: &'a [f32], depth: usize) -> PanelRows<'a> {
        PanelRows { panels, depth, first: 0 }
    }
}

/// Addresses of the vectors of a row of the right operand: its columns at one depth.
pub trait RightRows<const V: usize>: Copy {
    /// Element type.
    type Element: Copy;

    /// The vectors of row `k`.
    ///
    /// # Safety
    /// `k` is below the depth.
    unsafe fn at(&self, k: usize) -> [*const Self::Element; V];

    /// What to prefetch for the next tile while vector `v` of row `k` is used.
    fn next(&self, line: [*const Self::Element; V], v: usize) -> Option<*const f32>;
}

/// Rows of packed panels of two vectors each, or of one panel of one vector.
#[derive(Clone, Copy)]
pub struct PackedRightRows<T, const W: usize> {
    pub first: *const T,
    pub depth: usize,
}

impl<const W: usize> PackedRightRows<f32, W> {
    /// Rows of panels for tiles of so many vectors.
    #[inline(always)]
    pub fn new(
        PanelRows { panels, depth, first }: PanelRows<'_>,
        vectors: usize,
    ) -> PackedRightRows<f32, W> {
        let wide = if vectors == 1 { 1 } else { 2 };
        PackedRightRows { first: panels.as_ptr().wrapping_add(first * wide * W), depth }
    }
}

impl<T: Copy, const V: usize, const W: usize> RightRows<V> for PackedRightRows<T, W> {
    type Element = T;

    #[inline(always)]
    fn next(&self, _: [*const T; V], _: usize) -> Option<*const f32> {
        None
    }

    #[inline(always)]
    unsafe fn at(&self, k: usize) -> [*const T; V] {
        let wide = if V == 1 { 1 } else { 2 };
        // SAFETY: the panels hold the depth.
        array(|v| unsafe {
            self.first.add(v / wide * self.depth * wide * W + (k * wide + v % wide) * W)
        })
    }
}

/// Rows at the offsets of an indirection table.
#[derive(Clone, Copy)]
pub struct IndirectRows {
    pub from: [*const f32; 2],
    pub lines: *const usize,
    /// Distance from a vector to that of the next tile.
    pub next: usize,
}

impl<const V: usize> RightRows<V> for IndirectRows {
    type Element = f32;

    #[inline(always)]
    fn next(&self, line: [*const f32; V], v: usize) -> Option<*const f32> {
        Some(line[v].wrapping_add(self.next))
    }

    #[inline(always)]
    unsafe fn at(&self, k: usize) -> [*const f32; V] {
        // SAFETY: there is a line for every depth, inside the operand.
        unsafe {
            let line = *self.lines.add(k);
            array(|v| self.from[v].add(line))
        }
    }
}

/// Addresses of the rows of the left operand: pieces of equal length.
pub trait LeftRows<const R: usize>: Copy {
    /// Addresses of one depth step of all rows.
    type Cursor: Copy;
    /// Whether there may be several pieces.
    const MANY: bool;
    /// Steps between prefetches: four, or one where further pointers would spill.
    const STEPS: usize;

    /// Pieces, and steps of each.
    fn pieces(&self) -> (usize, usize);

    /// The first step of the rows of a panel in a piece.
    ///
    /// # Safety
    /// There are such a panel and piece.
    unsafe fn at(&self, panel: usize, piece: usize) -> Self::Cursor;

    /// The address of row `r`, some steps ahead in the same piece.
    fn row(cursor: &Self::Cursor, r: usize, ahead: usize) -> *const f32;

    /// Advances by some steps of the same piece.
    fn advance(cursor: &mut Self::Cursor, steps: usize);
}

/// Rows of packed left panels.
#[derive(Clone, Copy)]
pub struct PackedLeftRows {
    pub first: *const f32,
    pub depth: usize,
}

impl<const R: usize> LeftRows<R> for PackedLeftRows {
    type Cursor = *const f32;
    const MANY: bool = false;
    const STEPS: usize = 4;

    #[inline(always)]
    fn pieces(&self) -> (usize, usize) {
        (1, self.depth)
    }

    #[inline(always)]
    unsafe fn at(&self, panel: usize, _: usize) -> *const f32 {
        // SAFETY: the panels hold the depth.
        unsafe { self.first.add(panel * self.depth * R) }
    }

    #[inline(always)]
    fn row(cursor: &*const f32, r: usize, ahead: usize) -> *const f32 {
        cursor.wrapping_add(ahead * R + r)
    }

    #[inline(always)]
    fn advance(cursor: &mut *const f32, steps: usize) {
        *cursor = cursor.wrapping_add(steps * R);
    }
}

/// Rows of one panel by pointers to their pieces.
#[derive(Clone, Copy)]
pub struct PointerPanel<'a> {
    /// A pointer per row, piece by piece.
    pub rows: &'a [*const f32],
    /// Elements of each piece.
    pub length: usize,
}

/// Pointers to the rows of a piece, and the steps taken in it.
#[derive(Clone, Copy)]
pub struct PointerCursor<const R: usize> {
    rows: [*const f32; R],
    step: usize,
}

impl<const R: usize> LeftRows<R> for PointerPanel<'_> {
    type Cursor = PointerCursor<R>;
    const MANY: bool = true;
    const STEPS: usize = 1;

    #[inline(always)]
    fn pieces(&self) -> (usize, usize) {
        (self.rows.len() / R, self.length)
    }

    #[inline(always)]
    unsafe fn at(&self, _: usize, piece: usize) -> Self::Cursor {
        // SAFETY: there are pointers for all pieces.
        let rows = array(|r| unsafe { *self.rows.get_unchecked(piece * R + r) });
        PointerCursor { rows, step: 0 }
    }

    #[inline(always)]
    fn row(cursor: &PointerCursor<R>, r: usize, ahead: usize) -> *const f32 {
        cursor.rows[r].wrapping_add(cursor.step + ahead)
    }

    #[inline(always)]
    fn advance(cursor: &mut PointerCursor<R>, steps: usize) {
        cursor.step += steps;
    }
}

/// A piece of strided rows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Piece {
    /// Its start in the first row.
    pub first: *const f32,
    /// From one row to the next.
    pub step: usize,
}

/// Panels of rows whose pieces are strided.
#[derive(Clone, Copy)]
pub struct StridedPanels<'a> {
    /// The pieces.
    pub pieces: &'a [Piece],
    /// Elements of each piece.
    pub length: usize,
}

/// Strided rows as pointers to every third one: all others are 1, 2, 4 or 8 strides away, as x86 addressing modes scale.
/// A pointer per row would not fit the registers.
#[derive(Clone, Copy)]
pub struct StridedCursor {
    rows: [*const f32; 5],
    /// Bytes from one row to the next.
    step: usize,
}

/// The base pointer of `StridedCursor` for each row, and its distance in strides.
const REACHED: [(usize, usize); 14] = [
    (0, 0),
    (0, 1),
    (0, 2),
    (1, 0),
    (0, 4),
    (1, 2),
    (2, 0),
    (1, 4),
    (0, 8),
    (3, 0),
    (2, 4),
    (1, 8),
    (4, 0),
    (3, 4),
];

/// The same pointer; the compiler does not see where it is from, so that it stays in a register of its own.
#[allow(clippy::pointers_in_nomem_asm_block, reason = "the block has no instructions")]
#[inline(always)]
fn opaque(at: *const f32) -> *const f32 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut at = at;
        // SAFETY: it does nothing.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) at, options(pure, nomem, nostack, preserves_flags));
        }
        at
    }
    #[cfg(not(target_arch = "x86_64"))]
    at
}

impl<const R: usize> LeftRows<R> for StridedPanels<'_> {
    type Cursor = StridedCursor;
    const MANY: bool = true;
    const STEPS: usize = 4;

    #[inline(always)]
    fn pieces(&self) -> (usize, usize) {
        (self.pieces.len(), self.length)
    }

    #[inline(always)]
    unsafe fn at(&self, panel: usize, piece: usize) -> StridedCursor {
        // SAFETY: there is such a piece, and the pieces of all rows are inside the operand.
        unsafe {
            let Piece { first, step } = *self.pieces.get_unchecked(piece);
            let first = first.add(panel * R * step);
            let rows = array(|i| opaque(first.wrapping_add(3 * i * step)));
            StridedCursor { rows, step: step * size_of::<f32>() }
        }
    }

    #[inline(always)]
    fn row(cursor: &StridedCursor, r: usize, ahead: usize) -> *const f32 {
        let (third, away) = REACHED[r];
        cursor.rows[third].wrapping_byte_add(away * cursor.step).wrapping_add(ahead)
    }

    #[inline(always)]
    fn advance(cursor: &mut StridedCursor, steps: usize) {
        let ahead = |at: *const f32| opaque(at.wrapping_add(steps));
        cursor.rows = array(|i| ahead(cursor.rows[i]));
    }
}
