//! The body of depthwise and grouped convolution, channels last: a lane is an output channel and reads its group's input channels. A column is
//! loaded and broadcast once for all taps that it meets, and weights stay in registers.

/// What a line of the windows of a row of results reads. Columns are counted from the first tap of the first window.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WindowLine {
    /// Channel 0 of column 0, whether that is inside the image or not.
    pub first: *const f32,
    /// The first column inside the image.
    pub from: usize,
    /// Columns inside.
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
    /// Channels that every result is a sum over.
    pub group: usize,
    /// How the vector reads them.
    pub groups: Groups,
    /// The first channel that is read.
    pub channel: usize,
    /// Neighbouring taps of each line.
    pub taps: usize,
    /// Columns from one window to the next.
    pub stride: usize,
    /// Windows of each row.
    pub count: usize,
    /// The weights of the vector for the first channel of the group and the first tap, then those of the next channel; after all channels
    /// those of the next tap.
    pub weights: &'a [f32],
    /// Elements from the weights of one channel to those of the next.
    pub apart: usize,
}

/// How many groups a vector of results takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// Whole ones of 1, 2, 4 or 8 channels in and out.
    Whole,
    /// One, or a part of it.
    One,
}

impl Groups {
    /// True if a vector of so many lanes may take whole groups of so many channels.
    pub fn are_whole(channels: usize, lanes: usize) -> bool {
        matches!(channels, 1 | 2 | 4 | 8) && channels < lanes
    }
}

/// A vector of zeros, which lies outside of the image.
pub static ZEROS: [f32; 16] = [0.0; 16];

/// True if the kernel has a loop for windows of so many neighbouring taps at such a stride, over groups of so many channels.
pub const fn has_row(taps: usize, stride: usize, group: usize) -> bool {
    match group {
        1 => matches!((taps, stride), (1 | 3 | 5 | 7, 1) | (3 | 5, 2)),
        _ => matches!((taps, stride), (1 | 3, 1) | (3, 2)),
    }
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
pub(crate) use every_column;

/// Defines `window_rows` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! window_rows {
    ($(#[$feature:meta])*) => {
        use crate::bodies::window_rows::{Groups, WindowLine, WindowRows, ZEROS, every_column};

        /// One group whose channels every lane reads.
        const ONE: usize = 0;

        /// # Safety
        /// As [`crate::tile::window_rows`], on a machine of this level.
        pub unsafe fn window_rows(a: &WindowRows<'_>, t: &TileOutput<'_>) {
            // SAFETY: the contract of the caller is that of the callee.
            unsafe {
                match (a.groups, a.group) {
                    (Groups::Whole, 1) => match (a.taps, a.stride) {
                        (5, 1) => windows::<1, 5, 1>(a, t),
                        (7, 1) => windows::<1, 7, 1>(a, t),
                        (5, 2) => windows::<1, 5, 2>(a, t),
                        _ => of_group::<1>(a, t),
                    },
                    (Groups::Whole, 2) => of_group::<2>(a, t),
                    (Groups::Whole, 4) => of_group::<4>(a, t),
                    (Groups::Whole, _) => of_group::<8>(a, t),
                    (Groups::One, _) => of_group::<ONE>(a, t),
                }
            }
        }

        /// Windows over groups of `Q` channels, or over [`ONE`].
        ///
        /// # Safety
        /// As [`window_rows`].
        unsafe fn of_group<const Q: usize>(a: &WindowRows<'_>, t: &TileOutput<'_>) {
            // SAFETY: the contract of the caller is that of the callee.
            unsafe {
                match (a.taps, a.stride) {
                    (1, 1) => windows::<Q, 1, 1>(a, t),
                    (3, 1) => windows::<Q, 3, 1>(a, t),
                    (3, 2) => windows::<Q, 3, 2>(a, t),
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
            part: VectorSpan,
            /// Its row, as the epilogue counts rows.
            row: usize,
        }

        /// Windows of `K` neighbouring taps, `S` columns apart.
        ///
        /// # Safety
        /// As [`window_rows`].
        $(#[$feature])*
        unsafe fn windows<const Q: usize, const K: usize, const S: usize>(a: &WindowRows<'_>, t: &TileOutput<'_>) {
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
                                    true if from <= first && last <= to => window_tile::<$high, Q, K, S, false, false>(at, a, t),
                                    true => window_tile::<$high, Q, K, S, true, false>(at, a, t),
                                    false => window_tile::<$high, Q, K, S, true, true>(at, a, t),
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
        unsafe fn window_tile<const R: usize, const Q: usize, const K: usize, const S: usize, const EDGE: bool, const PART: bool>(
            WindowTile { lines, done, part, row }: WindowTile<'_>,
            a: &WindowRows<'_>,
            t: &TileOutput<'_>,
        ) {
            let mut sums = [[zero(); 1]; R];
            let mut weights = a.weights.as_ptr();
            let group = if Q == ONE { a.group } else { Q };
            let few = (R * S).div_ceil(if Q == ONE { LANES } else { Q });
            for line in lines {
                for c in 0..group {
                    let mut w = [zero(); K];
                    for j in 0..K {
                        // SAFETY: there are weights for all channels and taps.
                        w[j] = unsafe { load(weights.wrapping_add((j * group + c) * a.apart)) };
                    }
                    let mut at = line.first.wrapping_add(done * S * a.step + a.channel);
                    if Q != 1 {
                        // The columns that the next windows are the first to meet, a few with each channel.
                        for i in 0..few {
                            prefetch(at.wrapping_add(((R - 1) * S + K + c * few + i) * a.step));
                        }
                    }
                    if Q == ONE {
                        at = at.wrapping_add(c);
                    }
                    // With a loop over columns, sums would not stay in registers.
                    macro_rules! column {
                        ($c:literal) => {
                            if $c < (R - 1) * S + K {
                                let is_inside = !EDGE || (done * S + $c).wrapping_sub(line.from) < line.wide;
                                let from = if is_inside { at } else { ZEROS.as_ptr() };
                                // SAFETY: the column is inside the image, or zeros.
                                let x = unsafe {
                                    match Q {
                                        ONE => splat(*from),
                                        _ if PART => load_part(from, part),
                                        _ => load(from),
                                    }
                                };
                                let x = if Q > 1 { spread::<Q>(x, c) } else { x };
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
                weights = weights.wrapping_add(K * group * a.apart);
            }
            let parts = [part];
            settle!(R, 1, sums, parts, t, row);
        }
    };
}
pub(crate) use window_rows;
