//! Arrays passed to and returned from runs: those of `ndarray`, of any element type and rank.
//!
//! An array in standard layout is taken over without copying, and results are read in place.

use bytemuck::allocation::pod_collect_to_vec;
use bytes::Bytes;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::vec::HalfBitsVecExt;
use half::{bf16, f16};
use mlc_dsl::ir::{DType, Tensor, TensorError};
use ndarray::{Array, ArrayD, ArrayView, ArrayViewD, ArrayViewMut, CowArray, Dimension, IxDyn};
use std::sync::Arc;
use thiserror::Error;

/// An array of any element type and number of axes. Cloning shares the elements.
#[derive(Clone, Debug, PartialEq)]
pub struct AnyArray(Tensor);

/// Why an array is not what is asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ArrayError {
    /// Its elements are of another type.
    #[error("the elements are {found}, not {wanted}")]
    DType {
        /// The type that was asked for.
        wanted: DType,
        /// The type that they have.
        found: DType,
    },
    /// The elements of an array to be written do not lie in the usual order without gaps.
    #[error("the elements do not lie in row-major order")]
    Order,
    /// The shape has another number of elements.
    #[error("the shape {shape:?} does not have {elements} elements")]
    Shape {
        /// The extents that were asked for.
        shape: Vec<usize>,
        /// The number of elements.
        elements: usize,
    },
}

/// A Rust type that elements have: `f16`, `bf16`, `f32`, `f64`, `i8` to `i64`, `u8` to `u64` and `bool`.
pub trait Element: raw::Raw + Copy + Send + Sync + 'static {
    /// The element type of the language.
    const DTYPE: DType;
}

impl AnyArray {
    /// An array of these elements, in row-major order.
    ///
    /// # Errors
    /// The shape has another number of elements.
    pub fn from_vec<T: Element>(shape: &[usize], elements: Vec<T>) -> Result<AnyArray, ArrayError> {
        let wrong = ArrayError::Shape { shape: shape.to_vec(), elements: elements.len() };
        let bytes = Bytes::from_owner(Owner(elements));
        Tensor::new(T::DTYPE, shape.to_vec(), bytes).map(AnyArray).map_err(|_| wrong)
    }

    /// An array of texts, in row-major order.
    ///
    /// # Errors
    /// The shape has another number of elements, or the different texts of the process take more than 1 GiB.
    pub fn from_strings(
        shape: &[usize],
        texts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<AnyArray, TensorError> {
        Tensor::from_strings(shape.to_vec(), texts).map(AnyArray)
    }

    /// The texts in row-major order.
    ///
    /// # Errors
    /// The elements are of another type.
    pub fn strings(&self) -> Result<Vec<Arc<str>>, ArrayError> {
        match self.dtype() {
            DType::Str => Ok((0..self.len()).map(|i| self.0.get_str(i)).collect()),
            found => Err(ArrayError::DType { wanted: DType::Str, found }),
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype()
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The elements as an `ndarray`: where they lie, unless they are not aligned for their type.
    ///
    /// # Errors
    /// They are of another type.
    pub fn array<T: Element>(&self) -> Result<CowArray<'_, T, IxDyn>, ArrayError> {
        if T::DTYPE != self.dtype() {
            return Err(ArrayError::DType { wanted: T::DTYPE, found: self.dtype() });
        }
        let (shape, bytes) = (IxDyn(self.shape()), self.0.bytes());
        let wrong = |_| ArrayError::Shape { shape: self.shape().to_vec(), elements: self.len() };
        match T::elements(bytes) {
            Some(seen) => Ok(ArrayViewD::from_shape(shape, seen).map_err(wrong)?.into()),
            None => Ok(ArrayD::from_shape_vec(shape, T::copied(bytes)).map_err(wrong)?.into()),
        }
    }

    /// The tensor that it is in a program.
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }

    /// The same, taken out.
    pub fn into_tensor(self) -> Tensor {
        self.0
    }
}

impl From<Tensor> for AnyArray {
    fn from(tensor: Tensor) -> AnyArray {
        AnyArray(tensor)
    }
}

impl From<&AnyArray> for AnyArray {
    fn from(array: &AnyArray) -> AnyArray {
        array.clone()
    }
}

impl<T: Element, D: Dimension> From<Array<T, D>> for AnyArray {
    /// Takes over the elements; an array in another order than the usual one is copied.
    fn from(array: Array<T, D>) -> AnyArray {
        if !array.is_standard_layout() {
            return AnyArray::from(array.view());
        }
        let (shape, n) = (array.shape().to_vec(), array.len());
        let (elements, offset) = array.into_raw_vec_and_offset();
        let from = offset.unwrap_or(0) * T::DTYPE.size();
        let bytes = Bytes::from_owner(Owner(elements)).slice(from..from + n * T::DTYPE.size());
        AnyArray(tensor(Tensor::new(T::DTYPE, shape, bytes)))
    }
}

impl<T: Element, D: Dimension> From<&Array<T, D>> for AnyArray {
    /// Copies the elements.
    fn from(array: &Array<T, D>) -> AnyArray {
        AnyArray::from(array.view())
    }
}

impl<T: Element, D: Dimension> From<ArrayView<'_, T, D>> for AnyArray {
    /// Copies the elements.
    fn from(array: ArrayView<'_, T, D>) -> AnyArray {
        let bytes = Bytes::from_owner(Owner(array.iter().copied().collect::<Vec<T>>()));
        AnyArray(tensor(Tensor::new(T::DTYPE, array.shape().to_vec(), bytes)))
    }
}

