//! Convolutions with 3 × 3 taps in four products for every nine: F(2×2, 3×3) of A. Lavin, S. Gray, "Fast algorithms for
//! convolutional neural networks", 2016.
//!
//! Tiles of 4 × 4 inputs that overlap by two are transformed to sixteen points, of which each is a product over the channels,
//! and the products to 2 × 2 results. The real function is the same and its error of the order of that of the sums, relative
//! to the tile. A result that is not finite here is summed again from its own window: infinities, NaN and overflows of
//! the transforms spread no further than they do by definition. An element has the same bits however the tiles are divided.

use crate::cpu::buffer::with_scratch;
use crate::cpu::gemm::chain::NONE;
use crate::cpu::gemm::kernel::{self, LineTable, Panels, Target, shape};
use crate::cpu::gemm::pack::block_depth;
use crate::cpu::gemm::{Finish, Matrix, PackedLeft};
use crate::cpu::launch::{Array, Context, Launch, LaunchSite};
use crate::cpu::packed_constants::Pack;
use crate::cpu::padded_frame::copy_lines;
use crate::cpu::simd::{VectorLevel, level, simd};
use crate::cpu::threads::SharedSlice;
use crate::cpu::vector;
use crate::cpu::vector::winograd::{POINTS, TILES, TileParts};
use crate::cpu::window::Window;
use mlc_dsl::ir::Tensor;
use std::ops::Range;
use std::sync::Arc;

/// Elements of transformed input that a block holds, about: half the second-level cache.
const BLOCK: usize = 1 << 17;
/// Least tiles of a block: every block reads all weights.
const LEAST_TILES: usize = 64;
/// Output channels whose products are kept until they are transformed.
const CHANNELS: usize = 112;
/// Elements between the points, so that they do not share the sets of a cache.
const APART: usize = 16;
/// Weights beyond this may overflow where they are transformed.
const LARGEST: f32 = f32::MAX / 16.0;

/// The filters of a group, transformed: for each point, output by input channels.
pub struct Points(Vec<PackedLeft>);

impl Points {
    /// Of `o` × `q` filters of 3 × 3, transformed in f64 and rounded once.
    pub fn new(filters: &[f32], o: usize, q: usize) -> Points {
        let mut points = vec![vec![0f32; o * q]; POINTS];
        for (i, filter) in filters.chunks_exact(9).enumerate() {
            for (p, v) in transform_filter(filter).into_iter().enumerate() {
                points[p][i] = v as f32;
            }
        }
        let pack = |data: &Vec<f32>| {
            PackedLeft::new(&Matrix { data, offset: 0, row: q as isize, col: 1 }, o, q)
        };
        Points(points.iter().map(pack).collect())
    }
}

/// `G g Gᵀ`.
fn transform_filter(g: &[f32]) -> [f64; POINTS] {
    let line = |a: f64, b: f64, c: f64| [a, (a + b + c) / 2.0, (a - b + c) / 2.0, c];
    let rows: [[f64; 4]; 3] =
        std::array::from_fn(|i| line(g[3 * i].into(), g[3 * i + 1].into(), g[3 * i + 2].into()));
    let mut out = [0.0; POINTS];
    for j in 0..4 {
        for (i, v) in line(rows[0][j], rows[1][j], rows[2][j]).into_iter().enumerate() {
            out[4 * i + j] = v;
        }
    }
    out
}

/// A convolution with known shapes.
pub struct Winograd {
    window: Window,
    batch: usize,
    group: usize,
    /// Input and output channels of a group.
    q: usize,
    o: usize,
    x_at: usize,
    w_at: usize,
    /// Rows of tiles.
    high: usize,
    /// Tiles from one row to the next: one more than a row has, so that tiles lie without gaps in each part of the input.
    lane: usize,
    weights: Vec<Arc<Pack<Points>>>,
    /// Where the channels of a group of tiles lie.
    lines: LineTable,
}

