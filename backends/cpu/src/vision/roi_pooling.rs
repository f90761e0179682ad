//! RoI align: bins are means, or largest products, of bilinear samples (He et al. 2017). f32.
//!
//! Positions and weights are those of the reference, in f64; sums are in f32. Images are read channels last, so that a sample is four rows of
//! channels.

use crate::pointwise::{ElementSource, strided_copy};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelFactory, TensorView};
use mlc_backends::reference::externs::roi_align::{Neighbours, Pooling};
use mlc_dsl::ir::DType;
use mlc_dsl::layout::Layout;
use mlc_vector::simd;

/// Results that a task should at least have.
const GRAIN: usize = 1 << 12;

/// Attributes: rows, columns, ratio, scale, whether middles are at halves, whether the largest product is taken.
pub const ROI_ALIGN: KernelFactory = |spec| {
    let [x, corners, batch] = spec.args else { return None };
    let types = [x.dtype, corners.dtype, batch.dtype, spec.outputs.first()?.0];
    let listed = corners.layout.is_dense() && batch.layout.is_dense();
    if types != [DType::F32, DType::F32, DType::I64, DType::F32] || !listed {
        return None;
    }
    let count = |at| usize::try_from(spec.int(at)?).ok();
    let pooling = Pooling {
        scale: spec.float(3)?,
        ratio: count(2)?,
        half: spec.bool(4)?,
        max: spec.bool(5)?,
    };
    let &[images, channels, h, v] = x.layout.shape.as_slice() else { return None };
    let last = x.layout.transpose(&[0, 2, 3, 1])?;
    Some(Box::new(RoiAlign {
        pooling,
        bins: [count(0)?, count(1)?],
        images,
        channels,
        plane: [h, v],
        source: ElementSource::of(&last)?,
        last,
        at: [corners.layout.offset, batch.layout.offset],
    }))
};

struct RoiAlign {
    pooling: Pooling,
    bins: [usize; 2],
    images: usize,
    channels: usize,
    plane: [usize; 2],
    /// The images with channels last.
    last: Layout,
    source: ElementSource,
    /// Where the corners and the numbers of images begin.
    at: [usize; 2],
}

/// A region's image, and its samples along both sides, bin by bin.
struct Region {
    image: usize,
    ys: Vec<Vec<Neighbours>>,
    xs: Vec<Vec<Neighbours>>,
}

impl Kernel for RoiAlign {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let [x, corners, batch] = inputs else { return Err("three operands are pooled".into()) };
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let size = self.channels * self.bins[0] * self.bins[1];
        if out.is_empty() {
            return Ok(());
        }
        let corners = corners.typed::<f32>()[self.at[0]..].chunks_exact(4);
        let batch = &batch.typed::<i64>()[self.at[1]..][..out.len() / size];
        let regions: Vec<Region> =
            batch.iter().zip(corners).map(|(b, c)| self.region(*b, c)).collect::<Result<_, _>>()?;
        let is_last = self.last.is_dense();
        let copied = if is_last { 0 } else { self.last.len() };
        with_scratch::<f32, 1, _>([copied], |[copy]| {
            let images = match is_last {
                true => &x.typed()[self.last.offset..][..self.last.len()],
                false => {
                    let copy = &mut copy[..copied];
                    cx.threads.chunks(copy, 1, 1 << 16, |at, part| {
                        strided_copy::<f32>(&self.source, x.typed(), at, part);
                    });
                    &copy[..]
                }
            };
            cx.threads.chunks(out, size, GRAIN, |at, part| {
                with_scratch::<f32, 1, _>([size], |[bins]| {
                    for (out, region) in part.chunks_exact_mut(size).zip(&regions[at / size..]) {
                        self.pool(images, region, &mut bins[..size]);
                        turned(&bins[..size], self.channels, out);
                    }
                });
            });
        });
        Ok(())
    }

    fn scratch(&self) -> u64 {
        let bins = self.bins[0].saturating_mul(self.bins[1]).saturating_mul(self.channels);
        4 * (self.last.len() as u64).saturating_add(bins as u64)
    }
}

impl RoiAlign {
    fn region(&self, image: i64, corners: &[f32]) -> Result<Region, String> {
        let image = usize::try_from(image).ok().filter(|&i| i < self.images);
        let image = image.ok_or("a region is in no image")?;
        let place = |i: usize| self.pooling.place(f64::from(corners[i]));
        let along = |from: usize, axis: usize| {
            self.pooling.samples(place(from), place(from + 2), self.bins[axis], self.plane[axis])
        };
        Ok(Region { image, ys: along(1, 0)?, xs: along(0, 1)? })
    }

    /// The bins of a region, each a row of channels.
    fn pool(&self, images: &[f32], region: &Region, bins: &mut [f32]) {
        let ([h, v], c) = (self.plane, self.channels);
        let image = &images[region.image * h * v * c..][..h * v * c];
        let places = region.ys.iter().flat_map(|ys| region.xs.iter().map(move |xs| (ys, xs)));
        for (bin, (ys, xs)) in bins.chunks_exact_mut(c).zip(places) {
            let count = ys.len() * xs.len();
            // The larger of NaN and a number is the number.
            bin.fill(if self.pooling.max && count > 0 { f32::NAN } else { 0.0 });
            for (y, x) in ys.iter().flat_map(|y| xs.iter().map(move |x| (y, x))) {
                let (Some((ys, dy)), Some((xs, dx))) = (y, x) else {
                    if self.pooling.max {
                        bin.iter_mut().for_each(|b| *b = b.max(0.0));
                    }
                    continue;
                };
                let row = |i: usize, j: usize| &image[(ys[i] * v + xs[j]) * c..][..c];
                let weights = [(1.0 - dy) * (1.0 - dx), (1.0 - dy) * dx, dy * (1.0 - dx), dy * dx];
                let weights = weights.map(|w| w as f32);
                let rows = [row(0, 0), row(0, 1), row(1, 0), row(1, 1)];
                match self.pooling.max {
                    true => largest(rows, weights, bin),
                    false => add(rows, weights, bin),
                }
            }
            if !self.pooling.max {
                let count = count.max(1) as f32;
                bin.iter_mut().for_each(|b| *b /= count);
            }
        }
    }
}

simd! {
    fn add(rows: [&[f32]; 4], weights: [f32; 4], to: &mut [f32]) {
        let ([a, b, c, d], [p, q, r, s]) = (rows, weights);
        let rows = a.iter().zip(b).zip(c.iter().zip(d));
        for (to, ((a, b), (c, d))) in to.iter_mut().zip(rows) {
            *to += a * p + b * q + (c * r + d * s);
        }
    }
}

simd! {
    fn largest(rows: [&[f32]; 4], weights: [f32; 4], to: &mut [f32]) {
        for (row, w) in rows.into_iter().zip(weights) {
            for (to, v) in to.iter_mut().zip(row) {
                *to = to.max(v * w);
            }
        }
    }
}

simd! {
    /// Rows of channels as columns.
    fn turned(bins: &[f32], channels: usize, out: &mut [f32]) {
        let n = bins.len() / channels;
        for (c, out) in out.chunks_exact_mut(n).enumerate() {
            for (o, bin) in out.iter_mut().zip(bins.chunks_exact(channels)) {
                *o = bin[c];
            }
        }
    }
}
