//! Inputs of pointwise code: which elements a span of the result reads.

use super::code::{RegisterClass, class, is_native};
use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use mlc_dsl::ir::DType;
use mlc_dsl::layout::{Layout, PerAxis, coalesce};
use mlc_vector::simd;

/// Most axes an input may have after merging.
pub const MAX_RANK: usize = 12;

/// Most repetitions of an element that are not a run of their own.
const MOST_TIMES: usize = 16;

/// How an input lies over the index space of the result.
#[derive(Clone, Debug)]
pub enum ElementSource {
    /// Element `i` of the result reads element `offset + i`.
    Dense(usize),
    /// Every element reads this one.
    Splat(usize),
    /// Anything else: merged extents and strides, outermost first.
    Strided(Strided),
}

/// A walk with strides over the index space of the result.
#[derive(Clone, Debug)]
pub struct Strided {
    offset: usize,
    shape: PerAxis<usize>,
    strides: PerAxis<isize>,
}

impl ElementSource {
    /// The source of a layout whose shape is that of the result; `None` beyond [`MAX_RANK`].
    pub fn of(layout: &Layout) -> Option<ElementSource> {
        let merged = coalesce(&layout.shape, &[&layout.strides]);
        let strides = &merged.strides[0];
        Some(match strides.as_slice() {
            [] => ElementSource::Splat(layout.offset),
            _ if strides.iter().all(|&s| s == 0) => ElementSource::Splat(layout.offset),
            [1] => ElementSource::Dense(layout.offset),
            _ if strides.len() > MAX_RANK => return None,
            _ => ElementSource::Strided(Strided {
                offset: layout.offset,
                shape: merged.shape,
                strides: merged.strides.into_iter().next()?,
            }),
        })
    }

    /// True if tiles of the input are read where they lie.
    pub fn is_direct(&self, dtype: DType) -> bool {
        match self {
            ElementSource::Dense(_) => is_native(dtype),
            ElementSource::Splat(_) => true,
            ElementSource::Strided(_) => false,
        }
    }
}

/// Calls `run(at, stride, length)` for the innermost runs of elements `start..start + len` of a walk of at most [`MAX_RANK`] axes, in
/// order; `at` is counted from the first element of the walk.
#[inline(always)]
pub fn runs(
    shape: &[usize],
    strides: &[isize],
    start: usize,
    len: usize,
    mut run: impl FnMut(isize, isize, usize),
) {
    if len == 0 {
        return;
    }
    let (Some(&inner), Some(&stride)) = (shape.last(), strides.last()) else {
        return run(0, 0, len);
    };
    let rank = shape.len();
    let mut index = [0usize; MAX_RANK];
    let (mut rest, mut at) = (start, 0);
    for axis in (0..rank).rev() {
        index[axis] = rest % shape[axis];
        rest /= shape[axis];
        at += index[axis] as isize * strides[axis];
    }
    let mut left = len;
    while left > 0 {
        let n = left.min(inner - index[rank - 1]);
        run(at, stride, n);
        left -= n;
        at -= index[rank - 1] as isize * stride;
        index[rank - 1] = 0;
        let mut axis = rank - 1;
        while axis > 0 {
            axis -= 1;
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= shape[axis] as isize * strides[axis];
            index[axis] = 0;
        }
    }
}

impl Strided {
    /// Its first element, extents and strides.
    pub fn walk(&self) -> (usize, &[usize], &[isize]) {
        (self.offset, &self.shape, &self.strides)
    }

    /// The one element that elements `start..start + len` read, if it is one for all.
    pub fn one(&self, start: usize, len: usize) -> Option<usize> {
        let (inner, stride) = (*self.shape.last()?, *self.strides.last()?);
        if stride != 0 || start % inner + len > inner {
            return None;
        }
        let (mut rest, mut at) = (start / inner, self.offset as isize);
        for (&d, &s) in self.shape.iter().zip(&self.strides).rev().skip(1) {
            at += (rest % d) as isize * s;
            rest /= d;
        }
        Some(at as usize)
    }

    /// Calls `run(at, stride, length)` for the innermost runs that elements `start..start + len` of the first `rank` axes read, in order.
    #[inline(always)]
    fn runs(
        &self,
        rank: usize,
        start: usize,
        len: usize,
        mut run: impl FnMut(usize, isize, usize),
    ) {
        let first = self.offset as isize;
        runs(&self.shape[..rank], &self.strides[..rank], start, len, |at, stride, n| {
            run((first + at) as usize, stride, n);
        });
    }

