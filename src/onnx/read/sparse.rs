//! Sparse constants of a file: they are written out, as tensors with zeros.
//!
//! Never makes more bytes of a file's sparse constants than a limit, however large their extents are.

use super::data_files::DataFiles;
use crate::proto::SparseTensorProto;
use crate::raw::error::OnnxError;
use crate::raw::tensor;
use mlc_dsl::ir::{DType, Tensor};

/// Most bytes that all sparse constants of a file may take written out.
pub(crate) const MOST: u64 = 256 << 20;

/// The constant as a tensor with all its elements, and its name; `left` is what remains of the limit.
pub(crate) fn written_out(
    sparse: SparseTensorProto,
    files: &mut DataFiles<'_>,
    left: &mut u64,
    place: &str,
) -> Result<(String, Tensor), OnnxError> {
    let bad = |reason: &str| OnnxError::tensor(place, reason);
    let mut values = sparse.values.ok_or_else(|| bad("it has no values"))?;
    let name = values.name.take().unwrap_or_default();
    let values = tensor::tensor(values, files, place)?.into_read();
    let dtype = values.dtype();
    let shape = tensor::shape(&sparse.dims, dtype).map_err(|e| OnnxError::tensor(place, e))?;
    let indices = match sparse.indices {
        Some(indices) => Some(tensor::tensor(indices, files, place)?.into_read()),
        None => None,
    };
    if dtype == DType::Str {
        return Err(OnnxError::unsupported(place, "a sparse tensor of strings"));
    }
    let count: usize = shape.iter().product();
    let bytes = (count * dtype.size()) as u64;
    *left = left.checked_sub(bytes).ok_or(OnnxError::TooLarge {
        what: "the sparse constants, written out,".into(),
        limit: MOST >> 20,
        help: "store large constants as dense tensors",
    })?;
    let &[stored] = values.shape() else { return Err(bad("its values have not one axis")) };
    let places = match indices {
        Some(indices) => places(&indices, stored, &shape).map_err(bad)?,
        None if stored == 0 => vec![],
        None => return Err(bad("it has no indices")),
    };
    let size = dtype.size();
    let mut data = vec![0u8; count * size];
    for (place, value) in places.into_iter().zip(values.bytes().chunks_exact(size)) {
        data[place * size..][..size].copy_from_slice(value);
    }
    let tensor = Tensor::new(dtype, shape, data.into());
    Ok((name, tensor.map_err(|e| OnnxError::tensor(place, e.to_string()))?))
}

/// Where the stored elements are: their numbers in row-major order, or one row of indices for each.
fn places(indices: &Tensor, stored: usize, shape: &[usize]) -> Result<Vec<usize>, &'static str> {
    if indices.dtype() != DType::I64 {
        return Err("its indices are not of type i64");
    }
    let count: usize = shape.iter().product();
    let at = |i: usize, end: usize| {
        let index = usize::try_from(indices.get_i64(i)).ok().filter(|&n| n < end);
        index.ok_or("an index is outside of its extents")
    };
    let number = |row: usize| {
        let axes = shape.iter().enumerate();
        axes.map(|(axis, &n)| Ok((at(row * shape.len() + axis, n)?, n)))
            .try_fold(0, |number, index| index.map(|(i, n)| number * n + i))
    };
    let places: Vec<usize> = match *indices.shape() {
        [n] if n == stored => (0..n).map(|i| at(i, count)).collect::<Result<_, _>>()?,
        [n, rank] if n == stored && rank == shape.len() => {
            (0..n).map(number).collect::<Result<_, _>>()?
        }
        _ => return Err("it has not one index for each value"),
    };
    if places.is_sorted_by(|a, b| a < b) {
        Ok(places)
    } else {
        Err("its indices are not in order, or an index stands twice")
    }
}
