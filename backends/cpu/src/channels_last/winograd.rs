//! Convolutions with 3 × 3 taps in four products for every nine: F(2×2, 3×3) of A. Lavin, S. Gray, "Fast algorithms for
//! convolutional neural networks", 2016.
//!
//! Tiles of 4 × 4 inputs that overlap by two are transformed to sixteen points, of which each is a product over the channels,
//! and the products to 2 × 2 results. The real function is the same and its error of the order of that of the sums, relative
//! to the tile. A result that is not finite here is summed again from its own window: infinities, NaN and overflows of
//! the transforms spread no further than they do by definition. An element has the same bits however the tiles are divided.

use super::conv::as_pointers;
use super::windows::Windows;
use crate::buffer::with_scratch;
use crate::gemm::chain::NONE;
use crate::gemm::kernel::{self, Even, PanelLines, Piece, Target, at_level, shape};
use crate::gemm::pack::wide_rows;
use crate::gemm::{Finish, PackedRight};
use crate::launch::{Array, Context, Launch};
use crate::packed_constants::Pack;
use crate::simd::{VectorLevel, level};
use crate::threads::SharedSlice;
use crate::vector;
use crate::vector::winograd::POINTS;
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

/// Filters, transformed: for each point, input by output channels.
pub struct Points(Vec<PackedRight>);

