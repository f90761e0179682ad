//! Convolutions with 3 × 3 taps in fewer products than nine for a result: F(2×2, 3×3) with four and F(4×4, 3×3) with two and a quarter of
//! A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2016.
//!
//! Tiles of 4 × 4 (6 × 6) inputs that overlap by two are transformed to as many points, of which each is a product over the channels,
//! and the products to 2 × 2 (4 × 4) results. The real function is the same. Relative to the tile, errors of the smaller tile are those of
//! the sums, of the larger one about four times as large: less than the sixteen times that a law may regroup by. A result that is not
//! finite here is summed again from its own window: infinities, NaN and overflows of the transforms spread no further than they do by
//! definition. An element has the same bits however the tiles are divided.

use super::Channels;
use super::conv::as_pointers;
use super::windows::Windows;
use crate::gemm::pack::wide_rows;
use crate::gemm::{FilterShape, GemmEpilogue, PackedFilters};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, TensorView};
use crate::runtime::threads::SharedSlice;
use crate::runtime::weight_cache::{Pack, PackKey, WeightCache};
use mlc_dsl::ir::Tensor;
use mlc_vector::arrays::array;
use mlc_vector::epilogue::NO_EPILOGUE;
use mlc_vector::tile::{self, PanelRows, Piece, StridedPanels, TileOutput, shape};
use mlc_vector::winograd::{FAR, NEAR, transform_input, transform_output};
use std::ops::Range;
use std::sync::Arc;

/// Elements of transformed input that a block holds, about: half the second-level cache.
const BLOCK: usize = 1 << 17;
/// Least tiles of a block: every block reads all weights.
const LEAST_TILES: usize = 56;
/// Panels of output channels whose products are kept until they are transformed.
const PANELS: usize = 2;
/// Elements between the points, so that they do not share the sets of a cache.
const APART: usize = 16;
/// Weights beyond this may overflow where they are transformed.
const LARGEST: f32 = f32::MAX / 16.0;

/// How many results a tile has along each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileSize {
    /// F(2×2, 3×3).
    Two = 2,
    /// F(4×4, 3×3).
    Four = 4,
}

impl TileSize {
    /// Inputs along each axis, and points.
    pub fn extent(self) -> usize {
        self as usize + 2
    }

    /// Points of a tile.
    pub fn points(self) -> usize {
        self.extent() * self.extent()
    }
}

/// Most points of a tile.
const MOST: usize = 36;
/// Most planes that a window reads.
const PLANES: usize = 5;

/// Extents of filters of 3 × 3 taps in each of some planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WinogradFilters {
    pub channels: Channels,
    pub planes: usize,
}

impl WinogradFilters {
    /// Elements of filters.
    pub fn len(self) -> usize {
        self.channels.written() * self.channels.q * self.planes * 9
    }
}

impl WeightCache {
    /// The Winograd transform of filters that begin at element `at` of `constant`, for tiles of a size.
    pub fn points(
        &self,
        constant: &Tensor,
        at: usize,
        filters: WinogradFilters,
        size: TileSize,
    ) -> Arc<Pack<TransformedFilters>> {
        let WinogradFilters { channels: Channels { groups, q, o }, planes } = filters;
        let numbers = [at, groups, q, o, planes, size as usize].map(|n| n as isize);
        self.get_or_pack(&[constant], PackKey::of(numbers), &|| {
            let aligned = self.aligned(constant);
            let all: &[f32] = bytemuck::cast_slice(aligned.bytes());
            TransformedFilters::new(&all[at..][..filters.len()], filters, size)
        })
    }
}

/// WinogradFilters, transformed: for each point and each group, channels of the planes one after the other by output channels.
pub struct TransformedFilters(Vec<PackedFilters>);

