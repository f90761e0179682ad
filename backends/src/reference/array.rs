//! Values of the reference interpreter: row-major elements in f64 or i64, shared when cloned.
//!
//! Floats are not rounded to the element type unless asked; integers are always within its range.

use half::{bf16, f16};
use mlc_dsl::ir::{DType, Extent, Tensor, Type, halves};
use std::sync::Arc;

/// The elements of an [`Array`].
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Elements of a floating type, not rounded to it.
    Float(Arc<Vec<f64>>),
    /// Elements of an integer type or of `bool` (0 and 1); those of `u64` are its bits.
    Int(Arc<Vec<i64>>),
}

/// A dense value of the reference interpreter.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    elements: Elements,
}

impl Array {
    /// An array of a floating type. `None` if `values` has another length than `shape` demands or
    /// the type is no floating type.
    pub fn from_f64(dtype: DType, shape: Vec<usize>, values: Vec<f64>) -> Option<Array> {
        let fits = dtype.is_float() && count(&shape) == Some(values.len());
        fits.then(|| Array { dtype, shape, elements: Elements::Float(Arc::new(values)) })
    }

    /// An array of an integer type or of `bool`; the values wrap. `None` if `values` has another
    /// length than `shape` demands or the type is a floating type.
    pub fn from_i64(dtype: DType, shape: Vec<usize>, mut values: Vec<i64>) -> Option<Array> {
        if dtype.is_float() || count(&shape) != Some(values.len()) {
            return None;
        }
        values.iter_mut().for_each(|v| *v = wrap(dtype, *v));
        Some(Array { dtype, shape, elements: Elements::Int(Arc::new(values)) })
    }

    /// The array of a tensor's elements.
    pub fn from_tensor(t: &Tensor) -> Array {
        let elements = if t.dtype().is_float() {
            Elements::Float(Arc::new(t.to_f64()))
        } else {
            Elements::Int(Arc::new(t.to_i64()))
        };
        Array { dtype: t.dtype(), shape: t.shape().to_vec(), elements }
    }

    /// The tensor of these elements, floats rounded to the element type.
    pub fn to_tensor(&self) -> Tensor {
        match &self.elements {
            Elements::Float(v) if self.dtype == DType::F32 => {
                Tensor::from_f32(self.shape.clone(), v.iter().map(|&x| x as f32).collect())
            }
            Elements::Float(v) => Tensor::from_f64(self.dtype, self.shape.clone(), v),
            Elements::Int(v) => Tensor::from_i64(self.dtype, self.shape.clone(), v),
        }
    }

    /// The same array with every float rounded to the element type.
    pub fn rounded(mut self) -> Array {
        let dtype = self.dtype;
        if let Elements::Float(v) = &mut self.elements
            && dtype != DType::F64
        {
            round_all(dtype, Arc::make_mut(v).as_mut_slice());
        }
        self
    }

    /// The same array with every float moved by up to four roundings of the element type; equal values at
    /// equal places move alike.
    pub fn disturbed(mut self, seed: u64) -> Array {
        let u = 4.0 * self.dtype.unit_roundoff();
        if let Elements::Float(v) = &mut self.elements {
            let place = |(i, x): (usize, &mut f64)| {
                let bits = seed ^ x.to_bits() ^ (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *x *= 1.0 + u * (2.0 * unit(bits) - 1.0);
            };
            Arc::make_mut(v).iter_mut().enumerate().for_each(place);
        }
        self
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// In row-major order.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match &self.elements {
            Elements::Float(v) => v.len(),
            Elements::Int(v) => v.len(),
        }
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as f64; 64-bit integers round.
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.elements {
            Elements::Float(v) => v.as_ref().clone(),
            Elements::Int(v) if self.dtype == DType::U64 => {
                v.iter().map(|&x| x as u64 as f64).collect()
            }
            Elements::Int(v) => v.iter().map(|&x| x as f64).collect(),
        }
    }

    /// The elements of a floating type.
    pub fn floats(&self) -> Option<&[f64]> {
        match &self.elements {
            Elements::Float(v) => Some(v),
            Elements::Int(_) => None,
        }
    }

    /// The elements of an integer type or of `bool`.
    pub fn ints(&self) -> Option<&[i64]> {
        match &self.elements {
            Elements::Int(v) => Some(v),
            Elements::Float(_) => None,
        }
    }

    /// Element type and extents as a type of the IR.
    pub fn ty(&self) -> Type {
        let shape = self.shape.iter().map(|&d| Extent::from(d)).collect();
        Type::new(self.dtype, shape)
    }
}

/// A number of 0 to 1 for bits: the finalizer of MurmurHash3.
pub(super) fn unit(bits: u64) -> f64 {
    let h = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((h ^ (h >> 33)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Number of elements, if it can be addressed. A zero extent makes it zero whatever the others are.
pub(super) fn count(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .filter(|n| n.checked_mul(8).is_some_and(|bytes| bytes <= isize::MAX as usize))
}

/// The float of type `dtype` nearest to `v`, ties to even. Other types leave `v` as it is.
pub fn round_to(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64_const(v).to_f64(),
        DType::BF16 => bf16::from_f64_const(v).to_f64(),
        DType::F32 => v as f32 as f64,
        _ => dtype.small_float().map_or(v, |format| format.nearest(v)),
    }
}

/// The same of many numbers.
pub fn round_all(dtype: DType, values: &mut [f64]) {
    if !halves::round(dtype, values) {
        values.iter_mut().for_each(|x| *x = round_to(dtype, *x));
    }
}

/// The integer of type `dtype` that equals `v` modulo the type's size; of `bool`, whether `v` is not 0.
pub fn wrap(dtype: DType, v: i64) -> i64 {
    dtype.wrap(v)
}

/// The float cut towards zero as an integer of type `dtype`: what does not fit saturates at 64 bits
/// and then wraps; NaN is 0. Of `bool`, whether it is not 0.
pub fn truncate(dtype: DType, v: f64) -> i64 {
    match dtype {
        DType::Bool => (v != 0.0) as i64,
        DType::U64 if v >= 9_223_372_036_854_775_808.0 => (v as u64) as i64,
        _ => wrap(dtype, v as i64),
    }
}