    /// How often each element is repeated, if that is a few times, and elements `start..start + len` are whole repetitions of
    /// elements at steps forward.
    fn repeated(&self, start: usize, len: usize) -> Option<usize> {
        let (&[.., next, 0], &[.., times]) = (self.strides.as_slice(), self.shape.as_slice())
        else {
            return None;
        };
        let whole = start.is_multiple_of(times) && len.is_multiple_of(times);
        (next > 0 && times <= MOST_TIMES && whole).then_some(times)
    }

    /// How many neighbouring elements are repeated one time after the other, and how many elements that makes, if the innermost axis is one
    /// of neighbours and the next one repeats it.
    fn cycle(&self) -> Option<(usize, usize)> {
        match (self.strides.as_slice(), self.shape.as_slice()) {
            (&[.., 0, 1], &[.., times, each]) => Some((each, times * each)),
            _ => None,
        }
    }

    fn fill<S: Pod, D>(&self, src: &[S], start: usize, dst: &mut [D], f: impl Fn(S) -> D + Copy)
    where
        D: Copy,
    {
        // An extent of 0 divides nothing.
        if dst.is_empty() {
            return;
        }
        if let Some((each, block)) = self.cycle() {
            let (rank, end) = (self.shape.len() - 2, start + dst.len());
            let blocks = start / block..end.div_ceil(block);
            let mut at_block = blocks.start * block;
            return self.runs(rank, blocks.start, blocks.len(), |at, stride, n| {
                for i in 0..n as isize {
                    let src = &src[(at as isize + i * stride) as usize..][..each];
                    let part = start.max(at_block)..end.min(at_block + block);
                    let phase = (part.start - at_block) % each;
                    cycle(src, phase, &mut dst[part.start - start..part.end - start], f);
                    at_block += block;
                }
            });
        }
        let mut done = 0;
        if let Some(times) = self.repeated(start, dst.len()) {
            let rank = self.shape.len() - 1;
            return self.runs(rank, start / times, dst.len() / times, |at, stride, n| {
                repeat(&src[at..], stride, times, &mut dst[done..][..n * times], f);
                done += n * times;
            });
        }
        self.runs(self.shape.len(), start, dst.len(), |at, stride, n| {
            let out = &mut dst[done..done + n];
            done += n;
            match stride {
                1 => out.iter_mut().zip(&src[at..at + n]).for_each(|(o, &s)| *o = f(s)),
                0 => out.fill(f(src[at])),
                _ => {
                    let mut at = at as isize;
                    for o in out {
                        *o = f(src[at as usize]);
                        at += stride;
                    }
                }
            }
        });
    }
}

/// Writes every `stride`-th element of `src` `times` times.
#[inline(always)]
fn repeat<S: Pod, D: Copy>(
    src: &[S],
    stride: isize,
    times: usize,
    out: &mut [D],
    f: impl Fn(S) -> D,
) {
    match (stride, times) {
        (1, 2) => {
            let pairs = out.as_chunks_mut::<2>().0.iter_mut();
            pairs.zip(src).for_each(|(o, &s)| *o = [f(s); 2]);
        }
        (_, 16) => {
            let all = out.as_chunks_mut::<16>().0.iter_mut();
            all.zip(src.iter().step_by(stride.unsigned_abs())).for_each(|(o, &s)| *o = [f(s); 16]);
        }
        _ => {
            let src = src.iter().step_by(stride.unsigned_abs());
            out.chunks_exact_mut(times).zip(src).for_each(|(o, &s)| o.fill(f(s)));
        }
    }
}

/// Writes `src` again and again, from its element `phase` on.
#[inline(always)]
fn cycle<S: Pod, D: Copy>(src: &[S], phase: usize, out: &mut [D], f: impl Fn(S) -> D) {
    let (first, rest) = out.split_at_mut(out.len().min(src.len() - phase));
    first.iter_mut().zip(&src[phase..]).for_each(|(o, &s)| *o = f(s));
    rest.iter_mut().zip(&src[..phase]).for_each(|(o, &s)| *o = f(s));
    let mut done = src.len().min(out.len());
    while done < out.len() {
        let more = done.min(out.len() - done);
        out.copy_within(..more, done);
        done += more;
    }
}

/// Calls `$f(decode)` with the conversion from an element of `$dtype` to its class.
macro_rules! integer {
    ($dtype:expr, $m:ident) => {
        match $dtype {
            // A signed integer of fewer bits fills the byte with its sign.
            DType::I8 | DType::I4 | DType::I2 => $m!(i8),
            DType::I16 => $m!(i16),
            DType::I32 => $m!(i32),
            DType::U8 | DType::U4 | DType::U2 => $m!(u8),
            DType::U16 => $m!(u16),
            DType::U32 => $m!(u32),
            _ => $m!(i64),
        }
    };
}

