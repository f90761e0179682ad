//! Models: read, and asked what they are.

use crate::dtypes;
use crate::handles::{Held, held, hold};
use crate::module::Named;
use crate::optimized::json;
use crate::settings;
use crate::waiting::wait;
use mlc_rewrite::{Model, TensorInfo};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyList, PyTuple};
use std::ffi::CStr;

pub const FUNCTIONS: &[Named] = &[
    (c"model_read", read),
    (c"model_of_bytes", of_bytes),
    (c"model_of_text", of_text),
    (c"model_read_with", read_with),
    (c"model_values", values),
    (c"model_notes", notes),
    (c"model_text", text),
    (c"model_difference", difference),
];

impl Held for Model {
    const NAME: &CStr = c"mlc_rewrite.model";
}

/// `(path, reading) -> model`
fn read<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (path, reading): (String, Bound<'_, PyAny>) = args.extract()?;
    let reader = settings::reader(&reading)?;
    hold(args.py(), wait(args.py(), move || reader.read(path))?)
}

/// `(bytes, reading) -> model`
fn of_bytes<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (bytes, reading): (PyBackedBytes, Bound<'_, PyAny>) = args.extract()?;
    let reader = settings::reader(&reading)?;
    let bytes = bytes::Bytes::from_owner(bytes);
    hold(args.py(), wait(args.py(), move || reader.from_bytes(bytes))?)
}

/// `(text, reading) -> model`
fn of_text<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (text, reading): (String, Bound<'_, PyAny>) = args.extract()?;
    let reader = settings::reader(&reading)?;
    hold(args.py(), wait(args.py(), move || reader.from_rules(text))?)
}

/// `(model, reading) -> model`
fn read_with<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (model, reading): (Bound<'_, PyAny>, Bound<'_, PyAny>) = args.extract()?;
    let model = held::<Model>(&model)?;
    let reader = settings::reader(&reading)?;
    hold(args.py(), wait(args.py(), move || model.read_with(&reader))?)
}

fn model(args: &Bound<'_, PyTuple>) -> PyResult<std::sync::Arc<Model>> {
    held::<Model>(&args.get_item(0)?)
}

/// Inputs and outputs as `(name, type, extents)` each; an extent is a number or a text.
pub fn described<'py>(
    py: Python<'py>,
    inputs: &[TensorInfo],
    outputs: &[TensorInfo],
) -> PyResult<Bound<'py, PyAny>> {
    let list = |infos: &[TensorInfo]| {
        let list = PyList::empty(py);
        for info in infos {
            let extents = PyList::empty(py);
            for (known, text) in info.shape().into_iter().zip(info.extents()) {
                match known {
                    Some(n) => extents.append(n)?,
                    None => extents.append(text)?,
                }
            }
            list.append((info.name(), dtypes::name(info.dtype()), extents))?;
        }
        Ok::<_, PyErr>(list)
    };
    Ok((list(inputs)?, list(outputs)?).into_pyobject(py)?.into_any())
}

/// `(model) -> (inputs, outputs)`
fn values<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let model = model(args)?;
    described(args.py(), &model.inputs(), &model.outputs())
}

/// `(model) -> notes`
fn notes<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyList::new(args.py(), model(args)?.notes())?.into_any())
}

/// `(model) -> text`
fn text<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let model = model(args)?;
    let text = args.py().detach(|| model.text());
    Ok(text.into_pyobject(args.py())?.into_any())
}

/// `(model, other) -> json`
fn difference<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (a, b) = (model(args)?, held::<Model>(&args.get_item(1)?)?);
    let found = wait(args.py(), move || a.difference(&b))?;
    Ok(json(&found)?.into_pyobject(args.py())?.into_any())
}