impl Winograd {
    /// The convolution, if it is one of 3 × 3 taps that this computes faster.
    pub fn new(
        site: &LaunchSite<'_>,
        window: &Window,
        constant: &Tensor,
        (x_at, w_at): (usize, usize),
        (batch, group, q, o): (usize, usize, usize, usize),
    ) -> Option<Winograd> {
        let plain = window.size == [3, 3] && window.stride == [1, 1] && window.dilation == [1, 1];
        if !plain || window.outputs() == 0 || window.inputs() == 0 {
            return None;
        }
        let (high, wide) = (window.to[0].div_ceil(2), window.to[1].div_ceil(2));
        let lane = wide + 1;
        if !pays(window, (q, o), high * lane) {
            return None;
        }
        let filters: &[f32] = bytemuck::cast_slice(constant.bytes());
        let filters = &filters[w_at..][..group * o * q * 9];
        if !filters.iter().all(|w| w.abs() <= LARGEST) {
            return None;
        }
        let weights = (0..group).map(|g| site.packs.points(constant, w_at + g * o * q * 9, (o, q)));
        let weights = weights.collect();
        let lines = LineTable::new((0..q).map(|c| c * TILES).collect());
        let window = window.clone();
        Some(Winograd { window, batch, group, q, o, x_at, w_at, high, lane, weights, lines })
    }

    /// Tiles, those between the rows among them.
    fn tiles(&self) -> usize {
        self.high * self.lane
    }

    /// Tiles of a block.
    fn block(&self, threads: usize) -> usize {
        let most = (BLOCK / (POINTS * self.q)).max(LEAST_TILES);
        // All threads have a block, and blocks are equal.
        let blocks = self.tiles().div_ceil(most).max(threads.div_ceil(self.batch * self.group));
        self.tiles().div_ceil(blocks).next_multiple_of(shape().cols.max(TILES))
    }
}

/// Whether this takes less time than nine products for every result, in cycles for sixteen tiles.
fn pays(window: &Window, (q, o): (usize, usize), tiles: usize) -> bool {
    let (q, o) = (q as f64, o as f64);
    let groups = tiles.div_ceil(TILES) as f64;
    let direct = 9.0 * q * o * window.outputs() as f64 / 32.0;
    let transforms = 60.0 * q + 80.0 * o;
    let products = groups * (8.0 * q * o + transforms);
    // The transformed weights come from afar, eight bytes a cycle.
    let weights = 8.0 * q * o;
    products.max(weights) * 1.15 + transforms < direct
}

/// How a block lies in scratch memory.
#[derive(Clone, Copy)]
struct BlockLayout {
    /// Rows that its tiles lie in, and groups of sixteen tiles that they take.
    rows: usize,
    groups: usize,
    /// Place of the first tile in the first row.
    first: usize,
    /// Elements of a part of the input.
    part: usize,
    /// From one point to the next of the input.
    point: usize,
    /// From one point to the next of the products.
    product: usize,
    /// Of each of the four results of all tiles of a channel.
    result: usize,
}

impl BlockLayout {
    fn new(w: &Winograd, tiles: &Range<usize>) -> BlockLayout {
        let groups = tiles.len().div_ceil(TILES);
        let rows = tiles.end.div_ceil(w.lane) - tiles.start / w.lane;
        BlockLayout {
            rows,
            groups,
            first: tiles.start % w.lane,
            // The last tiles read beyond the last row.
            part: (rows + 1) * w.lane + 2 * TILES,
            point: groups * w.q * TILES + APART,
            product: w.o.min(CHANNELS) * shape().cols + APART,
            result: groups * TILES,
        }
    }

    /// Elements of parts, points, products and results.
    fn lens(&self, o: usize) -> [usize; 4] {
        let channels = o.min(CHANNELS);
        // Lines are read as pairs of vectors.
        let slack = 2 * TILES;
        [
            4 * self.part,
            POINTS * self.point + slack,
            POINTS * self.product,
            channels * 4 * self.result,
        ]
    }
}

