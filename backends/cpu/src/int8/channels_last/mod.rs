//! Int8 convolutions, channels last (NHWC): windows are read through pointers to the channels of a position, one per tap; padding points to
//! the zero point.

mod depthwise;
mod image;

use super::conv::naive::ConvExtents;
use super::dot::{COLUMNS, InitialSums, LANES, ROWS, Rows, SignedSide, TileRange, tile};
use super::epilogue::OutputPipeline;
use super::pack::{ByteMatrix, PackedBytes, groups, total};
use super::{SignShift, is_zero_point, sign_shift, vector};
use crate::channels_last::as_pointers;
use crate::gemm::FilterShape;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use crate::runtime::weight_cache::Pack;
use depthwise::Int8NhwcDepthwise;
use image::Int8Image;
use std::ops::Range;
use std::sync::Arc;

/// A convolution of one group with known shapes.
struct Int8NhwcConv {
    image: Int8Image,
    batch: usize,
    /// Input and output channels.
    q: usize,
    o: usize,
    w_at: usize,
    /// The sign shift of the weights.
    weights: SignShift,
    packed: Option<Arc<Pack<PackedBytes>>>,
    /// Taps that are read as one piece where all are inside the image.
    join: usize,
}

/// Prepares the convolution of `x - p` and `w - q` for one group, or every channel by itself.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [_, w, p, z] = spec.args else { return None };
    let (filters, weights) = (w.layout.shape.as_slice(), sign_shift(w.dtype, true)?);
    let group = usize::try_from(spec.int(4)?).ok()?;
    if !w.layout.is_dense() || !is_zero_point(p, 0) || !is_zero_point(z, 1) {
        return None;
    }
    let (o, q, batch) = (*filters.first()?, *filters.get(1)?, *spec.outputs[0].1.first()?);
    if q == 1 && o == group {
        return Int8NhwcDepthwise::new(spec).map(|d| Box::new(d) as Box<dyn Kernel>);
    }
    if group != 1 {
        return None;
    }
    let image = Int8Image::new(spec, filters, 4)?;
    let (taps, w_at) = (image.windows.taps(), w.layout.offset);
    let join = image.windows.joined(image.wide());
    let packed = w.constant.as_ref().map(|t| {
        // Not the steps of a matrix that a product may have of the same constant.
        spec.weights.bytes(t, w_at, (-2 - q as isize, taps as isize), (o, q * taps), &|| {
            pack(&t.bytes()[w_at..], FilterShape { o, q, taps }, weights.flip)
        })
    });
    Some(Box::new(Int8NhwcConv { image, batch, q, o, w_at, weights, packed, join }))
}

/// Packs weights as columns with tap-major depth, in groups of four channels.
fn pack(w: &[u8], FilterShape { o, q, taps }: FilterShape, flip: u8) -> PackedBytes {
    let wide = 4 * groups(q);
    let mut turned = vec![flip; o * taps * wide];
    for (line, w) in
        turned.chunks_exact_mut((taps * wide).max(1)).zip(w.chunks_exact((q * taps).max(1)))
    {
        for c in 0..q {
            for t in 0..taps {
                line[t * wide + c] = w[c * taps + t];
            }
        }
    }
    let m = ByteMatrix { data: &turned, offset: 0, row: 1, col: (taps * wide) as isize };
    PackedBytes::columns(&m, taps * wide, o, flip)
}

/// What all tasks of a run share.
struct Job<'a> {
    x: &'a [u8],
    outside: &'a [u8],
    p: i32,
    weights: &'a PackedBytes,
    /// What the sums of each output channel begin with, and its zero point.
    begin: &'a [i32],
    zeros: &'a [i32],
    finish: &'a OutputPipeline<'a>,
}

/// Positions whose windows are computed together.
const BLOCK: usize = 96;
/// Products of a task that is worth handing over.
const GRAIN: usize = 1 << 19;

