//! Weighted sums of strided rows and dot products with them, in place: nothing is packed.

use crate::simd::{VectorLevel, level};
use crate::tile::at_level;

/// Strided rows of contiguous elements.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// From the first element on.
    pub data: &'a [f32],
    /// From one row to the next.
    pub step: usize,
    /// How many there are.
    pub count: usize,
    /// Elements of one.
    pub len: usize,
}

/// Most lines that are added to at once: their sums stay in registers.
pub const MOST: usize = 4;

impl Rows<'_> {
    fn are_inside(&self) -> bool {
        let Some(last) = self.count.checked_sub(1) else { return true };
        self.len == 0 || last * self.step + self.len <= self.data.len()
    }
}

/// Adds the weighted rows to each of at most [`MOST`] lines of `out`; the weights of lines are `pitch` elements apart.
pub fn add_weighted(weights: &[f32], pitch: usize, rows: Rows<'_>, out: &mut [f32], lines: usize) {
    assert!(rows.are_inside() && lines * rows.len <= out.len(), "the operands are inside");
    assert!((lines - 1) * pitch + rows.count <= weights.len(), "a weight for each row");
    at_level!(add_weighted(weights, pitch, rows, out, lines))
}

/// The dot products of each of so many lines, as long as a row and one after the other, with each row; those of a line are `pitch` elements
/// from the next line's.
pub fn dot_rows(lines: &[f32], count: usize, rows: Rows<'_>, out: &mut [f32], pitch: usize) {
    assert!(rows.are_inside() && count * rows.len <= lines.len(), "the operands are inside");
    assert!((count - 1) * pitch + rows.count <= out.len(), "room for each product");
    at_level!(dot_rows(lines, count, rows, out, pitch))
}

