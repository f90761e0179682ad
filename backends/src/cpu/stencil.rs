//! Pooling over the planes of padded frames.
//!
//! Every tap reads contiguously, so a chunk of results is a vector per tap. The largest element is found among integers in the
//! order of the floats, of which NaN is the largest: one instruction per tap.

use super::padded_frame::{PaddedFrame, SLACK};
use super::simd::simd;
use bytemuck::Pod;

/// All rows of a plane, for `T` taps if `T` is not 0. Known taps are unrolled and their results stay in registers.
#[inline(always)]
fn each<X: Pod, const T: usize>(
    frame: &PaddedFrame,
    data: &[X],
    out: &mut [X],
    init: X,
    f: impl Fn(X, X) -> X,
) {
    let wide = frame.to[1];
    if wide == 0 || out.is_empty() {
        return;
    }
    let known: [usize; T] = std::array::from_fn(|t| frame.taps[t]);
    let taps = if T > 0 { &known[..] } else { &frame.taps[..] };
    let reach = taps.iter().max().copied().unwrap_or(0) + SLACK;
    let end = frame.row(frame.to[0].max(1) - 1) + wide - 1 + reach;
    assert!(end <= data.len() && out.len() == frame.to[0] * wide, "a frame with slack");
    for y in 0..frame.to[0] {
        let (from, to) = (frame.row(y), y * wide);
        let mut x = 0;
        while x < wide {
            // SAFETY: the assertion bounds the last chunk of the last row.
            x += unsafe {
                match wide - x {
                    1..=8 => chunk::<X, 8>(taps, data, from + x, init, &f, &mut out[to + x..]),
                    9..=16 => chunk::<X, 16>(taps, data, from + x, init, &f, &mut out[to + x..]),
                    _ => chunk::<X, 32>(taps, data, from + x, init, &f, &mut out[to + x..]),
                }
            };
        }
    }
}

/// The first `C` results of `out`, and that number. What lies beyond the row is written again by the next one.
///
/// # Safety
/// `data` has `C` elements at `from` plus every tap.
#[inline(always)]
unsafe fn chunk<X: Pod, const C: usize>(
    taps: &[usize],
    data: &[X],
    from: usize,
    init: X,
    f: &impl Fn(X, X) -> X,
    out: &mut [X],
) -> usize {
    let mut acc = [init; C];
    for &tap in taps {
        // SAFETY: as promised.
        let src = unsafe { *data.as_ptr().add(from + tap).cast::<[X; C]>() };
        acc = std::array::from_fn(|j| f(acc[j], src[j]));
    }
    let left = out.len().min(C);
    match out.first_chunk_mut::<C>() {
        Some(part) => *part = acc,
        None => out.copy_from_slice(&acc[..left]),
    }
    C
}

simd! {
    /// The sum of every window of a frame, which has [`SLACK`] elements of slack at its end.
    pub fn sums(frame: &PaddedFrame, data: &[f32], out: &mut [f32]) {
        match frame.taps.len() {
            4 => each::<f32, 4>(frame, data, out, 0.0, |a, v| a + v),
            9 => each::<f32, 9>(frame, data, out, 0.0, |a, v| a + v),
            _ => each::<f32, 0>(frame, data, out, 0.0, |a, v| a + v),
        }
    }
}

/// The integer that stands where the float does in their order, NaN last; and back.
#[inline(always)]
fn turned(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & i32::MAX)
}

simd! {
    /// The largest element of every window of a frame, which has [`SLACK`] elements of slack at its end and is overwritten; NaN if
    /// there is one.
    pub fn maxima(frame: &PaddedFrame, data: &mut [f32], out: &mut [f32]) {
        for v in data.iter_mut() {
            let known = if v.is_nan() { f32::NAN.abs() } else { *v };
            *v = f32::from_bits(turned(known.to_bits() as i32) as u32);
        }
        let (data, ordered): (&[i32], &mut [i32]) = (bytemuck::cast_slice(data), bytemuck::cast_slice_mut(out));
        let lowest = turned(f32::NEG_INFINITY.to_bits() as i32);
        match frame.taps.len() {
            4 => each::<i32, 4>(frame, data, ordered, lowest, i32::max),
            9 => each::<i32, 9>(frame, data, ordered, lowest, i32::max),
            _ => each::<i32, 0>(frame, data, ordered, lowest, i32::max),
        }
        ordered.iter_mut().for_each(|v| *v = turned(*v));
    }
}
