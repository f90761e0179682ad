//! Errors of the library as exceptions of `mlc_rewrite`.

use mlc_rewrite::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// The class of a kind.
fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::File => "FileError",
        ErrorKind::Model => "ModelError",
        ErrorKind::Rules => "RulesError",
        ErrorKind::Setting => "SettingError",
        ErrorKind::Input => "InputError",
        ErrorKind::Output => "OutputError",
        ErrorKind::Resources => "ResourcesError",
        ErrorKind::Run => "RunError",
        ErrorKind::Export => "ExportError",
        ErrorKind::Check => "CheckError",
        ErrorKind::Pipeline => "PipelineError",
        _ => "Error",
    }
}

/// What an exception says.
struct Said<'a> {
    text: &'a str,
    message: &'a str,
    code: Option<&'a str>,
    place: Option<&'a str>,
    help: Option<&'a str>,
}

fn made(py: Python<'_>, class: &str, said: &Said<'_>) -> PyResult<PyErr> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE
        .get_or_try_init(py, || PyModule::import(py, "mlc_rewrite._errors").map(Bound::unbind))?;
    let parts = PyDict::new(py);
    parts.set_item("message", said.message)?;
    parts.set_item("code", said.code)?;
    parts.set_item("place", said.place)?;
    parts.set_item("help", said.help)?;
    let exception = module.bind(py).getattr(class)?.call((said.text,), Some(&parts))?;
    Ok(PyErr::from_value(exception))
}

/// An error as the exception of its kind.
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let text = error.to_string();
    let said = Said {
        text: &text,
        message: error.message(),
        code: error.code(),
        place: error.place(),
        help: error.help(),
    };
    made(py, class(error.kind()), &said).unwrap_or_else(|e| e)
}

/// An error of the binding itself.
pub fn refused(
    py: Python<'_>,
    kind: ErrorKind,
    place: Option<&str>,
    message: &str,
    help: &str,
) -> PyErr {
    let text = format!("{message}\nhelp: {help}");
    let said = Said { text: &text, message, code: None, place, help: Some(help) };
    made(py, class(kind), &said).unwrap_or_else(|e| e)
}
