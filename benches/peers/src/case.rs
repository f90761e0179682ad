//! Test cases as the suite stores them. Runs nothing.

use anyhow::{Context, Result, ensure};
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::{RawValueInfo, read_onnx, read_value};
use std::path::{Path, PathBuf};

/// One case.
pub struct Case {
    /// Its model.
    pub model: PathBuf,
    /// The names of the model's inputs.
    pub names: Vec<String>,
    pub sets: Vec<DataSet>,
    relative: f64,
    absolute: f64,
}

/// Inputs, and the outputs that are expected of them. `None` for what is not stored.
pub struct DataSet {
    pub inputs: Vec<Option<Tensor>>,
    pub outputs: Vec<Option<Tensor>>,
}

impl Case {
    /// Reads the case in a folder.
    pub fn read(folder: &Path) -> Result<Case> {
        let model = folder.join("model.onnx");
        let graph = read_onnx(&model)?.graph;
        let (relative, absolute) = tolerance(folder)?;
        let mut sets = vec![];
        while let Some(data) =
            Some(folder.join(format!("test_data_set_{}", sets.len()))).filter(|d| d.is_dir())
        {
            let inputs = stored(&data, "input", &graph.inputs)?;
            let outputs = stored(&data, "output", &graph.outputs)?;
            sets.push(DataSet { inputs, outputs });
        }
        ensure!(!sets.is_empty(), "there is no data");
        let names = graph.inputs.into_iter().map(|v| v.name).collect();
        Ok(Case { model, names, sets, relative, absolute })
    }

    /// How a result differs from what is expected, beyond tolerance; NaN equals NaN.
    pub fn differs(&self, got: &Tensor, wanted: &Tensor) -> Option<String> {
        let kind = |t: &Tensor| (t.dtype().is_float(), t.dtype() == DType::Str);
        if kind(got) != kind(wanted) || got.shape() != wanted.shape() {
            let (gd, gs, wd, ws) = (got.dtype(), got.shape(), wanted.dtype(), wanted.shape());
            return Some(format!("expected {wd}{ws:?}, found {gd}{gs:?}"));
        }
        let relative = match wanted.dtype() {
            DType::BF16 => self.relative.max(1.0 / 64.0),
            _ => self.relative,
        };
        if wanted.dtype() == DType::Str {
            let at = (0..wanted.len()).find(|&i| got.get_str(i) != wanted.get_str(i))?;
            let (w, g) = (wanted.get_str(at), got.get_str(at));
            return Some(format!("element {at}: expected {w:?}, found {g:?}"));
        }
        let near = |i: &usize| match wanted.dtype().is_float() {
            true => {
                let (g, w) = (got.get_f64(*i), wanted.get_f64(*i));
                let equal = g == w || g.is_nan() && w.is_nan();
                equal || w.is_finite() && (g - w).abs() <= self.absolute + relative * w.abs()
            }
            false => {
                let apart = got.get_i128(*i).abs_diff(wanted.get_i128(*i)) as f64;
                apart <= self.absolute + relative * wanted.get_f64(*i).abs()
            }
        };
        let at = (0..wanted.len()).find(|i| !near(i))?;
        Some(format!("element {at}: expected {}, found {}", wanted.get_f64(at), got.get_f64(at)))
    }
}

/// Those of ONNX's test runner, unless the case has its own.
fn tolerance(folder: &Path) -> Result<(f64, f64)> {
    let path = folder.join("tolerance.txt");
    if !path.exists() {
        return Ok((1e-3, 1e-7));
    }
    let text = std::fs::read_to_string(&path)?;
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || numbers.next().context("a number is missing");
    Ok((next()??, next()??))
}

fn stored(data: &Path, kind: &str, values: &[RawValueInfo]) -> Result<Vec<Option<Tensor>>> {
    let read = |(i, v): (usize, &RawValueInfo)| {
        let path = data.join(format!("{kind}_{i}.pb"));
        if !path.is_file() {
            return Ok(None);
        }
        ensure!(v.containers.is_empty(), "it is a sequence or an optional");
        Ok(read_value(&path, &v.name, &[])?.pop().map(|(_, t)| t))
    };
    values.iter().enumerate().map(read).collect()
}
