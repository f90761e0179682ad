//! ONNX's test cases: where they are, and whether a backend computes what they say.
//!
//! A case is a folder with `model.onnx` and `test_data_set_N/{input,output}_M.pb`, as ONNX's own suite and its model zoo store
//! them; `tolerance.txt` holds the relative and the absolute tolerance of a case that has its own. What is told of them is for others to say.

use crate::error::Error;
use crate::model::{Model, Reader};
use crate::pipeline::{self, Options};
use crate::session::data_dependent;
use crate::stdlib;
use anyhow::ensure;
use itertools::Itertools;
use mlc_backends::{Backend, Executable};
use mlc_dsl::ir::{DType, Program, Tensor, Type};
use mlc_dsl::plan::Plan;
use mlc_onnx::{RawModel, RawValueInfo, read_value};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Tolerances of cases that do not state their own: those of ONNX's test runner.
const TOLERANCE: (f64, f64) = (1e-3, 1e-7);
/// The least relative tolerance of bf16 in ONNX's test runner (`onnx/backend/test/runner`): two units in the last place.
const BF16_TOLERANCE: f64 = 1.0 / 64.0;
/// Folders are searched so deep.
const MAX_DEPTH: usize = 4;

/// How cases are run.
pub struct Runner<'a> {
    /// How their models are read.
    pub reader: Reader,
    /// What computes them.
    pub backend: &'a dyn Backend,
    /// How they are optimised; unless they run as they are.
    pub options: Options,
    /// Whether they run as they are.
    pub as_read: bool,
    /// By what part of its largest element a result in 16 bits may differ whatever the case says: what the backend states where
    /// it rounds to 16 bits between operators, as the suite's own results do elsewhere.
    pub halves: Option<fn(DType) -> f64>,
}

/// Cases that are left out.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// Reasons by the name of a case.
    #[serde(default)]
    cases: BTreeMap<String, String>,
    /// Reasons by a domain that a case uses.
    #[serde(default)]
    domains: BTreeMap<String, String>,
}

impl Skipped {
    /// Reads the table, which is TOML.
    ///
    /// # Errors
    /// It cannot be read, or is no such table.
    pub fn read(path: &Path) -> anyhow::Result<Skipped> {
        let text = stdlib::read_text(path)?;
        toml::from_str(&text).map_err(|e| {
            let help = "the table `[cases]` has lines `CASE = \"the reason why it is left out\"`";
            anyhow::anyhow!("{} is no table of cases: {e}\nhelp: {help}", path.display())
        })
    }

    /// Why a case is left out, by its name.
    pub fn by_name(&self, case: &str) -> Option<&str> {
        self.cases.get(case).map(String::as_str)
    }

    /// Why a case is left out, by what its model has.
    pub fn by_domain(&self, raw: &RawModel) -> Option<&str> {
        raw.graph.nodes.iter().find_map(|n| self.domains.get(&n.domain)).map(String::as_str)
    }
}

/// The folders of cases in and below a folder, in no order.
///
/// # Errors
/// A folder cannot be searched.
pub fn cases_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = vec![];
    add_cases(folder, 0, &mut found)?;
    Ok(found)
}

/// Adds the folders of cases in and below a folder.
fn add_cases(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if folder.join("model.onnx").is_file() {
        found.push(folder.to_path_buf());
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if depth < MAX_DEPTH && path.is_dir() {
            add_cases(&path, depth + 1, found)?;
        }
    }
    Ok(())
}

/// A program that is ready to run, and what it takes.
struct Ready {
    inputs: Vec<(String, Type)>,
    executable: Box<dyn Executable>,
}

