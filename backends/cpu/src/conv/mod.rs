//! Convolution, channels first (NCHW), f32; and 16-bit floats through [`super::half_precision`].
//!
//! GEMM that reads padded frames in place through an indirection table, or implicit im2col where rows are too short for vectors; a stencil for
//! depthwise convolutions.

use super::channels_last;
use super::gemm::SubMatrix;
use super::gemm::direct::{DirectProduct, IndirectOperand, PlaneLayout, direct, pays};
use super::gemm::{GemmEpilogue, GemmSizes, Left, Matrix, PackedLeft, Product, Right, gemm};
use super::runtime::buffer::with_scratch;
use super::runtime::kernel::{Context, Kernel, KernelSpec, OperandSpec, TensorView};
use super::runtime::weight_cache::Pack;
use depthwise::NchwDepthwise;
use im2col::Im2col;
use mlc_dsl::ir::DType;
use mlc_vector::tile::{IndirectionTable, shape};
use padded_frame::{PaddedFrame, SLACK};
use smallvec::SmallVec;
use std::sync::Arc;
use window::{MAX_SPATIAL, Window, bytes_of};

mod depthwise;
mod im2col;
pub(crate) mod padded_frame;
pub mod transposed;
pub(crate) mod window;

/// A convolution with known shapes.
struct NchwConv {
    window: Window,
    batch: usize,
    group: usize,
    /// Input and output channels of a group.
    q: usize,
    o: usize,
    x_at: usize,
    w_at: usize,
    /// For one to three spatial axes, unless every result element reads the input element at its own place.
    frame: Option<PaddedFrame>,
    /// Packed weights per group, if they are constant.
    packed: Vec<Arc<Pack<PackedLeft>>>,
    /// The right operand's addresses, if it is read in place.
    indirect: Option<IndirectOperand>,
}

/// Prepares a convolution.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    if spec.same_dtype()? != DType::F32 {
        return None;
    }
    let [x, w] = spec.args else { return None };
    let out = &spec.outputs[0].1;
    let (stride, low) = (spec.sizes(0)?, spec.ints(1)?);
    let (dilation, group) = (spec.sizes(3)?, usize::try_from(spec.int(4)?).ok()?);
    let spatial = out.len().checked_sub(2)?;
    // The driver walks whole images; anything strange is copied by the reference interpreter's path.
    if !x.layout.is_dense() || !w.layout.is_dense() || spatial > MAX_SPATIAL || stride.contains(&0)
    {
        return None;
    }
    if group == 1
        && let Some(kernel) = of_one_position(spec)
    {
        return Some(kernel);
    }
    let window =
        Window::new(&x.layout.shape[2..], &w.layout.shape[2..], &out[2..], stride, low, dilation)?;
    let (q, o) = (w.layout.shape[1], out[1] / group.max(1));
    let (x_at, w_at) = (x.layout.offset, w.layout.offset);
    if q == 1 && o == 1 && window.taps() <= depthwise::MOST_TAPS {
        return Some(Box::new(NchwDepthwise::new(window, group, x_at, w_at)));
    }
    let k = q * window.taps();
    let packed: Vec<_> = match &w.constant {
        Some(t) if o * k > 0 => (0..group)
            .map(|g| {
                let offset = w_at + g * o * k;
                spec.weights.left(t, SubMatrix { offset, row: k as isize, col: 1 }, o, k)
            })
            .collect(),
        _ => vec![],
    };
    let frame = if window.is_identity() { None } else { PaddedFrame::of(&window) };
    let indirect =
        if packed.is_empty() { None } else { indirect_operand(&window, frame.as_ref(), o, q) };
    Some(Box::new(NchwConv {
        window,
        batch: out[0],
        group,
        q,
        o,
        x_at,
        w_at,
        frame,
        packed,
        indirect,
    }))
}

/// The channels of an image of one position are its last as well: a vector of them is computed at once.
fn of_one_position(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x, w] = spec.args else { return None };
    let (dtype, out) = &spec.outputs[0];
    let is_one = |shape: &[usize]| shape[2..].iter().all(|&n| n == 1);
    if ![&x.layout.shape, &w.layout.shape, &**out].into_iter().all(is_one) {
        return None;
    }
    let last: Vec<usize> = [0].into_iter().chain(2..out.len()).chain([1]).collect();
    let x = OperandSpec { layout: x.layout.transpose(&last)?, ..x.clone() };
    let outputs = [(*dtype, last.iter().map(|&axis| out[axis]).collect())];
    channels_last::conv(&KernelSpec { args: &[x, w.clone()], outputs: &outputs, ..*spec })
}

