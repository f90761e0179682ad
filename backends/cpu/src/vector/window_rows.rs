//! The body of depthwise convolutions with channels last, for any kind of vector: every lane is a channel. A column of the image is loaded
//! once for all neighbouring taps that it meets, and their weights stay in registers.

/// What a line of the windows of a row of results reads. Columns are counted from the first tap of the first window.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WindowLine {
    /// Channel 0 of column 0, whether that is inside the image or not.
    pub first: *const f32,
    /// The first column inside the image, and how many there are.
    pub from: usize,
    pub wide: usize,
}

/// Rows of windows over one vector of channels.
#[derive(Clone, Copy)]
pub struct WindowRows<'a> {
    /// What the lines of the windows read, row after row.
    pub lines: &'a [WindowLine],
    /// Lines of each window.
    pub high: usize,
    /// Elements from one column to the next.
    pub step: usize,
    /// The first channel.
    pub channel: usize,
    /// Neighbouring taps of each line, and columns from one window to the next.
    pub taps: usize,
    pub stride: usize,
    /// Windows of each row.
    pub count: usize,
    /// The weights of the vector for the first tap, and elements from one tap to the next.
    pub weights: &'a [f32],
    pub apart: usize,
}

/// A vector of zeros, which lies outside of the image.
pub static ZEROS: [f32; 16] = [0.0; 16];

/// True if the kernel has a loop for windows of so many neighbouring taps at such a stride.
pub const fn has_row(taps: usize, stride: usize) -> bool {
    matches!((taps, stride), (1 | 3 | 5 | 7, 1) | (3 | 5, 2))
}

/// Columns that the tile of the longest windows reads.
macro_rules! every_column {
    ($f:ident) => {
        $f!(0);
        $f!(1);
        $f!(2);
        $f!(3);
        $f!(4);
        $f!(5);
        $f!(6);
        $f!(7);
        $f!(8);
        $f!(9);
        $f!(10);
        $f!(11);
        $f!(12);
        $f!(13);
        $f!(14);
        $f!(15);
        $f!(16);
    };
}
pub(super) use every_column;

/// Defines `window_rows` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! window_rows {
    ($(#[$feature:meta])*) => {
        use crate::vector::window_rows::{WindowLine, WindowRows, ZEROS, every_column};

        /// # Safety
        /// As [`crate::gemm::kernel::window_rows`], on a machine of this level.
        pub unsafe fn window_rows(a: &WindowRows<'_>, t: &Target<'_>) {
            // SAFETY: the contract of the caller is that of the callee.
            unsafe {
                match (a.taps, a.stride) {
                    (1, 1) => windows::<1, 1>(a, t),
                    (3, 1) => windows::<3, 1>(a, t),
                    (5, 1) => windows::<5, 1>(a, t),
                    (7, 1) => windows::<7, 1>(a, t),
                    (3, 2) => windows::<3, 2>(a, t),
                    (5, 2) => windows::<5, 2>(a, t),
                    _ => unreachable!("the caller bounds the taps"),
                }
            }
        }

        /// Some windows of a row.
        struct WindowTile<'a> {
            lines: &'a [WindowLine],
            /// Windows of the row before them.
            done: usize,
            /// Where the first one goes.
            part: Part,
            /// Its row, as the chain counts rows.
            row: usize,
        }

        /// Windows of `K` neighbouring taps, `S` columns apart.
        ///
        /// # Safety
        /// As [`window_rows`].
        $(#[$feature])*
        unsafe fn windows<const K: usize, const S: usize>(a: &WindowRows<'_>, t: &Target<'_>) {
            let mut part = t.parts[0];
            for (i, lines) in a.lines.chunks_exact(a.high).enumerate() {
                let row = t.row + i * a.count;
                // Columns that are inside in all lines.
                let from = lines.iter().map(|l| l.from).max().unwrap_or(0);
                let to = lines.iter().map(|l| l.from + l.wide).min().unwrap_or(0);
                let mut done = 0;
                while done < a.count {
                    macro_rules! tile {
                        ($high:literal) => {{
                            let (first, last) = (done * S, (done + $high - 1) * S + K);
                            let at = WindowTile { lines, done, part, row: row + done };
                            // SAFETY: as promised.
                            unsafe {
                                match part.len == LANES {
                                    true if from <= first && last <= to => window_tile::<$high, K, S, false, false>(at, a, t),
                                    true => window_tile::<$high, K, S, true, false>(at, a, t),
                                    false => window_tile::<$high, K, S, true, true>(at, a, t),
                                }
                            }
                            done += $high;
                            part.at += $high * t.stride;
                        }};
                    }
                    match a.count - done {
                        1 | 2 => tile!(1),
                        3..=6 => tile!(3),
                        _ => tile!(7),
                    }
                }
            }
        }

        /// `R` windows; `EDGE` if some of their columns may be outside, `PART` if a part of the vector counts.
        ///
        /// # Safety
        /// As [`window_rows`].
        $(#[$feature])*
        unsafe fn window_tile<const R: usize, const K: usize, const S: usize, const EDGE: bool, const PART: bool>(
            WindowTile { lines, done, part, row }: WindowTile<'_>,
            a: &WindowRows<'_>,
            t: &Target<'_>,
        ) {
            let mut sums = [[zero(); 1]; R];
            let mut weights = a.weights.as_ptr();
            for line in lines {
                let mut w = [zero(); K];
                for j in 0..K {
                    // SAFETY: there are weights for all taps.
                    w[j] = unsafe { load(weights) };
                    weights = weights.wrapping_add(a.apart);
                }
                let mut at = line.first.wrapping_add(done * S * a.step + a.channel);
                // With a loop over columns, sums would not stay in registers.
                macro_rules! column {
                    ($c:literal) => {
                        if $c < (R - 1) * S + K {
                            let is_inside = !EDGE || (done * S + $c).wrapping_sub(line.from) < line.wide;
                            let from = if is_inside { at } else { ZEROS.as_ptr() };
                            // SAFETY: the column is inside the image, or zeros.
                            let x = unsafe { if PART { load_part(from, part) } else { load(from) } };
                            at = at.wrapping_add(a.step);
                            for j in 0..K {
                                if $c >= j && ($c - j) % S == 0 && ($c - j) / S < R {
                                    sums[($c - j) / S][0] = multiply_add(x, w[j], sums[($c - j) / S][0]);
                                }
                            }
                        }
                    };
                }
                every_column!(column);
                let _ = at;
            }
            let parts = [part];
            settle!(R, 1, sums, parts, t, row);
        }
    };
}
pub(super) use window_rows;
