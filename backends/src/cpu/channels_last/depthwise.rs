//! Convolution of every channel by itself, channels last: tiles of positions by channels. A sum over windows is one whose filters are ones.

use super::conv::{as_pieces, as_pointers};
use super::windows::Windows;
use crate::cpu::buffer::with_scratch;
use crate::cpu::gemm::kernel::{self, COLUMN_ROWS, Columns, Even, Piece, Target, shape};
use crate::cpu::gemm::{Finish, PackedRight};
use crate::cpu::launch::{Array, Context, Launch};
use crate::cpu::packed_constants::Pack;
use crate::cpu::threads::SharedSlice;
use std::ops::Range;
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
    /// What windows read outside of the image.
    zeros: Vec<f32>,
}

impl Depthwise {
    pub fn new(windows: Windows, channels: usize, filters: Filters) -> Depthwise {
        Depthwise { windows, channels, filters, zeros: vec![0.0; channels] }
    }

    /// Sums of windows.
    pub fn sums(windows: Windows, channels: usize) -> Depthwise {
        let taps = windows.taps();
        let ones = PackedRight::of_filters(&vec![1.0; channels * taps], (channels, 1, taps));
        Depthwise::new(windows, channels, Filters::Ones(ones))
    }

    /// Computes some lines of results.
    fn block(&self, job: &Job<'_>, lines: Range<usize>) {
        let taps = self.windows.taps();
        let (wide, inner) = (self.windows.wide(), self.windows.inner_columns());
        with_scratch::<usize, 2, _>([COLUMN_ROWS * taps, 2 * taps], |[pointers, pieces]| {
            let pointers = as_pointers(&mut pointers[..COLUMN_ROWS * taps]);
            let pieces = as_pieces(&mut pieces[..2 * taps]);
            for line in lines {
                let line = line * wide..(line + 1) * wide;
                let middle = line.start + inner.start..line.start + inner.end;
                let rows = (middle.start, middle.len());
                let even = match middle.is_empty() {
                    true => None,
                    false => self.windows.even(job.x, &self.zeros, rows, 1, pieces),
                };
                match even {
                    Some(even) => {
                        self.border(job, line.start..middle.start, pointers);
                        self.even(job, middle.clone(), even);
                        self.border(job, middle.end..line.end, pointers);
                    }
                    None => self.border(job, line.clone(), pointers),
                }
                if let Finish::Block(f) = job.finish {
                    let (at, len) = (line.start * self.channels, line.len() * self.channels);
                    // SAFETY: a line of this task; lines do not overlap.
                    f(at, unsafe { job.out.part(at, len) });
                }
            }
        });
    }

    /// Results whose windows lie at equal distances.
    fn even(&self, job: &Job<'_>, results: Range<usize>, pieces: &mut [Piece]) {
        let high = results.len().div_ceil(results.len().div_ceil(COLUMN_ROWS));
        let (count, rest) = (results.len() / high, results.len() % high);
        let run = |first: usize, (count, rows): (usize, usize), pieces: &[Piece]| {
            for column in (0..self.channels).step_by(shape().cols) {
                let a = Even { pieces, length: 1, column };
                self.target(job, first, column, |panel, target| {
                    // SAFETY: pieces are of lines of the image or of the zeros, with all channels behind each position (`run` checks the
                    // image's length); results do not overlap.
                    unsafe { kernel::even_columns((count, rows), a, panel, target) }
                });
            }
        };
        run(results.start, (count, high), pieces);
        if rest > 0 {
            for p in &mut *pieces {
                p.first = p.first.wrapping_add(count * high * p.step);
            }
            run(results.start + count * high, (1, rest), pieces);
        }
    }

    /// Results whose windows lie anywhere.
    fn border(&self, job: &Job<'_>, results: Range<usize>, pointers: &mut [*const f32]) {
        for first in results.clone().step_by(COLUMN_ROWS) {
            let rows = COLUMN_ROWS.min(results.end - first);
            self.windows.point(job.x, &self.zeros, (first, rows), 1, pointers);
            let pointers = &pointers[..rows * self.windows.taps()];
            for column in (0..self.channels).step_by(shape().cols) {
                let a = Columns { rows: pointers, column };
                self.target(job, first, column, |panel, target| {
                    // SAFETY: every pointer is of a position of the image or of the zeros, with all channels behind it; results do not
                    // overlap.
                    unsafe { kernel::columns(rows, a, panel, target) }
                });
            }
        }
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
        let out = SharedSlice::new(out);
        let job = Job { x, filters, out: &out, finish: &finish };
        let lines = self.windows.lines();
        let tasks = cx.threads.tasks(out.len() * taps, GRAIN).min(lines);
        cx.threads.each(tasks, |t| self.block(&job, lines * t / tasks..lines * (t + 1) / tasks));
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}

/// Products that a task should at least have.
const GRAIN: usize = 1 << 18;
