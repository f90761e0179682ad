//! Argmax and argmin along an axis, and hardmax.
//!
//! As an index, NaN comes before every other element; hardmax has no one for it.

use crate::pointwise::convert::widen;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use bytemuck::Pod;
use mlc_dsl::ir::DType;
use mlc_vector::rows::{RowReduction, reduce_rows};
use mlc_vector::simd;

/// Elements that a task should at least look at.
const GRAIN: usize = 1 << 15;

/// The place of the greatest.
pub const ARGMAX: KernelFactory = |spec| arg_extreme(spec, Side::Greatest);
/// The place of the least.
pub const ARGMIN: KernelFactory = |spec| arg_extreme(spec, Side::Least);
/// A one at the greatest.
pub const HARDMAX: KernelFactory = |spec| {
    let axis = Axis::of(spec)?;
    (spec.same_dtype()? == DType::F32).then(|| Box::new(Hardmax(axis)) as Box<dyn Kernel>)
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Greatest,
    Least,
}

struct Axis {
    at: usize,
    n: usize,
    inner: usize,
}

impl Axis {
    fn of(spec: &KernelSpec<'_>) -> Option<Axis> {
        let x = &spec.args.first()?.layout;
        let axis = usize::try_from(spec.int(0)?).ok()?;
        let n = *x.shape.get(axis)?;
        let inner = x.shape[axis + 1..].iter().product();
        let counted = n > 0 && i32::try_from(n).is_ok();
        (x.is_dense() && counted).then_some(Axis { at: x.offset, n, inner })
    }
}

struct ArgExtreme {
    axis: Axis,
    side: Side,
    dtype: DType,
}

fn arg_extreme(spec: &KernelSpec<'_>, side: Side) -> Option<Box<dyn Kernel>> {
    let (axis, dtype) = (Axis::of(spec)?, spec.args.first()?.dtype);
    let known = matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
    known.then(|| Box::new(ArgExtreme { axis, side, dtype }) as Box<dyn Kernel>)
}

/// A float.
trait Float: Pod + PartialOrd + Send + Sync {
    /// The places of the first extremes of rows of `n` elements.
    fn firsts(rows: &[Self], n: usize, side: Side, out: &mut [i64]);
}

/// The first NaN, or else the first of the extremes.
#[allow(clippy::eq_op, reason = "a float that is not equal to itself is NaN")]
fn by_one<T: PartialOrd + Copy>(row: &[T], side: Side) -> usize {
    let mut best = 0;
    for (i, &v) in row.iter().enumerate() {
        if v != v {
            return i;
        }
        let better = match side {
            Side::Greatest => v > row[best],
            Side::Least => v < row[best],
        };
        best = if better { i } else { best };
    }
    best
}

impl Float for f32 {
    fn firsts(rows: &[f32], n: usize, side: Side, out: &mut [i64]) {
        /// Rows whose extremes are found before their places are.
        const ROWS: usize = 16;
        let join = match side {
            Side::Greatest => RowReduction::Largest,
            Side::Least => RowReduction::Smallest,
        };
        for (rows, out) in rows.chunks(ROWS * n).zip(out.chunks_mut(ROWS)) {
            let mut extremes = [0.0; ROWS];
            reduce_rows(join, rows, n, n, &mut extremes[..out.len()]);
            first_equals(rows, n, &extremes, out);
            let unknown = out.iter_mut().zip(rows.chunks_exact(n)).zip(&extremes);
            let unknown = unknown.filter(|(_, extreme)| extreme.is_nan());
            unknown.for_each(|((o, row), _)| *o = by_one(row, side) as i64);
        }
    }
}

impl Float for f64 {
    fn firsts(rows: &[f64], n: usize, side: Side, out: &mut [i64]) {
        let rows = out.iter_mut().zip(rows.chunks_exact(n));
        rows.for_each(|(o, row)| *o = by_one(row, side) as i64);
    }
}

simd! {
    /// The place of the first element of each row that is equal to one of it, whatever where there is none.
    fn first_equals(rows: &[f32], n: usize, of: &[f32], out: &mut [i64]) {
        const STEP: usize = 64;
        for ((row, &v), o) in rows.chunks_exact(n).zip(of).zip(out) {
            let mut at = 0;
            for chunk in row.chunks(STEP) {
                if chunk.iter().fold(0, |any, &x| any | (x == v) as u32) != 0 {
                    break;
                }
                at += STEP;
            }
            at += row[at.min(n)..].iter().take_while(|x| **x != v).count();
            *o = at as i64;
        }
    }
}

