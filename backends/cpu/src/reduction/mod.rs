//! Reductions over any axes.
//!
//! Sums of f32 are taken in lanes and blocks, whose number depends on the shape alone; the error grows far slower than
//! that of a running sum.

pub(crate) mod argmax;
pub(crate) mod map_reduce;
pub(crate) mod normalisation;
mod softmax_columns;

use super::pointwise::convert::int_at;
use super::runtime::buffer::with_scratch;
use super::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use half::{bf16, f16};
use mlc_dsl::ir::DType;
use mlc_dsl::layout::{Layout, Merged, coalesce, odometer};
use mlc_vector::math;
use mlc_vector::rows::{RowReduction, reduce_rows};
use mlc_vector::simd;
use mlc_vector::simd::fold;

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monoid {
    /// By addition.
    Sum,
    /// By multiplication.
    Prod,
    /// To the larger; NaN if either is.
    Max,
    /// To the smaller; NaN if either is.
    Min,
}

/// Sum over axes.
pub const SUM: KernelFactory = |s| make(s, Monoid::Sum);
/// Product over axes.
pub const PROD: KernelFactory = |s| make(s, Monoid::Prod);
/// Largest over axes.
pub const MAX: KernelFactory = |s| make(s, Monoid::Max);
/// Smallest over axes.
pub const MIN: KernelFactory = |s| make(s, Monoid::Min);

/// A reduction: walks of the axes that stay and of those that go.
struct Reduce {
    monoid: Monoid,
    dtype: DType,
    kept: Merged,
    gone: Merged,
    offset: usize,
}

fn make(spec: &KernelSpec<'_>, monoid: Monoid) -> Option<Box<dyn Kernel>> {
    let dtype = spec.same_dtype()?;
    let x = &spec.args.first()?.layout;
    let axes = spec.sizes(0)?;
    let part = |gone: bool| {
        let of = |v: &[isize]| -> Vec<isize> {
            (0..x.rank()).filter(|i| axes.contains(i) == gone).map(|i| v[i]).collect()
        };
        let shape: Vec<isize> = x.shape.iter().map(|&d| d as isize).collect();
        let shape: Vec<usize> = of(&shape).into_iter().map(|d| d as usize).collect();
        coalesce(&shape, &[&of(&x.strides)])
    };
    Some(Box::new(Reduce { monoid, dtype, kept: part(false), gone: part(true), offset: x.offset }))
}

/// Elements of a block of a row sum; blocks are added in f64.
pub const BLOCK: usize = 4096;

/// A run of elements combined.
pub fn row(monoid: Monoid, x: &[f32]) -> f32 {
    let mut out = 0.0;
    rows(monoid, x, x.len(), 0, std::slice::from_mut(&mut out));
    out
}

/// Runs of `n` elements combined, each `step` elements behind the one before it.
pub fn rows(monoid: Monoid, x: &[f32], n: usize, step: usize, out: &mut [f32]) {
    let run = |i: usize| &x[i * step..][..n];
    let exactly = |out: &mut [f32], f: fn(&[f32]) -> f32| {
        let close = out.iter_mut().enumerate().filter(|(_, o)| o.is_nan());
        close.for_each(|(i, o)| *o = f(run(i)));
    };
    match monoid {
        _ if (1..SHORT).contains(&n) => short_rows(monoid, x, n, step, out),
        Monoid::Sum if n <= BLOCK => reduce_rows(RowReduction::Sum, x, n, step, out),
        Monoid::Sum => {
            for (i, o) in out.iter_mut().enumerate() {
                *o = run(i).chunks(BLOCK).map(|b| f64::from(row(monoid, b))).sum::<f64>() as f32;
            }
        }
        Monoid::Prod => out.iter_mut().enumerate().for_each(|(i, o)| *o = product(run(i))),
        Monoid::Max => {
            reduce_rows(RowReduction::Largest, x, n, step, out);
            exactly(out, exact_largest);
        }
        Monoid::Min => {
            reduce_rows(RowReduction::Smallest, x, n, step, out);
            exactly(out, exact_smallest);
        }
    }
}

/// Runs of fewer elements are joined element by element.
pub const SHORT: usize = 8;

