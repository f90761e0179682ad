//! Argsort (top-k): indices of the first elements of rows in sorted order.
//!
//! Elements map to unsigned integers of the same order; NaN is largest, and zeros of both signs are equal. The sort is stable.

use crate::pointwise::{ElementSource, strided_copy};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use half::{bf16, f16};
use mlc_dsl::ir::DType;
use mlc_vector::simd;

/// Indices of a row up to which those found so far are kept in order while the others are looked at.
const FEW: usize = 32;

struct Argsort {
    dtype: DType,
    source: ElementSource,
    n: usize,
    /// Indices per row.
    count: usize,
    largest: bool,
}

/// Prepares the places of the first elements; attribute 1 tells whether the largest come first.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x] = spec.args else { return None };
    let [(DType::I64, shape)] = spec.outputs else { return None };
    if x.dtype == DType::Str || x.dtype.is_small() {
        return None;
    }
    let (&[_, n], &[_, count]) = (x.layout.shape.as_slice(), shape.as_slice()) else { return None };
    let source = ElementSource::of(&x.layout)?;
    let largest = spec.bool(1)?;
    Some(Box::new(Argsort { dtype: x.dtype, source, n, count, largest }))
}

/// The integer that stands where the float does among unsigned ones.
#[inline(always)]
fn order_f32(x: f32) -> u32 {
    let x = if x.is_nan() { f32::NAN.abs() } else { x + 0.0 };
    let bits = x.to_bits();
    bits ^ ((bits as i32 >> 31) as u32 | 1 << 31)
}

#[inline(always)]
fn order_f64(x: f64) -> u64 {
    let x = if x.is_nan() { f64::NAN.abs() } else { x + 0.0 };
    let bits = x.to_bits();
    bits ^ ((bits as i64 >> 63) as u64 | 1 << 63)
}

simd! {
    fn order_floats(x: &[f32], keys: &mut [u64], flip: u64) {
        keys.iter_mut().zip(x).for_each(|(k, &x)| *k = order_f32(x) as u64 ^ flip);
    }
}

/// Keys of a row, the smaller the earlier.
fn keys(dtype: DType, row: &[u8], keys: &mut [u64], largest: bool) {
    let flip = if largest { u64::MAX } else { 0 };
    macro_rules! each {
        ($t:ty, $f:expr) => {{
            let row: &[$t] = bytemuck::cast_slice(row);
            keys.iter_mut().zip(row).for_each(|(k, &x)| *k = $f(x) ^ flip);
        }};
    }
    let signed = |x: i64| x as u64 ^ 1 << 63;
    match dtype {
        DType::F32 => order_floats(bytemuck::cast_slice(row), keys, flip),
        DType::F64 => each!(f64, order_f64),
        DType::F16 => each!(u16, |x| order_f32(f16::from_bits(x).to_f32()) as u64),
        DType::BF16 => each!(u16, |x| order_f32(bf16::from_bits(x).to_f32()) as u64),
        DType::I8 => each!(i8, |x| signed(x as i64)),
        DType::I16 => each!(i16, |x| signed(x as i64)),
        DType::I32 => each!(i32, |x| signed(x as i64)),
        DType::I64 => each!(i64, signed),
        DType::U16 => each!(u16, |x| x as u64),
        DType::U32 => each!(u32, |x| x as u64),
        DType::U64 => each!(u64, |x| x),
        // Bytes and truth values.
        _ => each!(u8, |x| x as u64),
    }
}

/// The first places: those so far are kept in order.
fn few(keys: &[u64], out: &mut [i64]) {
    let mut held = [0u64; FEW];
    let count = out.len();
    let mut insert = |i: usize, key: u64, filled: usize| {
        // Behind those that are not larger: the row is read from its beginning.
        let mut at = filled;
        while at > 0 && held[at - 1] > key {
            if at < count {
                (held[at], out[at]) = (held[at - 1], out[at - 1]);
            }
            at -= 1;
        }
        (held[at], out[at]) = (key, i as i64);
        held[count - 1]
    };
    let mut last = u64::MAX;
    for (i, &key) in keys[..count].iter().enumerate() {
        last = insert(i, key, i);
    }
    const STEP: usize = 32;
    for (c, chunk) in keys[count..].chunks(STEP).enumerate() {
        if chunk.iter().fold(0, |any, &k| any | (k < last) as u32) == 0 {
            continue;
        }
        for (j, &key) in chunk.iter().enumerate() {
            if key < last {
                last = insert(count + c * STEP + j, key, count);
            }
        }
    }
}