impl Launch for Winograd {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, w): (&[f32], &[f32]) = (inputs[0].typed(), inputs[1].typed());
        let (x, w) = (&x[self.x_at..], &w[self.w_at..]);
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let block = |at: usize, part: &mut [f32]| {
            if let Some((epilogue, inputs)) = cx.epilogue {
                epilogue.apply(at, part, inputs);
            }
        };
        let finish = Finish::of(cx, (self.o, self.window.outputs()), &block);
        let out = SharedSlice::new(out);
        let most = self.block(cx.threads.count());
        let blocks = self.tiles().div_ceil(most);
        cx.threads.each(self.batch * self.group * blocks, |task| {
            let (image, first) = (task / blocks, task % blocks * most);
            let tiles = first..(first + most).min(self.tiles());
            let plane = self.window.inputs();
            let block = Block {
                conv: self,
                image,
                layout: BlockLayout::new(self, &tiles),
                tiles,
                x: &x[image * self.q * plane..][..self.q * plane],
                w: &w[image % self.group * self.o * self.q * 9..][..self.o * self.q * 9],
            };
            block.run(&out, &finish);
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn scratch(&self) -> u64 {
        let lens = BlockLayout::new(self, &(0..self.block(1).min(self.tiles()))).lens(self.o);
        lens.iter().fold(0u64, |n, &l| n.saturating_add(4 * l as u64))
    }
}

/// Some tiles of one group of one image.
struct Block<'a> {
    conv: &'a Winograd,
    /// Group of an image, over all.
    image: usize,
    tiles: Range<usize>,
    layout: BlockLayout,
    x: &'a [f32],
    w: &'a [f32],
}

