//! Direct convolution, channels last: tiles of positions by output channels, whose rows are read through pointers.

use super::Channels;
use super::depthwise::{Filters, NhwcDepthwise, of_a_vector};
use super::grouped;
use super::pointwise::{self, PointwiseConv};
use super::windows::Windows;
use super::winograd::{self, Winograd};
use crate::gemm::pack::{panel_rows, wide_rows};
use crate::gemm::{FilterShape, GemmEpilogue, PackedFilters, cut, finish_block, share};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use crate::runtime::threads::{SharedSlice, Threads};
use crate::runtime::weight_cache::Pack;
use mlc_dsl::ir::DType;
use mlc_vector::tile::{
    self, PanelRows, Piece, PointerPanel, StridedPanels, TileOutput, VectorSpan, shape,
};
use std::ops::Range;
use std::sync::Arc;

/// A convolution of one group with known shapes.
pub struct NhwcConv {
    windows: Windows,
    /// Input and output channels.
    q: usize,
    o: usize,
    /// What windows read outside of the image.
    zeros: Vec<f32>,
    /// Taps that are read as one piece where all are inside the image.
    join: usize,
    /// Positions of each tile.
    rows: usize,
    /// Panels of output channels that a tile takes at once.
    at_once: usize,
    /// Columns whose windows are inside, if lines are long: all tiles of these are computed at once.
    inner: Option<Range<usize>>,
}

/// A convolution, and its filters.
struct FilteredConv {
    conv: NhwcConv,
    w_at: usize,
    /// The filters, if they are constant.
    packed: Option<Arc<Pack<PackedFilters>>>,
}

/// Prepares a convolution.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [_, w] = spec.args else { return None };
    if spec.same_dtype()? != DType::F32 || !w.layout.is_dense() {
        return None;
    }
    let filters = w.layout.shape.as_slice();
    let group = usize::try_from(spec.int(4)?).ok()?;
    let windows = Windows::of(spec, &filters[2..], [0, 1, 3])?;
    let (o, q, w_at) = (filters[0], filters[1], w.layout.offset);
    let taps = windows.taps();
    let channels = Channels { groups: group, q, o: o.checked_div(group)? };
    let each = winograd::WinogradFilters { channels, planes: taps / 9 };
    if let Some(t) = &w.constant
        && let Some(tiles) = winograd::tiles(&windows, each)
        && winograd::fits(
            &bytemuck::cast_slice(spec.weights.aligned(t).bytes())[w_at..][..each.len()],
        )
    {
        let (size, tiles) = tiles;
        let points = spec.weights.points(t, w_at, each, size);
        return Some(Box::new(Winograd::new(windows, size, tiles, each, w_at, points)));
    }
    if group != 1
        && let Some(groups) = of_a_vector(channels)
    {
        let filters = match &w.constant {
            Some(t) => Filters::Packed(spec.weights.filters(t, w_at, FilterShape { o, q, taps })),
            None => Filters::Given(w_at),
        };
        return Some(Box::new(NhwcDepthwise::new(windows, channels, groups, filters)));
    }
    if group != 1 {
        return Some(grouped::make(spec, windows, channels));
    }
    if let Some(t) = &w.constant
        && pointwise::pays(&windows, o, q, panel_rows(windows.len()))
    {
        return Some(Box::new(PointwiseConv::new(windows, o, q, t, w_at, spec.weights)));
    }
    let packed =
        w.constant.as_ref().map(|t| spec.weights.filters(t, w_at, FilterShape { o, q, taps }));
    Some(Box::new(FilteredConv { conv: NhwcConv::new(windows, q, o), w_at, packed }))
}

/// Bytes of filters that stay in the second-level cache while tiles go by.
const KEPT: usize = 384 << 10;

/// Tiles of a line for which what is left over at its ends does not matter.
const LONG: usize = 8;

/// Operations that a task should at least have.
const GRAIN: usize = 1 << 20;

