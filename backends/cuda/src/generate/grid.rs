//! The size of a launch's grid.

/// How many blocks a function runs, and the threads of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridSize {
    pub blocks: u64,
    pub threads: u32,
}
