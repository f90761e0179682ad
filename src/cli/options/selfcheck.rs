//! The options and messages of the self-check, shared by all verbs that have it.

use crate::error::Error;
use crate::pipeline::Report;
use crate::pipeline::options::{self, Options};
use crate::pipeline::selfcheck::{SelfCheck, TurnedOff};
use crate::session::unknown_input;
use anyhow::Context;
use indexmap::IndexMap;
use mlc_dsl::ir::Tensor;
use mlc_files::npz::read_npz;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Arguments of the self-check.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Checks of the result")]
pub struct Checking {
    /// Skip the comparison of the result with the model.
    #[arg(long)]
    no_check: bool,
    /// Most that an element of the result may be off, as a part of its output's largest element.
    #[arg(long, value_name = "PART")]
    tolerance: Option<f64>,
}

impl Checking {
    /// Enters the arguments and the user's inputs into the options of the pipeline.
    pub fn enter(&self, options: &mut Options, given: Vec<Vec<Tensor>>) -> anyhow::Result<()> {
        options.self_check = !self.no_check;
        options.guard.tolerance = self.tolerance.map(options::tolerance).transpose()?;
        options.guard.given = given;
        Ok(())
    }
}

/// The samples in an archive: one, of arrays named as the inputs, or several, of arrays named `K/INPUT`.
pub fn samples(path: &Path, inputs: &[&str]) -> anyhow::Result<Vec<Vec<Tensor>>> {
    let arrays = read_npz(path).map_err(Error::from)?;
    let is_input = |name: &str| inputs.contains(&name);
    let mut samples: IndexMap<&str, IndexMap<&str, &Tensor>> = IndexMap::new();
    for (key, tensor) in &arrays {
        let (sample, name) = match key.split_once('/') {
            Some((sample, name)) if !is_input(key) => (sample, name),
            _ => ("", key.as_str()),
        };
        if !is_input(name) {
            let e = unknown_input(name, inputs).in_file(path);
            let help = e.help().unwrap_or_default().to_string();
            return Err(e.with_help(format!("{help}, or K/INPUT for several samples")).into());
        }
        samples.entry(sample).or_default().insert(name, tensor);
    }
    if samples.is_empty() {
        samples.insert("", IndexMap::new());
    }
    let of = |(sample, given): (&str, IndexMap<&str, &Tensor>)| {
        let find = |name: &&str| {
            let key = if sample.is_empty() { name.to_string() } else { format!("{sample}/{name}") };
            let found = given.get(name).map(|t| (*t).clone());
            found.with_context(|| {
                format!(
                    "{}: input `{key}` is missing\nhelp: give every input of the model",
                    path.display()
                )
            })
        };
        inputs.iter().map(find).collect()
    };
    samples.into_iter().map(of).collect()
}

/// The self-check's part of a verb's report.
#[derive(Debug, Default, Serialize)]
pub struct CheckReport {
    /// Largest relative error on ordinary inputs and the user's; `None` if the self-check did not run.
    self_check_error: Option<f64>,
    /// What it compared.
    self_check: Option<SelfCheck>,
    /// Laws that were turned off, as the result was wrong with them.
    laws_turned_off: Vec<TurnedOff>,
    /// Why the program was kept as read.
    kept_as_read: Option<String>,
}

impl CheckReport {
    /// That of a run of the pipeline.
    pub fn of(r: &Report) -> CheckReport {
        CheckReport {
            self_check_error: r.self_check_error,
            self_check: r.self_check.clone(),
            laws_turned_off: r.laws_turned_off.clone(),
            kept_as_read: r.kept_as_read.clone(),
        }
    }
}

/// Warns on standard error that a result was not compared with the model.
pub fn warn(r: &Report) {
    if let Some(why) = r.self_check.as_ref().and_then(|c| c.not_checked.as_ref()) {
        eprintln!("warning: the result is not checked: {why}");
    }
}

/// What the guard did, for people; empty if it had nothing to do.
pub fn told(r: &Report) -> String {
    let mut out = String::new();
    for law in &r.laws_turned_off {
        let text = law.human().replace('\n', "\n            ");
        let _ = writeln!(out, "turned off  {text}");
    }
    if let Some(why) = &r.kept_as_read {
        let _ = writeln!(
            out,
            "kept        the program as read: the result was wrong and no law could be blamed; {why}"
        );
    }
    out
}
