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
    at_level!(exponentials(to.as_mut_ptr(), from.as_ptr(), from.len(), shift))
}

/// The same in place.
pub fn exponentials_of(x: &mut [f32], shift: f32) -> f32 {
    let at = x.as_mut_ptr();
    at_level!(exponentials(at, at, x.len(), shift))
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

        /// `exp(x - shift)` of `N` vectors, of which the last may be partial, added to `sums`.
        ///
        /// # Safety
        /// On a machine of this level; the elements are valid, and are either those of the result or not among them.
        $(#[$feature])*
        #[inline]
        unsafe fn exponential<const N: usize>(to: *mut f32, from: *const f32, last: usize, shift: Vector, sums: &mut [Vector; 4]) {
            let mut x = [zero(); N];
            for i in 0..N {
                // SAFETY: the vectors are inside.
                unsafe {
                    x[i] = match i + 1 < N || last == LANES {
                        true => load(from.add(i * LANES)),
                        // Elements that do not count are exponentials of minus infinity, which add nothing.
                        false => ended(std::slice::from_raw_parts(from, i * LANES + last), i * LANES, f32::NEG_INFINITY),
                    };
                }
                x[i] = subtract(x[i], shift);
            }
            let x = exp(x);
            for i in 0..N {
                sums[i] = add(sums[i], x[i]);
                let len = if i + 1 < N { LANES } else { last };
                // SAFETY: as above.
                unsafe { write(to.add(i * LANES), Part { at: 0, column: 0, skip: 0, len }, x[i]) };
            }
        }

        /// `exp(x - shift)` of every element, and their sum.
        ///
        /// # Safety
        /// On a machine of this level; `len` elements are valid at both places, which are the same or do not overlap.
        $(#[$feature])*
        pub unsafe fn exponentials(to: *mut f32, from: *const f32, len: usize, shift: f32) -> f32 {
            let shift = splat(shift);
            let mut sums = [zero(); 4];
            let mut at = 0;
            while at < len {
                let left = len - at;
                let last = if left >= 4 * LANES { LANES } else { (left - 1) % LANES + 1 };
                // SAFETY: as many vectors are left.
                unsafe {
                    let (to, from) = (to.add(at), from.add(at));
                    match left.div_ceil(LANES) {
                        1 => exponential::<1>(to, from, last, shift, &mut sums),
                        2 => exponential::<2>(to, from, last, shift, &mut sums),
                        3 => exponential::<3>(to, from, last, shift, &mut sums),
                        _ => exponential::<4>(to, from, last, shift, &mut sums),
                    }
                }
                at += 4 * LANES;
            }
            pairs(add(add(sums[0], sums[2]), add(sums[1], sums[3])), |a, b| a + b)
        }
    };
}
pub(super) use rows;
