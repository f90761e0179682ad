//! Normalisations along one axis: softmax and its logarithm, layer and root-mean-square normalisation.
//!
//! Computed in f32 for f32 and the 16-bit floats, which are all that it takes.

use super::axis_last;
use super::softmax_columns::{self, Columns};
use crate::pointwise::{ElementSource, load, store};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use crate::runtime::threads::SharedSlice;
use mlc_dsl::ir::DType;
use mlc_dsl::layout::{Layout, coalesce, odometer};
use mlc_vector::arrays::array;
use mlc_vector::math;
use mlc_vector::norms::{Centre, RowNorm, normalised};
use mlc_vector::rows::{exponentials, largest};
use mlc_vector::simd;
use mlc_vector::transpose::{LINES, transpose_lines};
use std::ops::Range;

/// Which function of a row.
#[derive(Clone, Copy, Debug)]
enum Norm {
    Softmax,
    LogSoftmax,
    Layer(f32),
    RootMeanSquare(f32),
}

/// Softmax along the axis of attribute 0.
pub const SOFTMAX: KernelFactory = |s| columns_or_rows(s, Columns::Softmax, Norm::Softmax);
/// Its logarithm.
pub const LOG_SOFTMAX: KernelFactory = |s| columns_or_rows(s, Columns::Logarithm, Norm::LogSoftmax);
/// Layer normalisation of the last axis; attribute 0 is epsilon.
pub const LAYER: KernelFactory = |s| make(s, Norm::Layer(s.float(0)? as f32), s.last_axis()?);
/// Root-mean-square normalisation of the last axis; attribute 0 is epsilon.
pub const ROOT_MEAN_SQUARE: KernelFactory =
    |s| make(s, Norm::RootMeanSquare(s.float(0)? as f32), s.last_axis()?);

impl KernelSpec<'_> {
    fn sizes_of_axis(&self) -> Option<usize> {
        usize::try_from(self.int(0)?).ok()
    }

    fn last_axis(&self) -> Option<usize> {
        self.args.first()?.layout.rank().checked_sub(1)
    }
}

fn columns_or_rows(spec: &KernelSpec<'_>, of: Columns, norm: Norm) -> Option<Box<dyn Kernel>> {
    let axis = spec.sizes_of_axis()?;
    let columns = match spec.same_dtype()? {
        DType::F32 => softmax_columns::make(of, &spec.args.first()?.layout, axis),
        _ => None,
    };
    columns.or_else(|| make(spec, norm, axis))
}

struct Rows {
    norm: Norm,
    dtype: DType,
    source: ElementSource,
    beside: Option<Beside>,
    /// Sources of gain and offset.
    params: Vec<ElementSource>,
    n: usize,
    /// Elements between neighbours of a row in the result.
    inner: usize,
}

fn make(spec: &KernelSpec<'_>, norm: Norm, axis: usize) -> Option<Box<dyn Kernel>> {
    let dtype = spec.same_dtype()?;
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        return None;
    }
    let x = &spec.args.first()?.layout;
    let n = *x.shape.get(axis)?;
    let inner = x.shape[axis + 1..].iter().product();
    let rows = axis_last(x, axis)?;
    let source = ElementSource::of(&rows)?;
    let beside = (dtype == DType::F32).then(|| Beside::of(&rows)).flatten();
    let params: Vec<ElementSource> =
        spec.args[1..].iter().map(|a| ElementSource::of(&a.layout)).collect::<Option<_>>()?;
    let wanted = match norm {
        Norm::Softmax | Norm::LogSoftmax => 0,
        Norm::Layer(_) => 2,
        Norm::RootMeanSquare(_) => 1,
    };
    (params.len() == wanted).then(|| {
        Box::new(Rows { norm, dtype, source, beside, params, n, inner }) as Box<dyn Kernel>
    })
}

simd! {
    /// `out` is the softmax of row `x`, or its logarithm.
    fn row(norm: Norm, x: &[f32], out: &mut [f32]) {
        let high = largest(x);
        let sum = exponentials(out, x, high);
        match norm {
            Norm::LogSoftmax => {
                let log = math::log(sum);
                out.iter_mut().zip(x).for_each(|(o, &x)| *o = x - high - log);
            }
            _ => {
                // Without NaN, which makes every result NaN anyway.
                let scale = 1.0 / sum;
                out.iter_mut().for_each(|o| *o *= scale);
            }
        }
    }
}

/// Normalises dense rows.
fn dense_rows(norm: Norm, x: &[f32], g: &[f32], z: &[f32], out: &mut [f32]) {
    let n = g.len();
    let x = &x[..out.len()];
    let (centre, eps) = match norm {
        Norm::Layer(eps) => (Centre::Mean, eps),
        Norm::RootMeanSquare(eps) => (Centre::Zero, eps),
        Norm::Softmax | Norm::LogSoftmax => {
            let lines = out.chunks_exact_mut(n).zip(x.chunks_exact(n));
            return lines.for_each(|(out, x)| row(norm, x, out));
        }
    };
    normalised(RowNorm { centre, eps, gain: g, offset: z }, x, out);
}