impl Kernel for Int8NhwcConv {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (taps, positions) = (self.image.windows.taps(), self.image.windows.len());
        if positions * self.o == 0 {
            return Ok(());
        }
        let p = vector(&inputs[2], 1, self.image.shift.offset)[0];
        let mut zeros = vector(&inputs[3], self.o, self.weights.offset);
        let finish = OutputPipeline::of_rows(cx, outputs[0], positions, self.o);
        let w = &inputs[1].bytes[self.w_at..];
        if !(0..=255).contains(&p) {
            let per = (self.q * taps).max(1);
            let weights =
                |i: usize| ((w[i] ^ self.weights.flip) as i8 as i32).wrapping_sub(zeros[i / per]);
            let extents = ConvExtents { batch: self.batch, group: 1, q: self.q, o: self.o };
            let all = self.image.plain(inputs[0].bytes, p, extents, weights);
            // SAFETY: the only call.
            unsafe { finish.part(0, &all) };
            return Ok(());
        }
        let own;
        let weights = match &self.packed {
            Some(packed) => &***packed,
            None => {
                own = pack(w, FilterShape { o: self.o, q: self.q, taps }, self.weights.flip);
                &own
            }
        };
        zeros.resize(self.o.next_multiple_of(COLUMNS), 0);
        let begin: Vec<i32> =
            weights.sums.iter().map(|s| s.wrapping_mul(p).wrapping_neg()).collect();
        let outside = self.image.outside(p, taps);
        with_scratch::<u8, 1, _>([self.image.scratch()], |[copy]| {
            let x = self.image.read(inputs[0].bytes, copy);
            let (begin, zeros) = (begin.as_slice(), zeros.as_slice());
            let job = Job { x, outside: &outside, p, weights, begin, zeros, finish: &finish };
            let blocks = positions.div_ceil(BLOCK);
            let panels = self.o.div_ceil(COLUMNS);
            let wanted = cx.threads.tasks(positions * self.o * self.q * taps, GRAIN);
            let down = wanted.min(blocks);
            let across = wanted.div_ceil(down).min(panels);
            cx.threads.each(down * across, |task| {
                let part =
                    |all: usize, parts: usize, i: usize| all * i / parts..all * (i + 1) / parts;
                let mine = part(blocks, down, task % down);
                let panels = part(panels, across, task / down);
                for block in mine {
                    let rows = block * BLOCK..((block + 1) * BLOCK).min(positions);
                    self.block(&job, rows, &panels);
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

impl Int8NhwcConv {
    /// Computes some positions, by panels of output channels.
    fn block(&self, job: &Job<'_>, rows: Range<usize>, panels: &Range<usize>) {
        let (taps, count) = (self.image.windows.taps(), rows.len());
        with_scratch::<usize, 1, _>([taps * count], |[pointers]| {
            let pointers: &mut [*const u8] = as_pointers(&mut pointers[..taps * count]);
            let windows = &self.image.windows;
            let join = windows.pointers(job.x, job.outside, rows.start, count, self.join, pointers);
            let (pointers, length) = (&pointers[..taps / join * count], self.image.wide() * join);
            #[cfg(target_arch = "x86_64")]
            if let Some((steps, out)) = job.finish.steps()
                && job.zeros.iter().all(|&z| z == 0)
            {
                use super::dot::vnni;
                let a = vnni::PointerRows { pointers, apart: count, first: 0, groups: length / 4 };
                for panel in panels.clone() {
                    let column = panel * COLUMNS;
                    let wide = COLUMNS.min(self.o - column);
                    let to = vnni::OutputTile {
                        out: out.at(0),
                        len: out.len(),
                        steps,
                        n: self.o,
                        row: rows.start,
                        column,
                        wide,
                    };
                    let weights = job.weights.panel(panel).groups;
                    let begin = vnni::InitialSums { columns: &job.begin[column..], shifted: None };
                    // SAFETY: steps are there only with the instructions; pointers are of positions of the image or of the outside, with
                    // all channels behind them; results of different blocks do not overlap.
                    unsafe { vnni::tiles(a, count, weights, begin, &to) };
                }
                return;
            }
            self.block_by_im2col(job, rows, panels, pointers, length);
        });
    }

    /// The same by im2col.
    fn block_by_im2col(
        &self,
        job: &Job<'_>,
        rows: Range<usize>,
        panels: &Range<usize>,
        pointers: &[*const u8],
        length: usize,
    ) {
        let (count, depth) = (rows.len(), self.image.windows.taps() * self.image.wide());
        let taps = (self.image.windows.taps() * self.q) as i32;
        with_scratch::<u8, 1, _>([count * depth], |[windows]| {
            let windows = &mut windows[..count * depth];
            for (piece, pointers) in pointers.chunks_exact(count).enumerate() {
                for (r, &from) in pointers.iter().enumerate() {
                    let to = &mut windows[r * depth + piece * length..][..length];
                    // SAFETY: a pointer is of a position of the image or of the outside, with all channels of a piece behind it.
                    to.copy_from_slice(unsafe { std::slice::from_raw_parts(from, length) });
                }
            }
            let a = Rows { bytes: windows, stride: depth };
            let mut tile_sums = [0i32; ROWS * COLUMNS];
            for panel in panels.clone() {
                let column = panel * COLUMNS;
                let wide = COLUMNS.min(self.o - column);
                let vectors = wide.div_ceil(LANES);
                for r in (0..count).step_by(ROWS) {
                    let high = ROWS.min(count - r);
                    let columns = Some(&job.begin[column..column + vectors * LANES]);
                    let start = InitialSums { rows: [0; ROWS], columns };
                    let to = job.weights.panel(panel);
                    let range = TileRange { row: r, count: high, column: 0, vectors };
                    tile(SignedSide::Right, a, to, range, &start, &mut tile_sums, COLUMNS);
                    for i in 0..high {
                        let sums = &mut tile_sums[i * COLUMNS..][..wide];
                        let zeros = &job.zeros[column..column + wide];
                        if zeros.iter().any(|&z| z != 0) {
                            let window = &windows[(r + i) * depth..][..depth];
                            let less = total(window).wrapping_sub(job.p.wrapping_mul(taps));
                            for (s, z) in sums.iter_mut().zip(zeros) {
                                *s = s.wrapping_sub(z.wrapping_mul(less));
                            }
                        }
                        let at = (rows.start + r + i) * self.o + column;
                        // SAFETY: blocks of tasks do not overlap.
                        unsafe { job.finish.part(at, sums) };
                    }
                }
            }
        });
    }
}
