//! Questions to `explain` that are answered instead of the whole explanation.

use super::at::{self, Place};
use super::lines;
use crate::cli::common::{Common, Findings};
use crate::cli::completing;
use crate::cli::terminal::progress;
use crate::model::Model;
use crate::optimizer::OptimizedModel;
use clap_complete::ArgValueCompleter;
use serde::Serialize;

/// Arguments. At most one is asked.
#[derive(clap::Args)]
#[command(next_help_heading = "Questions")]
pub(super) struct Questions {
    /// Why two nodes of the model are not in one kernel of the plan.
    #[arg(long, value_names = ["A", "B"], num_args = 2, group = "question", add = ArgValueCompleter::new(completing::nodes))]
    why_not_fused: Option<Vec<String>>,
    /// Plan once more with another error class (`exact`, `reorder`, `approx`), for another objective (`latency`, `memory`, `size`),
    /// or with or without a law, and say what that would gain.
    #[arg(long, value_name = "WHAT", group = "question", add = ArgValueCompleter::new(completing::gains))]
    would_gain: Option<String>,
}

impl Questions {
    /// Answers the question; nothing if none is asked.
    pub fn answer(
        &self,
        model: &Model,
        optimized: &dyn Fn() -> anyhow::Result<OptimizedModel>,
        (common, all): (&Common, bool),
    ) -> anyhow::Result<Option<Findings>> {
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
        Ok(None)
    }
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

fn print(
    common: &Common,
    report: &impl Serialize,
    text: &str,
) -> anyhow::Result<Option<Findings>> {
    progress::done();
    common.report(report)?;
    common.screen.print(text)?;
    Ok(Some(Findings::Nothing))
}