impl TransformedFilters {
    /// Transforms filters in f64 and rounds once.
    pub fn new(weights: &[f32], filters: WinogradFilters, size: TileSize) -> TransformedFilters {
        let WinogradFilters { channels: Channels { q, o, .. }, planes } = filters;
        let each = o * q * planes;
        let points_of = |group: &[f32]| {
            let mut points = vec![vec![0f32; each]; size.points()];
            for (i, taps) in group.chunks_exact(9).enumerate() {
                let at = (i / planes / q * planes + i % planes) * q + i / planes % q;
                let taps = array(|tap| taps[tap].into());
                for (point, v) in points.iter_mut().zip(transform_filter(taps, size)) {
                    point[at] = v as f32;
                }
            }
            points
        };
        let groups: Vec<_> = weights.chunks_exact(9 * each).map(points_of).collect();
        let pack = |p: usize, g: usize| {
            PackedFilters::new(&groups[g][p], FilterShape { o, q: q * planes, taps: 1 })
        };
        let all =
            (0..size.points()).flat_map(|p| (0..filters.channels.groups).map(move |g| (p, g)));
        TransformedFilters(all.map(|(p, g)| pack(p, g)).collect())
    }
}

/// `G g Gᵀ`.
fn transform_filter(g: [f64; 9], size: TileSize) -> Vec<f64> {
    let columns: Vec<_> =
        (0..3).map(|j| transform_line([g[j], g[3 + j], g[6 + j]], size)).collect();
    let rows = (0..size.extent()).map(|i| [columns[0][i], columns[1][i], columns[2][i]]);
    rows.flat_map(|row| transform_line(row, size)).collect()
}

/// The polynomial with these coefficients at zero, at the points that are not, and at infinity, over the products of the differences of the points.
fn transform_line([a, b, c]: [f64; 3], size: TileSize) -> Vec<f64> {
    let pair = |p: f64, scale: f64| [p, -p].map(|p| (a + p * (b + p * c)) / scale);
    match size {
        TileSize::Two => {
            let [plus, minus] = pair(1.0, 2.0);
            vec![a, plus, minus, c]
        }
        TileSize::Four => {
            let [near, far] = [NEAR, FAR].map(|p| f64::from(p) * f64::from(p));
            let zero = a / (near * far);
            let ([n, m], [f, g]) = (
                pair(NEAR.into(), 2.0 * near * (near - far)),
                pair(FAR.into(), 2.0 * far * (far - near)),
            );
            vec![zero, n, m, f, g, c]
        }
    }
}

/// True if filters can be transformed without an overflow.
pub fn fits(filters: &[f32]) -> bool {
    filters.iter().all(|w| w.abs() <= LARGEST)
}

/// The tiles of a convolution by `windows`, if these are of 3 × 3 neighbours and some size computes it faster.
pub fn tiles(windows: &Windows, filters: WinogradFilters) -> Option<(TileSize, Windows)> {
    let whole = filters.channels.groups == 1 || filters.channels.o.is_multiple_of(shape().lanes());
    if filters.planes > PLANES || !whole {
        return None;
    }
    let of = |size: TileSize| Some((size, windows.tiles(size as usize)?));
    let (two, four) = (of(TileSize::Two)?, of(TileSize::Four)?);
    let (small, large) = (two.1.len(), four.1.len());
    // Planes outside of the image cost nothing but here.
    match fastest(windows.len() as f64 * windows.depth_inside(), [small, large], filters)? {
        TileSize::Two => Some(two),
        TileSize::Four => Some(four),
    }
}

/// A convolution with known shapes.
pub struct Winograd {
    windows: Windows,
    size: TileSize,
    tiles: Windows,
    filters: WinogradFilters,
    w_at: usize,
    points: Arc<Pack<TransformedFilters>>,
    /// What windows read outside of the image.
    zeros: Vec<f32>,
}

impl Winograd {
    pub fn new(
        windows: Windows,
        size: TileSize,
        tiles: Windows,
        filters: WinogradFilters,
        w_at: usize,
        points: Arc<Pack<TransformedFilters>>,
    ) -> Winograd {
        let zeros = vec![0.0; filters.channels.read()];
        Winograd { windows, size, tiles, filters, w_at, points, zeros }
    }

