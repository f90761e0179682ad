//! Softmax and its logarithm along an axis that is not the last: neighbouring columns side by side, in vectors.
//!
//! Computed in f32, on f32 whose last axis lies densely; what else there is belongs to `normalisation`.

use crate::runtime::kernel::{Context, Kernel, TensorView};
use crate::runtime::threads::SharedSlice;
use mlc_dsl::layout::{Layout, dense_strides, odometer};
use mlc_vector::math;
use mlc_vector::simd;

/// Columns that are computed together, at most: their lines of a usual axis stay in the first cache.
const WIDTH: usize = 64;
/// Fewer neighbouring columns fill no vectors.
const NARROW: usize = 8;
/// Terms that are added before their sum is added to the others: so the error grows with neither alone.
const TERMS: usize = 32;
/// Elements that a task should at least have.
const GRAIN: usize = 1 << 13;

/// Which function of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// The exponentials over their sum.
    Softmax,
    /// The logarithm of that.
    Logarithm,
}

/// The kernel for a layout whose columns lie side by side; declines where they do not.
pub fn make(of: Columns, x: &Layout, axis: usize) -> Option<Box<dyn Kernel>> {
    let last = x.rank().checked_sub(1).filter(|last| *last > axis)?;
    let width = x.shape[last];
    if width < NARROW || x.strides[last] != 1 {
        return None;
    }
    let strides = dense_strides(&x.shape);
    let mut outer = x.shape.clone();
    (outer[axis], outer[last]) = (1, 1);
    let mut lines = Vec::new();
    odometer(&outer, [&x.strides, &strides], [x.offset, 0], |at| lines.push(at));
    let (step, inner) = (x.strides[axis], strides[axis].unsigned_abs());
    Some(Box::new(Strips { of, extent: x.shape[axis], step, inner, width, lines }))
}

struct Strips {
    of: Columns,
    /// Elements of a column.
    extent: usize,
    /// From one of them to the next, in the operand.
    step: isize,
    /// The same in the result.
    inner: usize,
    /// Columns side by side.
    width: usize,
    /// Where the first of them begin in operand and result.
    lines: Vec<[usize; 2]>,
}

impl Kernel for Strips {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let x: &[f32] = inputs[0].typed();
        let out = SharedSlice::<f32>::new(bytemuck::cast_slice_mut(outputs[0]));
        let strips = self.width.div_ceil(WIDTH);
        let all = self.lines.len() * strips;
        let tasks = cx.threads.tasks(out.len(), GRAIN).min(all.max(1));
        cx.threads.each(tasks, |t| {
            for i in all * t / tasks..all * (t + 1) / tasks {
                let [from, to] = self.lines[i / strips];
                let first = i % strips * WIDTH;
                let width = (self.width - first).min(WIDTH);
                let strip = Strip { from: from + first, to: to + first, width };
                columns(self, strip, x, &out);
            }
        });
        Ok(())
    }
}

/// Columns that are computed together: where they begin, and how many they are.
#[derive(Clone, Copy)]
struct Strip {
    from: usize,
    to: usize,
    width: usize,
}

impl Strips {
    #[inline(always)]
    fn row<'a>(&self, strip: Strip, x: &'a [f32], j: usize) -> &'a [f32] {
        let at = strip.from as isize + j as isize * self.step;
        &x[at as usize..][..strip.width]
    }

    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "strips do not overlap")]
    fn result<'a>(&self, strip: Strip, out: &'a SharedSlice<'_, f32>, j: usize) -> &'a mut [f32] {
        // SAFETY: strips do not overlap, each is computed by one task, and one row of it is alive at a time.
        unsafe { out.part(strip.to + j * self.inner, strip.width) }
    }
}

simd! {
    /// One strip of columns.
    fn columns(of: &Strips, strip: Strip, x: &[f32], out: &SharedSlice<'_, f32>) {
        let width = strip.width;
        let mut high = [f32::NEG_INFINITY; WIDTH];
        for j in 0..of.extent {
            let row = of.row(strip, x, j);
            high[..width].iter_mut().zip(row).for_each(|(h, &v)| *h = math::maximum(*h, v));
        }
        let mut total = [0.0; WIDTH];
        for j in (0..of.extent).step_by(TERMS) {
            let mut sum = [0.0; WIDTH];
            for j in j..(j + TERMS).min(of.extent) {
                let row = of.row(strip, x, j);
                let result = of.result(strip, out, j);
                for (((o, s), &h), &v) in result.iter_mut().zip(&mut sum).zip(&high).zip(row) {
                    *o = math::exp(v - h);
                    *s += *o;
                }
            }
            total.iter_mut().zip(&sum).for_each(|(t, s)| *t += s);
        }
        match of.of {
            Columns::Softmax => {
                total.iter_mut().for_each(|t| *t = 1.0 / *t);
                for j in 0..of.extent {
                    let result = of.result(strip, out, j);
                    result.iter_mut().zip(&total).for_each(|(o, t)| *o *= t);
                }
            }
            Columns::Logarithm => {
                total[..width].iter_mut().for_each(|t| *t = math::log(*t));
                for j in 0..of.extent {
                    let row = of.row(strip, x, j);
                    let result = of.result(strip, out, j);
                    for (((o, t), &h), &v) in result.iter_mut().zip(&total).zip(&high).zip(row) {
                        *o = v - h - t;
                    }
                }
            }
        }
    }
}
