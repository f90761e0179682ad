//! Rust reference of bitcast.

use super::super::array::{Array, Elements};
use half::{bf16, f16};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{DType, Type};

/// Every element of `x` with its bits read as the type of the result, which is as wide. A number other than 0 is
/// true. The first bit of a NaN's fraction is set on the way through a wider type.
pub(crate) fn read_bits(_: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let ([x], [t]) = (args, types) else {
        return Err("one argument yields one result".into());
    };
    let (from, to) = (width(x.dtype())?, width(t.dtype)?);
    if from != to {
        return Err(format!("{} has {from} bytes and {} has {to}", x.dtype(), t.dtype));
    }
    let bits: Vec<i64> = match x.elements() {
        Elements::Float(v) => v.iter().map(|&v| float_bits(x.dtype(), v)).collect(),
        Elements::Int(v) => v.to_vec(),
    };
    let shape = x.shape().to_vec();
    let y = match t.dtype.is_float() {
        true => {
            let values = bits.into_iter().map(|b| float_of(t.dtype, b)).collect();
            Array::from_f64(t.dtype, shape, values)
        }
        false => Array::from_i64(t.dtype, shape, bits),
    };
    Ok(vec![y.ok_or("the declared type does not fit")?])
}

/// The bytes of an element whose bits are those of a number that this module knows.
fn width(dtype: DType) -> Result<usize, String> {
    match dtype.size() {
        _ if dtype == DType::Str => Err("a text has no bits".into()),
        1 if dtype.is_float() => Err(format!("the bits of {dtype} are not read as another type")),
        n => Ok(n),
    }
}

/// The bits of `v` in a floating type that [`width`] knows.
fn float_bits(dtype: DType, v: f64) -> i64 {
    match dtype {
        DType::F16 => f16::from_f64(v).to_bits().into(),
        DType::BF16 => bf16::from_f64(v).to_bits().into(),
        DType::F32 => (v as f32).to_bits().into(),
        _ => v.to_bits() as i64,
    }
}

/// The float of a type that [`width`] knows whose bits are the lowest ones of `b`.
fn float_of(dtype: DType, b: i64) -> f64 {
    match dtype {
        DType::F16 => f16::from_bits(b as u16).to_f64(),
        DType::BF16 => bf16::from_bits(b as u16).to_f64(),
        DType::F32 => f32::from_bits(b as u32).into(),
        _ => f64::from_bits(b as u64),
    }
}
