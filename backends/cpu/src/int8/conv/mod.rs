//! Int8 convolutions, channels first (NCHW): signed weights as rows, packed once if constant, by the unsigned image as columns.

mod depthwise;
pub(crate) mod naive;
mod polyphase;
pub(crate) mod transpose;

use super::dot::{COLUMNS, Columns, InitialSums, LANES, ROWS, Rows, SignedSide, TileRange, tile};
use super::epilogue::OutputPipeline;
use super::pack::{ByteMatrix, PackedBytes, groups};
use super::{SignShift, block_columns, is_zero_point, sign_shift, vector};
use crate::conv::window::Window;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use crate::runtime::threads::SharedSlice;
use crate::runtime::weight_cache::Pack;
use depthwise::Int8NchwDepthwise;
use mlc_vector::arrays::array;
use naive::{ConvExtents, naive_sums};
use polyphase::PolyphasePlanes;
use std::ops::Range;
use std::sync::Arc;

/// A convolution with known shapes.
struct Int8NchwConv {
    window: Window,
    frame: PolyphasePlanes,
    batch: usize,
    group: usize,
    /// Input and output channels of a group, and the taps of a window.
    q: usize,
    o: usize,
    taps: usize,
    /// Where the operands begin.
    at: [usize; 2],
    /// The sign shift of the image and the weights.
    image: SignShift,
    weights: SignShift,
    offsets: Vec<usize>,
    packed: Option<Arc<Pack<PackedBytes>>>,
}

/// Prepares the convolution of `x - p` and `w - q`.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x, w, p, z] = spec.args else { return None };
    let out = &spec.outputs[0].1;
    let (stride, low) = (spec.sizes(0)?, spec.ints(1)?);
    let (dilation, group) = (spec.sizes(3)?, usize::try_from(spec.int(4)?).ok()?);
    let (image, weights) = (sign_shift(x.dtype, false)?, sign_shift(w.dtype, true)?);
    let dense = x.layout.is_dense() && w.layout.is_dense();
    if !dense || !is_zero_point(p, 0) || !is_zero_point(z, 1) || stride.contains(&0) || group == 0 {
        return None;
    }
    let window =
        Window::new(&x.layout.shape[2..], &w.layout.shape[2..], &out[2..], stride, low, dilation)?;
    let (q, o, taps) = (w.layout.shape[1], out[1] / group, window.taps());
    let at = [x.layout.offset, w.layout.offset];
    if q == 1 && o == 1 {
        return Int8NchwDepthwise::new(window, out[0], group, at, image, weights)
            .map(|d| Box::new(d) as Box<dyn Kernel>);
    }
    let frame = PolyphasePlanes::of(&window)?;
    let offsets = frame.offsets(q);
    let packed = w.constant.as_ref().map(|t| {
        let all = (group * o, q * taps);
        // Not the steps of a matrix that a product may have of the same constant.
        spec.weights.bytes(t, at[1], (-1 - q as isize, taps as isize), all, &|| {
            pack(&t.bytes()[at[1]..], all.0, q, taps, weights.flip)
        })
    });
    let batch = out[0];
    Some(Box::new(Int8NchwConv {
        window,
        frame,
        batch,
        group,
        q,
        o,
        taps,
        at,
        image,
        weights,
        offsets,
        packed,
    }))
}

/// Packs weights as rows with tap-major depth, in groups of four channels.
fn pack(w: &[u8], rows: usize, q: usize, taps: usize, flip: u8) -> PackedBytes {
    let wide = 4 * groups(q);
    let mut turned = vec![flip; rows * taps * wide];
    for (line, w) in
        turned.chunks_exact_mut((taps * wide).max(1)).zip(w.chunks_exact((q * taps).max(1)))
    {
        for c in 0..q {
            for t in 0..taps {
                line[t * wide + c] = w[c * taps + t];
            }
        }
    }
    let m = ByteMatrix { data: &turned, offset: 0, row: (taps * wide) as isize, col: 1 };
    PackedBytes::rows(&m, rows, taps * wide, flip)
}

