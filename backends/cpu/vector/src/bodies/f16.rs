//! Widens f16 and bf16 to f32, for any kind of vector.

use crate::simd::{VectorLevel, level};
use crate::tile::at_level;
use half::{bf16, f16};

/// A 16-bit float type.
pub trait HalfFloat: Copy + Sync + 'static {
    /// Writes numbers as f32.
    ///
    /// # Panics
    /// Unless there is a result for each of them.
    fn widen(from: &[Self], to: &mut [f32]);
}

impl HalfFloat for f16 {
    fn widen(from: &[f16], to: &mut [f32]) {
        assert_eq!(from.len(), to.len(), "a result per element");
        at_level!(widen_f16(from, to));
    }
}

impl HalfFloat for bf16 {
    fn widen(from: &[bf16], to: &mut [f32]) {
        assert_eq!(from.len(), to.len(), "a result per element");
        at_level!(widen_bf16(from, to));
    }
}

/// Defines what can be loaded as a vector, and `widen_f16` and `widen_bf16`, for a level, whose module defines `Vector`, `LANES` and the
/// operations on it.
macro_rules! half_floats {
    ($(#[$feature:meta])*) => {
        use half::{bf16, f16};

        /// What a vector can be loaded from.
        trait Element: Copy {
            /// A vector of the same numbers; the bits of NaN need not stay.
            ///
            /// # Safety
            /// As many elements at `at` are valid for reads; this level is that of the machine.
            unsafe fn vector(at: *const Self) -> Vector;
        }

        macro_rules! element {
            ($type:ident, $load:ident) => {
                impl Element for $type {
                    $(#[$feature])*
                    #[inline]
                    unsafe fn vector(at: *const $type) -> Vector {
                        // SAFETY: as promised.
                        unsafe { $load(at) }
                    }
                }
            };
        }
        element!(f32, load);
        element!(f16, load_f16);
        element!(bf16, load_bf16);

        /// # Safety
        /// This level is that of the machine; there is a result for each element.
        $(#[$feature])*
        pub unsafe fn widen_f16(from: &[f16], to: &mut [f32]) {
            // SAFETY: as promised.
            unsafe { widen(from, to) }
        }

        /// # Safety
        /// This level is that of the machine; there is a result for each element.
        $(#[$feature])*
        pub unsafe fn widen_bf16(from: &[bf16], to: &mut [f32]) {
            // SAFETY: as promised.
            unsafe { widen(from, to) }
        }

        /// Writes the elements as f32.
        ///
        /// # Safety
        /// As [`widen_f16`].
        $(#[$feature])*
        #[inline]
        unsafe fn widen<T: Element>(from: &[T], to: &mut [f32]) {
            /// Elements that are written without a question between them: a line of a cache.
            const LINE: usize = 32;
            let (lines, rest) = from.as_chunks::<LINE>();
            let (results, rest_of_results) = to.as_chunks_mut::<LINE>();
            for (from, to) in lines.iter().zip(results) {
                for i in (0..LINE).step_by(LANES) {
                    // SAFETY: a vector of the line.
                    unsafe { store(to.as_mut_ptr().add(i), T::vector(from.as_ptr().add(i))) };
                }
            }
            for (from, to) in rest.chunks_exact(LANES).zip(rest_of_results.chunks_exact_mut(LANES)) {
                // SAFETY: a vector of each.
                unsafe { store(to.as_mut_ptr(), T::vector(from.as_ptr())) };
            }
        }
    };
}
pub(crate) use half_floats;
