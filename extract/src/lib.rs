//! Extraction of the cheapest program from an e-graph.
//!
//! An [`EGraphView`] is the e-graph, reduced to classes, nodes and costs; an [`Extractor`] finds a
//! [`Solution`]; a [`CostModel`] prices [`Work`]. The search knows nothing of tensors or operators; `size`, `work`, `target`,
//! `kernel_selection`, `plan_kernels`, `kernel_order` and `resources` read typed programs and the library for it. Nothing here
//! uses egg, a clock, I/O or unseeded randomness.

mod anytime;
mod budget;
pub mod candidates;
mod cost;
mod egraph_view;
mod extractor;
pub mod fit;
mod greedy;
pub mod kernel_order;
pub mod kernel_selection;
mod large_neighbourhood;
pub mod layout;
mod lm_cut;
mod local_search;
mod memo;
mod node_choice;
mod plan_kernels;
mod presolve;
mod problem;
mod pruned;
pub mod resources;
pub mod schedule;
mod search;
mod size;
mod solution;
pub mod target;
pub mod work;

pub use anytime::{Anytime, Exact};
pub use cost::{CostModel, Fits, MemoryLevel, Profile, Rate, Work};
pub use egraph_view::{ClassId, Cost, EGraphView, EGraphViewBuilder, EGraphViewError, NodeId};
pub use extractor::{ExtractError, Extraction, Extractor, GreedyDag, GreedyTree, Stop};
pub use size::Size;
pub use solution::{Solution, SolutionError};
