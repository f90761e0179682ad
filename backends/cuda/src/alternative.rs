//! What libraries of the device may compute in place of launches: plain data.

use super::convolution::Convolution;
use super::launch::{Argument, Launch};
use super::matrix_product::MatrixProduct;
use std::fmt;
use std::ops::Range;

/// What a library may compute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Of the factors, the bias if there is one, and the result.
    Product(MatrixProduct),
    /// Of the image, the weights, what is added and the bias if there are any, and the result.
    Convolution(Convolution),
}

/// Which library computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// One for products of matrices.
    Products,
    /// One for convolutions.
    Convolutions,
}

impl Work {
    /// Which library computes it.
    pub fn kind(&self) -> Kind {
        match self {
            Work::Product(_) => Kind::Products,
            Work::Convolution(_) => Kind::Convolutions,
        }
    }

    /// Whether an activation follows.
    pub fn is_activated(&self) -> bool {
        match self {
            Work::Product(product) => product.activation.is_some(),
            Work::Convolution(convolution) => convolution.is_rectified,
        }
    }
}

impl fmt::Display for Work {
    /// All that tells it apart, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Product(product) => product.fmt(f),
            Work::Convolution(convolution) => convolution.fmt(f),
        }
    }
}

impl Kind {
    /// What it computes, for a note.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Products => "products",
            Kind::Convolutions => "convolutions",
        }
    }

    /// One of them.
    pub fn one(self) -> &'static str {
        match self {
            Kind::Products => "product",
            Kind::Convolutions => "convolution",
        }
    }
}

/// An argument that no run changes, and that a library reads as a copy whose elements lie in another order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Which argument.
    pub argument: usize,
    /// Axes of the copy from the outermost one on: their extents, and the elements from one place to the next where they are copied from.
    pub axes: Vec<(u64, u64)>,
}

impl Copied {
    /// The bytes of the copy; `None` if they are not all there.
    pub fn of(&self, bytes: &[u8], size: usize) -> Option<Vec<u8>> {
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

/// What may take the place of launches of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// These launches of a run. Several alternatives may be for the same.
    pub launches: Range<usize>,
    /// What is computed.
    pub work: Work,
    /// What it is computed of, and the result.
    pub arguments: Vec<Argument>,
    /// The argument that is copied once.
    pub copied: Option<Copied>,
    /// The launch that computes from the result what else these launches do.
    pub rest: Option<Launch>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_elements_in_its_own_order() {
        let copied = Copied { argument: 0, axes: vec![(3, 1), (2, 3)] };
        assert_eq!(copied.of(&[1, 2, 3, 4, 5, 6], 1), Some(vec![1, 4, 2, 5, 3, 6]));
        assert_eq!(copied.of(&[1, 2, 3, 4, 5], 1), None);
        let pairs = Copied { argument: 0, axes: vec![(2, 1)] };
        assert_eq!(pairs.of(&[1, 2, 3, 4], 2), Some(vec![1, 2, 3, 4]));
    }
}
