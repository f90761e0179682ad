//! Many floats of 16 bits to and from 64 bits, rounded once, to nearest even.
//!
//! Instructions convert from and to 32 bits only, and rounding twice may miss the nearest float: they are used for what 32 bits
//! hold exactly, as they hold what 16 bits do and the products of two such numbers; all else is rounded one by one.

use super::dtype::DType;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

/// Numbers that are converted together.
const BLOCK: usize = 256;

/// A type of 16 bits.
trait Half: Copy {
    /// The nearest one, to even.
    fn nearest(v: f64) -> Self;
    fn all_from(from: &[f32], to: &mut [Self]);
    fn all_to(from: &[Self], to: &mut [f32]);
    fn seen(bits: &[u16]) -> &[Self];
    fn bits(self) -> u16;
    const ZERO: Self;
}

macro_rules! half_of {
    ($t:ident) => {
        impl Half for $t {
            const ZERO: $t = $t::ZERO;
            fn nearest(v: f64) -> $t {
                $t::from_f64_const(v)
            }
            fn all_from(from: &[f32], to: &mut [$t]) {
                to.convert_from_f32_slice(from);
            }
            fn all_to(from: &[$t], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }
            fn seen(bits: &[u16]) -> &[$t] {
                bits.reinterpret_cast()
            }
            fn bits(self) -> u16 {
                self.to_bits()
            }
        }
    };
}
half_of!(f16);
half_of!(bf16);

/// Rounds a block of numbers.
fn rounded<'h, H: Half>(block: &[f64], halves: &'h mut [H; BLOCK]) -> &'h [H] {
    let halves = &mut halves[..block.len()];
    let mut floats = [0.0f32; BLOCK];
    let mut is_exact = true;
    for (to, v) in floats.iter_mut().zip(block) {
        *to = *v as f32;
        is_exact &= f64::from(*to) == *v;
    }
    if is_exact {
        H::all_from(&floats[..block.len()], halves);
    } else {
        halves.iter_mut().zip(block).for_each(|(to, v)| *to = H::nearest(*v));
    }
    halves
}

fn encoded_as<H: Half>(values: &[f64]) -> Vec<u8> {
    let mut halves = [H::ZERO; BLOCK];
    let mut out = Vec::with_capacity(2 * values.len());
    for block in values.chunks(BLOCK) {
        out.extend(rounded(block, &mut halves).iter().flat_map(|h| h.bits().to_le_bytes()));
    }
    out
}

fn round_as<H: Half>(values: &mut [f64]) {
    let (mut halves, mut floats) = ([H::ZERO; BLOCK], [0.0f32; BLOCK]);
    for block in values.chunks_mut(BLOCK) {
        H::all_to(rounded(block, &mut halves), &mut floats[..block.len()]);
        block.iter_mut().zip(&floats).for_each(|(to, f)| *to = f64::from(*f));
    }
}

fn decoded_as<H: Half>(bytes: &[u8]) -> Vec<f32> {
    let mut bits = [0u16; BLOCK];
    let mut out = vec![0.0; bytes.len() / 2];
    for (block, to) in bytes.chunks(2 * BLOCK).zip(out.chunks_mut(BLOCK)) {
        let each = block.as_chunks::<2>().0;
        bits.iter_mut().zip(each).for_each(|(to, b)| *to = u16::from_le_bytes(*b));
        H::all_to(H::seen(&bits[..to.len()]), to);
    }
    out
}

/// Numbers as elements of a type of 16 bits, which they are rounded to; `None` for other types.
pub(super) fn encoded(dtype: DType, values: &[f64]) -> Option<Vec<u8>> {
    match dtype {
        DType::F16 => Some(encoded_as::<f16>(values)),
        DType::BF16 => Some(encoded_as::<bf16>(values)),
        _ => None,
    }
}

/// Elements of a type of 16 bits; `None` for other types.
pub(super) fn decoded(dtype: DType, bytes: &[u8]) -> Option<Vec<f32>> {
    match dtype {
        DType::F16 => Some(decoded_as::<f16>(bytes)),
        DType::BF16 => Some(decoded_as::<bf16>(bytes)),
        _ => None,
    }
}

/// Rounds numbers to a float type of 16 bits; false, and nothing is done, for other types.
pub fn round(dtype: DType, values: &mut [f64]) -> bool {
    match dtype {
        DType::F16 => round_as::<f16>(values),
        DType::BF16 => round_as::<bf16>(values),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact numbers, ties, ties of 32 bits that are none of 64, ends of the range, and what is no number.
    fn values(count: usize) -> Vec<f64> {
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            65504.0,
            65519.99,
            65520.0,
            1e9,
            -1e300,
            6e-8,
            2.98e-8,
            1e-45,
            f64::INFINITY,
            f64::NAN,
        ];
        let tie = 1.0 + 2f64.powi(-11);
        let near = [
            tie,
            tie + 2f64.powi(-40),
            tie - 2f64.powi(-40),
            1.0 + 3.0 * 2f64.powi(-9) + 2f64.powi(-33),
        ];
        let mut state = 1u64;
        let mut out: Vec<f64> = special.into_iter().chain(near).collect();
        while out.len() < count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let v = (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
            out.push(if state & (1 << 60) == 0 { v } else { f64::from(f16::from_f32(v as f32)) });
        }
        out
    }

    #[test]
    fn many_are_rounded_as_one_is() {
        for count in [18, 255, 256, 257, 2000] {
            let all = values(count);
            for dtype in [DType::F16, DType::BF16] {
                let one = |v: f64| match dtype {
                    DType::F16 => {
                        (f16::from_f64_const(v).to_bits(), f16::from_f64_const(v).to_f64())
                    }
                    _ => (bf16::from_f64_const(v).to_bits(), bf16::from_f64_const(v).to_f64()),
                };
                let bytes = encoded(dtype, &all).expect("of 16 bits");
                let (mut rounded, back) =
                    (all.clone(), decoded(dtype, &bytes).expect("of 16 bits"));
                assert!(round(dtype, &mut rounded));
                for (i, v) in all.iter().enumerate() {
                    let bits = u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]);
                    assert!(bits == one(*v).0, "{dtype} {v}: {bits:x}");
                    assert!(rounded[i].to_bits() == one(*v).1.to_bits(), "{dtype} {v}");
                    assert!(f64::from(back[i]).to_bits() == one(*v).1.to_bits(), "{dtype} {v}");
                }
                // All alike are exact in 32 bits.
                let exact: Vec<f64> = all.iter().map(|v| f64::from(*v as f32)).collect();
                let bytes = encoded(dtype, &exact).expect("of 16 bits");
                assert!(
                    exact
                        .iter()
                        .enumerate()
                        .all(|(i, v)| bytes[2 * i..][..2] == one(*v).0.to_le_bytes())
                );
            }
        }
        assert!(!round(DType::F32, &mut [1.0]) && encoded(DType::F64, &[]).is_none());
    }
}
