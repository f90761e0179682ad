//! Code whose open extents are arguments of functions: the text is the same for every length, and nothing is compiled for a new one.
//!
//! A kernel is generated from the plan before its symbols are bound, so that what an extent is computed from stays beside it. A kernel
//! that cannot be is one whose code is generated for each set of extents, with the reason.

mod attention;
mod emitter;
mod form;
mod launches;
mod product;
mod program;
mod scan;
mod stages;

use mlc_backends::symbols::SymbolBindings;
use mlc_dsl::ir::Extent;
use mlc_dsl::plan::Plan;
pub use program::OpenProgram;
pub use stages::{OpenSchedule, OpenStage, stages};

/// How many tiles of so many elements an extent has.
fn tiles_of(n: &Extent, side: i64) -> Extent {
    (n + &Extent::from(side - 1)).floor_div(&Extent::from(side))
}

/// Where the extents of a bound plan come from.
pub struct OpenExtents<'a> {
    /// The plan before its symbols were bound.
    pub plan: &'a Plan,
    /// Their values.
    pub symbols: &'a SymbolBindings,
}

impl OpenExtents<'_> {
    /// Whether a kernel has a product, and every symbol in its extents is 1. Its code is then that of known extents, by which such a product
    /// is a vector's with a matrix: one text, whatever else the extents of a run are.
    pub fn is_vector(&self, kernel: &OpenProgram, stages: &[OpenStage]) -> bool {
        let is_product = |s: &OpenStage| matches!(s.schedule, OpenSchedule::Product(_));
        stages.iter().any(is_product)
            && kernel.symbols().iter().all(|symbol| self.symbols.get(symbol) == Some(1))
    }
}

/// How the code of a kernel is generated.
pub enum KernelForm {
    /// From known extents, whatever the symbols are: none of its extents is open.
    Known,
    /// Its open extents are arguments.
    Open(Box<OpenProgram>, Vec<OpenStage>),
    /// For each set of extents: why.
    PerExtents(String),
}
