//! The addresses that windows of an image with channels last read.

use crate::conv::window::Window;
use crate::gemm::Matrix;
use crate::runtime::kernel::KernelSpec;
use mlc_dsl::layout::Layout;
use mlc_vector::tile::{Piece, WindowLine, has_row};
use std::ops::Range;

/// The windows of a batch of images of up to three spatial axes: planes, lines and columns. Results are numbered line by line, plane by plane, image by image.
pub struct Windows {
    /// Images.
    pub batch: usize,
    /// Elements from one position of an image to the next, and from one image to the next.
    pub(super) pitch: usize,
    pub(super) image: usize,
    /// Of the first element.
    pub(super) at: usize,
    pub(super) from: [usize; 3],
    pub(super) to: [usize; 3],
    pub(super) size: [usize; 3],
    pub(super) stride: [usize; 3],
    pub(super) dilation: [usize; 3],
    pub(super) low: [i64; 3],
    /// Where each tap reads, from the first.
    offsets: Vec<usize>,
}

impl Windows {
    /// The windows over `x` that yield `out` positions; none if channels are no neighbours or there are more than three spatial axes.
    pub fn new(x: &Layout, out: &[usize], window: &Window) -> Option<Windows> {
        fn three<T: Copy>(v: &[T], unit: T) -> Option<[T; 3]> {
            match *v {
                [a] => Some([unit, unit, a]),
                [a, b] => Some([unit, a, b]),
                [a, b, c] => Some([a, b, c]),
                _ => None,
            }
        }
        let rank = x.rank();
        let (mut from, mut to) = (three(&window.from, 1)?, three(&window.to, 1)?);
        // Positions of one image are evenly spaced, so that strides of single positions do not matter.
        let pitch = usize::try_from(x.strides[rank - 2]).ok()?;
        let apart = [from[1] * from[2], from[2]].map(|n| n * pitch);
        let outer = x.strides[1..rank - 2].iter().zip(&x.shape[1..]).rev();
        let is_even = outer
            .zip(apart.iter().rev())
            .all(|((&s, &n), &step)| n == 1 || usize::try_from(s) == Ok(step));
        let image = usize::try_from(x.strides[0]).ok()?;
        let neighbours = x.strides[rank - 1] == 1 || x.shape[rank - 1] == 1;
        let (mut size, mut stride) = (three(&window.size, 1)?, three(&window.stride, 1)?);
        let (mut low, mut dilation) = (three(&window.low, 0)?, three(&window.dilation, 1)?);
        // Lines are along the last axis that there is more of than one position: signals often come as images of one column.
        for _ in 0..2 {
            if [from[2], to[2], size[2]] == [1; 3] && low[2] == 0 {
                for axes in [&mut from, &mut to, &mut size, &mut stride, &mut dilation] {
                    *axes = [1, axes[0], axes[1]];
                }
                low = [0, low[0], low[1]];
            }
        }
        let steps = [from[1] * from[2], from[2]].map(|n| n * pitch);
        let tap = |t: usize| {
            let (p, i, j) = (t / size[2] / size[1], t / size[2] % size[1], t % size[2]);
            let line = p * dilation[0] * from[1] + i * dilation[1];
            (line * from[2] + j * dilation[2]) * pitch
        };
        let offsets = (0..size.iter().product()).map(tap).collect();
        let (mut batch, at, mut image) = (out[0], x.offset, image);
        // Planes that do not see each other are images.
        let planes = from[0];
        let is_apart = size[0] == 1 && stride[0] == 1 && low[0] == 0 && planes == to[0];
        if is_apart && planes > 1 && (batch == 1 || image == planes * steps[0]) {
            (batch, image, from[0], to[0]) = (batch * planes, steps[0], 1, 1);
        }
        (is_even && neighbours).then_some(Windows {
            batch,
            pitch,
            image,
            at,
            from,
            to,
            size,
            stride,
            dilation,
            low,
            offsets,
        })
    }

