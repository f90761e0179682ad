//! Options of the pipeline.

use crate::error::{Error, ErrorKind};
use crate::pipeline::costing::Costing;
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::{CallId, ErrorClass};
use mlc_explore::Limits;
use mlc_extract::cost::target::{Surrogate, TargetPrices};
use mlc_extract::{
    Anytime, EGraphView, Exact, ExtractError, Extraction, Extractor, GreedyDag, Size, Solution,
};
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

/// Which laws may fire, by how far they may stray.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fp {
    /// Same bits.
    Exact,
    /// Same real function, differently rounded.
    #[default]
    Reorder,
    /// Other functions within the laws' stated bounds.
    Approx,
}

impl Fp {
    /// True if a law of this class may fire.
    pub fn admits(self, class: ErrorClass) -> bool {
        match class {
            ErrorClass::Exact => true,
            ErrorClass::Reorder => self != Fp::Exact,
            ErrorClass::Approx { .. } => self == Fp::Approx,
        }
    }
}

/// What is to be least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Estimated seconds.
    #[default]
    Latency,
    /// Planned bytes of all buffers; estimated seconds where these are equal.
    Memory,
    /// Bytes of the constants that the result stores; estimated seconds where these are equal.
    Size,
}

impl Objective {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Objective::Latency => "latency",
            Objective::Memory => "memory",
            Objective::Size => "size",
        }
    }

    /// What the prices besides the target's aim at by which programs are extracted.
    pub fn surrogates(self) -> Vec<Surrogate> {
        match self {
            Objective::Latency => vec![],
            Objective::Size | Objective::Memory => {
                vec![
                    Surrogate::StoredBytes,
                    Surrogate::WrittenBytes,
                    Surrogate::SquaredBytes,
                    Surrogate::TimeAndTraffic,
                ]
            }
        }
    }
}

/// How the cheapest program is searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Solver {
    /// Greedy over the DAG with local improvement, and a quick lower bound.
    Greedy,
    /// Exact search and neighbourhoods in turns, until the optimum is proven or the budget is spent.
    #[default]
    Anytime,
    /// Branch and bound alone, until the optimum is proven or the budget is spent.
    Exact,
}

/// Steps of an exact search without a deadline: about half a minute.
const EXACT_STEPS: u64 = 1_000_000_000;

/// An extractor that ends at a deadline, if there is one; without one it ends after a number of steps, so
/// that every run has the same result.
pub(crate) struct Budgeted {
    solver: Solver,
    deadline: Option<Duration>,
    threads: usize,
}

impl Extractor for Budgeted {
    fn extract(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
    ) -> Result<Solution, ExtractError> {
        Ok(self.search(view, incumbent, &|| false)?.solution)
    }

    fn search(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
        stop: mlc_extract::Stop<'_>,
    ) -> Result<Extraction, ExtractError> {
        let began = Instant::now();
        let over = || {
            stop()
                || self.deadline.is_some_and(|d| began.elapsed() >= d)
                || mlc_explore::progress::is_cancelled()
        };
        let endless = |steps: u64| if self.deadline.is_some() { u64::MAX } else { steps };
        let threads = self.threads.clamp(1, 2);
        match self.solver {
            Solver::Greedy => GreedyDag::default().search(view, incumbent, &over),
            Solver::Anytime => {
                let steps = endless(Anytime::default().steps);
                Anytime { steps, threads }.search(view, incumbent, &over)
            }
            Solver::Exact => {
                let steps = endless(EXACT_STEPS);
                Exact { steps, ..Exact::default() }.search(view, incumbent, &over)
            }
        }
    }
}

/// What the user decides about the self-check.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Inputs besides the seeded ones, each in the program's order.
    pub given: Vec<Vec<Tensor>>,
    /// The part of an output's largest element that an element may be off, in place of the default
    /// bound.
    pub tolerance: Option<f64>,
    /// Numbers of the model's file that may bound an extent.
    pub bounds: BTreeSet<i64>,
    /// Bytes that runs may take; `None` for what the machine has free, of which a check takes no more than
    /// [`mlc_extract::resources::CHECKED_BYTES`].
    pub memory: Option<u64>,
}

/// What the user decides.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the target.
    pub target: String,
    /// Which laws may fire.
    pub fp: Fp,
    /// What is to be least.
    pub objective: Objective,
    /// The sizes that programs with open extents are priced at; not empty. Of others the first counts.
    pub sizes: Vec<Size>,
    /// Limits of exploration.
    pub limits: Limits,
    /// Laws that must not fire, by name.
    pub without: Vec<String>,
    /// Operators that the result may have; `None` for all that the target computes.
    pub operators: Option<HashSet<CallId>>,
    /// How the cheapest program is searched for.
    pub solver: Solver,
    /// Time for that, in place of a number of steps; each part of a program that repeats a block has it.
    pub deadline: Option<Duration>,
    /// Explore a block that the program repeats once for all its copies.
    pub share_blocks: bool,
    /// Hold the result against the source on seeded inputs, and turn off laws that make it wrong.
    pub self_check: bool,
    /// The user's inputs and tolerance for that.
    pub guard: Guard,
    /// What kernels cost, and whether plans are timed.
    pub costing: Costing,
    /// Seed of the self-check.
    pub seed: u64,
    /// Threads of the self-check's runs.
    pub threads: usize,
}

impl Default for Options {
    /// The processor, laws that may regroup, all checks on, one thread.
    fn default() -> Options {
        Options {
            target: "cpu".into(),
            fp: Fp::default(),
            objective: Objective::default(),
            sizes: Size::usual(),
            limits: Limits::default(),
            without: vec![],
            operators: None,
            solver: Solver::default(),
            deadline: None,
            share_blocks: true,
            self_check: true,
            guard: Guard::default(),
            costing: Costing::default(),
            seed: 0,
            threads: 1,
        }
    }
}

/// The part of an output's largest element that an element may be off.
pub(crate) fn tolerance(part: f64) -> Result<f64, Error> {
    match part.is_finite() && part >= 0.0 {
        true => Ok(part),
        false => {
            Err(Error::new(ErrorKind::Setting, format!("tolerance {part} is no part of a whole"))
                .at(format!("tolerance {part}"))
                .with_help("give a number from 0 on, such as 1e-4"))
        }
    }
}

impl Options {
    /// How the cheapest program is searched for.
    pub(crate) fn extractor(&self) -> Budgeted {
        Budgeted { solver: self.solver, deadline: self.deadline, threads: self.threads }
    }

    /// Prices that only lead to an objective are worth no proof.
    pub(crate) fn extractor_for(&self, prices: &TargetPrices<'_>) -> Box<dyn Extractor> {
        match prices.is_surrogate() {
            true => Box::new(GreedyDag::default()),
            false => Box::new(self.extractor()),
        }
    }
}
