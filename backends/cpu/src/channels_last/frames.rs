//! Padded copies of a group's channels: in an image with channels last they are so far apart that they would alias in the first-level cache.

use super::windows::Windows;
use mlc_vector::tile::Piece;

/// Which results a frame is for: neighbouring columns of neighbouring lines of a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the first result.
    pub first: usize,
    pub lines: usize,
    pub columns: usize,
}

/// How results are cut into parts whose frames stay in a cache.
pub struct Frames {
    lines: usize,
    columns: usize,
    /// Channels that are copied.
    q: usize,
}

/// Elements of a frame, about.
const FRAME: usize = 16 << 10;

impl Frames {
    /// Parts of which all windows are copied, `q` channels of each.
    pub fn new(windows: &Windows, q: usize) -> Frames {
        let [_, high, wide] = windows.to;
        let fits = |lines, columns| q * positions(windows, lines, columns) <= FRAME;
        // The most of which there is a frame, by bisection: frames grow with what they are for.
        let most = |all: usize, fits: &dyn Fn(usize) -> bool| {
            let (mut least, mut above) = (1, all.max(1) + 1);
            while above - least > 1 {
                let middle = least.midpoint(above);
                if fits(middle) { least = middle } else { above = middle }
            }
            all.div_ceil(all.div_ceil(least).max(1)).max(1)
        };
        let columns = most(wide, &|n| fits(1, n));
        let lines = if columns < wide { 1 } else { most(high, &|n| fits(n, columns)) };
        Frames { lines, columns, q }
    }

    /// Elements of the largest frame.
    pub fn len(&self, windows: &Windows) -> usize {
        self.q * positions(windows, self.lines, self.columns)
    }

    /// Columns of the largest part.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many parts there are.
    pub fn count(&self, windows: &Windows) -> usize {
        let [_, high, wide] = windows.to;
        windows.planes() * high.div_ceil(self.lines) * wide.div_ceil(self.columns)
    }

    /// Part `i`; one without results beyond the last.
    pub fn part(&self, windows: &Windows, i: usize) -> Part {
        let [_, high, wide] = windows.to;
        let (down, across) = (high.div_ceil(self.lines), wide.div_ceil(self.columns));
        let (plane, y, c) = (i / across / down, i / across % down, i % across);
        let (y, c) = (y * self.lines, c * self.columns);
        Part {
            first: ((plane * high + y) * wide + c).min(windows.len()),
            lines: if plane < windows.planes() { self.lines.min(high - y) } else { 0 },
            columns: self.columns.min(wide - c),
        }
    }

    /// Copies what the windows of a part read of the channels from `channel` on.
    pub fn fill(&self, windows: &Windows, part: &Part, channel: usize, x: &[f32], to: &mut [f32]) {
        let (b, [z, y, c]) = windows.place(part.first);
        let (plane, line, column) = (windows.begin(0, z), windows.begin(1, y), windows.begin(2, c));
        let (high, wide) = (extent(windows, 1, part.lines), extent(windows, 2, part.columns));
        // Columns inside the image.
        let bound = |at: i64| at.clamp(0, wide as i64) as usize;
        let inside = bound(-column)..bound(windows.from[2] as i64 - column);
        for (i, to) in
            to.chunks_exact_mut(wide * self.q.max(1)).take(windows.size[0] * high).enumerate()
        {
            let plane = plane + (i / high * windows.dilation[0]) as i64;
            let line = line + (i % high) as i64;
            let is_in = |axis: usize, at: i64| (0..windows.from[axis] as i64).contains(&at);
            if !is_in(0, plane) || !is_in(1, line) || inside.is_empty() {
                to.fill(0.0);
                continue;
            }
            let line = plane as usize * windows.from[1] + line as usize;
            let first = line * windows.from[2] + (column + inside.start as i64) as usize;
            let from = windows.at + b * windows.image + first * windows.pitch + channel;
            to[..inside.start * self.q].fill(0.0);
            to[inside.end * self.q..].fill(0.0);
            let to = &mut to[inside.start * self.q..inside.end * self.q];
            copy(&x[from..], windows.pitch, to, self.q);
        }
    }

    /// Where the windows of line `line` of a part read in its frame: a piece for each line of a window, or for each tap if these are apart.
    pub fn pieces<'p>(
        &self,
        windows: &Windows,
        part: &Part,
        line: usize,
        frame: &[f32],
        pieces: &'p mut [Piece],
    ) -> (&'p mut [Piece], usize) {
        let (high, wide) = (extent(windows, 1, part.lines), extent(windows, 2, part.columns));
        let [planes, lines, taps] = windows.size;
        let join = if windows.dilation[2] == 1 { taps } else { 1 };
        let each = taps / join;
        let pieces = &mut pieces[..planes * lines * each];
        for (i, piece) in pieces.iter_mut().enumerate() {
            let (p, i, j) = (i / each / lines, i / each % lines, i % each);
            let line = p * high + line * windows.stride[1] + i * windows.dilation[1];
            let at = line * wide + j * join * windows.dilation[2];
            let first = frame[at * self.q..].as_ptr();
            *piece = Piece { first, step: windows.stride[2] * self.q };
        }
        (pieces, join * self.q)
    }
}

/// Positions along an axis that so many neighbouring windows read.
fn extent(windows: &Windows, axis: usize, windows_of: usize) -> usize {
    let (size, dilation) = (windows.size[axis], windows.dilation[axis]);
    windows_of.saturating_sub(1) * windows.stride[axis] + (size - 1) * dilation + 1
}

/// Positions of a frame.
fn positions(windows: &Windows, lines: usize, columns: usize) -> usize {
    windows.size[0] * extent(windows, 1, lines) * extent(windows, 2, columns)
}

/// Copies `each` elements, every `pitch` elements.
fn copy(from: &[f32], pitch: usize, to: &mut [f32], each: usize) {
    /// Elements whose copy is a few instructions.
    const SHORT: usize = 8;
    for (i, to) in to.chunks_exact_mut(each).enumerate() {
        let from = &from[i * pitch..][..each];
        if !each.is_multiple_of(SHORT) {
            to.copy_from_slice(from);
            continue;
        }
        for (from, to) in from.chunks_exact(SHORT).zip(to.chunks_exact_mut(SHORT)) {
            let from: &[f32; SHORT] = from.try_into().expect("as many elements");
            to.copy_from_slice(from);
        }
    }
}