    /// Groups whose inputs are transformed at once.
    fn at_once(&self) -> usize {
        (PANELS * shape().cols / self.filters.channels.o).clamp(1, self.filters.channels.groups)
    }

    /// Elements of the transformed inputs of a tile for each point.
    fn line(&self) -> usize {
        self.filters.planes * self.at_once() * self.filters.channels.q
    }

    /// Output channels whose products are kept until they are transformed: of one group, or of whole groups.
    fn wide(&self) -> usize {
        (PANELS * shape().cols).min(self.at_once() * self.filters.channels.o)
    }

    /// Tiles of a block, of equal ones.
    fn block(&self, threads: usize) -> usize {
        let most = (BLOCK / (self.size.points() * self.line())).max(LEAST_TILES);
        let blocks = self.tiles.len().div_ceil(most).max(threads);
        self.tiles.len().div_ceil(blocks)
    }
}

/// The size of tiles that takes less time than nine products for every result and than the other size, in cycles of a core that multiplies
/// two vectors in each.
fn fastest(results: f64, tiles: [usize; 2], filters: WinogradFilters) -> Option<TileSize> {
    let (inputs, o) = (filters.planes * filters.channels.read(), filters.channels.written() as f64);
    let (inputs, q) = (inputs as f64, (filters.planes * filters.channels.q) as f64);
    let direct = results * 9.0 * q * o / 32.0;
    let time = |size: TileSize, tiles: usize| {
        let (tiles, points) = (tiles as f64, size.points() as f64);
        // Sums of few products take longer to write than to add up.
        let products = tiles * points * (q + 16.0) * o / 32.0;
        // The transformed weights come from afar, eight bytes a cycle.
        let weights = points * q * o / 2.0;
        let transforms = match size {
            TileSize::Two => 8.0 * inputs + 14.0 * o,
            TileSize::Four => 16.0 * inputs + 24.0 * o,
        };
        products.max(weights) * 1.1 + tiles * transforms
    };
    let (two, four) = (time(TileSize::Two, tiles[0]), time(TileSize::Four, tiles[1]));
    let (size, time) = if four < two { (TileSize::Four, four) } else { (TileSize::Two, two) };
    (time < direct).then_some(size)
}

impl Kernel for Winograd {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, w): (&[f32], &[f32]) = (inputs[0].typed(), inputs[1].typed());
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        assert!(
            self.windows.reach(self.filters.channels.read()) <= x.len(),
            "windows inside the image"
        );
        let epilogue = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish =
            GemmEpilogue::new(cx, self.windows.len(), self.filters.channels.written(), &epilogue);
        let out = SharedSlice::new(out);
        let each = self.block(cx.threads.count());
        cx.threads.each(self.tiles.len().div_ceil(each), |task| {
            let tiles = task * each..((task + 1) * each).min(self.tiles.len());
            let w = &w[self.w_at..][..self.filters.len()];
            Block { conv: self, x, w, out: &out, finish: &finish, tiles }.run();
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}

/// The products of tiles in the transformed domain.
struct PointProducts<'a> {
    data: &'a mut [f32],
    /// Elements from one tile to the next.
    stride: usize,
    /// Elements from one point to the next.
    apart: usize,
}

/// Some tiles.
struct Block<'a> {
    conv: &'a Winograd,
    x: &'a [f32],
    w: &'a [f32],
    out: &'a SharedSlice<'a, f32>,
    finish: &'a GemmEpilogue<'a>,
    tiles: Range<usize>,
}