impl Block<'_> {
    fn run(&self, out: &SharedSlice<'_, f32>, finish: &Finish<'_>) {
        let (conv, layout) = (self.conv, self.layout);
        with_scratch::<f32, 4, _>(layout.lens(conv.o), |[parts, points, products, results]| {
            // Every channel fills the same part of it.
            parts.fill(0.0);
            for c in 0..conv.q {
                self.fill_parts(c, parts);
                self.transform_input(c, parts, points);
            }
            for first in (0..conv.o).step_by(self.channels()) {
                let channels = first..(first + self.channels()).min(conv.o);
                let wide = shape().cols / TILES;
                let mut finite = [true; CHANNELS];
                for groups in (0..layout.groups).step_by(wide) {
                    let count = wide.min(layout.groups - groups);
                    self.products(&channels, groups, count, points, products);
                    for c in 0..channels.len() {
                        for g in 0..count {
                            let from = &products[c * shape().cols + g * TILES..];
                            let to = &mut results[c * 4 * layout.result + (groups + g) * TILES..];
                            finite[c] &= transform_output(from, layout.product, to, layout.result);
                        }
                    }
                }
                let results = results.chunks_exact(4 * layout.result).zip(finite);
                for (c, results) in channels.zip(results) {
                    for row in 0..layout.rows {
                        self.finish(c, row, results, out, finish);
                    }
                }
            }
        });
    }

    /// How many output channels are computed at once: whole panels.
    fn channels(&self) -> usize {
        let high = self.weights()[0].rows;
        (CHANNELS / high).max(1) * high
    }

    fn first_row(&self) -> usize {
        self.tiles.start / self.conv.lane
    }

    fn weights(&self) -> &[PackedLeft] {
        &self.conv.weights[self.image % self.conv.group].0
    }

    /// Copies the rows of a channel to the four parts of its rows and columns of each parity; what lies around them stays.
    fn fill_parts(&self, c: usize, parts: &mut [f32]) {
        let Window { from, low, .. } = &self.conv.window;
        let plane = &self.x[c * from[0] * from[1]..][..from[0] * from[1]];
        for (p, part) in parts.chunks_exact_mut(self.layout.part).enumerate() {
            let y = (p / 2) as i64 + 2 * self.first_row() as i64 - low[0];
            let x = (p % 2) as i64 - low[1];
            let rows = every_second_inside(y, from[0], self.layout.rows + 1);
            let columns = every_second_inside(x, from[1], self.conv.lane);
            if rows.is_empty() || columns.is_empty() {
                continue;
            }
            let (y, x) = (y + 2 * rows.start as i64, x + 2 * columns.start as i64);
            let (y, x) = (y as usize, x as usize);
            let to = &mut part[rows.start * self.conv.lane + columns.start..];
            let size = (rows.len(), columns.len());
            copy_lines(&plane[y * from[1] + x..], 2 * from[1], to, self.conv.lane, size, 2);
        }
    }

    /// Transforms the tiles of a channel.
    fn transform_input(&self, c: usize, parts: &[f32], points: &mut [f32]) {
        let layout = self.layout;
        let at = TileParts { part: layout.part, lane: self.conv.lane };
        for g in 0..layout.groups {
            let to = &mut points[(g * self.conv.q + c) * TILES..];
            let from = &parts[layout.first + g * TILES..];
            assert!(from.len() >= 3 * at.part + at.lane + 1 + TILES, "the tiles are inside");
            assert!(to.len() >= (POINTS - 1) * layout.point + TILES, "the points fit");
            let (from, to) = (from.as_ptr(), to.as_mut_ptr());
            match level() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the level was detected on this machine, the assertions bound both operands.
                VectorLevel::V4 => unsafe {
                    vector::avx512::transform_input(from, at, to, layout.point);
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                VectorLevel::V3 => unsafe {
                    vector::avx2::transform_input(from, at, to, layout.point);
                },
                // SAFETY: every machine has this level; otherwise as above.
                _ => unsafe { vector::portable::transform_input(from, at, to, layout.point) },
            }
        }
    }

    /// The products of all points for some channels and `count` groups of tiles from `group` on.
    fn products(
        &self,
        channels: &Range<usize>,
        group: usize,
        count: usize,
        points: &[f32],
        products: &mut [f32],
    ) {
        let (q, wide, lanes) = (self.conv.q, shape().cols, shape().lanes());
        let parts = kernel::parts(0, 0, count * TILES);
        let vectors = count * TILES / lanes;
        let from = |v: usize| {
            let at = v.min(vectors - 1) * lanes;
            (group + at / TILES) * q * TILES + at % TILES
        };
        let from = [from(0), from(1)];
        let out = SharedSlice::new(products);
        for p in 0..POINTS {
            let left = &self.weights()[p];
            for d in (0..q).step_by(block_depth(q)) {
                let depth = d..(d + block_depth(q)).min(q);
                let a = left.block(channels.start, depth.clone());
                let ahead = match p + 1 < POINTS {
                    true => self.weights()[p + 1].upcoming(channels.start, channels.len(), d),
                    false => &[],
                };
                let right = kernel::Right::Lines {
                    data: &points[p * self.layout.point..],
                    lines: &self.conv.lines,
                    first: d,
                    from,
                };
                kernel::each_height(channels.len(), left.rows, |r, panels, rows| {
                    let parts = parts.map(|part| kernel::Part { at: part.at + r * wide, ..part });
                    let target = Target {
                        out: out.at(p * self.layout.product),
                        len: out.len() - p * self.layout.product,
                        parts: &parts[..vectors],
                        stride: wide,
                        row: 0,
                        add: d > 0,
                        chain: &NONE,
                    };
                    let data = &a[r * depth.len()..];
                    let panels = Panels { count: panels, rows, depth: depth.len(), data, ahead };
                    // SAFETY: the products belong to this task, and tiles do not overlap.
                    unsafe { kernel::tiles(panels, right, &target) };
                });
            }
        }
    }

    /// Writes the results of a row of tiles of an output channel, and what follows.
    fn finish(
        &self,
        c: usize,
        row: usize,
        (results, finite): (&[f32], bool),
        out: &SharedSlice<'_, f32>,
        finish: &Finish<'_>,
    ) {
        let conv = self.conv;
        let (to, n) = (&conv.window.to, conv.window.outputs());
        let y = self.first_row() + row;
        // The last tile of each row is none.
        let first = self.tiles.start.max(y * conv.lane);
        let end = self.tiles.end.min((y + 1) * conv.lane - 1);
        if first >= end {
            return;
        }
        let from = 2 * (first - y * conv.lane);
        let wide = (2 * (end - y * conv.lane)).min(to[1]) - from;
        for y in 2 * y..(2 * y + 2).min(to[0]) {
            let place = y * to[1] + from;
            let at = (self.image * conv.o + c) * n + place;
            // SAFETY: tiles of different tasks do not overlap.
            let part = unsafe { out.part(at, wide) };
            let at = y % 2 * 2 * self.layout.result + first - self.tiles.start;
            interleave(&results[at..], &results[at + self.layout.result..], part);
            if !finite {
                self.repair(c, place, part);
            }
            finish.apply((self.image * conv.o + c) * n + place, part, n);
        }
    }

    /// Sums results that are not finite from their windows; `first` is the first one's place in the plane.
    #[cold]
    fn repair(&self, c: usize, first: usize, part: &mut [f32]) {
        let Window { from, to, low, .. } = &self.conv.window;
        let filters = &self.w[c * self.conv.q * 9..][..self.conv.q * 9];
        for (i, v) in part.iter_mut().enumerate().filter(|(_, v)| !v.is_finite()) {
            let (y, x) = ((first + i) / to[1], (first + i) % to[1]);
            *v = 0.0;
            for (filter, plane) in
                filters.chunks_exact(9).zip(self.x.chunks_exact(from[0] * from[1]))
            {
                for (t, w) in filter.iter().enumerate() {
                    let (y, x) = ((y + t / 3) as i64 - low[0], (x + t % 3) as i64 - low[1]);
                    let inside = y >= 0 && x >= 0 && y < from[0] as i64 && x < from[1] as i64;
                    *v += if inside { w * plane[y as usize * from[1] + x as usize] } else { 0.0 };
                }
            }
        }
    }
}

