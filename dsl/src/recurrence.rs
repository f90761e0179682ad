//! Recurrences: operators whose equations read their own results at earlier steps of an axis.

use crate::library::{Callable, Dim, Name};
use serde::{Deserialize, Serialize};

/// The order in which the results of an operator are computed whose equations read them: step by step along an axis, at each
/// step the equations of the results that have the axis, in the order of the text; the other results after all steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recurrence {
    /// An axis of the results.
    pub axis: Name,
    /// From the last step to the first.
    pub backwards: bool,
    /// Of each result the most steps that lie between an equation and what it reads; `None` if one reads the result once all steps are done.
    pub reach: Vec<Option<u32>>,
}

impl Recurrence {
    /// How many steps of a result are alive at once where nothing but the steps reads it; `None` if all of them are.
    pub fn alive(&self, output: usize) -> Option<usize> {
        let reach = self.reach.get(output).copied().flatten()?;
        Some(reach as usize + 1)
    }
}

impl std::fmt::Display for Recurrence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.axis, if self.backwards { " backwards" } else { "" })
    }
}

impl Callable {
    /// The axis of a result of this rank along which the operator's recurrence runs; `None` if the result takes part in no step.
    pub fn axis_of_steps(&self, output: usize, rank: usize) -> Option<usize> {
        let recurrence = self.recurrence.as_ref()?;
        let dims = self.outputs.get(output)?.1.dims.as_deref()?;
        let at = dims.iter().position(|d| matches!(d, Dim::Axis(n) if *n == recurrence.axis))?;
        match dims[..at].iter().all(|d| matches!(d, Dim::Axis(_) | Dim::Value(_))) {
            true => Some(at),
            // What is before it may be several axes.
            false => rank.checked_sub(dims.len() - at),
        }
    }
}
