//! Rust reference of the operator that pools regions of images.

use super::array::Array;
use super::externs::{flag, floats, results};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, Type};

/// How regions are divided and combined.
struct Pooling {
    scale: f64,
    /// Samples along either side of a bin; as many as a bin has elements where it is 0.
    ratio: usize,
    /// Whether places are the middles of elements, so that half an element is subtracted.
    half: bool,
    max: bool,
}

/// One sample: the numbers of the elements around it, and their weights.
type Sample = [(usize, f64); 4];

/// Every region of the images `x[b, c, h, v]`, given by its corners `rois[n, 4]` and the image `batch[n]`, divided into bins `[s, t]`,
/// each the mean, or the largest, of samples on lines between the elements (He et al. 2017), as ONNX defines it.
pub(super) fn roi_align(env: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let ([x, rois, batch], [t]) = (args, types) else {
        return Err("three arguments yield one result".into());
    };
    let (&[images, channels, h, v], Some(shape)) = (x.shape(), t.known_shape()) else {
        return Err("images have four axes".into());
    };
    let [regions, _, rows, columns] = shape[..] else {
        return Err("the result has four axes".into());
    };
    let ratio = env.attr("ratio").and_then(Attr::as_i64).unwrap_or(0);
    let pooling = Pooling {
        scale: env.attr("scale").and_then(Attr::as_f64).ok_or("`scale` is a number")?,
        ratio: usize::try_from(ratio).map_err(|_| "`ratio` is not negative")?,
        half: flag(env, "half"),
        max: flag(env, "max"),
    };
    let (x, corners) = (floats(x)?, floats(rois)?);
    let batch = batch.ints().ok_or("the numbers of images are integers")?;
    let mut y = Vec::with_capacity(regions * channels * rows * columns);
    for (&image, corners) in batch.iter().zip(corners.chunks_exact(4)) {
        let image = usize::try_from(image).ok().filter(|&i| i < images);
        let image = image.ok_or("a region is in no image")?;
        let bins = pooling.bins(corners, (h, v), (rows, columns))?;
        for channel in 0..channels {
            let plane = &x[(image * channels + channel) * h * v..][..h * v];
            y.extend(bins.iter().map(|bin| pooling.value(plane, bin)));
        }
    }
    results(vec![y], types)
}

impl Pooling {
    /// The samples of every bin of a region.
    fn bins(
        &self,
        corners: &[f64],
        (h, v): (usize, usize),
        (rows, columns): (usize, usize),
    ) -> Result<Vec<Vec<Sample>>, String> {
        let shift = if self.half { 0.5 } else { 0.0 };
        let [left, top, right, bottom] = [0, 1, 2, 3].map(|i| corners[i] * self.scale - shift);
        let vertical = self.places(top, bottom, rows)?;
        let horizontal = self.places(left, right, columns)?;
        let bins = vertical.iter().flat_map(|ys| {
            horizontal.iter().map(|xs| {
                let pairs = ys.iter().flat_map(|&y| xs.iter().map(move |&x| (y, x)));
                pairs.map(|(y, x)| sample(y, x, h, v)).collect()
            })
        });
        Ok(bins.collect())
    }

    /// The places of the samples along one side of a region, bin by bin.
    fn places(&self, from: f64, to: f64, bins: usize) -> Result<Vec<Vec<f64>>, String> {
        // Regions without half an element's shift are at least one element wide.
        let extent = if self.half { to - from } else { (to - from).max(1.0) };
        let bin = extent / bins as f64;
        let samples = if self.ratio > 0 { self.ratio } else { bin.ceil().max(0.0) as usize };
        if samples > 1 << 16 {
            return Err(format!("a bin of {bin} elements is too large"));
        }
        let place =
            |b: usize, i: usize| from + b as f64 * bin + (i as f64 + 0.5) * bin / samples as f64;
        Ok((0..bins).map(|b| (0..samples).map(|i| place(b, i)).collect()).collect())
    }

    fn value(&self, plane: &[f64], bin: &[Sample]) -> f64 {
        let terms = |s: &Sample| s.map(|(i, w)| if w == 0.0 { 0.0 } else { w * plane[i] });
        if self.max {
            bin.iter().flat_map(terms).reduce(f64::max).unwrap_or(0.0)
        } else {
            let total: f64 = bin.iter().flat_map(terms).sum();
            total / bin.len().max(1) as f64
        }
    }
}

/// The elements around a place of an image of `h` rows and `v` columns. A place more than one element outside has no weight.
fn sample(y: f64, x: f64, h: usize, v: usize) -> Sample {
    let outside = |p: f64, n: usize| !(-1.0..=n as f64).contains(&p);
    if outside(y, h) || outside(x, v) || h == 0 || v == 0 {
        return [(0, 0.0); 4];
    }
    let ([y0, y1], dy) = neighbours(y, h);
    let ([x0, x1], dx) = neighbours(x, v);
    [
        (y0 * v + x0, (1.0 - dy) * (1.0 - dx)),
        (y0 * v + x1, (1.0 - dy) * dx),
        (y1 * v + x0, dy * (1.0 - dx)),
        (y1 * v + x1, dy * dx),
    ]
}

/// The two elements next to a place along an axis of `n`, and the weight of the second.
fn neighbours(p: f64, n: usize) -> ([usize; 2], f64) {
    let p = p.max(0.0);
    let low = p as usize;
    if low + 1 >= n { ([n - 1, n - 1], 0.0) } else { ([low, low + 1], p - low as f64) }
}
