//! Element conversions that several kernels need.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use mlc_dsl::ir::DType;

/// 16-bit floats as f32.
pub fn widen(dtype: DType, bytes: &[u8], to: &mut [f32]) {
    let from: &[u16] = bytemuck::cast_slice(bytes);
    match dtype {
        DType::F16 => from.reinterpret_cast::<f16>().convert_to_f32_slice(to),
        _ => from.reinterpret_cast::<bf16>().convert_to_f32_slice(to),
    }
}

/// f32 rounded to 16-bit floats.
pub fn narrow(dtype: DType, from: &[f32], bytes: &mut [u8]) {
    let to: &mut [u16] = bytemuck::cast_slice_mut(bytes);
    match dtype {
        DType::F16 => to.reinterpret_cast_mut::<f16>().convert_from_f32_slice(from),
        _ => to.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(from),
    }
}

/// Element `at` of an integer (or bool) tensor.
pub fn int_at(dtype: DType, bytes: &[u8], at: usize) -> i64 {
    let size = dtype.size();
    let b = &bytes[at * size..][..size];
    match *b {
        [b0] if dtype == DType::I8 => b0 as i8 as i64,
        [b0] => b0 as i64,
        [b0, b1] if dtype == DType::I16 => i16::from_le_bytes([b0, b1]) as i64,
        [b0, b1] => u16::from_le_bytes([b0, b1]) as i64,
        [b0, b1, b2, b3] if dtype == DType::I32 => i32::from_le_bytes([b0, b1, b2, b3]) as i64,
        [b0, b1, b2, b3] => u32::from_le_bytes([b0, b1, b2, b3]) as i64,
        [b0, b1, b2, b3, b4, b5, b6, b7] => i64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
        _ => 0,
    }
}

/// Calls `$f!(T)` with an unsigned type of the dtype's size, for kernels that move elements.
macro_rules! by_size {
    ($dtype:expr, $f:ident) => {
        match $dtype.size() {
            1 => $f!(u8),
            2 => $f!(u16),
            4 => $f!(u32),
            _ => $f!(u64),
        }
    };
}
pub(crate) use by_size;
