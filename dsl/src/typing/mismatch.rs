//! Why a type does not match a pattern.
//!
//! Searching asks this of very many candidates and reads no answer, so a reason is put in words only when it is shown.

use crate::eval::EvalError;
use crate::ir::{DType, Extent};
use crate::library::Name;
use thiserror::Error;

/// Why a type does not match a pattern.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Mismatch {
    /// The pattern names another element type.
    #[error("expected {expected}, found {found}")]
    Fixed {
        /// The element type of the pattern.
        expected: DType,
        /// The element type of the tensor.
        found: DType,
    },
    /// A variable of element types does not range over this one.
    #[error("`{variable}` does not admit {found}")]
    NotAdmitted {
        /// The variable.
        variable: Name,
        /// The element type of the tensor.
        found: DType,
    },
    /// A variable of element types stands for another one.
    #[error("{found} is another type than {variable}'s")]
    OtherType {
        /// The variable.
        variable: Name,
        /// The element type of the tensor.
        found: DType,
    },
    /// The number of axes differs.
    #[error("a tensor of {0} axes does not fit")]
    Rank(usize),
    /// Where one segment ends and the other begins is not known.
    #[error("a tensor has two segments of unknown length")]
    TwoSegments,
    /// A named axis is not where an attribute says.
    #[error("axis `{axis}` is at position {at}, not at {hinted}")]
    Place {
        /// The axis.
        axis: Name,
        /// Where it is.
        at: usize,
        /// Where it should be.
        hinted: usize,
    },
    /// An axis has two extents.
    #[error("axis `{axis}` is {bound} and {found}")]
    Axis {
        /// The axis.
        axis: Name,
        /// Its extent in what was matched before.
        bound: Extent,
        /// Its extent here.
        found: Extent,
    },
    /// A segment has two shapes.
    #[error("segment `..{segment}` has two different shapes")]
    Segment {
        /// The segment.
        segment: Name,
        /// Its first extent that differs, in what was matched before and here, if their number is the same.
        differing: Option<(Extent, Extent)>,
    },
    /// An extent is not what the pattern computes.
    #[error("extent {found} does not fit")]
    Extent {
        /// The extent that the pattern computes, if it is one.
        computed: Option<Extent>,
        /// The extent of the tensor.
        found: Extent,
    },
    /// Several extents are not what the pattern computes.
    #[error("extents do not fit")]
    Extents,
    /// What the pattern computes has no value.
    #[error(transparent)]
    Eval(#[from] EvalError),
}

impl Mismatch {
    /// The two extents that would have to be equal.
    pub fn unequal(&self) -> Option<(&Extent, &Extent)> {
        match self {
            Mismatch::Axis { bound, found, .. } => Some((bound, found)),
            Mismatch::Segment { differing: Some((a, b)), .. } => Some((a, b)),
            Mismatch::Extent { computed: Some(a), found } => Some((a, found)),
            _ => None,
        }
    }
}
