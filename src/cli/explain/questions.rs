//! Questions to `explain` that are answered instead of the whole explanation.

use crate::cli::common::{Common, Findings};
use crate::cli::completing;
use crate::cli::terminal::progress;
use crate::explain::{self, NodeStory, NotFused, OfNodes, Place};
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
            // Where no node stands for it, nothing has to be optimised.
            let Place { node, told: notes } = explain::place(&model.program, model, name)?;
            let found = match node {
                None => OfNodes::<NodeStory> { notes, answer: None },
                Some(_) => optimized()?.node(name)?,
            };
            return print(common, &found, &found.human(all));
        }
        if let Some([a, b]) = self.why_not_fused.as_deref() {
            let found = |name: &str| explain::place(&model.program, model, name);
            let (first, second) = (found(a)?, found(b)?);
            let found = match first.node.is_some() && second.node.is_some() {
                true => optimized()?.why_not_fused(a, b)?,
                false => {
                    let notes = [first.told, second.told].concat();
                    OfNodes::<NotFused> { notes, answer: None }
                }
            };
            return print(common, &found, &found.human());
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

fn print(common: &Common, report: &impl Serialize, text: &str) -> anyhow::Result<Option<Findings>> {
    progress::done();
    common.report(report)?;
    common.screen.print_wrapped(text)?;
    Ok(Some(Findings::Nothing))
}