    /// The windows of an application to `x` with `size`, and attributes stride, low and dilation at these places.
    pub fn of(spec: &KernelSpec<'_>, size: &[usize], attributes: [usize; 3]) -> Option<Windows> {
        Windows::over(&spec.args.first()?.layout, spec, size, attributes)
    }

    /// The same over another layout of that image.
    pub fn over(
        x: &Layout,
        spec: &KernelSpec<'_>,
        size: &[usize],
        [stride, low, dilation]: [usize; 3],
    ) -> Option<Windows> {
        let out = &spec.outputs[0].1;
        let spatial = |shape: &[usize]| shape[1..shape.len() - 1].to_vec();
        let (stride, low) = (spec.sizes(stride)?, spec.ints(low)?);
        if !(3..=5).contains(&out.len()) || stride.contains(&0) || size.contains(&0) {
            return None;
        }
        let dilation = spec.sizes(dilation)?;
        let window = Window::new(&spatial(&x.shape), size, &spatial(out), stride, low, dilation)?;
        Windows::new(x, out, &window)
    }

    /// Results of all images.
    pub fn len(&self) -> usize {
        self.planes() * self.to[1] * self.to[2]
    }

    /// Results of a line.
    pub fn wide(&self) -> usize {
        self.to[2]
    }

    /// Taps of a window.
    pub fn taps(&self) -> usize {
        self.size.iter().product()
    }

    /// Elements of `x` that the windows may read, if they read `channels` at each position.
    pub fn reach(&self, channels: usize) -> usize {
        let positions: usize = self.from.iter().product();
        match self.batch * positions * channels {
            0 => 0,
            _ => self.at + (self.batch - 1) * self.image + (positions - 1) * self.pitch + channels,
        }
    }

    /// Taps that read neighbouring elements, `channels` each, where all of them are inside: those of a line of the window, or one.
    pub fn joined(&self, channels: usize) -> usize {
        match self.dilation[2] == 1 && self.pitch == channels {
            true => self.size[2],
            false => 1,
        }
    }

    /// Image of a result, and its plane, line and column.
    pub(super) fn place(&self, result: usize) -> (usize, [usize; 3]) {
        let [deep, high, wide] = self.to;
        let (line, column) = (result / wide, result % wide);
        let (plane, line) = (line / high, line % high);
        (plane / deep, [plane % deep, line, column])
    }

    /// Where a window of the result in line `y`, column `c` begins along an axis.
    pub(super) fn begin(&self, axis: usize, at: usize) -> i64 {
        (at * self.stride[axis]) as i64 - self.low[axis]
    }

    /// True if all taps along an axis are inside for a window that begins there.
    fn is_inside(&self, axis: usize, begin: i64) -> bool {
        let last = begin + ((self.size[axis] - 1) * self.dilation[axis]) as i64;
        begin >= 0 && last < self.from[axis] as i64
    }

    /// True if all windows of the batch have one tap and lie at equal distances inside.
    pub fn is_straight(&self) -> bool {
        let positions: usize = self.from.iter().product();
        let one =
            self.taps() == 1 && self.from == self.to && self.stride == [1; 3] && self.low == [0; 3];
        one && (self.batch == 1 || self.image == positions * self.pitch)
    }

    /// Element of `x` at which the last position begins that the windows of results before `result` read; it is inside of `x` unless the image is empty.
    pub fn read_before(&self, result: usize) -> usize {
        let Some(last) = result.checked_sub(1) else { return self.at };
        let (b, at) = self.place(last);
        let last_of = |axis: usize| {
            let last =
                self.begin(axis, at[axis]) + ((self.size[axis] - 1) * self.dilation[axis]) as i64;
            last.min(self.from[axis] as i64 - 1).max(0) as usize
        };
        let position = (last_of(0) * self.from[1] + last_of(1)) * self.from[2] + last_of(2);
        self.at + b * self.image + position * self.pitch
    }

