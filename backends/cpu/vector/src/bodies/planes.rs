//! The bodies of depthwise convolution: a channel is copied into a padded frame, and every tap is a vector multiply-add.

use crate::simd::{VectorLevel, level};
use crate::tile::at_level;

/// Where the vectors of a plane's results lie: `rows` rows of `wide` results, `pitch` elements from one row to the next in the
/// frame.
#[derive(Clone, Copy, Debug)]
pub struct PlaneShape {
    /// Rows of results.
    pub rows: usize,
    /// Results of a row.
    pub wide: usize,
    /// Elements from one row to the next in the frame.
    pub pitch: usize,
    /// One or two: from one result of a row to the next in the frame.
    pub step: usize,
}

/// What is done with a result: a summand, and bounds that NaN passes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What is added first.
    pub shift: f32,
    /// The least result.
    pub low: f32,
    /// Positive if a negative zero becomes positive, else negative.
    pub zero: f32,
    /// The largest result.
    pub high: f32,
}

/// All results of a plane: the sums of `w[t]` times what lies `taps[t]` further, within bounds. What lies beyond a row's end is written again
/// with the next row.
///
/// # Safety
/// `data` has a vector at each tap of every result, or two where results are two apart; `out` holds the results.
pub unsafe fn plane(
    shape: PlaneShape,
    taps: &[usize],
    w: &[f32],
    data: &[f32],
    bounds: Bounds,
    out: &mut [f32],
) {
    at_level!(plane(shape, taps, w, data, bounds, out));
}

/// Every second element of `from`, from the first.
///
/// # Panics
/// If an element is not there.
#[inline]
pub fn every_second(from: &[f32], to: &mut [f32]) {
    // Vectors inside both are accessed.
    at_level!(every_second(from, to));
}

/// Vectors computed at once.
pub const GROUP: usize = 4;

/// Defines `plane` and `every_second` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! planes {
    ($(#[$feature:meta])*) => {
        use crate::bodies::planes::{Bounds, GROUP, PlaneShape};

        /// All results of a plane: the sums of `w[t]` times what lies `taps[t]` further. What lies beyond a row's end is
        /// written again with the next row.
        ///
        /// # Safety
        /// `data` has a vector at each tap of every result, or two where results are two apart; `out` holds the results; this level is that of the machine.
        $(#[$feature])*
        pub unsafe fn plane(shape: PlaneShape, taps: &[usize], w: &[f32], data: &[f32], b: Bounds, out: &mut [f32]) {
            // SAFETY: as promised.
            unsafe {
                match (taps.len().min(w.len()), shape.step) {
                    (9, 1) => groups::<9, 1>(shape, taps, w, data, b, out),
                    (25, 1) => groups::<25, 1>(shape, taps, w, data, b, out),
                    (_, 1) => groups::<0, 1>(shape, taps, w, data, b, out),
                    (9, _) => groups::<9, 2>(shape, taps, w, data, b, out),
                    _ => groups::<0, 2>(shape, taps, w, data, b, out),
                }
            }
        }

        /// [`plane`] with `T` taps, or any number if `T` is 0, for results that are `S` apart in the frame.
        ///
        /// # Safety
        /// As [`plane`].
        $(#[$feature])*
        #[inline]
        unsafe fn groups<const T: usize, const S: usize>(shape: PlaneShape, taps: &[usize], w: &[f32], data: &[f32], b: Bounds, out: &mut [f32]) {
            let PlaneShape { rows, wide, pitch, .. } = shape;
            let count = if T > 0 { T } else { taps.len().min(w.len()) };
            let (taps, w) = (&taps[..count], &w[..count]);
            let all = rows * wide.div_ceil(LANES);
            let (shift, low, zeros, high) = (splat(b.shift), splat(b.low), splat(b.zero), splat(b.high));
            let (mut x, mut row, mut first) = (0, 0, 0);
            let mut done = 0;
            while done < all {
                let (mut from, mut to) = ([data.as_ptr(); GROUP], [0; GROUP]);
                let n = (all - done).min(GROUP);
                for v in 0..GROUP {
                    from[v] = data.as_ptr().wrapping_add(row + x * S);
                    to[v] = first + x;
                    // The last group repeats its last vector.
                    if v + 1 < n {
                        x += LANES;
                        if x >= wide {
                            (x, row, first) = (0, row + pitch, first + wide);
                        }
                    }
                }
                x += LANES;
                if x >= wide {
                    (x, row, first) = (0, row + pitch, first + wide);
                }
                let mut sums = [zero(); GROUP];
                for t in 0..count {
                    // SAFETY: as promised.
                    unsafe {
                        let (tap, weight) = (*taps.get_unchecked(t), splat(*w.get_unchecked(t)));
                        for v in 0..GROUP {
                            sums[v] = multiply_add(every::<S>(from[v].wrapping_add(tap)), weight, sums[v]);
                        }
                    }
                }
                for v in 0..GROUP {
                    let sum = add(sums[v], shift);
                    let sum = smaller(add(larger(sum, low), zeros), high);
                    let left = out.len() - to[v];
                    let part = VectorSpan { at: 0, column: 0, skip: 0, len: left.min(LANES) };
                    // SAFETY: no more than the results that are left is written.
                    unsafe { write(out.as_mut_ptr().add(to[v]), part, sum) };
                }
                done += n;
            }
        }

        /// Every second element of `src`, from the first.
        ///
        /// # Safety
        /// This level is that of the machine.
        $(#[$feature])*
        pub unsafe fn every_second(src: &[f32], out: &mut [f32]) {
            let mut done = 0;
            while done + LANES <= out.len() && 2 * (done + LANES) <= src.len() {
                // SAFETY: both vectors are inside the source, the result inside `out`.
                unsafe {
                    let at = src.as_ptr().add(2 * done);
                    store(out.as_mut_ptr().add(done), evens(load(at), load(at.add(LANES))));
                }
                done += LANES;
            }
            for i in done..out.len() {
                out[i] = src[2 * i];
            }
        }
    };
}
pub(crate) use planes;
