//! Questions to an optimised model, answered in words.

use super::OptimizedModel;
use crate::error::Error;
use crate::explain::{self, NotFused, WouldGain};
use crate::stack::with_room;

impl OptimizedModel {
    /// Says why two nodes of the model are not computed by one kernel of the plan, or that they are.
    ///
    /// # Errors
    /// The program as read has no such node.
    pub fn why_not_fused(&self, a: &str, b: &str) -> Result<NotFused, Error> {
        with_room(|| {
            explain::not_fused(&self.result, &self.model.library, &self.options, [a, b])
        })
    }

    /// Plans the model once more, with another error class (`exact`, `reorder`, `approx`), for another objective (`latency`,
    /// `memory`, `size`), or with or without a law, and says what that would gain.
    ///
    /// # Errors
    /// Nothing has that name, it is how the model is planned already, or the model cannot be planned so.
    pub fn would_gain(&self, what: &str) -> Result<WouldGain, Error> {
        with_room(|| explain::would_gain(&self.result, &self.model.library, &self.options, what))
    }
}
