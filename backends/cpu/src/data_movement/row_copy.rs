//! Copies whose rows are gathered by one index list: views with short inner axes, and operators that move their operand's elements by a
//! permutation that separates over the axes.

use crate::runtime::kernel::{Context, Kernel, TensorView};
use bytemuck::Pod;
use mlc_dsl::ir::DType;
use mlc_dsl::layout::{Layout, coalesce, dense_strides};
use mlc_vector::lane_gather::LaneGather;
use smallvec::{SmallVec, smallvec};

/// Elements that a task should at least have.
const GRAIN: usize = 1 << 15;
/// Elements of a line, of inner axes that are shorter.
const SHORT: usize = 8;
const ENOUGH: usize = 256;
const MOST: usize = 4096;

/// A copy whose rows are gathered by one list of indices, from a base each.
pub struct RowCopy {
    dtype: DType,
    /// Offsets of the indices of each outer axis.
    outer: Vec<Vec<usize>>,
    gather: LaneGather,
    offset: usize,
}

impl RowCopy {
    /// The copy of a view with short inner axes; `None` for others, and without elements.
    pub fn of_view(dtype: DType, layout: &Layout) -> Option<RowCopy> {
        let merged = coalesce(&layout.shape, &[&layout.strides]);
        let (shape, strides) = (&merged.shape, &merged.strides[0]);
        if shape.len() < 2 || shape[shape.len() - 1] >= SHORT || shape.contains(&0) {
            return None;
        }
        // The lowest element is where all places are counted from.
        let lowest = |axis: usize| strides[axis].min(0) * (shape[axis] as isize - 1);
        let offset = (0..shape.len()).fold(layout.offset as isize, |at, a| at + lowest(a));
        let axes = (0..shape.len()).map(|axis| {
            let place = |i: usize| (i as isize * strides[axis] - lowest(axis)) as usize;
            (0..shape[axis]).map(place).collect()
        });
        Some(RowCopy::of_axes(dtype, axes.collect(), usize::try_from(offset).ok()?))
    }

    /// The copy by the index map `places` of a dense operand, of this shape; `None` unless the map is a sum of one term per axis.
    pub fn of_places(
        dtype: DType,
        shape: &[usize],
        places: &[usize],
        offset: usize,
    ) -> Option<RowCopy> {
        let first = *places.first()?;
        let strides = dense_strides(shape);
        // Parts are counted from the lowest place along each axis.
        let mut lowest = vec![0; shape.len()];
        let mut axes: Vec<Vec<usize>> = vec![];
        for (axis, &n) in shape.iter().enumerate() {
            let line = (0..n).map(|i| places[i * strides[axis] as usize]);
            lowest[axis] = first - line.clone().min()?;
            axes.push(line.map(|p| p + lowest[axis] - first).collect());
        }
        let low = lowest.iter().try_fold(first, |at, l| at.checked_sub(*l))?;
        let mut index = vec![0; shape.len()];
        for &place in places {
            let parts = axes.iter().zip(&index).map(|(axis, &i): (&Vec<usize>, &usize)| axis[i]);
            if parts.sum::<usize>() + low != place {
                return None;
            }
            for (i, &n) in index.iter_mut().zip(shape).rev() {
                *i += 1;
                if *i < n {
                    break;
                }
                *i = 0;
            }
        }
        Some(RowCopy::of_axes(dtype, axes, offset + low))
    }

    /// From the offsets of each axis; the innermost axes become the row.
    fn of_axes(dtype: DType, mut outer: Vec<Vec<usize>>, offset: usize) -> RowCopy {
        let mut line = outer.pop().unwrap_or_else(|| vec![0]);
        while line.len() < ENOUGH
            && let Some(axis) = outer.pop_if(|axis| axis.len() * line.len() <= MOST)
        {
            line = axis.iter().flat_map(|&a| line.iter().map(move |&p| a + p)).collect();
        }
        RowCopy { dtype, outer, gather: LaneGather::new(line), offset }
    }

    fn fill<T: Pod + Send + Sync>(&self, cx: &Context<'_>, from: &[T], out: &mut [T]) {
        let n = self.gather.len();
        if out.is_empty() {
            return;
        }
        cx.threads.chunks(out, n, GRAIN, |at, part| {
            let mut index: SmallVec<[usize; 8]> = smallvec![0; self.outer.len()];
            let (mut rest, mut start) = (at / n, self.offset);
            for (i, axis) in index.iter_mut().zip(&self.outer).rev() {
                *i = rest % axis.len();
                start += axis[*i];
                rest /= axis.len();
            }
            for line in part.chunks_exact_mut(n) {
                self.gather.copy(&from[start..], line);
                for (i, axis) in index.iter_mut().zip(&self.outer).rev() {
                    start -= axis[*i];
                    *i = if *i + 1 < axis.len() { *i + 1 } else { 0 };
                    start += axis[*i];
                    if *i > 0 {
                        break;
                    }
                }
            }
        });
    }
}

impl Kernel for RowCopy {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        macro_rules! go {
            ($t:ty) => {
                self.fill::<$t>(cx, inputs[0].typed(), bytemuck::cast_slice_mut(outputs[0]))
            };
        }
        crate::pointwise::convert::by_size!(self.dtype, go);
        Ok(())
    }
}