impl Kernel for FilteredConv {
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
        let NhwcConv { windows, q, o, .. } = &self.conv;
        let own;
        let filters: &PackedFilters = match &self.packed {
            Some(packed) => packed,
            None => {
                own = PackedFilters::new(
                    &w[self.w_at..],
                    FilterShape { o: *o, q: *q, taps: windows.taps() },
                );
                &own
            }
        };
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = GemmEpilogue::new(cx, windows.len(), *o, &block);
        self.conv.compute(cx.threads, x, filters, out, &finish);
        Ok(())
    }

    fn reads(&self, input: usize) -> bool {
        input != 1 || self.packed.is_none()
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}

impl NhwcConv {
    /// A convolution of `q` to `o` channels.
    pub fn new(windows: Windows, q: usize, o: usize) -> NhwcConv {
        // Filters of several panels should stay in the cache as well as those of one.
        let strip = tile::wide().panels * shape().cols * q * windows.taps() * size_of::<f32>();
        let (rows, at_once) = match strip <= KEPT {
            true => {
                let rows = wide_rows(windows.len(), o);
                (rows, tile::wide_panels(rows))
            }
            false => (panel_rows(windows.len()), 1),
        };
        let join = windows.joined(q);
        let inner = Some(windows.inner()).filter(|inner| inner.len() >= LONG * rows);
        NhwcConv { windows, q, o, zeros: vec![0.0; q * join], join, rows, at_once, inner }
    }

    /// Computes all results, which are dense. The filters are those of its channels and taps.
    ///
    /// # Panics
    /// If windows are not inside the image `x`.
    pub fn compute(
        &self,
        threads: &Threads,
        x: &[f32],
        filters: &PackedFilters,
        out: &mut [f32],
        finish: &GemmEpilogue<'_>,
    ) {
        assert!(self.windows.reach(self.q) <= x.len(), "windows inside the image");
        let out = SharedSlice::new(out);
        let job = Job { x, filters, out: &out, finish };
        let (down, across) = self.grid(threads);
        threads.each(down * across, |task| {
            let tiles = cut(self.windows.len().div_ceil(self.rows), 1, down, task % down);
            let panels = cut(self.o.div_ceil(shape().cols), 1, across, task / down);
            self.block(&job, tiles, panels);
        });
    }

    /// How many parts positions and output channels are cut into.
    fn grid(&self, threads: &Threads) -> (usize, usize) {
        let work = 2 * self.windows.len() * self.o * self.q * self.windows.taps();
        let wanted = threads.tasks(work, GRAIN);
        let (tiles, panels) =
            (self.windows.len().div_ceil(self.rows), self.o.div_ceil(shape().cols));
        // As few parts across as leave each of them filters that stay in the cache.
        let need = (1..panels).find(|n| self.keeps_filters(panels.div_ceil(*n)));
        let down = (wanted / need.unwrap_or(panels)).clamp(1, tiles);
        (down, wanted.div_ceil(down).min(panels))
    }

    /// True if the filters of so many panels stay in the cache.
    fn keeps_filters(&self, panels: usize) -> bool {
        panels * shape().cols * self.q * self.windows.taps() * size_of::<f32>() <= KEPT
    }

    /// Computes some tiles of positions by some panels of output channels.
    fn block(&self, job: &Job<'_>, tiles: Range<usize>, panels: Range<usize>) {
        if self.windows.is_straight() {
            return self.straight(job, tiles, panels);
        }
        let (taps, count) = (self.windows.taps(), self.rows * self.windows.taps());
        with_scratch::<usize, 2, _>([count, 2 * taps], |[pointers, pieces]| {
            let pointers = as_pointers(&mut pointers[..count]);
            let pieces = as_pieces(&mut pieces[..2 * taps]);
            if !self.keeps_filters(panels.len()) {
                for channels in self.strips(&panels) {
                    for tile in tiles.clone() {
                        let positions = self.positions(tile);
                        let rows = self.rows_of(job, &positions, pointers, pieces);
                        let ahead =
                            self.ahead(job, &channels, &panels, tile - tiles.start, tiles.len());
                        self.tiles(job, &positions, &channels, rows, ahead);
                    }
                }
                let positions = tiles.start * self.rows..self.positions(tiles.end - 1).end;
                return self.finish(job, positions, &panels);
            }
            let (mut at, end) = (tiles.start * self.rows, self.positions(tiles.end - 1).end);
            while at < end {
                let positions = at..self.part_end(at, end);
                let rows = self.rows_of(job, &positions, pointers, pieces);
                for channels in self.strips(&panels) {
                    self.tiles(job, &positions, &channels, rows, &[]);
                }
                at = positions.end;
                self.finish(job, positions, &panels);
            }
        });
    }

