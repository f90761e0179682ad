//! Data movement: concat, pad, triangle; and cumulative sums.

pub(crate) mod argsort;
pub(crate) mod gather;
pub(crate) mod row_copy;
pub(crate) mod scatter;
pub(crate) mod weighted_gather;

use super::pointwise::convert::by_size;
use super::pointwise::{ElementSource, strided_copy};
use super::runtime::buffer::with_scratch;
use super::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use mlc_dsl::ir::DType;
use mlc_dsl::layout::{Layout, PerAxis, coalesce, odometer};
use mlc_vector::simd;

/// Elements that a task should at least have.
const GRAIN: usize = 1 << 15;

/// The axis that an operator's first attribute is.
pub fn axis_of(spec: &KernelSpec<'_>) -> Option<usize> {
    usize::try_from(spec.int(0)?).ok()
}

struct Concat {
    dtype: DType,
    /// Each part's source and its elements per outer index.
    parts: Vec<(ElementSource, usize)>,
}

/// Prepares a concatenation.
pub fn concat(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let axis = axis_of(spec)?;
    let parts = spec
        .args
        .iter()
        .map(|a| {
            let run = a.layout.shape.get(axis..)?.iter().product();
            Some((ElementSource::of(&a.layout)?, run))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Box::new(Concat { dtype: spec.args.first()?.dtype, parts }))
}

/// Elements of a part's run that are worth a copy of their own.
const RUN: usize = 32;
/// Elements of short runs that are put in place together.
const TOGETHER: usize = 4096;

impl Kernel for Concat {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let whole: usize = self.parts.iter().map(|p| p.1).sum();
        let short = self.parts.iter().any(|p| p.1 < RUN) && whole <= TOGETHER;
        macro_rules! go {
            ($t:ty) => {{
                let out: &mut [$t] = bytemuck::cast_slice_mut(outputs[0]);
                cx.threads.chunks(out, whole, GRAIN, |at, part| {
                    if short {
                        return self.short::<$t>(at / whole, whole, inputs, part);
                    }
                    for (r, line) in part.chunks_exact_mut(whole.max(1)).enumerate() {
                        let row = at / whole + r;
                        let mut done = 0;
                        for ((source, run), input) in self.parts.iter().zip(inputs) {
                            let line = &mut line[done..done + run];
                            strided_copy::<$t>(source, input.typed(), row * run, line);
                            done += run;
                        }
                    }
                });
            }};
        }
        by_size!(self.dtype, go);
        Ok(())
    }
}

impl Concat {
    /// Lines of short runs from line `first` on, part by part.
    fn short<T: bytemuck::Pod>(
        &self,
        first: usize,
        whole: usize,
        inputs: &[TensorView<'_>],
        out: &mut [T],
    ) {
        let most = TOGETHER / whole.max(1);
        let widest = self.parts.iter().map(|p| p.1).max().unwrap_or(0);
        with_scratch::<T, 1, _>([most * widest], |[held]| {
            for (i, lines) in out.chunks_mut((most * whole).max(1)).enumerate() {
                let (row, mut done) = (first + i * most, 0);
                for ((source, run), input) in self.parts.iter().zip(inputs) {
                    let (from, len) = (row * run, lines.len() / whole * run);
                    let x: &[T] = input.typed();
                    let x = match source {
                        ElementSource::Dense(o) => &x[o + from..][..len],
                        _ => {
                            strided_copy(source, x, from, &mut held[..len]);
                            &held[..len]
                        }
                    };
                    scatter_runs(x, *run, &mut lines[..], whole, done);
                    done += run;
                }
            }
        });
    }
}

/// Puts the runs of `x` at place `at` of each line of `whole` elements.
fn scatter_runs<T: bytemuck::Pod>(x: &[T], run: usize, out: &mut [T], whole: usize, at: usize) {
    macro_rules! known {
        ($run:literal, $whole:literal) => {{
            let lines = out.as_chunks_mut::<$whole>().0.iter_mut();
            lines.zip(x.as_chunks::<$run>().0).for_each(|(line, x)| {
                if let Some(to) = line[at..].first_chunk_mut::<$run>() {
                    *to = *x;
                }
            });
        }};
        ($run:literal) => {{
            let lines = out.chunks_exact_mut(whole);
            lines.zip(x.as_chunks::<$run>().0).for_each(|(line, x)| {
                if let Some(to) = line[at..].first_chunk_mut::<$run>() {
                    *to = *x;
                }
            });
        }};
    }
    match (run, whole) {
        (0, _) => {}
        (1, 2) => known!(1, 2),
        (1, 3) => known!(1, 3),
        (1, 4) => known!(1, 4),
        (2, 4) => known!(2, 4),
        (4, 8) => known!(4, 8),
        (1, _) => known!(1),
        (2, _) => known!(2),
        (4, _) => known!(4),
        (8, _) => known!(8),
        _ => {
            let lines = out.chunks_exact_mut(whole).zip(x.chunks_exact(run));
            lines.for_each(|(line, x)| line[at..at + run].copy_from_slice(x));
        }
    }
}

/// Writes parts to memory that holds other elements, too.
pub struct Append {
    pub dtype: DType,
    /// Where each part goes.
    pub to: Vec<Layout>,
}

impl Kernel for Append {
    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        macro_rules! go {
            ($t:ty) => {{
                let out: &mut [$t] = bytemuck::cast_slice_mut(outputs[0]);
                for (input, to) in inputs.iter().zip(&self.to) {
                    moved::<$t>(input.typed(), input.layout, out, to);
                }
            }};
        }
        by_size!(self.dtype, go);
        Ok(())
    }
}

