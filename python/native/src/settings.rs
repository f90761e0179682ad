//! Settings: dictionaries of plain values, which `mlc_rewrite._settings` makes of keywords.

use crate::arrays::{Taking, taken};
use mlc_rewrite::{Device, Fp, Objective, Optimizer, Reader, Solver};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

/// The names and values of a dictionary; nothing of `None`.
fn each<'py>(
    settings: &Bound<'py, PyAny>,
    mut enter: impl FnMut(&str, &Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if settings.is_none() {
        return Ok(());
    }
    for (name, value) in settings.cast::<PyDict>()?.iter() {
        if !value.is_none() {
            enter(&name.extract::<String>()?, &value)?;
        }
    }
    Ok(())
}

fn unknown(name: &str) -> PyErr {
    PyTypeError::new_err(format!("unexpected setting `{name}`"))
}

/// How models are read: `rules`, `shapes`, `bind`, `values`, `fold_defaults`, `options`.
///
/// # Errors
/// A value is not of its type.
pub fn reader(settings: &Bound<'_, PyAny>) -> PyResult<Reader> {
    let mut reader = Reader::new();
    each(settings, |name, value| {
        let now = std::mem::take(&mut reader);
        reader = match name {
            "rules" => {
                let rules: Vec<(String, Option<String>)> = value.extract()?;
                rules.into_iter().fold(now, |r, (name, text)| match text {
                    Some(text) => r.rules_text(name, text),
                    None => r.rules(name),
                })
            }
            "shapes" => {
                let shapes: Vec<(String, Vec<u64>)> = value.extract()?;
                shapes.iter().fold(now, |r, (name, extents)| r.shape(name, extents))
            }
            "bind" => {
                let extents: Vec<(String, u64)> = value.extract()?;
                extents.iter().fold(now, |r, (name, extent)| r.bind(name, *extent))
            }
            "values" => {
                let mut now = now;
                for (name, value) in value.cast::<PyDict>()?.iter() {
                    let name: String = name.extract()?;
                    let place = format!("value of `{name}`");
                    now = now.value(&name, taken(&value, &place, None, Taking::Copied)?);
                }
                now
            }
            "fold_defaults" => now.fold_defaults(value.extract()?),
            "options" => {
                let options: Vec<(String, bool)> = value.extract()?;
                options.iter().fold(now, |r, (name, on)| r.option(name, *on))
            }
            _ => return Err(unknown(name)),
        };
        Ok(())
    })?;
    Ok(reader)
}

/// One of a few words.
fn word<T: Copy>(name: &str, value: &Bound<'_, PyAny>, words: &[(&str, T)]) -> PyResult<T> {
    let given: String = value.extract()?;
    let found = words.iter().find(|(w, _)| *w == given);
    found.map(|(_, t)| *t).ok_or_else(|| {
        let known: Vec<String> = words.iter().map(|(w, _)| format!("'{w}'")).collect();
        PyValueError::new_err(format!("{name} is one of {}, not '{given}'", known.join(", ")))
    })
}

fn seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let given: f64 = value.extract()?;
    Duration::try_from_secs_f64(given)
        .map_err(|e| PyValueError::new_err(format!("{name}={given}: {e}")))
}

fn fp(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Fp> {
    word(name, value, &[("exact", Fp::Exact), ("reorder", Fp::Reorder), ("approx", Fp::Approx)])
}

/// How models are optimised: the methods of `Optimizer` by name.
///
/// # Errors
/// A value is not of its type, or none of those that there are.
pub fn optimizer(settings: &Bound<'_, PyAny>) -> PyResult<Optimizer> {
    let mut optimizer = Optimizer::new();
    each(settings, |name, value| {
        let now = std::mem::take(&mut optimizer);
        optimizer = match name {
            "target" => now.target(value.extract::<String>()?),
            "target_file" => now.target_file(value.extract::<String>()?),
            "profile" => now.profile(value.extract::<String>()?),
            "extents" => {
                let ranges: Vec<(String, u64, u64)> = value.extract()?;
                ranges.into_iter().fold(now, |o, (name, from, to)| o.extents(&name, from..=to))
            }
            "fp" => now.fp(fp(name, value)?),
            "objective" => now.objective(word(
                name,
                value,
                &[
                    ("latency", Objective::Latency),
                    ("memory", Objective::Memory),
                    ("size", Objective::Size),
                ],
            )?),
            "without" => {
                let laws: Vec<String> = value.extract()?;
                laws.into_iter().fold(now, Optimizer::without)
            }
            "opset" => now.opset(value.extract()?),
            "nodes" => now.nodes(value.extract()?),
            "rounds" => now.rounds(value.extract()?),
            "effort" => now.effort(value.extract()?),
            "time_limit" => now.time_limit(seconds(name, value)?),
            "solver" => now.solver(word(
                name,
                value,
                &[
                    ("greedy", Solver::Greedy),
                    ("anytime", Solver::Anytime),
                    ("exact", Solver::Exact),
                ],
            )?),
            "deadline" => now.deadline(seconds(name, value)?),
            "memory" => now.memory(value.extract()?),
            "seed" => now.seed(value.extract()?),
            "threads" => now.threads(value.extract()?),
            "check" => now.check(value.extract()?),
            "check_on" => {
                let mut now = now;
                for set in value.try_iter()? {
                    let mut arrays = vec![];
                    for (name, array) in set?.cast::<PyDict>()?.iter() {
                        let name: String = name.extract()?;
                        let place = format!("input `{name}`");
                        arrays.push((name, taken(&array, &place, None, Taking::Copied)?));
                    }
                    now = now.check_on(arrays);
                }
                now
            }
            "tolerance" => now.tolerance(value.extract()?),
            _ => return Err(unknown(name)),
        };
        Ok(())
    })?;
    Ok(optimizer)
}

/// Where sessions run: `device`, `number`, `threads`, `memory`, `fp`.
///
/// # Errors
/// A value is not of its type, or none of those that there are.
pub fn device(settings: &Bound<'_, PyAny>) -> PyResult<Device> {
    let (mut device, mut number) = ("cpu".to_string(), 0usize);
    each(settings, |name, value| {
        match name {
            "device" => device = value.extract()?,
            "number" => number = value.extract()?,
            _ => {}
        }
        Ok(())
    })?;
    let mut made = match device.as_str() {
        "cpu" => Device::cpu(),
        "reference" => Device::reference(),
        "cuda" => Device::cuda(number),
        other => {
            let message =
                format!("device is one of 'cpu', 'cuda', 'cuda:1', 'reference', not '{other}'");
            return Err(PyValueError::new_err(message));
        }
    };
    each(settings, |name, value| {
        let now = std::mem::take(&mut made);
        made = match name {
            "device" | "number" => now,
            "threads" => now.threads(value.extract()?),
            "memory" => now.memory(value.extract()?),
            "fp" => now.fp(fp(name, value)?),
            _ => return Err(unknown(name)),
        };
        Ok(())
    })?;
    Ok(made)
}