    /// The same where all windows of one tap lie at equal distances: many tiles at once.
    fn straight(&self, job: &Job<'_>, tiles: Range<usize>, panels: Range<usize>) {
        let each = (BLOCK / (self.rows * self.q).max(1)).max(1);
        let blocks = tiles.len().div_ceil(each);
        for (i, first) in tiles.clone().step_by(each).enumerate() {
            let last = (first + each).min(tiles.end) - 1;
            let positions = self.positions(first).start..self.positions(last).end;
            for channels in self.strips(&panels) {
                let ahead = self.ahead(job, &channels, &panels, i, blocks);
                let piece = self.windows.straight(job.x, positions.start);
                let rows = StridedPanels { pieces: &[piece], length: self.q };
                self.tiles(
                    job,
                    &positions,
                    &channels,
                    TapRows { rows: TileRows::Strided(rows), tap: 0 },
                    ahead,
                );
            }
            self.finish(job, positions, &panels);
        }
    }

    /// The channels of each tile of so many panels.
    fn strips(&self, panels: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        tile::strips(self.channels(panels), self.at_once)
    }

    /// The channels of so many panels.
    fn channels(&self, panels: &Range<usize>) -> Range<usize> {
        panels.start * shape().cols..(panels.end * shape().cols).min(self.o)
    }

    /// Applies what follows to finished positions where it was not applied to tiles.
    fn finish(&self, job: &Job<'_>, positions: Range<usize>, panels: &Range<usize>) {
        let GemmEpilogue::Block(f) = job.finish else { return };
        finish_block(0, self.o, &positions, &self.channels(panels), job.out, f);
    }

