//! `bench --turns`: plans that run when they are told to, so that whoever asks decides who takes turns with whom.
//!
//! Chooses nothing and compares nothing. What it answers is what other runtimes answer to [`super::peer`].

use super::super::common::Findings;
use super::super::terminal::out;
use crate::pipeline::measure;
use crate::pipeline::report::Report;
use anyhow::Context;
use mlc_backends::Executable;
use mlc_dsl::ir::Tensor;
use mlc_files::npz::write_npz;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The first line that is printed: what is known before anything runs.
#[derive(Default, Serialize)]
pub(crate) struct Ready {
    /// An archive of the inputs of every run; it is there until the process ends.
    inputs: PathBuf,
    /// The plan as read is the optimised one.
    pub same_plan: bool,
    /// Estimated seconds of the optimised plan and of the plan as read; not known where the data of a run decide it.
    estimate: Option<f64>,
    estimate_unoptimized: Option<f64>,
    /// Laws that the result rests on, with the number of their equations in its proof.
    proof: BTreeMap<String, usize>,
    /// Kernels of the optimised plan.
    kernels: BTreeMap<String, usize>,
}

impl Ready {
    /// Of what the optimisation found.
    pub fn of(report: &Report, same_plan: bool) -> Ready {
        let mut kernels = BTreeMap::new();
        for k in &report.kernels {
            *kernels.entry(k.name.clone()).or_default() += 1;
        }
        Ready {
            same_plan,
            estimate: Some(report.cost_after),
            estimate_unoptimized: Some(report.cost_before),
            proof: report.proof.clone(),
            kernels,
            ..Ready::default()
        }
    }
}

/// Names of the plans, as lines ask for them.
const PLANS: [&str; 2] = ["optimised", "as read"];

/// Answers every line of standard input, until it ends, with the seconds of one run of the plan that it names, or the mean of as
/// many in a row as it says behind a tab. `compile` makes a plan when it is first asked for.
pub(crate) fn serve(
    mut known: Ready,
    inputs: &[(String, Tensor)],
    mut compile: impl FnMut(usize) -> anyhow::Result<Box<dyn Executable>>,
) -> anyhow::Result<Findings> {
    let folder = tempfile::tempdir()?;
    known.inputs = folder.path().join("inputs.npz");
    write_npz(&known.inputs, inputs)?;
    out(&format!("{}\n", serde_json::to_string(&known)?))?;
    let given: Vec<Tensor> = inputs.iter().map(|(_, t)| t.clone()).collect();
    let mut ready: [Option<Box<dyn Executable>>; 2] = [None, None];
    for line in std::io::stdin().lines() {
        let (which, count) = asked(&line.context("standard input")?)?;
        let plan = match &mut ready[which] {
            Some(plan) => plan,
            place => {
                let plan = compile(which)?;
                // The first run does what is done once.
                plan.run(&given)?;
                place.insert(plan)
            }
        };
        let mut total = 0.0;
        for _ in 0..count {
            total += measure::seconds(&**plan, &given)?;
        }
        out(&format!("{}\n", total / f64::from(count)))?;
    }
    Ok(Findings::Nothing)
}

/// The place of the plan that a line names, and how often it is to run.
fn asked(line: &str) -> anyhow::Result<(usize, u32)> {
    let (name, count) = line.split_once('\t').unwrap_or((line, "1"));
    let which = PLANS.iter().position(|p| *p == name);
    let count = count.parse().ok().filter(|&n| n > 0);
    which.zip(count).with_context(|| {
        let line = line.escape_default();
        format!("`{line}` asks for no run\nhelp: ask for `optimised` or `as read`; a number behind a tab says how often it runs")
    })
}
