//! The module and its table of functions.

use crate::{command, compared, models, optimized, rules, sessions, streams};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyModule, PyTuple};
use std::ffi::CStr;

/// A function of the module: positional arguments in, an object out.
pub type Function = for<'py> fn(&Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>>;

/// A function and its name.
pub type Named = (&'static CStr, Function);

/// What the interpreter asks for the module by. It is the only symbol that the shared object exports.
///
/// # Safety
/// The caller is an interpreter, which holds its lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PyInit__native() -> *mut ffi::PyObject {
    static mut DEFINITION: ffi::PyModuleDef = ffi::PyModuleDef {
        m_base: ffi::PyModuleDef_HEAD_INIT,
        m_name: c"_native".as_ptr(),
        m_doc: c"Functions on handles, behind the classes of `mlc_rewrite`.".as_ptr(),
        m_size: -1,
        m_methods: std::ptr::null_mut(),
        m_slots: std::ptr::null_mut(),
        m_traverse: None,
        m_clear: None,
        m_free: None,
    };
    Python::attach(|py| {
        // SAFETY: the definition lives as long as the process, and only the interpreter that imports the module uses it, once.
        let made = unsafe {
            let made = ffi::PyModule_Create(&raw mut DEFINITION);
            Bound::from_owned_ptr_or_err(py, made)
        };
        match made.and_then(|module| filled(module.cast_into::<PyModule>()?)) {
            Ok(module) => module.into_ptr(),
            Err(e) => {
                e.restore(py);
                std::ptr::null_mut()
            }
        }
    })
}

/// The module with its functions.
fn filled(module: Bound<'_, PyModule>) -> PyResult<Bound<'_, PyModule>> {
    module.setattr("version", env!("CARGO_PKG_VERSION"))?;
    let tables = [
        models::FUNCTIONS,
        optimized::FUNCTIONS,
        compared::FUNCTIONS,
        sessions::FUNCTIONS,
        streams::FUNCTIONS,
        rules::FUNCTIONS,
        command::FUNCTIONS,
    ];
    for table in tables {
        for (name, function) in table {
            let function = *function;
            let call = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
                function(args).map(Bound::unbind)
            };
            let made = PyCFunction::new_closure(module.py(), Some(name), None, call)?;
            module.setattr(&*name.to_string_lossy(), made)?;
        }
    }
    Ok(module)
}
