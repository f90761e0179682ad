//! Casts of whole tensors in one pass, without the detour over the registers of the pointwise interpreter.
//!
//! Every cast here yields the bits that the interpreter does; numbers for which it would not are left to that.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use mlc_dsl::ir::DType;
use mlc_vector::simd;

/// Casts all elements; false if some must be left to the interpreter, and then nothing of the result counts.
pub type Cast = fn(&[u8], &mut [u8]) -> bool;

/// The cast between two element types; none where it would gain nothing.
pub fn direct(from: DType, to: DType) -> Option<Cast> {
    let cast: Cast = match (from, to) {
        (DType::F32, DType::I8 | DType::U8) => {
            |x, out| cut::<u8>(cast_slice(x), cast_slice_mut(out))
        }
        (DType::F32, DType::I16 | DType::U16) => {
            |x, out| cut::<u16>(cast_slice(x), cast_slice_mut(out))
        }
        (DType::F32, DType::I32 | DType::U32) => {
            |x, out| cut::<i32>(cast_slice(x), cast_slice_mut(out))
        }
        (DType::F32, DType::I64 | DType::U64) => {
            |x, out| cut::<i64>(cast_slice(x), cast_slice_mut(out))
        }
        (DType::F32, DType::Bool) => float_to_bool,
        (DType::I32, DType::F32) => i32_to_float,
        (DType::I64, DType::F32) => i64_to_float,
        (DType::U8, DType::F32) => u8_to_float,
        (DType::I8, DType::F32) => i8_to_float,
        (DType::I32, DType::I64) => i32_to_i64,
        (DType::I64 | DType::U64, DType::I32 | DType::U32) => i64_to_i32,
        #[cfg(target_arch = "x86_64")]
        (DType::F16, DType::F32) if is_x86_feature_detected!("f16c") => halves::to_floats,
        #[cfg(target_arch = "x86_64")]
        (DType::F32, DType::F16) if is_x86_feature_detected!("f16c") => halves::of_floats,
        _ => return None,
    };
    Some(cast)
}

macro_rules! each {
    ($($name:ident: $from:ty => $to:ty, $f:expr;)*) => {
        $(simd! {
            fn $name(x: &[u8], out: &mut [u8]) -> bool {
                let (x, out): (&[$from], &mut [$to]) = (cast_slice(x), cast_slice_mut(out));
                let f: fn($from) -> $to = $f;
                out.iter_mut().zip(x).for_each(|(o, &x)| *o = f(x));
                true
            }
        })*
    };
}
each! {
    float_to_bool: f32 => u8, |x| (x != 0.0) as u8;
    i32_to_float: i32 => f32, |x| x as f32;
    i64_to_float: i64 => f32, |x| x as f32;
    u8_to_float: u8 => f32, |x| x as f32;
    i8_to_float: i8 => f32, |x| x as f32;
    i32_to_i64: i32 => i64, |x| x as i64;
    i64_to_i32: i64 => i32, |x| x as i32;
}

/// An integer that the low bits of a number become.
trait Low: Pod {
    fn low(x: i32) -> Self;
}

macro_rules! low {
    ($($t:ty)*) => {
        $(impl Low for $t {
            #[inline(always)]
            fn low(x: i32) -> $t {
                x as $t
            }
        })*
    };
}
low!(u8 u16 i32 i64);

simd! {
    /// Numbers cut to integers, of which the low bits stay; only numbers that 32 bits hold, and NaN, which becomes 0.
    fn cut<T: Low>(x: &[f32], out: &mut [T]) -> bool {
        /// Elements that are still in the nearest cache when they are read again.
        const BLOCK: usize = 1024;
        for (x, out) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
            if x.iter().fold(0, |far, x| far | (x.abs() >= 2147483648.0) as u32) != 0 {
                return false;
            }
            for (o, &x) in out.iter_mut().zip(x) {
                // SAFETY: every number but NaN fits.
                *o = T::low(if x.is_nan() { 0 } else { unsafe { x.to_int_unchecked::<i32>() } });
            }
        }
        true
    }
}

/// Floats of 16 bits, by the instructions for them.
#[cfg(target_arch = "x86_64")]
mod halves {
    use bytemuck::{cast_slice, cast_slice_mut};
    use half::f16;
    use std::arch::x86_64::*;

    const LANES: usize = 8;

    pub fn to_floats(x: &[u8], out: &mut [u8]) -> bool {
        // SAFETY: the caller has seen that the machine has the instructions.
        unsafe { widened(cast_slice(x), cast_slice_mut(out)) };
        true
    }

    pub fn of_floats(x: &[u8], out: &mut [u8]) -> bool {
        // SAFETY: as above.
        unsafe { narrowed(cast_slice(x), cast_slice_mut(out)) };
        true
    }

    #[target_feature(enable = "avx,f16c")]
    fn widened(x: &[u16], out: &mut [f32]) {
        let (vectors, rest) = out.as_chunks_mut::<LANES>();
        let (from, from_rest) = x.as_chunks::<LANES>();
        for (o, x) in vectors.iter_mut().zip(from) {
            // SAFETY: arrays of eight elements.
            unsafe {
                _mm256_storeu_ps(
                    o.as_mut_ptr(),
                    _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
                );
            }
        }
        rest.iter_mut().zip(from_rest).for_each(|(o, &x)| *o = f16::from_bits(x).to_f32());
    }

    #[target_feature(enable = "avx,f16c")]
    fn narrowed(x: &[f32], out: &mut [u16]) {
        let (vectors, rest) = out.as_chunks_mut::<LANES>();
        let (from, from_rest) = x.as_chunks::<LANES>();
        for (o, x) in vectors.iter_mut().zip(from) {
            // SAFETY: arrays of eight elements.
            unsafe {
                let x = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
                _mm_storeu_si128(o.as_mut_ptr().cast(), x);
            }
        }
        rest.iter_mut().zip(from_rest).for_each(|(o, &x)| *o = f16::from_f32(x).to_bits());
    }
}
