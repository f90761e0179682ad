//! Vectors on AVX2 with fused multiply-add: sixteen of eight elements.

use crate::arrays::array;
use std::arch::x86_64::*;

type Vector = __m256;
const LANES: usize = 8;

crate::bodies::tiles::tiles!(#[target_feature(enable = "avx2,fma,f16c")], [1 2 3 4 5 6], [(1, 8) (2, 6) (3, 4)], []);
crate::bodies::functions::functions!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::rows::rows!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::fused_rows::fused_rows!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::strided_rows::strided_rows!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::norms::norms!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::pools::pools!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::planes::planes!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::winograd::winograd!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::peak::peak!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::f16::half_floats!(#[target_feature(enable = "avx2,fma,f16c")]);
crate::bodies::window_rows::window_rows!(#[target_feature(enable = "avx2,fma,f16c")]);

/// Defines operations on vectors.
macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty { $body:expr })*) => {
        $($(#[$doc])*
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline]
        fn $name($($arg: $ty),*) -> $out {
            $body
        })*
    };
}

operations! {
    fn zero() -> Vector { _mm256_setzero_ps() }
    fn splat(x: f32) -> Vector { _mm256_set1_ps(x) }
    fn multiply_add(x: Vector, y: Vector, sum: Vector) -> Vector { _mm256_fmadd_ps(x, y, sum) }
    /// The elements with even index of both, one after the other.
    fn evens(x: Vector, y: Vector) -> Vector { _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(_mm256_shuffle_ps::<0b10_00_10_00>(x, y)))) }
    /// The elements with odd index of both, one after the other.
    fn odds(x: Vector, y: Vector) -> Vector { _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(_mm256_shuffle_ps::<0b11_01_11_01>(x, y)))) }
    fn add(x: Vector, y: Vector) -> Vector { _mm256_add_ps(x, y) }
    fn subtract(x: Vector, y: Vector) -> Vector { _mm256_sub_ps(x, y) }
    /// True if all elements are zeros.
    fn all_zero(x: Vector) -> bool { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(x, zero())) == 0xff }
    fn multiply(x: Vector, y: Vector) -> Vector { _mm256_mul_ps(x, y) }
    /// The larger; `x` if it is NaN, or if both are zeros.
    fn larger(x: Vector, y: Vector) -> Vector { _mm256_max_ps(y, x) }
    /// The smaller; `x` if it is NaN, or if both are zeros.
    fn smaller(x: Vector, y: Vector) -> Vector { _mm256_min_ps(y, x) }
    /// The product and the sum, rounded once.
    fn fused(x: Vector, y: Vector, z: Vector) -> Vector { _mm256_fmadd_ps(x, y, z) }
    /// The elements of a table at the places that the lowest four bits count.
    fn lookup(table: &[f32; 16], places: Vector) -> Vector {{
        // SAFETY: the table is two vectors.
        let [low, high] = array(|half| unsafe { _mm256_loadu_ps(table.as_ptr().add(8 * half)) });
        let places = _mm256_castps_si256(places);
        let (low, high) = (_mm256_permutevar8x32_ps(low, places), _mm256_permutevar8x32_ps(high, places));
        // The fourth bit, as a sign.
        _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(places)))
    }}
    fn divide(x: Vector, y: Vector) -> Vector { _mm256_div_ps(x, y) }
    /// Magnitudes of `x` with the signs of `sign`.
    fn with_sign(x: Vector, sign: Vector) -> Vector {{
        let bit = splat(-0.0);
        _mm256_or_ps(_mm256_andnot_ps(bit, x), _mm256_and_ps(bit, sign))
    }}
    /// `a` where `x` is larger than `y`, else `b`.
    fn above(x: Vector, y: Vector, a: Vector, b: Vector) -> Vector { _mm256_blendv_ps(b, a, _mm256_cmp_ps::<_CMP_GT_OQ>(x, y)) }
    /// `a` where the sign of `x` is set, else `b`.
    fn by_sign(x: Vector, a: Vector, b: Vector) -> Vector { _mm256_blendv_ps(b, a, x) }
    /// `x` times two to the power of integers from -150 to 64, which are the low bits of `biased` less 190.
    fn scale_down(x: Vector, _power: Vector, biased: Vector) -> Vector {{
        let raised = _mm256_slli_epi32::<23>(_mm256_castps_si256(biased));
        // One factor is 2^63 too much, so that only the second product may be too small to be exact.
        multiply(multiply(x, _mm256_castsi256_ps(raised)), splat(f32::from_bits(64 << 23)))
    }}
    /// `x` times two to the power of integers of at most 200, which are the low bits of `biased` less twice the bias of exponents.
    fn scale(x: Vector, _power: Vector, biased: Vector) -> Vector {{
        let n = _mm256_castps_si256(biased);
        let half = _mm256_srai_epi32::<1>(n);
        // The shift leaves the lowest nine bits, the exponents of two factors.
        let a = _mm256_slli_epi32::<23>(half);
        let b = _mm256_slli_epi32::<23>(_mm256_sub_epi32(n, half));
        multiply(multiply(x, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b))
    }}
}

/// Element `c` of each group of `Q` elements, in all places of the group; `Q` divides the lanes.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn spread<const Q: usize>(x: Vector, c: usize) -> Vector {
    let from: [i32; LANES] = array(|lane| (lane / Q * Q + c) as i32);
    // SAFETY: an array of as many lanes.
    let from = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
    // Within halves of a vector the two lowest bits count.
    if Q <= 4 { _mm256_permutevar_ps(x, from) } else { _mm256_permutevar8x32_ps(x, from) }
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
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn load(at: *const f32) -> Vector {
    // SAFETY: as promised.
    unsafe { _mm256_loadu_ps(at) }
}

/// # Safety
/// A vector at `at` is valid for writes.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn store(at: *mut f32, x: Vector) {
    // SAFETY: as promised.
    unsafe { _mm256_storeu_ps(at, x) }
}

/// # Safety
/// A vector of f16 at `at` is valid for reads.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn load_f16(at: *const f16) -> Vector {
    // SAFETY: as promised.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}

/// # Safety
/// A vector of bf16 at `at` is valid for reads.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn load_bf16(at: *const bf16) -> Vector {
    // SAFETY: as promised.
    let bits = _mm256_cvtepu16_epi32(unsafe { _mm_loadu_si128(at.cast()) });
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
}

/// The elements of a vector that count, as the instructions for masked access want them.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn mask(part: VectorSpan) -> __m256i {
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let from = _mm256_set1_epi32(part.skip as i32 - 1);
    let to = _mm256_set1_epi32((part.skip + part.len) as i32);
    _mm256_and_si256(_mm256_cmpgt_epi32(lanes, from), _mm256_cmpgt_epi32(to, lanes))
}

/// # Safety
/// The elements that count of the vector at `at` are valid for reads.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn load_part(at: *const f32, part: VectorSpan) -> Vector {
    // SAFETY: the mask confines the access.
    unsafe { _mm256_maskload_ps(at, mask(part)) }
}

/// # Safety
/// The elements that count of the vector at `at` are valid for writes.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn store_part(at: *mut f32, part: VectorSpan, x: Vector) {
    // SAFETY: the mask confines the access.
    unsafe { _mm256_maskstore_ps(at, mask(part), x) }
}
