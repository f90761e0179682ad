//! Converts tensors and types from the wire format.
//!
//! Raw and external elements are never copied (except `bool`s other than 0 and 1, which become 1);
//! no memory is allocated for elements that the file does not contain.

use super::error::OnnxError;
use super::packed::{is_packed, unpack};
use super::{Container, RawDim, RawType};
use crate::proto::{TensorProto, TypeProto, tensor_proto, tensor_shape_proto, type_proto};
use crate::read::data_files::DataFiles;
use bytes::Bytes;
use mlc_dsl::ir::{DType, FileRange, Tensor};
use mlc_dsl::shown;
use std::sync::Arc;
use tensor_proto::DataType;

/// The element type of a wire code: `None` if undefined, the name if unsupported.
pub(crate) fn dtype(code: i32) -> Result<Option<DType>, String> {
    let Ok(data_type) = DataType::try_from(code) else {
        return Err(format!("number {code}"));
    };
    Ok(Some(match data_type {
        DataType::Undefined => return Ok(None),
        DataType::Float => DType::F32,
        DataType::Uint8 => DType::U8,
        DataType::Int8 => DType::I8,
        DataType::Uint16 => DType::U16,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Bool => DType::Bool,
        DataType::Float16 => DType::F16,
        DataType::Double => DType::F64,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Bfloat16 => DType::BF16,
        DataType::Float8e4m3fn => DType::F8E4M3FN,
        DataType::Float8e4m3fnuz => DType::F8E4M3FNUZ,
        DataType::Float8e5m2 => DType::F8E5M2,
        DataType::Float8e5m2fnuz => DType::F8E5M2FNUZ,
        DataType::Float8e8m0 => DType::F8E8M0,
        DataType::Float6e2m3 => DType::F6E2M3,
        DataType::Float6e3m2 => DType::F6E3M2,
        DataType::Float4e2m1 => DType::F4E2M1,
        DataType::Int4 => DType::I4,
        DataType::Uint4 => DType::U4,
        DataType::Int2 => DType::I2,
        DataType::Uint2 => DType::U2,
        DataType::String => DType::Str,
        other => return Err(other.as_str_name().to_lowercase()),
    }))
}

/// The wire code of an element type.
pub(crate) fn code(dtype: DType) -> i32 {
    (match dtype {
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::F32 => DataType::Float,
        DType::F64 => DataType::Double,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::Bool => DataType::Bool,
        DType::F8E4M3FN => DataType::Float8e4m3fn,
        DType::F8E4M3FNUZ => DataType::Float8e4m3fnuz,
        DType::F8E5M2 => DataType::Float8e5m2,
        DType::F8E5M2FNUZ => DataType::Float8e5m2fnuz,
        DType::F8E8M0 => DataType::Float8e8m0,
        DType::F6E2M3 => DataType::Float6e2m3,
        DType::F6E3M2 => DataType::Float6e3m2,
        DType::F4E2M1 => DataType::Float4e2m1,
        DType::I4 => DataType::Int4,
        DType::U4 => DataType::Uint4,
        DType::I2 => DataType::Int2,
        DType::U2 => DataType::Uint2,
        DType::Str => DataType::String,
    }) as i32
}

/// A tensor of the file; `place` is how messages call it.
pub(crate) fn tensor(
    t: TensorProto,
    files: &mut DataFiles<'_>,
    place: &str,
) -> Result<Tensor, OnnxError> {
    let bad = |reason: String| OnnxError::tensor(place, reason);
    let unsupported = |type_name| OnnxError::UnsupportedType { place: place.into(), type_name };
    let dtype = match dtype(t.data_type.unwrap_or(0)) {
        Ok(Some(d)) => d,
        Ok(None) => return Err(bad("it has no element type".into())),
        Err(name) => return Err(unsupported(name)),
    };
    if t.segment.is_some() {
        return Err(OnnxError::unsupported(place, "a tensor in segments"));
    }
    let shape = shape(&t.dims, dtype).map_err(bad)?;
    let count: usize = shape.iter().product();
    let is_external = t.data_location == Some(tensor_proto::DataLocation::External as i32);
    if is_external && dtype == DType::Str {
        return Err(bad("strings are not stored in files of data".into()));
    }
    let (data, range) = if is_external {
        let (data, range) = external(&t, files, place)?;
        (unpacked(dtype, data, count).map_err(bad)?, Some(range))
    } else {
        (elements(t, dtype, count).map_err(bad)?, None)
    };
    let as_stored = dtype != DType::Bool && !is_packed(dtype);
    let large = range.filter(|_| as_stored && data.len() >= LARGE);
    let data = match dtype {
        DType::Bool if data.iter().any(|&b| b > 1) => {
            data.iter().map(|&b| (b != 0) as u8).collect()
        }
        _ => data,
    };
    let tensor = Tensor::new(dtype, shape, data).map_err(|e| bad(e.to_string()))?;
    Ok(match large {
        Some(range) => tensor.into_unread(Arc::new(range)),
        None => tensor,
    })
}

