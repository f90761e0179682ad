//! Sources of kernel costs: a target's text, a profile, timings of this machine.

use crate::error::Error;
use mlc_dsl::ir::Program;
use mlc_dsl::library::TargetItem;
use mlc_extract::cost::target::Jitter;
use mlc_extract::{CostModel, Fits, Profile};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::sync::Arc;

/// Where the costs of kernels are from.
#[derive(Clone, Debug, Default)]
pub struct Costing {
    /// The target whose figures describe the device at hand better than those of the one that is optimised for.
    pub described: Option<TargetItem>,
    /// Figures in place of those of the target's text.
    pub profile: Option<Profile>,
    /// What was fitted to times of this machine's kernels.
    pub fits: Option<Fits>,
    /// Where these are from, for people.
    pub source: String,
    /// How many plans are timed, and the fastest kept; none if 0.
    pub measure: usize,
    /// An optimised plan is kept only if the clock finds it faster than the plan as read; where its verdicts are remembered.
    pub confirm: Option<Arc<dyn Verdicts>>,
    /// Prices that are off on purpose.
    pub jitter: Option<Jitter>,
    /// Programs of few operators are looked for; what they take is priced as ever.
    pub few: bool,
}

impl Costing {
    /// True if costs are others than those of the target's text.
    pub fn is_given(&self) -> bool {
        self.profile.is_some() || self.fits.is_some()
    }

    /// The costs of a target's kernels in a program.
    pub fn model(&self, target: &TargetItem, program: &Program) -> CostModel {
        let plain = CostModel::of(self.described.as_ref().unwrap_or(target));
        let model = match &self.profile {
            Some(p) => CostModel::new(target, p.clone(), self.source.clone()),
            None => plain,
        };
        let model = match &self.fits {
            Some(f) => model.with_fits(f.clone(), self.source.clone()),
            None => model,
        };
        model.with_weights(program.consts.bytes() as f64)
    }
}

/// A plan that was timed.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Which point of the search it is.
    pub point: String,
    /// Its estimated seconds.
    pub estimate: f64,
    /// Seconds of its fastest run.
    pub least: f64,
}

/// What the clock said of two plans of one program: seconds of their fastest runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Of the plan as read.
    pub read: f64,
    /// Of the optimised one.
    pub optimized: f64,
}

/// Where the clock's verdicts on this machine are remembered.
pub trait Verdicts: Debug + Send + Sync {
    /// What was said of two plans before.
    fn recall(&self, plans: &str) -> Result<Option<Verdict>, Error>;

    /// Keeps what was said of two plans.
    fn remember(&self, plans: &str, verdict: &Verdict) -> Result<(), Error>;
}
