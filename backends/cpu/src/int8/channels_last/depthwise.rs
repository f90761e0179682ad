//! Int8 depthwise convolutions, channels last: vectors run along channels.

use super::super::conv::naive::ConvExtents;
use super::super::dot::COLUMNS;
use super::super::epilogue::OutputPipeline;
use super::super::pack::{ByteMatrix, PackedBytes};
use super::super::{SignShift, sign_shift, vector};
use super::image::Int8Image;
use crate::channels_last::as_pointers;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use crate::runtime::weight_cache::Pack;
use mlc_vector::simd;
use std::ops::Range;
use std::sync::Arc;

/// A depthwise convolution with known shapes.
pub struct Int8NhwcDepthwise {
    image: Int8Image,
    batch: usize,
    channels: usize,
    w_at: usize,
    /// The sign shift of the weights.
    weights: SignShift,
    packed: Option<Arc<Pack<PackedBytes>>>,
}

/// Positions whose windows are computed together.
const BLOCK: usize = 32;
/// Products that a task should at least have.
const GRAIN: usize = 1 << 18;

/// What all tasks of a run share.
struct Job<'a> {
    x: &'a [u8],
    outside: &'a [u8],
    p: i32,
    /// The weights less their zero points, tap by tap, where they are read so.
    weights: &'a [i32],
    /// They as bytes in tiles, and what their sums begin with, where they have no zero points.
    #[allow(dead_code, reason = "only tiles of VNNI read them")]
    packed: Option<(&'a PackedBytes, &'a [i32])>,
    finish: &'a OutputPipeline<'a>,
}

impl Int8NhwcDepthwise {
    /// The convolution of every channel of an image by itself.
    pub fn new(spec: &KernelSpec<'_>) -> Option<Int8NhwcDepthwise> {
        let [_, w, ..] = spec.args else { return None };
        let (shape, w_at, weights) =
            (w.layout.shape.as_slice(), w.layout.offset, sign_shift(w.dtype, true)?);
        let image = Int8Image::new(spec, shape, 1)?;
        let (batch, channels, taps) = (*spec.outputs[0].1.first()?, shape[0], image.windows.taps());
        let packed = w.constant.as_ref().map(|t| {
            // Not the steps of a matrix that a product may have of the same constant.
            spec.weights.bytes(t, w_at, (-1, -(taps as isize)), (channels, taps), &|| {
                pack(&t.bytes()[w_at..], channels, taps, weights.flip)
            })
        });
        Some(Int8NhwcDepthwise { image, batch, channels, w_at, weights, packed })
    }

    /// The results at some positions.
    fn block(&self, job: &Job<'_>, rows: Range<usize>) {
        let (taps, count) = (self.image.windows.taps(), rows.len());
        with_scratch::<usize, 1, _>([taps * count], |[pointers]| {
            let pointers: &mut [*const u8] = as_pointers(&mut pointers[..taps * count]);
            self.image.windows.pointers(job.x, job.outside, rows.start, count, 1, pointers);
            #[cfg(target_arch = "x86_64")]
            if let (Some((steps, out)), Some((weights, begin))) = (job.finish.steps(), job.packed) {
                use super::super::dot::vnni;
                let a = vnni::PointerRows { pointers, apart: count, first: 0, groups: 0 };
                for (i, column) in (0..self.channels).step_by(COLUMNS).enumerate() {
                    let to = vnni::OutputTile {
                        out: out.at(0),
                        len: out.len(),
                        steps,
                        n: self.channels,
                        row: rows.start,
                        column,
                        wide: COLUMNS.min(self.channels - column),
                    };
                    let weights = weights.panel(i).groups;
                    // SAFETY: steps are there only with the instructions; pointers are of positions of the image or of the outside, with
                    // all channels behind them; results of different blocks do not overlap.
                    unsafe { vnni::depthwise(a, count, weights, &begin[column..], &to) };
                }
                return;
            }
            with_scratch::<i32, 1, _>([self.channels], |[sums]| {
                let sums = &mut sums[..self.channels];
                for r in 0..count {
                    sums.fill(0);
                    for (t, weights) in job.weights.chunks_exact(self.channels).enumerate() {
                        // SAFETY: a pointer is of a position of the image or of the outside, with all channels behind it.
                        let x = unsafe {
                            std::slice::from_raw_parts(pointers[t * count + r], self.channels)
                        };
                        add(x, job.p, weights, sums);
                    }
                    // SAFETY: positions of tasks do not overlap.
                    unsafe { job.finish.part((rows.start + r) * self.channels, sums) };
                }
            });
        });
    }
}

