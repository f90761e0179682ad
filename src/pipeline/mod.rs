//! The pipeline: from a program to a cheaper equal program and its plan; every stage has its own type.

pub mod costing;
mod decode;
pub mod evaluation;
pub(crate) mod extent_ranges;
pub mod keep_faster;
mod laws;
pub mod measure;
pub mod options;
pub(crate) mod planning;
pub mod report;
mod result;
mod search;
pub mod selfcheck;
pub mod sized_prices;
mod subnormals;
pub(crate) mod verified;
mod widen;

pub(crate) use laws::active_laws;
pub use laws::{all_laws, why_off};
pub use options::{Fp, Options, Solver};
pub use planning::{plan, plan_as_read, plan_with, prices, target};
pub use report::{
    Clock, GraphReport, KernelReport, Report, kernels, operators, peak_process_bytes,
};
pub use result::{Found, Optimized, Searched};
pub use search::{search, variants};

use crate::error::Error;
use mlc_dsl::ir::Program;
use mlc_dsl::library::Library;
use planning::CPU;
use std::sync::Arc;

/// Runs all stages on a program. If the self-check finds the result to be wrong, the law whose equation does not
/// hold is turned off, which the report says, and the run is repeated; where none can be blamed the program is
/// kept as it is read.
pub fn optimize(
    source: Program,
    library: &Arc<Library>,
    options: &Options,
) -> Result<Optimized, Error> {
    let is_run_here = options.operators.is_none() && library.is_kind_of(&options.target, CPU);
    let other = match &options.operators {
        Some(operators) => decode::decoded(&source, library, operators)?,
        None if is_run_here => widen::widened(&source, library),
        None => None,
    };
    let source = other.unwrap_or(source);
    let once = |options: &Options| {
        let found = search(source.clone(), library, options)?;
        let mut optimized = match options.costing.measure {
            0 => keep_faster::keep_faster(&source, library, options, found)?,
            _ => measure::choose(&source, library, options, found)?,
        };
        let unread = source.consts.unread();
        if unread > 0 {
            optimized.report.notes.push(format!(
                "{:.0} GiB of weights are not read: no law computes with them, and the self-check is left out",
                unread as f64 / (1u64 << 30) as f64
            ));
        }
        Ok(optimized)
    };
    verified::retry_until_verified(&source, library, options, &once)
}
