//! Detects the tanh approximation of GELU behind a product, however it was unfolded, by evaluating the expression at sample points.

use super::super::emit::{Emitter, offset_of, offset_read};
use super::super::kernel::{KernelProgram, known_type};
use super::Product;
use super::epilogue::source;
use super::strided_read::number;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Int, Read, Real};
use mlc_dsl::ir::Value;

/// Where a function of one number is compared with the activation: on both sides of its bends, and far from them.
const SAMPLES: [f64; 12] = [-30.0, -6.0, -3.1, -1.7, -0.75, -0.2, 0.0, 0.3, 0.9, 2.2, 4.6, 25.0];
/// Constants of the definition may be those of `f32`.
const TOLERANCE: f64 = 1e-6;
/// Values between the activation's result and its argument at most.
const MOST: usize = 16;

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

/// The value whose activation `v` is, element by element at the product's index.
pub fn argument(e: &mut Emitter<'_>, v: Value, p: &Product) -> Option<Value> {
    let mut before = vec![v];
    let mut at = 0;
    while let Some(&of) = before.get(at).filter(|_| at < MOST) {
        at += 1;
        let is_like = known_type(&e.kernel().program, of).is_ok_and(|ty| ty.1 == p.shape);
        if !is_like || of == p.value || of != v && e.stored.contains_key(&of) {
            continue;
        }
        if let Some(Body::Real(body)) = e.body_at(of, &p.index) {
            sources(e.kernel(), of, &body, &mut before);
        }
    }
    let is_argument = |inner: &Value| {
        let mut curve = SampledFunction { e, p, inner: *inner, left: SAMPLES.len() * MOST * MOST };
        SAMPLES.iter().all(|&x| {
            let y = curve.at(v, &p.index, x);
            y.is_some_and(|y| (y - gelu_tanh(x)).abs() <= TOLERANCE * x.abs().max(1.0))
        })
    };
    before.into_iter().skip(1).find(is_argument)
}

/// Adds the values that a float reads.
fn sources(kernel: &KernelProgram, of: Value, r: &Real, to: &mut Vec<Value>) {
    match r {
        Real::Unary(_, a) | Real::Neg(a) | Real::Round(_, a) => sources(kernel, of, a, to),
        Real::Binary(_, a, b) => [a, b].into_iter().for_each(|side| sources(kernel, of, side, to)),
        Real::Read(read) => {
            let found = source(kernel, of, read).filter(|v| !to.contains(v));
            to.extend(found.filter(|v| kernel.constant(*v).is_none()));
        }
        _ => {}
    }
}

/// A value as a function of another one at the same place.
struct SampledFunction<'c, 'k> {
    e: &'c mut Emitter<'k>,
    p: &'c Product,
    inner: Value,
    /// How many more elements are computed at most.
    left: usize,
}

impl SampledFunction<'_, '_> {
    /// What it is where the other one is `x`, without rounding; `None` if it depends on more.
    fn at(&mut self, of: Value, index: &[Int], x: f64) -> Option<f64> {
        self.left = self.left.checked_sub(1)?;
        match self.e.body_at(of, index)? {
            Body::Real(body) => self.float(of, &body, x),
            _ => None,
        }
    }

    fn float(&mut self, of: Value, r: &Real, x: f64) -> Option<f64> {
        if let Some(n) = number(self.e.kernel(), of, r) {
            return Some(n);
        }
        Some(match r {
            Real::Unary(f, a) => (f.apply)(self.float(of, a, x)?),
            Real::Neg(a) => -self.float(of, a, x)?,
            Real::Round(_, a) => self.float(of, a, x)?,
            Real::Binary(op, a, b) => {
                let a = self.float(of, a, x)?;
                op.apply(a, self.float(of, b, x)?)
            }
            Real::Read(read) => self.read(of, read, x)?,
            _ => return None,
        })
    }

    fn read(&mut self, of: Value, read: &Read<Real>, x: f64) -> Option<f64> {
        let from = source(self.e.kernel(), of, read)?;
        let is_here = offset_read(read)? == offset_of(&self.p.shape, &self.p.index)?;
        match from == self.inner {
            true => is_here.then_some(x),
            false if self.e.stored.contains_key(&from) => None,
            false => self.at(from, &read.index, x),
        }
    }
}