simd! {
    /// Adds the products of bytes less a zero point.
    fn add(x: &[u8], p: i32, weights: &[i32], sums: &mut [i32]) {
        for ((s, &x), &w) in sums.iter_mut().zip(x).zip(weights) {
            *s = s.wrapping_add((x as i32).wrapping_sub(p).wrapping_mul(w));
        }
    }
}

/// The channel that element `i` of a packed panel belongs to.
fn order(i: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    return super::super::dot::vnni::depthwise_order(i);
    #[cfg(not(target_arch = "x86_64"))]
    i
}

/// Filters as panels of channels in the order of the tiles, tap by tap.
fn pack(w: &[u8], channels: usize, taps: usize, flip: u8) -> PackedBytes {
    let wide = channels.next_multiple_of(COLUMNS);
    let mut turned = vec![flip; taps * wide];
    for (t, line) in turned.chunks_exact_mut(wide.max(1)).enumerate() {
        for (i, to) in line.iter_mut().enumerate() {
            if let Some(&w) = w.get(order(i) * taps + t).filter(|_| order(i) < channels) {
                *to = w;
            }
        }
    }
    let m = ByteMatrix { data: &turned, offset: 0, row: wide as isize, col: 1 };
    PackedBytes::columns(&m, taps, wide, flip)
}

impl Kernel for Int8NhwcDepthwise {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (taps, positions) = (self.image.windows.taps(), self.image.windows.len());
        if positions * self.channels == 0 {
            return Ok(());
        }
        let p = vector(&inputs[2], 1, self.image.shift.offset)[0];
        let zeros = vector(&inputs[3], self.channels, self.weights.offset);
        let w = &inputs[1].bytes[self.w_at..][..self.channels * taps];
        let of = |i: usize| ((w[i] ^ self.weights.flip) as i8 as i32).wrapping_sub(zeros[i / taps]);
        let finish = OutputPipeline::of_channels(cx, outputs[0], positions, self.channels, order);
        if !(0..=255).contains(&p) {
            let extents = ConvExtents { batch: self.batch, group: self.channels, q: 1, o: 1 };
            let all = self.image.plain(inputs[0].bytes, p, extents, of);
            // SAFETY: the only call.
            unsafe { finish.part(0, &all) };
            return Ok(());
        }
        let is_fast = finish.steps().is_some() && zeros.iter().all(|&z| z == 0);
        let own = match (&self.packed, is_fast) {
            (None, true) => Some(pack(w, self.channels, taps, self.weights.flip)),
            _ => None,
        };
        let packed = self.packed.as_ref().map(|p| &***p).or(own.as_ref()).filter(|_| is_fast);
        let begin = |s: &i32| s.wrapping_mul(p).wrapping_neg();
        let begin: Vec<i32> =
            packed.map_or(vec![], |packed| packed.sums.iter().map(begin).collect());
        let packed = packed.map(|packed| (packed, begin.as_slice()));
        let turned = |i: usize| of(i % self.channels * taps + i / self.channels);
        let weights: Vec<i32> = if is_fast { vec![] } else { (0..w.len()).map(turned).collect() };
        let outside = self.image.outside(p, 1);
        with_scratch::<u8, 1, _>([self.image.scratch()], |[copy]| {
            let x = self.image.read(inputs[0].bytes, copy);
            let weights = weights.as_slice();
            let job = Job { x, outside: &outside, p, weights, packed, finish: &finish };
            let blocks = positions.div_ceil(BLOCK);
            let tasks = cx.threads.tasks(positions * self.channels * taps, GRAIN).min(blocks);
            cx.threads.each(tasks, |task| {
                for block in blocks * task / tasks..blocks * (task + 1) / tasks {
                    self.block(&job, block * BLOCK..((block + 1) * BLOCK).min(positions));
                }
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

    fn scratch(&self) -> u64 {
        self.image.scratch() as u64
    }
}
