//! Sessions and their runs.

use crate::arrays::{Taking, given, taken};
use crate::dtypes;
use crate::errors::{raised, refused};
use crate::handles::{Held, held, hold};
use crate::models::described;
use crate::module::Named;
use crate::settings;
use crate::waiting::wait;
use mlc_rewrite::{AnyArray, ErrorKind, Model, OptimizedModel, Outputs, Session};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::ffi::CStr;
use std::sync::Arc;

pub const FUNCTIONS: &[Named] = &[
    (c"session_of_model", of_model),
    (c"session_of_optimized", of_optimized),
    (c"session_load", load),
    (c"session_save", save),
    (c"session_values", values),
    (c"session_run", run),
    (c"session_call", call),
];

impl Held for Session {
    const NAME: &CStr = c"mlc_rewrite.session";
}

/// `(model, device) -> session`
fn of_model<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (model, device): (Bound<'_, PyAny>, Bound<'_, PyAny>) = args.extract()?;
    let (model, device) = (held::<Model>(&model)?, settings::device(&device)?);
    hold(args.py(), wait(args.py(), move || model.session_on(&device))?)
}

/// `(optimized, device) -> session`; with `None`, on the device of the optimiser.
fn of_optimized<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (optimized, device): (Bound<'_, PyAny>, Bound<'_, PyAny>) = args.extract()?;
    let optimized = held::<OptimizedModel>(&optimized)?;
    let device = (!device.is_none()).then(|| settings::device(&device)).transpose()?;
    let work = move || match device {
        Some(device) => optimized.session_on(&device),
        None => optimized.session(),
    };
    hold(args.py(), wait(args.py(), work)?)
}

/// `(path, device) -> session`
fn load<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (path, device): (String, Bound<'_, PyAny>) = args.extract()?;
    let device = settings::device(&device)?;
    hold(args.py(), wait(args.py(), move || Session::load(path, &device))?)
}

/// `(session, path) -> None`
fn save<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, path): (Bound<'_, PyAny>, String) = args.extract()?;
    let session = session(args)?;
    wait(args.py(), move || session.save(path))?;
    Ok(args.py().None().into_bound(args.py()))
}

fn session(args: &Bound<'_, PyTuple>) -> PyResult<Arc<Session>> {
    held::<Session>(&args.get_item(0)?)
}

/// `(session) -> (inputs, outputs)`
fn values<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let session = session(args)?;
    described(args.py(), session.inputs(), session.outputs())
}

/// The inputs of a run, by name.
pub fn inputs(
    session: &Session,
    feed: &Bound<'_, PyDict>,
    taking: Taking,
) -> PyResult<Vec<(String, AnyArray)>> {
    let mut out = Vec::with_capacity(feed.len());
    for (name, array) in feed.iter() {
        let name: String = name.extract()?;
        let info = session.inputs().iter().find(|i| i.name() == name);
        let place = format!("input `{name}`");
        let array = taken(&array, &place, info.map(|i| i.dtype()), taking)?;
        out.push((name, array));
    }
    Ok(out)
}

fn outputs(session: &Session, feed: &Bound<'_, PyAny>) -> PyResult<Outputs> {
    let inputs = inputs(session, feed.cast::<PyDict>()?, Taking::InPlace)?;
    let done = feed.py().detach(|| session.run(inputs));
    done.map_err(|e| raised(feed.py(), &e))
}

/// `(session, names, feed) -> list`: all outputs in order if `names` is `None`.
fn run<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let outputs = outputs(&*session(args)?, &args.get_item(2)?)?;
    chosen(args.py(), &outputs, &args.get_item(1)?)
}

/// `(session, feed) -> dict`: all outputs by name.
fn call<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let outputs = outputs(&*session(args)?, &args.get_item(1)?)?;
    named(args.py(), &outputs)
}

/// Outputs by name.
pub fn named<'py>(py: Python<'py>, outputs: &Outputs) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    for (name, array) in outputs.iter() {
        dict.set_item(name, given(py, array).map_err(|e| of_output(py, name, array, e))?)?;
    }
    Ok(dict.into_any())
}

/// Outputs as a list: all of them, or those of these names.
pub fn chosen<'py>(
    py: Python<'py>,
    outputs: &Outputs,
    names: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    if names.is_none() {
        for (name, array) in outputs.iter() {
            list.append(given(py, array).map_err(|e| of_output(py, name, array, e))?)?;
        }
        return Ok(list.into_any());
    }
    for name in names.try_iter()? {
        let name: String = name?.extract()?;
        let array = outputs.get(&name).ok_or_else(|| no_output(py, outputs, &name))?;
        list.append(given(py, array).map_err(|e| of_output(py, &name, array, e))?)?;
    }
    Ok(list.into_any())
}

/// `ml_dtypes` is not installed: what to do.
fn of_output(py: Python<'_>, name: &str, array: &AnyArray, e: PyErr) -> PyErr {
    if !e.is_instance_of::<pyo3::exceptions::PyImportError>(py) {
        return e;
    }
    let place = format!("output `{name}`");
    let message = format!("{place} is {}, which NumPy lacks", dtypes::name(array.dtype()));
    refused(py, ErrorKind::Output, Some(&place), &message, "install the package `ml_dtypes`")
}

fn no_output(py: Python<'_>, outputs: &Outputs, name: &str) -> PyErr {
    let known: Vec<&str> = outputs.names().collect();
    let place = format!("output `{name}`");
    let help = format!("the outputs are {}", known.join(", "));
    refused(py, ErrorKind::Output, Some(&place), &format!("the model has no {place}"), &help)
}