/// The sums over one group of channels of one image.
struct Part<'a> {
    /// The first row of the weights, and of the result.
    row: usize,
    to: usize,
    weights: &'a PackedBytes,
    columns: Columns<'a>,
    /// What each row begins with, and its zero point.
    begin: &'a [i32],
    zeros: &'a [i32],
}

impl Kernel for Int8NchwConv {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let p = vector(&inputs[2], 1, self.image.offset)[0];
        let rows = self.group * self.o;
        let zeros = vector(&inputs[3], rows, self.weights.offset);
        let finish = OutputPipeline::new(cx, outputs[0]);
        if !(0..=255).contains(&p) {
            let c = ConvExtents { batch: self.batch, group: self.group, q: self.q, o: self.o };
            let image = |i: usize| {
                ((inputs[0].bytes[self.at[0] + i] ^ self.image.flip) as i32).wrapping_sub(p)
            };
            let per = (self.q * self.taps).max(1);
            let weights = |i: usize| {
                let w = (inputs[1].bytes[self.at[1] + i] ^ self.weights.flip) as i8 as i32;
                w.wrapping_sub(zeros[i / per])
            };
            let all = naive_sums(&self.window, c, image, weights);
            // SAFETY: the only call.
            unsafe { finish.part(0, &all) };
            return Ok(());
        }
        let depth = (self.q * self.taps) as i32;
        let own;
        let weights = match &self.packed {
            Some(packed) => &***packed,
            None => {
                let w = &inputs[1].bytes[self.at[1]..];
                own = pack(w, rows, self.q, self.taps, self.weights.flip);
                &own
            }
        };
        let begin = |(s, z): (&i32, &i32)| p.wrapping_mul(depth.wrapping_mul(*z).wrapping_sub(*s));
        let begin: Vec<i32> = weights.sums.iter().zip(&zeros).map(begin).collect();
        let len = self.frame.len();
        let many = groups(self.q);
        let image = self.frame.inputs();
        with_scratch::<u32, 1, _>([many * len + COLUMNS], |[words]| {
            for i in 0..self.batch * self.group {
                let x = &inputs[0].bytes[self.at[0] + i * self.q * image..][..self.q * image];
                let shared = SharedSlice::new(words);
                cx.threads.each(many, |g| {
                    // SAFETY: every task has its own group.
                    let to = unsafe { shared.part(g * len, len) };
                    let channel =
                        |c: usize| x.get(c * image..(c + 1) * image).filter(|_| c < self.q);
                    let four = array(|t| channel(4 * g + t));
                    self.frame.fill(four, self.image.flip, p as u8, to);
                });
                let reach = self.offsets.iter().copied().max().unwrap_or(0);
                let columns = Columns { groups: words, offsets: &self.offsets, reach };
                let row = i % self.group * self.o;
                let to = i * self.o;
                let (begin, zeros) = (&begin[row..row + self.o], &zeros[row..row + self.o]);
                let part = Part { row, to, weights, columns, begin, zeros };
                self.part(cx, &part, &finish);
            }
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
        4 * (groups(self.q) * self.frame.len()) as u64
    }
}

/// Products of a task that is worth handing over.
const GRAIN: usize = 1 << 19;

impl Int8NchwConv {
    fn part(&self, cx: &Context<'_>, part: &Part<'_>, finish: &OutputPipeline<'_>) {
        let positions = self.frame.positions();
        if positions == 0 || self.o == 0 {
            return;
        }
        let wide = block_columns(4 * self.offsets.len());
        let across = positions.div_ceil(wide);
        let work = self.o * positions * self.offsets.len() * 4 / GRAIN;
        let wanted =
            if cx.threads.count() == 1 { 1 } else { work.clamp(1, 4 * cx.threads.count()) };
        let down = wanted.div_ceil(across).clamp(1, self.o.div_ceil(ROWS));
        cx.threads.each(across * down, |task| {
            let (c, d) = (task / down, task % down);
            let columns = c * wide..((c + 1) * wide).min(positions);
            let edge = |d: usize| (self.o.div_ceil(ROWS) * d / down * ROWS).min(self.o);
            self.block(part, edge(d)..edge(d + 1), columns, finish);
        });
    }

