//! Extraction of the cheapest program from an e-graph.
//!
//! A [`View`] is the e-graph, stripped to classes, nodes and costs; an [`Extractor`] finds a
//! [`Solution`]; a [`CostModel`] prices [`Work`]. The search knows nothing of tensors or operators; `work`, `target`, `kernels`,
//! `cover` and `memory` read typed programs and the library for it. Nothing here knows egg, or has a clock, I/O or hidden
//! chance.

mod anytime;
mod budget;
pub mod candidates;
mod cost;
pub mod cover;
mod extractor;
pub mod fit;
mod greedy;
mod improve;
mod kernels;
mod landmark;
pub mod layout;
mod memo;
pub mod memory;
pub mod needs;
mod problem;
mod region;
pub mod schedule;
mod search;
mod selection;
mod shrink;
mod solution;
pub mod target;
mod trim;
mod view;
pub mod work;

pub use anytime::{Anytime, Exact};
pub use cost::{CostModel, Fits, Level, Profile, Rate, Work};
pub use extractor::{ExtractError, Extraction, Extractor, GreedyDag, GreedyTree, Stop};
pub use solution::{Solution, SolutionError};
pub use view::{ClassId, Cost, NodeId, View, ViewBuilder, ViewError};
