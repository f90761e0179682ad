//! The body of pointwise programs that are tile epilogues: the steps run on vectors of an operand instead of sums.

/// Defines `map_rows` for a level, whose module defines `Vector`, `LANES`, the operations on it and `settle`.
macro_rules! fused_rows {
    ($(#[$feature:meta])*) => {
        /// Takes elements `at..end` through the steps of the target and writes them; rows have `n` elements, and that of element `at` is row 0 of
        /// the target's operands. Element 0 of the operand is `from`.
        ///
        /// # Safety
        /// On a machine of this level. These elements are inside the operand and the result, which do not overlap, and the operands of the steps
        /// cover them.
        $(#[$feature])*
        pub unsafe fn map_rows(from: *const f32, mut at: usize, end: usize, n: usize, t: &TileOutput<'_>) {
            let (mut row, mut column) = (t.row, at % n);
            while at < end {
                let len = (n - column).min(end - at);
                let mut done = 0;
                while done < len {
                    macro_rules! block {
                        ($v:literal) => {{
                            let mut parts = [VectorSpan::default(); $v];
                            let mut sums = [[zero(); $v]; 1];
                            for v in 0..$v {
                                let i = done + v * LANES;
                                parts[v] = VectorSpan { at: at + i, column: column + i, skip: 0, len: LANES.min(len) };
                                // SAFETY: as promised.
                                sums[0][v] = unsafe { read(from.add(at + i), parts[v]) };
                            }
                            settle!(1, $v, sums, parts, t, row);
                            done += $v * LANES;
                        }};
                    }
                    match len - done {
                        left if left >= 8 * LANES => block!(8),
                        left if left >= 4 * LANES => block!(4),
                        _ => {
                            // The last vector overlaps the one before it.
                            done = if len < LANES { 0 } else { done.min(len - LANES) };
                            block!(1);
                        }
                    }
                }
                (at, row, column) = (at + len, row + 1, 0);
            }
        }
    };
}
pub(crate) use fused_rows;
