//! Concrete tensors: constants of a program, inputs and outputs of a run.
//!
//! Elements are little-endian, row-major and shared: cloning a tensor never copies its elements, and
//! bytes that belong to a memory-mapped file stay there.

use super::dtype::DType;
use super::{halves, strings};
use bytes::Bytes;
use half::{bf16, f16};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Why bytes do not form a tensor.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum TensorError {
    /// The texts of all tensors take too much memory.
    #[error("different strings of more than 1 GiB together are not supported")]
    Strings,
    /// The element count overflows the address space.
    #[error("a tensor of shape {0:?} has more elements than can be addressed")]
    TooLarge(Vec<usize>),
    /// The data has another length than shape and type demand.
    #[error("{dtype} tensor of shape {shape:?} needs {expected} bytes, {found} given")]
    Length {
        /// Element type.
        dtype: DType,
        /// Extents.
        shape: Vec<usize>,
        /// Bytes that the shape demands.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
}

/// Where in a file the elements of a tensor lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file as it was opened; it must not change while the tensor lives.
    pub path: PathBuf,
    /// Bytes before the first element.
    pub offset: u64,
}

/// A dense tensor: type, extents and shared little-endian bytes.
///
/// An *unread* tensor is one of a model too large for its weights to be looked at: it is known by its
/// place in a file, and only running the model reads its elements.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Bytes,
    unread: Option<Arc<FileRange>>,
    /// What the model calls it; says nothing of what it is.
    name: Option<Arc<str>>,
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        let alike = self.dtype == other.dtype && self.shape == other.shape;
        match (&self.unread, &other.unread) {
            (None, None) => alike && self.data == other.data,
            (a, b) => alike && a == b,
        }
    }
}

impl Eq for Tensor {}

/// `$m!(T)` with the Rust type of a dtype's elements, as a value conversion.
macro_rules! decode {
    ($dtype:expr, $bytes:expr, $f:expr) => {{
        let bytes: &[u8] = $bytes;
        let f = $f;
        match $dtype {
            DType::F16 => f(f16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f64()),
            DType::BF16 => f(bf16::from_le_bytes(bytes.try_into().expect("2 bytes")).to_f64()),
            DType::F32 => f(f32::from_le_bytes(bytes.try_into().expect("4 bytes")) as f64),
            DType::F64 => f(f64::from_le_bytes(bytes.try_into().expect("8 bytes"))),
            DType::I8 => f(bytes[0] as i8 as f64),
            DType::U8 => f(bytes[0] as f64),
            DType::Bool => f(if bytes[0] != 0 { 1.0 } else { 0.0 }),
            DType::I16 => f(i16::from_le_bytes(bytes.try_into().expect("2 bytes")) as f64),
            DType::U16 => f(u16::from_le_bytes(bytes.try_into().expect("2 bytes")) as f64),
            DType::I32 => f(i32::from_le_bytes(bytes.try_into().expect("4 bytes")) as f64),
            DType::U32 => f(u32::from_le_bytes(bytes.try_into().expect("4 bytes")) as f64),
            DType::I64 => f(i64::from_le_bytes(bytes.try_into().expect("8 bytes")) as f64),
            DType::U64 | DType::Str => {
                f(u64::from_le_bytes(bytes.try_into().expect("8 bytes")) as f64)
            }
            small => f(match small.small_float() {
                Some(format) => format.decode(bytes[0]),
                None => small.wrap(bytes[0].into()) as f64,
            }),
        }
    }};
}

impl Tensor {
    /// A tensor over `data`, which must have exactly the bytes that type and shape demand.
    pub fn new(dtype: DType, shape: Vec<usize>, data: Bytes) -> Result<Tensor, TensorError> {
        let expected = shape
            .iter()
            .try_fold(dtype.size(), |n, &d| n.checked_mul(d))
            .filter(|&n| n <= isize::MAX as usize);
        // A zero extent makes the product zero whatever the others are.
        let expected = if shape.contains(&0) { Some(0) } else { expected };
        let Some(expected) = expected else {
            return Err(TensorError::TooLarge(shape));
        };
        if expected != data.len() {
            let found = data.len();
            return Err(TensorError::Length { dtype, shape, expected, found });
        }
        let data = match dtype.bits() >= 8 || data.iter().all(|&b| dtype.canonical(b) == b) {
            true => data,
            false => data.iter().map(|&b| dtype.canonical(b)).collect(),
        };
        Ok(Tensor { dtype, shape, data, unread: None, name: None })
    }

    /// The type that the codes of a small type are seen as where it is not known, as in NumPy's files.
    pub fn codes_dtype(dtype: DType) -> DType {
        match dtype {
            DType::I4 | DType::I2 => DType::I8,
            small if small.is_small() => DType::U8,
            other => other,
        }
    }

