//! Questions to `explain` that are answered instead of the whole explanation.

use super::at::{self, Place};
use super::lines;
use crate::cli::common::{Common, Findings};
use crate::cli::completing;
use crate::cli::terminal::progress;
use crate::explain::NodeStory;
use crate::model::Model;
use crate::optimizer::OptimizedModel;
use clap_complete::ArgValueCompleter;
use serde::Serialize;

/// Arguments. At most one is asked.
#[derive(clap::Args)]
#[command(next_help_heading = "Questions")]
pub(super) struct Questions {
    /// What became of a node or value of the model, also of one that reading removed.
    #[arg(long, value_name = "NAME", group = "question", add = ArgValueCompleter::new(completing::nodes))]
    node: Option<String>,
    /// Why two nodes of the model are not in one kernel of the plan.
    #[arg(long, value_names = ["A", "B"], num_args = 2, group = "question", add = ArgValueCompleter::new(completing::nodes))]
    why_not_fused: Option<Vec<String>>,
    /// Plan once more with another error class (`exact`, `reorder`, `approx`), for another objective (`latency`, `memory`, `size`),
    /// or with or without a law, and say what that would gain.
    #[arg(long, value_name = "WHAT", group = "question", add = ArgValueCompleter::new(completing::gains))]
    would_gain: Option<String>,
    /// The error of each law's steps and how the model amplifies a rounding of its inputs, in units in the last place, on seeded
    /// inputs.
    #[arg(long, group = "question")]
    numerics: bool,
    /// The kernels of the plan, with the nodes that they compute, their times, shares and parts of the roofline; with `--measure` by
    /// the clock.
    #[arg(long, group = "question")]
    kernels: bool,
}

impl Questions {
    /// Answers the question; nothing if none is asked.
    pub fn answer(
        &self,
        model: &Model,
        optimized: &dyn Fn() -> anyhow::Result<OptimizedModel>,
        (common, all, measure): (&Common, bool, bool),
    ) -> anyhow::Result<Option<Findings>> {
        if let Some(name) = &self.node {
            let Place { node, told } = at::find(model, name)?;
            let Some(node) = node else { return told_only(common, &told) };
            let (found, notes) = (optimized()?.node(&node)?, &told);
            let text = lines(&told) + &found.human(all);
            return print(common, &Noted { notes, story: &found }, &text);
        }
        if let Some(nodes) = &self.why_not_fused {
            let (nodes, told) = pair(model, nodes)?;
            let [Some(a), Some(b)] = nodes else {
                return told_only(common, &told);
            };
            let found = optimized()?.why_not_fused(&a, &b)?;
            return print(common, &found, &(lines(&told) + &found.human()));
        }
        if let Some(what) = &self.would_gain {
            let found = optimized()?.would_gain(what)?;
            return print(common, &found, &found.human(all));
        }
        if self.numerics {
            let found = optimized()?.numerics()?;
            return print(common, &found, &found.human(all));
        }
        if self.kernels {
            let done = optimized()?;
            let found = if measure { done.measured_kernel_table() } else { done.kernel_table() }?;
            return print(common, &found, &found.human(all));
        }
        Ok(None)
    }
}

/// A node, and what reading made of what was asked for.
#[derive(Serialize)]
struct Noted<'a> {
    notes: &'a [String],
    #[serde(flatten)]
    story: &'a NodeStory,
}

/// Two nodes of the program as read, and what is to be said of those that are none.
fn pair(model: &Model, names: &[String]) -> anyhow::Result<([Option<String>; 2], Vec<String>)> {
    let (mut nodes, mut told) = ([None, None], vec![]);
    for (node, name) in nodes.iter_mut().zip(names) {
        let Place { node: found, told: said } = at::find(model, name)?;
        *node = found;
        told.extend(said);
    }
    Ok((nodes, told))
}

/// What is said of nodes that the program as read does not have.
fn told_only(common: &Common, told: &[String]) -> anyhow::Result<Option<Findings>> {
    print(common, &super::Told { notes: told }, &lines(told))
}

fn print(common: &Common, report: &impl Serialize, text: &str) -> anyhow::Result<Option<Findings>> {
    progress::done();
    common.report(report)?;
    common.screen.print_wrapped(text)?;
    Ok(Some(Findings::Nothing))
}