simd! {
    fn short_rows(monoid: Monoid, x: &[f32], n: usize, step: usize, out: &mut [f32]) {
        #[inline(always)]
        fn each<const N: usize>(x: &[f32], step: usize, out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
            let join = |x: &[f32; N]| x[1..].iter().fold(x[0], |a, &v| f(a, v));
            if step == N {
                return out.iter_mut().zip(x.as_chunks::<N>().0).for_each(|(o, x)| *o = join(x));
            }
            for (i, o) in out.iter_mut().enumerate() {
                *o = x[i * step..].first_chunk::<N>().map_or(f32::NAN, join);
            }
        }
        #[inline(always)]
        fn of(x: &[f32], n: usize, step: usize, out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
            match n {
                1 => each::<1>(x, step, out, f),
                2 => each::<2>(x, step, out, f),
                3 => each::<3>(x, step, out, f),
                4 => each::<4>(x, step, out, f),
                5 => each::<5>(x, step, out, f),
                6 => each::<6>(x, step, out, f),
                _ => each::<7>(x, step, out, f),
            }
        }
        match monoid {
            Monoid::Sum => of(x, n, step, out, |a, v| a + v),
            Monoid::Prod => of(x, n, step, out, |a, v| a * v),
            Monoid::Max => of(x, n, step, out, math::maximum),
            Monoid::Min => of(x, n, step, out, math::minimum),
        }
    }
}

/// Lanes of a product and of an exact extreme.
const LANES: usize = 64;

simd! {
    fn product(x: &[f32]) -> f32 {
        fold::<LANES>(x, 1.0, |a, b| a * b, |a, b| a * b)
    }
}

simd! {
    /// The largest, as one NaN or a zero's sign decides.
    fn exact_largest(x: &[f32]) -> f32 {
        fold::<LANES>(x, f32::NEG_INFINITY, math::maximum, math::maximum)
    }
}

simd! {
    /// The smallest, likewise.
    fn exact_smallest(x: &[f32]) -> f32 {
        fold::<LANES>(x, f32::INFINITY, math::minimum, math::minimum)
    }
}

simd! {
    /// Elements combined with others side by side.
    fn combine(monoid: Monoid, acc: &mut [f32], x: &[f32]) {
        let pairs = acc.iter_mut().zip(x);
        match monoid {
            Monoid::Sum => pairs.for_each(|(a, &v)| *a += v),
            Monoid::Prod => pairs.for_each(|(a, &v)| *a *= v),
            Monoid::Max => pairs.for_each(|(a, &v)| *a = math::maximum(*a, v)),
            Monoid::Min => pairs.for_each(|(a, &v)| *a = math::minimum(*a, v)),
        }
    }
}

impl Monoid {
    /// What combines to the other operand.
    pub fn float(self) -> f64 {
        match self {
            Monoid::Sum => 0.0,
            Monoid::Prod => 1.0,
            Monoid::Max => f64::NEG_INFINITY,
            Monoid::Min => f64::INFINITY,
        }
    }

    /// Two elements combined.
    pub fn join(self, a: f64, b: f64) -> f64 {
        match self {
            Monoid::Sum => a + b,
            Monoid::Prod => a * b,
            Monoid::Max if a.is_nan() || a > b => a,
            Monoid::Min if a.is_nan() || a < b => a,
            Monoid::Max | Monoid::Min => b,
        }
    }

    fn join_int(self, a: i128, b: i128) -> i128 {
        match self {
            Monoid::Sum => a.wrapping_add(b),
            Monoid::Prod => a.wrapping_mul(b),
            Monoid::Max => a.max(b),
            Monoid::Min => a.min(b),
        }
    }

    fn int(self, dtype: DType) -> i128 {
        let (low, high) = dtype.int_range().unwrap_or((0, 0));
        match self {
            Monoid::Sum => 0,
            Monoid::Prod => 1,
            Monoid::Max => low,
            Monoid::Min => high,
        }
    }
}

/// Runs of elements combined side by side. The total is taken in blocks, whose number depends on the number of runs
/// alone.
pub struct Columns<'a> {
    monoid: Monoid,
    total: &'a mut [f32],
    block: &'a mut [f32],
    runs: usize,
}

/// Runs of a block.
const RUNS: usize = 64;

