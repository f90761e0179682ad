//! Image planes copied into a padded frame in which every tap of a window reads contiguously.
//!
//! Columns are sorted by their residue modulo the stride, so neighbouring results read neighbouring elements for any
//! stride, and borders need no tests. One or two spatial axes; others go through [`Window`].

use super::simd::simd;
use super::window::Window;

/// Results computed at once.
pub const CHUNK: usize = 16;

/// Elements that a frame may have, for one of input and result.
const SPARSE: usize = 8;
/// Frames of fewer elements are always worth it.
const LEAST: usize = 1 << 16;

/// The frame of a window.
#[derive(Clone, Debug)]
pub struct PaddedFrame {
    from: [usize; 2],
    /// Extents of the result.
    pub to: [usize; 2],
    stride: [usize; 2],
    low: [i64; 2],
    high: usize,
    lane: usize,
    /// Where each tap begins.
    pub taps: Vec<usize>,
}

impl PaddedFrame {
    /// The frame of a window with one or two spatial axes; none if it would be mostly empty.
    pub fn of(w: &Window) -> Option<PaddedFrame> {
        let two = |v: &[usize], unit: usize| match *v {
            [a] => Some([unit, a]),
            [a, b] => Some([a, b]),
            _ => None,
        };
        let low = match *w.low.as_slice() {
            [a] => [0, a],
            [a, b] => [a, b],
            _ => return None,
        };
        let (from, to, size) = (two(&w.from, 1)?, two(&w.to, 1)?, two(&w.size, 1)?);
        let (stride, dilation) = (two(&w.stride, 1)?, two(&w.dilation, 1)?);
        let reach =
            |a: usize| (to[a].max(1) - 1) * stride[a] + (size[a].max(1) - 1) * dilation[a] + 1;
        let (high, lane) = (reach(0), reach(1).div_ceil(stride[1]));
        let row = lane.checked_mul(stride[1])?;
        let len = high.checked_mul(row)?;
        let worth = (w.inputs().saturating_add(w.outputs())).saturating_mul(SPARSE).max(LEAST);
        if len > worth || w.taps() > worth {
            return None;
        }
        let taps = (0..size[0] * size[1])
            .map(|t| {
                let (y, x) = (t / size[1] * dilation[0], t % size[1] * dilation[1]);
                y * row + x % stride[1] * lane + x / stride[1]
            })
            .collect();
        Some(PaddedFrame { from, to, stride, low, high, lane, taps })
    }

    /// Elements of the frame of one plane.
    pub fn len(&self) -> usize {
        self.high * self.lane * self.stride[1]
    }

    /// Where the first tap of the first result of row `y` reads.
    #[inline(always)]
    pub fn row(&self, y: usize) -> usize {
        y * self.stride[0] * self.lane * self.stride[1]
    }

    /// Copies a plane into its frame.
    pub fn fill(&self, x: &[f32], outside: f32, frame: &mut [f32]) {
        let (s, lane) = (self.stride[1], self.lane);
        let wide = self.from[1];
        for (r, line) in frame.chunks_exact_mut(lane * s).enumerate().take(self.high) {
            let y = r as i64 - self.low[0];
            if y < 0 || y >= self.from[0] as i64 {
                line.fill(outside);
                continue;
            }
            let src = &x[y as usize * wide..][..wide];
            for (q, part) in line.chunks_exact_mut(lane).enumerate() {
                // Element `j` of the part is column `j * s + q - low`.
                let shift = q as i64 - self.low[1];
                let s_ = s as i64;
                let first = if shift < 0 { (-shift + s_ - 1) / s_ } else { 0 };
                let end = if wide as i64 > shift { (wide as i64 - shift + s_ - 1) / s_ } else { 0 };
                let first = (first as usize).min(lane);
                let end = (end.max(0) as usize).clamp(first, lane);
                part[..first].fill(outside);
                part[end..].fill(outside);
                let from = (first as i64 * s_ + shift).max(0) as usize;
                if s == 1 {
                    part[first..end].copy_from_slice(&src[from.min(wide)..][..end - first]);
                } else if s == 2 && first < end {
                    every_second(&mut part[first..end], &src[from..]);
                } else if first < end {
                    let src = src[from..].iter().step_by(s);
                    part[first..end].iter_mut().zip(src).for_each(|(p, &v)| *p = v);
                }
            }
        }
    }
}