    /// The tensor of a small type whose codes these are; itself if it is no tensor of codes of `dtype`.
    pub fn with_codes_read(self, dtype: DType) -> Tensor {
        let codes = dtype.is_small() && self.dtype == Tensor::codes_dtype(dtype);
        match codes && self.data.iter().all(|&b| dtype.canonical(b) == b) {
            true => Tensor { dtype, ..self },
            false => self,
        }
    }

    /// A tensor whose elements are `values` rounded (floats) or wrapped (integers) to `dtype`.
    ///
    /// # Panics
    /// If `values` has another length than `shape` demands.
    pub fn from_f64(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "element count");
        let data = halves::encoded(dtype, values).unwrap_or_else(|| {
            let mut out = Vec::with_capacity(values.len() * dtype.size());
            values.iter().for_each(|&v| encode(dtype, v, &mut out));
            out
        });
        Tensor { dtype, shape, data: Bytes::from(data), unread: None, name: None }
    }

    /// A tensor of texts.
    ///
    /// # Errors
    /// The shape has another number of elements, or the texts of all tensors take too much memory.
    pub fn from_strings(
        shape: Vec<usize>,
        texts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Tensor, TensorError> {
        let mut data = vec![];
        for text in texts {
            let number = strings::number_of(text.as_ref()).ok_or(TensorError::Strings)?;
            data.extend(number.to_le_bytes());
        }
        Tensor::new(DType::Str, shape, Bytes::from(data))
    }

    /// A tensor of an integer type (or `bool`, or a float) from exact integers.
    ///
    /// # Panics
    /// If `values` has another length than `shape` demands.
    pub fn from_i64(dtype: DType, shape: Vec<usize>, values: &[i64]) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "element count");
        let mut out = Vec::with_capacity(values.len() * dtype.size());
        for &v in values {
            encode_int(dtype, v, &mut out);
        }
        Tensor { dtype, shape, data: Bytes::from(out), unread: None, name: None }
    }

    /// An f32 tensor that takes over `values`.
    ///
    /// # Panics
    /// If `values` has another length than `shape` demands.
    pub fn from_f32(shape: Vec<usize>, values: Vec<f32>) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "element count");
        let data = Bytes::from_owner(FloatBytes(values));
        Tensor { dtype: DType::F32, shape, data, unread: None, name: None }
    }

    /// The same tensor, known by its place in a file from now on.
    pub fn into_unread(self, range: Arc<FileRange>) -> Tensor {
        Tensor { unread: Some(range), ..self }
    }

    /// The same tensor, known by its elements.
    pub fn into_read(self) -> Tensor {
        Tensor { unread: None, ..self }
    }

    /// The place of an unread tensor.
    pub fn unread(&self) -> Option<&FileRange> {
        self.unread.as_deref()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The little-endian bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// The same elements under another shape of equal element count.
    ///
    /// # Panics
    /// If the counts differ.
    pub fn reshaped(&self, shape: Vec<usize>) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), self.len(), "element count");
        Tensor { shape, ..self.clone() }
    }

    /// Element `i` in row-major order as f64 (64-bit integers round).
    pub fn get_f64(&self, i: usize) -> f64 {
        let n = self.dtype.size();
        decode!(self.dtype, &self.data[i * n..(i + 1) * n], |v: f64| v)
    }

    /// Element `i` in row-major order as an integer; floats are truncated towards zero.
    pub fn get_i64(&self, i: usize) -> i64 {
        let n = self.dtype.size();
        let b = &self.data[i * n..(i + 1) * n];
        match self.dtype {
            DType::I64 => i64::from_le_bytes(b.try_into().expect("8 bytes")),
            DType::U64 | DType::Str => u64::from_le_bytes(b.try_into().expect("8 bytes")) as i64,
            _ => self.get_f64(i) as i64,
        }
    }

    /// Element `i` in row-major order as the integer it is; floats are truncated towards zero.
    pub fn get_i128(&self, i: usize) -> i128 {
        match self.dtype {
            DType::U64 => i128::from(self.get_i64(i) as u64),
            _ => i128::from(self.get_i64(i)),
        }
    }

    /// The text of element `i` in row-major order, of a tensor of texts.
    pub fn get_str(&self, i: usize) -> Arc<str> {
        strings::text_of(self.get_i64(i) as u64)
    }

    /// All elements as f64.
    pub fn to_f64(&self) -> Vec<f64> {
        match self.dtype {
            DType::F32 | DType::F16 | DType::BF16 => {
                self.to_f32().iter().map(|&x| f64::from(x)).collect()
            }
            _ => (0..self.len()).map(|i| self.get_f64(i)).collect(),
        }
    }

    /// All elements as i64.
    pub fn to_i64(&self) -> Vec<i64> {
        (0..self.len()).map(|i| self.get_i64(i)).collect()
    }

    /// All elements as f32: borrowed if the tensor is f32 and aligned, else converted.
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        if self.dtype == DType::F32 {
            match bytemuck::try_cast_slice::<u8, f32>(&self.data) {
                Ok(v) => return Cow::Borrowed(v),
                Err(_) => return Cow::Owned(bytemuck::allocation::pod_collect_to_vec(&self.data)),
            }
        }
        let halves = halves::decoded(self.dtype, &self.data);
        let one_by_one = || (0..self.len()).map(|i| self.get_f64(i) as f32).collect();
        Cow::Owned(halves.unwrap_or_else(one_by_one))
    }

    /// The bit pattern that all elements share, as the bytes of one element; `None` if they differ, there
    /// are none, or they are unread.
    pub fn splat(&self) -> Option<&[u8]> {
        if self.unread.is_some() {
            return None;
        }
        let n = self.dtype.size();
        let first = self.data.get(..n)?;
        self.data.chunks_exact(n).all(|c| c == first).then_some(first)
    }

    /// A key equal for equal tensors that reads at most a few pages of the data.
    ///
    /// Compare candidates of one key with `==` (which reads all) unless [`Tensor::same_storage`].
    pub fn sample_key(&self) -> u64 {
        const BLOCK: usize = 256;
        const BLOCKS: usize = 16;
        let mut h = fnv(0xcbf2_9ce4_8422_2325, &(self.dtype as u64).to_le_bytes());
        for &d in &self.shape {
            h = fnv(h, &(d as u64).to_le_bytes());
        }
        if let Some(range) = &self.unread {
            let h = fnv(h, range.path.as_os_str().as_encoded_bytes());
            return fnv(h, &range.offset.to_le_bytes());
        }
        if self.data.len() <= BLOCK * BLOCKS {
            return fnv(h, &self.data);
        }
        let step = (self.data.len() - BLOCK) / (BLOCKS - 1);
        (0..BLOCKS).fold(h, |h, i| fnv(h, &self.data[i * step..i * step + BLOCK]))
    }

    /// The name that the model gives it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The same tensor under a name.
    pub fn named(self, name: &str) -> Tensor {
        Tensor { name: Some(Arc::from(name)), ..self }
    }

    /// The same tensor as computed from others: `NAME_folded` of the largest of them that has a name.
    pub fn computed_from<'a>(self, others: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        const SUFFIX: &str = "_folded";
        let named = others.into_iter().filter(|t| t.name.is_some());
        // The first of equally large ones.
        let largest = named.reduce(|a, b| if b.data.len() > a.data.len() { b } else { a });
        match largest.and_then(Tensor::name) {
            Some(name) if name.ends_with(SUFFIX) => self.named(name),
            Some(name) => self.named(&format!("{name}{SUFFIX}")),
            None => self,
        }
    }

    /// True if both tensors are the same bytes of memory, type and shape.
    pub fn same_storage(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype
            && self.shape == other.shape
            && self.data.as_ptr() == other.data.as_ptr()
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.len() <= 16 && self.unread.is_none() {
            match self.dtype {
                DType::Str => {
                    f.debug_list().entries((0..self.len()).map(|i| self.get_str(i))).finish()?
                }
                d if d.is_float() => write!(f, "{:?}", self.to_f64())?,
                _ => f.debug_list().entries((0..self.len()).map(|i| self.get_i128(i))).finish()?,
            }
        }
        Ok(())
    }
}