/// Elements `start..` of an input in its class, as many as `dst` holds; `dst` is a register.
pub fn load(
    source: &ElementSource,
    dtype: DType,
    bytes: &[u8],
    start: usize,
    dst: &mut [u64],
    len: usize,
) {
    match class(dtype) {
        RegisterClass::F32 => {
            let dst = &mut bytemuck::cast_slice_mut::<u64, f32>(dst)[..len];
            match (dtype, source) {
                (DType::F16, ElementSource::Dense(o)) => {
                    let src = &bytemuck::cast_slice::<u8, u16>(bytes)[o + start..o + start + len];
                    half_slice(src).convert_to_f32_slice(dst);
                }
                (DType::F16, _) => {
                    each(source, bytes, start, dst, |s: u16| f16::from_bits(s).to_f32())
                }
                (DType::BF16, _) => {
                    each(source, bytes, start, dst, |s: u16| f32::from_bits((s as u32) << 16))
                }
                _ => match dtype.small_float() {
                    Some(f) => each(source, bytes, start, dst, |s: u8| f.decode(s) as f32),
                    None => each(source, bytes, start, dst, |s: f32| s),
                },
            }
        }
        RegisterClass::F64 => {
            let dst = &mut bytemuck::cast_slice_mut::<u64, f64>(dst)[..len];
            each(source, bytes, start, dst, |s: f64| s);
        }
        RegisterClass::Bool => {
            let dst = &mut bytemuck::cast_slice_mut::<u64, u8>(dst)[..len];
            each(source, bytes, start, dst, |s: u8| (s != 0) as u8);
        }
        RegisterClass::Int => {
            let dst = &mut bytemuck::cast_slice_mut::<u64, i64>(dst)[..len];
            macro_rules! go {
                ($t:ty) => {
                    each(source, bytes, start, dst, |s: $t| s as i64)
                };
            }
            integer!(dtype, go);
        }
    }
}

/// The same of integers, as f32.
pub fn load_float(
    source: &ElementSource,
    dtype: DType,
    bytes: &[u8],
    start: usize,
    dst: &mut [f32],
) {
    let dense = |o: usize| &bytes[o + start..][..dst.len()];
    match (dtype, source) {
        (DType::U8, ElementSource::Dense(o)) => unsigned_floats(dense(*o), dst),
        (DType::I8, ElementSource::Dense(o)) => signed_floats(dense(*o), dst),
        _ => {
            macro_rules! go {
                ($t:ty) => {
                    each(source, bytes, start, dst, |s: $t| s as f32)
                };
            }
            integer!(dtype, go);
        }
    }
}

simd! {
    fn unsigned_floats(src: &[u8], dst: &mut [f32]) {
        dst.iter_mut().zip(src).for_each(|(d, &s)| *d = s as f32);
    }
}

simd! {
    fn signed_floats(src: &[u8], dst: &mut [f32]) {
        dst.iter_mut().zip(src).for_each(|(d, &s)| *d = s as i8 as f32);
    }
}

/// Writes integers that are cut from f32.
pub fn store_cut(dtype: DType, src: &[f32], out: &mut [u8]) {
    match dtype {
        DType::U8 | DType::I8 => cut_bytes(src, out),
        DType::I16 | DType::U16 => {
            let out = bytemuck::cast_slice_mut::<u8, u16>(out);
            out.iter_mut().zip(src).for_each(|(o, &x)| *o = x as i32 as u16);
        }
        _ => {
            let out = bytemuck::cast_slice_mut::<u8, i32>(out);
            out.iter_mut().zip(src).for_each(|(o, &x)| *o = x as i32);
        }
    }
}

/// A number whose sum with one of 22 bits has that one, rounded, as its low bits.
const ROUNDING: f32 = 12_582_912.0;

simd! {
    /// The low bytes of numbers of at most 22 bits, or NaN, which is cut to 0.
    fn cut_bytes(src: &[f32], out: &mut [u8]) {
        for (o, &x) in out.iter_mut().zip(src) {
            let bits = (x.trunc() + ROUNDING).to_bits();
            *o = if x.is_nan() { 0 } else { bits as u8 };
        }
    }
}

fn half_slice(src: &[u16]) -> &[f16] {
    use half::slice::HalfBitsSliceExt;
    src.reinterpret_cast()
}

/// Elements `start..` of a view, as many as `dst` holds.
pub fn strided_copy<T: Pod>(source: &ElementSource, src: &[T], start: usize, dst: &mut [T]) {
    match source {
        ElementSource::Dense(o) => dst.copy_from_slice(&src[o + start..][..dst.len()]),
        ElementSource::Splat(o) if !dst.is_empty() => dst.fill(src[*o]),
        ElementSource::Splat(_) => {}
        ElementSource::Strided(s) => s.fill(src, start, dst, |x| x),
    }
}

