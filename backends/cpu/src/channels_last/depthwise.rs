//! Depthwise and small-group convolution, channels last: one vector of channels after the other, a row of results at a time, reading the image in
//! place. Sum pooling is a convolution with ones.

use super::Channels;
use super::windows::Windows;
use crate::gemm::{FilterShape, GemmEpilogue, PackedFilters};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, TensorView};
use crate::runtime::threads::SharedSlice;
use crate::runtime::weight_cache::Pack;
use mlc_vector::tile::{self, Groups, TileOutput, WindowLine, WindowRows, shape};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The filters of all channels.
pub enum Filters {
    /// Constants, packed.
    Packed(Arc<Pack<PackedFilters>>),
    /// Ones.
    Ones(PackedFilters),
    /// What the second input has from this element on.
    Given(usize),
}

/// How a vector of results takes groups of channels, if it takes whole ones or a part of one.
pub fn of_a_vector(Channels { q, o, .. }: Channels) -> Option<Groups> {
    let lanes = shape().lanes();
    match q == o && Groups::are_whole(q, lanes) {
        true => Some(Groups::Whole),
        false => (o > 0 && o.is_multiple_of(lanes) && FEW.contains(&q)).then_some(Groups::One),
    }
}

/// Windows over channels in groups with known shapes.
pub struct NhwcDepthwise {
    windows: Windows,
    channels: Channels,
    groups: Groups,
    filters: Filters,
}

impl NhwcDepthwise {
    /// A convolution whose vectors take groups [in that way](of_a_vector).
    pub fn new(
        windows: Windows,
        channels: Channels,
        groups: Groups,
        filters: Filters,
    ) -> NhwcDepthwise {
        NhwcDepthwise { windows, channels, groups, filters }
    }

    /// Sums of windows.
    pub fn sums(windows: Windows, channels: usize) -> NhwcDepthwise {
        let taps = windows.taps();
        let ones = PackedFilters::new(
            &vec![1.0; channels * taps],
            FilterShape { o: channels, q: 1, taps },
        );
        let channels = Channels { groups: channels, q: 1, o: 1 };
        NhwcDepthwise::new(windows, channels, Groups::Whole, Filters::Ones(ones))
    }

    /// Computes lines of results from line `first` on for a panel of channels. `rows` is what their windows read.
    fn block(&self, job: &Job<'_>, first: usize, rows: &[WindowLine], column: usize) {
        let (windows, lanes) = (&self.windows, shape().lanes());
        let (Channels { q, o, .. }, channels) = (self.channels, self.channels.written());
        let (taps, stride) = windows.neighbours(q);
        let wide = shape().cols.min(channels - column);
        let vectors = if wide <= lanes { 1 } else { 2 };
        let panel = job.filters.block(column, 0..q * windows.taps());
        // A vector after the other: what neighbouring lines read of it stays in the first-level cache.
        for v in 0..vectors {
            let row = first * windows.wide();
            let parts = tile::panel_parts(row * channels + column, column, wide);
            let channel = column + v * lanes;
            let a = WindowRows {
                lines: rows,
                high: windows.lines(q),
                step: windows.step(q),
                group: q,
                groups: self.groups,
                channel: match self.groups {
                    Groups::Whole => channel,
                    Groups::One => channel / o * q,
                },
                taps,
                stride,
                count: windows.wide(),
                weights: &panel[v * lanes..],
                apart: vectors * lanes,
            };
            let target = TileOutput {
                out: job.out.at(0),
                len: job.out.len(),
                parts: &parts[v..=v],
                stride: channels,
                row,
                add: false,
                epilogue: job.finish.of_tiles(true),
            };
            // SAFETY: columns inside the image have all channels (`run` checks its length); results do not overlap.
            unsafe { tile::window_rows(&a, &target) };
        }
    }

    /// Lines of a plane that one panel of channels after the other is computed of. Threads have lines rather than channels, as those that
    /// computed the image did.
    fn band(&self, threads: usize) -> usize {
        let fits = |lines: &usize| self.windows.covered(*lines) * size_of::<f32>() <= BAND;
        let all = self.windows.high();
        let most = all.div_ceil(threads.div_ceil(self.windows.planes()).max(1));
        let band = (1..=most).take_while(fits).count().max(1);
        // Bands of about the same height.
        all.div_ceil(all.div_ceil(band))
    }
}

/// Channels of a group of which a line of windows is read again and again: what is read of it stays in the first-level cache.
const FEW: RangeInclusive<usize> = 2..=16;

/// Bytes of an image that stay in the second-level cache.
const BAND: usize = 512 << 10;

/// What all tasks of a run share.
struct Job<'a> {
    filters: &'a PackedFilters,
    out: &'a SharedSlice<'a, f32>,
    finish: &'a GemmEpilogue<'a>,
}

impl Kernel for NhwcDepthwise {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let x: &[f32] = inputs[0].typed();
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        let (Channels { q, .. }, channels) = (self.channels, self.channels.written());
        assert!(self.windows.reach(self.channels.read()) <= x.len(), "windows inside the image");
        let taps = self.windows.taps();
        let own;
        let filters: &PackedFilters = match &self.filters {
            Filters::Packed(packed) => packed,
            Filters::Ones(ones) => ones,
            Filters::Given(at) => {
                let all: &[f32] = &inputs[1].typed()[*at..];
                own = PackedFilters::new(all, FilterShape { o: channels, q, taps });
                &own
            }
        };
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = GemmEpilogue::new(cx, self.windows.len(), channels, &block);
        let shared = SharedSlice::new(out);
        let job = Job { filters, out: &shared, finish: &finish };
        let (band, high) = (self.band(cx.threads.count()), self.windows.high());
        let (bands, panels) = (high.div_ceil(band), channels.div_ceil(shape().cols));
        let blocks = self.windows.planes() * bands * panels;
        let tasks = cx.threads.tasks(shared.len() * taps * q, GRAIN).min(blocks);
        cx.threads.each(tasks, |t| {
            let mut blocks = blocks * t / tasks..blocks * (t + 1) / tasks;
            let (words, lines) =
                (size_of::<WindowLine>() / size_of::<usize>(), self.windows.lines(q));
            with_scratch::<usize, 1, _>([band * lines * words], |[rows]| {
                let rows = as_lines(&mut rows[..band * lines * words]);
                while let Some(block) = blocks.next() {
                    let (plane, line) = (block / panels / bands, block / panels % bands * band);
                    let first = plane * high + line;
                    let rows = &mut rows[..band.min(high - line) * lines];
                    self.windows.rows(x, first, q, rows);
                    let last = ((block / panels + 1) * panels).min(blocks.end);
                    for block in block..last {
                        self.block(&job, first, rows, block % panels * shape().cols);
                    }
                    blocks.start = last;
                }
            });
        });
        if let GemmEpilogue::Block(f) = finish {
            // Whole rows: the epilogue is not bound to the channels of a block.
            cx.threads.chunks(out, channels, GRAIN, f);
        }
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}

/// Products that a task should at least have.
const GRAIN: usize = 1 << 17;

/// Scratch memory as lines of windows, all of them nowhere.
fn as_lines(words: &mut [usize]) -> &mut [WindowLine] {
    words.fill(0);
    let len = words.len() / (size_of::<WindowLine>() / size_of::<usize>());
    // SAFETY: a line is a pointer and two numbers, each a word, and any words are one that may be held.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}