/// The indices in `0..count` whose element, every second from `first` on, is inside `0..extent`.
fn every_second_inside(first: i64, extent: usize, count: usize) -> Range<usize> {
    let at = |position: i64| (position - first + 1).div_euclid(2).clamp(0, count as i64) as usize;
    at(0)..at(extent as i64)
}

/// Transforms the products of sixteen tiles, `stride` apart, to their results, `apart` apart. True if all are finite.
fn transform_output(from: &[f32], stride: usize, to: &mut [f32], apart: usize) -> bool {
    assert!(from.len() >= (POINTS - 1) * stride + TILES, "the points are inside");
    assert!(to.len() >= 3 * apart + TILES, "the results fit");
    let (from, to) = (from.as_ptr(), to.as_mut_ptr());
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected on this machine, the assertions bound both operands.
        VectorLevel::V4 => unsafe { vector::avx512::transform_output(from, stride, to, apart) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        VectorLevel::V3 => unsafe { vector::avx2::transform_output(from, stride, to, apart) },
        // SAFETY: every machine has this level; otherwise as above.
        _ => unsafe { vector::portable::transform_output(from, stride, to, apart) },
    }
}

simd! {
    /// Elements of both in turns.
    fn interleave(even: &[f32], odd: &[f32], line: &mut [f32]) {
        let (pairs, rest) = line.as_chunks_mut::<2>();
        let half = pairs.len();
        pairs.iter_mut().zip(even.iter().zip(odd)).for_each(|(p, (a, b))| *p = [*a, *b]);
        if let [last] = rest {
            *last = even[half];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_pays_with_many_channels_on_large_planes() {
        let pays = |q, o, extent: usize| {
            let to = vec![extent; 2];
            let (size, stride) = (vec![3; 2], vec![1; 2]);
            let w = Window::new(&to, &size, &to, stride.clone(), vec![1; 2], stride);
            let wide = extent.div_ceil(2);
            pays(&w.expect("a window"), (q, o), wide * (wide + 1))
        };
        for (q, o, extent) in [(64, 64, 14), (64, 64, 56), (16, 64, 55), (256, 256, 14)] {
            assert!(pays(q, o, extent), "{q} to {o} channels of {extent}");
        }
        for (q, o, extent) in [(3, 64, 224), (8, 8, 64), (512, 512, 4), (32, 32, 14)] {
            assert!(!pays(q, o, extent), "{q} to {o} channels of {extent}");
        }
    }

    #[test]
    fn every_second_position_that_is_inside() {
        for first in -5..6 {
            for extent in 0..6 {
                for count in 0..6 {
                    let inside = |i: &usize| (0..extent as i64).contains(&(first + 2 * *i as i64));
                    let expected: Vec<usize> = (0..count).filter(inside).collect();
                    let found: Vec<usize> = every_second_inside(first, extent, count).collect();
                    assert_eq!(found, expected, "from {first}, {count} of {extent}");
                }
            }
        }
    }
}
