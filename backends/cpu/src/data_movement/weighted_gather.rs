//! Gathers elements of rows by indices shared by all rows, or weighted sums of them; zero where an index is out of range.
//!
//! Eight rows are transposed at a time, so that an element of each is one vector.

use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use mlc_dsl::ir::DType;
use mlc_vector::arrays::array;
use mlc_vector::simd;
use mlc_vector::transpose::{LINES, transpose_lines};

/// Elements that a task should at least write.
const GRAIN: usize = 1 << 13;

/// The elements.
pub const ELEMENTS: KernelFactory = make;
/// Weighted sums of several each.
pub const SUMS: KernelFactory = make;

struct WeightedGather {
    /// Where rows, indices and weights begin.
    at: [usize; 3],
    rows: usize,
    n: usize,
    count: usize,
    /// Elements of a sum.
    taps: usize,
}

fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let (x, i) = (spec.args.first()?, spec.args.get(1)?);
    let typed = x.dtype == DType::F32 && i.dtype == DType::I64;
    if !typed || !spec.args.iter().all(|a| a.layout.is_dense()) {
        return None;
    }
    let &[_, rows, n] = x.layout.shape.as_slice() else { return None };
    let (count, taps) = match *i.layout.shape.as_slice() {
        [_, count] => (count, 1),
        [_, count, taps] => (count, taps),
        _ => return None,
    };
    let weights = spec.args.get(2).map_or(0, |w| w.layout.offset);
    let at = [x.layout.offset, i.layout.offset, weights];
    Some(Box::new(WeightedGather { at, rows, n, count, taps }))
}

simd! {
    /// For eight rows side by side, the sums of eight results or fewer: `taps` indices each, and weights if there are any.
    fn sums(x: &[f32], clamped: &[usize], weights: &[f32], taps: usize, out: &mut [f32; LINES * LINES]) {
        for (k, out) in out.as_chunks_mut::<LINES>().0.iter_mut().enumerate() {
            // Minus zero keeps the sign of what is added.
            let mut sum = [if weights.is_empty() && taps > 0 { -0.0f32 } else { 0.0 }; LINES];
            for t in k * taps..((k + 1) * taps).min(clamped.len()) {
                let Some(v) = x[clamped[t] * LINES..].first_chunk::<LINES>() else { return };
                let w = weights.get(t).copied().unwrap_or(1.0);
                for j in 0..LINES {
                    sum[j] += w * v[j];
                }
            }
            *out = sum;
        }
    }
}

impl WeightedGather {
    /// Results of up to eight rows of one image: `x` is the first of them, `out` as many rows of results.
    fn group(
        &self,
        x: &[f32],
        clamped: &[usize],
        weights: &[f32],
        wide: &mut [f32],
        out: &mut [f32],
    ) {
        let (n, count, taps) = (self.n, self.count, self.taps);
        let rows = out.len() / count;
        let lines = array(|j| &x[j.min(rows - 1) * n..][..n]);
        transpose_lines(lines, n, wide, LINES);
        // What there is not.
        wide[n * LINES..][..LINES].fill(0.0);
        let (mut block, mut turned) = ([0.0; LINES * LINES], [0.0; LINES * LINES]);
        for t in (0..count).step_by(LINES) {
            let some = LINES.min(count - t);
            let part = t * taps..(t + some) * taps;
            let weights = if weights.is_empty() { weights } else { &weights[part.clone()] };
            sums(wide, &clamped[part], weights, taps, &mut block);
            let lines = array(|j| &block[j * LINES..][..LINES]);
            transpose_lines(lines, LINES, &mut turned, LINES);
            for (line, from) in out.chunks_exact_mut(count).zip(turned.chunks_exact(LINES)) {
                line[t..t + some].copy_from_slice(&from[..some]);
            }
        }
    }
}

impl Kernel for WeightedGather {
    fn scratch(&self) -> u64 {
        (self.n as u64 + 1).saturating_mul(4 * LINES as u64)
    }

    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (rows, n, count) = (self.rows, self.n, self.count);
        let x: &[f32] = &inputs[0].typed()[self.at[0]..];
        let indices = &inputs[1].typed::<i64>()[self.at[1]..];
        let weights: &[f32] = inputs.get(2).map_or(&[], |w| &w.typed()[self.at[2]..]);
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        let each = count * self.taps;
        let images = out.len() / (rows * count);
        with_scratch::<usize, 1, _>([images * each], |[clamped]| {
            for (place, &i) in clamped.iter_mut().zip(indices) {
                *place = usize::try_from(i).map_or(n, |i| i.min(n));
            }
            let clamped = &*clamped;
            cx.threads.chunks(out, count, GRAIN, |at, part| {
                with_scratch::<f32, 1, _>([(n + 1) * LINES], |[wide]| {
                    let (mut row, mut part) = (at / count, part);
                    while !part.is_empty() {
                        let (image, left) = (row / rows, rows - row % rows);
                        let some = LINES.min(left).min(part.len() / count);
                        let (out, rest) = part.split_at_mut(some * count);
                        let own = image * each..(image + 1) * each;
                        let weights =
                            if weights.is_empty() { weights } else { &weights[own.clone()] };
                        self.group(&x[row * n..], &clamped[own], weights, wide, out);
                        (row, part) = (row + some, rest);
                    }
                });
            });
        });
        Ok(())
    }
}
