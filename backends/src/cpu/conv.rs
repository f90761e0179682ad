//! Convolution: matrix products with an implicit im2col (windows are packed as columns on the fly), or a direct loop for
//! depthwise convolutions.
//!
//! f32, and through [`super::half_precision`] the 16-bit floats.

use super::buffer::with_scratch;
use super::gemm::pack::panels;
use super::gemm::{
    GemmSizes, ImplicitColumns, Left, Matrix, PackedLeft, Product, Right, gemm, kernel,
};
use super::launch::{Array, Context, Launch, LaunchSite};
use super::layout::Layout;
use super::packed_constants::Pack;
use super::padded_frame::{CHUNK, PaddedFrame, RowRun, Stencil, pack_lines, stencil};
use super::window::{MAX_SPATIAL, Window};
use mlc_dsl::ir::DType;
use std::ops::Range;
use std::sync::Arc;

/// A convolution with known shapes.
struct Conv {
    window: Window,
    batch: usize,
    group: usize,
    /// Input and output channels of a group.
    q: usize,
    o: usize,
    x_at: usize,
    w_at: usize,
    /// For one or two spatial axes.
    frame: Option<PaddedFrame>,
    /// Packed weights per group, if they are constant.
    packed: Vec<Arc<Pack<PackedLeft>>>,
}

/// Prepares a convolution.
pub fn make(site: &LaunchSite<'_>) -> Option<Box<dyn Launch>> {
    if site.same_dtype()? != DType::F32 {
        return None;
    }
    let [x, w] = site.args else { return None };
    let out = &site.outputs[0].1;
    let (stride, low) = (site.sizes(0)?, site.ints(1)?);
    let (dilation, group) = (site.sizes(3)?, usize::try_from(site.int(4)?).ok()?);
    let spatial = out.len().checked_sub(2)?;
    // The driver walks whole images; anything strange is copied by the reference interpreter's path.
    if !x.layout.is_dense() || !w.layout.is_dense() || spatial > MAX_SPATIAL || stride.contains(&0)
    {
        return None;
    }
    let window =
        Window::new(&x.layout.shape[2..], &w.layout.shape[2..], &out[2..], stride, low, dilation)?;
    let (q, o) = (w.layout.shape[1], out[1] / group.max(1));
    let k = q * window.taps();
    let packed = match &w.constant {
        Some(t) if !is_depthwise(q, o, &window) && o * k > 0 => (0..group)
            .map(|g| {
                let data = bytemuck::cast_slice(t.bytes());
                let offset = w.layout.offset + g * o * k;
                site.packs.left(t, &Matrix { data, offset, row: k as isize, col: 1 }, (o, k))
            })
            .collect(),
        _ => vec![],
    };
    let (x_at, w_at) = (x.layout.offset, w.layout.offset);
    let frame = PaddedFrame::of(&window);
    Some(Box::new(Conv { window, batch: out[0], group, q, o, x_at, w_at, frame, packed }))
}

fn is_depthwise(q: usize, o: usize, window: &Window) -> bool {
    q == 1 && o == 1 && window.taps() <= 64
}

impl Launch for Conv {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, w): (&[f32], &[f32]) = (inputs[0].typed(), inputs[1].typed());
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let finish = |at: usize, part: &mut [f32]| {
            if let Some((epilogue, inputs)) = cx.epilogue {
                epilogue.apply(at, part, inputs);
            }
        };
        if is_depthwise(self.q, self.o, &self.window) {
            self.depthwise(cx, &x[self.x_at..], &w[self.w_at..], out, &finish);
            return Ok(());
        }
        let (n, taps) = (self.window.outputs(), self.window.taps());
        let (plane, k) = (self.window.inputs(), self.q * taps);
        let channels = self.batch * self.group * self.q;
        let framed = self.frame.as_ref().filter(|_| !self.window.is_identity());
        let frame_len = framed.map_or(0, |f| f.len() * channels);
        with_scratch::<f32, 1, _>([frame_len], |[frames]| {
            if let Some(f) = framed {
                cx.threads.chunks(frames, f.len(), 1 << 14, |at, part| {
                    for (c, frame) in part.chunks_exact_mut(f.len()).enumerate() {
                        let c = at / f.len() + c;
                        f.fill(&x[self.x_at + c * plane..][..plane], 0.0, frame);
                    }
                });
            }
            let images: Vec<Im2col<'_>> = (0..self.batch * self.group)
                .map(|i| Im2col {
                    window: &self.window,
                    x: &x[self.x_at + i * self.q * plane..],
                    plane,
                    framed: framed.map(|f| (f, &frames[i * self.q * f.len()..])),
                })
                .collect();
            self.products(cx, x, w, &images, GemmSizes { m: self.o, n, k }, out, &finish);
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn scratch(&self) -> u64 {
        let planes = match is_depthwise(self.q, self.o, &self.window) {
            true => 1,
            false => self.batch * self.group * self.q,
        };
        self.frame.as_ref().map_or(0, |f| bytes_of(&[f.len(), planes]))
    }
}

/// Bytes of a product of so many floats.
fn bytes_of(extents: &[usize]) -> u64 {
    extents.iter().fold(4, |n, &d| n.saturating_mul(d as u64))
}

impl Conv {
    #[allow(clippy::too_many_arguments, reason = "the second half of a run")]
    fn products(
        &self,
        cx: &Context<'_>,
        x: &[f32],
        w: &[f32],
        images: &[Im2col<'_>],
        sizes: GemmSizes,
        out: &mut [f32],
        finish: &super::gemm::BlockEpilogue<'_>,
    ) {
        let GemmSizes { n, k, .. } = sizes;
        let plane = self.window.inputs();
        let product = |i: usize| {
            let g = i % self.group;
            let left = match self.packed.get(g) {
                Some(p) => Left::Packed(p),
                None => Left::Plain(Matrix {
                    data: w,
                    offset: self.w_at + g * self.o * k,
                    row: k as isize,
                    col: 1,
                }),
            };
            let right = if self.window.is_identity() {
                let offset = self.x_at + i * self.q * plane;
                Right::Plain(Matrix { data: x, offset, row: plane as isize, col: 1 })
            } else {
                Right::Implicit(&images[i])
            };
            Product { left, right, at: i * self.o * n }
        };
        let epilogue = cx.epilogue.is_some().then_some(finish);
        gemm(cx.threads, sizes, images.len(), product, out, epilogue);
    }
}

/// The channels of one image and group as the im2col matrix, which is packed block by block and never stored whole.
struct Im2col<'a> {
    window: &'a Window,
    x: &'a [f32],
    plane: usize,
    /// The same in frames.
    framed: Option<(&'a PaddedFrame, &'a [f32])>,
}

impl ImplicitColumns for Im2col<'_> {
    fn pack(&self, depth: Range<usize>, cols: Range<usize>, dst: &mut [f32]) {
        let taps = self.window.taps();
        let k = depth.len();
        let full = kernel::shape().cols;
        let stride = self.window.stride.last().copied().unwrap_or(1);
        for (p, (cols, width)) in panels(cols).enumerate() {
            let panel = &mut dst[p * full * k..][..width * k];
            if let Some((frame, data)) = self.framed {
                let mut runs = [RowRun::default(); 64];
                let runs = frame.runs(cols.start, cols.len(), &mut runs[..width]);
                if cols.len() < width {
                    panel.fill(0.0);
                }
                pack_lines(frame, data, depth.clone(), runs, width, panel);
                continue;
            }
            for (line, kk) in panel.chunks_exact_mut(width).zip(depth.clone()) {
                let plane = &self.x[kk / taps * self.plane..];
                line[cols.len()..].fill(0.0);
                self.window.rows(kk % taps, cols.start, cols.len(), |row| {
                    let line = &mut line[row.at..row.at + row.len];
                    let (from, to, at) = row.inside(stride);
                    line[..from].fill(0.0);
                    line[to..].fill(0.0);
                    if stride == 1 {
                        let src = &plane[at..at + (to - from)];
                        line[from..to].iter_mut().zip(src).for_each(|(l, &s)| *l = s);
                    } else {
                        let src = plane[at.min(plane.len())..].iter().step_by(stride);
                        line[from..to].iter_mut().zip(src).for_each(|(l, &s)| *l = s);
                    }
                });
            }
        }
    }
}

