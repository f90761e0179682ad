//! Normalisations along one axis: softmax and its logarithm, layer and root-mean-square normalisation.
//!
//! Computed in f32 for f32 and the 16-bit floats, which are all that it takes.

use super::buffer::with_scratch;
use super::launch::{Array, Context, Launch, LaunchSite, Maker};
use super::math;
use super::pointwise::{ElementSource, load, store};
use super::reduce::axis_last;
use super::simd::{fold, simd};
use super::softmax_columns::{self, Columns};
use super::threads::SharedSlice;
use super::vector::rows::{exponentials, largest};
use mlc_dsl::ir::DType;

/// Which function of a row.
#[derive(Clone, Copy, Debug)]
enum Norm {
    Softmax,
    LogSoftmax,
    Layer(f32),
    RootMeanSquare(f32),
}

/// Softmax along the axis of attribute 0.
pub const SOFTMAX: Maker = |s| columns_or_rows(s, Columns::Softmax, Norm::Softmax);
/// Its logarithm.
pub const LOG_SOFTMAX: Maker = |s| columns_or_rows(s, Columns::Logarithm, Norm::LogSoftmax);
/// Layer normalisation of the last axis; attribute 0 is epsilon.
pub const LAYER: Maker = |s| make(s, Norm::Layer(s.float(0)? as f32), s.last_axis()?);
/// Root-mean-square normalisation of the last axis; attribute 0 is epsilon.
pub const ROOT_MEAN_SQUARE: Maker =
    |s| make(s, Norm::RootMeanSquare(s.float(0)? as f32), s.last_axis()?);

impl LaunchSite<'_> {
    fn sizes_of_axis(&self) -> Option<usize> {
        usize::try_from(self.int(0)?).ok()
    }

    fn last_axis(&self) -> Option<usize> {
        self.args.first()?.layout.rank().checked_sub(1)
    }
}

fn columns_or_rows(site: &LaunchSite<'_>, of: Columns, norm: Norm) -> Option<Box<dyn Launch>> {
    let axis = site.sizes_of_axis()?;
    let columns = match site.same_dtype()? {
        DType::F32 => softmax_columns::make(of, &site.args.first()?.layout, axis),
        _ => None,
    };
    columns.or_else(|| make(site, norm, axis))
}

struct Rows {
    norm: Norm,
    dtype: DType,
    source: ElementSource,
    /// Sources of gain and offset.
    params: Vec<ElementSource>,
    n: usize,
    /// Elements between neighbours of a row in the result.
    inner: usize,
}

fn make(site: &LaunchSite<'_>, norm: Norm, axis: usize) -> Option<Box<dyn Launch>> {
    let dtype = site.same_dtype()?;
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        return None;
    }
    let x = &site.args.first()?.layout;
    let n = *x.shape.get(axis)?;
    let inner = x.shape[axis + 1..].iter().product();
    let source = ElementSource::of(&axis_last(x, axis)?)?;
    let params: Vec<ElementSource> =
        site.args[1..].iter().map(|a| ElementSource::of(&a.layout)).collect::<Option<_>>()?;
    let wanted = match norm {
        Norm::Softmax | Norm::LogSoftmax => 0,
        Norm::Layer(_) => 2,
        Norm::RootMeanSquare(_) => 1,
    };
    (params.len() == wanted)
        .then(|| Box::new(Rows { norm, dtype, source, params, n, inner }) as Box<dyn Launch>)
}

/// Lanes of the sums.
const LANES: usize = 32;

simd! {
    /// `out` is the norm of row `x` with gain `g` and offset `z`.
    fn row(norm: Norm, x: &[f32], g: &[f32], z: &[f32], out: &mut [f32]) {
        match norm {
            Norm::Softmax => {
                // Without NaN, which makes every result NaN anyway.
                let scale = 1.0 / exponentials(out, x, largest(x));
                out.iter_mut().for_each(|o| *o *= scale);
            }
            Norm::LogSoftmax => {
                let high = largest(x);
                let log = math::log(exponentials(out, x, high));
                out.iter_mut().zip(x).for_each(|(o, &x)| *o = x - high - log);
            }
            Norm::Layer(_) | Norm::RootMeanSquare(_) => normalised(norm, x, g, z, out),
        }
    }
}

/// Rows that are normalised together.
const ROWS: usize = 8;
/// The elements of rows that gain from it: the sums of longer ones fill a processor alone.
const SHORT: usize = 512;

