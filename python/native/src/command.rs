//! The command `mlc-rewrite` in this process.

use crate::module::Named;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::OsString;

pub const FUNCTIONS: &[Named] = &[(c"command", command)];

/// `(arguments) -> exit code`
fn command<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (arguments,): (Vec<OsString>,) = args.extract()?;
    let code = args.py().detach(|| mlc_rewrite::cli::command(arguments));
    Ok(code.into_pyobject(args.py())?.into_any())
}
