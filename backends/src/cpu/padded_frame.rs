//! Image planes copied into a padded frame in which every tap of a window reads contiguously.
//!
//! Columns are sorted by their residue modulo the stride, so neighbouring results read neighbouring elements for any
//! stride, and borders need no tests. One or two spatial axes; others go through [`Window`].

use super::simd::{VectorLevel, level, simd};
use super::vector;
use super::window::Window;

/// Elements that readers of a frame may read beyond its end.
pub const SLACK: usize = 32;

/// Elements that a frame may have, for one of input and result.
const SPARSE: usize = 8;
/// Frames of fewer elements are always worth it.
const LEAST: usize = 1 << 16;

/// The frame of a window.
#[derive(Clone, Debug)]
pub struct PaddedFrame {
    /// Extents of the input.
    pub from: [usize; 2],
    /// Extents of the result.
    pub to: [usize; 2],
    stride: [usize; 2],
    high: usize,
    lane: usize,
    rows: Option<InnerRows>,
    lanes: Vec<Lane>,
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
        let (rows, lanes) = inner(&Window2 { from, stride, low }, high, lane);
        Some(PaddedFrame { from, to, stride, high, lane, rows, lanes, taps })
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
        self.fill_border(outside, &mut frame[..self.len()]);
        self.fill_inside(x, frame);
    }

    /// Fills what no plane is copied to.
    fn fill_border(&self, outside: f32, frame: &mut [f32]) {
        let Some(rows) = &self.rows else { return frame.fill(outside) };
        let pitch = self.lane * self.stride[1];
        let (above, rest) = frame.split_at_mut(rows.to * pitch);
        let (inner, below) = rest.split_at_mut(rows.count * pitch);
        above.fill(outside);
        below.fill(outside);
        let covered: usize = self.lanes.iter().map(|l| l.len).sum();
        if covered == pitch {
            return;
        }
        for line in inner.chunks_exact_mut(pitch) {
            let mut done = 0;
            for lane in &self.lanes {
                line[done..lane.at].fill(outside);
                done = lane.at + lane.len;
            }
            line[done..].fill(outside);
        }
    }

    /// Copies a plane into a frame whose border is filled.
    pub fn fill_inside(&self, x: &[f32], frame: &mut [f32]) {
        let (stride, pitch, wide) = (self.stride[1], self.lane * self.stride[1], self.from[1]);
        let Some(rows) = &self.rows else { return };
        for lane in &self.lanes {
            let (from, to) = (rows.from * wide + lane.column, rows.to * pitch + lane.at);
            copy_lines(&x[from..], wide, &mut frame[to..], pitch, (rows.count, lane.len), stride);
        }
    }
}

/// What of a window of two axes decides where its frame is filled.
struct Window2 {
    from: [usize; 2],
    stride: [usize; 2],
    low: [i64; 2],
}

/// Columns of the input that are neighbours in a row of the frame: every `stride`-th.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// The first, in the input.
    column: usize,
    /// Where it goes in the frame's row.
    at: usize,
    len: usize,
}

/// Rows of the frame that are rows of the input.
#[derive(Clone, Copy, Debug)]
struct InnerRows {
    /// The first, in the input and in the frame.
    from: usize,
    to: usize,
    count: usize,
}

/// The parts of a frame that are read from the input.
fn inner(w: &Window2, high: usize, lane: usize) -> (Option<InnerRows>, Vec<Lane>) {
    let first = w.low[0].max(0);
    let end = (w.from[0] as i64 + w.low[0]).min(high as i64);
    let rows = (end > first && w.from[1] > 0).then(|| InnerRows {
        from: (first - w.low[0]) as usize,
        to: first as usize,
        count: (end - first) as usize,
    });
    let by = w.stride[1] as i64;
    let lanes = (0..w.stride[1]).filter_map(|q| {
        // Element `j` of lane `q` is column `j * by + shift`.
        let shift = q as i64 - w.low[1];
        let from = if shift < 0 { (-shift + by - 1) / by } else { 0 };
        let wide = w.from[1] as i64;
        let to = if wide > shift { (wide - shift + by - 1) / by } else { 0 };
        let (from, to) = (from.min(lane as i64), to.min(lane as i64));
        (from < to).then(|| Lane {
            column: (from * by + shift) as usize,
            at: q * lane + from as usize,
            len: (to - from) as usize,
        })
    });
    (rows, lanes.collect())
}

simd! {
    /// Copies `size` lines of elements, `wide` and `pitch` apart.
    pub fn copy_lines(x: &[f32], wide: usize, frame: &mut [f32], pitch: usize, size: (usize, usize), stride: usize) {
        for r in 0..size.0 {
            copy_line(&x[r * wide..], &mut frame[r * pitch..][..size.1], stride);
        }
    }
}

/// Copies every `stride`-th element from the first on.
#[inline(always)]
fn copy_line(src: &[f32], line: &mut [f32], stride: usize) {
    match (stride, line.len()) {
        (1, n @ 8..) => copy_by::<8>(line, &src[..n]),
        (1, n @ 4..) => copy_by::<4>(line, &src[..n]),
        (2, _) => every_second(line, src),
        _ => line.iter_mut().zip(src.iter().step_by(stride)).for_each(|(d, s)| *d = *s),
    }
}

/// Copies at least `C` elements, `C` at once; the last ones may overlap those before.
#[inline(always)]
fn copy_by<const C: usize>(dst: &mut [f32], src: &[f32]) {
    let (whole, _) = dst.as_chunks_mut::<C>();
    whole.iter_mut().zip(src.as_chunks::<C>().0).for_each(|(d, s)| *d = *s);
    if let (Some(d), Some(s)) = (dst.last_chunk_mut::<C>(), src.last_chunk::<C>()) {
        *d = *s;
    }
}

/// Every second element of `src`, from the first.
#[inline]
pub fn every_second(dst: &mut [f32], src: &[f32]) {
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected on this machine.
        VectorLevel::V4 => unsafe { vector::avx512::every_second(src, dst) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected on this machine.
        VectorLevel::V3 => unsafe { vector::avx2::every_second(src, dst) },
        // SAFETY: every machine has this level.
        _ => unsafe { vector::portable::every_second(src, dst) },
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
