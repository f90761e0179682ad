//! Transposed convolution, channels last: results of one residue of the strides (a phase) are a convolution without strides.

use super::conv::NhwcConv;
use super::windows::Windows;
use crate::conv::window::Window;
use crate::gemm::Taps;
use crate::gemm::{GemmEpilogue, PackedFilters};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use crate::runtime::threads::SharedSlice;
use crate::runtime::weight_cache::Pack;
use mlc_dsl::ir::DType;
use std::sync::Arc;

/// Results along an axis that read the same taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
    /// The first, and how many.
    first: usize,
    count: usize,
    taps: Taps,
    /// Elements of the input before the first window, and from one tap to the next.
    low: i64,
    dilation: usize,
}

/// A part of the results.
struct Phase {
    /// Where it lies along planes, lines and columns.
    rests: [Rest; 3],
    /// The convolution that it is, and its filters; none if it reads nothing.
    conv: Option<(NhwcConv, Arc<Pack<PackedFilters>>)>,
}

struct NhwcConvTranspose {
    phases: Vec<Phase>,
    batch: usize,
    /// Extents of a result, and from one result of a phase to the next.
    to: [usize; 3],
    stride: [usize; 3],
    channels: usize,
}

/// More phases than any network has; each has its own filters.
const MOST_PHASES: usize = 1 << 12;

/// Results along an axis of one element that are phases of their own.
const MOST_APART: usize = 32;

/// Prepares a transposed convolution of one group with constant weights.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x, w] = spec.args else { return None };
    if spec.same_dtype()? != DType::F32 || !w.layout.is_dense() || spec.int(5)? != 1 {
        return None;
    }
    let out = &spec.outputs[0].1;
    if !(3..=5).contains(&out.len()) || w.layout.shape.contains(&0) {
        return None;
    }
    let constant = w.constant.as_ref()?;
    let (q, o, w_at) = (w.layout.shape[0], w.layout.shape[1], w.layout.offset);
    let size = &w.layout.shape[2..];
    let aligned = spec.weights.aligned(constant);
    let weights: &[f32] = &bytemuck::cast_slice(aligned.bytes())[w_at..];
    let weights = &weights[..q * o * size.iter().product::<usize>()];
    // One that is not finite meets zeros wherever its tap reads nothing.
    if !weights.iter().all(|w| w.is_finite()) {
        return None;
    }
    let spatial = |shape: &[usize]| shape[1..shape.len() - 1].to_vec();
    let (from, to) = (spatial(&x.layout.shape), spatial(out));
    let (stride, low) = (spec.sizes(0)?, spec.ints(1)?);
    if stride.contains(&0) {
        return None;
    }
    // Seen from the result, the input is what a convolution with this window would yield.
    let window = Window::new(&to, size, &from, stride, low, spec.sizes(3)?)?;
    let axes = from.len();
    let mut strides = [1; 3];
    let mut all_rests: [Vec<Rest>; 3] = std::array::from_fn(|_| vec![whole_axis()]);
    for axis in 0..3 {
        if let Some(own) = (axis + axes).checked_sub(3) {
            (strides[axis], all_rests[axis]) = rests(&window, own);
        }
    }
    let [planes, lines, columns] = &all_rests;
    if planes.len() * lines.len() * columns.len() > MOST_PHASES {
        return None;
    }
    let mut phases = vec![];
    for rests in every(planes, lines, columns) {
        let own = &rests[3 - axes..];
        let field = |f: fn(&Rest) -> usize| own.iter().map(f).collect::<Vec<usize>>();
        let conv = match own.iter().any(|r| r.taps.count == 0) {
            true => None,
            false => {
                let (counts, taps) = (field(|r| r.count), field(|r| r.taps.count));
                let low = own.iter().map(|r| r.low).collect();
                let dilation = field(|r| r.dilation);
                let window = Window::new(&from, &taps, &counts, vec![1; axes], low, dilation)?;
                let windows = Windows::new(&x.layout, out, &window)?;
                let taps: Vec<Taps> = own.iter().map(|r| r.taps).collect();
                let filters = spec.weights.taps(constant, w_at, o, q, &taps);
                Some((NhwcConv::new(windows, q, o), filters))
            }
        };
        phases.push(Phase { rests, conv });
    }
    let mut extents = [1; 3];
    extents[3 - axes..].copy_from_slice(&to);
    Some(Box::new(NhwcConvTranspose {
        phases,
        batch: out[0],
        to: extents,
        stride: strides,
        channels: o,
    }))
}

/// Every combination.
fn every<'a>(
    planes: &'a [Rest],
    lines: &'a [Rest],
    columns: &'a [Rest],
) -> impl Iterator<Item = [Rest; 3]> + 'a {
    let pairs = planes.iter().flat_map(move |&p| lines.iter().map(move |&l| (p, l)));
    pairs.flat_map(move |(p, l)| columns.iter().map(move |&c| [p, l, c]))
}

