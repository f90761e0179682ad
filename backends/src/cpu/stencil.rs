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
    taps: &[usize],
    data: &[X],
    out: &mut [X],
    init: X,
    f: impl Fn(X, X) -> X,
) {
    let wide = frame.to[1];
    if wide == 0 || out.is_empty() {
        return;
    }
    let known: [usize; T] = std::array::from_fn(|t| taps[t]);
    let taps = if T > 0 { &known[..] } else { taps };
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
            4 => each::<f32, 4>(frame, &frame.taps, data, out, 0.0, |a, v| a + v),
            9 => each::<f32, 9>(frame, &frame.taps, data, out, 0.0, |a, v| a + v),
            _ => each::<f32, 0>(frame, &frame.taps, data, out, 0.0, |a, v| a + v),
        }
    }
}

/// Replaces every element by the largest of those at the taps from it on, for `T` taps if `T` is not 0; the last ones, from which
/// a tap would leave the data, stay.
#[inline(always)]
fn largest_across<const T: usize>(taps: &[usize], data: &mut [i32]) {
    let known: [usize; T] = std::array::from_fn(|t| taps[t]);
    let taps = if T > 0 { &known[..] } else { taps };
    let reach = taps.iter().max().copied().unwrap_or(0) + SLACK;
    for at in (0..(data.len() + 1).saturating_sub(reach)).step_by(SLACK) {
        let window = &mut data[at..at + reach];
        let mut acc = [i32::MIN; SLACK];
        for &tap in taps {
            let Some(src) = window[tap..].first_chunk::<SLACK>() else { return };
            acc = std::array::from_fn(|j| acc[j].max(src[j]));
        }
        window[..SLACK].copy_from_slice(&acc);
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
        let (data, ordered): (&mut [i32], &mut [i32]) = (bytemuck::cast_slice_mut(data), bytemuck::cast_slice_mut(out));
        let lowest = turned(f32::NEG_INFINITY.to_bits() as i32);
        match frame.taps.len() {
            4 => each::<i32, 4>(frame, &frame.taps, data, ordered, lowest, i32::max),
            9 => each::<i32, 9>(frame, &frame.taps, data, ordered, lowest, i32::max),
            // The largest of every row of a window, then the largest of these.
            _ if frame.has_unit_steps() => {
                let (across, down) = frame.axes();
                match across.len() {
                    3 => largest_across::<3>(across, &mut data[..frame.len() + SLACK]),
                    5 => largest_across::<5>(across, &mut data[..frame.len() + SLACK]),
                    _ => largest_across::<0>(across, &mut data[..frame.len() + SLACK]),
                }
                match down.len() {
                    3 => each::<i32, 3>(frame, down, data, ordered, lowest, i32::max),
                    5 => each::<i32, 5>(frame, down, data, ordered, lowest, i32::max),
                    _ => each::<i32, 0>(frame, down, data, ordered, lowest, i32::max),
                }
            }
            _ => each::<i32, 0>(frame, &frame.taps, data, ordered, lowest, i32::max),
        }
        ordered.iter_mut().for_each(|v| *v = turned(*v));
    }
}