impl<T: Element> TryFrom<&AnyArray> for ArrayD<T> {
    type Error = ArrayError;

    fn try_from(array: &AnyArray) -> Result<ArrayD<T>, ArrayError> {
        Ok(array.array()?.into_owned())
    }
}

impl<T: Element> TryFrom<AnyArray> for ArrayD<T> {
    type Error = ArrayError;

    fn try_from(array: AnyArray) -> Result<ArrayD<T>, ArrayError> {
        ArrayD::try_from(&array)
    }
}

/// An array of a caller that an output is written to.
#[derive(Debug)]
pub struct ArrayMut<'a> {
    dtype: DType,
    shape: Vec<usize>,
    bytes: &'a mut [u8],
}

/// An [`Element`] of which all bits are a value: all but `bool`.
pub trait Plain: Element + raw::RawMut {}

impl<'a> ArrayMut<'a> {
    /// The elements of an array.
    ///
    /// # Errors
    /// They do not lie in the usual order without gaps.
    pub fn new<T: Plain, D: Dimension>(
        array: impl Into<ArrayViewMut<'a, T, D>>,
    ) -> Result<ArrayMut<'a>, ArrayError> {
        let array = array.into();
        let shape = array.shape().to_vec();
        let elements = array.into_slice().ok_or(ArrayError::Order)?;
        Ok(ArrayMut { dtype: T::DTYPE, shape, bytes: T::bytes_mut(elements) })
    }

    /// The bytes of elements in row-major order, for a caller whose arrays are not `ndarray`'s.
    ///
    /// # Errors
    /// The shape has another number of elements, or they are texts.
    pub fn of_bytes(
        dtype: DType,
        shape: Vec<usize>,
        bytes: &'a mut [u8],
    ) -> Result<ArrayMut<'a>, ArrayError> {
        let len = shape.iter().try_fold(dtype.size(), |n, &extent| n.checked_mul(extent));
        match len == Some(bytes.len()) && dtype != DType::Str {
            true => Ok(ArrayMut { dtype, shape, bytes }),
            false => Err(ArrayError::Shape { shape, elements: bytes.len() / dtype.size() }),
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in row-major order.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

/// A tensor of an array's own shape and elements.
fn tensor(made: Result<Tensor, TensorError>) -> Tensor {
    made.expect("an array has as many elements as its shape says")
}

/// An owner of elements, seen as bytes.
struct Owner<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        T::bytes(&self.0)
    }
}