/// Defines `add_weighted` and `dot_rows` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! strided_rows {
    ($(#[$feature:meta])*) => {
        use crate::bodies::strided_rows::Rows as StridedRows;

        /// # Safety
        /// As [`crate::bodies::strided_rows::add_weighted`], on a machine of this level.
        $(#[$feature])*
        pub unsafe fn add_weighted(weights: &[f32], pitch: usize, rows: StridedRows<'_>, out: &mut [f32], lines: usize) {
            // SAFETY: the contract of the caller is that of the callee.
            unsafe {
                match lines {
                    1 => columns::<1>(weights, pitch, rows, out),
                    2 => columns::<2>(weights, pitch, rows, out),
                    3 => columns::<3>(weights, pitch, rows, out),
                    _ => columns::<4>(weights, pitch, rows, out),
                }
            }
        }

        /// # Safety
        /// As [`add_weighted`], for so many lines.
        $(#[$feature])*
        unsafe fn columns<const LINES: usize>(weights: &[f32], pitch: usize, rows: StridedRows<'_>, out: &mut [f32]) {
            let mut at = 0;
            while at < rows.len {
                let left = rows.len - at;
                let last = VectorSpan { at: 0, column: 0, skip: 0, len: left.min(LANES) };
                // SAFETY: as promised; so many columns are left.
                unsafe {
                    if LINES <= 3 && left >= 4 * LANES {
                        strip::<LINES, 4>(weights, pitch, rows, out, at);
                        at += 4 * LANES;
                    } else if left >= 2 * LANES {
                        strip::<LINES, 2>(weights, pitch, rows, out, at);
                        at += 2 * LANES;
                    } else {
                        part::<LINES>(weights, pitch, rows, out, at, last);
                        at += last.len;
                    }
                }
            }
        }

        /// # Safety
        /// As [`columns`]; so many vectors of columns from one on are inside.
        $(#[$feature])*
        #[inline]
        unsafe fn strip<const LINES: usize, const VECTORS: usize>(weights: &[f32], pitch: usize, rows: StridedRows<'_>, out: &mut [f32], at: usize) {
            let mut sums = [[zero(); VECTORS]; LINES];
            for c in 0..rows.count {
                let row = rows.data.as_ptr().wrapping_add(c * rows.step + at);
                // SAFETY: as promised.
                unsafe {
                    for l in 0..LINES {
                        let weight = splat(*weights.get_unchecked(l * pitch + c));
                        for v in 0..VECTORS {
                            sums[l][v] = multiply_add(weight, load(row.add(v * LANES)), sums[l][v]);
                        }
                    }
                }
            }
            for l in 0..LINES {
                for v in 0..VECTORS {
                    let to = out.as_mut_ptr().wrapping_add(l * rows.len + at + v * LANES);
                    // SAFETY: as promised.
                    unsafe { store(to, add(load(to), sums[l][v])) };
                }
            }
        }

        /// The same of a part of a vector.
        ///
        /// # Safety
        /// As [`columns`]; so many columns from one on are inside.
        $(#[$feature])*
        #[inline]
        unsafe fn part<const LINES: usize>(weights: &[f32], pitch: usize, rows: StridedRows<'_>, out: &mut [f32], at: usize, part: VectorSpan) {
            let mut sums = [zero(); LINES];
            for c in 0..rows.count {
                let row = rows.data.as_ptr().wrapping_add(c * rows.step + at);
                // SAFETY: as promised.
                unsafe {
                    let row = load_part(row, part);
                    for l in 0..LINES {
                        sums[l] = multiply_add(splat(*weights.get_unchecked(l * pitch + c)), row, sums[l]);
                    }
                }
            }
            for l in 0..LINES {
                let to = out.as_mut_ptr().wrapping_add(l * rows.len + at);
                // SAFETY: as promised.
                unsafe { store_part(to, part, add(load_part(to, part), sums[l])) };
            }
        }

        /// # Safety
        /// As [`crate::bodies::strided_rows::dot_rows`], on a machine of this level.
        $(#[$feature])*
        pub unsafe fn dot_rows(lines: &[f32], count: usize, rows: StridedRows<'_>, out: &mut [f32], pitch: usize) {
            for c in (0..rows.count).step_by(LANES) {
                let to = VectorSpan { at: 0, column: 0, skip: 0, len: LANES.min(rows.count - c) };
                for l in 0..count {
                    let line = lines.as_ptr().wrapping_add(l * rows.len);
                    // SAFETY: as promised.
                    unsafe {
                        let dots = dots(line, rows, c);
                        store_part(out.as_mut_ptr().wrapping_add(l * pitch + c), to, dots);
                    }
                }
            }
        }

        /// The dot products of a line with a vector of rows from one on; of those behind the last one, with that.
        ///
        /// # Safety
        /// As [`dot_rows`], for a line of its own.
        $(#[$feature])*
        #[inline]
        unsafe fn dots(line: *const f32, rows: StridedRows<'_>, first: usize) -> Vector {
            let mut sums = [zero(); LANES];
            let row = |i: usize| rows.data.as_ptr().wrapping_add((first + i).min(rows.count - 1) * rows.step);
            let mut at = 0;
            while at + LANES <= rows.len {
                // SAFETY: as promised.
                unsafe {
                    let x = load(line.add(at));
                    for i in 0..LANES {
                        sums[i] = multiply_add(x, load(row(i).add(at)), sums[i]);
                    }
                }
                at += LANES;
            }
            if at < rows.len {
                let part = VectorSpan { at: 0, column: 0, skip: 0, len: rows.len - at };
                // SAFETY: as promised; what is not loaded is zero.
                unsafe {
                    let x = load_part(line.add(at), part);
                    for i in 0..LANES {
                        sums[i] = multiply_add(x, load_part(row(i).add(at), part), sums[i]);
                    }
                }
            }
            // Neighbours are added until a vector has one sum of each.
            let mut left = LANES;
            while left > 1 {
                left /= 2;
                for i in 0..left {
                    let (x, y) = (sums[2 * i], sums[2 * i + 1]);
                    sums[i] = add(evens(x, y), odds(x, y));
                }
            }
            sums[0]
        }
    };
}
pub(crate) use strided_rows;
