//! Element types: by NumPy's numbers, by name, and as ONNX Runtime calls them.

use mlc_rewrite::DType;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::ffi::c_int;

/// The type that a number of NumPy's stands for; `None` for those that are no numbers, or that other packages add.
pub fn of_number(number: c_int) -> Option<DType> {
    let long = std::ffi::c_long::BITS == 64;
    Some(match number {
        0 => DType::Bool,
        1 => DType::I8,
        2 => DType::U8,
        3 => DType::I16,
        4 => DType::U16,
        5 => DType::I32,
        6 => DType::U32,
        7 => {
            if long {
                DType::I64
            } else {
                DType::I32
            }
        }
        8 => {
            if long {
                DType::U64
            } else {
                DType::U32
            }
        }
        9 => DType::I64,
        10 => DType::U64,
        11 => DType::F32,
        12 => DType::F64,
        23 => DType::F16,
        _ => return None,
    })
}

/// What NumPy, or the package `ml_dtypes`, calls a type; texts are objects.
pub fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
        DType::F8E4M3FN => "float8_e4m3fn",
        DType::F8E4M3FNUZ => "float8_e4m3fnuz",
        DType::F8E5M2 => "float8_e5m2",
        DType::F8E5M2FNUZ => "float8_e5m2fnuz",
        DType::F8E8M0 => "float8_e8m0fnu",
        DType::F6E2M3 => "float6_e2m3fn",
        DType::F6E3M2 => "float6_e3m2fn",
        DType::F4E2M1 => "float4_e2m1fn",
        DType::I4 => "int4",
        DType::U4 => "uint4",
        DType::I2 => "int2",
        DType::U2 => "uint2",
        DType::Str => "object",
    }
}

/// The type of a name, as `name` gives it.
pub fn of_name(wanted: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|d| name(*d) == wanted)
}

/// True for the types that NumPy has by itself.
pub fn is_of_numpy(dtype: DType) -> bool {
    !dtype.is_small() && !matches!(dtype, DType::BF16 | DType::Str)
}

/// NumPy's own type whose elements have the bits of this one's.
pub fn of_bits(dtype: DType) -> DType {
    match dtype {
        DType::BF16 => DType::U16,
        small if small.is_small() => DType::U8,
        other => other,
    }
}

/// NumPy's object for one of its own types.
///
/// # Errors
/// NumPy cannot be imported.
pub fn object(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    static KNOWN: PyOnceLock<Vec<(DType, Py<PyAny>)>> = PyOnceLock::new();
    let known = KNOWN.get_or_try_init(py, || {
        let make = PyModule::import(py, "numpy")?.getattr("dtype")?;
        let own = DType::ALL.into_iter().filter(|d| is_of_numpy(*d));
        let made = own.map(|d| Ok((d, make.call1((name(d),))?.unbind())));
        made.collect::<PyResult<Vec<_>>>()
    })?;
    let bits = of_bits(dtype);
    let found = known.iter().find(|(d, _)| *d == bits);
    let found = found.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err(name(dtype)))?;
    Ok(found.1.bind(py).clone())
}