fn each<S: Pod, D: Copy>(
    source: &ElementSource,
    bytes: &[u8],
    start: usize,
    dst: &mut [D],
    f: impl Fn(S) -> D + Copy,
) {
    let src: &[S] = bytemuck::cast_slice(bytes);
    match source {
        ElementSource::Dense(o) => {
            let src = &src[o + start..][..dst.len()];
            dst.iter_mut().zip(src).for_each(|(d, &s)| *d = f(s));
        }
        ElementSource::Splat(o) if !dst.is_empty() => dst.fill(f(src[*o])),
        ElementSource::Splat(_) => {}
        ElementSource::Strided(s) => s.fill(src, start, dst, f),
    }
}

/// Writes a register's first `len` elements to `out` in its storage form.
pub fn store(dtype: DType, src: &[u64], out: &mut [u8], len: usize) {
    match dtype {
        DType::F16 => {
            let out: &mut [u16] = bytemuck::cast_slice_mut(out);
            let src = &bytemuck::cast_slice::<u64, f32>(src)[..len];
            use half::slice::HalfBitsSliceExt;
            out.reinterpret_cast_mut::<f16>().convert_from_f32_slice(src);
        }
        DType::BF16 => {
            let out: &mut [u16] = bytemuck::cast_slice_mut(out);
            let src = &bytemuck::cast_slice::<u64, f32>(src)[..len];
            out.iter_mut().zip(src).for_each(|(o, &s)| *o = bf16::from_f32(s).to_bits());
        }
        DType::F32 | DType::F64 | DType::I64 | DType::U64 | DType::Bool => {
            out.copy_from_slice(&bytemuck::cast_slice(src)[..len * dtype.size()]);
        }
        small if let Some(format) = small.small_float() => {
            let src = &bytemuck::cast_slice::<u64, f32>(src)[..len];
            out.iter_mut().zip(src).for_each(|(o, &s)| *o = format.encode(s.into()));
        }
        _ => {
            let src = &bytemuck::cast_slice::<u64, i64>(src)[..len];
            macro_rules! go {
                ($t:ty) => {
                    bytemuck::cast_slice_mut::<u8, $t>(out)
                        .iter_mut()
                        .zip(src)
                        .for_each(|(o, &s)| *o = s as $t)
                };
            }
            integer!(dtype, go);
        }
    }
}

pub(crate) use integer;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_without_elements_load_nothing() {
        let cases: [(&[usize], &[isize]); 5] = [
            (&[3, 5, 0], &[0, 0, 1]),
            (&[3, 0, 5], &[5, 0, 1]),
            (&[6, 0], &[1, 0]),
            (&[0, 4, 2], &[8, 2, 0]),
            (&[0, 7], &[9, 2]),
        ];
        for (shape, strides) in cases {
            let (shape, strides) = (shape.to_vec(), strides.to_vec());
            let source = ElementSource::Strided(Strided {
                offset: 0,
                shape: shape.into(),
                strides: strides.into(),
            });
            strided_copy::<f32>(&source, &[], 0, &mut []);
        }
    }

    #[test]
    fn walks_load_what_their_strides_say() {
        let cases: [(&[usize], &[isize]); 7] = [
            (&[3, 5, 16], &[16, 0, 1]),
            (&[7, 40], &[0, 1]),
            (&[2, 3, 4, 3], &[9, 3, 0, 1]),
            (&[4, 2, 5], &[-5, 0, 1]),
            (&[6, 9, 16], &[1, 6, 0]),
            (&[5, 16, 3], &[0, 3, 1]),
            (&[3, 4, 2], &[2, 6, 0]),
        ];
        let src: Vec<f32> = (0..400).map(|i| i as f32).collect();
        for (shape, strides) in cases {
            let offset = 20;
            let source = ElementSource::Strided(Strided {
                offset,
                shape: shape.into(),
                strides: strides.into(),
            });
            let all: usize = shape.iter().product();
            let at = |i: usize| {
                let mut rest = i;
                let axes = shape.iter().zip(strides).rev();
                let steps = axes.map(|(&d, &s)| {
                    let index = rest % d;
                    rest /= d;
                    index as isize * s
                });
                (offset as isize + steps.sum::<isize>()) as usize
            };
            for start in 0..all {
                for len in [1, 2, 7, 16, 33, all].map(|n: usize| n.min(all - start)) {
                    let mut register = vec![0u64; all];
                    load(
                        &source,
                        DType::F32,
                        bytemuck::cast_slice(&src),
                        start,
                        &mut register,
                        len,
                    );
                    let got: &[f32] = bytemuck::cast_slice(&register);
                    let want: Vec<f32> = (start..start + len).map(|i| src[at(i)]).collect();
                    assert_eq!(got[..len], want, "{shape:?} by {strides:?}, {len} from {start}");
                }
            }
        }
    }
}
