//! The body of convolutions whose groups are narrower than a vector, for any kind of vector: every lane is an output channel, and reads
//! the input channels of its own group.

/// Defines `channel_groups` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! groups {
    ($(#[$feature:meta])*) => {
        /// As [`crate::channels_last`] describes them: `rows` rows of `t` with a pointer for each tap; `group` channels in and out of
        /// each group, and a line of the panel `b` for each tap and channel of a group.
        ///
        /// # Safety
        /// Behind every pointer are the columns; `b` holds a line for each tap and channel, and `t` the rows; this level is that of the
        /// machine.
        $(#[$feature])*
        pub unsafe fn channel_groups(rows: usize, group: usize, a: Columns<'_>, b: &[f32], t: &Target<'_>) {
            let mut first = 0;
            while first < rows {
                macro_rules! of_width {
                    ($high:literal) => {{
                        // SAFETY: as promised.
                        unsafe {
                            match group {
                                2 => channel_group_rows::<$high, 2>(first, rows, a, b, t),
                                4 => channel_group_rows::<$high, 4>(first, rows, a, b, t),
                                _ => channel_group_rows::<$high, 8>(first, rows, a, b, t),
                            }
                        }
                        first += $high;
                    }};
                }
                match rows - first {
                    1 => of_width!(1),
                    2 | 3 => of_width!(2),
                    4..=7 => of_width!(4),
                    _ => of_width!(8),
                }
            }
        }

        /// `R` rows from `first` on of groups of `Q` channels.
        ///
        /// # Safety
        /// As [`channel_groups`].
        $(#[$feature])*
        unsafe fn channel_group_rows<const R: usize, const Q: usize>(first: usize, rows: usize, a: Columns<'_>, b: &[f32], t: &Target<'_>) {
            let taps = a.rows.len() / rows;
            for (v, &part) in t.parts.iter().enumerate() {
                let line = t.parts.len() * LANES;
                let column = a.column + v * LANES;
                let mut sums = [zero(); R];
                for tap in 0..taps {
                    let mut x = [zero(); R];
                    for r in 0..R {
                        // SAFETY: there is a pointer for each row and tap, and the columns behind it.
                        x[r] = unsafe { read(a.rows.get_unchecked(tap * rows + first + r).add(column), part) };
                    }
                    for c in 0..Q {
                        // SAFETY: the panel has a line for each tap and channel.
                        let w = unsafe { load(b.as_ptr().add((tap * Q + c) * line + v * LANES)) };
                        for r in 0..R {
                            sums[r] = multiply_add(spread::<Q>(x[r], c), w, sums[r]);
                        }
                    }
                }
                for r in 0..R {
                    // SAFETY: the part lies inside the result.
                    unsafe { write(t.out.add(part.at + (first + r) * t.stride), part, sums[r]) };
                }
            }
        }
    };
}
pub(super) use groups;