/// Copies elements from one layout to another of the same shape.
fn moved<T: bytemuck::Pod>(x: &[T], from: &Layout, out: &mut [T], to: &Layout) {
    if from.is_empty() {
        return;
    }
    let same = coalesce(&from.shape, &[&from.strides, &to.strides]);
    let (inner, outer) = same.shape.split_last().map_or((1, &[][..]), |(n, outer)| (*n, outer));
    let step = |i: usize| same.strides[i].last().copied().unwrap_or(1);
    let (a, b) = (step(0), step(1));
    let strides = [0, 1].map(|i| &same.strides[i][..outer.len()]);
    odometer(outer, strides, [from.offset, to.offset], |[from, to]| {
        if a == 1 && b == 1 {
            return out[to..to + inner].copy_from_slice(&x[from..from + inner]);
        }
        for i in 0..inner as isize {
            out[(to as isize + i * b) as usize] = x[(from as isize + i * a) as usize];
        }
    });
}

struct Pad {
    dtype: DType,
    shape: PerAxis<usize>,
    /// The part of `x` that is seen, and where it begins in the result.
    seen: Layout,
    to: Layout,
}

/// Prepares a padding; negative widths cut.
pub fn pad(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x, _] = spec.args else { return None };
    let low = spec.ints(0)?;
    let shape = spec.outputs[0].1.clone();
    let rank = shape.len();
    if low.len() != rank || x.layout.rank() != rank {
        return None;
    }
    let (mut start, mut size, mut begin) = (vec![], vec![], vec![]);
    for i in 0..rank {
        let (d, n) = (x.layout.shape[i] as i64, shape[i] as i64);
        let (from, to) = ((-low[i]).max(0), low[i].max(0));
        start.push(from);
        begin.push(to);
        size.push((d - from).min(n - to).max(0));
    }
    let step = vec![1; rank];
    if size.contains(&0) {
        start = vec![0; rank];
        begin = vec![0; rank];
        size = vec![0; rank];
    }
    let seen = x.layout.slice(&start, &size, &step)?;
    let to = Layout::dense(&shape).slice(&begin, &size, &step)?;
    Some(Box::new(Pad { dtype: x.dtype, shape, seen, to }))
}

impl Kernel for Pad {
    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let offset = inputs[1].layout.offset;
        let rank = self.shape.len();
        let (outer, inner) = self.seen.shape.split_at(rank.saturating_sub(1));
        let n = inner.first().copied().unwrap_or(1);
        let step = self.seen.strides.last().copied().unwrap_or(1);
        macro_rules! go {
            ($t:ty) => {{
                let x: &[$t] = inputs[0].typed();
                let out: &mut [$t] = bytemuck::cast_slice_mut(outputs[0]);
                if !out.is_empty() {
                    out.fill(inputs[1].typed::<$t>()[offset]);
                }
                if n > 0 {
                    let strides =
                        [&self.seen.strides[..outer.len()], &self.to.strides[..outer.len()]];
                    odometer(outer, strides, [self.seen.offset, self.to.offset], |[from, to]| {
                        let line = &mut out[to..to + n];
                        if step == 1 {
                            line.copy_from_slice(&x[from..from + n]);
                            return;
                        }
                        for (i, o) in line.iter_mut().enumerate() {
                            *o = x[(from as isize + i as isize * step) as usize];
                        }
                    });
                }
            }};
        }
        by_size!(self.dtype, go);
        Ok(())
    }
}

struct Triangle {
    dtype: DType,
    at: usize,
    rows: usize,
    cols: usize,
    diagonal: i64,
    upper: bool,
}