    /// The taps, one after the other in memory of weights, outside of which no window of results `first..first + rows` reads the image, but one at least: whole
    /// planes of taps, or lines if windows have one plane.
    pub fn taps_inside(&self, first: usize, rows: usize) -> Range<usize> {
        let (b, [z, y, _]) = self.place(first);
        let (end_b, [end_z, end_y, _]) = self.place(first + rows - 1);
        // Windows begin further on for later results: the last one has the first tap that is inside, the first one the last.
        let inside = |axis: usize, first: usize, last: usize| {
            let (n, step) = (self.from[axis] as i64, self.dilation[axis] as i64);
            let before =
                |at: i64| (at.max(0) as usize).div_ceil(step as usize).min(self.size[axis]);
            let from = before(-self.begin(axis, last)).min(self.size[axis] - 1);
            from..before(n - self.begin(axis, first)).max(from + 1)
        };
        let plane = self.size[1] * self.size[2];
        if b != end_b {
            return 0..self.taps();
        }
        let (unit, of) = match self.size[0] {
            1 if z == end_z => (self.size[2], inside(1, y, end_y)),
            _ => (plane, inside(0, z, end_z)),
        };
        of.start * unit..of.end * unit
    }

    /// Where the windows of results from `first` on read, which are [straight](Self::is_straight).
    pub fn straight(&self, x: &[f32], first: usize) -> Piece {
        Piece { first: x[self.at + first * self.pitch..].as_ptr(), step: self.pitch }
    }

