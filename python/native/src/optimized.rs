//! Optimised models: made, written, and asked why.

use crate::handles::{Held, held, hold};
use crate::models::described;
use crate::module::Named;
use crate::settings;
use crate::waiting::wait;
use mlc_rewrite::{Error, ExternalData, Model, OptimizedModel};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::ffi::CStr;
use std::sync::Arc;

pub const FUNCTIONS: &[Named] = &[
    (c"optimize", optimize),
    (c"optimized_values", values),
    (c"optimized_report", report),
    (c"optimized_is_as_read", is_as_read),
    (c"optimized_text", text),
    (c"optimized_write", write),
    (c"optimized_bytes", to_bytes),
    (c"optimized_explain", explain),
    (c"optimized_why_not", why_not),
    (c"optimized_html", html),
    (c"optimized_node", node),
    (c"optimized_why_not_fused", why_not_fused),
    (c"optimized_would_gain", would_gain),
    (c"optimized_numerics", numerics),
    (c"optimized_kernels", kernels),
];

impl Held for OptimizedModel {
    const NAME: &CStr = c"mlc_rewrite.optimized";
}

/// `(model, settings) -> optimized`
fn optimize<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (model, settings): (Bound<'_, PyAny>, Bound<'_, PyAny>) = args.extract()?;
    let model = held::<Model>(&model)?;
    let optimizer = settings::optimizer(&settings)?;
    hold(args.py(), wait(args.py(), move || optimizer.optimize(&model))?)
}

fn optimized(args: &Bound<'_, PyTuple>) -> PyResult<Arc<OptimizedModel>> {
    held::<OptimizedModel>(&args.get_item(0)?)
}

/// `(optimized) -> (inputs, outputs)`
fn values<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let optimized = optimized(args)?;
    described(args.py(), &optimized.inputs(), &optimized.outputs())
}

/// A value as JSON.
pub fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// `(optimized) -> json`
fn report<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    Ok(json(optimized(args)?.report())?.into_pyobject(args.py())?.into_any())
}

/// `(optimized) -> bool`
fn is_as_read<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    Ok(optimized(args)?.is_as_read().into_pyobject(args.py())?.to_owned().into_any())
}

/// `(optimized) -> text`
fn text<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let optimized = optimized(args)?;
    let text = args.py().detach(|| optimized.text());
    Ok(text.into_pyobject(args.py())?.into_any())
}

/// `(optimized, path, external) -> None`, where `external` says whether weights go to a data file, or `None` for those of more than 1 GiB.
fn write<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, path, external): (Bound<'_, PyAny>, String, Option<bool>) = args.extract()?;
    let optimized = optimized(args)?;
    let weights = match external {
        None => ExternalData::default(),
        Some(true) => ExternalData::Always,
        Some(false) => ExternalData::Never,
    };
    wait(args.py(), move || optimized.write_with(path, weights))?;
    Ok(args.py().None().into_bound(args.py()))
}

/// `(optimized) -> bytes`
fn to_bytes<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let optimized = optimized(args)?;
    let bytes = wait(args.py(), move || optimized.to_bytes())?;
    Ok(PyBytes::new(args.py(), &bytes).into_any())
}

/// What an answer is as JSON and for people.
fn told<'py, T: serde::Serialize + Send + 'static>(
    py: Python<'py>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    human: impl FnOnce(&T) -> String,
) -> PyResult<Bound<'py, PyAny>> {
    let answer = wait(py, work)?;
    Ok((json(&answer)?, human(&answer)).into_pyobject(py)?.into_any())
}

/// `(optimized, all) -> (json, text)`
fn explain<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, all): (Bound<'_, PyAny>, bool) = args.extract()?;
    let optimized = optimized(args)?;
    told(args.py(), move || optimized.explain(), |e| e.human(all))
}

/// `(optimized) -> html`
fn html<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let optimized = optimized(args)?;
    let page = wait(args.py(), move || optimized.html())?;
    Ok(page.into_pyobject(args.py())?.into_any())
}

/// `(optimized, name) -> (json, text)`
fn why_not<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, name): (Bound<'_, PyAny>, String) = args.extract()?;
    let optimized = optimized(args)?;
    told(args.py(), move || optimized.why_not(&name), |w| w.human())
}

/// `(optimized, name) -> (json, text)`
fn node<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, name): (Bound<'_, PyAny>, String) = args.extract()?;
    let optimized = optimized(args)?;
    told(args.py(), move || optimized.node(&name), |n| n.human(false))
}

/// `(optimized, a, b) -> (json, text)`
fn why_not_fused<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, a, b): (Bound<'_, PyAny>, String, String) = args.extract()?;
    let optimized = optimized(args)?;
    told(args.py(), move || optimized.why_not_fused(&a, &b), |w| w.human())
}

/// `(optimized, what) -> (json, text)`
fn would_gain<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (_, what): (Bound<'_, PyAny>, String) = args.extract()?;
    let optimized = optimized(args)?;
    told(args.py(), move || optimized.would_gain(&what), |w| w.human(false))
}

/// `(optimized) -> (json, text)`
fn numerics<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let optimized = optimized(args)?;
    told(args.py(), move || optimized.numerics(), |n| n.human(false))
}

/// `(optimized) -> (json, text)`
fn kernels<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let optimized = optimized(args)?;
    told(args.py(), move || optimized.kernel_table(), |k| k.human(false))
}
