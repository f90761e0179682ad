//! Pooling over the planes of padded frames.
//!
//! Every tap reads contiguously, so a chunk of results is a vector per tap.

use super::padded_frame::{PaddedFrame, SLACK};
use super::simd::simd;

/// How the taps of a window are combined.
#[derive(Clone, Copy, Debug)]
pub enum Stencil {
    /// The largest; NaN if there is one.
    Max,
    Sum,
}

/// All rows of a plane, for `T` taps if `T` is not 0. Known taps are unrolled and their sums stay in registers.
#[inline(always)]
fn each<const T: usize>(
    frame: &PaddedFrame,
    data: &[f32],
    out: &mut [f32],
    init: f32,
    f: impl Fn(usize, f32, f32) -> f32,
) {
    let wide = frame.to[1];
    if wide == 0 || out.is_empty() {
        return;
    }
    let known: [usize; T] = std::array::from_fn(|t| frame.taps[t]);
    let reach = frame.taps.iter().max().copied().unwrap_or(0) + SLACK;
    let end = frame.row(frame.to[0].max(1) - 1) + wide - 1 + reach;
    assert!(end <= data.len() && out.len() == frame.to[0] * wide, "a frame with slack");
    for y in 0..frame.to[0] {
        let (from, to) = (frame.row(y), y * wide);
        let mut x = 0;
        while x < wide {
            // SAFETY: the assertion bounds the last chunk of the last row.
            x += unsafe {
                match wide - x {
                    1..=8 => chunk::<T, 8>(frame, &known, data, from + x, init, &f, out, to + x),
                    9..=16 => chunk::<T, 16>(frame, &known, data, from + x, init, &f, out, to + x),
                    _ => chunk::<T, 32>(frame, &known, data, from + x, init, &f, out, to + x),
                }
            };
        }
    }
}

/// `C` results from `to` on, and that number. What lies beyond the row is written again by the next one.
///
/// # Safety
/// `data` has `C` elements at `from` plus every tap.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the innermost loop, given a name")]
unsafe fn chunk<const T: usize, const C: usize>(
    frame: &PaddedFrame,
    known: &[usize; T],
    data: &[f32],
    from: usize,
    init: f32,
    f: &impl Fn(usize, f32, f32) -> f32,
    out: &mut [f32],
    to: usize,
) -> usize {
    // SAFETY: as promised.
    let read = |tap: usize| unsafe { *data.as_ptr().add(from + tap).cast::<[f32; C]>() };
    let mut acc = [init; C];
    if T > 0 {
        for (t, &tap) in known.iter().enumerate() {
            let src = read(tap);
            acc = std::array::from_fn(|j| f(t, acc[j], src[j]));
        }
    } else {
        for (t, &tap) in frame.taps.iter().enumerate() {
            let src = read(tap);
            acc = std::array::from_fn(|j| f(t, acc[j], src[j]));
        }
    }
    match out[to..].first_chunk_mut::<C>() {
        Some(part) => *part = acc,
        None => {
            let left = out.len() - to;
            out[to..].copy_from_slice(&acc[..left]);
        }
    }
    C
}

simd! {
    /// All results of one plane from its frame, which has [`SLACK`] elements of slack at its end.
    pub fn stencil(frame: &PaddedFrame, kind: Stencil, data: &[f32], out: &mut [f32]) {
        let lowest = f32::NEG_INFINITY;
        let max = |_: usize, a: f32, v: f32| super::math::maximum(a, v);
        match (kind, frame.taps.len()) {
            (Stencil::Max, 9) => each::<9>(frame, data, out, lowest, max),
            (Stencil::Max, 4) => each::<4>(frame, data, out, lowest, max),
            (Stencil::Max, _) => each::<0>(frame, data, out, lowest, max),
            (Stencil::Sum, _) => each::<0>(frame, data, out, 0.0, |_, a, v| a + v),
        }
    }
}
