//! From a plan to launches of generated functions.

use super::{Launches, NAME};
use crate::BackendError;
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;

/// The launches of a plan with known shapes.
///
/// # Errors
/// Some kernel cannot be generated; the error names it.
pub fn launches(_plan: &Plan, _library: &Library) -> Result<Launches, BackendError> {
    Err(BackendError::Unsupported { backend: NAME, what: "generated kernels yet".into() })
}