/// How elements lie in memory; outside types cannot have it.
mod raw {
    /// Elements as bytes and back.
    pub trait Raw: Sized {
        /// The bytes of elements.
        fn bytes(elements: &[Self]) -> &[u8];
        /// The elements that bytes are, if they are aligned and valid.
        fn elements(bytes: &[u8]) -> Option<&[Self]>;
        /// The elements of bytes that lie anywhere.
        fn copied(bytes: &[u8]) -> Vec<Self>;
    }

    /// Elements that any bytes are.
    pub trait RawMut: Sized {
        /// The bytes of elements, to be written.
        fn bytes_mut(elements: &mut [Self]) -> &mut [u8];
    }
}

macro_rules! plain {
    ($($t:ty: $dtype:ident),*) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
        }

        impl raw::Raw for $t {
            fn bytes(elements: &[$t]) -> &[u8] {
                bytemuck::cast_slice(elements)
            }

            fn elements(bytes: &[u8]) -> Option<&[$t]> {
                bytemuck::try_cast_slice(bytes).ok()
            }

            fn copied(bytes: &[u8]) -> Vec<$t> {
                pod_collect_to_vec(bytes)
            }
        }

        impl Plain for $t {}

        impl raw::RawMut for $t {
            fn bytes_mut(elements: &mut [$t]) -> &mut [u8] {
                bytemuck::cast_slice_mut(elements)
            }
        }
    )*};
}

plain!(f32: F32, f64: F64, i8: I8, i16: I16, i32: I32, i64: I64, u8: U8, u16: U16, u32: U32, u64: U64);

macro_rules! half {
    ($($t:ty: $dtype:ident),*) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
        }

        impl raw::Raw for $t {
            fn bytes(elements: &[$t]) -> &[u8] {
                bytemuck::cast_slice(elements.reinterpret_cast())
            }

            fn elements(bytes: &[u8]) -> Option<&[$t]> {
                bytemuck::try_cast_slice::<u8, u16>(bytes).ok().map(HalfBitsSliceExt::reinterpret_cast)
            }

            fn copied(bytes: &[u8]) -> Vec<$t> {
                pod_collect_to_vec::<u8, u16>(bytes).reinterpret_into()
            }
        }

        impl Plain for $t {}

        impl raw::RawMut for $t {
            fn bytes_mut(elements: &mut [$t]) -> &mut [u8] {
                bytemuck::cast_slice_mut(elements.reinterpret_cast_mut())
            }
        }
    )*};
}

half!(f16: F16, bf16: BF16);

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