    /// The part of the result of these rows and positions.
    fn block(
        &self,
        part: &Part<'_>,
        rows: Range<usize>,
        columns: Range<usize>,
        finish: &OutputPipeline<'_>,
    ) {
        let pitch = columns.len().next_multiple_of(COLUMNS);
        let shifted = part.zeros[rows.clone()].iter().any(|&z| z != 0);
        let runs = self.runs(&columns);
        let n: usize = runs.iter().map(|r| r.len()).sum();
        let first = self.first(columns.start);
        let whole = self.frame.to[0] * self.frame.to[1];
        let sums_len = if shifted { pitch } else { 0 };
        with_scratch::<i32, 2, _>([ROWS * pitch, sums_len], |[sums, totals]| {
            if shifted {
                self.totals(part, &columns, totals);
            }
            for r in rows.clone().step_by(ROWS) {
                let count = ROWS.min(rows.end - r);
                let mut start = InitialSums { rows: [0; ROWS], columns: None };
                start.rows[..count].copy_from_slice(&part.begin[r..r + count]);
                for c in columns.clone().step_by(COLUMNS) {
                    let vectors = (columns.end - c).min(COLUMNS).div_ceil(LANES);
                    let to = &mut sums[c - columns.start..];
                    let a: Rows<'_> = part.weights.as_rows();
                    let range = TileRange { row: part.row + r, count, column: c, vectors };
                    tile(SignedSide::Left, a, part.columns, range, &start, to, pitch);
                }
                let mut done = 0;
                for i in 0..count {
                    let zero = part.zeros[r + i];
                    if zero != 0 {
                        let line = &mut sums[i * pitch..(i + 1) * pitch];
                        for (s, t) in line.iter_mut().zip(totals.iter()) {
                            *s = s.wrapping_sub(zero.wrapping_mul(*t));
                        }
                    }
                    for run in &runs {
                        let from = i * pitch + run.start;
                        if from != done {
                            sums.copy_within(from..from + run.len(), done);
                        }
                        done += run.len();
                    }
                }
                let at = (part.to + r) * whole + first;
                if n == whole {
                    // SAFETY: blocks of tasks do not overlap, and a task works on one tile after the other.
                    unsafe { finish.part(at, &sums[..done]) };
                    continue;
                }
                for i in 0..count {
                    // SAFETY: as above.
                    unsafe { finish.part(at + i * whole, &sums[i * n..][..n]) };
                }
            }
        });
    }

    /// The sums of the columns over the depth.
    fn totals(&self, part: &Part<'_>, columns: &Range<usize>, to: &mut [i32]) {
        let ones = vec![1u8; 4 * self.offsets.len()];
        let a = Rows { bytes: &ones, stride: ones.len() };
        let start = InitialSums { rows: [0; ROWS], columns: None };
        for c in columns.clone().step_by(COLUMNS) {
            let vectors = (columns.end - c).min(COLUMNS).div_ceil(LANES);
            let to = &mut to[c - columns.start..];
            let pitch = to.len();
            let range = TileRange { row: 0, count: 1, column: c, vectors };
            tile(SignedSide::Left, a, part.columns, range, &start, to, pitch);
        }
    }

    /// The positions of a block that are results, counted from the block's first.
    fn runs(&self, columns: &Range<usize>) -> Vec<Range<usize>> {
        let (wide, width) = (self.frame.wide, self.frame.to[1]);
        let rows = columns.start / wide..columns.end.div_ceil(wide);
        let run = |y: usize| {
            let start = (y * wide).clamp(columns.start, columns.end);
            let end = (y * wide + width).clamp(columns.start, columns.end);
            start - columns.start..end - columns.start
        };
        rows.map(run).filter(|r| !r.is_empty()).collect()
    }

    /// The number of the first result from a position on.
    fn first(&self, position: usize) -> usize {
        let (wide, width) = (self.frame.wide, self.frame.to[1]);
        position / wide * width + (position % wide).min(width)
    }
}