/// How the taps of a window are combined.
#[derive(Clone, Copy, Debug)]
pub enum Stencil<'a> {
    /// The sum of products with these weights.
    Dot(&'a [f32]),
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
    if wide == 0 {
        return;
    }
    let known: [&[f32]; T] = std::array::from_fn(|t| &data[frame.taps[t]..]);
    for (y, line) in out.chunks_exact_mut(wide).enumerate() {
        let row = frame.row(y);
        for (i, part) in line.chunks_mut(CHUNK).enumerate() {
            let at = row + i * CHUNK;
            let chunk =
                |tap: &[f32]| -> [f32; CHUNK] { tap[at..at + CHUNK].try_into().expect("a chunk") };
            let mut acc = [init; CHUNK];
            if T > 0 {
                for (t, tap) in known.iter().enumerate() {
                    let src = chunk(tap);
                    acc = std::array::from_fn(|j| f(t, acc[j], src[j]));
                }
            } else {
                for (t, &tap) in frame.taps.iter().enumerate() {
                    let src = chunk(&data[tap..]);
                    acc = std::array::from_fn(|j| f(t, acc[j], src[j]));
                }
            }
            match <&mut [f32; CHUNK]>::try_from(&mut *part) {
                Ok(part) => *part = acc,
                Err(_) => part.copy_from_slice(&acc[..part.len()]),
            }
        }
    }
}

simd! {
    /// All results of one plane from its frame, which has [`CHUNK`] elements of slack at its end.
    pub fn stencil(frame: &PaddedFrame, kind: Stencil<'_>, data: &[f32], out: &mut [f32]) {
        match (kind, frame.taps.len()) {
            (Stencil::Dot(w), 9) => {
                let w: [f32; 9] = std::array::from_fn(|t| w[t]);
                each::<9>(frame, data, out, 0.0, |t, a, v| v.mul_add(w[t], a));
            }
            (Stencil::Dot(w), 25) => {
                let w: [f32; 25] = std::array::from_fn(|t| w[t]);
                each::<25>(frame, data, out, 0.0, |t, a, v| v.mul_add(w[t], a));
            }
            (Stencil::Dot(w), n) => {
                let w = &w[..n];
                each::<0>(frame, data, out, 0.0, |t, a, v| v.mul_add(w[t], a));
            }
            (Stencil::Max, 9) => {
                each::<9>(frame, data, out, f32::NEG_INFINITY, |_, a, v| super::math::maximum(a, v));
            }
            (Stencil::Max, 4) => {
                each::<4>(frame, data, out, f32::NEG_INFINITY, |_, a, v| super::math::maximum(a, v));
            }
            (Stencil::Max, _) => {
                each::<0>(frame, data, out, f32::NEG_INFINITY, |_, a, v| super::math::maximum(a, v));
            }
            (Stencil::Sum, _) => each::<0>(frame, data, out, 0.0, |_, a, v| a + v),
        }
    }
}

simd! {
    /// Every second element of `src`, from the first.
    fn every_second(dst: &mut [f32], src: &[f32]) {
        let (pairs, last) = src.as_chunks::<2>();
        let n = pairs.len().min(dst.len());
        dst[..n].iter_mut().zip(pairs).for_each(|(d, p)| *d = p[0]);
        if let ([d], [v]) = (&mut dst[n..], last) {
            *d = *v;
        }
    }
}

/// A run of results whose taps read contiguously: first result in the panel, length, place in the frame.
#[derive(Clone, Copy, Default)]
pub struct RowRun {
    at: usize,
    len: usize,
    from: usize,
}

impl PaddedFrame {
    /// The runs of results `first..first + len`, at most as many as `runs` holds, which one result each would fill.
    pub fn runs<'r>(&self, first: usize, len: usize, runs: &'r mut [RowRun]) -> &'r [RowRun] {
        let wide = self.to[1].max(1);
        let (mut y, mut x) = (first / wide, first % wide);
        let (mut at, mut count) = (0, 0);
        while at < len {
            let n = (wide - x).min(len - at);
            runs[count] = RowRun { at, len: n, from: self.row(y) + x };
            count += 1;
            at += n;
            x = 0;
            y += 1;
        }
        &runs[..count]
    }
}

simd! {
    /// One line of a panel per depth: channel by channel, tap by tap.
    pub fn pack_lines(frame: &PaddedFrame, data: &[f32], depth: std::ops::Range<usize>, runs: &[RowRun], width: usize, panel: &mut [f32]) {
        let taps = frame.taps.len();
        let (mut c, mut t) = (depth.start / taps, depth.start % taps);
        for line in panel.chunks_exact_mut(width).take(depth.len()) {
            let from = c * frame.len() + frame.taps[t];
            for r in runs {
                let src = &data[from + r.from..][..r.len];
                let dst = &mut line[r.at..][..r.len];
                let (wide, rest) = dst.as_chunks_mut::<8>();
                let (wide_src, rest_src) = src.as_chunks::<8>();
                wide.iter_mut().zip(wide_src).for_each(|(d, s)| *d = *s);
                rest.iter_mut().zip(rest_src).for_each(|(d, s)| *d = *s);
            }
            t += 1;
            if t == taps {
                t = 0;
                c += 1;
            }
        }
    }
}
