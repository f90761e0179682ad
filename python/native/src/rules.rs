//! Rules: checked, and their layers as models.

use crate::arrays::{Taking, taken};
use crate::dtypes;
use crate::errors::raised;
use crate::handles::hold;
use crate::module::Named;
use crate::optimized::json;
use crate::settings;
use crate::waiting::wait;
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::{CallKind, Law, Library};
use mlc_rewrite::lawtest::{self, Broken};
use mlc_rewrite::{Error, Reader, stdlib};
use mlc_verify::{CheckOptions, CheckReport, Lint, check_library, declarations, lint};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde::Serialize;
use std::sync::Arc;

pub const FUNCTIONS: &[Named] =
    &[(c"rules_check", check), (c"rules_layers", layers), (c"rules_layer", layer)];

/// What is found about rules.
#[derive(Serialize)]
struct Checked {
    #[serde(flatten)]
    report: CheckReport,
    /// Tests in the texts that do not hold.
    broken: Vec<Broken>,
    /// What is odd about the texts.
    lints: Vec<Lint>,
    sound: bool,
    #[serde(skip)]
    text: String,
}

/// The laws of the texts of a library that are not shipped.
fn own_laws(library: &Library) -> Vec<String> {
    let first = stdlib::SHIPPED_TEXTS as u32;
    // A schema's laws are also those of the operators that a text adds.
    let added = |l: &Law| {
        let mut of = l.schema.iter().flat_map(|s| &s.operators);
        of.any(|c| library.call(*c).source.file >= first)
    };
    let own = library.laws.iter().filter(|l| l.source.file >= first || added(l));
    own.map(|l| l.name.to_string()).collect()
}

fn checked(reader: &Reader, options: &CheckOptions, target: &str) -> Result<Checked, Error> {
    let library = reader.library()?;
    let names = own_laws(&library);
    let report = check_library(&library, Some(&names), options, &|_, _| {});
    let mut lints = lint(&library, Some(&names));
    lints.extend(declarations(&library, stdlib::SHIPPED_TEXTS as u32, options.seed));
    let broken = lawtest::check(&library, Some(&names), target)?;
    let mut text = String::new();
    broken.iter().for_each(|b| text.extend([b.human(false), "\n".into()]));
    lints.iter().for_each(|l| text.extend([l.human(false), "\n".into()]));
    text.push_str(&report.human(false));
    let sound = report.sound() && broken.is_empty() && !lints.iter().any(Lint::is_error);
    Ok(Checked { report, broken, lints, sound, text })
}

/// `(reading, samples, seed, threads, target) -> (json, text)`
fn check<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    type Arguments<'a> = (Bound<'a, PyAny>, usize, u64, usize, String);
    let (reading, samples, seed, threads, target): Arguments<'_> = args.extract()?;
    let reader = settings::reader(&reading)?;
    let options = CheckOptions { seed, samples, threads, ..CheckOptions::default() };
    let found = wait(args.py(), move || checked(&reader, &options, &target))?;
    Ok((json(&found)?, found.text).into_pyobject(args.py())?.into_any())
}

/// `(reading) -> list` of the definitions and operators of these texts: `(name, document, arrays, attributes)` each.
fn layers<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    let reader = settings::reader(&args.get_item(0)?)?;
    let library: Arc<Library> = wait(py, move || reader.library())?;
    let first = stdlib::SHIPPED_TEXTS as u32;
    let list = PyList::empty(py);
    for call in library.calls.iter().filter(|c| c.source.file >= first) {
        if matches!(call.kind, CallKind::Extern(_)) {
            continue;
        }
        let arrays: Vec<String> = call.inputs.iter().map(|i| i.name.to_string()).collect();
        let attributes: Vec<String> = call.attrs.iter().map(|a| a.name.to_string()).collect();
        list.append((&*call.name, call.doc.join("\n"), arrays, attributes))?;
    }
    Ok(list.into_any())
}

/// An attribute's value.
fn attribute(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Attr> {
    if value.is_instance_of::<PyBool>() {
        return Ok(Attr::Bool(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(Attr::int(value.extract()?));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Attr::float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        let word: String = value.extract()?;
        let dtype = dtypes::of_name(&word).or_else(|| word.parse::<DType>().ok());
        return Ok(dtype.map_or(Attr::Str(word), Attr::DType));
    }
    if let Ok(numbers) = value.extract::<Vec<i64>>() {
        return Ok(Attr::ints(numbers));
    }
    if let Ok(numbers) = value.extract::<Vec<f64>>() {
        return Ok(Attr::floats(numbers));
    }
    // Scalars of NumPy.
    let number: Result<f64, _> = value.extract();
    let message =
        format!("attribute `{name}` is a number, a truth value, a word or a list of numbers");
    number.map(Attr::float).map_err(|_| PyTypeError::new_err(message))
}

/// `(reading, name, arrays, attributes) -> model`
fn layer<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    type Arguments<'a> = (Bound<'a, PyAny>, String, Vec<Bound<'a, PyAny>>, Bound<'a, PyDict>);
    let (reading, name, arrays, attributes): Arguments<'_> = args.extract()?;
    let reader = settings::reader(&reading)?;
    let mut types = Vec::with_capacity(arrays.len());
    for (i, array) in arrays.iter().enumerate() {
        let place = format!("array {} of `{name}`", i + 1);
        let array = taken(array, &place, None, Taking::InPlace)?;
        types.push((array.dtype(), array.shape().to_vec()));
    }
    let mut given = Vec::with_capacity(attributes.len());
    for (name, value) in attributes.iter() {
        let name: String = name.extract()?;
        let value = attribute(&name, &value)?;
        given.push((name, value));
    }
    let made = args.py().detach(|| reader.layer(&name, &types, &given));
    hold(args.py(), made.map_err(|e| raised(args.py(), &e))?)
}
