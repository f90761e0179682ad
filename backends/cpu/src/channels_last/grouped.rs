//! Convolution whose channels are cut into groups, channels last. Where a group is narrower than a vector and has as many channels in as
//! out, a vector takes several groups at once; otherwise tiles are those of one group, and read a copy of its channels.

use super::conv::{as_pieces, as_pointers};
use super::frames::{Frames, Part};
use super::windows::Windows;
use crate::buffer::with_scratch;
use crate::gemm::kernel::{self, Columns, Even, PanelLines, Piece, Target, at_level, shape};
use crate::gemm::pack::wide_rows;
use crate::gemm::{Finish, PackedFilters, cut, finish_block, share};
use crate::launch::{Array, Context, Launch, LaunchSite};
use crate::packed_constants::Pack;
use crate::simd::{VectorLevel, level};
use crate::threads::SharedSlice;
use crate::vector;
use std::ops::Range;
use std::sync::Arc;

/// A convolution of several groups with known shapes.
struct Grouped {
    windows: Windows,
    /// Input and output channels of a group.
    q: usize,
    o: usize,
    group: usize,
    /// How the image is copied if groups are filtered one by one, all of them at once otherwise.
    frames: Option<Frames>,
    w_at: usize,
    /// The filters of each group, or of all of them, if they are constant.
    packed: Vec<Arc<Pack<PackedFilters>>>,
    /// What windows read outside of the image.
    zeros: Vec<f32>,
    /// Positions of each tile.
    rows: usize,
}

/// Positions of a tile of several groups: as many as the vectors that a group's elements are spread to leave registers for.
const NARROW_ROWS: usize = 8;

/// Tiles whose pointers are kept while channels go by.
const CHUNK: usize = 4;

/// Operations that a task should at least have.
const GRAIN: usize = 1 << 20;

/// Prepares a convolution from `q` to `o` channels, `q` of each group and `o` of all.
pub fn make(
    site: &LaunchSite<'_>,
    windows: Windows,
    (q, o, group): (usize, usize, usize),
) -> Option<Box<dyn Launch>> {
    let w = &site.args[1];
    let o = o.checked_div(group)?;
    let is_narrow = q == o && matches!(q, 2 | 4 | 8) && q < shape().lanes();
    let at_once = if is_narrow { group } else { 1 };
    let (taps, w_at) = (windows.taps(), w.layout.offset);
    let filters = at_once * o * q * taps;
    let packed = match &w.constant {
        Some(t) if filters > 0 => {
            let of = |i: usize| site.packs.filters(t, w_at + i * filters, (at_once * o, q, taps));
            (0..group / at_once).map(of).collect()
        }
        _ => vec![],
    };
    let frames = (!is_narrow).then(|| Frames::new(&windows, q));
    let rows = match &frames {
        None => NARROW_ROWS,
        Some(frames) => wide_rows(frames.columns(), o),
    };
    let zeros = vec![0.0; group * q];
    Some(Box::new(Grouped { windows, q, o, group, frames, w_at, packed, zeros, rows }))
}

