//! Tensor types.

use super::dtype::DType;
use super::extent::Extent;
use std::fmt;

/// Element type and extents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Element type.
    pub dtype: DType,
    /// One extent per axis, possibly symbolic.
    pub shape: Vec<Extent>,
}

impl Type {
    /// A type.
    pub fn new(dtype: DType, shape: Vec<Extent>) -> Type {
        Type { dtype, shape }
    }

    /// A type with known extents.
    pub fn known(dtype: DType, shape: &[usize]) -> Type {
        Type { dtype, shape: shape.iter().map(|&d| Extent::from(d as i64)).collect() }
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> Extent {
        self.shape.iter().fold(Extent::from(1), |a, d| &a * d)
    }

    /// The extents as numbers, if all are known.
    pub fn known_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok())).collect()
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.shape.iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}
