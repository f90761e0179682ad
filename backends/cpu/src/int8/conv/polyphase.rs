//! The polyphase decomposition of an image: one plane per residue of the strides, four channels interleaved, padded with the zero point.
//! Every tap then reads neighbouring positions contiguously, without im2col.

use super::super::pack::{groups, weave};
use crate::conv::window::Window;
use mlc_vector::simd;

/// The polyphase planes of one or two spatial axes.
pub struct PolyphasePlanes {
    from: [usize; 2],
    pub to: [usize; 2],
    stride: [usize; 2],
    low: [i64; 2],
    /// Rows and columns of a plane.
    high: usize,
    pub wide: usize,
    /// The phases (residues of the strides) that some tap reads: each has a plane.
    phases: Vec<usize>,
    /// What each row of the planes reads: columns `start..end` of it are elements from a place on, by the stride. The rest lies outside.
    lines: Vec<(usize, usize, usize)>,
    /// Where each tap begins among the planes of one group of channels, in words.
    taps: Vec<usize>,
}

impl PolyphasePlanes {
    /// The frame of a window; none beyond two axes, or where it would be much larger than the image.
    pub fn of(w: &Window) -> Option<PolyphasePlanes> {
        fn two<T: Copy>(v: &[T], unit: T) -> Option<[T; 2]> {
            match *v {
                [a] => Some([unit, a]),
                [a, b] => Some([a, b]),
                _ => None,
            }
        }
        let (from, to, size) = (two(&w.from, 1)?, two(&w.to, 1)?, two(&w.size, 1)?);
        let (stride, dilation, low) = (two(&w.stride, 1)?, two(&w.dilation, 1)?, two(&w.low, 0)?);
        let shift = |a: usize| size[a].saturating_sub(1).checked_mul(dilation[a]);
        let most = [shift(0)? / stride[0], shift(1)? / stride[1]];
        let (high, wide) = (to[0].checked_add(most[0])?, to[1].checked_add(most[1])?);
        let plane = high.checked_mul(wide)?;
        let image = from[0] * from[1] + to[0] * to[1];
        let count = size[0] * size[1];
        if count > image + (1 << 10) {
            return None;
        }
        let at = |i: usize| (i / size[1] * dilation[0], i % size[1] * dilation[1]);
        let phase = |(y, x): (usize, usize)| y % stride[0] * stride[1] + x % stride[1];
        let mut phases: Vec<usize> = (0..count).map(|i| phase(at(i))).collect();
        phases.sort_unstable();
        phases.dedup();
        if plane.checked_mul(phases.len())? > 8 * image + (1 << 16) {
            return None;
        }
        let tap = |i: usize| {
            let (y, x) = at(i);
            let which = phases.binary_search(&phase((y, x))).unwrap_or(0);
            which * plane + y / stride[0] * wide + x / stride[1]
        };
        let taps = (0..count).map(tap).collect();
        let mut frame =
            PolyphasePlanes { from, to, stride, low, high, wide, phases, lines: vec![], taps };
        frame.lines = (0..frame.phases.len() * high).map(|row| frame.line(row)).collect();
        Some(frame)
    }

    /// Elements of a channel of the image.
    pub fn inputs(&self) -> usize {
        self.from[0] * self.from[1]
    }

    /// Words of the planes of one group of channels.
    pub fn len(&self) -> usize {
        self.high * self.wide * self.phases.len()
    }

    /// Positions from the first result to the last, as tiles walk over a plane.
    pub fn positions(&self) -> usize {
        match self.to {
            [0, _] | [_, 0] => 0,
            [h, w] => (h - 1) * self.wide + w,
        }
    }

    /// The depth of `channels` channels, tap by tap and in groups of four channels: where each group lies.
    pub fn offsets(&self, channels: usize) -> Vec<usize> {
        let group = |t: usize| (0..groups(channels)).map(move |g| g * self.len() + t);
        self.taps.iter().flat_map(|&t| group(t)).collect()
    }

    /// What row `row` of the planes reads.
    fn line(&self, row: usize) -> (usize, usize, usize) {
        let (phase, i) = (self.phases[row / self.high], row % self.high);
        let [sy, sx] = self.stride;
        let (py, px) = (phase / sx, (phase % sx) as i64);
        let y = (i * sy + py) as i64 - self.low[0];
        // Column `j` is element `j * sx + px - low` of the image's row.
        let place = |element: i64| ((element + self.low[1] - px).max(0) as usize).div_ceil(sx);
        let start = place(0).min(self.wide);
        let end = place(self.from[1] as i64).clamp(start, self.wide);
        if y < 0 || y >= self.from[0] as i64 || start == end {
            return (0, 0, 0);
        }
        let first = (start * sx) as i64 + px - self.low[1];
        (start, end, y as usize * self.from[1] + first as usize)
    }

    /// Writes the planes of four channels, some of which may be missing: they are zero.
    pub fn fill(&self, channels: [Option<&[u8]>; 4], flip: u8, outside: u8, to: &mut [u32]) {
        let edge = u32::from_le_bytes(channels.map(|c| if c.is_some() { outside } else { 0 }));
        let mut lines = [const { Vec::new() }; 4];
        lines.iter_mut().for_each(|l: &mut Vec<u8>| l.resize(self.wide, 0));
        let rows = to[..self.len()].chunks_exact_mut(self.wide.max(1));
        for (&(start, end, at), to) in self.lines.iter().zip(rows) {
            to[..start].fill(edge);
            to[end..].fill(edge);
            for (line, channel) in lines.iter_mut().zip(&channels) {
                match channel {
                    Some(c) if start < end => {
                        copy(&c[at..], self.stride[1], flip, &mut line[..end - start]);
                    }
                    _ => line.fill(0),
                }
            }
            let [a, b, c, d] = &lines;
            weave(a, b, c, d, &mut to[start..end]);
        }
    }

    /// Writes the planes of one channel.
    pub fn fill_plane(&self, channel: &[u8], flip: u8, outside: u8, to: &mut [u8]) {
        let rows = to[..self.len()].chunks_exact_mut(self.wide.max(1));
        for (&(start, end, at), to) in self.lines.iter().zip(rows) {
            to[..start].fill(outside);
            to[end..].fill(outside);
            if start < end {
                copy(&channel[at..], self.stride[1], flip, &mut to[start..end]);
            }
        }
    }
}

/// Every `step`-th byte, with bits flipped.
fn copy(from: &[u8], step: usize, flip: u8, to: &mut [u8]) {
    match step {
        1 if flip == 0 => to.copy_from_slice(&from[..to.len()]),
        1 => flipped(&from[..to.len()], flip, to),
        2 => even_bytes(from, flip, to),
        _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(t, &b)| *t = b ^ flip),
    }
}

simd! {
    fn flipped(from: &[u8], flip: u8, to: &mut [u8]) {
        to.iter_mut().zip(from).for_each(|(t, &b)| *t = b ^ flip);
    }
}

simd! {
    /// Every other byte.
    fn even_bytes(from: &[u8], flip: u8, to: &mut [u8]) {
        let n = to.len();
        let pairs = from.len() / 2;
        for (t, pair) in to.iter_mut().zip(from.chunks_exact(2)) {
            *t = pair[0] ^ flip;
        }
        if pairs < n {
            to[n - 1] = from[2 * (n - 1)] ^ flip;
        }
    }
}