/// The right operand's rows, channel by channel and tap by tap, if reading them in place pays.
fn indirect_operand(
    window: &Window,
    frame: Option<&PaddedFrame>,
    o: usize,
    q: usize,
) -> Option<IndirectOperand> {
    let n = window.outputs();
    let sizes = GemmSizes { m: o, n, k: q * window.taps() };
    let (taps, plane, rows) = match frame {
        Some(f) => {
            let ([_, high, wide], [pitch, deep]) = (f.to, f.steps());
            (f.taps.clone(), f.len(), PlaneLayout { wide, pitch, high, deep })
        }
        // Nothing lies beyond the input: a vector must fit into a channel.
        None if window.is_identity() && n >= shape().lanes() => {
            (vec![0], n, PlaneLayout { wide: n, pitch: n, high: 1, deep: n })
        }
        None => return None,
    };
    let all = (0..q).flat_map(|c| taps.iter().map(move |t| c * plane + t));
    pays(rows, sizes).then(|| IndirectOperand { lines: IndirectionTable::new(all.collect()), rows })
}

impl Kernel for NchwConv {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, w): (&[f32], &[f32]) = (inputs[0].typed(), inputs[1].typed());
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let sizes =
            GemmSizes { m: self.o, n: self.window.outputs(), k: self.q * self.window.taps() };
        let finish = GemmEpilogue::new(cx, sizes.m, sizes.n, &block);
        let x = &x[self.x_at..];
        let channels = self.batch * self.group * self.q;
        let Some(frame) = &self.frame else {
            match &self.indirect {
                Some(operand) => {
                    self.direct(cx, x, self.window.inputs(), operand, sizes, out, finish)
                }
                None => self.products(cx, x, w, None, sizes, out, finish),
            }
            return Ok(());
        };
        with_scratch::<f32, 1, _>([frame.len() * channels + SLACK], |[frames]| {
            let frames = &mut frames[..frame.len() * channels + SLACK];
            let plane = self.window.inputs();
            let (whole, slack) = frames.split_at_mut(frame.len() * channels);
            slack.fill(0.0);
            cx.threads.chunks(whole, frame.len(), 1 << 14, |at, part| {
                for (c, to) in part.chunks_exact_mut(frame.len()).enumerate() {
                    let c = at / frame.len() + c;
                    frame.fill(&x[c * plane..][..plane], 0.0, to);
                }
            });
            match &self.indirect {
                Some(operand) => self.direct(cx, frames, frame.len(), operand, sizes, out, finish),
                None => self.products(cx, x, w, Some((frame, frames)), sizes, out, finish),
            }
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn scratch(&self) -> u64 {
        self.frame.as_ref().map_or(0, |f| bytes_of(&[f.len(), self.batch * self.group * self.q]))
    }
}

impl NchwConv {
    /// Reads channels of `plane` elements in place.
    #[allow(clippy::too_many_arguments, reason = "the second half of a run")]
    fn direct(
        &self,
        cx: &Context<'_>,
        channels: &[f32],
        plane: usize,
        operand: &IndirectOperand,
        sizes: GemmSizes,
        out: &mut [f32],
        finish: GemmEpilogue<'_>,
    ) {
        let product = |i: usize| DirectProduct {
            left: &self.packed[i % self.group],
            data: &channels[i * self.q * plane..],
            at: i * sizes.m * sizes.n,
        };
        let count = self.batch * self.group;
        direct(cx.threads, sizes, count, product, operand, out, finish);
    }

    /// Packs windows as columns.
    #[allow(clippy::too_many_arguments, reason = "the second half of a run")]
    fn products(
        &self,
        cx: &Context<'_>,
        x: &[f32],
        w: &[f32],
        framed: Option<(&PaddedFrame, &[f32])>,
        sizes: GemmSizes,
        out: &mut [f32],
        finish: GemmEpilogue<'_>,
    ) {
        let GemmSizes { n, k, .. } = sizes;
        let plane = self.window.inputs();
        let image = |i: usize| Im2col {
            window: &self.window,
            x: &x[i * self.q * plane..],
            plane,
            framed: framed.map(|(f, data)| (f, &data[i * self.q * f.len()..])),
        };
        let images: SmallVec<[Im2col<'_>; 16]> = (0..self.batch * self.group).map(image).collect();
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
                let offset = i * self.q * plane;
                Right::Plain(Matrix { data: x, offset, row: plane as isize, col: 1 })
            } else {
                Right::Implicit(&images[i])
            };
            Product { left, right, at: i * self.o * n }
        };
        gemm(cx.threads, sizes, images.len(), product, out, finish);
    }
}