/// Elements of rows that are brought together before they are normalised.
const BLOCK: usize = 8192;

impl Kernel for Rows {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let n = self.n;
        let count = outputs[0].len() / self.dtype.size().max(1) / n.max(1);
        if count == 0 || n == 0 {
            return Ok(());
        }
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
            cx.threads.each(count.div_ceil(step), |t| {
                let rows = t * step..((t + 1) * step).min(count);
                if let (ElementSource::Dense(o), DType::F32, 1) =
                    (&self.source, self.dtype, self.inner)
                {
                    // SAFETY: every row is written by one task.
                    let out = unsafe { shared.part(rows.start * n * 4, rows.len() * n * 4) };
                    let x: &[f32] = &bytemuck::cast_slice(inputs[0].bytes)[o + rows.start * n..];
                    return dense_rows(self.norm, x, g, z, bytemuck::cast_slice_mut(out));
                }
                self.gathered(rows, inputs[0].bytes, g, z, &shared);
            });
        });
        Ok(())
    }
}

impl Rows {
    /// Rows that do not lie one after the other, or that are not f32.
    fn gathered(
        &self,
        rows: Range<usize>,
        bytes: &[u8],
        g: &[f32],
        z: &[f32],
        out: &SharedSlice<'_, u8>,
    ) {
        let (n, size) = (self.n, self.dtype.size());
        let together = (BLOCK / n).clamp(1, rows.len());
        let words = (together * n).div_ceil(2);
        with_scratch::<u64, 2, _>([words, words], |[held, result]| {
            for first in rows.clone().step_by(together) {
                let many = together.min(rows.end - first);
                let len = many * n;
                match &self.beside {
                    Some(beside) => {
                        let held = &mut bytemuck::cast_slice_mut(held)[..len];
                        beside.fill(bytemuck::cast_slice(bytes), first, n, held);
                    }
                    None => load(&self.source, self.dtype, bytes, first * n, held, len),
                }
                let x: &[f32] = bytemuck::cast_slice(held);
                let y = &mut bytemuck::cast_slice_mut(result)[..len];
                dense_rows(self.norm, x, g, z, y);
                if self.inner == 1 {
                    // SAFETY: every row is written by one task.
                    let to = unsafe { out.part(first * n * size, len * size) };
                    store(self.dtype, result, to, len);
                    continue;
                }
                let values: &[f32] = bytemuck::cast_slice(result);
                for (r, values) in (first..).zip(values[..len].chunks_exact(n)) {
                    self.scatter(r, values, out);
                }
            }
        });
    }

    /// Writes row `r` of results that are not neighbours.
    fn scatter(&self, r: usize, values: &[f32], out: &SharedSlice<'_, u8>) {
        let (n, size) = (self.n, self.dtype.size());
        let first = r / self.inner * n * self.inner + r % self.inner;
        for (j, &v) in values.iter().enumerate() {
            let mut word = [0u64];
            bytemuck::cast_slice_mut(&mut word)[0] = v;
            // SAFETY: every element belongs to one row.
            let at = unsafe { out.part((first + j * self.inner) * size, size) };
            store(self.dtype, &word, at, 1);
        }
    }
}

/// Rows of f32 whose neighbours in the memory are those of the next row.
struct Beside {
    offset: usize,
    /// Rows that are neighbours, and where each run of them begins.
    run: usize,
    starts: Vec<isize>,
    /// From one element of a row to the next.
    step: isize,
}

impl Beside {
    /// None for rows that lie otherwise, or none.
    fn of(x: &Layout) -> Option<Beside> {
        let last = x.rank().checked_sub(1)?;
        let merged = coalesce(&x.shape[..last], &[&x.strides[..last]]);
        let (&run, outer) = merged.shape.split_last()?;
        if merged.strides[0].last() != Some(&1) || run < LINES || x.strides[last] == 1 {
            return None;
        }
        let mut starts = Vec::new();
        let strides = &merged.strides[0][..outer.len()];
        // Counted from the lowest, which is the offset where strides are not negative.
        strides.iter().all(|s| *s >= 0).then_some(())?;
        odometer(outer, [strides], [0], |[at]| starts.push(at as isize));
        Some(Beside { offset: x.offset, run, starts, step: x.strides[last] })
    }

    /// Elements of whole rows of `n`, from row `first` on.
    fn fill(&self, x: &[f32], first: usize, n: usize, out: &mut [f32]) {
        let (mut row, mut out) = (first, out);
        while !out.is_empty() {
            let many = (self.run - row % self.run).min(out.len() / n);
            let (part, rest) = out.split_at_mut(many * n);
            let start = self.offset as isize + self.starts[row / self.run];
            let start = start + (row % self.run) as isize;
            let line = |k: usize| &x[(start + k as isize * self.step) as usize..][..many];
            let whole = n / LINES * LINES;
            for k in (0..whole).step_by(LINES) {
                transpose_lines(array(|j| line(k + j)), many, &mut part[k..], n);
            }
            for k in whole..n {
                part[k..].iter_mut().step_by(n).zip(line(k)).for_each(|(o, &v)| *o = v);
            }
            (row, out) = (row + many, rest);
        }
    }
}