/// The one result of an axis that is not there.
fn whole_axis() -> Rest {
    let taps = Taps { size: 1, first: 0, step: 1, count: 1 };
    Rest { first: 0, count: 1, taps, low: 0, dilation: 1 }
}

/// The stride of an axis, and its results by the rest that their places leave.
fn rests(window: &Window, axis: usize) -> (usize, Vec<Rest>) {
    // The window's input is the result here, and the other way round.
    let (from, size, to) = (window.to[axis], window.size[axis], window.from[axis]);
    let (low, dilation) = (window.low[axis], window.dilation[axis]);
    // A single element may have any stride: with a long one every result reads the one tap that it needs.
    let stride = match from <= 1 && to <= MOST_APART {
        true => to + (size - 1) * dilation + low.unsigned_abs() as usize + 1,
        false => window.stride[axis],
    };
    let common = gcd(stride, dilation);
    let step = stride / common;
    let rest = |first: usize| {
        let count = (to - first).div_ceil(stride);
        // Tap `t` reads element `place(t) / stride` of the input, if that is a whole number.
        let place = |t: usize| first as i64 + low - (t * dilation) as i64;
        let tap = (0..step.min(size)).find(|&t| place(t).rem_euclid(stride as i64) == 0);
        let taps = match tap {
            Some(t) => Taps { size, first: t, step, count: (size - t).div_ceil(step) },
            None => Taps { size, first: 0, step, count: 0 },
        };
        let last = taps.first + taps.count.saturating_sub(1) * step;
        let low = -place(last).div_euclid(stride as i64);
        Rest { first, count, taps, low, dilation: dilation / common }
    };
    (stride, (0..stride.min(to)).map(rest).collect())
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl NhwcConvTranspose {
    /// Results of a phase.
    fn len(&self, phase: &Phase) -> usize {
        self.batch * phase.rests.iter().map(|r| r.count).product::<usize>()
    }

    /// Puts lines of a phase's results where they belong, or zeros.
    fn place(
        &self,
        cx: &Context<'_>,
        phase: &Phase,
        results: Option<&[f32]>,
        out: &SharedSlice<'_, f32>,
    ) {
        let [planes, rows, columns] = phase.rests;
        let (lines, n) = (self.batch * planes.count * rows.count, self.channels);
        let tasks = cx.threads.tasks(lines * columns.count * n, GRAIN).min(lines);
        cx.threads.each(tasks, |task| {
            for line in lines * task / tasks..lines * (task + 1) / tasks {
                let (plane, i) = (line / rows.count, line % rows.count);
                let (b, p) = (plane / planes.count, plane % planes.count);
                let plane = b * self.to[0] + planes.first + p * self.stride[0];
                let first = (plane * self.to[1] + rows.first + i * self.stride[1]) * self.to[2];
                for j in 0..columns.count {
                    let at = (first + columns.first + j * self.stride[2]) * n;
                    // SAFETY: every result belongs to one phase and one line.
                    let to = unsafe { out.part(at, n) };
                    match results {
                        Some(from) => {
                            to.copy_from_slice(&from[(line * columns.count + j) * n..][..n]);
                        }
                        None => to.fill(0.0),
                    }
                }
            }
        });
    }
}

/// Elements that a task should at least have.
const GRAIN: usize = 1 << 15;

impl Kernel for NhwcConvTranspose {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let x: &[f32] = inputs[0].typed();
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        if let [Phase { conv: Some((conv, filters)), .. }] = self.phases.as_slice() {
            let finish = GemmEpilogue::new(cx, out.len() / self.channels, self.channels, &block);
            conv.compute(cx.threads, x, filters, out, &finish);
            return Ok(());
        }
        let most = self.phases.iter().map(|p| self.len(p)).max().unwrap_or(0);
        with_scratch::<f32, 1, _>([most * self.channels], |[results]| {
            let shared = SharedSlice::new(out);
            for phase in &self.phases {
                let results = &mut results[..self.len(phase) * self.channels];
                if let Some((conv, filters)) = &phase.conv {
                    conv.compute(cx.threads, x, filters, results, &GemmEpilogue::Identity);
                }
                self.place(cx, phase, phase.conv.is_some().then_some(&*results), &shared);
            }
        });
        if cx.epilogue.is_some() {
            cx.threads.chunks(out, self.channels, GRAIN, |at, part| cx.finish(at, part));
        }
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn scratch(&self) -> u64 {
        let most = self.phases.iter().map(|p| self.len(p)).max().unwrap_or(0);
        (most as u64).saturating_mul(4 * self.channels as u64)
    }
}
