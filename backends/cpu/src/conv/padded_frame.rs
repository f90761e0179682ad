//! Padded frames: copies of image planes in which every tap of a window reads contiguously.
//!
//! Columns are sorted by phase (their residue modulo the stride), so that neighbouring results read neighbouring elements for any stride, and
//! borders need no tests. One to three spatial axes: planes, rows and columns; others go through [`Window`].

use super::window::Window;
use mlc_vector::{planes, simd};

/// Elements that readers of a frame may read beyond its end.
pub const SLACK: usize = 32;

/// Elements that a frame may have, for one of input and result.
const SPARSE: usize = 8;
/// Frames of fewer elements are always worth it.
const LEAST: usize = 1 << 16;

/// The frame of a window. Axes are planes, rows and columns.
#[derive(Clone, Debug)]
pub struct PaddedFrame {
    /// Extents of the input.
    pub from: [usize; 3],
    /// Extents of the result.
    pub to: [usize; 3],
    stride: [usize; 3],
    /// Rows of a plane.
    high: usize,
    /// What columns are sorted by: their residue modulo this.
    sorted: usize,
    /// Columns of one residue.
    lane: usize,
    deep: usize,
    planes: Option<Inner>,
    rows: Option<Inner>,
    lanes: Vec<Lane>,
    /// Where each tap begins.
    pub taps: Vec<usize>,
}

/// The extents of up to three axes as those of three, of which the first may be `unit`.
pub fn three<T: Copy>(v: &[T], unit: T) -> Option<[T; 3]> {
    match *v {
        [a] => Some([unit, unit, a]),
        [a, b] => Some([unit, a, b]),
        [a, b, c] => Some([a, b, c]),
        _ => None,
    }
}

impl PaddedFrame {
    /// The frame of a window with one to three spatial axes; none if it would be mostly empty.
    pub fn of(w: &Window) -> Option<PaddedFrame> {
        PaddedFrame::sorted_by(w, *w.stride.last()?)
    }

    /// The same with columns in their order, in which neighbouring results read elements that are a stride apart.
    pub fn in_order(w: &Window) -> Option<PaddedFrame> {
        PaddedFrame::sorted_by(w, 1)
    }

    fn sorted_by(w: &Window, sorted: usize) -> Option<PaddedFrame> {
        let (from, to, size) = (three(&w.from, 1)?, three(&w.to, 1)?, three(&w.size, 1)?);
        let (stride, dilation) = (three(&w.stride, 1)?, three(&w.dilation, 1)?);
        let low = three(&w.low, 0)?;
        let reach =
            |a: usize| (to[a].max(1) - 1) * stride[a] + (size[a].max(1) - 1) * dilation[a] + 1;
        let (deep, high, lane) = (reach(0), reach(1), reach(2).div_ceil(sorted));
        let row = lane.checked_mul(sorted)?;
        let plane = high.checked_mul(row)?;
        let len = deep.checked_mul(plane)?;
        let worth = (w.inputs().saturating_add(w.outputs())).saturating_mul(SPARSE).max(LEAST);
        if len > worth || w.taps() > worth {
            return None;
        }
        let taps = (0..size[0] * size[1] * size[2])
            .map(|t| {
                let (z, y, x) = (t / size[2] / size[1], t / size[2] % size[1], t % size[2]);
                let (z, y, x) = (z * dilation[0], y * dilation[1], x * dilation[2]);
                z * plane + y * row + x % sorted * lane + x / sorted
            })
            .collect();
        let planes = inner(from[0], low[0], deep);
        let rows = inner(from[1], low[1], high).filter(|_| from[2] > 0);
        let lanes = lanes(from[2], sorted, low[2], lane);
        Some(PaddedFrame { from, to, stride, high, sorted, lane, deep, planes, rows, lanes, taps })
    }

    /// Elements of the frame of one channel.
    pub fn len(&self) -> usize {
        self.deep * self.plane()
    }

