//! Arrays of NumPy in memory: what its C interface has kept the same since version 1.0 and keeps in 2. NumPy is imported when the first array
//! is passed, and not by importing this module.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use std::ffi::{c_char, c_int};

/// The fields of an array: `PyArrayObject_fields` in NumPy's `ndarraytypes.h`.
#[repr(C)]
struct Fields {
    head: ffi::PyObject,
    data: *mut u8,
    axes: c_int,
    extents: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    dtype: *const Descriptor,
    flags: c_int,
}

/// The first fields of an element type: `PyArray_Descr`, as far as versions 1 and 2 agree.
#[repr(C)]
struct Descriptor {
    head: ffi::PyObject,
    scalar: *mut ffi::PyTypeObject,
    kind: c_char,
    letter: c_char,
    order: c_char,
    former_flags: c_char,
    number: c_int,
}

/// The elements lie in row-major order, without gaps.
const ROW_MAJOR: c_int = 0x1;
/// Each element lies where its type wants it.
const ALIGNED: c_int = 0x100;

/// The elements may be written.
const WRITEABLE: c_int = 0x400;

/// The class `numpy.ndarray`.
fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "numpy", "ndarray")
}

/// An array, seen in its memory.
pub struct NumPyArray<'a, 'py> {
    object: &'a Bound<'py, PyAny>,
}

impl<'a, 'py> NumPyArray<'a, 'py> {
    /// The array that an object is, if it is one.
    ///
    /// # Errors
    /// NumPy cannot be imported.
    pub fn of(object: &'a Bound<'py, PyAny>) -> PyResult<Option<NumPyArray<'a, 'py>>> {
        let is_array = object.is_instance(class(object.py())?)?;
        Ok(is_array.then_some(NumPyArray { object }))
    }

    fn fields(&self) -> &Fields {
        // SAFETY: the object is an array, whose fields these are; it lives as long as `self`.
        unsafe { &*self.object.as_ptr().cast::<Fields>() }
    }

    fn descriptor(&self) -> &Descriptor {
        // SAFETY: an array has an element type, which it keeps alive.
        unsafe { &*self.fields().dtype }
    }

    /// True if the elements are in row-major order without gaps, where their type wants them, and in the byte order of this machine.
    pub fn is_plain(&self) -> bool {
        let native = matches!(self.descriptor().order as u8, b'=' | b'|' | b'<');
        native && self.fields().flags & (ROW_MAJOR | ALIGNED) == ROW_MAJOR | ALIGNED
    }

    /// True if the elements may be written.
    pub fn is_writeable(&self) -> bool {
        self.fields().flags & WRITEABLE != 0
    }

    /// NumPy's number of the element type.
    pub fn type_number(&self) -> c_int {
        self.descriptor().number
    }

    /// The extents.
    pub fn shape(&self) -> Vec<usize> {
        let fields = self.fields();
        if fields.axes == 0 {
            return vec![];
        }
        // SAFETY: an array with axes has as many extents.
        let extents = unsafe { std::slice::from_raw_parts(fields.extents, fields.axes as usize) };
        extents.iter().map(|&n| n as usize).collect()
    }

    /// Where the first element lies.
    pub fn data(&self) -> *mut u8 {
        self.fields().data
    }
}

/// A new array whose elements are not set.
///
/// # Errors
/// There is no room for it.
pub fn empty<'py>(
    py: Python<'py>,
    shape: &[usize],
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let empty = EMPTY.import(py, "numpy", "empty")?;
    empty.call1((PyTuple::new(py, shape)?, dtype))
}
