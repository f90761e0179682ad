//! Values of the library that Python holds: capsules, which know what is in them.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;
use std::sync::Arc;

/// A type whose values Python holds.
pub trait Held: Send + Sync + 'static {
    /// What tells its capsules from others; no two types have the same.
    const NAME: &CStr;
}

/// A value as a capsule.
pub fn hold<T: Held>(py: Python<'_>, value: T) -> PyResult<Bound<'_, PyAny>> {
    Ok(PyCapsule::new_with_value(py, Arc::new(value), T::NAME)?.into_any())
}

/// The value in a capsule.
///
/// # Errors
/// The object is no capsule of this type.
pub fn held<T: Held>(object: &Bound<'_, PyAny>) -> PyResult<Arc<T>> {
    let wrong = || {
        let wanted = T::NAME.to_string_lossy();
        PyTypeError::new_err(format!("expected a handle of {wanted}, found {object}"))
    };
    let capsule = object.cast::<PyCapsule>().map_err(|_| wrong())?;
    let place = capsule.pointer_checked(Some(T::NAME)).map_err(|_| wrong())?;
    // SAFETY: only `hold` makes capsules of this name, each with an `Arc<T>`, which lives as long as the capsule.
    Ok(unsafe { place.cast::<Arc<T>>().as_ref() }.clone())
}
