//! The inputs of one run: an archive of them, one sample of an archive of several, or single arrays.
//!
//! Never decides what an input is called: only the model says that.

use super::super::terminal::Screen;
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use indexmap::IndexMap;
use mlc_dsl::ir::Tensor;
use mlc_dsl::shown;
use mlc_files::npz::read_npz;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Arrays that are given for a run.
#[derive(Debug, Default)]
pub struct RunInputs {
    /// By the names that they were given.
    arrays: HashMap<String, Tensor>,
    several: Option<Several>,
}

/// An archive whose arrays are all named `K/INPUT`, unless the model's inputs are.
#[derive(Debug)]
struct Several {
    path: PathBuf,
    samples: IndexMap<String, HashMap<String, Tensor>>,
    chosen: usize,
}

impl RunInputs {
    /// Single arrays.
    pub fn of_arrays(arrays: HashMap<String, Tensor>) -> RunInputs {
        RunInputs { arrays, several: None }
    }

    /// Those of an archive; of several samples the one of this name, or the first.
    ///
    /// # Errors
    /// A file that cannot be read, or a sample that it does not have.
    pub fn read(path: &Path, sample: Option<&str>) -> Result<RunInputs, Error> {
        let arrays = read_npz(path).map_err(Error::from)?;
        let mut samples: IndexMap<String, HashMap<String, Tensor>> = IndexMap::new();
        for (name, tensor) in &arrays {
            let Some((k, input)) = name.split_once('/') else {
                samples.clear();
                break;
            };
            samples.entry(k.into()).or_default().insert(input.into(), tensor.clone());
        }
        let chosen = match sample {
            None => 0,
            Some(k) => samples.get_index_of(k).ok_or_else(|| no_sample(path, k, &samples))?,
        };
        let path = path.to_path_buf();
        let several = (!samples.is_empty()).then_some(Several { path, samples, chosen });
        Ok(RunInputs { arrays: arrays.into_iter().collect(), several })
    }

    /// The chosen sample.
    fn sample(&self) -> Option<(&String, &HashMap<String, Tensor>)> {
        self.several.as_ref().and_then(|s| s.samples.get_index(s.chosen))
    }

    /// What inputs may be called, with their values: enough to read a model for them.
    pub fn offered(&self) -> HashMap<String, Tensor> {
        let mut offered = self.arrays.clone();
        if let Some((_, arrays)) = self.sample() {
            offered.extend(arrays.clone());
        }
        offered
    }

    /// The inputs of a model; says which sample they are, if there are several.
    pub fn of(self, model: &Model, screen: &Screen) -> HashMap<String, Tensor> {
        let mut names = model.program.inputs.iter().map(|(n, _)| n).chain(model.decided_inputs());
        let plain = names.any(|n| self.arrays.contains_key(n));
        match (self.sample(), &self.several) {
            (Some((name, arrays)), Some(s)) if !plain => {
                if s.samples.len() > 1 {
                    let (file, n) = (s.path.display().to_string(), s.samples.len());
                    screen.note(&format!(
                        "note: {} has {n} samples: `{}` is run; `--sample K` chooses another\n",
                        shown(&file),
                        shown(name)
                    ));
                }
                arrays.clone()
            }
            _ => self.arrays,
        }
    }
}

fn no_sample(path: &Path, k: &str, all: &IndexMap<String, HashMap<String, Tensor>>) -> Error {
    let names: Vec<String> = all.keys().take(8).map(|n| format!("`{}`", shown(n))).collect();
    let more = if all.len() > names.len() { ", …" } else { "" };
    let help = match names.is_empty() {
        true => "its arrays are named as inputs, not K/INPUT: leave `--sample` out".to_string(),
        false => format!("its samples are {}{more}", names.join(", ")),
    };
    let place = format!("sample `{}`", shown(k));
    Error::new(ErrorKind::Input, format!("the archive has no {place}"))
        .at(place)
        .with_help(help)
        .in_file(path)
}
