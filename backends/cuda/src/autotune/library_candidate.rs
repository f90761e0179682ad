//! Library operations that may replace launches: plain data.

use crate::convolution::Convolution;
use crate::launch::{Argument, Launch};
use crate::matrix_product::MatrixProduct;
use std::fmt;
use std::ops::Range;

/// An operation that a library may compute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LibraryOp {
    /// Arguments: the factors, the bias if there is one, and the result.
    Product(MatrixProduct),
    /// Arguments: the image, the weights, the residual and the bias if there are any, and the result.
    Convolution(Convolution),
}

/// A kind of library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LibraryKind {
    /// GEMMs (cuBLASLt).
    Products,
    /// Convolutions (cuDNN).
    Convolutions,
}

impl LibraryOp {
    /// Which library computes it.
    pub fn kind(&self) -> LibraryKind {
        match self {
            LibraryOp::Product(_) => LibraryKind::Products,
            LibraryOp::Convolution(_) => LibraryKind::Convolutions,
        }
    }

    /// Whether an activation follows.
    pub fn is_activated(&self) -> bool {
        match self {
            LibraryOp::Product(product) => product.activation.is_some(),
            LibraryOp::Convolution(convolution) => convolution.is_rectified,
        }
    }
}

impl fmt::Display for LibraryOp {
    /// All that tells it apart, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibraryOp::Product(product) => product.fmt(f),
            LibraryOp::Convolution(convolution) => convolution.fmt(f),
        }
    }
}

impl LibraryKind {
    /// What it computes, for a note.
    pub fn name(self) -> &'static str {
        match self {
            LibraryKind::Products => "products",
            LibraryKind::Convolutions => "convolutions",
        }
    }

    /// One of them.
    pub fn one(self) -> &'static str {
        match self {
            LibraryKind::Products => "product",
            LibraryKind::Convolutions => "convolution",
        }
    }
}

/// A constant argument that a library reads as a permuted copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermutedArgument {
    /// Which argument.
    pub argument: usize,
    /// Axes of the copy from the outermost one on: their extents, and their strides in the original.
    pub axes: Vec<(u64, u64)>,
}

impl PermutedArgument {
    /// The permuted bytes; `None` if some are missing.
    pub fn permute(&self, bytes: &[u8], size: usize) -> Option<Vec<u8>> {
        let mut places = vec![0usize];
        for &(extent, stride) in &self.axes {
            let along = |from: usize| (0..extent).map(move |i| from + (i * stride) as usize);
            places = places.into_iter().flat_map(along).collect();
        }
        let mut out = Vec::with_capacity(places.len() * size);
        for place in places {
            out.extend_from_slice(bytes.get(place * size..(place + 1) * size)?);
        }
        Some(out)
    }
}

/// A library operation that may replace launches of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryCandidate {
    /// The launches that it replaces. Several candidates may replace the same.
    pub launches: Range<usize>,
    /// The operation.
    pub work: LibraryOp,
    /// Its operands and its result.
    pub arguments: Vec<Argument>,
    /// The argument that is permuted once.
    pub copied: Option<PermutedArgument>,
    /// The launch that computes the rest of the epilogue from the result.
    pub epilogue: Option<Launch>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_elements_in_its_own_order() {
        let copied = PermutedArgument { argument: 0, axes: vec![(3, 1), (2, 3)] };
        assert_eq!(copied.permute(&[1, 2, 3, 4, 5, 6], 1), Some(vec![1, 4, 2, 5, 3, 6]));
        assert_eq!(copied.permute(&[1, 2, 3, 4, 5], 1), None);
        let pairs = PermutedArgument { argument: 0, axes: vec![(2, 1)] };
        assert_eq!(pairs.permute(&[1, 2, 3, 4], 2), Some(vec![1, 2, 3, 4]));
    }
}