impl Points {
    /// Of `o` × `q` filters of 3 × 3, transformed in f64 and rounded once.
    pub fn new(filters: &[f32], o: usize, q: usize) -> Points {
        let mut points = vec![vec![0f32; o * q]; POINTS];
        for (i, filter) in filters.chunks_exact(9).enumerate() {
            for (p, v) in transform_filter(filter).into_iter().enumerate() {
                points[p][i] = v as f32;
            }
        }
        Points(points.iter().map(|data| PackedRight::of_filters(data, (o, q, 1))).collect())
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

/// True if filters can be transformed without an overflow.
pub fn fits(filters: &[f32]) -> bool {
    filters.iter().all(|w| w.abs() <= LARGEST)
}

/// The tiles of a convolution by `windows`, if these are of 3 × 3 neighbours and this computes it faster.
pub fn tiles(windows: &Windows, (q, o): (usize, usize)) -> Option<Windows> {
    let tiles = windows.tiles_of_four()?;
    pays(tiles.len(), windows.len(), (q, o)).then_some(tiles)
}

/// A convolution with known shapes.
pub struct Winograd {
    windows: Windows,
    /// Tiles of 4 × 4 inputs, one for every 2 × 2 results.
    tiles: Windows,
    q: usize,
    o: usize,
    w_at: usize,
    points: Arc<Pack<Points>>,
    /// What windows read outside of the image.
    zeros: Vec<f32>,
}

impl Winograd {
    pub fn new(
        windows: Windows,
        tiles: Windows,
        (q, o): (usize, usize),
        w_at: usize,
        points: Arc<Pack<Points>>,
    ) -> Winograd {
        Winograd { windows, tiles, q, o, w_at, points, zeros: vec![0.0; q] }
    }

    /// Tiles of a block, of equal ones.
    fn block(&self, threads: usize) -> usize {
        let most = (BLOCK / (POINTS * self.q)).max(LEAST_TILES);
        let blocks = self.tiles.len().div_ceil(most).max(threads);
        self.tiles.len().div_ceil(blocks)
    }
}

/// Whether this takes less time than nine products for every result, in cycles of a core that multiplies two vectors in each.
fn pays(tiles: usize, results: usize, (q, o): (usize, usize)) -> bool {
    let (tiles, results, q, o) = (tiles as f64, results as f64, q as f64, o as f64);
    let direct = results * 9.0 * q * o / 32.0;
    let products = tiles * 16.0 * q * o / 32.0;
    // The transformed weights come from afar, eight bytes a cycle.
    let weights = 8.0 * q * o;
    products.max(weights) * 1.1 + tiles * (8.0 * q + 14.0 * o) < direct
}

impl Launch for Winograd {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, w): (&[f32], &[f32]) = (inputs[0].typed(), inputs[1].typed());
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        assert!(self.windows.reach(self.q) <= x.len(), "windows inside the image");
        let epilogue = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = Finish::of(cx, (self.windows.len(), self.o), &epilogue);
        let out = SharedSlice::new(out);
        let each = self.block(cx.threads.count());
        cx.threads.each(self.tiles.len().div_ceil(each), |task| {
            let tiles = task * each..((task + 1) * each).min(self.tiles.len());
            let w = &w[self.w_at..][..self.o * self.q * 9];
            Block { conv: self, x, w, out: &out, finish: &finish, tiles }.run();
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}

/// Some tiles.
struct Block<'a> {
    conv: &'a Winograd,
    x: &'a [f32],
    w: &'a [f32],
    out: &'a SharedSlice<'a, f32>,
    finish: &'a Finish<'a>,
    tiles: Range<usize>,
}

impl Block<'_> {
    fn run(&self) {
        let (q, wide, count) = (self.conv.q, PANELS * shape().cols, self.tiles.len());
        let (from, to) = (count * q + APART, count * wide + APART);
        with_scratch::<f32, 2, _>([POINTS * from, POINTS * to], |[inputs, products]| {
            self.transform_inputs(&mut inputs[..POINTS * from], from);
            for first in (0..self.conv.o).step_by(wide) {
                let channels = first..(first + wide).min(self.conv.o);
                self.products(&channels, (inputs, from), &mut products[..POINTS * to], to);
                self.transform_products(&channels, products, to);
            }
        });
    }

    fn transform_inputs(&self, inputs: &mut [f32], apart: usize) {
        let (conv, q) = (self.conv, self.conv.q);
        let mut taps = [0usize; POINTS];
        for (i, tile) in self.tiles.clone().enumerate() {
            let taps = as_pointers(&mut taps);
            conv.tiles.point(self.x, &conv.zeros, (tile, 1), 1, taps);
            let taps: &[*const f32; POINTS] = (&*taps).try_into().expect("a tile of four by four");
            let to = &mut inputs[i * q..];
            assert!(to.len() >= (POINTS - 1) * apart + q, "the points fit");
            let to = to.as_mut_ptr();
            at_level!(transform_input(taps, q, to, apart));
        }
    }

    /// The products of all points for some channels.
    fn products(
        &self,
        channels: &Range<usize>,
        (inputs, from): (&[f32], usize),
        products: &mut [f32],
        apart: usize,
    ) {
        let (q, count, stride) = (self.conv.q, self.tiles.len(), PANELS * shape().cols);
        let rows = wide_rows(count, channels.len());
        let panels = kernel::wide_panels(rows);
        let out = SharedSlice::new(products);
        for (p, filters) in self.conv.points.0.iter().enumerate() {
            for columns in kernel::strips(channels.clone(), panels) {
                let (column, wide) = (columns.start, columns.len());
                let vectors = kernel::vectors(wide);
                let b = filters.block(column, 0..q);
                let ahead = match self.conv.points.0.get(p + 1) {
                    Some(next) => next.block(column, 0..q),
                    None => &[],
                };
                let ahead = &ahead[..ahead.len().min(q * wide)];
                kernel::each_height(count, rows, |r, tiles, rows| {
                    let at = p * apart + r * stride + column - channels.start;
                    let parts = kernel::parts(at, 0, wide);
                    let target = Target {
                        out: out.at(0),
                        len: out.len(),
                        parts: &parts[..vectors],
                        stride,
                        row: 0,
                        add: false,
                        chain: &NONE,
                    };
                    let first = inputs[p * from + r * q..].as_ptr();
                    let a = Even { pieces: &[Piece { first, step: q }], length: q };
                    let b = PanelLines::all(b, q);
                    // SAFETY: the transformed tiles are inside the inputs; the products belong to this task, and tiles do not overlap.
                    unsafe { kernel::even((tiles, rows), a, b, ahead, &target) };
                });
            }
        }
    }

    /// Writes the results of some channels, and what follows.
    fn transform_products(&self, channels: &Range<usize>, products: &[f32], apart: usize) {
        let (conv, wide) = (self.conv, PANELS * shape().cols);
        for (i, tile) in self.tiles.clone().enumerate() {
            let results = conv.windows.results_of(&conv.tiles, tile);
            let place = |r: Option<usize>| r.map(|r| r * conv.o + channels.start);
            let to = results.map(|r| match place(r) {
                Some(at) => {
                    assert!(at + channels.len() <= self.out.len(), "results are inside");
                    self.out.at(at)
                }
                None => std::ptr::null_mut(),
            });
            let from = &products[i * wide..];
            assert!(from.len() >= (POINTS - 1) * apart + channels.len(), "the points are inside");
            let from = from.as_ptr();
            let finite = at_level!(transform_output(from, apart, channels.len(), to));
            for r in results.into_iter().flatten() {
                let at = r * conv.o + channels.start;
                // SAFETY: results of different tiles do not overlap.
                let part = unsafe { self.out.part(at, channels.len()) };
                if !finite {
                    self.repair(r, channels, part);
                }
                self.finish.apply(at, part, conv.o);
            }
        }
    }

    /// Sums those channels of a result that are not finite from its window.
    #[cold]
    fn repair(&self, result: usize, channels: &Range<usize>, part: &mut [f32]) {
        let q = self.conv.q;
        let mut taps = [0usize; 9];
        let taps = as_pointers(&mut taps);
        self.conv.windows.point(self.x, &self.conv.zeros, (result, 1), 1, taps);
        for (o, v) in channels.clone().zip(part).filter(|(_, v)| !v.is_finite()) {
            *v = 0.0;
            for (t, tap) in taps.iter().enumerate() {
                // SAFETY: behind every tap are the channels.
                let x = unsafe { std::slice::from_raw_parts(*tap, q) };
                let filter = self.w[o * q * 9..][..q * 9].iter().skip(t).step_by(9);
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
        let pays = |q, o, extent: usize| pays(extent.div_ceil(2).pow(2), extent * extent, (q, o));
        for (q, o, extent) in [(48, 192, 13), (64, 64, 14), (64, 64, 56), (256, 256, 14)] {
            assert!(pays(q, o, extent), "{q} to {o} channels of {extent}");
        }
        for (q, o, extent) in [(3, 64, 224), (8, 8, 64), (512, 512, 4), (32, 32, 56)] {
            assert!(!pays(q, o, extent), "{q} to {o} channels of {extent}");
        }
    }
}
