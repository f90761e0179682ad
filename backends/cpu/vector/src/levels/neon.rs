//! Vectors on NEON, which every machine of its architecture has: thirty-two of four elements.

use std::arch::aarch64::*;
use std::arch::asm;

type Vector = float32x4_t;
const LANES: usize = 4;

// Up to 24 sums, so that a load for the next step does not wait for the last multiplication: elements of the left operand come into six registers.
crate::bodies::tiles::tiles!(#[target_feature(enable = "neon")], [1 2 3 4 5 6 7 8 9 10 11 12], [(1, 8) (2, 8) (3, 8) (4, 6)], [(1, 4) (2, 4) (3, 4) (4, 4) (5, 4) (6, 4)]);
crate::bodies::functions::functions!(#[target_feature(enable = "neon")]);
crate::bodies::rows::rows!(#[target_feature(enable = "neon")]);
crate::bodies::fused_rows::fused_rows!(#[target_feature(enable = "neon")]);
crate::bodies::strided_rows::strided_rows!(#[target_feature(enable = "neon")]);
crate::bodies::norms::norms!(#[target_feature(enable = "neon")]);
crate::bodies::pools::pools!(#[target_feature(enable = "neon")]);
crate::bodies::planes::planes!(#[target_feature(enable = "neon")]);
crate::bodies::winograd::winograd!(#[target_feature(enable = "neon")]);
crate::bodies::peak::peak!(#[target_feature(enable = "neon")]);
crate::bodies::f16::half_floats!(#[target_feature(enable = "neon")]);
crate::bodies::window_rows::window_rows!(#[target_feature(enable = "neon")]);

/// Defines operations on vectors.
macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty { $body:expr })*) => {
        $($(#[$doc])*
        #[target_feature(enable = "neon")]
        #[inline]
        fn $name($($arg: $ty),*) -> $out {
            $body
        })*
    };
}

operations! {
    fn zero() -> Vector { splat(0.0) }
    fn splat(x: f32) -> Vector { vdupq_n_f32(x) }
    fn multiply_add(x: Vector, y: Vector, sum: Vector) -> Vector { vfmaq_f32(sum, x, y) }
    /// The elements with even index of both, one after the other.
    fn evens(x: Vector, y: Vector) -> Vector { vuzp1q_f32(x, y) }
    /// The elements with odd index of both, one after the other.
    fn odds(x: Vector, y: Vector) -> Vector { vuzp2q_f32(x, y) }
    fn add(x: Vector, y: Vector) -> Vector { vaddq_f32(x, y) }
    fn subtract(x: Vector, y: Vector) -> Vector { vsubq_f32(x, y) }
    /// True if all elements are zeros.
    fn all_zero(x: Vector) -> bool { vminvq_u32(vceqzq_f32(x)) != 0 }
    fn multiply(x: Vector, y: Vector) -> Vector { vmulq_f32(x, y) }
    /// The larger; `x` if it is NaN, or if both are zeros. The instruction for it yields NaN if `y` is.
    fn larger(x: Vector, y: Vector) -> Vector { above(y, x, y, x) }
    /// The smaller; `x` if it is NaN, or if both are zeros.
    fn smaller(x: Vector, y: Vector) -> Vector { above(x, y, y, x) }
    /// The product and the sum, rounded once.
    fn fused(x: Vector, y: Vector, z: Vector) -> Vector { vfmaq_f32(z, x, y) }
    /// The elements of a table at the places that the lowest four bits count.
    fn lookup(table: &[f32; 16], places: Vector) -> Vector {{
        let places = vandq_u32(vreinterpretq_u32_f32(places), vdupq_n_u32(15));
        // Numbers of the bytes of each element.
        let bytes = vaddq_u32(vmulq_u32(places, vdupq_n_u32(0x0404_0404)), vdupq_n_u32(0x0302_0100));
        // SAFETY: the table is four vectors.
        let table = unsafe { vld1q_u8_x4(table.as_ptr().cast()) };
        vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_u32(bytes)))
    }}
    fn divide(x: Vector, y: Vector) -> Vector { vdivq_f32(x, y) }
    /// Magnitudes of `x` with the signs of `sign`.
    fn with_sign(x: Vector, sign: Vector) -> Vector { vbslq_f32(vdupq_n_u32(1 << 31), sign, x) }
    /// `a` where `x` is larger than `y`, else `b`.
    fn above(x: Vector, y: Vector, a: Vector, b: Vector) -> Vector { vbslq_f32(vcgtq_f32(x, y), a, b) }
    /// `a` where the sign of `x` is set, else `b`.
    fn by_sign(x: Vector, a: Vector, b: Vector) -> Vector { vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x)), a, b) }
    /// `x` times two to the power of integers from -150 to 64, which are the low bits of `biased` less 190.
    fn scale_down(x: Vector, _power: Vector, biased: Vector) -> Vector {{
        let raised = vshlq_n_s32::<23>(vreinterpretq_s32_f32(biased));
        // One factor is 2^63 too much, so that only the second product may be too small to be exact.
        multiply(multiply(x, vreinterpretq_f32_s32(raised)), splat(f32::from_bits(64 << 23)))
    }}
    /// `x` times two to the power of integers of at most 200, which are the low bits of `biased` less twice the bias of exponents.
    fn scale(x: Vector, _power: Vector, biased: Vector) -> Vector {{
        let n = vreinterpretq_s32_f32(biased);
        let half = vshrq_n_s32::<1>(n);
        // The shift leaves the lowest nine bits, the exponents of two factors.
        let a = vshlq_n_s32::<23>(half);
        let b = vshlq_n_s32::<23>(vsubq_s32(n, half));
        multiply(multiply(x, vreinterpretq_f32_s32(a)), vreinterpretq_f32_s32(b))
    }}
}

/// Element `c` of each group of `Q` elements, in all places of the group; `Q` divides the lanes.
#[target_feature(enable = "neon")]
#[inline]
fn spread<const Q: usize>(x: Vector, c: usize) -> Vector {
    match (Q, c) {
        (2, 0) => vtrn1q_f32(x, x),
        (2, _) => vtrn2q_f32(x, x),
        (_, 0) => vdupq_laneq_f32::<0>(x),
        (_, 1) => vdupq_laneq_f32::<1>(x),
        (_, 2) => vdupq_laneq_f32::<2>(x),
        _ => vdupq_laneq_f32::<3>(x),
    }
}

/// Fetches what is there into the first-level cache; any address will do.
#[inline]
fn prefetch(at: *const f32) {
    // SAFETY: the instruction accesses nothing.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) at.addr(), options(nomem, nostack, preserves_flags))
    }
}

/// Fetches what is there into the second-level cache; any address will do.
#[inline]
fn prefetch_later(at: *const f32) {
    // SAFETY: the instruction accesses nothing.
    unsafe {
        asm!("prfm pldl2keep, [{}]", in(reg) at.addr(), options(nomem, nostack, preserves_flags))
    }
}

/// The same for what will be written.
#[inline]
fn prefetch_to_write(at: *const f32) {
    // SAFETY: the instruction accesses nothing.
    unsafe {
        asm!("prfm pstl1keep, [{}]", in(reg) at.addr(), options(nomem, nostack, preserves_flags))
    }
}

/// # Safety
/// A vector at `at` is valid for reads.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load(at: *const f32) -> Vector {
    // SAFETY: as promised.
    unsafe { vld1q_f32(at) }
}

/// # Safety
/// A vector at `at` is valid for writes.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn store(at: *mut f32, x: Vector) {
    // SAFETY: as promised.
    unsafe { vst1q_f32(at, x) }
}

/// The number of each byte of a vector.
#[target_feature(enable = "neon")]
#[inline]
fn bytes() -> uint8x16_t {
    vreinterpretq_u8_u64(vcombine_u64(
        vcreate_u64(0x0706_0504_0302_0100),
        vcreate_u64(0x0f0e_0d0c_0b0a_0908),
    ))
}

/// # Safety
/// A vector of f16 at `at` is valid for reads.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load_f16(at: *const f16) -> Vector {
    let wide;
    // SAFETY: as promised; the instruction accesses registers.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) vld1_u16(at.cast()), options(pure, nomem, nostack, preserves_flags))
    }
    wide
}