/// An owner of f32 elements, seen as bytes.
struct FloatBytes(Vec<f32>);

impl AsRef<[u8]> for FloatBytes {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Appends `v` rounded or wrapped to `dtype`.
fn encode(dtype: DType, v: f64, out: &mut Vec<u8>) {
    match dtype {
        DType::F16 => out.extend(f16::from_f64_const(v).to_le_bytes()),
        DType::BF16 => out.extend(bf16::from_f64_const(v).to_le_bytes()),
        DType::F32 => out.extend((v as f32).to_le_bytes()),
        DType::F64 => out.extend(v.to_le_bytes()),
        DType::Bool => out.push((v != 0.0) as u8),
        DType::U64 if v >= 9.2e18 => out.extend((v as u64).to_le_bytes()),
        small if let Some(format) = small.small_float() => out.push(format.encode(v)),
        _ => encode_int(dtype, v as i64, out),
    }
}

/// Appends `v` wrapped to `dtype` (floats: converted).
fn encode_int(dtype: DType, v: i64, out: &mut Vec<u8>) {
    match dtype {
        DType::Bool => out.push((v != 0) as u8),
        DType::I8 | DType::U8 => out.push(v as u8),
        DType::I16 | DType::U16 => out.extend((v as u16).to_le_bytes()),
        DType::I32 | DType::U32 => out.extend((v as u32).to_le_bytes()),
        DType::I64 | DType::U64 | DType::Str => out.extend(v.to_le_bytes()),
        DType::I4 | DType::U4 | DType::I2 | DType::U2 => out.push(dtype.wrap(v) as u8),
        _ => encode(dtype, v as f64, out),
    }
}

/// FNV-1a over eight bytes at a time.
fn fnv(mut h: u64, bytes: &[u8]) -> u64 {
    for c in bytes.chunks(8) {
        let mut w = [0u8; 8];
        w[..c.len()].copy_from_slice(c);
        h = (h ^ u64::from_le_bytes(w)).wrapping_mul(0x0000_0100_0000_01b3);
        h ^= h >> 29;
    }
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_every_dtype() {
        for d in DType::ALL {
            let values = match d {
                DType::Bool | DType::I2 | DType::U2 => [0.0, 1.0, 1.0],
                DType::F8E8M0 => [0.25, 1.0, 32.0],
                small if small.is_small() => [0.0, 1.0, 6.0],
                _ => [0.0, 1.0, 42.0],
            };
            let t = Tensor::from_f64(d, vec![3], &values);
            assert_eq!(t.to_f64(), values, "{d}");
            assert_eq!(t.bytes().len(), 3 * d.size(), "{d}");
        }
    }

    #[test]
    fn texts_are_elements() {
        let t = Tensor::from_strings(vec![2, 2], ["a", "", "ä", "a"]).expect("four");
        assert_eq!((t.dtype(), &*t.get_str(2), &*t.get_str(3)), (DType::Str, "ä", "a"));
        assert_eq!(t, Tensor::from_strings(vec![2, 2], ["a", "", "ä", "a"]).expect("four"));
        assert_eq!(format!("{t:?}"), r#"str[2, 2]["a", "", "ä", "a"]"#);
        assert!(Tensor::from_strings(vec![2], ["a"]).is_err());
    }

    #[test]
    fn small_integers_wrap_and_fill_their_byte() {
        let values = [-9, -1, 3, 8, 16];
        for (d, wanted) in [
            (DType::I4, [7, -1, 3, -8, 0]),
            (DType::U4, [7, 15, 3, 8, 0]),
            (DType::I2, [-1, -1, -1, 0, 0]),
            (DType::U2, [3, 3, 3, 0, 0]),
        ] {
            let t = Tensor::from_i64(d, vec![5], &values);
            assert_eq!(t.to_i64(), wanted, "{d}");
            let stray = Tensor::new(d, vec![1], Bytes::from_static(&[0xf5])).expect("one byte");
            assert_eq!(stray, Tensor::from_i64(d, vec![1], &[5]), "{d}");
        }
    }

    #[test]
    fn codes_are_read_as_the_type_that_is_known() {
        let codes = Tensor::new(DType::U8, vec![2], Bytes::from_static(&[0x38, 0xc0]));
        let codes = codes.expect("two codes");
        let read = codes.clone().with_codes_read(DType::F8E4M3FN);
        assert_eq!((read.dtype(), read.to_f64()), (DType::F8E4M3FN, vec![1.0, -2.0]));
        assert_eq!(codes.clone().with_codes_read(DType::U4), codes, "no code of 4 bits");
        assert_eq!(codes.clone().with_codes_read(DType::F32), codes);
        let signed = Tensor::from_i64(DType::I8, vec![2], &[-8, 7]);
        assert_eq!(signed.with_codes_read(DType::I4).to_i64(), [-8, 7]);
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let e = Tensor::new(DType::F32, vec![2, 2], Bytes::from_static(&[0; 15]));
        assert!(matches!(e, Err(TensorError::Length { expected: 16, found: 15, .. })));
        let e = Tensor::new(DType::F32, vec![usize::MAX, 2], Bytes::new());
        assert!(matches!(e, Err(TensorError::TooLarge(_))));
        assert!(Tensor::new(DType::F32, vec![usize::MAX, 0], Bytes::new()).is_ok());
    }

    #[test]
    fn splat_needs_equal_bits() {
        assert!(Tensor::from_f32(vec![3], vec![2.0; 3]).splat().is_some());
        assert!(Tensor::from_f32(vec![2], vec![0.0, -0.0]).splat().is_none());
        assert!(Tensor::from_f32(vec![0], vec![]).splat().is_none());
    }
}
