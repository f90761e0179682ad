//! Where the windows of an image with its channels last read.

use crate::cpu::gemm::kernel::Piece;
use crate::cpu::launch::LaunchSite;
use crate::cpu::layout::Layout;
use crate::cpu::window::Window;
use std::ops::Range;

/// The windows of a batch of images, one or two spatial axes. Results are numbered row by row, image by image.
pub struct Windows {
    /// Images.
    pub batch: usize,
    /// Elements from one position of an image to the next, and from one image to the next.
    pitch: usize,
    image: usize,
    /// Of the first element.
    at: usize,
    from: [usize; 2],
    to: [usize; 2],
    size: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    low: [i64; 2],
    /// Where each tap reads, from the first.
    offsets: Vec<usize>,
}

impl Windows {
    /// The windows over `x` that yield `out` positions; none if channels are no neighbours or there are more than two spatial axes.
    pub fn new(x: &Layout, out: &[usize], window: &Window) -> Option<Windows> {
        let two = |v: &[usize], unit: usize| match *v {
            [a] => Some([unit, a]),
            [a, b] => Some([a, b]),
            _ => None,
        };
        let low = match *window.low.as_slice() {
            [a] => [0, a],
            [a, b] => [a, b],
            _ => return None,
        };
        let rank = x.rank();
        let (from, to) = (two(&window.from, 1)?, two(&window.to, 1)?);
        // Positions of one image are evenly spaced, so that strides of single positions do not matter.
        let pitch = usize::try_from(x.strides[rank - 2]).ok()?;
        let row = usize::try_from(x.strides[rank - 3]).ok()?;
        let image = usize::try_from(x.strides[0]).ok()?;
        let is_even = rank == 3 || row == pitch * from[1] || from[0] == 1;
        let neighbours = x.strides[rank - 1] == 1 || x.shape[rank - 1] == 1;
        let (size, stride) = (two(&window.size, 1)?, two(&window.stride, 1)?);
        let dilation = two(&window.dilation, 1)?;
        let tap = |t: usize| {
            let (i, j) = (t / size[1] * dilation[0], t % size[1] * dilation[1]);
            (i * from[1] + j) * pitch
        };
        let offsets = (0..size[0] * size[1]).map(tap).collect();
        let (batch, at) = (out[0], x.offset);
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
    pub fn of(site: &LaunchSite<'_>, size: &[usize], attributes: [usize; 3]) -> Option<Windows> {
        Windows::over(&site.args.first()?.layout, site, size, attributes)
    }

    /// The same over another layout of that image.
    pub fn over(
        x: &Layout,
        site: &LaunchSite<'_>,
        size: &[usize],
        [stride, low, dilation]: [usize; 3],
    ) -> Option<Windows> {
        let out = &site.outputs[0].1;
        let spatial = |shape: &[usize]| shape[1..shape.len() - 1].to_vec();
        let (stride, low) = (site.sizes(stride)?, site.ints(low)?);
        if !(3..=4).contains(&out.len()) || stride.contains(&0) || size.contains(&0) {
            return None;
        }
        let dilation = site.sizes(dilation)?;
        let window = Window::new(&spatial(&x.shape), size, &spatial(out), stride, low, dilation)?;
        Windows::new(x, out, &window)
    }

    /// Results of all images.
    pub fn len(&self) -> usize {
        self.batch * self.to[0] * self.to[1]
    }

    /// Lines of results of all images.
    pub fn lines(&self) -> usize {
        self.batch * self.to[0]
    }

    /// Results of a line.
    pub fn wide(&self) -> usize {
        self.to[1]
    }

    /// Taps of a window.
    pub fn taps(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// Elements of `x` that the windows may read, if they read `channels` at each position.
    pub fn reach(&self, channels: usize) -> usize {
        let positions = self.from[0] * self.from[1];
        match self.batch * positions * channels {
            0 => 0,
            _ => self.at + (self.batch - 1) * self.image + (positions - 1) * self.pitch + channels,
        }
    }

    /// Taps that read neighbouring elements, `channels` each, where all of them are inside: those of a line of the window, or one.
    pub fn joined(&self, channels: usize) -> usize {
        match self.dilation[1] == 1 && self.pitch == channels {
            true => self.size[1],
            false => 1,
        }
    }

    /// Image, line and column of a result.
    fn place(&self, result: usize) -> (usize, usize, usize) {
        let [high, wide] = self.to;
        (result / (high * wide), result / wide % high, result % wide)
    }

    /// Where a window of the result in line `y`, column `c` begins along an axis.
    fn begin(&self, axis: usize, at: usize) -> i64 {
        (at * self.stride[axis]) as i64 - self.low[axis]
    }

    /// True if all taps along an axis are inside for a window that begins there.
    fn is_inside(&self, axis: usize, begin: i64) -> bool {
        let last = begin + ((self.size[axis] - 1) * self.dilation[axis]) as i64;
        begin >= 0 && last < self.from[axis] as i64
    }

    /// True if all windows of the batch have one tap and lie at equal distances inside.
    pub fn is_straight(&self) -> bool {
        let positions = self.from[0] * self.from[1];
        let one =
            self.taps() == 1 && self.from == self.to && self.stride == [1, 1] && self.low == [0, 0];
        one && (self.batch == 1 || self.image == positions * self.pitch)
    }

    /// Where the windows of results from `first` on read, which are [straight](Self::is_straight).
    pub fn straight(&self, x: &[f32], first: usize) -> Piece {
        Piece { first: x[self.at + first * self.pitch..].as_ptr(), step: self.pitch }
    }

    /// Where the windows of results `first..first + rows` read, if they are neighbours in a line and inside between left and right border.
    /// What lies above or below the image reads `outside`. A piece is `join` taps.
    ///
    /// # Panics
    /// If `pieces` is shorter than the taps.
    pub fn even<'p>(
        &self,
        x: &[f32],
        outside: &[f32],
        (first, rows): (usize, usize),
        join: usize,
        pieces: &'p mut [Piece],
    ) -> Option<&'p mut [Piece]> {
        let (b, y, c) = self.place(first);
        let (line, column) = (self.begin(0, y), self.begin(1, c));
        let last = self.begin(1, c + rows - 1);
        let neighbours = c + rows <= self.to[1];
        if !neighbours || !self.is_inside(1, column) || !self.is_inside(1, last) {
            return None;
        }
        let step = self.stride[1] * self.pitch;
        let image = self.at + b * self.image;
        let each = self.size[1] / join;
        let pieces = &mut pieces[..self.size[0] * each];
        for (i, pieces) in pieces.chunks_exact_mut(each).enumerate() {
            let line = line + (i * self.dilation[0]) as i64;
            if !(0..self.from[0] as i64).contains(&line) {
                pieces.fill(Piece { first: outside.as_ptr(), step: 0 });
                continue;
            }
            let from = image + (line as usize * self.from[1] + column as usize) * self.pitch;
            for (j, piece) in pieces.iter_mut().enumerate() {
                let at = from + j * join * self.dilation[1] * self.pitch;
                *piece = Piece { first: x[at..].as_ptr(), step };
            }
        }
        Some(pieces)
    }

