//! Sums of products of bytes by NEON: dot products of four bytes where the processor has them, else products in sixteen bits, added in pairs.

use super::{ByteStrip, sums_of};
use crate::block_quantized::panels::LANES;
use mlc_vector::arrays::array;
use std::arch::aarch64::*;
use std::arch::asm;

/// Vectors of a word of every lane.
const VECTORS: usize = LANES / 4;

/// The products of some rows with a panel.
pub fn strip(s: &ByteStrip<'_>, out: &mut [f32]) {
    match std::arch::is_aarch64_feature_detected!("dotprod") {
        // SAFETY: the processor has the instruction.
        true => unsafe { dotted(s, out) },
        false => widened(s, out),
    }
}

/// # Safety
/// The processor has dot products of bytes.
#[target_feature(enable = "neon,dotprod")]
unsafe fn dotted(s: &ByteStrip<'_>, out: &mut [f32]) {
    let dot = |mut sums: int32x4_t, w: int8x16_t, x: int8x16_t| {
        // SAFETY: the instruction is there, by the contract, and touches no memory.
        unsafe {
            asm!(
                "sdot {sums:v}.4s, {w:v}.16b, {x:v}.16b",
                sums = inout(vreg) sums, w = in(vreg) w, x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sums
    };
    sums_of(s, out, |data, x| wide(data, x, dot), |data, x| narrow(data, x, dot));
}

/// The same of processors without dot products.
pub fn widened(s: &ByteStrip<'_>, out: &mut [f32]) {
    let dot = |sums: int32x4_t, w: int8x16_t, x: int8x16_t| {
        // SAFETY: NEON is part of the architecture.
        unsafe {
            // Products of up to 128 and 127 fit 16 bits, two of them do not.
            let low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
            let high = vpaddlq_s16(vmull_high_s8(w, x));
            vaddq_s32(sums, vpaddq_s32(low, high))
        }
    };
    sums_of(s, out, |data, x| wide(data, x, dot), |data, x| narrow(data, x, dot));
}

/// Four bytes of a line, for all lanes of a vector.
#[inline(always)]
fn four(x: &[i8]) -> int8x16_t {
    let word = i32::from_le_bytes([x[0], x[1], x[2], x[3]].map(|b| b as u8));
    // SAFETY: NEON is part of the architecture.
    unsafe { vreinterpretq_s8_s32(vdupq_n_s32(word)) }
}

/// A word of every lane.
#[inline(always)]
fn words(w: &[u32; LANES]) -> [uint8x16_t; VECTORS] {
    // SAFETY: each vector is four words of sixteen.
    array(|i| unsafe { vreinterpretq_u8_u32(vld1q_u32(w.as_ptr().add(4 * i))) })
}

/// The lanes of vectors of sums.
#[inline(always)]
fn lanes(sums: [int32x4_t; VECTORS]) -> [i32; LANES] {
    let mut out = [0; LANES];
    for (i, sums) in sums.into_iter().enumerate() {
        // SAFETY: each vector is four lanes of sixteen.
        unsafe { vst1q_s32(out.as_mut_ptr().add(4 * i), sums) };
    }
    out
}

/// Sums of words of four bytes.
#[inline(always)]
fn wide(
    data: &[u32],
    x: &[i8],
    dot: impl Fn(int32x4_t, int8x16_t, int8x16_t) -> int32x4_t,
) -> [i32; LANES] {
    // SAFETY: NEON is part of the architecture.
    let mut sums = unsafe { [vdupq_n_s32(0); VECTORS] };
    for (w, x) in data.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<4>().0) {
        let x = four(x);
        for (sums, w) in sums.iter_mut().zip(words(w)) {
            // SAFETY: as above.
            *sums = dot(*sums, unsafe { vreinterpretq_s8_u8(w) }, x);
        }
    }
    lanes(sums)
}

/// Sums of words of eight halves of bytes: the lower ones are the numbers of the first four bytes of a line.
#[inline(always)]
fn narrow(
    data: &[u32],
    x: &[i8],
    dot: impl Fn(int32x4_t, int8x16_t, int8x16_t) -> int32x4_t,
) -> [i32; LANES] {
    // SAFETY: NEON is part of the architecture.
    let (mut sums, low) = unsafe { ([vdupq_n_s32(0); VECTORS], vdupq_n_u8(15)) };
    for (w, x) in data.as_chunks::<LANES>().0.iter().zip(x.as_chunks::<8>().0) {
        let (a, b) = (four(&x[..4]), four(&x[4..]));
        for (sums, w) in sums.iter_mut().zip(words(w)) {
            // SAFETY: as above.
            let (even, odd) = unsafe { (vandq_u8(w, low), vshrq_n_u8::<4>(w)) };
            // SAFETY: as above.
            let (even, odd) = unsafe { (vreinterpretq_s8_u8(even), vreinterpretq_s8_u8(odd)) };
            *sums = dot(dot(*sums, even, a), odd, b);
        }
    }
    lanes(sums)
}
