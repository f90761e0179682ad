//! Which nodes one kernel computes together.

pub mod candidates;
pub mod layout;
pub mod order;
mod plan;
pub mod selection;