/// Columns that are looked at side by side.
const WIDE: usize = 64;

simd! {
    /// The places of the first extremes of at most [`WIDE`] columns, whose elements are `pitch` apart.
    fn columns<T: Float>(x: &[T], pitch: usize, n: usize, side: Side, out: &mut [i64]) {
        #[inline(always)]
        #[allow(clippy::eq_op, reason = "a float that is not equal to itself is NaN")]
        fn each<T: Float>(x: &[T], pitch: usize, n: usize, out: &mut [i64], keeps: impl Fn(T, T) -> bool) {
            let wide = out.len();
            let mut best = [T::zeroed(); WIDE];
            best[..wide].copy_from_slice(&x[..wide]);
            let mut place = [0i32; WIDE];
            for k in 1..n {
                let line = x[k * pitch..][..wide].iter();
                for ((b, place), &v) in best.iter_mut().zip(&mut place).zip(line) {
                    // A NaN is larger than all, and stays.
                    let stays = keeps(v, *b) | (*b != *b);
                    *b = if stays { *b } else { v };
                    *place = if stays { *place } else { k as i32 };
                }
            }
            out.iter_mut().zip(place).for_each(|(o, p)| *o = p.into());
        }
        match side {
            Side::Greatest => each(x, pitch, n, out, |v, b| v <= b),
            Side::Least => each(x, pitch, n, out, |v, b| v >= b),
        }
    }
}

impl Axis {
    /// The places of the first extremes from that of number `first` on.
    fn find<T: Float>(&self, x: &[T], side: Side, first: usize, out: &mut [i64]) {
        let (n, inner) = (self.n, self.inner);
        if inner == 1 {
            return T::firsts(&x[first * n..][..out.len() * n], n, side, out);
        }
        let mut done = 0;
        while done < out.len() {
            let (outer, s) = ((first + done) / inner, (first + done) % inner);
            let wide = WIDE.min(inner - s).min(out.len() - done);
            let out = &mut out[done..done + wide];
            columns(&x[outer * n * inner + s..], inner, n, side, out);
            done += wide;
        }
    }
}

impl Kernel for ArgExtreme {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let Axis { at, n, inner } = self.axis;
        let out: &mut [i64] = bytemuck::cast_slice_mut(outputs[0]);
        let grain = GRAIN.div_ceil(n);
        match self.dtype {
            DType::F32 => {
                let x: &[f32] = &inputs[0].typed()[at..];
                cx.threads.chunks(out, 1, grain, |i, part| self.axis.find(x, self.side, i, part));
            }
            DType::F64 => {
                let x: &[f64] = &inputs[0].typed()[at..];
                cx.threads.chunks(out, 1, grain, |i, part| self.axis.find(x, self.side, i, part));
            }
            narrow => {
                let x: &[u16] = &inputs[0].typed()[at..];
                // Blocks of whole lines are widened.
                cx.threads.chunks(out, inner, grain, |i, part| {
                    let (first, len) = (i * n, part.len() * n);
                    with_scratch::<f32, 1, _>([len], |[wide]| {
                        widen(narrow, bytemuck::cast_slice(&x[first..first + len]), wide);
                        self.axis.find(wide, self.side, 0, part);
                    });
                });
            }
        }
        Ok(())
    }
}

/// Ones at the greatest.
struct Hardmax(Axis);

impl Kernel for Hardmax {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let Axis { at, n, inner } = self.0;
        let x: &[f32] = &inputs[0].typed()[at..];
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        cx.threads.chunks(out, n * inner, GRAIN, |first, out| {
            let x = &x[first..first + out.len()];
            with_scratch::<i64, 1, _>([out.len() / n], |[places]| {
                self.0.find(x, Side::Greatest, 0, places);
                out.fill(0.0);
                for (i, &place) in places.iter().enumerate() {
                    let at = (i / inner * n + place as usize) * inner + i % inner;
                    out[at] = if x[at].is_nan() { 0.0 } else { 1.0 };
                }
            });
        });
        Ok(())
    }
}
