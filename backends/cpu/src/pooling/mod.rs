//! Pooling over windows, f32.

mod stencil;

use super::conv::window::{MAX_SPATIAL, Window};
use super::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use mlc_dsl::ir::DType;
use mlc_vector::math;
use stencil::{Planes, maxima, sums};

/// Largest element of each window.
pub const MAX: KernelFactory = |s| make(s, PoolKind::Max);
/// Sum of each window.
pub const SUM: KernelFactory = |s| make(s, PoolKind::Sum);

#[derive(Clone, Copy, Debug)]
enum PoolKind {
    Max,
    Sum,
}

struct Pool {
    kind: PoolKind,
    window: Window,
    /// For one to three spatial axes.
    planes: Option<Planes>,
    at: usize,
}

fn make(spec: &KernelSpec<'_>, kind: PoolKind) -> Option<Box<dyn Kernel>> {
    let x = &spec.args.first()?.layout;
    let out = &spec.outputs[0].1;
    if spec.same_dtype()? != DType::F32 || !x.is_dense() || out.len() > MAX_SPATIAL + 2 {
        return None;
    }
    let (size, stride, low, dilation) =
        (spec.sizes(0)?, spec.sizes(1)?, spec.ints(2)?, spec.sizes(4)?);
    if stride.contains(&0) {
        return None;
    }
    let window = Window::new(&x.shape[2..], &size, &out[2..], stride, low, dilation)?;
    let window = window.clipped();
    let planes = Planes::of(&window);
    Some(Box::new(Pool { kind, window, planes, at: x.offset }))
}

impl Kernel for Pool {
    fn scratch(&self) -> u64 {
        self.planes.as_ref().map_or(0, Planes::scratch)
    }

    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let x: &[f32] = &inputs[0].typed()[self.at..];
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let (n, plane) = (self.window.outputs(), self.window.inputs());
        let init = match self.kind {
            PoolKind::Max => f32::NEG_INFINITY,
            PoolKind::Sum => 0.0,
        };
        let grain = (1usize << 15) / self.window.taps().max(1);
        cx.threads.chunks(out, n, grain, |at, part| {
            let x = &x[at / n.max(1) * plane..];
            match (&self.planes, self.kind) {
                (Some(planes), PoolKind::Max) => maxima(planes, x, part),
                (Some(planes), PoolKind::Sum) => sums(planes, x, part),
                (None, _) => {
                    let planes = part.chunks_exact_mut(n.max(1)).enumerate();
                    planes.for_each(|(c, out)| self.by_rows(&x[c * plane..][..plane], init, out));
                }
            }
        });
        Ok(())
    }
}

impl Pool {
    /// A plane of any number of axes: taps are joined row by row.
    fn by_rows(&self, x: &[f32], init: f32, out: &mut [f32]) {
        let stride = self.window.stride.last().copied().unwrap_or(1);
        out.fill(init);
        for tap in 0..self.window.taps() {
            self.window.rows(tap, 0, self.window.outputs(), |row| {
                let (from, to, at) = row.inside(stride);
                let line = &mut out[row.at + from..row.at + to];
                let src = x[at.min(x.len())..].iter().step_by(stride);
                match self.kind {
                    PoolKind::Max => {
                        line.iter_mut().zip(src).for_each(|(o, &x)| *o = math::maximum(*o, x));
                    }
                    PoolKind::Sum => line.iter_mut().zip(src).for_each(|(o, &x)| *o += x),
                }
            });
        }
    }
}