impl Block<'_> {
    fn run(&self) {
        let (wide, count) = (self.conv.wide(), self.tiles.len());
        let (from, to) = (count * self.conv.line() + APART, count * wide + APART);
        let points = self.conv.size.points();
        with_scratch::<f32, 2, _>([points * from, points * to], |[inputs, products]| {
            let Channels { groups, o, .. } = self.conv.filters.channels;
            for first in (0..groups).step_by(self.conv.at_once()) {
                let groups = first..(first + self.conv.at_once()).min(groups);
                self.transform_inputs(&groups, &mut inputs[..points * from], from);
                let channels = groups.start * o..groups.end * o;
                for c in channels.clone().step_by(wide) {
                    let channels = c..(c + wide).min(channels.end);
                    let products = &mut products[..points * to];
                    let to_products = PointProducts { data: products, stride: wide, apart: to };
                    self.products(&groups, &channels, inputs, from, to_products);
                    self.transform_products(&channels, products, wide, to);
                }
            }
        });
    }

    /// Transforms what some groups read.
    fn transform_inputs(&self, groups: &Range<usize>, inputs: &mut [f32], apart: usize) {
        let (conv, q) = (self.conv, self.conv.filters.channels.q);
        let (first, channels) = (groups.start * q, groups.len() * q);
        let (extent, points) = (conv.size.extent(), conv.size.points());
        let mut taps = [0usize; PLANES * MOST];
        for (i, tile) in self.tiles.clone().enumerate() {
            let taps = as_pointers(&mut taps[..conv.filters.planes * points]);
            conv.tiles.pointers(self.x, &conv.zeros, tile, 1, 1, taps);
            taps.iter_mut().for_each(|tap| *tap = tap.wrapping_add(first));
            for (plane, taps) in taps.chunks_exact(points).enumerate() {
                let to = &mut inputs[i * conv.line() + plane * channels..];
                assert!(to.len() >= (points - 1) * apart + channels, "the points fit");
                let to = to.as_mut_ptr();
                // SAFETY: a tap is a position of the image, or zeros, with all channels; the points fit.
                unsafe { transform_input(extent, taps, channels, to, apart) };
            }
        }
    }

    /// The products of all points for some channels; the inputs are those of some groups, with points `from` elements apart.
    fn products(
        &self,
        held: &Range<usize>,
        channels: &Range<usize>,
        inputs: &[f32],
        from: usize,
        PointProducts { data: products, stride, apart }: PointProducts<'_>,
    ) {
        let conv = self.conv;
        let WinogradFilters { channels: Channels { groups, q, o }, planes } = conv.filters;
        let (count, step) = (self.tiles.len(), conv.line());
        let rows = wide_rows(count, channels.len().min(o));
        let panels = tile::wide_panels(rows);
        let out = SharedSlice::new(products);
        for p in 0..conv.size.points() {
            for group in channels.start / o..channels.end.div_ceil(o) {
                let first = group * o;
                let columns =
                    channels.start.max(first) - first..channels.end.min(first + o) - first;
                for columns in tile::strips(columns, panels) {
                    let (column, wide, depth) = (columns.start, columns.len(), planes * q);
                    let vectors = tile::vectors(wide);
                    let b = conv.points.0[p * groups + group].block(column, 0..depth);
                    let ahead = match conv.points.0.get((p + 1) * groups + group) {
                        Some(next) => next.block(column, 0..depth),
                        None => &[],
                    };
                    let ahead = &ahead[..ahead.len().min(depth * wide)];
                    tile::each_height(count, rows, |r, tiles, rows| {
                        let at = p * apart + r * stride + first + column - channels.start;
                        let parts = tile::parts(at, 0, wide);
                        let target = TileOutput {
                            out: out.at(0),
                            len: out.len(),
                            parts: &parts[..vectors],
                            stride,
                            row: 0,
                            add: false,
                            epilogue: &NO_EPILOGUE,
                        };
                        let pieces: [Piece; PLANES] = array(|plane| {
                            let line = plane.min(planes - 1) * held.len() + group - held.start;
                            Piece { first: inputs[p * from + r * step + line * q..].as_ptr(), step }
                        });
                        let a = StridedPanels { pieces: &pieces[..planes], length: q };
                        let b = PanelRows::all(b, depth);
                        // SAFETY: the transformed tiles are inside the inputs; the products belong to this task, and tiles do not overlap.
                        unsafe { tile::strided_tiles(tiles, rows, a, b, ahead, &target) };
                    });
                }
            }
        }
    }

    /// Writes the results of some channels, and what follows.
    fn transform_products(
        &self,
        channels: &Range<usize>,
        products: &[f32],
        wide: usize,
        apart: usize,
    ) {
        let (conv, count) = (self.conv, channels.len());
        let (points, each) = (conv.size.points(), conv.size as usize);
        let all = conv.filters.channels.written();
        let place = |result: usize| result * all + channels.start;
        let mut to = [std::ptr::null_mut(); MOST];
        for (i, tile) in self.tiles.clone().enumerate() {
            let lines = || conv.windows.results_of(&conv.tiles, tile);
            for (line, to) in lines().zip(to.chunks_exact_mut(each)) {
                assert!(
                    line.is_empty() || place(line.end - 1) + count <= self.out.len(),
                    "results are inside"
                );
                let all = line
                    .clone()
                    .map(|r| self.out.at(place(r)))
                    .chain(std::iter::repeat(std::ptr::null_mut()));
                to.iter_mut().zip(all).for_each(|(to, at)| *to = at);
            }
            let from = &products[i * wide..];
            assert!(from.len() >= (points - 1) * apart + count, "the points are inside");
            let (from, to) = (from.as_ptr(), &to[..each * each]);
            let extent = conv.size.extent();
            // SAFETY: the points are inside, and so are the results; those of different tiles do not overlap.
            let finite = unsafe { transform_output(extent, from, apart, count, to) };
            for line in lines() {
                if !finite {
                    for r in line.clone() {
                        // SAFETY: results of different tiles do not overlap.
                        self.repair(r, channels, unsafe { self.out.part(place(r), count) });
                    }
                }
                // SAFETY: as above.
                unsafe { self.finish.rows(self.out, line, channels, all) };
            }
        }
    }

    /// Sums those channels of a result that are not finite from its window.
    #[cold]
    fn repair(&self, result: usize, channels: &Range<usize>, part: &mut [f32]) {
        let WinogradFilters { channels: Channels { q, o, .. }, planes } = self.conv.filters;
        let mut taps = [0usize; PLANES * 9];
        let taps = as_pointers(&mut taps[..planes * 9]);
        self.conv.windows.pointers(self.x, &self.conv.zeros, result, 1, 1, taps);
        for (c, v) in channels.clone().zip(part).filter(|(_, v)| !v.is_finite()) {
            *v = 0.0;
            for (t, tap) in taps.iter().enumerate() {
                // SAFETY: behind every tap are the channels of all groups.
                let x = unsafe { std::slice::from_raw_parts(tap.add(c / o * q), q) };
                let filter = self.w[c * q * taps.len()..][..q * taps.len()].iter();
                let filter = filter.skip(t).step_by(taps.len());
                *v = x.iter().zip(filter).fold(*v, |sum, (x, w)| sum + x * w);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_pays_with_many_channels_on_large_planes() {
        let fastest = |q, o, extent: usize| {
            let tiles = [2, 4].map(|each| extent.div_ceil(each).pow(2));
            fastest(
                (extent * extent) as f64,
                tiles,
                WinogradFilters { channels: Channels { groups: 1, q, o }, planes: 1 },
            )
        };
        let (two, four) = (Some(TileSize::Two), Some(TileSize::Four));
        let cases = [
            (48, 192, 13, four),
            (64, 64, 14, four),
            (64, 64, 56, four),
            (256, 256, 14, four),
            (512, 512, 7, two),
            (3, 64, 224, None),
            (8, 8, 64, None),
            (512, 512, 4, None),
        ];
        for (q, o, extent, size) in cases {
            assert_eq!(fastest(q, o, extent), size, "{q} to {o} channels of {extent}");
        }
    }
}
