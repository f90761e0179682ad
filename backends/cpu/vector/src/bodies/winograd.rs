//! The Winograd transforms F(2×2, 3×3) and F(4×4, 3×3): a lane is a channel.
//!
//! A tile of inputs and the points that it is transformed to have `N`, 4 or 6, along each axis; its results are two less.

use crate::simd::{VectorLevel, level};
use crate::tile::at_level;

/// Beside zero and infinity, the polynomials of F(2×2, 3×3) are evaluated at ± 1, those of F(4×4, 3×3) at ± `NEAR` and ± `FAR`. Of points
/// whose powers are exact these leave the least error: a fourth of that at 1 and 2.
pub const NEAR: f32 = 0.625;
/// See [`NEAR`].
pub const FAR: f32 = 1.5;

/// Writes the points of a tile of `extent` inputs along each axis, 4 or 6, whose elements are channels at `taps`: those of each point `apart`
/// elements from those of the last.
///
/// # Safety
/// There is a tap with all channels for each input, and room at `to` for those of each point.
pub unsafe fn transform_input(
    extent: usize,
    taps: &[*const f32],
    channels: usize,
    to: *mut f32,
    apart: usize,
) {
    at_level!(transform_input(extent, taps, channels, to, apart));
}

/// Writes the results of a tile of `extent` points along each axis, 4 or 6, where there is a place for them: those of channels, each point's
/// `apart` elements from those of the last. True if all are finite.
///
/// # Safety
/// Every point has all channels; `to` has a place for each result, which is null or has room for all channels.
pub unsafe fn transform_output(
    extent: usize,
    from: *const f32,
    apart: usize,
    channels: usize,
    to: &[*mut f32],
) -> bool {
    at_level!(transform_output(extent, from, apart, channels, to))
}

