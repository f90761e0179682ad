//! Arrays in and out: those of NumPy where they lie, everything else by `mlc_rewrite._arrays`, which makes NumPy's of it.

use crate::dtypes::{self, is_of_numpy};
use crate::errors::{raised, refused};
use crate::numpy::{self, NumPyArray};
use bytes::Bytes;
use mlc_dsl::ir::{Tensor, TensorError};
use mlc_rewrite::{AnyArray, DType, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

/// Memory of an array that Python keeps as long as it is read.
struct Lent {
    /// Keeps the memory.
    _array: Py<PyAny>,
    data: *const u8,
    len: usize,
}

// SAFETY: the memory is only read, and the object that keeps it may be released on any thread.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the array has that many bytes there, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// How an argument's elements are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// Where they lie: they are read before the call returns, and not after it.
    InPlace,
    /// Copied: they are kept.
    Copied,
}

/// A function of the module `mlc_rewrite._arrays`.
fn helper<'py>(
    py: Python<'py>,
    place: &'static PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    place.import(py, "mlc_rewrite._arrays", name)
}

/// An argument as an array of the library. `place` is what it is called in errors, `wanted` the element type that it should have, by which lists and
/// numbers are read.
///
/// # Errors
/// It is no array and nothing that one can be made of, or its element type is none of the library's.
pub fn taken(
    object: &Bound<'_, PyAny>,
    place: &str,
    wanted: Option<DType>,
    taking: Taking,
) -> PyResult<AnyArray> {
    if let Some(array) = NumPyArray::of(object)?
        && array.is_plain()
        && let Some(dtype) = dtypes::of_number(array.type_number())
    {
        return tensor(object, &array, dtype, place, taking);
    }
    static PLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let wanted = wanted.map(dtypes::name);
    let made = helper(py, &PLAIN, "plain")?.call1((object, place, wanted))?;
    let (name, plain): (String, Bound<'_, PyAny>) = made.extract()?;
    if name == "object" {
        let (shape, texts): (Vec<usize>, Vec<String>) = plain.extract()?;
        let made = AnyArray::from_strings(&shape, texts);
        return made.map_err(|e| unfit(py, place, &e));
    }
    let unknown = || {
        let help = "convert it to an element type that ONNX has";
        refused(py, ErrorKind::Input, Some(place), &format!("{place} is {name}"), help)
    };
    let dtype = dtypes::of_name(&name).ok_or_else(unknown)?;
    match NumPyArray::of(&plain)?.filter(NumPyArray::is_plain) {
        Some(array) => tensor(&plain, &array, dtype, place, taking),
        None => Err(unknown()),
    }
}

fn unfit(py: Python<'_>, place: &str, e: &TensorError) -> PyErr {
    let help = "give an array that fits into memory";
    refused(py, ErrorKind::Input, Some(place), &format!("{place}: {e}"), help)
}

/// The elements of a plain array.
fn tensor(
    object: &Bound<'_, PyAny>,
    array: &NumPyArray<'_, '_>,
    dtype: DType,
    place: &str,
    taking: Taking,
) -> PyResult<AnyArray> {
    let shape = array.shape();
    let len = shape.iter().product::<usize>() * dtype.size();
    let lent = Lent { _array: object.clone().unbind(), data: array.data(), len };
    let bytes = match taking {
        Taking::InPlace => Bytes::from_owner(lent),
        Taking::Copied => Bytes::copy_from_slice(lent.as_ref()),
    };
    let made = Tensor::new(dtype, shape, bytes);
    Ok(made.map_err(|e| unfit(object.py(), place, &e))?.into())
}

/// A result as an array of NumPy that owns its elements; of types that NumPy lacks, as `ml_dtypes` has them; of texts, of objects.
///
/// # Errors
/// `ml_dtypes` is not installed and would be needed, or there is no room.
pub fn given<'py>(py: Python<'py>, array: &AnyArray) -> PyResult<Bound<'py, PyAny>> {
    let dtype = array.dtype();
    if dtype == DType::Str {
        static TEXTS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let texts = array.strings().map_err(|e| raised(py, &e.into()))?;
        let texts = PyList::new(py, texts.iter().map(|t| &**t))?;
        return helper(py, &TEXTS, "texts")?.call1((texts, array.shape().to_vec()));
    }
    let made = numpy::empty(py, array.shape(), &dtypes::object(py, dtype)?)?;
    let bytes = array.tensor().bytes();
    if let Some(memory) = NumPyArray::of(&made)?
        && !bytes.is_empty()
    {
        // SAFETY: a new array of as many elements of the same size, which nothing else sees.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.data(), bytes.len()) };
    }
    if is_of_numpy(dtype) {
        return Ok(made);
    }
    static TYPED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    helper(py, &TYPED, "typed")?.call1((made, dtypes::name(dtype)))
}