/// External tensors of so many bytes are unread until it is known how large the model is.
const LARGE: usize = 1 << 20;

/// Extents whose element count fits the memory, zeros left out of account.
pub(crate) fn shape(dims: &[i64], dtype: DType) -> Result<Vec<usize>, String> {
    let mut shape = Vec::with_capacity(dims.len());
    for &d in dims {
        let Ok(d) = usize::try_from(d) else {
            return Err(format!("extent {d} is negative"));
        };
        shape.push(d);
    }
    let mut nonzero = shape.iter().filter(|&&d| d != 0);
    let bytes = nonzero.try_fold(dtype.size(), |n, &d| n.checked_mul(d));
    match bytes {
        Some(n) if n <= isize::MAX as usize => Ok(shape),
        _ => Err(format!("extents {dims:?} make more elements than can be addressed")),
    }
}

fn external(
    t: &TensorProto,
    files: &mut DataFiles<'_>,
    place: &str,
) -> Result<(Bytes, FileRange), OnnxError> {
    let mut location = None;
    let mut offset = 0;
    let mut length = None;
    for entry in &t.external_data {
        let value = entry.value.as_deref().unwrap_or("");
        let number = || {
            value.trim().parse::<u64>().map_err(|_| {
                let key = entry.key.as_deref().unwrap_or("");
                let location = location.unwrap_or("?").to_string();
                let reason = format!("{} `{}` is not a number of bytes", shown(key), shown(value));
                OnnxError::ExternalData { tensor: place.into(), location, reason }
            })
        };
        match entry.key.as_deref().unwrap_or("") {
            "location" => location = Some(value),
            "offset" => offset = number()?,
            "length" => length = Some(number()?),
            // A checksum, or a key of a later version.
            _ => {}
        }
    }
    let Some(location) = location else {
        return Err(OnnxError::tensor(place, "its data is external but has no location"));
    };
    files.slice(location, offset, length, place)
}

/// The elements that lie within the message.
fn elements(t: TensorProto, dtype: DType, count: usize) -> Result<Bytes, String> {
    let raw = t.raw_data.filter(|r| !r.is_empty());
    let stores = [
        ("raw_data", raw.is_some()),
        ("float_data", !t.float_data.is_empty()),
        ("int32_data", !t.int32_data.is_empty()),
        ("int64_data", !t.int64_data.is_empty()),
        ("double_data", !t.double_data.is_empty()),
        ("uint64_data", !t.uint64_data.is_empty()),
        ("string_data", !t.string_data.is_empty()),
    ];
    let wanted = match dtype {
        DType::F32 => "float_data",
        DType::F64 => "double_data",
        DType::I64 => "int64_data",
        DType::U32 | DType::U64 => "uint64_data",
        DType::Str => "string_data",
        _ => "int32_data",
    };
    let full: Vec<&str> = stores.iter().filter(|s| s.1).map(|s| s.0).collect();
    match full[..] {
        [] if dtype == DType::Str && count > 0 => {}
        [] => return Ok(Bytes::new()),
        [one] if one == wanted || one == "raw_data" && dtype != DType::Str => {}
        [one] => return Err(format!("{dtype} elements do not belong in {one}")),
        _ => return Err(format!("it has elements in several places: {}", full.join(", "))),
    }
    if let Some(raw) = raw {
        return unpacked(dtype, raw, count);
    }
    let found = match wanted {
        "float_data" => t.float_data.len(),
        "double_data" => t.double_data.len(),
        "int64_data" => t.int64_data.len(),
        "uint64_data" => t.uint64_data.len(),
        "string_data" => t.string_data.len(),
        _ => t.int32_data.len(),
    };
    if dtype.bits() == 4 || dtype.bits() == 2 {
        // Every number is a byte of packed elements.
        in_range(t.int32_data.iter().map(|&v| v as i128), i8::MIN as i128, 0xff)?;
        return unpack(dtype, &pack(&t.int32_data, |v| [v as u8]), count);
    }
    if found != count {
        return Err(format!("its shape has {count} elements, {wanted} has {found}"));
    }
    Ok(match dtype {
        DType::F32 => Tensor::from_f32(vec![count], t.float_data).bytes().clone(),
        DType::F64 => pack(&t.double_data, |v| v.to_le_bytes()),
        DType::I64 => pack(&t.int64_data, |v| v.to_le_bytes()),
        DType::Str => texts(&t.string_data)?,
        DType::U64 => pack(&t.uint64_data, |v| v.to_le_bytes()),
        DType::U32 => {
            in_range(t.uint64_data.iter().map(|&v| v as i128), 0, u32::MAX as i128)?;
            pack(&t.uint64_data, |v| (v as u32).to_le_bytes())
        }
        DType::I32 => pack(&t.int32_data, |v| v.to_le_bytes()),
        // 16 bits of a float, which some writers extend by their sign.
        DType::F16 | DType::BF16 => {
            in_range(t.int32_data.iter().map(|&v| v as i128), i16::MIN as i128, 0xffff)?;
            pack(&t.int32_data, |v| (v as u16).to_le_bytes())
        }
        small if small.is_small() => {
            let most = (1i128 << small.bits()) - 1;
            in_range(t.int32_data.iter().map(|&v| v as i128), 0, most)?;
            pack(&t.int32_data, |v| [v as u8])
        }
        _ => {
            if let Some((low, high)) = dtype.int_range() {
                in_range(t.int32_data.iter().map(|&v| v as i128), low, high)?;
            }
            match dtype.size() {
                1 => pack(&t.int32_data, |v| [v as u8]),
                _ => pack(&t.int32_data, |v| (v as u16).to_le_bytes()),
            }
        }
    })
}

