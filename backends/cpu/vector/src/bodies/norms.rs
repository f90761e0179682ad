//! Layer norm and RMS norm: several rows at a time, one per lane.

use crate::simd::{VectorLevel, level};
use crate::tile::at_level;

/// What is taken from the elements of a row before they are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Centre {
    /// Their mean, and an offset is added to the result.
    Mean,
    /// Nothing.
    Zero,
}

/// A norm of rows: the reciprocal of its scale is the root of the mean square and `eps`.
#[derive(Clone, Copy, Debug)]
pub struct RowNorm<'a> {
    /// What rows are measured from.
    pub centre: Centre,
    /// What is added to the mean square.
    pub eps: f32,
    /// A factor for each element of a row.
    pub gain: &'a [f32],
    /// A summand for each, if there is a centre.
    pub offset: &'a [f32],
}

/// Elements of rows that are taken side by side, so that they stay in the nearest cache.
const NEAR: usize = 2048;

/// The norm of every row of `x`, which is as long as `out`: whole rows, as long as the gain.
pub fn normalised(norm: RowNorm<'_>, x: &[f32], out: &mut [f32]) {
    let n = norm.gain.len();
    assert!(n > 0 && x.len() == out.len() && x.len().is_multiple_of(n), "whole rows");
    assert!(norm.centre == Centre::Zero || norm.offset.len() == n, "a summand for each element");
    at_level!(norm_rows(norm, (NEAR / n).max(1), x, out))
}

/// Defines `norm_rows` for a level, whose module defines `Vector`, `LANES`, the operations on it, and what `rows` defines.
macro_rules! norms {
    ($(#[$feature:meta])*) => {
        use crate::bodies::norms::{Centre, RowNorm};

        /// # Safety
        /// On a machine of this level; `x` and `out` are whole rows as long as the gain, and as the offset if there is a centre.
        $(#[$feature])*
        pub unsafe fn norm_rows(norm: RowNorm<'_>, together: usize, x: &[f32], out: &mut [f32]) {
            let n = norm.gain.len();
            let (together, is_centred) = (together.min(LANES), norm.centre == Centre::Mean);
            let over = 1.0 / n as f32;
            for (x, out) in x.chunks(together * n).zip(out.chunks_mut(together * n)) {
                let mut means = [0.0; LANES];
                if is_centred {
                    let mut sums = [zero(); LANES];
                    for (sum, x) in sums.iter_mut().zip(x.chunks_exact(n)) {
                        *sum = gathered!(x, 0.0, 0.0, add, |sum, v| add(sum, v));
                    }
                    means = across!(add, sums);
                    for mean in &mut means {
                        *mean *= over;
                    }
                }
                let mut sums = [zero(); LANES];
                for ((sum, x), &mean) in sums.iter_mut().zip(x.chunks_exact(n)).zip(&means) {
                    let centre = splat(mean);
                    *sum = gathered!(x, 0.0, mean, add, |sum, v| fused(subtract(v, centre), subtract(v, centre), sum));
                }
                let mut scales = across!(add, sums);
                for scale in &mut scales {
                    *scale = 1.0 / (*scale * over + norm.eps).sqrt();
                }
                let rows = out.chunks_exact_mut(n).zip(x.chunks_exact(n));
                for ((out, x), (&mean, &scale)) in rows.zip(means.iter().zip(&scales)) {
                    let (mean, scale) = (splat(mean), splat(scale));
                    let (x, out) = (x.as_ptr(), out.as_mut_ptr());
                    let (gain, offset) = (norm.gain.as_ptr(), norm.offset.as_ptr());
                    let mut at = 0;
                    while at + LANES <= n {
                        // SAFETY: a vector of the row, its result, the gain and the offset.
                        unsafe {
                            let z = if is_centred { load(offset.add(at)) } else { zero() };
                            let y = multiply(subtract(load(x.add(at)), mean), scale);
                            store(out.add(at), fused(y, load(gain.add(at)), z));
                        }
                        at += LANES;
                    }
                    if at < n {
                        let part = VectorSpan { at, column: at, skip: 0, len: n - at };
                        // SAFETY: the part is inside all of them.
                        unsafe {
                            let z = if is_centred { read(offset.add(at), part) } else { zero() };
                            let y = multiply(subtract(read(x.add(at), part), mean), scale);
                            write(out.add(at), part, fused(y, read(gain.add(at), part), z));
                        }
                    }
                }
            }
        }
    };
}
pub(crate) use norms;