impl Conv {
    /// One channel at a time.
    fn depthwise(
        &self,
        cx: &Context<'_>,
        x: &[f32],
        w: &[f32],
        out: &mut [f32],
        finish: &super::gemm::BlockEpilogue<'_>,
    ) {
        let (n, plane, taps) = (self.window.outputs(), self.window.inputs(), self.window.taps());
        let slack = self.frame.as_ref().map_or(0, |f| f.len() + CHUNK);
        cx.threads.chunks(out, n, (1 << 16) / taps.max(1), |at, part| {
            with_scratch::<f32, 1, _>([slack], |[data]| {
                for (c, out) in part.chunks_exact_mut(n.max(1)).enumerate() {
                    let i = at / n + c;
                    let (x, w) = (&x[i * plane..][..plane], &w[i % self.group * taps..][..taps]);
                    match &self.frame {
                        Some(frame) => {
                            frame.fill(x, 0.0, data);
                            stencil(frame, Stencil::Dot(w), data, out);
                        }
                        None => self.by_rows(x, w, out),
                    }
                }
            });
            finish(at, part);
        });
    }

    /// A plane of any number of axes: taps are added row by row.
    fn by_rows(&self, x: &[f32], w: &[f32], out: &mut [f32]) {
        let stride = self.window.stride.last().copied().unwrap_or(1);
        out.fill(0.0);
        for (tap, &w) in w.iter().enumerate() {
            self.window.rows(tap, 0, self.window.outputs(), |row| {
                let (from, to, at) = row.inside(stride);
                let line = &mut out[row.at..row.at + row.len];
                if !w.is_finite() {
                    // The zeros outside count: times infinity they are NaN.
                    line[..from].fill(f32::NAN);
                    line[to..].fill(f32::NAN);
                }
                let src = x[at.min(x.len())..].iter().step_by(stride);
                line[from..to].iter_mut().zip(src).for_each(|(o, &x)| *o = x.mul_add(w, *o));
            });
        }
    }
}

/// The transpose of a convolution: products with the transposed weights, scattered back and added.
struct Transposed {
    window: Window,
    batch: usize,
    group: usize,
    q: usize,
    o: usize,
    x_at: usize,
    w_at: usize,
}

/// Prepares a transposed convolution.
pub fn make_transposed(site: &LaunchSite<'_>) -> Option<Box<dyn Launch>> {
    if site.same_dtype()? != DType::F32 {
        return None;
    }
    let [x, w] = site.args else { return None };
    let out = &site.outputs[0].1;
    let (stride, low, dilation) = (site.sizes(0)?, site.ints(1)?, site.sizes(3)?);
    let group = usize::try_from(site.int(5)?).ok()?;
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
    Some(Box::new(Transposed { window, batch: out[0], group, q, o, x_at, w_at }))
}

impl Launch for Transposed {
    fn scratch(&self) -> u64 {
        bytes_of(&[self.o, self.window.taps(), self.window.outputs()])
    }

    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
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
                gemm(cx.threads, GemmSizes { m: rows, n, k: self.q }, 1, product, sums, None);
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

impl Transposed {
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
