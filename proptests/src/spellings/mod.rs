//! The spelling corpus: layers in the many ways that exporters write them as ONNX.
//!
//! A family is a layer, a generator of its spellings and the plan that every spelling must become. Nothing
//! here says how a spelling gets there.

pub mod activation;
pub mod attention;
pub mod build;
pub mod careless;
pub mod choices;
pub mod conv;
pub mod gates;
pub mod hand;
pub mod hand_attention;
pub mod identity;
pub mod linear;
pub mod modern;
pub mod modern_attention;
pub mod nodes;
pub mod norm;
pub mod run;
pub mod signature;
pub mod softmax;
mod spell;

use build::{Build, Value};
use mlc_dsl::ir::DType;

/// What surrounds a layer: its element type, and whether the first extent of inputs is a symbol.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Element type.
    pub dtype: DType,
    /// The first extent is `batch`.
    pub symbolic: bool,
}

/// Single precision, all extents known.
pub const PLAIN: Setup = Setup { dtype: DType::F32, symbolic: false };
/// Single precision, the batch a symbol.
pub const SYMBOLIC: Setup = Setup { dtype: DType::F32, symbolic: true };
/// Half precision.
pub const HALF: Setup = Setup { dtype: DType::F16, symbolic: false };

/// A layer and its spellings.
#[derive(Clone, Copy)]
pub struct Family {
    /// What the command line and the table call it.
    pub name: &'static str,
    /// The kernels that every spelling must become, in order, each with the operators that it computes; where
    /// settings differ, one entry for each.
    pub expect: &'static [&'static str],
    /// In which settings.
    pub setups: &'static [Setup],
    /// Operator sets to spell in, the reference's first.
    pub opsets: &'static [i64],
    /// Builds one spelling, deciding as it goes; yields the outputs.
    pub build: fn(&mut Build) -> Vec<Value>,
}

/// Every family.
pub fn families() -> Vec<Family> {
    let all = [
        activation::FAMILIES,
        norm::FAMILIES,
        softmax::FAMILIES,
        attention::FAMILIES,
        linear::FAMILIES,
        conv::FAMILIES,
        identity::FAMILIES,
        hand::FAMILIES,
        hand_attention::FAMILIES,
        modern::FAMILIES,
        modern_attention::FAMILIES,
        careless::FAMILIES,
    ];
    all.concat()
}
