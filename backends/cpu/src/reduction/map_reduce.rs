//! Reductions of pointwise expressions: the reduced values never leave the cache.
//!
//! For f32. Elements are combined in the order of [`crate::reduction`], so fusing a reduction changes no bit.

use super::{BLOCK, Columns, Monoid, SHORT, row, rows};
use crate::pointwise::Fused;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, TensorView};
use mlc_dsl::layout::{Merged, coalesce, dense_strides, odometer};
use smallvec::SmallVec;

/// A pointwise program over the axes of an operand, and the axes that go.
pub struct MapReduce {
    fused: Fused,
    monoid: Monoid,
    kept: Merged,
    gone: Merged,
}

impl MapReduce {
    /// The reduction over `axes` of a program whose one result has this shape.
    pub fn new(fused: Fused, monoid: Monoid, shape: &[usize], axes: &[usize]) -> MapReduce {
        let strides = dense_strides(shape);
        let part = |gone: bool| {
            let picked: Vec<usize> =
                (0..shape.len()).filter(|i| axes.contains(i) == gone).collect();
            let extents: Vec<usize> = picked.iter().map(|&i| shape[i]).collect();
            let strides: Vec<isize> = picked.iter().map(|&i| strides[i]).collect();
            coalesce(&extents, &[&strides])
        };
        MapReduce { fused, monoid, kept: part(false), gone: part(true) }
    }

    fn map(&self, at: usize, inputs: &[&[u8]], out: &mut [f32]) {
        self.fused.span(at, out.len(), inputs, &mut [bytemuck::cast_slice_mut(out)]);
    }

    /// Results from `first` on.
    fn results(&self, first: usize, inputs: &[&[u8]], out: &mut [f32]) {
        let count: usize = self.gone.shape.iter().product();
        if count == 0 {
            return out.fill(self.monoid.float() as f32);
        }
        match (self.gone.strides[0].last(), self.gone.shape.last()) {
            (Some(1), Some(&run)) => self.rows(first, run, inputs, out),
            (None, _) => self.rows(first, 1, inputs, out),
            _ => self.columns(first, inputs, out),
        }
    }

    /// The innermost axis goes: runs of `run` elements are computed and combined, short ones together.
    fn rows(&self, first: usize, run: usize, inputs: &[&[u8]], out: &mut [f32]) {
        let m = self.monoid;
        let outer = self.gone.shape.len().saturating_sub(1);
        let whole = outer == 0 && self.kept.shape.len() <= 1;
        with_scratch::<f32, 1, _>([BLOCK], |[buffer]| {
            if whole && run <= BLOCK {
                let lines = BLOCK / run;
                for (i, part) in out.chunks_mut(lines).enumerate() {
                    let buffer = &mut buffer[..part.len() * run];
                    self.map((first + i * lines) * run, inputs, buffer);
                    rows(m, buffer, run, run, part);
                }
                return;
            }
            for (i, o) in out.iter_mut().enumerate() {
                let mut total = m.float();
                let (extents, strides) =
                    (&self.gone.shape[..outer], &self.gone.strides[0][..outer]);
                odometer(extents, [strides], [self.kept.offset(first + i) as usize], |[at]| {
                    for from in (0..run).step_by(BLOCK) {
                        let buffer = &mut buffer[..BLOCK.min(run - from)];
                        self.map(at + from, inputs, buffer);
                        total = match outer == 0 || run >= SHORT {
                            true => m.join(total, f64::from(row(m, buffer))),
                            false => buffer.iter().fold(total, |t, &v| m.join(t, f64::from(v))),
                        };
                    }
                });
                *o = total as f32;
            }
        });
    }

    /// The innermost axis stays: runs of results are combined side by side.
    fn columns(&self, first: usize, inputs: &[&[u8]], out: &mut [f32]) {
        let inner = *self.kept.shape.last().unwrap_or(&1);
        let mut done = 0;
        // Whole lines that follow each other are computed together.
        let (extents, strides) = (&self.gone.shape, &self.gone.strides[0]);
        let (Some((&run, extents)), Some((&step, strides))) =
            (extents.split_last(), strides.split_last())
        else {
            return;
        };
        let most = (BLOCK / inner.max(1)).clamp(1, run.max(1));
        with_scratch::<f32, 2, _>([inner, inner * most], |[block, lines]| {
            while done < out.len() {
                let n = (inner - (first + done) % inner).min(out.len() - done);
                let high = if n == inner && step == inner as isize { most } else { 1 };
                let mut columns =
                    Columns::new(self.monoid, &mut out[done..done + n], &mut block[..n]);
                let at = self.kept.offset(first + done) as usize;
                odometer(extents, [strides], [at], |[p]| {
                    for line in (0..run).step_by(high) {
                        let lines = &mut lines[..n * high.min(run - line)];
                        let at = (p as isize + line as isize * step) as usize;
                        self.map(at, inputs, lines);
                        lines.chunks_exact(n).for_each(|line| columns.push(line));
                    }
                });
                columns.finish();
                done += n;
            }
        });
    }
}

impl Kernel for MapReduce {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let bytes: SmallVec<[&[u8]; 16]> = inputs.iter().map(|i| i.bytes).collect();
        let count: usize = self.gone.shape.iter().product();
        let grain = (1usize << 14).div_ceil(count.max(1)).max(1);
        let out: &mut [f32] = bytemuck::cast_slice_mut(&mut *outputs[0]);
        cx.threads.chunks(out, 1, grain, |at, part| {
            self.results(at, &bytes, part);
            if let Some((epilogue, extra)) = cx.epilogue {
                epilogue.apply(at, part, extra);
            }
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}