impl Launch for Grouped {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, w): (&[f32], &[f32]) = (inputs[0].typed(), inputs[1].typed());
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        assert!(self.windows.reach(self.group * self.q) <= x.len(), "windows inside the image");
        let taps = self.windows.taps();
        let at_once = if self.frames.is_some() { 1 } else { self.group };
        let sizes = (at_once * self.o, self.q, taps);
        let len = sizes.0 * sizes.1 * sizes.2;
        let own: Vec<PackedFilters> = match self.packed.is_empty() {
            false => vec![],
            true => (0..self.group / at_once)
                .map(|i| PackedFilters::new(&w[self.w_at + i * len..], sizes))
                .collect(),
        };
        let packed = self.packed.iter().map(|p| &***p);
        let filters: Vec<&PackedFilters> = own.iter().chain(packed).collect();
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = Finish::of(cx, (self.windows.len(), self.channels()), &block);
        let out = SharedSlice::new(out);
        let job = Job { x, filters: &filters, out: &out, finish: &finish };
        let parts = match &self.frames {
            Some(frames) => frames.count(&self.windows),
            None => self.windows.len().div_ceil(self.rows),
        };
        let work = 2 * self.windows.len() * self.channels() * self.q * taps;
        let wanted = cx.threads.tasks(work, GRAIN);
        let down = wanted.min(parts);
        let across = match &self.frames {
            Some(_) => wanted.div_ceil(down).min(self.group),
            None => 1,
        };
        cx.threads.each(down * across, |task| {
            let parts = cut(parts, 1, down, task % down);
            let groups = cut(self.group, 1, across, task / down);
            match &self.frames {
                Some(frames) => self.wide(&job, frames, parts, groups),
                None => self.block(&job, parts),
            }
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}

impl Grouped {
    /// Output channels of all groups.
    fn channels(&self) -> usize {
        self.o * self.group
    }

    /// Computes some tiles of positions.
    fn block(&self, job: &Job<'_>, tiles: Range<usize>) {
        let each = self.rows * self.windows.taps();
        with_scratch::<usize, 1, _>([CHUNK * each], |[pointers]| {
            let pointers = as_pointers(&mut pointers[..CHUNK * each]);
            for first in tiles.clone().step_by(CHUNK) {
                let chunk = first..(first + CHUNK).min(tiles.end);
                for (tile, pointers) in chunk.clone().zip(pointers.chunks_exact_mut(each.max(1))) {
                    let at = self.positions(tile);
                    self.windows.point(job.x, &self.zeros, (at.start, at.len()), 1, pointers);
                }
                self.narrow(job, &chunk, pointers);
                let last = self.positions(chunk.end - 1);
                let positions = self.positions(chunk.start).start..last.end;
                let finish = |at: usize, part: &mut [f32]| {
                    job.finish.apply(at, part, self.channels());
                };
                let channels = 0..self.channels();
                finish_block(0, channels.len(), &positions, &channels, job.out, &finish);
            }
        });
    }

    /// Positions of a tile.
    fn positions(&self, tile: usize) -> Range<usize> {
        tile * self.rows..((tile + 1) * self.rows).min(self.windows.len())
    }

    /// Computes some groups of some parts, one group after the other.
    fn wide(&self, job: &Job<'_>, frames: &Frames, parts: Range<usize>, groups: Range<usize>) {
        let (len, taps) = (frames.len(&self.windows), self.windows.taps());
        with_scratch::<f32, 1, _>([len], |[frame]| {
            with_scratch::<usize, 1, _>([2 * taps], |[pieces]| {
                let pieces = as_pieces(&mut pieces[..2 * taps]);
                for i in parts {
                    let part = frames.part(&self.windows, i);
                    let ahead = self.ahead(job.x, &part, &frames.part(&self.windows, i + 1));
                    for g in groups.clone() {
                        frames.fill(&self.windows, &part, g * self.q, job.x, &mut frame[..len]);
                        let of_group = share(ahead, g - groups.start, groups.len());
                        for line in 0..part.lines {
                            let (pieces, length) =
                                frames.pieces(&self.windows, &part, line, frame, pieces);
                            let first = part.first + line * self.windows.wide();
                            let ahead = share(of_group, line, part.lines);
                            let positions = first..first + part.columns;
                            self.line(job, g, positions, (pieces, length), ahead);
                        }
                    }
                    let Finish::Block(f) = job.finish else { continue };
                    let channels = groups.start * self.o..groups.end * self.o;
                    for line in 0..part.lines {
                        let first = part.first + line * self.windows.wide();
                        let positions = first..first + part.columns;
                        finish_block(0, self.channels(), &positions, &channels, job.out, f);
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
        (pieces, length): (&mut [Piece], usize),
        ahead: &[f32],
    ) {
        let depth = pieces.len() * length;
        let at_once = kernel::wide_panels(self.rows);
        kernel::each_height(positions.len(), self.rows, |r, count, rows| {
            pieces.iter_mut().for_each(|p| p.first = p.first.wrapping_add(r * p.step));
            for columns in kernel::strips(0..self.o, at_once) {
                let panel = PanelLines::all(job.filters[g].block(columns.start, 0..depth), depth);
                let (column, a) = (g * self.o + columns.start, Even { pieces, length });
                self.target(job, positions.start + r, column, columns.len(), |target| {
                    // SAFETY: the frame holds the windows of all positions; those of different tasks do not overlap.
                    unsafe { kernel::even((count, rows), a, panel, ahead, target) };
                });
            }
        });
    }

    /// Tiles of vectors that hold several groups.
    fn narrow(&self, job: &Job<'_>, tiles: &Range<usize>, pointers: &[*const f32]) {
        let (taps, each) = (self.windows.taps(), self.rows * self.windows.taps());
        for column in (0..self.channels()).step_by(shape().cols) {
            let wide = shape().cols.min(self.channels() - column);
            let panel = job.filters[0].block(column, 0..self.q * taps);
            for (tile, pointers) in tiles.clone().zip(pointers.chunks_exact(each.max(1))) {
                let positions = self.positions(tile);
                let a = Columns { rows: &pointers[..positions.len() * taps], column };
                self.target(job, positions.start, column, wide, |target| {
                    let vectors = target.parts.len();
                    assert!(panel.len() >= vectors * shape().lanes() * self.q * taps, "the panel");
                    let (rows, q) = (positions.len(), self.q);
                    let last = target.parts.iter().map(|p| p.at + p.len).max().unwrap_or(0);
                    assert!(last + (rows - 1) * target.stride <= target.len, "inside the result");
                    // SAFETY: the assertions bound panel and result; every pointer is of a position of the image or of the zeros, with all
                    // channels behind it; the level was detected, and tiles do not overlap.
                    at_level!(channel_groups(rows, q, a, panel, target));
                });
            }
        }
    }

    /// Calls `f` with where the results of some channels go, from position `row` on.
    fn target(
        &self,
        job: &Job<'_>,
        row: usize,
        column: usize,
        wide: usize,
        f: impl FnOnce(&Target<'_>),
    ) {
        let parts = kernel::parts(row * self.channels() + column, column, wide);
        let vectors = kernel::vectors(wide);
        f(&Target {
            out: job.out.at(0),
            len: job.out.len(),
            parts: &parts[..vectors],
            stride: self.channels(),
            row,
            add: false,
            chain: job.finish.chain(true),
        });
    }
}

/// What all tasks of a run share.
struct Job<'a> {
    x: &'a [f32],
    /// Of every `at_once` groups.
    filters: &'a [&'a PackedFilters],
    out: &'a SharedSlice<'a, f32>,
    finish: &'a Finish<'a>,
}
