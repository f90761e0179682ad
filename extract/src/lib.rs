//! Extraction of the cheapest program from an e-graph.
//!
//! A [`View`] is the e-graph, stripped to classes, nodes and costs; an [`Extractor`] finds a
//! [`Solution`]; a [`Profile`] prices [`Work`] by a roofline. Knows nothing of tensors, operators
//! or egg, and has no clock, I/O or hidden chance.

mod anytime;
mod budget;
mod cost;
pub mod cover;
mod extractor;
mod greedy;
mod improve;
mod landmark;
mod memo;
mod problem;
mod region;
mod search;
mod selection;
mod shrink;
mod solution;
mod trim;
mod view;

pub use anytime::{Anytime, Exact};
pub use cost::{Profile, Work};
pub use extractor::{ExtractError, Extraction, Extractor, GreedyDag, GreedyTree, Stop};
pub use solution::{Solution, SolutionError};
pub use view::{ClassId, Cost, NodeId, View, ViewBuilder, ViewError};