impl raw::Raw for bool {
    fn bytes(elements: &[bool]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    fn elements(bytes: &[u8]) -> Option<&[bool]> {
        bytemuck::checked::try_cast_slice(bytes).ok()
    }

    fn copied(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|b| *b != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, array, s};

    /// There and back, and what the tensor in between says.
    fn round_trip<T: Element + PartialEq + std::fmt::Debug>(elements: [T; 6]) {
        let given = Array2::from_shape_vec((2, 3), elements.to_vec()).expect("six");
        let any = AnyArray::from(given.clone());
        assert_eq!((any.dtype(), any.shape(), any.len()), (T::DTYPE, &[2, 3][..], 6));
        assert_eq!(any, AnyArray::from(&given));
        assert_eq!(any, AnyArray::from_vec(&[2, 3], elements.to_vec()).expect("six"));
        let back: ArrayD<T> = any.clone().try_into().expect("of that type");
        assert_eq!(back, given.clone().into_dyn());
        // Other orders are put into the usual one.
        let turned = AnyArray::from(given.clone().reversed_axes());
        assert_eq!(turned.array::<T>().expect("of that type"), given.t().into_dyn());
        let part = AnyArray::from(given.clone().slice_move(s![1.., ..]));
        assert_eq!(part.array::<T>().expect("of that type"), given.slice(s![1.., ..]).into_dyn());
        // Bytes that are not aligned are copied.
        let mut bytes = vec![0];
        bytes.extend_from_slice(any.tensor().bytes());
        let bytes = Bytes::from(bytes).slice(1..);
        let odd = AnyArray::from(Tensor::new(T::DTYPE, vec![2, 3], bytes).expect("six"));
        assert_eq!(odd.array::<T>().expect("of that type"), given.into_dyn());
    }

    #[test]
    fn every_element_type_goes_there_and_back() {
        round_trip([0f32, -0.0, 1.5, f32::INFINITY, f32::MIN_POSITIVE, -3.0]);
        round_trip([0f64, -0.0, 1.5, f64::INFINITY, f64::MIN_POSITIVE, -3.0]);
        round_trip([0.0, -0.0, 1.5, 65504.0, 6e-8, -3.0].map(f16::from_f64));
        round_trip([0.0, -0.0, 1.5, 1e38, 6e-8, -3.0].map(bf16::from_f64));
        round_trip([i8::MIN, -1, 0, 1, 2, i8::MAX]);
        round_trip([i16::MIN, -1, 0, 1, 2, i16::MAX]);
        round_trip([i32::MIN, -1, 0, 1, 2, i32::MAX]);
        round_trip([i64::MIN, -1, 0, 1, 2, i64::MAX]);
        round_trip([0u8, 1, 2, 3, 254, u8::MAX]);
        round_trip([0u16, 1, 2, 3, 254, u16::MAX]);
        round_trip([0u32, 1, 2, 3, 254, u32::MAX]);
        round_trip([0u64, 1, 2, 3, 254, u64::MAX]);
        round_trip([true, false, true, true, false, false]);
    }

    #[test]
    fn texts_go_there_and_back() {
        let any = AnyArray::from_strings(&[2], ["a", "ä"]).expect("two");
        assert_eq!(any.strings().expect("texts"), ["a", "ä"].map(Arc::from));
        assert!(
            any.array::<u64>().is_err() && AnyArray::from(array![1.0f32].view()).strings().is_err()
        );
        assert!(AnyArray::from_strings(&[3], ["a"]).is_err());
    }

    #[test]
    fn an_array_in_the_usual_order_is_not_copied() {
        let given = array![[1f32, 2.0], [3.0, 4.0]];
        let place = given.as_ptr();
        let any = AnyArray::from(given);
        let seen = any.array::<f32>().expect("f32");
        assert!(seen.is_view());
        assert_eq!(seen.as_ptr(), place);
    }

    #[test]
    fn bytes_are_lent_as_arrays() {
        let mut bytes = [0u8; 8];
        let lent = ArrayMut::of_bytes(DType::F32, vec![2, 1], &mut bytes).expect("two");
        assert_eq!((lent.dtype(), lent.shape()), (DType::F32, &[2, 1][..]));
        assert!(ArrayMut::of_bytes(DType::F32, vec![3], &mut bytes).is_err());
        assert!(ArrayMut::of_bytes(DType::F32, vec![usize::MAX, 9], &mut bytes).is_err());
        assert!(ArrayMut::of_bytes(DType::Str, vec![1], &mut bytes).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let any = AnyArray::from(array![1i64, 2]);
        let wrong = ArrayError::DType { wanted: DType::F32, found: DType::I64 };
        assert_eq!(any.array::<f32>().err(), Some(wrong));
        let wrong = ArrayError::Shape { shape: vec![2, 2], elements: 3 };
        assert_eq!(AnyArray::from_vec(&[2, 2], vec![1f32; 3]), Err(wrong));
        let none = AnyArray::from_vec(&[2, 0], Vec::<f32>::new()).expect("no elements");
        assert!(none.is_empty() && none.array::<f32>().expect("f32").is_empty());
        // A byte that is neither 0 nor 1 is true.
        let odd = Tensor::new(DType::Bool, vec![2], Bytes::from_static(&[2, 0])).expect("two");
        let odd: ArrayD<bool> = AnyArray::from(odd).try_into().expect("bool");
        assert_eq!(odd, array![true, false].into_dyn());
    }
}
