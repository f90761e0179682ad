//! Grouped convolution, channels last, of groups that do not fill vectors: tiles of one group over a padded copy of its channels.

use super::Channels;
use super::conv::as_pieces;
use super::frames::{Frames, Part};
use super::windows::Windows;
use crate::gemm::pack::wide_rows;
use crate::gemm::{FilterShape, GemmEpilogue, PackedFilters, cut, finish_block, share};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use crate::runtime::threads::SharedSlice;
use crate::runtime::weight_cache::Pack;
use mlc_vector::tile::{self, PanelRows, Piece, StridedPanels, TileOutput};
use std::ops::Range;
use std::sync::Arc;

/// A convolution of several groups with known shapes.
struct Grouped {
    windows: Windows,
    channels: Channels,
    /// How the image is copied.
    frames: Frames,
    w_at: usize,
    /// The filters of each group, if they are constant.
    packed: Vec<Arc<Pack<PackedFilters>>>,
    /// Positions of each tile.
    rows: usize,
}

/// Operations that a task should at least have.
const GRAIN: usize = 1 << 20;

/// Prepares a convolution.
pub fn make(spec: &KernelSpec<'_>, windows: Windows, channels: Channels) -> Box<dyn Kernel> {
    let w = &spec.args[1];
    let (Channels { groups, q, o }, taps) = (channels, windows.taps());
    let (w_at, each) = (w.layout.offset, o * q * taps);
    let packed = match &w.constant {
        Some(t) if each > 0 => {
            let of =
                |g: usize| spec.weights.filters(t, w_at + g * each, FilterShape { o, q, taps });
            (0..groups).map(of).collect()
        }
        _ => vec![],
    };
    let frames = Frames::new(&windows, q);
    let rows = wide_rows(frames.columns(), o);
    Box::new(Grouped { windows, channels, frames, w_at, packed, rows })
}

impl Kernel for Grouped {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, w): (&[f32], &[f32]) = (inputs[0].typed(), inputs[1].typed());
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        let Channels { groups, q, o } = self.channels;
        assert!(self.windows.reach(self.channels.read()) <= x.len(), "windows inside the image");
        let taps = self.windows.taps();
        let own: Vec<PackedFilters> = match self.packed.is_empty() {
            false => vec![],
            true => (0..groups)
                .map(|g| {
                    PackedFilters::new(
                        &w[self.w_at + g * o * q * taps..],
                        FilterShape { o, q, taps },
                    )
                })
                .collect(),
        };
        let packed = self.packed.iter().map(|p| &***p);
        let filters: Vec<&PackedFilters> = own.iter().chain(packed).collect();
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = GemmEpilogue::new(cx, self.windows.len(), self.channels.written(), &block);
        let out = SharedSlice::new(out);
        let job = Job { x, filters: &filters, out: &out, finish: &finish };
        let parts = self.frames.count(&self.windows);
        let work = 2 * self.windows.len() * self.channels.written() * q * taps;
        let wanted = cx.threads.tasks(work, GRAIN);
        let down = wanted.min(parts);
        let across = wanted.div_ceil(down).min(groups);
        cx.threads.each(down * across, |task| {
            let parts = cut(parts, 1, down, task % down);
            self.block(&job, parts, cut(groups, 1, across, task / down));
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}

impl Grouped {
    /// Computes some groups of some parts, one group after the other.
    fn block(&self, job: &Job<'_>, parts: Range<usize>, groups: Range<usize>) {
        let (frames, Channels { q, o, .. }) = (&self.frames, self.channels);
        let (len, taps) = (frames.len(&self.windows), self.windows.taps());
        with_scratch::<f32, 1, _>([len], |[frame]| {
            with_scratch::<usize, 1, _>([2 * taps], |[pieces]| {
                let pieces = as_pieces(&mut pieces[..2 * taps]);
                for i in parts {
                    let part = frames.part(&self.windows, i);
                    let ahead = self.ahead(job.x, &part, &frames.part(&self.windows, i + 1));
                    for g in groups.clone() {
                        frames.fill(&self.windows, &part, g * q, job.x, &mut frame[..len]);
                        let of_group = share(ahead, g - groups.start, groups.len());
                        for line in 0..part.lines {
                            let (pieces, length) =
                                frames.pieces(&self.windows, &part, line, frame, pieces);
                            let first = part.first + line * self.windows.wide();
                            let ahead = share(of_group, line, part.lines);
                            let positions = first..first + part.columns;
                            self.line(job, g, positions, pieces, length, ahead);
                        }
                    }
                    let GemmEpilogue::Block(f) = job.finish else { continue };
                    let channels = groups.start * o..groups.end * o;
                    for line in 0..part.lines {
                        let first = part.first + line * self.windows.wide();
                        let positions = first..first + part.columns;
                        finish_block(0, self.channels.written(), &positions, &channels, job.out, f);
                    }
                }
            });
        });
    }

    /// What a part reads for the first time after another.
    fn ahead<'x>(&self, x: &'x [f32], part: &Part, next: &Part) -> &'x [f32] {
        let end = |part: &Part| match part.lines {
            0 => 0,
            n => {
                self.windows.read_before(part.first + (n - 1) * self.windows.wide() + part.columns)
            }
        };
        let (from, to) = (end(part), end(next).min(x.len()));
        &x[from.min(to)..to]
    }

    /// Neighbouring positions of a line by the filters of a group. The windows of the first of them read `pieces` of `length` elements each.
    fn line(
        &self,
        job: &Job<'_>,
        g: usize,
        positions: Range<usize>,
        pieces: &mut [Piece],
        length: usize,
        ahead: &[f32],
    ) {
        let depth = pieces.len() * length;
        let (at_once, o) = (tile::wide_panels(self.rows), self.channels.o);
        tile::each_height(positions.len(), self.rows, |r, count, rows| {
            pieces.iter_mut().for_each(|p| p.first = p.first.wrapping_add(r * p.step));
            for columns in tile::strips(0..o, at_once) {
                let panel = PanelRows::all(job.filters[g].block(columns.start, 0..depth), depth);
                let (column, a) = (g * o + columns.start, StridedPanels { pieces, length });
                self.target(job, positions.start + r, column, columns.len(), |target| {
                    // SAFETY: the frame holds the windows of all positions; those of different tasks do not overlap.
                    unsafe { tile::strided_tiles(count, rows, a, panel, ahead, target) };
                });
            }
        });
    }

    /// Calls `f` with where the results of some channels go, from position `row` on.
    fn target(
        &self,
        job: &Job<'_>,
        row: usize,
        column: usize,
        wide: usize,
        f: impl FnOnce(&TileOutput<'_>),
    ) {
        let all = self.channels.written();
        let parts = tile::parts(row * all + column, column, wide);
        let vectors = tile::vectors(wide);
        f(&TileOutput {
            out: job.out.at(0),
            len: job.out.len(),
            parts: &parts[..vectors],
            stride: all,
            row,
            add: false,
            epilogue: job.finish.of_tiles(true),
        });
    }
}

/// What all tasks of a run share.
struct Job<'a> {
    x: &'a [f32],
    /// Of every group.
    filters: &'a [&'a PackedFilters],
    out: &'a SharedSlice<'a, f32>,
    finish: &'a GemmEpilogue<'a>,
}