    /// Elements of a plane of the frame.
    fn plane(&self) -> usize {
        self.high * self.pitch()
    }

    /// Elements of a row of the frame.
    fn pitch(&self) -> usize {
        self.lane * self.sorted
    }

    /// From a result of a row to the next.
    pub fn step(&self) -> usize {
        if self.sorted == 1 { self.stride[2] } else { 1 }
    }

    /// From one row of results of a plane to the next, and from one plane of results to the next.
    pub fn steps(&self) -> [usize; 2] {
        [self.stride[1] * self.pitch(), self.stride[0] * self.plane()]
    }

    /// Where the first tap of the first result of row `y` reads; rows are numbered plane by plane.
    #[inline(always)]
    pub fn row(&self, y: usize) -> usize {
        let ([row, plane], high) = (self.steps(), self.to[1].max(1));
        y / high * plane + y % high * row
    }

    /// Copies a channel into its frame.
    pub fn fill(&self, x: &[f32], outside: f32, frame: &mut [f32]) {
        let frame = &mut frame[..self.len()];
        let Some(planes) = &self.planes else { return frame.fill(outside) };
        let plane = self.plane();
        let (before, rest) = frame.split_at_mut(planes.to * plane);
        let (inner, after) = rest.split_at_mut(planes.count * plane);
        before.fill(outside);
        after.fill(outside);
        inner.chunks_exact_mut(plane).for_each(|plane| self.fill_border(outside, plane));
        self.fill_inside(x, frame);
    }

    /// Fills what of a plane nothing is copied to.
    fn fill_border(&self, outside: f32, frame: &mut [f32]) {
        let Some(rows) = &self.rows else { return frame.fill(outside) };
        let pitch = self.pitch();
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

    /// Copies a channel into a frame whose border is filled.
    pub fn fill_inside(&self, x: &[f32], frame: &mut [f32]) {
        let (stride, pitch, [_, high, wide]) = (self.sorted, self.pitch(), self.from);
        let (Some(planes), Some(rows)) = (&self.planes, &self.rows) else { return };
        for z in 0..planes.count {
            let x = &x[(planes.from + z) * high * wide..];
            let frame = &mut frame[(planes.to + z) * self.plane()..];
            for lane in &self.lanes {
                let (from, to) = (rows.from * wide + lane.column, rows.to * pitch + lane.at);
                let size = (rows.count, lane.len);
                copy_lines(&x[from..], wide, &mut frame[to..], pitch, size, stride);
            }
        }
    }
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

/// Planes or rows of the frame that are those of the input.
#[derive(Clone, Copy, Debug)]
struct Inner {
    /// The first, in the input and in the frame.
    from: usize,
    to: usize,
    count: usize,
}

/// Which of `all` planes or rows of a frame are read from the input, of which `low` are before it.
fn inner(from: usize, low: i64, all: usize) -> Option<Inner> {
    let first = low.max(0);
    let end = (from as i64 + low).min(all as i64);
    (end > first).then(|| Inner {
        from: (first - low) as usize,
        to: first as usize,
        count: (end - first) as usize,
    })
}

/// The columns of a frame's row that are read from the input, of which `low` are before it.
fn lanes(wide: usize, stride: usize, low: i64, lane: usize) -> Vec<Lane> {
    let (by, wide) = (stride as i64, wide as i64);
    let lanes = (0..stride).filter_map(|q| {
        // Element `j` of lane `q` is column `j * by + shift`.
        let shift = q as i64 - low;
        let from = if shift < 0 { (-shift + by - 1) / by } else { 0 };
        let to = if wide > shift { (wide - shift + by - 1) / by } else { 0 };
        let (from, to) = (from.min(lane as i64), to.min(lane as i64));
        (from < to).then(|| Lane {
            column: (from * by + shift) as usize,
            at: q * lane + from as usize,
            len: (to - from) as usize,
        })
    });
    lanes.collect()
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
    planes::every_second(src, dst);
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
        let wide = self.to[2].max(1);
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