    /// All windows as the rows of a matrix, if they are [straight](Self::is_straight).
    pub fn matrix<'x>(&self, x: &'x [f32]) -> Matrix<'x> {
        Matrix { data: x, offset: self.at, row: self.pitch as isize, col: 1 }
    }

    /// The pieces that windows of results `first..first + rows` read, if these are neighbours in a row and inside the left and right border.
    /// Padding above and below reads `outside`. A piece is `join` taps.
    ///
    /// # Panics
    /// If `pieces` is shorter than the taps.
    pub fn strided_pieces<'p>(
        &self,
        x: &[f32],
        outside: &[f32],
        first: usize,
        rows: usize,
        join: usize,
        pieces: &'p mut [Piece],
    ) -> Option<&'p mut [Piece]> {
        let (b, [z, y, c]) = self.place(first);
        let (plane, line, column) = (self.begin(0, z), self.begin(1, y), self.begin(2, c));
        let last = self.begin(2, c + rows - 1);
        let neighbours = c + rows <= self.to[2];
        if !neighbours || !self.is_inside(2, column) || !self.is_inside(2, last) {
            return None;
        }
        let step = self.stride[2] * self.pitch;
        let image = self.at + b * self.image;
        let each = self.size[2] / join;
        let pieces = &mut pieces[..self.size[0] * self.size[1] * each];
        for (i, pieces) in pieces.chunks_exact_mut(each).enumerate() {
            let (p, i) = (i / self.size[1], i % self.size[1]);
            let plane = plane + (p * self.dilation[0]) as i64;
            let line = line + (i * self.dilation[1]) as i64;
            let inside = |axis: usize, at: i64| (0..self.from[axis] as i64).contains(&at);
            if !inside(0, plane) || !inside(1, line) {
                pieces.fill(Piece { first: outside.as_ptr(), step: 0 });
                continue;
            }
            let line = plane as usize * self.from[1] + line as usize;
            let from = image + (line * self.from[2] + column as usize) * self.pitch;
            for (j, piece) in pieces.iter_mut().enumerate() {
                let at = from + j * join * self.dilation[2] * self.pitch;
                *piece = Piece { first: x[at..].as_ptr(), step };
            }
        }
        Some(pieces)
    }

    /// Columns of results whose windows are inside between the left and the right border.
    pub fn inner(&self) -> Range<usize> {
        let first = (0..self.to[2]).find(|&c| self.begin(2, c) >= 0).unwrap_or(self.to[2]);
        let inside = (first..self.to[2]).take_while(|&c| self.is_inside(2, self.begin(2, c)));
        first..first + inside.count()
    }

    /// Lines of results of a plane.
    pub fn high(&self) -> usize {
        self.to[1]
    }

    /// Planes of results of all images.
    pub fn planes(&self) -> usize {
        self.batch * self.to[0]
    }

    /// Elements of an image that the windows of so many lines of results of a plane read, all channels of them.
    pub fn covered(&self, lines: usize) -> usize {
        let high = (lines - 1) * self.stride[1] + (self.size[1] - 1) * self.dilation[1] + 1;
        self.size[0] * high.min(self.from[1]) * self.from[2] * self.pitch
    }

    /// True if [`rows`](Self::rows) are of neighbouring taps, and have columns between windows; otherwise of one tap, each column one window.
    /// Windows are over groups of so many channels, here and below.
    fn has_neighbours(&self, group: usize) -> bool {
        self.dilation[2] == 1 && has_row(self.size[2], self.stride[2], group)
    }

    /// Taps of a line of [`rows`](Self::rows), and columns from one window to the next.
    pub fn neighbours(&self, group: usize) -> (usize, usize) {
        if self.has_neighbours(group) { (self.size[2], self.stride[2]) } else { (1, 1) }
    }

    /// Positions from one column of [`rows`](Self::rows) to the next.
    fn between(&self, group: usize) -> usize {
        if self.has_neighbours(group) { 1 } else { self.stride[2] }
    }

    /// Elements from one column of [`rows`](Self::rows) to the next.
    pub fn step(&self, group: usize) -> usize {
        self.between(group) * self.pitch
    }

    /// Lines that a window of [`rows`](Self::rows) reads.
    pub fn lines(&self, group: usize) -> usize {
        self.taps() / self.neighbours(group).0
    }

    /// What the windows of lines of results from line `first` of all images on read: the lines of each, of neighbouring taps or of one tap.
    pub fn rows(&self, x: &[f32], first: usize, group: usize, rows: &mut [WindowLine]) {
        let ((taps, _), step) = (self.neighbours(group), self.between(group));
        for (row, lines) in rows.chunks_exact_mut(self.lines(group)).enumerate() {
            let (image, [z, y, _]) = self.place((first + row) * self.to[2]);
            let [plane, top, left] = [self.begin(0, z), self.begin(1, y), self.begin(2, 0)];
            for (i, line) in lines.iter_mut().enumerate() {
                let (i, j) = (i * taps / self.size[2], i * taps % self.size[2]);
                let plane = plane + (i / self.size[1] * self.dilation[0]) as i64;
                let top = top + (i % self.size[1] * self.dilation[1]) as i64;
                let left = left + (j * self.dilation[2]) as i64;
                let is_in = |axis: usize, at: i64| (0..self.from[axis] as i64).contains(&at);
                // Columns inside, counted from `left`, every `step`th.
                let bound = |at: i64| at.max(0) as usize;
                let (from, to) = (bound(-left), bound(self.from[2] as i64 - left));
                let (from, to) = (from.div_ceil(step), to.div_ceil(step));
                let wide = match is_in(0, plane) && is_in(1, top) {
                    true => to.saturating_sub(from),
                    false => 0,
                };
                let at = (plane * self.from[1] as i64 + top) * self.from[2] as i64 + left;
                let image = x.as_ptr().wrapping_add(self.at + image * self.image);
                let first = image.wrapping_offset(at as isize * self.pitch as isize);
                *line = WindowLine { first, from, wide };
            }
        }
    }

    /// Windows of `each + 2` lines and columns at every `each`th of these, for so many results along both axes of windows of 3 × 3 neighbours in
    /// each of some planes; none of others.
    pub fn tiles(&self, each: usize) -> Option<Windows> {
        let ([_, strides @ ..], [step, dilations @ ..]) = (self.stride, self.dilation);
        let neighbours = strides == [1; 2] && dilations == [1; 2];
        if self.size[1..] != [3; 2] || !neighbours || self.len() == 0 {
            return None;
        }
        let extent = each + 2;
        let tap = |t: usize| {
            let (plane, i, j) = (t / extent / extent, t / extent % extent, t % extent);
            ((plane * step * self.from[1] + i) * self.from[2] + j) * self.pitch
        };
        Some(Windows {
            to: [self.to[0], self.to[1].div_ceil(each), self.to[2].div_ceil(each)],
            size: [self.size[0], extent, extent],
            stride: [self.stride[0], each, each],
            offsets: (0..self.size[0] * extent * extent).map(tap).collect(),
            ..*self
        })
    }

    /// The part of the planes of all windows that is inside of the image.
    pub fn depth_inside(&self) -> f64 {
        let plane = |z: usize, p: usize| self.begin(0, z) + (p * self.dilation[0]) as i64;
        let all = (0..self.to[0]).flat_map(|z| (0..self.size[0]).map(move |p| plane(z, p)));
        let inside = all.filter(|plane| (0..self.from[0] as i64).contains(plane)).count();
        inside as f64 / (self.to[0] * self.size[0]) as f64
    }

    /// The results of each line of one of their [tiles](Self::tiles), fewer or none beyond the edges.
    pub fn results_of(&self, tiles: &Windows, tile: usize) -> impl Iterator<Item = Range<usize>> {
        let ([deep, high, wide], [_, each, _]) = (self.to, tiles.stride);
        let (b, [z, y, c]) = tiles.place(tile);
        let (y, c) = (each * y, each * c);
        (y..y + each).map(move |y| {
            let first = ((b * deep + z) * high + y) * wide + c;
            first..first + if y < high { each.min(wide - c) } else { 0 }
        })
    }

    /// Pointers of the windows of results `first..first + rows`, piece by piece. A piece is `join` taps where possible, else one; returns
    /// which. Padding reads `outside`.
    ///
    /// # Panics
    /// If `pointers` is shorter than rows and taps.
    pub fn pointers<T>(
        &self,
        x: &[T],
        outside: &[T],
        first: usize,
        rows: usize,
        join: usize,
        pointers: &mut [*const T],
    ) -> usize {
        let taps = self.taps();
        let pointers = &mut pointers[..taps * rows];
        let (mut b, [mut z, mut y, mut c]) = self.place(first);
        let (end_b, [end_z, end_y, _]) = self.place(first + rows - 1);
        let begin = |c: usize| self.is_inside(2, self.begin(2, c));
        let (leftmost, rightmost) = match (b, z, y) == (end_b, end_z, end_y) {
            true => (c, c + rows - 1),
            false => (0, self.to[2] - 1),
        };
        let join = if join > 1 && begin(leftmost) && begin(rightmost) { join } else { 1 };
        for r in 0..rows {
            let begin = [self.begin(0, z), self.begin(1, y), self.begin(2, c)];
            let image = x.as_ptr().wrapping_add(self.at + b * self.image);
            let line = begin[0] * self.from[1] as i64 + begin[1];
            let at = line * self.from[2] as i64 + begin[2];
            // Only added to where the tap is inside.
            let first = image.wrapping_offset(at as isize * self.pitch as isize);
            if (0..3).all(|axis| self.is_inside(axis, begin[axis])) {
                for (piece, &tap) in self.offsets.iter().step_by(join).enumerate() {
                    pointers[piece * rows + r] = first.wrapping_add(tap);
                }
            } else {
                let inside = |axis: usize, tap: usize| {
                    let at = begin[axis] + (tap * self.dilation[axis]) as i64;
                    (0..self.from[axis] as i64).contains(&at)
                };
                let mut at = r;
                for i in 0..self.size[0] * self.size[1] {
                    let line = inside(0, i / self.size[1]) && inside(1, i % self.size[1]);
                    for j in (0..self.size[2]).step_by(join) {
                        let tap = self.offsets[i * self.size[2] + j];
                        pointers[at] = match line && inside(2, j) {
                            true => first.wrapping_add(tap),
                            false => outside.as_ptr(),
                        };
                        at += rows;
                    }
                }
            }
            c += 1;
            if c == self.to[2] {
                (c, y) = (0, y + 1);
                if y == self.to[1] {
                    (y, z) = (0, z + 1);
                    if z == self.to[0] {
                        (z, b) = (0, b + 1);
                    }
                }
            }
        }
        join
    }
}
