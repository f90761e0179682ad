//! Two models, held against each other by the laws.

use crate::handles::{Held, held, hold};
use crate::module::Named;
use crate::optimized::json;
use crate::settings;
use crate::waiting::wait;
use mlc_rewrite::{Comparison, Model};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::CStr;

pub const FUNCTIONS: &[Named] =
    &[(c"compare", compare), (c"compared_told", told), (c"compared_html", html)];

impl Held for Comparison {
    const NAME: &CStr = c"mlc_rewrite.compared";
}

/// `(model, other, settings) -> compared`
fn compare<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (a, b, settings): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) =
        args.extract()?;
    let (a, b) = (held::<Model>(&a)?, held::<Model>(&b)?);
    let optimizer = settings::optimizer(&settings)?;
    hold(args.py(), wait(args.py(), move || optimizer.compare(&a, &b))?)
}

/// `(compared, all) -> (json, text)`
fn told<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let (compared, all): (Bound<'_, PyAny>, bool) = args.extract()?;
    let compared = held::<Comparison>(&compared)?;
    Ok((json(&*compared)?, compared.human(all)).into_pyobject(args.py())?.into_any())
}

/// `(compared) -> html`
fn html<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let compared = held::<Comparison>(&args.get_item(0)?)?;
    let page = wait(args.py(), move || compared.html())?;
    Ok(page.into_pyobject(args.py())?.into_any())
}
