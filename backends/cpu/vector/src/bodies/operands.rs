//! Where the operands of the register tile lie.

use crate::arrays::array;
use crate::tile::PanelLines;

/// Where the vectors of a line of the right operand lie.
pub trait Lines<const V: usize>: Copy {
    /// What they are vectors of.
    type Element: Copy;

    /// The vectors of line `k`.
    ///
    /// # Safety
    /// `k` is below the depth.
    unsafe fn at(&self, k: usize) -> [*const Self::Element; V];

    /// What is fetched for the next tile while vector `v` of line `k` is used.
    fn next(&self, line: [*const Self::Element; V], v: usize) -> Option<*const f32>;
}

/// Packed panels: of two vectors, one after the other, or one of one vector.
#[derive(Clone, Copy)]
pub struct Packed<T, const W: usize> {
    pub first: *const T,
    pub depth: usize,
}

impl<const W: usize> Packed<f32, W> {
    /// Some lines of panels for tiles of so many vectors.
    #[inline(always)]
    pub fn lines(
        PanelLines { panels, depth, first }: PanelLines<'_>,
        vectors: usize,
    ) -> Packed<f32, W> {
        let wide = if vectors == 1 { 1 } else { 2 };
        Packed { first: panels.as_ptr().wrapping_add(first * wide * W), depth }
    }
}

impl<T: Copy, const V: usize, const W: usize> Lines<V> for Packed<T, W> {
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

/// Lines that lie anywhere.
#[derive(Clone, Copy)]
pub struct Scattered {
    pub from: [*const f32; 2],
    pub lines: *const usize,
    /// From a vector to what the next tile reads in its place.
    pub next: usize,
}

impl<const V: usize> Lines<V> for Scattered {
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

/// Where the rows of the left operand lie: as pieces of equal length.
pub trait Rows<const R: usize>: Copy {
    /// Where a step of all rows lies.
    type Cursor: Copy;
    /// There may be more than one piece.
    const MANY: bool;
    /// Steps that are taken between fetches: four, or one where more pointers than that leave registers for would be in use.
    const STEPS: usize;

    /// Pieces, and steps of each.
    fn pieces(&self) -> (usize, usize);

    /// The first step of the rows of a panel in a piece.
    ///
    /// # Safety
    /// There are such a panel and piece.
    unsafe fn at(&self, panel: usize, piece: usize) -> Self::Cursor;

    /// Where row `r` lies, some steps ahead in the same piece.
    fn row(cursor: &Self::Cursor, r: usize, ahead: usize) -> *const f32;

    /// On by some steps of the same piece.
    fn advance(cursor: &mut Self::Cursor, steps: usize);
}

/// Rows of packed panels.
#[derive(Clone, Copy)]
pub struct Interleaved {
    pub first: *const f32,
    pub depth: usize,
}

impl<const R: usize> Rows<R> for Interleaved {
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

/// Rows of one panel whose pieces lie anywhere: a pointer for each, piece by piece.
#[derive(Clone, Copy)]
pub struct Pointed<'a> {
    /// A pointer for each row of each piece.
    pub rows: &'a [*const f32],
    /// Elements of each piece.
    pub length: usize,
}

impl<const R: usize> Rows<R> for Pointed<'_> {
    type Cursor = ([*const f32; R], usize);
    const MANY: bool = true;
    const STEPS: usize = 1;

    #[inline(always)]
    fn pieces(&self) -> (usize, usize) {
        (self.rows.len() / R, self.length)
    }

    #[inline(always)]
    unsafe fn at(&self, _: usize, piece: usize) -> Self::Cursor {
        // SAFETY: there are pointers for all pieces.
        (array(|r| unsafe { *self.rows.get_unchecked(piece * R + r) }), 0)
    }

    #[inline(always)]
    fn row((rows, step): &Self::Cursor, r: usize, ahead: usize) -> *const f32 {
        rows[r].wrapping_add(*step + ahead)
    }

    #[inline(always)]
    fn advance((_, step): &mut Self::Cursor, steps: usize) {
        *step += steps;
    }
}

/// Where a piece of rows at equal distances lies.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Piece {
    /// In the first row.
    pub first: *const f32,
    /// From one row to the next.
    pub step: usize,
}

/// Rows whose pieces lie at equal distances, panel after panel.
#[derive(Clone, Copy)]
pub struct Even<'a> {
    /// Where they lie.
    pub pieces: &'a [Piece],
    /// Elements of each piece.
    pub length: usize,
}

/// Rows at equal distances: every third one, from which all others are one, two, four or eight distances away, as addresses of x86 may be.
/// A pointer for each row would not fit the registers.
#[derive(Clone, Copy)]
pub struct Thirds {
    rows: [*const f32; 5],
    /// Bytes from one row to the next.
    step: usize,
}

/// The row of `Thirds` that each row is reached from, and how many distances away it is.
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

impl<const R: usize> Rows<R> for Even<'_> {
    type Cursor = Thirds;
    const MANY: bool = true;
    const STEPS: usize = 4;

    #[inline(always)]
    fn pieces(&self) -> (usize, usize) {
        (self.pieces.len(), self.length)
    }

    #[inline(always)]
    unsafe fn at(&self, panel: usize, piece: usize) -> Thirds {
        // SAFETY: there is such a piece, and the pieces of all rows are inside the operand.
        unsafe {
            let Piece { first, step } = *self.pieces.get_unchecked(piece);
            let first = first.add(panel * R * step);
            let rows = array(|i| opaque(first.wrapping_add(3 * i * step)));
            Thirds { rows, step: step * size_of::<f32>() }
        }
    }

    #[inline(always)]
    fn row(cursor: &Thirds, r: usize, ahead: usize) -> *const f32 {
        let (third, away) = REACHED[r];
        cursor.rows[third].wrapping_byte_add(away * cursor.step).wrapping_add(ahead)
    }

    #[inline(always)]
    fn advance(cursor: &mut Thirds, steps: usize) {
        let ahead = |at: *const f32| opaque(at.wrapping_add(steps));
        cursor.rows = array(|i| ahead(cursor.rows[i]));
    }
}