simd! {
    fn few_of(keys: &[u64], out: &mut [i64]) {
        few(keys, out);
    }
}

/// The first places of a longer part of the row: all in one selection and a sort of what is selected.
fn many(keys: &[u64], order: &mut [u64], out: &mut [i64]) {
    let of = |&i: &u64| (keys[i as usize], i);
    order.iter_mut().enumerate().for_each(|(i, o)| *o = i as u64);
    if out.len() < order.len() {
        order.select_nth_unstable_by_key(out.len(), of);
    }
    let first = &mut order[..out.len()];
    first.sort_unstable_by_key(of);
    out.iter_mut().zip(first).for_each(|(o, i)| *o = *i as i64);
}

simd! {
    /// The first places of a much longer row: of those that come before the last of the best so far, the best are selected whenever they are
    /// too many.
    fn some(keys: &[u64], held: &mut [[u64; 2]], out: &mut [i64]) {
        const STEP: usize = 32;
        let (count, mut filled, mut last) = (out.len(), 0, None);
        for (c, chunk) in keys.chunks(STEP).enumerate() {
            if let Some(last) = last
                && chunk.iter().fold(0, |any, &k| any | (k < last) as u32) == 0
            {
                continue;
            }
            for (j, &key) in chunk.iter().enumerate() {
                // Of equal elements the one before comes first.
                if last.is_some_and(|last| key >= last) {
                    continue;
                }
                held[filled] = [key, (c * STEP + j) as u64];
                filled += 1;
                if filled == held.len() {
                    last = Some(held.select_nth_unstable(count - 1).1[0]);
                    filled = count;
                }
            }
        }
        let held = &mut held[..filled];
        held.sort_unstable();
        out.iter_mut().zip(held).for_each(|(o, [_, i])| *o = *i as i64);
    }
}

/// For each place of a row, how many candidates are held.
const HELD: usize = 4;

impl Kernel for Argsort {
    fn scratch(&self) -> u64 {
        (self.n as u64).saturating_mul(24)
    }

    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (n, count, size) = (self.n, self.count, self.dtype.size());
        let out: &mut [i64] = bytemuck::cast_slice_mut(outputs[0]);
        let grain = (1usize << 14).div_ceil(n.max(1)) * count;
        cx.threads.chunks(out, count, grain, |at, part| {
            let lens = [(n * size).div_ceil(8), n, if count > FEW { n } else { 0 }];
            with_scratch::<u64, 3, _>(lens, |[held, row_keys, order]| {
                for (r, line) in part.chunks_exact_mut(count.max(1)).enumerate() {
                    let first = (at / count + r) * n;
                    let row = match self.source {
                        ElementSource::Dense(o) => {
                            &inputs[0].bytes[(o + first) * size..][..n * size]
                        }
                        _ => {
                            let row = &mut bytemuck::cast_slice_mut::<u64, u8>(held)[..n * size];
                            self.copy(inputs[0].bytes, first, row);
                            row
                        }
                    };
                    keys(self.dtype, row, row_keys, self.largest);
                    match count {
                        ..=FEW => few_of(row_keys, line),
                        _ if count * HELD * 2 <= n => {
                            let held = &mut order[..count * HELD * 2];
                            some(row_keys, bytemuck::cast_slice_mut(held), line);
                        }
                        _ => many(row_keys, order, line),
                    }
                }
            });
        });
        Ok(())
    }
}

impl Argsort {
    fn copy(&self, from: &[u8], first: usize, row: &mut [u8]) {
        macro_rules! go {
            ($t:ty) => {
                strided_copy::<$t>(
                    &self.source,
                    bytemuck::cast_slice(from),
                    first,
                    bytemuck::cast_slice_mut(row),
                )
            };
        }
        crate::pointwise::convert::by_size!(self.dtype, go);
    }
}
