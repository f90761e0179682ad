//! What a run of the pipeline yields.

use crate::error::Error;
use crate::pipeline::evaluation::{Evaluation, stored};
use crate::pipeline::options::Options;
use crate::pipeline::report::{Report, kernels, operators};
use mlc_dsl::ir::Program;
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_explore::{Explored, Extracted};

/// What a run of the pipeline yields.
pub struct Optimized {
    /// The program as read.
    pub source: Program,
    /// The cheaper program, constants folded.
    pub program: Program,
    /// Its kernels on the target.
    pub plan: Plan,
    /// The e-graph, with the log that proves the result.
    pub explored: Explored,
    /// What was extracted, before constants were folded.
    pub extracted: Extracted,
    /// The searches with the early laws alone, each of which began with the result of the one before, and what they gave.
    pub early: Vec<Searched>,
    /// For each node of the program that the e-graph is of: names of the nodes that it stands for besides, where a block was
    /// explored once for all its copies.
    pub copies: Vec<Vec<String>>,
    /// What happened.
    pub report: Report,
}

/// What one search found, and the program as read that it was held against.
pub struct Found {
    /// The cheaper program.
    pub optimized: Optimized,
    /// The plan of the program as read, on the same target and at the same prices.
    pub as_read: Plan,
}

/// A search, and what it gave.
pub type Searched = (Explored, Extracted);

impl Optimized {
    /// True if the result is the program as read.
    pub fn is_kept(&self) -> bool {
        self.report.as_read
    }

    /// The plan of the result. A program that is kept as it was read because no other could be trusted has none that
    /// stands for it in a file: whoever runs the file chooses.
    pub fn planned(&self) -> Option<&Plan> {
        self.report.kept_as_read.is_none().then_some(&self.plan)
    }
}

/// The program as read in the place of a result that is wrong.
pub(crate) fn keep_as_read(
    mut o: Optimized,
    library: &Library,
    options: &Options,
) -> Result<Optimized, Error> {
    let evaluation = Evaluation::new(options, library, &o.source)?;
    let plain = evaluation.plain();
    o.program = match options.operators {
        None => plain.plan.program.clone(),
        Some(_) => o.source.clone(),
    };
    o.report.figures(&evaluation, stored(&o.source), plain);
    o.report.kernels = kernels(&plain.plan, library);
    o.report.operators_after = operators(&o.program);
    o.report.nodes_after = o.report.operators_after;
    o.report.proof.clear();
    o.report.as_read = true;
    o.plan = plain.plan.clone();
    Ok(o)
}