/// Prepares the triangle of matrices.
pub fn triangle(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let x = &spec.args.first()?.layout;
    let [.., rows, cols] = *x.shape.as_slice() else { return None };
    let (dtype, at) = (spec.same_dtype()?, x.offset);
    let (diagonal, upper) = (spec.int(0)?, spec.bool(1)?);
    x.is_dense()
        .then(|| Box::new(Triangle { dtype, at, rows, cols, diagonal, upper }) as Box<dyn Kernel>)
}

impl Kernel for Triangle {
    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        macro_rules! go {
            ($t:ty) => {{
                let out: &mut [$t] = bytemuck::cast_slice_mut(outputs[0]);
                let x: &[$t] = &inputs[0].typed()[self.at..];
                for (r, line) in out.chunks_exact_mut(self.cols.max(1)).enumerate() {
                    let x = &x[r * self.cols..][..self.cols];
                    let edge = self.diagonal.saturating_add((r % self.rows.max(1)) as i64);
                    // An upper triangle keeps what comes from the diagonal on, a lower one what comes up to it.
                    let edge = if self.upper { edge } else { edge.saturating_add(1) };
                    let edge = edge.clamp(0, self.cols as i64) as usize;
                    let (kept, gone) = if self.upper {
                        (edge..self.cols, 0..edge)
                    } else {
                        (0..edge, edge..self.cols)
                    };
                    line[kept.clone()].copy_from_slice(&x[kept]);
                    line[gone].fill(0);
                }
            }};
        }
        by_size!(self.dtype, go);
        Ok(())
    }
}

struct Running {
    dtype: DType,
    at: usize,
    n: usize,
    inner: usize,
    exclusive: bool,
    reverse: bool,
}

/// Prepares a running sum.
pub fn cumsum(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let x = &spec.args.first()?.layout;
    let axis = axis_of(spec)?;
    let dtype = spec.same_dtype()?;
    let known = matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64);
    if !x.is_dense() || !known || axis >= x.rank() {
        return None;
    }
    let (n, inner) = (x.shape[axis], x.shape[axis + 1..].iter().product());
    let (exclusive, reverse) = (spec.bool(1)?, spec.bool(2)?);
    Some(Box::new(Running { dtype, at: x.offset, n, inner, exclusive, reverse }))
}

impl Kernel for Running {
    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let out = &mut *outputs[0];
        match self.dtype {
            DType::F32 => scan_floats(self, &inputs[0], out),
            DType::F64 => self.scan::<f64, f64>(&inputs[0], out, |s, v| s + v, |s| s),
            DType::I32 => self.scan::<i32, i32>(&inputs[0], out, i32::wrapping_add, |s| s),
            _ => self.scan::<i64, i64>(&inputs[0], out, i64::wrapping_add, |s| s),
        }
        Ok(())
    }
}

simd! {
    fn scan_floats(running: &Running, input: &TensorView<'_>, out: &mut [u8]) {
        running.scan::<f32, f64>(input, out, |s, v| s + v as f64, |s| s as f32);
    }
}

impl Running {
    #[inline(always)]
    fn scan<T: bytemuck::Pod, S: Copy + Default>(
        &self,
        input: &TensorView<'_>,
        out: &mut [u8],
        add: impl Fn(S, T) -> S,
        done: impl Fn(S) -> T,
    ) {
        let x: &[T] = &input.typed()[self.at..];
        let out: &mut [T] = bytemuck::cast_slice_mut(out);
        let (n, inner) = (self.n, self.inner);
        if out.is_empty() {
            return;
        }
        if inner == 1 {
            for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
                let mut sum = S::default();
                for k in 0..n {
                    let k = if self.reverse { n - 1 - k } else { k };
                    let next = add(sum, x[k]);
                    out[k] = done(if self.exclusive { sum } else { next });
                    sum = next;
                }
            }
            return;
        }
        /// Columns that are summed side by side.
        const WIDE: usize = 64;
        for (x, out) in x.chunks_exact(n * inner).zip(out.chunks_exact_mut(n * inner)) {
            for s in (0..inner).step_by(WIDE) {
                let wide = WIDE.min(inner - s);
                let mut sums = [S::default(); WIDE];
                for k in 0..n {
                    let k = if self.reverse { n - 1 - k } else { k };
                    let places = k * inner + s..k * inner + s + wide;
                    let line = out[places.clone()].iter_mut().zip(&x[places]);
                    for (sum, (o, &v)) in sums.iter_mut().zip(line) {
                        let next = add(*sum, v);
                        *o = done(if self.exclusive { *sum } else { next });
                        *sum = next;
                    }
                }
            }
        }
    }
}
