//! Sliding windows: the position of each element of a window, for any number of spatial axes.

/// The geometry of a convolution or a pooling over the spatial axes.
#[derive(Clone, Debug)]
pub struct Window {
    /// Extents of the input.
    pub from: Vec<usize>,
    /// Extents of the window.
    pub size: Vec<usize>,
    /// Extents of the result.
    pub to: Vec<usize>,
    /// Steps of the window.
    pub stride: Vec<usize>,
    /// Elements before the input; may be negative.
    pub low: Vec<i64>,
    /// Steps inside the window.
    pub dilation: Vec<usize>,
}

impl Window {
    /// The window, if all lists have one entry per spatial axis.
    pub fn new(
        from: &[usize],
        size: &[usize],
        to: &[usize],
        mut stride: Vec<usize>,
        low: Vec<i64>,
        mut dilation: Vec<usize>,
    ) -> Option<Window> {
        let n = from.len();
        let lens = [size.len(), to.len(), stride.len(), low.len(), dilation.len()];
        if !lens.iter().all(|&l| l == n) {
            return None;
        }
        // A step that is never taken may be any.
        for i in 0..n {
            stride[i] = if to[i] <= 1 { 1 } else { stride[i] };
            dilation[i] = if size[i] <= 1 { 1 } else { dilation[i] };
        }
        let (from, size, to) = (from.to_vec(), size.to_vec(), to.to_vec());
        let window = Window { from, size, to, stride, low, dilation };
        window.is_within().then_some(window)
    }

    /// True if every position that a tap may read, be it far outside, is a number well within 64 bits, and the
    /// taps can be counted.
    fn is_within(&self) -> bool {
        const FAR: usize = 1 << 60;
        let steps = |n: usize, by: usize| n.saturating_sub(1).checked_mul(by);
        let reach = |i: usize| {
            let outer = steps(self.to[i], self.stride[i])?;
            let inner = steps(self.size[i], self.dilation[i])?;
            let low = usize::try_from(self.low[i].unsigned_abs()).ok()?;
            outer.checked_add(inner)?.checked_add(low)?.checked_add(self.from[i])
        };
        let near = |i: usize| reach(i).is_some_and(|r| r < FAR);
        let taps = self.size.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        (0..self.from.len()).all(near) && taps.is_some_and(|t| t < FAR)
    }

    /// The same without the taps at both ends that read nothing of the input, whatever the result element: what lies
    /// outside must not count, as in pooling.
    pub fn clipped(mut self) -> Window {
        for i in 0..self.from.len() {
            let (low, by) = (self.low[i], self.dilation[i] as i64);
            let last = (self.to[i].max(1) - 1) as i64 * self.stride[i] as i64;
            // Tap `t` of the first element reads `t * by - low`, of the last one `last` more.
            let first = (low - last).max(0).div_euclid(by.max(1));
            let end = (low + self.from[i] as i64 - 1).div_euclid(by.max(1)) + 1;
            let end = end.min(self.size[i] as i64);
            if by > 0 && first < end {
                self.size[i] = (end - first) as usize;
                self.low[i] = low - first * by;
            }
            // One tap has no neighbour: memory is not sized by how far away it would be.
            if self.size[i] == 1 {
                self.dilation[i] = 1;
            }
        }
        self
    }

    /// Elements of a window.
    pub fn taps(&self) -> usize {
        self.size.iter().product()
    }

    /// Elements of the input per channel.
    pub fn inputs(&self) -> usize {
        self.from.iter().product()
    }

    /// Elements of the result per channel.
    pub fn outputs(&self) -> usize {
        self.to.iter().product()
    }

    /// True if each result element reads the input element at its own place.
    pub fn is_identity(&self) -> bool {
        self.taps() == 1
            && self.from == self.to
            && self.stride.iter().all(|&s| s == 1)
            && self.low.iter().all(|&l| l == 0)
    }

    /// The index of element `flat` of a row-major `shape`.
    fn unravel(shape: &[usize], mut flat: usize, out: &mut [usize]) {
        for (o, &d) in out.iter_mut().zip(shape).rev() {
            *o = flat % d.max(1);
            flat /= d.max(1);
        }
    }

    /// Where the window at result index `to` reads with tap `tap` along axis `axis`, if inside.
    #[inline(always)]
    fn along(&self, axis: usize, to: usize, tap: usize) -> Option<usize> {
        let at = (to * self.stride[axis] + tap * self.dilation[axis]) as i64 - self.low[axis];
        (at >= 0 && at < self.from[axis] as i64).then_some(at as usize)
    }

    /// Calls `run(result index, length, input start)` for the runs of result elements that lie in one row of the result, in
    /// `first..first + len`, that tap `tap` reads; `input start` is `None` where the row lies outside the input, otherwise the
    /// (possibly negative) position of the first element, and the row's own range `low..high` of positions that are inside.
    #[inline(always)]
    pub fn rows(&self, tap: usize, first: usize, len: usize, mut run: impl FnMut(Row)) {
        let n = self.from.len();
        if n == 0 {
            if len > 0 {
                run(Row { at: 0, len: 1, start: Some(0), low: 0, high: 1 });
            }
            return;
        }
        let mut taps = [0usize; MAX_SPATIAL];
        let mut index = [0usize; MAX_SPATIAL];
        Self::unravel(&self.size, tap, &mut taps[..n]);
        Self::unravel(&self.to, first, &mut index[..n]);
        let (last, width) = (n - 1, self.from[n - 1] as i64);
        let (mut at, end) = (first, first + len);
        while at < end {
            let run_len = (end - at).min(self.to[last] - index[last]);
            let mut base = Some(0usize);
            for axis in 0..last {
                let inside = self.along(axis, index[axis], taps[axis]);
                base = base.and_then(|b| inside.map(|i| b * self.from[axis] + i));
            }
            let shift = (index[last] * self.stride[last] + taps[last] * self.dilation[last]) as i64
                - self.low[last];
            run(Row {
                at: at - first,
                len: run_len,
                start: base.map(|b| b as i64 * width + shift),
                low: base.map_or(0, |b| b as i64 * width),
                high: base.map_or(0, |b| (b as i64 + 1) * width),
            });
            at += run_len;
            index[last] = 0;
            for axis in (0..last).rev() {
                index[axis] += 1;
                if index[axis] < self.to[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
    }
}

/// Most spatial axes.
pub const MAX_SPATIAL: usize = 6;

/// A run of result elements in one row: element `at + i` reads position `start + i * stride` if that is in `low..high`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// First element, from the start asked for.
    pub at: usize,
    /// Elements.
    pub len: usize,
    /// Position of the first, if the row is inside the input.
    pub start: Option<i64>,
    /// First position of the input row.
    pub low: i64,
    /// One past its last.
    pub high: i64,
}

impl Row {
    /// The part of the run whose positions are inside, as indices of the run, and the position of its first element.
    #[inline(always)]
    pub fn inside(&self, stride: usize) -> (usize, usize, usize) {
        let Some(start) = self.start else { return (0, 0, 0) };
        let s = stride as i64;
        let skip = if start < self.low { (self.low - start + s - 1) / s } else { 0 };
        let reach = if self.high > start { (self.high - start + s - 1) / s } else { 0 };
        let (from, to) = (skip.min(self.len as i64), reach.clamp(0, self.len as i64));
        if from >= to {
            return (0, 0, 0);
        }
        (from as usize, to as usize, (start + from * s) as usize)
    }
}

/// Bytes of an f32 array of these extents; saturates.
pub fn bytes_of(extents: &[usize]) -> u64 {
    extents.iter().fold(4, |n, &d| n.saturating_mul(d as u64))
}
