//! Resampling along one axis: interpolation indices and weights are computed once, when the kernel is specialised. f32.
//!
//! Weights are computed in f64 as the operator's meaning says; sums of a window are in f32, in its order.

use crate::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use mlc_dsl::ir::DType;
use mlc_vector::lane_gather::LaneGather;
use mlc_vector::simd;

/// Results that a task should at least have.
const GRAIN: usize = 1 << 14;

/// Windows of two or more elements, and their weighted sums.
pub const RESAMPLE: KernelFactory = |spec| {
    let axis = Axis::of(spec)?;
    let (half, stretch) = (spec.int(6)?, spec.float(7)?);
    let (cubic, a, exclude) = (spec.bool(8)?, spec.float(9)?, spec.bool(10)?);
    let (bounded, beyond) = (spec.bool(11)?, spec.float(12)?);
    let taps = usize::try_from(half).ok().filter(|h| (1..=64).contains(h))? * 2;
    let (mut places, mut weights) = (Vec::new(), Vec::new());
    let mut outside = vec![None; axis.size];
    for (m, outside) in outside.iter_mut().enumerate() {
        let place = axis.place(m);
        if bounded && (place < 0.0 || place > axis.n as f64 - 1.0) {
            *outside = Some(beyond as f32);
        }
        let first = place.floor() as i64 - half + 1;
        let window = |r: usize| first.saturating_add(r as i64);
        let weight = |r: usize| {
            let left = exclude && !(0..axis.n as i64).contains(&window(r));
            let distance = (window(r) as f64 - place).abs() * stretch;
            if left { 0.0 } else { kernel(distance, cubic, a) }
        };
        let sum: f64 = (0..taps).map(weight).sum();
        places.extend((0..taps).map(|r| window(r).clamp(0, axis.n as i64 - 1) as usize));
        weights.extend((0..taps).map(|r| (weight(r) / sum) as f32));
    }
    Some(Box::new(Resample { axis, taps, places, weights, outside, gather: None }))
};

/// The nearest element.
pub const NEAREST: KernelFactory = |spec| {
    let axis = Axis::of(spec)?;
    let (add, up) = (spec.float(6)?, spec.bool(7)?);
    let place = |m: usize| {
        let at = axis.place(m) + add;
        let at = if up { at.ceil() } else { at.floor() };
        (at as i64).clamp(0, axis.n as i64 - 1) as usize
    };
    let places: Vec<usize> = (0..axis.size).map(place).collect();
    let gather = (axis.inner == 1).then(|| LaneGather::new(places.clone()));
    let (weights, outside) = (Vec::new(), vec![None; axis.size]);
    Some(Box::new(Resample { axis, taps: 1, places, weights, outside, gather }))
};

/// The weight of an element at a distance from the place: of a triangle, or of a cubic convolution (Keys 1981).
fn kernel(d: f64, cubic: bool, a: f64) -> f64 {
    match d {
        _ if !cubic => (1.0 - d).max(0.0),
        d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
        d if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
        _ => 0.0,
    }
}

/// The axis, and the places of the result's elements along it.
struct Axis {
    /// Where the operand's elements begin.
    at: usize,
    n: usize,
    size: usize,
    inner: usize,
    shift: f64,
    times: f64,
    over: f64,
    offset: f64,
}

impl Axis {
    fn of(spec: &KernelSpec<'_>) -> Option<Axis> {
        let x = &spec.args.first()?.layout;
        let axis = usize::try_from(spec.int(0)?).ok().filter(|a| *a < x.rank())?;
        let size = usize::try_from(spec.int(1)?).ok()?;
        let number = |at| spec.float(at);
        let (shift, times, over, offset) = (number(2)?, number(3)?, number(4)?, number(5)?);
        let inner = x.shape[axis + 1..].iter().product();
        let usable = x.is_dense() && spec.same_dtype()? == DType::F32 && x.shape[axis] > 0;
        let n = x.shape[axis];
        usable.then_some(Axis { at: x.offset, n, size, inner, shift, times, over, offset })
    }

    fn place(&self, m: usize) -> f64 {
        (m as f64 + self.shift) * self.times / self.over + self.offset
    }
}

struct Resample {
    axis: Axis,
    /// Elements of a window.
    taps: usize,
    /// The elements of each window, and their weights; no weights where an element is taken as it is.
    places: Vec<usize>,
    weights: Vec<f32>,
    /// What stands where there is no window.
    outside: Vec<Option<f32>>,
    /// The places, where elements of the last axis are taken as they are.
    gather: Option<LaneGather>,
}

impl Kernel for Resample {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let x: &[f32] = &inputs[0].typed()[self.axis.at..];
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let Axis { n, size, inner, .. } = self.axis;
        if out.is_empty() {
            return Ok(());
        }
        if inner == 1 {
            cx.threads.chunks(out, size, GRAIN, |at, part| {
                let rows = x[at / size * n..].chunks_exact(n);
                part.chunks_exact_mut(size).zip(rows).for_each(|(to, from)| self.row(from, to));
            });
        } else {
            cx.threads.chunks(out, inner, GRAIN, |at, part| {
                for (i, to) in part.chunks_exact_mut(inner).enumerate() {
                    let line = at / inner + i;
                    self.line(&x[line / size * n * inner..][..n * inner], line % size, to);
                }
            });
        }
        Ok(())
    }
}

impl Resample {
    /// The results along the last axis.
    fn row(&self, from: &[f32], to: &mut [f32]) {
        if let Some(gather) = &self.gather {
            return gather.copy(from, to);
        }
        match self.taps {
            1 => to.iter_mut().zip(&self.places).for_each(|(o, &i)| *o = from[i]),
            2 => {
                let windows = self.places.chunks_exact(2).zip(self.weights.chunks_exact(2));
                for (o, (i, w)) in to.iter_mut().zip(windows) {
                    *o = w[0] * from[i[0]] + w[1] * from[i[1]];
                }
            }
            taps => {
                let windows = self.places.chunks_exact(taps).zip(self.weights.chunks_exact(taps));
                for (o, (i, w)) in to.iter_mut().zip(windows) {
                    *o = i.iter().zip(w).fold(0.0, |sum, (&i, w)| sum + w * from[i]);
                }
            }
        }
        let outside = to.iter_mut().zip(&self.outside);
        outside.for_each(|(o, v)| *o = v.unwrap_or(*o));
    }

    /// The results at one place, all elements behind the axis.
    fn line(&self, from: &[f32], m: usize, to: &mut [f32]) {
        if let Some(v) = self.outside[m] {
            return to.fill(v);
        }
        let inner = self.axis.inner;
        let part = |i: usize| &from[i * inner..][..inner];
        let places = &self.places[m * self.taps..][..self.taps];
        if self.taps == 1 {
            return to.copy_from_slice(part(places[0]));
        }
        let weights = &self.weights[m * self.taps..][..self.taps];
        blend(part(places[0]), part(places[1]), weights[0], weights[1], to);
        for (&i, &w) in places.iter().zip(weights).skip(2) {
            add(part(i), w, to);
        }
    }
}

simd! {
    /// Two lines by their weights.
    fn blend(a: &[f32], b: &[f32], v: f32, w: f32, to: &mut [f32]) {
        to.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = v * a + w * b);
    }
}

simd! {
    /// One more line by its weight.
    fn add(a: &[f32], w: f32, to: &mut [f32]) {
        to.iter_mut().zip(a).for_each(|(o, a)| *o += w * a);
    }
}
