//! Convolution of every channel by itself, channels last: what the windows of a band of lines read is copied, a panel of channels at a time,
//! into a frame with zeros around the image, so that all windows of a line lie at equal distances. A sum over windows is one whose filters
//! are ones.

use super::conv::as_pieces;
use super::windows::Windows;
use crate::cpu::buffer::with_scratch;
use crate::cpu::gemm::kernel::{self, Even, Piece, Target, column_rows, shape};
use crate::cpu::gemm::{Finish, PackedRight};
use crate::cpu::launch::{Array, Context, Launch};
use crate::cpu::packed_constants::Pack;
use crate::cpu::threads::SharedSlice;
use std::sync::Arc;

/// The filters of all channels.
pub enum Filters {
    /// Constants, packed.
    Packed(Arc<Pack<PackedRight>>),
    /// Ones.
    Ones(PackedRight),
    /// What the second input has from this element on.
    Given(usize),
}

/// Windows over every channel with known shapes.
pub struct Depthwise {
    windows: Windows,
    channels: usize,
    filters: Filters,
}

impl Depthwise {
    pub fn new(windows: Windows, channels: usize, filters: Filters) -> Depthwise {
        Depthwise { windows, channels, filters }
    }

    /// Sums of windows.
    pub fn sums(windows: Windows, channels: usize) -> Depthwise {
        let taps = windows.taps();
        let ones = PackedRight::of_filters(&vec![1.0; channels * taps], (channels, 1, taps));
        Depthwise::new(windows, channels, Filters::Ones(ones))
    }

    /// Computes a band of lines of a plane for a panel of channels, from a frame of what their windows read.
    fn block(&self, job: &Job<'_>, first: usize, lines: usize, column: usize) {
        let cols = shape().cols.min(self.channels - column);
        let frame = self.windows.frame(lines, shape().cols);
        let (taps, wide) = (self.windows.taps(), self.windows.wide());
        with_scratch::<f32, 1, _>([frame.len()], |[to]| {
            self.windows.copy(job.x, first, (column, cols), frame, to);
            with_scratch::<usize, 1, _>([2 * taps], |[pieces]| {
                let pieces = as_pieces(&mut pieces[..2 * taps]);
                let down = self.windows.pieces_of(frame, to, pieces);
                for line in 0..lines {
                    self.line(job, (first + line) * wide, (line * down, column), pieces);
                }
            });
        });
    }

    /// Computes the results of a line from `first` on; their windows lie `at` elements behind the pieces.
    fn line(&self, job: &Job<'_>, first: usize, (at, column): (usize, usize), pieces: &[Piece]) {
        let wide = self.windows.wide();
        let high = wide.div_ceil(wide.div_ceil(column_rows()));
        let (count, rest) = (wide / high, wide % high);
        let run = |done: usize, (count, rows): (usize, usize)| {
            let step = pieces[0].step;
            let a = Even { pieces, length: 1, column: at + done * step };
            self.target(job, first + done, column, |panel, target| {
                // SAFETY: all windows of the line are in the frame, with the columns of a tile; results do not overlap.
                unsafe { kernel::even_columns((count, rows), a, panel, target) }
            });
        };
        run(0, (count, high));
        if rest > 0 {
            run(count * high, (1, rest));
        }
    }

    /// Lines of a plane that are computed from one frame.
    fn band(&self) -> usize {
        let bytes = |lines: usize| self.windows.frame(lines, shape().cols).len() * size_of::<f32>();
        let fits = |lines: &usize| bytes(*lines) <= FRAME;
        let all = self.windows.high();
        let band = (1..=all).take_while(fits).count().max(1);
        // Bands of about the same height.
        all.div_ceil(all.div_ceil(band))
    }

    /// Calls `f` with the filters of the channels from `column` on, and where their results go.
    fn target(
        &self,
        job: &Job<'_>,
        row: usize,
        column: usize,
        f: impl FnOnce(&[f32], &Target<'_>),
    ) {
        let wide = shape().cols.min(self.channels - column);
        let parts = kernel::panel_parts(row * self.channels + column, column, wide);
        let vectors = if wide <= shape().lanes() { 1 } else { 2 };
        let target = Target {
            out: job.out.at(0),
            len: job.out.len(),
            parts: &parts[..vectors],
            stride: self.channels,
            row,
            add: false,
            chain: job.finish.chain(true),
        };
        f(job.filters.block(column, 0..self.windows.taps()), &target);
    }
}

/// Bytes of a frame that stays in a near cache.
const FRAME: usize = 64 << 10;

/// What all tasks of a run share.
struct Job<'a> {
    x: &'a [f32],
    filters: &'a PackedRight,
    out: &'a SharedSlice<'a, f32>,
    finish: &'a Finish<'a>,
}

impl Launch for Depthwise {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let x: &[f32] = inputs[0].typed();
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        assert!(self.windows.reach(self.channels) <= x.len(), "windows inside the image");
        let taps = self.windows.taps();
        let own;
        let filters: &PackedRight = match &self.filters {
            Filters::Packed(packed) => packed,
            Filters::Ones(ones) => ones,
            Filters::Given(at) => {
                let all: &[f32] = &inputs[1].typed()[*at..];
                own = PackedRight::of_filters(all, (self.channels, 1, taps));
                &own
            }
        };
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = Finish::of(cx, (self.windows.len(), self.channels), &block);
        let shared = SharedSlice::new(out);
        let job = Job { x, filters, out: &shared, finish: &finish };
        let (band, high) = (self.band(), self.windows.high());
        let (bands, panels) = (high.div_ceil(band), self.channels.div_ceil(shape().cols));
        let blocks = self.windows.planes() * bands * panels;
        let tasks = cx.threads.tasks(shared.len() * taps, GRAIN).min(blocks);
        cx.threads.each(tasks, |t| {
            for i in blocks * t / tasks..blocks * (t + 1) / tasks {
                let (plane, line) = (i / panels / bands, i / panels % bands * band);
                let lines = band.min(high - line);
                self.block(&job, plane * high + line, lines, i % panels * shape().cols);
            }
        });
        if let Finish::Block(f) = finish {
            // Whole rows: the epilogue is not bound to the channels of a block.
            cx.threads.chunks(out, self.channels, GRAIN, f);
        }
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}

/// Products that a task should at least have.
const GRAIN: usize = 1 << 18;
