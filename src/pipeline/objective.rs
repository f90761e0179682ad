//! The objective: the estimated time, the planned peak of memory, or the size of the weights is minimised.
//!
//! A program is extracted by the costs of the target and, for an objective other than time, by costs that lead towards that
//! objective; the best of these and of the original program is taken, among equal ones the fastest.

use crate::error::Error;
use crate::pipeline::Options;
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_explore::Extracted;
use mlc_explore::constant_folding::{self, Memo};
use mlc_extract::kernel_selection::select_kernels_from;
use mlc_extract::target::{Aim, TargetPrices};
use std::cell::RefCell;
use std::collections::BTreeMap;

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

    /// The figure to make small.
    pub fn figure(self, program: &Program, plan: &Plan, seconds: f64) -> f64 {
        match self {
            Objective::Latency => seconds,
            Objective::Memory => plan.memory.peak() as f64,
            Objective::Size => stored(program) as f64,
        }
    }

    /// What the prices besides the target's aim at by which programs are extracted.
    pub fn aims(self) -> Vec<Aim> {
        match self {
            Objective::Latency => vec![],
            Objective::Size | Objective::Memory => {
                vec![Aim::Stored, Aim::Written, Aim::Large, Aim::Traffic]
            }
        }
    }
}

/// Bytes of the constants that a program reads, each once.
pub fn stored(program: &Program) -> u64 {
    let mut read = vec![false; program.nodes.len()];
    let args = program.nodes.iter().flat_map(|n| &n.args);
    for v in args.chain(program.outputs.iter().map(|(_, v)| v)) {
        read[v.node.0 as usize] = true;
    }
    let constant = |(n, read): (&Node, bool)| match n.kind {
        NodeKind::Const(c) if read => Some((c, program.consts.get(c).bytes().len() as u64)),
        NodeKind::Const(_) | NodeKind::Input(_) | NodeKind::Apply(..) => None,
    };
    let each: BTreeMap<_, u64> = program.nodes.iter().zip(read).filter_map(constant).collect();
    each.values().sum()
}

/// A program that may be the result.
#[derive(Clone)]
pub struct Candidate {
    /// Its program and kernels.
    pub plan: Plan,
    /// Estimated seconds.
    pub seconds: f64,
    /// Bytes of the constants that it stores.
    pub weights: u64,
    /// What is to be least.
    pub figure: f64,
}

impl Candidate {
    /// True if it is the better one, or as good and faster.
    pub fn beats(&self, other: &Candidate) -> bool {
        (self.figure, self.seconds) < (other.figure, other.seconds)
    }
}

/// Evaluates programs by the objective.
pub struct Evaluation<'a> {
    /// What the user decides.
    pub options: &'a Options,
    /// The declarations.
    pub library: &'a Library,
    /// The prices of the place to run.
    pub prices: &'a TargetPrices<'a>,
    /// Constants that were computed for other programs of the model.
    memo: RefCell<Memo>,
}

impl<'a> Evaluation<'a> {
    /// Evaluation of programs of one model.
    pub fn new(options: &'a Options, library: &'a Library, prices: &'a TargetPrices<'a>) -> Self {
        Evaluation { options, library, prices, memo: RefCell::default() }
    }

    /// A program with its kernels and figures; `chosen` are kernels that were chosen for it before.
    pub fn candidate(&self, program: Program, chosen: &[Vec<NodeId>]) -> Candidate {
        let plan = select_kernels_from(program, chosen, self.library, self.prices);
        let seconds = plan.cost;
        let figure = self.options.objective.figure(&plan.program, &plan, seconds);
        let weights = stored(&plan.program);
        Candidate { plan, seconds, weights, figure }
    }

    /// An extracted program with its constants folded.
    pub fn of_extracted(&self, e: &Extracted) -> Result<Candidate, Error> {
        let (program, chosen) = constant_folding::fold_chosen(
            &e.program,
            &e.kernels,
            self.library,
            &mut self.memo.borrow_mut(),
        )?;
        Ok(self.candidate(program, &chosen))
    }

    /// The program as read, layers open that the target does not have.
    pub fn as_read(&self, source: &Program) -> Result<Candidate, Error> {
        let open = constant_folding::unfold(source, self.library, self.prices)?;
        let mut memo = self.memo.borrow_mut();
        let (folded, _) = constant_folding::fold_chosen(&open, &[], self.library, &mut memo)?;
        let out = self.candidate(folded, &[]);
        if self.options.objective == Objective::Size && stored(source) < out.weights {
            return Ok(self.candidate(open, &[]));
        }
        Ok(out)
    }
}

/// The extracted programs without those that came before: folding them takes long.
pub fn distinct(extracted: Vec<Extracted>) -> Vec<Extracted> {
    let mut out: Vec<Extracted> = Vec::with_capacity(extracted.len());
    for e in extracted {
        if !out.iter().any(|known| is_same(&known.program, &e.program)) {
            out.push(e);
        }
    }
    out
}

/// True if both programs have the same nodes in the same order; constants are compared by where they lie.
pub fn is_same(a: &Program, b: &Program) -> bool {
    let node = |(x, y): (&Node, &Node)| {
        let kind = match (&x.kind, &y.kind) {
            (NodeKind::Const(c), NodeKind::Const(d)) => {
                a.consts.get(*c).same_storage(b.consts.get(*d))
            }
            (k, l) => k == l,
        };
        kind && x.args == y.args
    };
    a.nodes.len() == b.nodes.len()
        && a.outputs == b.outputs
        && a.nodes.iter().zip(&b.nodes).all(node)
}
