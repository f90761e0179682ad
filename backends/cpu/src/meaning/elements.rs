//! Reads elements into tiles, in the class that they are computed in.

use super::walk::{self, Walk};
use crate::pointwise::source::integer;
use bytemuck::Pod;
use half::{bf16, f16};
use mlc_dsl::ir::DType;

/// A class that elements are read in.
pub trait Read: Pod {
    /// Runs `f` on the elements as they are stored, with their conversion.
    fn each<R>(dtype: DType, f: impl Typed<Self, R>) -> R;
}

/// Something done with elements of whatever type.
pub trait Typed<D, R> {
    fn run<S: Pod>(self, convert: impl Fn(S) -> D + Copy) -> R;
}

impl Read for f32 {
    #[inline(always)]
    fn each<R>(dtype: DType, f: impl Typed<f32, R>) -> R {
        match dtype {
            DType::F16 => f.run(|x: u16| f16::from_bits(x).to_f32()),
            DType::BF16 => f.run(|x: u16| bf16::from_bits(x).to_f32()),
            DType::F64 => f.run(|x: f64| x as f32),
            _ => match dtype.small_float() {
                Some(small) => f.run(move |x: u8| small.decode(x) as f32),
                None => f.run(|x: f32| x),
            },
        }
    }
}

impl Read for f64 {
    #[inline(always)]
    fn each<R>(dtype: DType, f: impl Typed<f64, R>) -> R {
        match dtype {
            DType::F16 => f.run(|x: u16| f16::from_bits(x).to_f64()),
            DType::BF16 => f.run(|x: u16| bf16::from_bits(x).to_f64()),
            DType::F64 => f.run(|x: f64| x),
            _ => match dtype.small_float() {
                Some(small) => f.run(move |x: u8| small.decode(x)),
                None => f.run(|x: f32| f64::from(x)),
            },
        }
    }
}

impl Read for i64 {
    #[inline(always)]
    fn each<R>(dtype: DType, f: impl Typed<i64, R>) -> R {
        macro_rules! go {
            ($t:ty) => {
                f.run(|x: $t| x as i64)
            };
        }
        match dtype {
            DType::Bool => f.run(|x: u8| (x != 0) as i64),
            _ => integer!(dtype, go),
        }
    }
}

/// Elements along a walk.
struct Walked<'a, D> {
    walk: &'a Walk,
    bytes: &'a [u8],
    base: isize,
    start: usize,
    out: &'a mut [D],
}

impl<D: Copy> Typed<D, ()> for Walked<'_, D> {
    fn run<S: Pod>(self, convert: impl Fn(S) -> D + Copy) {
        let src: &[S] = bytemuck::cast_slice(self.bytes);
        self.walk.fill(src, self.base, self.start, self.out, convert);
    }
}

/// Elements at places; a negative one takes none.
struct Placed<'a, D> {
    places: &'a [i64],
    bytes: &'a [u8],
    out: &'a mut [D],
}

impl<D: Copy> Typed<D, ()> for Placed<'_, D> {
    fn run<S: Pod>(self, convert: impl Fn(S) -> D + Copy) {
        let src: &[S] = bytemuck::cast_slice(self.bytes);
        for (out, &at) in self.out.iter_mut().zip(self.places) {
            if let Some(&x) = src.get(at as usize) {
                *out = convert(x);
            }
        }
    }
}

/// Elements in a run.
struct InRun<'a, D> {
    bytes: &'a [u8],
    at: isize,
    stride: isize,
    out: &'a mut [D],
}

impl<D: Copy> Typed<D, ()> for InRun<'_, D> {
    fn run<S: Pod>(self, convert: impl Fn(S) -> D + Copy) {
        walk::run(bytemuck::cast_slice(self.bytes), self.at, self.stride, self.out, convert);
    }
}

/// Elements `start..` of a walk whose first one is at `base`.
pub fn load<D: Read>(
    dtype: DType,
    walk: &Walk,
    bytes: &[u8],
    base: isize,
    start: usize,
    out: &mut [D],
) {
    D::each(dtype, Walked { walk, bytes, base, start, out });
}

/// Elements at even distances.
pub fn run<D: Read>(dtype: DType, bytes: &[u8], at: isize, stride: isize, out: &mut [D]) {
    D::each(dtype, InRun { bytes, at, stride, out });
}

/// The elements at the places; where one is negative, `out` keeps what it holds.
pub fn gather<D: Read>(dtype: DType, bytes: &[u8], places: &[i64], out: &mut [D]) {
    D::each(dtype, Placed { places, bytes, out });
}