/// # Safety
/// A vector of bf16 at `at` is valid for reads.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load_bf16(at: *const bf16) -> Vector {
    // SAFETY: as promised.
    vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(unsafe { vld1_u16(at.cast()) })))
}

/// # Safety
/// The elements that count of the vector at `at` are valid for reads.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load_part(at: *const f32, part: VectorSpan) -> Vector {
    let VectorSpan { skip, len, .. } = part;
    match len {
        0 => return zero(),
        // SAFETY: all elements count.
        LANES => return unsafe { load(at) },
        _ => {}
    }
    let at = at.wrapping_add(skip);
    // The first, the middle and the last of up to three elements, which may be the same.
    // SAFETY: elements that count.
    let x = unsafe {
        let x = vld1q_lane_f32::<0>(at, zero());
        let x = vld1q_lane_f32::<1>(at.add(len / 2), x);
        vld1q_lane_f32::<2>(at.add(len - 1), x)
    };
    // Where each byte lies in the part, if it does.
    let from = vsubq_u8(bytes(), vdupq_n_u8(4 * skip as u8));
    let moved = vqtbl1q_u8(vreinterpretq_u8_f32(x), from);
    vreinterpretq_f32_u8(vandq_u8(moved, vcltq_u8(from, vdupq_n_u8(4 * len as u8))))
}

/// # Safety
/// The elements that count of the vector at `at` are valid for writes.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn store_part(at: *mut f32, part: VectorSpan, x: Vector) {
    let VectorSpan { skip, len, .. } = part;
    match len {
        0 => return,
        // SAFETY: all elements count.
        LANES => return unsafe { store(at, x) },
        _ => {}
    }
    let at = at.wrapping_add(skip);
    let from = vaddq_u8(bytes(), vdupq_n_u8(4 * skip as u8));
    let x = vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(x), from));
    // The last of up to three elements, the middle and the first: what does not count is overwritten by what does.
    // SAFETY: elements that count.
    unsafe {
        vst1q_lane_f32::<2>(at.add(len - 1), x);
        vst1q_lane_f32::<1>(at.add(len / 2), x);
        vst1q_lane_f32::<0>(at, x);
    }
}
