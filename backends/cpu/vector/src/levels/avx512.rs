//! Vectors on AVX-512: thirty-two of sixteen elements. All functions have the same target features: one is not compiled into another that has fewer.

use crate::arrays::array;
use std::arch::x86_64::*;

type Vector = __m512;
const LANES: usize = 16;

crate::bodies::tiles::tiles!(#[target_feature(enable = "avx512f,avx512dq")], [1 2 3 4 5 6 7 8 9 10 11 12 13 14], [(1, 8) (2, 8) (3, 8) (4, 6)], [(1, 4) (2, 4) (3, 4) (4, 4) (5, 4) (6, 4)]);
crate::bodies::functions::functions!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::rows::rows!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::fused_rows::fused_rows!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::strided_rows::strided_rows!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::norms::norms!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::pools::pools!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::planes::planes!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::winograd::winograd!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::peak::peak!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::f16::half_floats!(#[target_feature(enable = "avx512f,avx512dq")]);
crate::bodies::window_rows::window_rows!(#[target_feature(enable = "avx512f,avx512dq")]);

/// Defines operations on vectors.
macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty { $body:expr })*) => {
        $($(#[$doc])*
        #[target_feature(enable = "avx512f,avx512dq")]
        #[inline]
        fn $name($($arg: $ty),*) -> $out {
            $body
        })*
    };
}

operations! {
    fn zero() -> Vector { _mm512_setzero_ps() }
    fn splat(x: f32) -> Vector { _mm512_set1_ps(x) }
    fn multiply_add(x: Vector, y: Vector, sum: Vector) -> Vector { _mm512_fmadd_ps(x, y, sum) }
    /// The elements with even index of both, one after the other.
    fn evens(x: Vector, y: Vector) -> Vector { _mm512_permutex2var_ps(x, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), y) }
    /// The elements with odd index of both, one after the other.
    fn odds(x: Vector, y: Vector) -> Vector { _mm512_permutex2var_ps(x, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), y) }
    fn add(x: Vector, y: Vector) -> Vector { _mm512_add_ps(x, y) }
    fn subtract(x: Vector, y: Vector) -> Vector { _mm512_sub_ps(x, y) }
    /// True if all elements are zeros.
    fn all_zero(x: Vector) -> bool { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(x, zero()) == 0xffff }
    fn multiply(x: Vector, y: Vector) -> Vector { _mm512_mul_ps(x, y) }
    /// The larger; `x` if it is NaN, or if both are zeros.
    fn larger(x: Vector, y: Vector) -> Vector { _mm512_max_ps(y, x) }
    /// The smaller; `x` if it is NaN, or if both are zeros.
    fn smaller(x: Vector, y: Vector) -> Vector { _mm512_min_ps(y, x) }
    /// The product and the sum, rounded once.
    fn fused(x: Vector, y: Vector, z: Vector) -> Vector { _mm512_fmadd_ps(x, y, z) }
    /// The elements of a table at the places that the lowest four bits count.
    fn lookup(table: &[f32; 16], places: Vector) -> Vector {{
        // SAFETY: the table is a vector.
        let table = unsafe { _mm512_loadu_ps(table.as_ptr()) };
        _mm512_permutexvar_ps(_mm512_castps_si512(places), table)
    }}
    fn divide(x: Vector, y: Vector) -> Vector { _mm512_div_ps(x, y) }
    /// Magnitudes of `x` with the signs of `sign`.
    fn with_sign(x: Vector, sign: Vector) -> Vector {{
        let bit = _mm512_castps_si512(splat(-0.0));
        let (x, sign) = (_mm512_castps_si512(x), _mm512_castps_si512(sign));
        // The bit of `sign` where `bit` is set, else that of `x`.
        _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xd8>(x, sign, bit))
    }}
    /// `a` where `x` is larger than `y`, else `b`.
    fn above(x: Vector, y: Vector, a: Vector, b: Vector) -> Vector { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, y), b, a) }
    /// `a` where the sign of `x` is set, else `b`.
    fn by_sign(x: Vector, a: Vector, b: Vector) -> Vector {{
        let signs = _mm512_test_epi32_mask(_mm512_castps_si512(x), _mm512_castps_si512(splat(-0.0)));
        _mm512_mask_blend_ps(signs, b, a)
    }}
    /// `x` times two to the power of integers.
    fn scale_down(x: Vector, power: Vector, biased: Vector) -> Vector { scale(x, power, biased) }
    /// `x` times two to the power of integers.
    fn scale(x: Vector, power: Vector, _biased: Vector) -> Vector { _mm512_scalef_ps(x, power) }
}

/// Element `c` of each group of `Q` elements, in all places of the group; `Q` divides the lanes.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn spread<const Q: usize>(x: Vector, c: usize) -> Vector {
    let from: [i32; LANES] = array(|lane| (lane / Q * Q + c) as i32);
    // SAFETY: an array of as many lanes.
    let from = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
    // Within quarters of a vector the two lowest bits count.
    if Q <= 4 { _mm512_permutevar_ps(x, from) } else { _mm512_permutexvar_ps(from, x) }
}

/// Fetches what is there into the first-level cache; any address will do.
#[inline]
fn prefetch(at: *const f32) {
    // SAFETY: every machine of this architecture has the instruction, which accesses nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

/// Fetches what is there into the second-level cache; any address will do.
#[inline]
fn prefetch_later(at: *const f32) {
    // SAFETY: every machine of this architecture has the instruction, which accesses nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
}

/// The same for what will be written.
#[inline]
fn prefetch_to_write(at: *const f32) {
    // SAFETY: where the instruction is missing it does nothing, and it accesses nothing.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(at.cast()) }
}

/// # Safety
/// A vector at `at` is valid for reads.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn load(at: *const f32) -> Vector {
    // SAFETY: as promised.
    unsafe { _mm512_loadu_ps(at) }
}

/// # Safety
/// A vector at `at` is valid for writes.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn store(at: *mut f32, x: Vector) {
    // SAFETY: as promised.
    unsafe { _mm512_storeu_ps(at, x) }
}

/// # Safety
/// A vector of f16 at `at` is valid for reads.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn load_f16(at: *const f16) -> Vector {
    // SAFETY: as promised.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
}

/// # Safety
/// A vector of bf16 at `at` is valid for reads.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn load_bf16(at: *const bf16) -> Vector {
    // SAFETY: as promised.
    let bits = _mm512_cvtepu16_epi32(unsafe { _mm256_loadu_si256(at.cast()) });
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
}

/// The elements of a vector that count.
#[inline]
fn mask(part: VectorSpan) -> __mmask16 {
    (((1u32 << part.len) - 1) << part.skip) as __mmask16
}

/// # Safety
/// The elements that count of the vector at `at` are valid for reads.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn load_part(at: *const f32, part: VectorSpan) -> Vector {
    // SAFETY: the mask confines the access.
    unsafe { _mm512_maskz_loadu_ps(mask(part), at) }
}

/// # Safety
/// The elements that count of the vector at `at` are valid for writes.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn store_part(at: *mut f32, part: VectorSpan, x: Vector) {
    // SAFETY: the mask confines the access.
    unsafe { _mm512_mask_storeu_ps(at, mask(part), x) }
}
