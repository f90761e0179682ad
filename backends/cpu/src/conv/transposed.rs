//! Transposed convolution, f32: products with the transposed weights, then col2im.

use super::window::bytes_of;
use crate::conv::window::{MAX_SPATIAL, Window};
use crate::gemm::{GemmEpilogue, GemmSizes, Left, Matrix, Product, Right, gemm};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use mlc_dsl::ir::DType;
use mlc_dsl::layout::Layout;

/// The transpose of a convolution: products with the transposed weights, scattered back and added.
struct NchwConvTranspose {
    window: Window,
    batch: usize,
    group: usize,
    q: usize,
    o: usize,
    x_at: usize,
    w_at: usize,
}

/// Prepares a transposed convolution.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    if spec.same_dtype()? != DType::F32 {
        return None;
    }
    let [x, w] = spec.args else { return None };
    let out = &spec.outputs[0].1;
    let (stride, low, dilation) = (spec.sizes(0)?, spec.ints(1)?, spec.sizes(3)?);
    let group = usize::try_from(spec.int(5)?).ok()?;
    let dense = |l: &Layout| l.is_dense();
    if !dense(&x.layout) || !dense(&w.layout) || out.len() > MAX_SPATIAL + 2 || stride.contains(&0)
    {
        return None;
    }
    // Seen from the result, the input is what a convolution with this window would yield.
    let window =
        Window::new(&out[2..], &w.layout.shape[2..], &x.layout.shape[2..], stride, low, dilation)?;
    let (q, o) = (x.layout.shape[1] / group.max(1), w.layout.shape[1]);
    let (x_at, w_at) = (x.layout.offset, w.layout.offset);
    Some(Box::new(NchwConvTranspose { window, batch: out[0], group, q, o, x_at, w_at }))
}

impl Kernel for NchwConvTranspose {
    fn scratch(&self) -> u64 {
        bytes_of(&[self.o, self.window.taps(), self.window.outputs()])
    }

    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, w): (&[f32], &[f32]) = (inputs[0].typed(), inputs[1].typed());
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let (n, taps, plane) = (self.window.outputs(), self.window.taps(), self.window.inputs());
        let rows = self.o * taps;
        let stride = self.window.stride.last().copied().unwrap_or(1);
        with_scratch::<f32, 1, _>([rows * n], |[sums]| {
            let sums = &mut sums[..rows * n];
            for i in 0..self.batch * self.group {
                let g = i % self.group;
                // Weights of the group as taps × channels, transposed; the input as channels × positions.
                let left = Matrix {
                    data: w,
                    offset: self.w_at + g * self.q * rows,
                    row: 1,
                    col: rows as isize,
                };
                let right =
                    Matrix { data: x, offset: self.x_at + i * self.q * n, row: n as isize, col: 1 };
                let product =
                    |_| Product { left: Left::Plain(left), right: Right::Plain(right), at: 0 };
                gemm(
                    cx.threads,
                    GemmSizes { m: rows, n, k: self.q },
                    1,
                    product,
                    sums,
                    GemmEpilogue::Identity,
                );
                let part = &mut out[i * self.o * plane..][..self.o * plane];
                let sums = &*sums;
                cx.threads.chunks(part, plane, 1 << 14, |at, part| {
                    for (c, image) in part.chunks_exact_mut(plane.max(1)).enumerate() {
                        image.fill(0.0);
                        let c = at / plane.max(1) + c;
                        for tap in 0..taps {
                            let line = &sums[(c * taps + tap) * n..][..n];
                            self.window.rows(tap, 0, n, |row| {
                                let (from, to, at) = row.inside(stride);
                                let src = &line[row.at + from..row.at + to];
                                let dst = image[at.min(plane)..].iter_mut().step_by(stride);
                                dst.zip(src).for_each(|(d, &s)| *d += s);
                            });
                            let weight =
                                |q: usize| w[self.w_at + (g * self.q + q) * rows + c * taps + tap];
                            if !(0..self.q).all(|q| weight(q).is_finite()) {
                                self.outside(tap, image);
                            }
                        }
                    }
                });
            }
        });
        Ok(())
    }
}

impl NchwConvTranspose {
    /// A weight that is not finite meets zeros wherever its tap reads nothing of the input, and makes
    /// those elements NaN.
    fn outside(&self, tap: usize, image: &mut [f32]) {
        let stride = self.window.stride.last().copied().unwrap_or(1);
        let mut inside = vec![false; image.len()];
        self.window.rows(tap, 0, self.window.outputs(), |row| {
            let (from, to, at) = row.inside(stride);
            let read = inside[at.min(image.len())..].iter_mut().step_by(stride);
            read.take(to - from).for_each(|r| *r = true);
        });
        for (v, _) in image.iter_mut().zip(inside).filter(|(_, read)| !read) {
            *v = f32::NAN;
        }
    }
}