    /// What is read after a panel of filters that do not stay in the cache: share `i` of `parts` of the next one.
    fn ahead<'a>(
        &self,
        job: &Job<'a>,
        channels: &Range<usize>,
        panels: &Range<usize>,
        i: usize,
        parts: usize,
    ) -> &'a [f32] {
        if channels.end >= self.channels(panels).end || self.keeps_filters(panels.len()) {
            return &[];
        }
        let depth = self.q * self.windows.taps();
        let next = job.filters.block(channels.end, 0..depth);
        let len = next.len().min(channels.len() * depth);
        share(&next[..len], i, parts)
    }

    /// Where positions end that are computed together from `at` on: one tile, or all whole tiles of the inner columns of a line.
    fn part_end(&self, at: usize, end: usize) -> usize {
        let (column, wide) = (at % self.windows.wide(), self.windows.wide());
        let (limit, is_inner) = match &self.inner {
            None => return end.min(at + self.rows),
            Some(inner) if column < inner.start => (inner.start, false),
            Some(inner) if column < inner.end => (inner.end, true),
            Some(_) => (wide, false),
        };
        let left = (limit - column).min(end - at);
        let tiles = if is_inner { left / self.rows } else { 1 };
        at + left.min(tiles.max(1) * self.rows)
    }

    /// The taps that are summed for some positions: without those that are outside of the image for all of these, if they add zeros.
    fn taps(&self, job: &Job<'_>, positions: &Range<usize>) -> Range<usize> {
        match job.filters.is_finite {
            true => self.windows.taps_inside(positions.start, positions.len()),
            false => 0..self.windows.taps(),
        }
    }

    /// Positions of a tile.
    fn positions(&self, tile: usize) -> Range<usize> {
        tile * self.rows..(tile * self.rows + self.rows).min(self.windows.len())
    }

    /// The rows of a tile, and their first tap.
    fn rows_of<'a>(
        &self,
        job: &Job<'_>,
        positions: &Range<usize>,
        pointers: &'a mut [*const f32],
        pieces: &'a mut [Piece],
    ) -> TapRows<'a> {
        let (taps, first, count) = (self.taps(job, positions), positions.start, positions.len());
        if let Some(pieces) =
            self.windows.strided_pieces(job.x, &self.zeros, first, count, self.join, pieces)
        {
            let pieces = &pieces[taps.start / self.join..taps.end / self.join];
            let rows = StridedPanels { pieces, length: self.q * self.join };
            return TapRows { rows: TileRows::Strided(rows), tap: taps.start };
        }
        let join = self.windows.pointers(job.x, &self.zeros, first, count, self.join, pointers);
        let of_tap = |tap: usize| tap / join * positions.len();
        let rows = &pointers[of_tap(taps.start)..of_tap(taps.end)];
        let rows = TileRows::Pointers(PointerPanel { rows, length: self.q * join });
        TapRows { rows, tap: taps.start }
    }

    fn target<'t>(&self, job: &Job<'t>, row: usize, parts: &'t [VectorSpan]) -> TileOutput<'t> {
        TileOutput {
            out: job.out.at(0),
            len: job.out.len(),
            parts,
            stride: self.o,
            row,
            add: false,
            epilogue: job.finish.of_tiles(true),
        }
    }

    /// Positions that are whole tiles, or one tile, by the output channels of a tile.
    fn tiles(
        &self,
        job: &Job<'_>,
        positions: &Range<usize>,
        channels: &Range<usize>,
        TapRows { rows, tap }: TapRows<'_>,
        ahead: &[f32],
    ) {
        let depth = self.q * self.windows.taps();
        let (column, wide) = (channels.start, channels.len());
        let vectors = tile::vectors(wide);
        let panels = job.filters.block(column, 0..depth);
        let filters = PanelRows { panels, depth, first: tap * self.q };
        let parts = |first: usize| tile::parts(first * self.o + column, column, wide);
        // SAFETY: every row is of positions of the image or of the zeros, with all channels behind it (`run` checks the image's length);
        // tiles do not overlap.
        unsafe {
            match rows {
                TileRows::Pointers(a) => {
                    let parts = parts(positions.start);
                    let target = self.target(job, positions.start, &parts[..vectors]);
                    tile::pointer_tile(positions.len(), a, filters, ahead, &target);
                }
                TileRows::Strided(a) => {
                    let (count, rest) = (positions.len() / self.rows, positions.len() % self.rows);
                    if count > 0 {
                        let parts = parts(positions.start);
                        let target = self.target(job, positions.start, &parts[..vectors]);
                        tile::strided_tiles(count, self.rows, a, filters, ahead, &target);
                    }
                    if rest > 0 {
                        let done = count * self.rows;
                        // Rows of several pieces are whole tiles, or less than one.
                        let [Piece { first, step }, ..] = *a.pieces else { return };
                        let later = [Piece { first: first.add(done * step), step }];
                        let pieces = if count > 0 { &later[..] } else { a.pieces };
                        let parts = parts(positions.start + done);
                        let target = self.target(job, positions.start + done, &parts[..vectors]);
                        tile::strided_tiles(
                            1,
                            rest,
                            StridedPanels { pieces, ..a },
                            filters,
                            ahead,
                            &target,
                        );
                    }
                }
            }
        }
    }
}

/// What all tasks of a run share.
struct Job<'a> {
    x: &'a [f32],
    filters: &'a PackedFilters,
    out: &'a SharedSlice<'a, f32>,
    finish: &'a GemmEpilogue<'a>,
}

/// The rows of a tile, and the first tap that they read.
#[derive(Clone, Copy)]
struct TapRows<'a> {
    rows: TileRows<'a>,
    tap: usize,
}

/// The rows of a tile, or of several at equal distances.
#[derive(Clone, Copy)]
enum TileRows<'a> {
    Strided(StridedPanels<'a>),
    Pointers(PointerPanel<'a>),
}

/// Elements of the image that stay in the first-level cache while panels go by.
pub const BLOCK: usize = 8 << 10;

/// Scratch memory as pieces, all of them nowhere.
pub fn as_pieces(words: &mut [usize]) -> &mut [Piece] {
    words.fill(0);
    let len = words.len() / 2;
    // SAFETY: a piece is two words, and any words are one that may be held.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}

/// Scratch memory as pointers, all of them to nothing.
pub fn as_pointers<T>(words: &mut [usize]) -> &mut [*const T] {
    words.fill(0);
    let len = words.len();
    // SAFETY: pointers to sized types are words, and any word is a pointer that may be held.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}