impl Runner<'_> {
    /// What differs from the expected outputs, in the first set of data where anything does.
    pub fn difference(&self, folder: &Path, raw: &RawModel) -> anyhow::Result<Option<String>> {
        let tolerance = tolerance(folder)?;
        let (mut n, mut ready) = (0, None);
        loop {
            let data = folder.join(format!("test_data_set_{n}"));
            if !data.is_dir() {
                ensure!(n > 0, "it has no `test_data_set_0`");
                return Ok(None);
            }
            let inputs: HashMap<String, Tensor> = stored(&data, "input", &raw.graph.inputs)?;
            let expected = stored(&data, "output", &raw.graph.outputs)?;
            let reader = self.reader.clone().offering(inputs.clone());
            let model = reader.read(folder.join("model.onnx"))?;
            let mut outputs = self.outputs(model, inputs, &mut ready)?;
            for (name, wanted) in expected.iter().sorted_by_key(|(name, _)| *name) {
                let reason = match outputs.remove(name) {
                    Some(got) => differs(&got, wanted, self.beside(wanted, tolerance)),
                    None => Some("there is none".to_string()),
                };
                if let Some(reason) = reason {
                    return Ok(Some(format!("data set {n}, output `{name}`: {reason}")));
                }
            }
            let is_stored = |i: &usize| data.join(format!("output_{i}.pb")).is_file();
            let stored = raw.graph.outputs.iter().enumerate().filter(|(i, _)| is_stored(i));
            let is_more = |name: &String| {
                let of = |o: &str| name == o || name.starts_with(&format!("{o}["));
                stored.clone().any(|(_, o)| of(&o.name))
            };
            if let Some(more) = outputs.keys().filter(|name| is_more(name)).min() {
                return Ok(Some(format!("data set {n}, output `{more}`: none is expected")));
            }
            n += 1;
        }
    }

    /// A tolerance with what this result may differ by beside it.
    fn beside(&self, wanted: &Tensor, (relative, absolute): (f64, f64)) -> (f64, f64) {
        let relative = match wanted.dtype() {
            DType::BF16 => relative.max(BF16_TOLERANCE),
            _ => relative,
        };
        let part = self.halves.filter(|_| wanted.dtype().is_half()).map(|of| of(wanted.dtype()));
        let absolute = part.map_or(absolute, |part| {
            let finite = wanted.to_f64().into_iter().filter(|v| v.is_finite());
            absolute.max(part * finite.fold(0.0f64, |m, v| m.max(v.abs())))
        });
        (relative, absolute)
    }

    /// The outputs of a model, by what is `ready` if that is the same program: it was optimised for all extents.
    fn outputs(
        &self,
        model: Model,
        mut inputs: HashMap<String, Tensor>,
        ready: &mut Option<Ready>,
    ) -> anyhow::Result<HashMap<String, Tensor>> {
        let (backend, options) = (self.backend, &self.options);
        let library = model.library().clone();
        let run = |plan: &Plan, inputs: &[Tensor]| -> Result<Vec<Tensor>, Error> {
            Ok(backend.compile(plan, library.clone())?.run(inputs)?)
        };
        // Nothing of it follows the data: whatever they are, it is read alike.
        let is_fixed = model.decided_inputs().is_empty() && model.all_understood().is_ok();
        let compute = |program: &Program, inputs: Vec<Tensor>| {
            run(&pipeline::plan_as_read(program, &library, options)?, &inputs)
        };
        let model =
            data_dependent::decided(&model, &inputs, &compute, data_dependent::MOST_ROUNDS)?;
        let model = model.ok_or_else(data_dependent::too_many)?;
        model.all_understood()?;
        inputs.retain(|name, _| model.program().inputs.iter().any(|(n, _)| n == name));
        let inputs = crate::session::in_order(model.program(), inputs)?;
        let ready = match ready.take().filter(|r| r.inputs == model.program().inputs && is_fixed) {
            Some(same) => ready.insert(same),
            None => {
                let plan = match self.as_read {
                    true => pipeline::plan_as_read(model.program(), &library, options)?,
                    false => pipeline::optimize(model.program().clone(), &library, options)?.plan,
                };
                let executable = backend.compile(&plan, library.clone())?;
                ready.insert(Ready { inputs: model.program().inputs.clone(), executable })
            }
        };
        let outputs = ready.executable.run(&inputs)?;
        Ok(model.program().outputs.iter().map(|(n, _)| n.clone()).zip(outputs).collect())
    }
}

fn tolerance(folder: &Path) -> anyhow::Result<(f64, f64)> {
    let path = folder.join("tolerance.txt");
    if !path.exists() {
        return Ok(TOLERANCE);
    }
    let text = stdlib::read_text(&path)?;
    let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
    match numbers.as_deref() {
        Ok(&[relative, absolute]) => Ok((relative, absolute)),
        _ => anyhow::bail!("{} holds no two numbers", path.display()),
    }
}

/// The stored tensors of a data set by the names of the graph's inputs or outputs; elements of sequences by number.
fn stored(
    data: &Path,
    kind: &str,
    values: &[RawValueInfo],
) -> anyhow::Result<HashMap<String, Tensor>> {
    let mut all = HashMap::new();
    for (i, value) in values.iter().enumerate() {
        let path = data.join(format!("{kind}_{i}.pb"));
        if path.is_file() && !value.name.is_empty() {
            all.extend(read_value(&path, &value.name, &value.containers)?);
        }
    }
    Ok(all)
}

/// How a result differs from what is expected, beyond tolerance; NaN equals NaN.
fn differs(got: &Tensor, wanted: &Tensor, (relative, absolute): (f64, f64)) -> Option<String> {
    if got.dtype() != wanted.dtype() || got.shape() != wanted.shape() {
        let (gd, gs, wd, ws) = (got.dtype(), got.shape(), wanted.dtype(), wanted.shape());
        return Some(format!("expected {wd}{ws:?}, found {gd}{gs:?}"));
    }
    if wanted.dtype() == DType::Str {
        let at = (0..wanted.len()).find(|&i| got.get_str(i) != wanted.get_str(i))?;
        let (w, g) = (wanted.get_str(at), got.get_str(at));
        return Some(format!("element {at}: expected {w:?}, found {g:?}"));
    }
    let near = |i: &usize| match wanted.dtype().is_float() {
        true => {
            let (g, w) = (got.get_f64(*i), wanted.get_f64(*i));
            let equal = g == w || g.is_nan() && w.is_nan();
            equal || w.is_finite() && (g - w).abs() <= absolute + relative * w.abs()
        }
        false => {
            let apart = got.get_i128(*i).abs_diff(wanted.get_i128(*i)) as f64;
            apart <= absolute + relative * wanted.get_f64(*i).abs()
        }
    };
    let at = (0..wanted.len()).find(|i| !near(i))?;
    Some(format!("element {at}: expected {}, found {}", wanted.get_f64(at), got.get_f64(at)))
}
