//! Greedy non-max suppression, as the reference interpreter does it.
//!
//! Vectors test only whether boxes intersect at all; overlaps of those that do are the reference's, in f64, so that both choose the same.

use crate::pointwise::{ElementSource, strided_copy};
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use mlc_backends::reference::externs::selection::Corners;
use mlc_dsl::ir::DType;
use mlc_vector::simd;
use std::cmp::Ordering;

/// Boxes that are compared at once.
const GROUP: usize = 16;

/// Prepares the choice of boxes; attribute 0 says whether boxes are given by their centres.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [boxes, scores, most, overlap, floor] = spec.args else { return None };
    let types = [boxes.dtype, scores.dtype, overlap.dtype, floor.dtype];
    if types != [DType::F32; 4] || most.dtype != DType::I64 {
        return None;
    }
    let &[_, classes, n] = scores.layout.shape.as_slice() else { return None };
    let limits = [&most.layout, &overlap.layout, &floor.layout].map(|l| l.offset);
    let sources = [ElementSource::of(&boxes.layout)?, ElementSource::of(&scores.layout)?];
    Some(Box::new(NonMaxSuppression { classes, n, sources, limits, centered: spec.bool(0)? }))
}

struct NonMaxSuppression {
    classes: usize,
    n: usize,
    /// Boxes, and scores.
    sources: [ElementSource; 2],
    /// Where the limits are: the most boxes, the most that they overlap, and what scores must be above.
    limits: [usize; 3],
    centered: bool,
}

/// What limits a choice.
struct Limits {
    most: usize,
    overlap: f64,
    floor: f64,
}

/// Chosen boxes: their corners, and these again axis by axis, in whole groups.
#[derive(Default)]
struct Chosen {
    boxes: Vec<Corners>,
    low: [Vec<f64>; 2],
    high: [Vec<f64>; 2],
}

impl Kernel for NonMaxSuppression {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let [boxes, scores, most, overlap, floor] = inputs else {
            return Err("five operands choose boxes".into());
        };
        let out: &mut [i64] = bytemuck::cast_slice_mut(outputs[0]);
        let n = self.n;
        if out.is_empty() {
            return Ok(());
        }
        let most = most.typed::<i64>()[self.limits[0]];
        let limits = Limits {
            most: usize::try_from(most).unwrap_or(0).min(n),
            overlap: overlap.typed::<f32>()[self.limits[1]].into(),
            floor: floor.typed::<f32>()[self.limits[2]].into(),
        };
        cx.threads.chunks(out, n, 1, |at, part| {
            let (mut corners, mut row) = (vec![0f32; 4 * n], vec![0f32; n]);
            for (i, places) in part.chunks_exact_mut(n).enumerate() {
                let class = at / n + i;
                let batch = class / self.classes;
                strided_copy::<f32>(&self.sources[0], boxes.typed(), batch * 4 * n, &mut corners);
                strided_copy::<f32>(&self.sources[1], scores.typed(), class * n, &mut row);
                let boxes = corners.chunks_exact(4).map(|v| {
                    let v: Vec<f64> = v.iter().map(|&v| v.into()).collect();
                    Corners::of(&v, self.centered)
                });
                let boxes: Vec<Corners> = boxes.collect();
                choose(&boxes, &row, &limits, places);
            }
        });
        Ok(())
    }

    fn scratch(&self) -> u64 {
        (self.n as u64).saturating_mul(128)
    }
}

/// Places of the chosen boxes, then -1.
fn choose(boxes: &[Corners], scores: &[f32], limits: &Limits, places: &mut [i64]) {
    places.fill(-1);
    let mut order: Vec<usize> =
        (0..boxes.len()).filter(|&i| f64::from(scores[i]) > limits.floor).collect();
    order.sort_by(|&i, &j| scores[j].partial_cmp(&scores[i]).unwrap_or(Ordering::Equal));
    let mut chosen = Chosen::default();
    for i in order {
        if chosen.boxes.len() == limits.most {
            break;
        }
        if !chosen.is_too_close(&boxes[i], limits.overlap) {
            places[chosen.boxes.len()] = i as i64;
            chosen.push(boxes[i]);
        }
    }
}

impl Chosen {
    fn push(&mut self, b: Corners) {
        let at = self.boxes.len();
        if at.is_multiple_of(GROUP) {
            // What is in no box meets none.
            self.low.iter_mut().for_each(|v| v.resize(at + GROUP, f64::INFINITY));
            self.high.iter_mut().for_each(|v| v.resize(at + GROUP, f64::NEG_INFINITY));
        }
        for k in 0..2 {
            (self.low[k][at], self.high[k][at]) = (b.low[k], b.high[k]);
        }
        self.boxes.push(b);
    }

    /// True if a box overlaps a chosen one by more than `most`.
    fn is_too_close(&self, b: &Corners, most: f64) -> bool {
        if most.is_nan() || most < 0.0 {
            // Boxes that do not meet are too close, too.
            return !self.boxes.is_empty();
        }
        let mut from = 0;
        while let Some(group) = meeting(self, b, from) {
            let near = &self.boxes[group * GROUP..self.boxes.len().min((group + 1) * GROUP)];
            let too_close = |k: &Corners| {
                matches!(k.overlap(b).partial_cmp(&most), None | Some(Ordering::Greater))
            };
            if near.iter().any(too_close) {
                return true;
            }
            from = group + 1;
        }
        false
    }
}

simd! {
    /// The first group, from one on, with a box that has a common area with this one.
    fn meeting(chosen: &Chosen, b: &Corners, from: usize) -> Option<usize> {
        let [low0, low1] = [0, 1].map(|k| chosen.low[k].as_chunks::<GROUP>().0);
        let [high0, high1] = [0, 1].map(|k| chosen.high[k].as_chunks::<GROUP>().0);
        for g in from..low0.len().min(low1.len()).min(high0.len()).min(high1.len()) {
            let mut meets = 0u64;
            for i in 0..GROUP {
                let down = smaller(high0[g][i], b.high[0]) > larger(low0[g][i], b.low[0]);
                let across = smaller(high1[g][i], b.high[1]) > larger(low1[g][i], b.low[1]);
                meets |= u64::from(down & across);
            }
            if meets != 0 {
                return Some(g);
            }
        }
        None
    }
}

/// The smaller one. A box with a corner that is no number overlaps nothing, whichever is taken.
#[inline(always)]
fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}