/// Defines `transform_input` and `transform_output` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! winograd {
    ($(#[$feature:meta])*) => {
        /// The vector of `channels` channels that begins with channel `c`.
        fn channel_part(channels: usize, c: usize) -> VectorSpan {
            VectorSpan { len: (channels - c).min(LANES), ..VectorSpan::default() }
        }

        /// The points of a line of inputs.
        $(#[$feature])*
        #[inline]
        fn points_of_line<const N: usize>(d: [Vector; N]) -> [Vector; N] {
            use crate::bodies::winograd::{FAR, NEAR};
            let mut points = d;
            if N == 4 {
                points[0] = subtract(d[0], d[2]);
                points[1] = add(d[1], d[2]);
                points[2] = subtract(d[2], d[1]);
                points[3] = subtract(d[1], d[3]);
                return points;
            }
            let (near, far) = (NEAR * NEAR, FAR * FAR);
            let ends = |a, b, c| multiply_add(splat(near * far), a, multiply_add(splat(-near - far), b, c));
            let pair = |other: f32, point: f32| {
                let even = multiply_add(splat(-other), d[2], d[4]);
                let odd = multiply_add(splat(-other), d[1], d[3]);
                [multiply_add(splat(point), odd, even), multiply_add(splat(-point), odd, even)]
            };
            points[0] = ends(d[0], d[2], d[4]);
            [points[1], points[2]] = pair(far, NEAR);
            [points[3], points[4]] = pair(near, FAR);
            points[5] = ends(d[1], d[3], d[5]);
            points
        }

        /// The results of a line of products, the first two less than there are of these.
        $(#[$feature])*
        #[inline]
        fn results_of_line<const N: usize>(m: [Vector; N]) -> [Vector; N] {
            use crate::bodies::winograd::{FAR, NEAR};
            let mut results = m;
            if N == 4 {
                results[0] = add(add(m[0], m[1]), m[2]);
                results[1] = subtract(subtract(m[1], m[2]), m[3]);
                return results;
            }
            let (even, odd) = (add(m[1], m[2]), subtract(m[1], m[2]));
            let (far_even, far_odd) = (add(m[3], m[4]), subtract(m[3], m[4]));
            let far_by = |power: f32, x| multiply(splat(power), x);
            results[0] = add(add(m[0], even), far_even);
            results[1] = multiply_add(splat(NEAR), odd, far_by(FAR, far_odd));
            results[2] = multiply_add(splat(NEAR * NEAR), even, far_by(FAR * FAR, far_even));
            let last = multiply_add(splat(FAR * FAR * FAR), far_odd, m[5]);
            results[3] = multiply_add(splat(NEAR * NEAR * NEAR), odd, last);
            results
        }

        /// [`points_of`] of tiles of `extent` inputs along each axis, 4 or 6.
        ///
        /// # Safety
        /// As there.
        $(#[$feature])*
        pub unsafe fn transform_input(extent: usize, taps: &[*const f32], channels: usize, to: *mut f32, apart: usize) {
            // SAFETY: as promised.
            unsafe {
                match extent {
                    4 => points_of::<4>(taps, channels, to, apart),
                    _ => points_of::<6>(taps, channels, to, apart),
                }
            }
        }

        /// [`results_of`] of tiles of `extent` points along each axis, 4 or 6.
        ///
        /// # Safety
        /// As there.
        $(#[$feature])*
        pub unsafe fn transform_output(extent: usize, from: *const f32, apart: usize, channels: usize, to: &[*mut f32]) -> bool {
            // SAFETY: as promised.
            unsafe {
                match extent {
                    4 => results_of::<4>(from, apart, channels, to),
                    _ => results_of::<6>(from, apart, channels, to),
                }
            }
        }

        /// Writes the points of a tile, whose elements are channels at `taps`: those of each point `apart` elements from those of the last.
        ///
        /// # Safety
        /// There are `N * N` taps, behind each are the channels, and `to` has room for the points; this level is that of the machine.
        $(#[$feature])*
        #[inline]
        unsafe fn points_of<const N: usize>(taps: &[*const f32], channels: usize, to: *mut f32, apart: usize) {
            for c in (0..channels).step_by(LANES) {
                let part = channel_part(channels, c);
                let mut lines = [[zero(); N]; N];
                for j in 0..N {
                    let mut column = [zero(); N];
                    for i in 0..N {
                        // SAFETY: as promised.
                        column[i] = unsafe { read(taps.get_unchecked(N * i + j).add(c), part) };
                    }
                    let column = points_of_line(column);
                    for i in 0..N {
                        lines[i][j] = column[i];
                    }
                }
                for i in 0..N {
                    let points = points_of_line(lines[i]);
                    for j in 0..N {
                        // SAFETY: as promised.
                        unsafe { write(to.add((N * i + j) * apart + c), part, points[j]) };
                    }
                }
            }
        }

        /// Writes the results of a tile whose points lie `apart` elements from each other; those whose place is null are left out.
        /// True if all are finite.
        ///
        /// # Safety
        /// `from` holds the points, there are `(N - 2) * (N - 2)` places and room for the channels behind every one; this level is that of the machine.
        $(#[$feature])*
        #[inline]
        unsafe fn results_of<const N: usize>(from: *const f32, apart: usize, channels: usize, to: &[*mut f32]) -> bool {
            // Zero times a number is zero only if that is finite.
            let mut zeros = zero();
            for c in (0..channels).step_by(LANES) {
                let part = channel_part(channels, c);
                let mut lines = [[zero(); N]; N];
                for j in 0..N {
                    let mut column = [zero(); N];
                    for i in 0..N {
                        // SAFETY: as promised.
                        column[i] = unsafe { read(from.add((N * i + j) * apart + c), part) };
                    }
                    let column = results_of_line(column);
                    for i in 0..N - 2 {
                        lines[i][j] = column[i];
                    }
                }
                for i in 0..N - 2 {
                    let results = results_of_line(lines[i]);
                    for j in 0..N - 2 {
                        // SAFETY: as promised.
                        let to = unsafe { *to.get_unchecked((N - 2) * i + j) };
                        if !to.is_null() {
                            zeros = multiply_add(results[j], zero(), zeros);
                            // SAFETY: as promised.
                            unsafe { write(to.add(c), part, results[j]) };
                        }
                    }
                }
            }
            all_zero(zeros)
        }
    };
}
pub(crate) use winograd;