/// The elements that texts are.
fn texts(stored: &[Bytes]) -> Result<Bytes, String> {
    let read: Result<Vec<&str>, _> = stored.iter().map(|s| std::str::from_utf8(s)).collect();
    let texts = read.map_err(|_| "a string is not in UTF-8".to_string())?;
    let tensor = Tensor::from_strings(vec![texts.len()], texts).map_err(|e| e.to_string())?;
    Ok(tensor.bytes().clone())
}

/// A byte for each element of a type of fewer than 8 bits.
fn unpacked(dtype: DType, data: Bytes, count: usize) -> Result<Bytes, String> {
    if is_packed(dtype) { unpack(dtype, &data, count) } else { Ok(data) }
}

fn pack<T: Copy, const N: usize>(values: &[T], f: impl Fn(T) -> [u8; N]) -> Bytes {
    let mut out = Vec::with_capacity(values.len() * N);
    for &v in values {
        out.extend(f(v));
    }
    Bytes::from(out)
}

fn in_range(mut values: impl Iterator<Item = i128>, low: i128, high: i128) -> Result<(), String> {
    match values.find(|v| !(low..=high).contains(v)) {
        Some(v) => Err(format!("element {v} is not within {low}..={high}")),
        None => Ok(()),
    }
}

/// A value's type: `Err` carries the name of what is not a tensor of a supported type.
pub(crate) fn value_type(
    t: Option<TypeProto>,
    place: &str,
) -> Result<Result<RawType, String>, OnnxError> {
    let (mut t, mut containers) = (t, vec![]);
    let tensor = loop {
        let (container, inner) = match t.and_then(|t| t.value) {
            None => return Ok(Ok(RawType { containers, ..RawType::default() })),
            Some(type_proto::Value::TensorType(t)) => break t,
            Some(type_proto::Value::SequenceType(s)) => (Container::Sequence, s.elem_type),
            Some(type_proto::Value::OptionalType(o)) => (Container::Optional, o.elem_type),
            Some(type_proto::Value::MapType(m)) => match dtype(m.key_type.unwrap_or(0)) {
                Ok(Some(key)) => (Container::Map(key), m.value_type),
                Ok(None) => return Ok(Err("map without a type of keys".into())),
                Err(name) => return Ok(Err(name)),
            },
            Some(type_proto::Value::SparseTensorType(_)) => return Ok(Err("sparse tensor".into())),
            Some(type_proto::Value::OpaqueType(_)) => return Ok(Err("opaque".into())),
        };
        containers.push(container);
        t = inner.map(|inner| *inner);
    };
    let dtype = match dtype(tensor.elem_type.unwrap_or(0)) {
        Ok(d) => d,
        Err(name) => return Ok(Err(name)),
    };
    let Some(shape) = tensor.shape else {
        return Ok(Ok(RawType { dtype, dims: None, containers }));
    };
    let mut dims = Vec::with_capacity(shape.dim.len());
    let mut count = 8usize;
    for d in shape.dim {
        dims.push(match d.value {
            // Exporters write -1 for an extent that is not known.
            Some(tensor_shape_proto::dimension::Value::DimValue(-1)) => RawDim::Unknown,
            Some(tensor_shape_proto::dimension::Value::DimValue(v)) => {
                let Ok(n) = u64::try_from(v) else {
                    return Err(OnnxError::invalid(place, format!("extent {v} is negative")));
                };
                let next = usize::try_from(n).ok().and_then(|n| count.checked_mul(n.max(1)));
                let Some(next) = next.filter(|&n| n <= isize::MAX as usize) else {
                    let reason = "its extents make more elements than can be addressed";
                    return Err(OnnxError::invalid(place, reason));
                };
                count = next;
                RawDim::Known(n)
            }
            // Exporters write `?` for an extent of which nothing is known, wherever there is one.
            Some(tensor_shape_proto::dimension::Value::DimParam(s))
                if !s.is_empty() && s != "?" =>
            {
                RawDim::Symbol(s)
            }
            Some(tensor_shape_proto::dimension::Value::DimParam(_)) | None => RawDim::Unknown,
        });
    }
    Ok(Ok(RawType { dtype, dims: Some(dims), containers }))
}
