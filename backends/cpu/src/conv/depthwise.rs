//! Depthwise convolution: a stencil over padded frames, with the epilogue while a channel is in the cache. f32.

use super::window::bytes_of;
use crate::conv::padded_frame::{PaddedFrame, SLACK};
use crate::conv::window::Window;
use crate::gemm::GemmEpilogue;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, TensorView};
use mlc_vector::planes::{self, Bounds, PlaneShape};

/// Most taps: with more, sums over rows of products would be faster.
pub const MOST_TAPS: usize = 64;

/// A depthwise convolution with known shapes.
pub struct NchwDepthwise {
    window: Window,
    channels: usize,
    x_at: usize,
    w_at: usize,
    /// For one to three spatial axes.
    frame: Option<PaddedFrame>,
}

impl NchwDepthwise {
    pub fn new(window: Window, channels: usize, x_at: usize, w_at: usize) -> NchwDepthwise {
        let frame = match window.stride.last() {
            Some(2) => PaddedFrame::in_order(&window),
            _ => PaddedFrame::of(&window),
        };
        NchwDepthwise { window, channels, x_at, w_at, frame }
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

/// Leaves results as they are.
const NOTHING: Bounds =
    Bounds { shift: -0.0, low: f32::NEG_INFINITY, zero: -0.0, high: f32::INFINITY };

/// All results of a channel from a frame with slack.
fn convolve(frame: &PaddedFrame, w: &[f32], data: &[f32], bounds: Bounds, out: &mut [f32]) {
    let ([deep, rows, wide], [pitch, plane]) = (frame.to, frame.steps());
    let shape = PlaneShape { rows, wide, pitch, step: frame.step() };
    let last = frame.taps.iter().max().copied().unwrap_or(0);
    let last = last + frame.row((deep * rows).max(1) - 1);
    assert!(
        out.len() == deep * rows * wide
            && last + (wide.max(1) - 1) * frame.step() + SLACK <= data.len(),
        "a frame with slack"
    );
    let taps = frame.taps.as_slice();
    for (z, out) in out.chunks_exact_mut((rows * wide).max(1)).enumerate() {
        let data = &data[z * plane..];
        // SAFETY: as asserted, no vector begins beyond the last result of a row, with the slack behind the last vector.
        unsafe { planes::plane(shape, taps, w, data, bounds, out) };
    }
}

impl Kernel for NchwDepthwise {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, w): (&[f32], &[f32]) = (inputs[0].typed(), inputs[1].typed());
        let (x, w) = (&x[self.x_at..], &w[self.w_at..]);
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let (n, plane, taps) = (self.window.outputs(), self.window.inputs(), self.window.taps());
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = GemmEpilogue::new(cx, 1, n, &block);
        let slack = self.frame.as_ref().map_or(0, |f| f.len() + SLACK);
        cx.threads.chunks(out, n, (1 << 16) / taps.max(1), |at, part| {
            with_scratch::<f32, 1, _>([slack], |[data]| {
                let data = &mut data[..slack];
                data.fill(0.0);
                for (c, out) in part.chunks_exact_mut(n.max(1)).enumerate() {
                    let i = at / n + c;
                    let (x, w) = (&x[i * plane..][..plane], &w[i % self.channels * taps..][..taps]);
                    let bounds = match &finish {
                        GemmEpilogue::Tile(tile) => tile.bounds(i),
                        GemmEpilogue::Identity => Some(NOTHING),
                        GemmEpilogue::Block(_) => None,
                    };
                    match &self.frame {
                        Some(frame) => {
                            frame.fill_inside(x, data);
                            convolve(frame, w, data, bounds.unwrap_or(NOTHING), out);
                        }
                        None => self.by_rows(x, w, out),
                    }
                    if bounds.is_none() || self.frame.is_none() {
                        finish.apply(i * n, out, n);
                    }
                }
            });
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn scratch(&self) -> u64 {
        self.frame.as_ref().map_or(0, |f| bytes_of(&[f.len()]))
    }
}
