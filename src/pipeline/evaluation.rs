//! Programs evaluated by the objective: estimated time, planned peak of memory, or size of the weights.
//!
//! A program is extracted by the costs of the target and, for an objective other than time, by costs that lead towards that
//! objective; the best of these and of the original program is taken, among equal ones the fastest.

use crate::error::Error;
use crate::pipeline::options::{Objective, Options};
use crate::pipeline::planning::target;
use crate::pipeline::sized_prices::SizedPrices;
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_explore::Extracted;
use mlc_explore::constants::folding;
use mlc_explore::constants::folding::ConstantMemo;
use mlc_extract::cost::target::TargetPrices;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Estimates that differ by no more than this part do not justify more nodes than the model has.
pub(crate) const CLOSE: f64 = 0.02;

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

/// What an objective makes small, of a plan that takes so many seconds and stores so many bytes.
pub fn figure(objective: Objective, plan: &Plan, seconds: f64, weights: u64) -> f64 {
    match objective {
        Objective::Latency => seconds,
        Objective::Memory => plan.memory.peak() as f64,
        Objective::Size => weights as f64,
    }
}

/// A program that may be the result.
#[derive(Clone)]
pub struct Candidate {
    /// Its program and kernels.
    pub plan: Plan,
    /// Estimated seconds at each size.
    pub at_sizes: Vec<f64>,
    /// One figure of these: see [`SizedPrices::seconds`].
    pub seconds: f64,
    /// It takes longer than the program as read at some size.
    pub is_slower_somewhere: bool,
    /// Bytes of the constants that it stores.
    pub weights: u64,
    /// What is to be least.
    pub figure: f64,
}

impl Candidate {
    /// True if it is the better one, or as good and faster. What is slower than the program as read at some size is no gain.
    pub fn beats(&self, other: &Candidate) -> bool {
        let rank = |c: &Candidate| (c.is_slower_somewhere, c.figure, c.seconds);
        rank(self) < rank(other)
    }
}

/// Evaluates programs by the objective, at the sizes that the user names or, where extents are open and none is named, at [several](mlc_extract::Size::usual).
pub struct Evaluation<'a> {
    /// What the user decides.
    pub options: &'a Options,
    /// The declarations.
    pub library: &'a Library,
    /// The prices of the place to run.
    pub prices: SizedPrices<'a>,
    /// The program as read.
    plain: Option<Candidate>,
    /// Constants that were computed for other programs of the model.
    memo: RefCell<ConstantMemo>,
}

impl<'a> Evaluation<'a> {
    /// Evaluation of programs that are equal to `source`.
    ///
    /// # Errors
    /// There is no such target; a constant of the source cannot be computed.
    pub fn new(
        options: &'a Options,
        library: &'a Library,
        source: &Program,
    ) -> Result<Evaluation<'a>, Error> {
        let target = target(library, &options.target)?;
        let model = options.costing.model(&target, source);
        let prices = SizedPrices::new(library, &options.sizes, source, || {
            TargetPrices::new(library, &target, options.operators.clone()).with_model(model.clone())
        });
        let mut new =
            Evaluation { options, library, prices, plain: None, memo: RefCell::default() };
        let plain = new.as_read(source)?;
        new.prices.weigh(&plain.at_sizes);
        new.plain = Some(plain);
        Ok(new)
    }

    /// The program as read, layers open that the target does not have.
    pub fn plain(&self) -> &Candidate {
        self.plain.as_ref().expect("made with it")
    }

    /// A program with its kernels and figures; `chosen` are kernels that were chosen for it before. The kernels are the best of those that
    /// each size prefers.
    pub fn candidate(&self, program: Program, chosen: &[Vec<NodeId>]) -> Candidate {
        let mut plans = self.prices.select(&program, chosen).into_iter().map(|p| self.of_plan(p));
        let first = plans.next().expect("one for each size");
        plans.fold(first, |best, other| if other.beats(&best) { other } else { best })
    }

    /// A plan with its figures.
    fn of_plan(&self, plan: Plan) -> Candidate {
        let at_sizes = self.prices.at_sizes(&plan);
        let seconds = self.prices.seconds(&at_sizes);
        let weights = stored(&plan.program);
        let figure = figure(self.options.objective, &plan, seconds, weights);
        let slower = |(own, read): (&f64, &f64)| *own > read * (1.0 + CLOSE);
        let read = self.plain.iter().flat_map(|p| &p.at_sizes);
        let is_slower_somewhere = self.options.objective == Objective::Latency
            && at_sizes.len() > 1
            && at_sizes.iter().zip(read).any(slower);
        Candidate { plan, at_sizes, seconds, is_slower_somewhere, weights, figure }
    }

    /// An extracted program with its constants folded.
    pub fn of_extracted(&self, e: &Extracted) -> Result<Candidate, Error> {
        let (program, chosen) = folding::fold_keeping_kernels(
            &e.program,
            &e.kernels,
            self.library,
            &mut self.memo.borrow_mut(),
        )?;
        Ok(self.candidate(program, &chosen))
    }

    fn as_read(&self, source: &Program) -> Result<Candidate, Error> {
        let open = folding::unfold(source, self.library, self.prices.first())?;
        let mut memo = self.memo.borrow_mut();
        let (folded, _) = folding::fold_keeping_kernels(&open, &[], self.library, &mut memo)?;
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