    /// The columns of results whose windows lie inside between left and right border.
    pub fn inner_columns(&self) -> Range<usize> {
        let is_inside = |c: &usize| self.is_inside(1, self.begin(1, *c));
        let first = (0..self.to[1]).find(is_inside).unwrap_or(self.to[1]);
        let count = (first..self.to[1]).take_while(is_inside).count();
        first..first + count
    }

    /// Windows of 4 × 4 at every other line and column, for the results of these if they are of 3 × 3 neighbours.
    pub fn tiles_of_four(&self) -> Option<Windows> {
        if self.size != [3, 3]
            || self.stride != [1, 1]
            || self.dilation != [1, 1]
            || self.len() == 0
        {
            return None;
        }
        let tap = |t: usize| (t / 4 * self.from[1] + t % 4) * self.pitch;
        Some(Windows {
            to: self.to.map(|n| n.div_ceil(2)),
            size: [4, 4],
            stride: [2, 2],
            offsets: (0..16).map(tap).collect(),
            ..*self
        })
    }

    /// The 2 × 2 results of one of their [tiles](Self::tiles_of_four); none beyond the edges.
    pub fn results_of(&self, tiles: &Windows, tile: usize) -> [Option<usize>; 4] {
        let (b, y, c) = tiles.place(tile);
        std::array::from_fn(|i| {
            let (y, c) = (2 * y + i / 2, 2 * c + i % 2);
            let inside = y < self.to[0] && c < self.to[1];
            inside.then(|| (b * self.to[0] + y) * self.to[1] + c)
        })
    }

    /// Where the windows of results `first..first + rows` read: for every piece of a window the pointers of all results. A piece is
    /// `join` taps if that is possible, else one; returns which. What lies outside the image reads `outside`.
    ///
    /// # Panics
    /// If `pointers` is shorter than rows and taps.
    pub fn point<T>(
        &self,
        x: &[T],
        outside: &[T],
        (first, rows): (usize, usize),
        join: usize,
        pointers: &mut [*const T],
    ) -> usize {
        let taps = self.taps();
        let pointers = &mut pointers[..taps * rows];
        let (mut b, mut y, mut c) = self.place(first);
        let (end_b, end_y, _) = self.place(first + rows - 1);
        let begin = |c: usize| self.is_inside(1, self.begin(1, c));
        let (leftmost, rightmost) = match (b, y) == (end_b, end_y) {
            true => (c, c + rows - 1),
            false => (0, self.to[1] - 1),
        };
        let join = if join > 1 && begin(leftmost) && begin(rightmost) { join } else { 1 };
        for r in 0..rows {
            let (line, column) = (self.begin(0, y), self.begin(1, c));
            let image = x.as_ptr().wrapping_add(self.at + b * self.image);
            let at = line * self.from[1] as i64 + column;
            // Only added to where the tap is inside.
            let first = image.wrapping_offset(at as isize * self.pitch as isize);
            if self.is_inside(0, line) && self.is_inside(1, column) {
                for (piece, &tap) in self.offsets.iter().step_by(join).enumerate() {
                    pointers[piece * rows + r] = first.wrapping_add(tap);
                }
            } else {
                let mut at = r;
                for i in 0..self.size[0] {
                    let line = line + (i * self.dilation[0]) as i64;
                    let line_inside = (0..self.from[0] as i64).contains(&line);
                    for j in (0..self.size[1]).step_by(join) {
                        let column = column + (j * self.dilation[1]) as i64;
                        let inside = line_inside && (0..self.from[1] as i64).contains(&column);
                        let tap = self.offsets[i * self.size[1] + j];
                        pointers[at] =
                            if inside { first.wrapping_add(tap) } else { outside.as_ptr() };
                        at += rows;
                    }
                }
            }
            c += 1;
            if c == self.to[1] {
                (c, y) = (0, y + 1);
                if y == self.to[0] {
                    (y, b) = (0, b + 1);
                }
            }
        }
        join
    }
}
