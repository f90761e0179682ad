//! Operators without a generated kernel: hand-written launches, looked up by the operator's name.

mod lu_determinant;
mod nms_unique;
mod roi_pooling;
mod sort_scatter;
mod trees;

use super::procedure::{Procedure, TypedShape};
use super::recurrent;
use super::tuning::Tuning;
use mlc_dsl::eval::Env;

/// Writes the launches for arguments and results of these types.
type ProcedureWriter = fn(&Env, &[TypedShape], &[TypedShape]) -> Result<Procedure, String>;
/// The same, for a device.
type TunedWriter = fn(&Env, &[TypedShape], Tuning) -> Result<Procedure, String>;

const TUNED_WRITERS: &[(&str, TunedWriter)] = &[("lstm", recurrent::lstm), ("gru", recurrent::gru)];
const WRITERS: &[(&str, ProcedureWriter)] = &[
    ("bit_cast", sort_scatter::bit_cast),
    ("sort_places", sort_scatter::sort_places),
    ("scatter", sort_scatter::scatter),
    ("det", lu_determinant::det),
    ("roi_align", roi_pooling::roi_align),
    ("tree_ensemble", trees::tree_ensemble),
    ("unique_rows", nms_unique::unique_rows),
    ("choose_boxes", nms_unique::choose_boxes),
];

/// True if there is code for the operator of this name.
pub fn is_known(operator: &str) -> bool {
    WRITERS.iter().any(|w| w.0 == operator) || TUNED_WRITERS.iter().any(|w| w.0 == operator)
}

/// The launches of an application of the operator of this name; none if there is no code for it.
pub fn write(
    operator: &str,
    env: &Env,
    tuning: Tuning,
    args: &[TypedShape],
    results: &[TypedShape],
) -> Option<Result<Procedure, String>> {
    if let Some((_, writer)) = TUNED_WRITERS.iter().find(|w| w.0 == operator) {
        return Some(writer(env, args, tuning));
    }
    let (_, writer) = WRITERS.iter().find(|w| w.0 == operator)?;
    Some(writer(env, args, results))
}
