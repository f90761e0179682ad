//! Extraction of the cheapest program from an e-graph.
//!
//! An [`EGraphView`] is the e-graph, reduced to classes, nodes and costs; an [`Extractor`] finds a
//! [`Solution`]; a [`CostModel`] prices [`Work`]. The search knows nothing of tensors or operators; `size`, `work`, `target`,
//! `kernel_selection`, `plan_kernels`, `kernel_order` and `resources` read typed programs and the library for it. Nothing here
//! uses egg, a clock, I/O or unseeded randomness.

pub mod cost;
mod egraph_view;
mod extractor;
pub mod kernels;
pub mod resources;
mod solver;

pub use cost::size::Size;
pub use cost::{CostModel, Fits, MemoryLevel, Profile, Rate, Work};
pub use egraph_view::{ClassId, Cost, EGraphView, EGraphViewBuilder, EGraphViewError, NodeId};
pub use extractor::{ExtractError, Extraction, Extractor, GreedyDag, GreedyTree, Stop};
pub use solver::anytime::{Anytime, Exact};
pub use solver::solution::{Solution, SolutionError};
