//! Rust reference of RoI align.

use super::super::array::Array;
use super::{flag, floats, results};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, Type};

/// How regions are divided and combined.
pub struct Pooling {
    /// Elements per unit of the coordinates.
    pub scale: f64,
    /// Samples along either side of a bin; as many as a bin has elements where it is 0.
    pub ratio: usize,
    /// Whether places are the middles of elements, so that half an element is subtracted.
    pub half: bool,
    /// Whether the largest sample counts, instead of the mean.
    pub max: bool,
}

/// The two elements next to a place along an axis, and the weight of the second; `None` for a place more than one element
/// outside.
pub type Neighbours = Option<([usize; 2], f64)>;

/// The most samples along one side of a bin.
const MOST_SAMPLES: usize = 1 << 12;

/// Every region of the images `x[b, c, h, v]`, given by its corners `rois[n, 4]` and the image `batch[n]`, divided into bins `[s, t]`,
/// each the mean, or the largest, of samples on lines between the elements (He et al. 2017), as ONNX defines it.
pub(crate) fn pool_regions(
    env: &Env,
    args: &[Array],
    types: &[Type],
) -> Result<Vec<Array>, String> {
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
        let [left, top, right, bottom] = [0, 1, 2, 3].map(|i| pooling.place(corners[i]));
        let vertical = pooling.samples(top, bottom, rows, h)?;
        let horizontal = pooling.samples(left, right, columns, v)?;
        for channel in 0..channels {
            let plane = &x[(image * channels + channel) * h * v..][..h * v];
            for ys in &vertical {
                y.extend(horizontal.iter().map(|xs| pooling.value(plane, v, ys, xs)));
            }
        }
    }
    results(vec![y], types)
}

impl Pooling {
    /// A coordinate of a corner as a place among elements.
    pub fn place(&self, corner: f64) -> f64 {
        corner * self.scale - if self.half { 0.5 } else { 0.0 }
    }

    /// The samples along one side of a region, bin by bin, on an axis of `n` elements.
    pub fn samples(
        &self,
        from: f64,
        to: f64,
        bins: usize,
        n: usize,
    ) -> Result<Vec<Vec<Neighbours>>, String> {
        // Regions without half an element's shift are at least one element wide.
        let extent = if self.half { to - from } else { (to - from).max(1.0) };
        let bin = extent / bins as f64;
        let count = if self.ratio > 0 { self.ratio } else { bin.ceil().max(0.0) as usize };
        if count > MOST_SAMPLES {
            return Err(format!("a bin has {count} samples, more than {MOST_SAMPLES}"));
        }
        let place =
            |b: usize, i: usize| from + b as f64 * bin + (i as f64 + 0.5) * bin / count as f64;
        let of = |b: usize| (0..count).map(|i| neighbours(place(b, i), n)).collect();
        Ok((0..bins).map(of).collect())
    }

    /// One bin of an image of `v` columns.
    fn value(&self, plane: &[f64], v: usize, ys: &[Neighbours], xs: &[Neighbours]) -> f64 {
        let pairs = ys.iter().flat_map(|y| xs.iter().map(move |x| (y, x)));
        let terms = pairs.flat_map(|pair| match pair {
            (Some((ys, dy)), Some((xs, dx))) => {
                let at = |i: usize, j: usize, w: f64| w * plane[ys[i] * v + xs[j]];
                [
                    at(0, 0, (1.0 - dy) * (1.0 - dx)),
                    at(0, 1, (1.0 - dy) * dx),
                    at(1, 0, dy * (1.0 - dx)),
                    at(1, 1, dy * dx),
                ]
            }
            _ => [0.0; 4],
        });
        match self.max {
            true => terms.reduce(f64::max).unwrap_or(0.0),
            false => terms.sum::<f64>() / (ys.len() * xs.len()).max(1) as f64,
        }
    }
}

fn neighbours(p: f64, n: usize) -> Neighbours {
    if n == 0 || !(-1.0..=n as f64).contains(&p) {
        return None;
    }
    let p = p.max(0.0);
    let low = p as usize;
    Some(if low + 1 >= n { ([n - 1, n - 1], 0.0) } else { ([low, low + 1], p - low as f64) })
}
