//! Int8 depthwise convolutions, channels first: plane by plane, tap by tap over all positions.

use super::super::epilogue::OutputPipeline;
use super::super::{SignShift, vector};
use super::naive::{ConvExtents, naive_sums};
use super::polyphase::PolyphasePlanes;
use crate::conv::window::Window;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, TensorView};
use mlc_vector::simd;

/// A depthwise convolution with known shapes.
pub struct Int8NchwDepthwise {
    window: Window,
    frame: PolyphasePlanes,
    batch: usize,
    channels: usize,
    taps: usize,
    at: [usize; 2],
    /// The sign shift of the image.
    image: SignShift,
    /// Whether the weights are signed.
    signed: bool,
    offsets: Vec<usize>,
}

/// Results that a task should at least have.
const GRAIN: usize = 4096;
/// Positions whose sums are kept in the first-level cache.
const SPAN: usize = 1024;

impl Int8NchwDepthwise {
    /// The convolution, if its window has a frame.
    pub fn new(
        window: Window,
        batch: usize,
        channels: usize,
        at: [usize; 2],
        image: SignShift,
        weights: SignShift,
    ) -> Option<Int8NchwDepthwise> {
        let frame = PolyphasePlanes::of(&window)?;
        let (taps, offsets) = (window.taps(), frame.offsets(1));
        // Signed bytes need no flip to be signed.
        let signed = weights.flip == 0;
        Some(Int8NchwDepthwise { window, frame, batch, channels, taps, at, image, signed, offsets })
    }
}

impl Kernel for Int8NchwDepthwise {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let p = vector(&inputs[2], 1, self.image.offset)[0];
        let zeros = vector(&inputs[3], self.channels, 0);
        let value = |(i, &b): (usize, &u8)| {
            let w = if self.signed { b as i8 as i32 } else { b as i32 };
            w.wrapping_sub(zeros[i / self.taps.max(1)])
        };
        let w = &inputs[1].bytes[self.at[1]..][..self.channels * self.taps];
        let weights: Vec<i32> = w.iter().enumerate().map(value).collect();
        let finish = OutputPipeline::new(cx, outputs[0]);
        let (image, whole) = (self.frame.inputs(), self.frame.to[0] * self.frame.to[1]);
        if whole == 0 {
            return Ok(());
        }
        if !(0..=255).contains(&p) {
            let c = ConvExtents { batch: self.batch, group: self.channels, q: 1, o: 1 };
            let image = |i: usize| {
                ((inputs[0].bytes[self.at[0] + i] ^ self.image.flip) as i32).wrapping_sub(p)
            };
            let all = naive_sums(&self.window, c, image, |i| weights[i]);
            // SAFETY: the only call.
            unsafe { finish.part(0, &all) };
            return Ok(());
        }
        let planes = self.batch * self.channels;
        let several = GRAIN.div_ceil(whole).min(planes.max(1));
        let positions = self.frame.positions();
        let x = &inputs[0].bytes[self.at[0]..];
        cx.threads.each(planes.div_ceil(several), |task| {
            let mine = task * several..((task + 1) * several).min(planes);
            with_scratch::<u8, 1, _>([self.frame.len() + SPAN], |[plane]| {
                with_scratch::<i32, 2, _>([mine.len() * whole, SPAN], |[sums, span]| {
                    for (at, sums) in mine.clone().zip(sums.chunks_exact_mut(whole)) {
                        let c = at % self.channels;
                        let from = &x[at * image..][..image];
                        self.frame.fill_plane(from, self.image.flip, p as u8, plane);
                        let w = &weights[c * self.taps..][..self.taps];
                        let signed = w.iter().map(|&w| i8::try_from(w).ok().map(i16::from));
                        let narrow: Vec<i16> = signed.collect::<Option<_>>().unwrap_or_default();
                        let total = w.iter().fold(0i32, |s, &v| s.wrapping_add(v));
                        let begin = p.wrapping_mul(total).wrapping_neg();
                        for start in (0..positions).step_by(SPAN) {
                            let len = SPAN.min(positions - start);
                            let span = &mut span[..len.next_multiple_of(LANES)];
                            span.fill(begin);
                            add_taps(&plane[start..], &self.offsets, w, &narrow, span);
                            self.keep(start, &span[..len], sums);
                        }
                    }
                    // SAFETY: every task has its own planes.
                    unsafe { finish.part(mine.start * whole, &sums[..mine.len() * whole]) };
                });
            });
        });
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn epilogue_converts(&self) -> bool {
        true
    }
}

impl Int8NchwDepthwise {
    /// Puts the results among the positions from `start` on in their places.
    fn keep(&self, start: usize, span: &[i32], sums: &mut [i32]) {
        let (wide, width) = (self.frame.wide, self.frame.to[1]);
        let end = start + span.len();
        for y in start / wide..end.div_ceil(wide) {
            let from = (y * wide).max(start);
            let to = (y * wide + width).min(end);
            if from < to {
                let at = y * width + from - y * wide;
                sums[at..at + to - from].copy_from_slice(&span[from - start..to - start]);
            }
        }
    }
}

/// Adds every tap's product to the sums, whose number is a multiple of [`LANES`].
fn add_taps(plane: &[u8], offsets: &[usize], weights: &[i32], narrow: &[i16], sums: &mut [i32]) {
    match narrow.len() == weights.len() {
        // The product of a byte and a signed byte needs 16 bits.
        true => add_narrow(plane, offsets, narrow, sums),
        false => add_wide(plane, offsets, weights, sums),
    }
}

/// Sums that are kept in registers over all taps.
const LANES: usize = 64;

simd! {
    fn add_narrow(plane: &[u8], offsets: &[usize], weights: &[i16], sums: &mut [i32]) {
        for (i, sums) in sums.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let mut all = *sums;
            for (&offset, &w) in offsets.iter().zip(weights) {
                let from = &plane[offset + i * LANES..][..LANES];
                for (s, &b) in all.iter_mut().zip(from) {
                    *s = s.wrapping_add((b as i16).wrapping_mul(w) as i32);
                }
            }
            *sums = all;
        }
    }
}

simd! {
    fn add_wide(plane: &[u8], offsets: &[usize], weights: &[i32], sums: &mut [i32]) {
        for (&offset, &w) in offsets.iter().zip(weights) {
            for (s, &b) in sums.iter_mut().zip(&plane[offset..]) {
                *s = s.wrapping_add((b as i32).wrapping_mul(w));
            }
        }
    }
}
