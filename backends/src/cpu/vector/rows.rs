//! Rows joined to a number each, and the exponentials of a row with their sum.

use crate::cpu::gemm::kernel::at_level;
use crate::cpu::simd::{VectorLevel, level};
use crate::cpu::vector;

/// How the elements of a row are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// By addition, in several sums side by side.
    Sum,
    /// To the largest, but NaN where a row has a NaN, infinities of both signs, or no extreme but a zero.
    Largest,
    /// To the smallest, with the same exceptions.
    Smallest,
}

/// Joins `n` elements for each of `out`, those of the next one `step` further.
pub fn joined(join: Join, x: &[f32], n: usize, step: usize, out: &mut [f32]) {
    if let Some(last) = out.len().checked_sub(1) {
        assert!(last * step + n <= x.len(), "the rows are inside");
    }
    at_level!(joined(join, x, n, step, out))
}

/// The largest element but NaN; minus infinity if there is none.
pub fn largest(x: &[f32]) -> f32 {
    at_level!(largest(x))
}

/// `exp(x - shift)` of every element of `from`, which is as long as `to`, and their sum.
pub fn exponentials(to: &mut [f32], from: &[f32], shift: f32) -> f32 {
    assert_eq!(to.len(), from.len(), "a result per element");
    at_level!(exponentials(to, from, shift))
}

/// Defines `joined`, `largest` and `exponentials` for a level, whose module defines `Vector`, `LANES`, the operations on it and `exp`.
macro_rules! rows {
    ($(#[$feature:meta])*) => {
        use crate::cpu::vector::rows::Join;

        /// The elements of a vector joined in pairs.
        $(#[$feature])*
        #[inline]
        #[allow(clippy::useless_transmute, reason = "a portable vector is an array")]
        fn pairs(x: Vector, f: impl Fn(f32, f32) -> f32) -> f32 {
            // SAFETY: a vector is as many floats.
            let mut x: [f32; LANES] = unsafe { std::mem::transmute(x) };
            let mut half = LANES / 2;
            while half > 0 {
                for i in 0..half {
                    x[i] = f(x[i], x[i + half]);
                }
                half /= 2;
            }
            x[0]
        }

        /// The vector at `at`, with `none` behind the end of `x`.
        $(#[$feature])*
        #[inline]
        fn ended(x: &[f32], at: usize, none: f32) -> Vector {
            let mut last = [none; LANES];
            last[..x.len() - at].copy_from_slice(&x[at..]);
            // SAFETY: an array of as many floats.
            unsafe { load(last.as_ptr()) }
        }

        /// Joins all vectors of a slice, four side by side.
        macro_rules! fold {
            ($f:ident, $x:expr, $none:expr) => {{
                let x: &[f32] = $x;
                let mut sums = [splat($none); 4];
                let mut at = 0;
                while at + 4 * LANES <= x.len() {
                    for i in 0..4 {
                        // SAFETY: four vectors are inside.
                        sums[i] = $f(sums[i], unsafe { load(x.as_ptr().add(at + i * LANES)) });
                    }
                    at += 4 * LANES;
                }
                while at + LANES <= x.len() {
                    // SAFETY: a vector is inside.
                    sums[0] = $f(sums[0], unsafe { load(x.as_ptr().add(at)) });
                    at += LANES;
                }
                if at < x.len() {
                    sums[0] = $f(sums[0], ended(x, at, $none));
                }
                $f($f(sums[0], sums[2]), $f(sums[1], sums[3]))
            }};
        }

        /// The largest element but NaN.
        ///
        /// # Safety
        /// On a machine of this level.
        $(#[$feature])*
        pub unsafe fn largest(x: &[f32]) -> f32 {
            pairs(fold!(larger, x, f32::NEG_INFINITY), |a, b| if b > a { b } else { a })
        }

        /// Joins rows.
        ///
        /// # Safety
        /// On a machine of this level.
        $(#[$feature])*
        pub unsafe fn joined(join: Join, x: &[f32], n: usize, step: usize, out: &mut [f32]) {
            let row = |i: usize| &x[i * step..][..n];
            macro_rules! extreme {
                ($f:ident, $none:expr, $op:tt) => {
                    for (i, o) in out.iter_mut().enumerate() {
                        let x = pairs(fold!($f, row(i), $none), |a, b| if b $op a { b } else { a });
                        // A sum with a NaN is NaN.
                        let known = x != 0.0 && !pairs(fold!(add, row(i), 0.0), |a, b| a + b).is_nan();
                        *o = if known { x } else { f32::NAN };
                    }
                };
            }
            match join {
                Join::Sum => {
                    for (i, o) in out.iter_mut().enumerate() {
                        *o = pairs(fold!(add, row(i), 0.0), |a, b| a + b);
                    }
                }
                Join::Largest => extreme!(larger, f32::NEG_INFINITY, >),
                Join::Smallest => extreme!(smaller, f32::INFINITY, <),
            }
        }

        /// `exp(x - shift)` of every element, and their sum.
        ///
        /// # Safety
        /// On a machine of this level; both are equally long.
        $(#[$feature])*
        pub unsafe fn exponentials(to: &mut [f32], from: &[f32], shift: f32) -> f32 {
            let shift = splat(shift);
            let mut sums = [zero(); 4];
            let mut at = 0;
            while at + 4 * LANES <= from.len() {
                let mut x = [zero(); 4];
                for i in 0..4 {
                    // SAFETY: four vectors are inside.
                    x[i] = subtract(unsafe { load(from.as_ptr().add(at + i * LANES)) }, shift);
                }
                let x = exp(x);
                for i in 0..4 {
                    sums[i] = add(sums[i], x[i]);
                    // SAFETY: as above.
                    unsafe { store(to.as_mut_ptr().add(at + i * LANES), x[i]) };
                }
                at += 4 * LANES;
            }
            let mut sum = pairs(add(add(sums[0], sums[2]), add(sums[1], sums[3])), |a, b| a + b);
            while at < from.len() {
                let len = LANES.min(from.len() - at);
                let part = Part { at, column: at, skip: 0, len };
                // SAFETY: the part is inside both.
                unsafe {
                    let [x] = exp([subtract(read(from.as_ptr().add(at), part), shift)]);
                    write(to.as_mut_ptr().add(at), part, x);
                }
                sum += to[at..at + len].iter().sum::<f32>();
                at += LANES;
            }
            sum
        }
    };
}
pub(super) use rows;
