//! The image of an int8 convolution, channels last: read in place, or as a copy with padded channels and flipped signs.

use super::super::conv::naive::{ConvExtents, naive_sums};
use super::super::{SignShift, sign_shift};
use crate::channels_last::Windows;
use crate::conv::window::Window;
use crate::runtime::kernel::KernelSpec;
use mlc_dsl::layout::Layout;
use mlc_vector::simd;

/// The image of a convolution, and its windows.
pub struct Int8Image {
    pub windows: Windows,
    /// Where its elements begin.
    pub at: usize,
    /// Positions of all images.
    positions: usize,
    /// Channels, and those of the copy that is read, if one is.
    channels: usize,
    copied: Option<usize>,
    /// The sign shift.
    pub shift: SignShift,
    /// The window over the spatial axes, where the outside is no byte.
    window: Window,
}

impl Int8Image {
    /// The first argument of a convolution with filters of these extents. Channels are read in multiples of `together`.
    pub fn new(spec: &KernelSpec<'_>, filters: &[usize], together: usize) -> Option<Int8Image> {
        let x = spec.args.first()?;
        let shift = sign_shift(x.dtype, false)?;
        let (shape, channels) = (&x.layout.shape, *x.layout.shape.last()?);
        let wide = channels.next_multiple_of(together);
        if !x.layout.is_dense() {
            return None;
        }
        let copied = (wide != channels || shift.flip != 0).then_some(wide);
        let mut read = shape.clone();
        *read.last_mut()? = wide;
        let offset = if copied.is_some() { 0 } else { x.layout.offset };
        let layout = Layout { offset, ..Layout::dense(&read) };
        let windows = Windows::over(&layout, spec, &filters[2..], [0, 1, 3])?;
        let out = &spec.outputs[0].1;
        let spatial = |shape: &[usize]| shape[1..shape.len() - 1].to_vec();
        let (stride, low, dilation) = (spec.sizes(0)?, spec.ints(1)?, spec.sizes(3)?);
        let window =
            Window::new(&spatial(shape), &filters[2..], &spatial(out), stride, low, dilation)?;
        let positions = shape[..shape.len() - 1].iter().product();
        let at = x.layout.offset;
        Some(Int8Image { windows, at, positions, channels, copied, shift, window })
    }

    /// Channels of a position as they are read.
    pub fn wide(&self) -> usize {
        self.copied.unwrap_or(self.channels)
    }

    /// Bytes of the copy.
    pub fn scratch(&self) -> usize {
        self.copied.map_or(0, |wide| self.positions * wide)
    }

    /// The padding that windows read: the zero point, and zeros beyond the channels.
    pub fn outside(&self, p: i32, taps: usize) -> Vec<u8> {
        let mut line = vec![p as u8; self.channels];
        line.resize(self.wide(), 0);
        line.repeat(taps)
    }

    /// The image as it is read. `copy` has the length of the scratch memory.
    pub fn read<'a>(&self, bytes: &'a [u8], copy: &'a mut [u8]) -> &'a [u8] {
        let Some(wide) = self.copied else {
            assert!(self.windows.reach(self.channels) <= bytes.len(), "windows inside the image");
            return bytes;
        };
        let from = &bytes[self.at..][..self.positions * self.channels];
        let copy = &mut copy[..self.positions * wide];
        match (self.channels, wide) {
            (3, 4) => threes(from, self.shift.flip, copy),
            (c, _) if c == wide => flipped(from, self.shift.flip, copy),
            (c, _) => {
                for (to, from) in copy.chunks_exact_mut(wide).zip(from.chunks_exact(c.max(1))) {
                    to[c..].fill(0);
                    flipped(from, self.shift.flip, to);
                }
            }
        }
        copy
    }

    /// All sums by the naive convolution, where padding is no byte.
    pub fn plain(
        &self,
        bytes: &[u8],
        p: i32,
        extents: ConvExtents,
        weights: impl Fn(usize) -> i32,
    ) -> Vec<i32> {
        let (inputs, outputs) = (self.window.inputs(), self.window.outputs());
        let image = |i: usize| {
            let (place, plane) = (i % inputs, i / inputs);
            let (b, c) = (plane / self.channels, plane % self.channels);
            let at = (b * inputs + place) * self.channels + c;
            ((bytes[self.at + at] ^ self.shift.flip) as i32).wrapping_sub(p)
        };
        let all = naive_sums(&self.window, extents, image, weights);
        let n = extents.group * extents.o;
        let from = |i: usize| {
            let (row, c) = (i / n, i % n);
            all[(row / outputs * n + c) * outputs + row % outputs]
        };
        (0..all.len()).map(from).collect()
    }
}

simd! {
    fn flipped(from: &[u8], flip: u8, to: &mut [u8]) {
        to.iter_mut().zip(from).for_each(|(t, &b)| *t = b ^ flip);
    }
}

simd! {
    /// Three channels as four, the last of which is zero.
    fn threes(from: &[u8], flip: u8, to: &mut [u8]) {
        for (to, from) in to.as_chunks_mut::<4>().0.iter_mut().zip(from.as_chunks::<3>().0) {
            *to = [from[0] ^ flip, from[1] ^ flip, from[2] ^ flip, 0];
        }
    }
}
