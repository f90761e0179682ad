//! Register tiles of products of bytes on NEON, by the instructions that add four products to a sum: both sides are signed there, or neither is.
//!
//! So the columns are shifted by 128 to bytes of the rows' kind, and what that adds to a sum is 128 times the sum of the row's bytes.

use super::{CheckedTile, LANES};
use std::arch::aarch64::*;
use std::arch::asm;

/// Columns of a vector.
const WIDE: usize = 4;
const VECTORS: usize = LANES / WIDE;

/// Computes a tile whose rows are signed, or its columns.
///
/// # Safety
/// As [`super::tile`] asserts; the machine has the instructions.
pub unsafe fn tile<const LEFT: bool>(t: &CheckedTile<'_>, count: usize, vectors: usize) {
    // SAFETY: by the contract.
    unsafe {
        match count {
            1 => rows::<LEFT, 1>(t, vectors),
            2 => rows::<LEFT, 2>(t, vectors),
            3 => rows::<LEFT, 3>(t, vectors),
            4 => rows::<LEFT, 4>(t, vectors),
            5 => rows::<LEFT, 5>(t, vectors),
            _ => rows::<LEFT, 6>(t, vectors),
        }
    }
}

/// # Safety
/// As [`tile`].
#[target_feature(enable = "neon,dotprod")]
unsafe fn rows<const LEFT: bool, const R: usize>(t: &CheckedTile<'_>, vectors: usize) {
    // SAFETY: rows, groups and columns are inside the tile.
    unsafe {
        let mut begin = [0; R];
        for (r, begin) in begin.iter_mut().enumerate() {
            let row = std::slice::from_raw_parts(t.a.add(r * t.lead), 4 * t.offsets.len());
            let own = |x: u8| if LEFT { x as i8 as i32 } else { -(x as i32) };
            let sum = row.iter().fold(0i32, |sum, &x| sum.wrapping_add(own(x)));
            *begin = t.start.rows[r].wrapping_add(sum.wrapping_mul(128));
        }
        for first in (0..vectors * LANES).step_by(LANES) {
            let mut sums = [[vdupq_n_s32(0); VECTORS]; R];
            for (row, &begin) in sums.iter_mut().zip(&begin) {
                for (v, s) in row.iter_mut().enumerate() {
                    *s = vdupq_n_s32(begin);
                    if let Some(c) = t.start.columns {
                        *s = vaddq_s32(*s, vld1q_s32(c.as_ptr().add(first + v * WIDE)));
                    }
                }
            }
            for (g, &o) in t.offsets.iter().enumerate() {
                let mut b = [vdupq_n_u8(0); VECTORS];
                for (v, b) in b.iter_mut().enumerate() {
                    let bytes = vld1q_u8(t.b.add(o + first + v * WIDE).cast());
                    *b = veorq_u8(bytes, vdupq_n_u8(0x80));
                }
                for (r, row) in sums.iter_mut().enumerate() {
                    let a = f32::from_bits(t.left(r, g) as u32);
                    for (s, &b) in row.iter_mut().zip(&b) {
                        *s = add_products::<LEFT>(*s, b, a);
                    }
                }
            }
            for (r, row) in sums.iter().enumerate() {
                for (v, &s) in row.iter().enumerate() {
                    vst1q_s32(t.out.add(r * t.stride + first + v * WIDE), s);
                }
            }
        }
    }
}

/// Adds to each sum the four products of its bytes, which are signed or not, and those of `a`.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn add_products<const SIGNED: bool>(sums: int32x4_t, b: uint8x16_t, a: f32) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: instructions of registers, which the machine has.
    unsafe {
        if SIGNED {
            asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[0]", inout(vreg) sums, in(vreg) b, in(vreg) a, options(pure, nomem, nostack, preserves_flags));
        } else {
            asm!("udot {0:v}.4s, {1:v}.16b, {2:v}.4b[0]", inout(vreg) sums, in(vreg) b, in(vreg) a, options(pure, nomem, nostack, preserves_flags));
        }
    }
    sums
}