simd! {
    /// Layer and root-mean-square norms of at most [`ROWS`] rows, step by step for all of them: a row's sums need not wait for those
    /// of the one before.
    fn normalised(norm: Norm, x: &[f32], g: &[f32], z: &[f32], out: &mut [f32]) {
        let n = g.len();
        let add = |a: f32, b: f32| a + b;
        let (mut means, mut scales) = ([0.0; ROWS], [0.0; ROWS]);
        if let Norm::Layer(_) = norm {
            for (mean, x) in means.iter_mut().zip(x.chunks_exact(n)) {
                *mean = fold::<LANES>(x, 0.0, add, add);
            }
            means.iter_mut().for_each(|mean| *mean /= n as f32);
        }
        for ((scale, &mean), x) in scales.iter_mut().zip(&means).zip(x.chunks_exact(n)) {
            *scale = fold::<LANES>(x, 0.0, |a, v| (v - mean).mul_add(v - mean, a), add);
        }
        let (Norm::Layer(eps) | Norm::RootMeanSquare(eps)) = norm else { return };
        scales.iter_mut().for_each(|s| *s = 1.0 / (*s / n as f32 + eps).sqrt());
        let rows = out.chunks_exact_mut(n).zip(x.chunks_exact(n)).zip(means.iter().zip(&scales));
        for ((out, x), (&mean, &scale)) in rows {
            if let Norm::Layer(_) = norm {
                for (((o, &x), &g), &z) in out.iter_mut().zip(x).zip(g).zip(z) {
                    *o = ((x - mean) * scale).mul_add(g, z);
                }
            } else {
                out.iter_mut().zip(x).zip(g).for_each(|((o, &x), &g)| *o = x * scale * g);
            }
        }
    }
}

/// Normalises dense rows.
fn dense_rows(norm: Norm, x: &[f32], g: &[f32], z: &[f32], out: &mut [f32]) {
    let n = g.len();
    let together = match norm {
        Norm::Layer(_) | Norm::RootMeanSquare(_) if n <= SHORT => ROWS * n,
        _ => n,
    };
    let x = &x[..out.len()];
    let lines = out.chunks_mut(together).zip(x.chunks(together));
    match norm {
        Norm::Layer(_) | Norm::RootMeanSquare(_) => {
            lines.for_each(|(out, x)| normalised(norm, x, g, z, out));
        }
        Norm::Softmax | Norm::LogSoftmax => lines.for_each(|(out, x)| row(norm, x, g, z, out)),
    }
}

impl Launch for Rows {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let n = self.n;
        let size = self.dtype.size();
        let count = outputs[0].len() / size.max(1) / n.max(1);
        let words = n.div_ceil(2);
        with_scratch::<u64, 2, _>([words, words], |[g, z]| {
            for ((p, input), dst) in self.params.iter().zip(&inputs[1..]).zip([&mut *g, &mut *z]) {
                load(p, self.dtype, input.bytes, 0, dst, n);
            }
            let (g, z): (&[f32], &[f32]) =
                (&bytemuck::cast_slice(g)[..n], &bytemuck::cast_slice(z)[..n]);
            let shared = SharedSlice::new(outputs[0]);
            let tasks = (count * n / (1 << 14)).clamp(1, cx.threads.count() * 4);
            let step = count.div_ceil(tasks).max(1);
            let plain = self.dtype == DType::F32 && self.inner == 1 && n > 0;
            cx.threads.each(count.div_ceil(step), |t| {
                if let (ElementSource::Dense(o), true) = (&self.source, plain) {
                    let rows = t * step..((t + 1) * step).min(count);
                    // SAFETY: every row is written by one task.
                    let out = unsafe { shared.part(rows.start * n * 4, rows.len() * n * 4) };
                    let x: &[f32] = &bytemuck::cast_slice(inputs[0].bytes)[o + rows.start * n..];
                    return dense_rows(self.norm, x, g, z, bytemuck::cast_slice_mut(out));
                }
                for r in t * step..((t + 1) * step).min(count) {
                    self.one(r, inputs[0].bytes, g, z, &shared);
                }
            });
        });
        Ok(())
    }
}

impl Rows {
    fn one(&self, r: usize, bytes: &[u8], g: &[f32], z: &[f32], out: &SharedSlice<'_, u8>) {
        let (n, size) = (self.n, self.dtype.size());
        let plain = self.dtype == DType::F32;
        let words = n.div_ceil(2);
        with_scratch::<u64, 2, _>([words, words], |[held, result]| {
            let x: &[f32] = match self.source {
                ElementSource::Dense(o) if plain => &bytemuck::cast_slice(bytes)[o + r * n..][..n],
                _ => {
                    load(&self.source, self.dtype, bytes, r * n, held, n);
                    &bytemuck::cast_slice(held)[..n]
                }
            };
            if self.inner == 1 && plain {
                // SAFETY: every row is written by one task.
                let line = unsafe { out.part(r * n * size, n * size) };
                return row(self.norm, x, g, z, bytemuck::cast_slice_mut(line));
            }
            row(self.norm, x, g, z, &mut bytemuck::cast_slice_mut(result)[..n]);
            if self.inner == 1 {
                // SAFETY: every row is written by one task.
                store(self.dtype, result, unsafe { out.part(r * n * size, n * size) }, n);
                return;
            }
            let values: &[f32] = bytemuck::cast_slice(result);
            let first = r / self.inner * n * self.inner + r % self.inner;
            for (j, &v) in values[..n].iter().enumerate() {
                let mut word = [0u64];
                bytemuck::cast_slice_mut(&mut word)[0] = v;
                // SAFETY: every element belongs to one row.
                let at = unsafe { out.part((first + j * self.inner) * size, size) };
                store(self.dtype, &word, at, 1);
            }
        });
    }
}