impl<'a> Columns<'a> {
    /// Totals of nothing; `block` is as long, whatever it holds.
    pub fn new(monoid: Monoid, total: &'a mut [f32], block: &'a mut [f32]) -> Columns<'a> {
        let none = monoid.float() as f32;
        total.fill(none);
        block.fill(none);
        Columns { monoid, total, block, runs: 0 }
    }

    /// Takes in a run, an element for each total.
    pub fn push(&mut self, run: &[f32]) {
        combine(self.monoid, self.block, run);
        self.runs += 1;
        if self.runs == RUNS {
            combine(self.monoid, self.total, self.block);
            self.block.fill(self.monoid.float() as f32);
            self.runs = 0;
        }
    }

    /// Leaves the totals in place.
    pub fn finish(self) {
        combine(self.monoid, self.total, self.block);
    }
}

impl Kernel for Reduce {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let size = self.dtype.size();
        let out = &mut *outputs[0];
        let count: usize = self.gone.shape.iter().product();
        let grain = (1usize << 15).div_ceil(count.max(1)).max(1);
        if self.dtype == DType::F32 {
            let x: &[f32] = inputs[0].typed();
            let out: &mut [f32] = bytemuck::cast_slice_mut(out);
            cx.threads.chunks(out, 1, grain, |at, part| {
                self.floats(x, at, part);
                if let Some((epilogue, extra)) = cx.epilogue {
                    epilogue.apply(at, part, extra);
                }
            });
            return Ok(());
        }
        cx.threads.chunks(out, size, grain * size, |at, part| {
            for (i, result) in part.chunks_exact_mut(size).enumerate() {
                self.one(inputs[0].bytes, self.start(at / size + i), result);
            }
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        self.dtype == DType::F32
    }
}

impl Reduce {
    /// Where result `i` begins in the operand.
    fn start(&self, i: usize) -> usize {
        (self.offset as isize + self.kept.offset(i)) as usize
    }

    fn floats(&self, x: &[f32], first: usize, out: &mut [f32]) {
        let gone = &self.gone.strides[0];
        let count: usize = self.gone.shape.iter().product();
        if count == 0 {
            return out.fill(self.monoid.float() as f32);
        }
        if gone.is_empty() || **gone == [1] {
            let steps = self.kept.strides[0].as_slice();
            let step = usize::try_from(steps.first().copied().unwrap_or(0));
            if let (0 | 1, Ok(step), false) = (steps.len(), step, out.is_empty()) {
                return rows(self.monoid, &x[self.start(first)..], count, step, out);
            }
            for (i, o) in out.iter_mut().enumerate() {
                let at = self.start(first + i);
                *o = row(self.monoid, &x[at..at + count]);
            }
            return;
        }
        if self.kept.strides[0].last() == Some(&1) {
            return self.columns(x, first, out);
        }
        let m = self.monoid;
        let (outer, run) = (gone.len() - 1, self.gone.shape[gone.len() - 1]);
        let runs = gone[outer] == 1 && run >= SHORT;
        for (i, o) in out.iter_mut().enumerate() {
            let mut acc = m.float();
            let at = self.start(first + i);
            if runs {
                odometer(&self.gone.shape[..outer], [&gone[..outer]], [at], |[p]| {
                    for block in x[p..p + run].chunks(BLOCK) {
                        acc = m.join(acc, row(m, block).into());
                    }
                });
                *o = acc as f32;
                continue;
            }
            odometer(&self.gone.shape, [gone], [at], |[p]| acc = m.join(acc, x[p] as f64));
            *o = acc as f32;
        }
    }

    /// The innermost axis stays and is contiguous: whole runs are combined.
    fn columns(&self, x: &[f32], first: usize, out: &mut [f32]) {
        let inner = *self.kept.shape.last().unwrap_or(&1);
        let mut done = 0;
        with_scratch::<f32, 1, _>([inner], |[block]| {
            while done < out.len() {
                let n = (inner - (first + done) % inner).min(out.len() - done);
                let mut columns =
                    Columns::new(self.monoid, &mut out[done..done + n], &mut block[..n]);
                let at = self.start(first + done);
                odometer(&self.gone.shape, [&self.gone.strides[0]], [at], |[p]| {
                    columns.push(&x[p..p + n]);
                });
                columns.finish();
                done += n;
            }
        });
    }

    /// One result of any dtype.
    fn one(&self, bytes: &[u8], start: usize, out: &mut [u8]) {
        let (m, dtype) = (self.monoid, self.dtype);
        if dtype.is_float() {
            let mut acc = m.float();
            odometer(&self.gone.shape, [&self.gone.strides[0]], [start], |[p]| {
                let v = match dtype {
                    DType::F64 => bytemuck::cast_slice::<u8, f64>(bytes)[p],
                    DType::F16 => {
                        f16::from_bits(bytemuck::cast_slice::<u8, u16>(bytes)[p]).to_f64()
                    }
                    _ => bf16::from_bits(bytemuck::cast_slice::<u8, u16>(bytes)[p]).to_f64(),
                };
                acc = m.join(acc, v);
            });
            match dtype {
                DType::F64 => out.copy_from_slice(&acc.to_le_bytes()),
                DType::F16 => out.copy_from_slice(&f16::from_f64(acc).to_le_bytes()),
                _ => out.copy_from_slice(&bf16::from_f64(acc).to_le_bytes()),
            }
            return;
        }
        match dtype {
            DType::I32 => return self.whole::<i32>(bytes, start, out),
            DType::I64 => return self.whole::<i64>(bytes, start, out),
            _ => {}
        }
        let mut acc = m.int(dtype);
        odometer(&self.gone.shape, [&self.gone.strides[0]], [start], |[p]| {
            let v = int_at(dtype, bytes, p);
            let v = if dtype == DType::U64 { v as u64 as i128 } else { v as i128 };
            acc = m.join_int(acc, v);
        });
        out.copy_from_slice(&acc.to_le_bytes()[..out.len()]);
    }
}

/// An integer that wraps.
trait Whole: bytemuck::Pod + Ord {
    const ZERO: Self;
    const ONE: Self;
    const LOW: Self;
    const HIGH: Self;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
}

macro_rules! whole {
    ($($t:ty)*) => {
        $(impl Whole for $t {
            const ZERO: $t = 0;
            const ONE: $t = 1;
            const LOW: $t = <$t>::MIN;
            const HIGH: $t = <$t>::MAX;
            #[inline(always)]
            fn sum(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn product(self, other: $t) -> $t {
                self.wrapping_mul(other)
            }
        })*
    };
}
whole!(i32 i64);

simd! {
    /// Neighbours joined with an integer.
    fn joined_wholes<T: Whole>(monoid: Monoid, acc: T, x: &[T]) -> T {
        let x = x.iter().copied();
        match monoid {
            Monoid::Sum => x.fold(acc, T::sum),
            Monoid::Prod => x.fold(acc, T::product),
            Monoid::Max => x.fold(acc, T::max),
            Monoid::Min => x.fold(acc, T::min),
        }
    }
}

impl Reduce {
    /// One result of integers of a type.
    fn whole<T: Whole>(&self, bytes: &[u8], start: usize, out: &mut [u8]) {
        let x: &[T] = bytemuck::cast_slice(bytes);
        let (shape, strides) = (&self.gone.shape, &self.gone.strides[0]);
        let mut acc = match self.monoid {
            Monoid::Sum => T::ZERO,
            Monoid::Prod => T::ONE,
            Monoid::Max => T::LOW,
            Monoid::Min => T::HIGH,
        };
        let (outer, run) = match strides.last() {
            // What has no elements may begin anywhere.
            Some(1) if !shape.contains(&0) => (shape.len() - 1, shape[shape.len() - 1]),
            _ => (shape.len(), 1),
        };
        odometer(&shape[..outer], [&strides[..outer]], [start], |[p]| {
            acc = joined_wholes(self.monoid, acc, &x[p..p + run]);
        });
        out.copy_from_slice(bytemuck::bytes_of(&acc));
    }
}

/// The layout with `axis` moved to the end.
pub fn axis_last(x: &Layout, axis: usize) -> Option<Layout> {
    let mut perm: Vec<usize> = (0..x.rank()).filter(|&i| i != axis).collect();
    perm.push(axis);
    x.transpose(&perm)
}
