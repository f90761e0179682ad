//! Accelerated evaluation: one row of the innermost axis at a time.
//!
//! Computes the same elements in the same order of operations as [`super::super::code`],
//! so the results are bit-identical. What has no row form is evaluated element by element.

use super::super::array::{round_all, truncate, wrap};
use super::super::code::{
    Fault, InputElements, Int, Machine, Read, Real, Slot, Truth, compare, for_each, from_int,
    signum,
};
use super::affine::visitor::AffineVisitor;

/// Elements per row at most: the buffers of a row stay in the nearest cache.
const ROW: usize = 1024;

/// An axis of the space to fill: the variable takes `len` values from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The variable.
    pub slot: Slot,
    /// Its first value.
    pub start: i64,
    /// How many values it takes.
    pub len: i64,
}

/// Code with a row form.
pub trait Rows: AffineVisitor {
    /// What it yields.
    type Item: Clone;

    /// The values where `slot` is `start`, `start + 1`, ….
    fn row(&self, m: &mut Machine, slot: Slot, start: i64, out: &mut [Self::Item]);
}

/// The space as evaluation runs through it: neighbouring axes that all affine forms step through
/// evenly are one, and axes of a single value, whose variables the caller sets, are left out.
pub fn merge(body: &impl AffineVisitor, axes: &[Axis]) -> Vec<Axis> {
    let mut out: Vec<Axis> = Vec::with_capacity(axes.len());
    for &axis in axes.iter().filter(|a| a.len != 1) {
        let even = |outer: &Axis| {
            let mut even = axis.start == 0;
            body.affines(&mut |a| {
                even &=
                    a.factor(outer.slot) as i128 == a.factor(axis.slot) as i128 * axis.len as i128;
            });
            even
        };
        match out.last_mut() {
            Some(outer) if even(outer) => {
                *outer = Axis {
                    slot: axis.slot,
                    start: outer.start * axis.len,
                    len: outer.len * axis.len,
                };
            }
            _ => out.push(axis),
        }
    }
    out
}

/// Evaluates the elements `from..from + out.len()` of a merged space, in row-major order. Variables
/// that merging removed must be 0.
pub(crate) fn fill<B: Rows>(
    body: &B,
    axes: &[Axis],
    m: &mut Machine,
    from: usize,
    out: &mut [B::Item],
) -> Result<(), Fault> {
    // A space of no axes has one element; any variable serves as its row.
    let (outer, inner) = match axes.split_last() {
        Some((inner, outer)) => (outer, *inner),
        None => {
            m.slots.push(0);
            (axes, Axis { slot: m.slots.len() - 1, start: 0, len: 1 })
        }
    };
    let n = inner.len.max(1) as usize;
    let mut done = 0;
    while done < out.len() {
        let (mut row, column) = ((from + done) / n, (from + done) % n);
        for axis in outer.iter().rev() {
            let len = axis.len.max(1) as usize;
            m.slots[axis.slot] = axis.start + (row % len) as i64;
            row /= len;
        }
        let len = (n - column).min(out.len() - done).min(ROW);
        body.row(m, inner.slot, inner.start + column as i64, &mut out[done..done + len]);
        m.verdict()?;
        done += len;
    }
    Ok(())
}

/// Element by element.
fn each<T>(
    m: &mut Machine,
    slot: Slot,
    start: i64,
    out: &mut [T],
    mut eval: impl FnMut(&mut Machine) -> T,
) {
    for (j, out) in out.iter_mut().enumerate() {
        m.slots[slot] = start + j as i64;
        *out = eval(m);
    }
}

/// Calls `f` with the bounds of each run of equal truth values.
fn runs(truths: &[bool], mut f: impl FnMut(bool, usize, usize)) {
    let mut from = 0;
    for run in truths.chunk_by(|a, b| a == b) {
        f(run[0], from, from + run.len());
        from += run.len();
    }
}

impl Machine<'_> {
    /// Runs `f` with a scratch row of floats.
    fn with_reals(&mut self, len: usize, f: impl FnOnce(&mut Self, &mut [f64])) {
        let mut row = self.reals.pop().unwrap_or_default();
        row.resize(len, 0.0);
        f(self, &mut row);
        self.reals.push(row);
    }

    /// Runs `f` with a scratch row of integers.
    fn with_ints(&mut self, len: usize, f: impl FnOnce(&mut Self, &mut [i64])) {
        let mut row = self.ints.pop().unwrap_or_default();
        row.resize(len, 0);
        f(self, &mut row);
        self.ints.push(row);
    }

    /// Runs `f` with a scratch row of truth values.
    fn with_truths(&mut self, len: usize, f: impl FnOnce(&mut Self, &mut [bool])) {
        let mut row = self.truths.pop().unwrap_or_default();
        row.resize(len, false);
        f(self, &mut row);
        self.truths.push(row);
    }
}

/// The elements `j` of a row with `0 <= at + j * step < n`, as a range.
pub fn inside(at: i64, step: i64, n: i64, len: usize) -> (usize, usize) {
    // Attributes may be arbitrarily large, so the bounds are computed without overflow.
    let (at, step, n, len) = (at as i128, step as i128, n as i128, len as i128);
    let ceil_div = |a: i128, b: i128| -((-a).div_euclid(b));
    let (low, high) = match step.signum() {
        0 if (0..n).contains(&at) => (0, len),
        0 => (0, 0),
        1 => (ceil_div(-at, step), (n - 1 - at).div_euclid(step) + 1),
        _ => (ceil_div(at - (n - 1), -step), at.div_euclid(-step) + 1),
    };
    let low = low.clamp(0, len);
    (low as usize, high.clamp(low, len) as usize)
}

impl<E: Rows> Read<E> {
    /// A row of an input whose offsets are affine; `get` reads the element at an offset.
    fn row_with(
        &self,
        m: &mut Machine,
        slot: Slot,
        start: i64,
        out: &mut [E::Item],
        copy: impl FnOnce(&Machine, usize, i64, &mut [E::Item]),
    ) -> bool {
        let Some(fast) = &self.fast else { return false };
        m.slots[slot] = start;
        let (mut low, mut high) = (0, out.len());
        for (index, axis, n) in &fast.checked {
            let (at, step) = (index.eval(&m.slots), index.factor(slot));
            let (l, h) = inside(at, step, *n, out.len());
            if self.otherwise.is_none() && (l, h) != (0, out.len()) {
                let left = if l == 0 { h } else { 0 };
                let index = at.wrapping_add(step.wrapping_mul(left as i64));
                m.fail(self.fault(Some((*axis, index, *n))));
                return true;
            }
            (low, high) = (low.max(l), high.min(h));
        }
        let high = high.max(low);
        let step = fast.offset.factor(slot);
        let at = fast.offset.eval(&m.slots).wrapping_add(step.wrapping_mul(low as i64));
        if low < high {
            copy(m, at as usize, step, &mut out[low..high]);
        }
        if let Some(e) = &self.otherwise {
            if low > 0 {
                e.row(m, slot, start, &mut out[..low]);
            }
            if high < out.len() {
                e.row(m, slot, start + high as i64, &mut out[high..]);
            }
        }
        true
    }
}

impl<E: Rows> Read<E> {
    /// A row whose places are computed; `false` if one is outside of the input that has no value there, or exists for no element.
    fn gathered(
        &self,
        m: &mut Machine,
        slot: Slot,
        start: i64,
        out: &mut [E::Item],
        copy: impl FnOnce(&Machine, &[i64], &mut [E::Item]),
    ) -> bool {
        let mut found = false;
        m.with_ints(out.len(), |m, places| {
            let Some(within) = m.index(|m| self.places(m, slot, start, places)) else { return };
            match &self.otherwise {
                _ if within => {}
                Some(e) => e.row(m, slot, start, out),
                None => return,
            }
            copy(m, places, out);
            found = true;
        });
        found
    }

    /// The places of a row's elements, [`OUTSIDE`] for those outside of the input; `false` if there are some.
    fn places(&self, m: &mut Machine, slot: Slot, start: i64, places: &mut [i64]) -> bool {
        let (mut base, mut within) = (0, true);
        places.fill(0);
        for ((index, &n), &stride) in self.index.iter().zip(&self.shape).zip(&self.strides) {
            if !index.reads(slot) {
                m.slots[slot] = start;
                let at = index.eval(m);
                if at < 0 || at >= n {
                    places.fill(OUTSIDE);
                    return false;
                }
                base += at * stride;
                continue;
            }
            m.with_ints(places.len(), |m, row| {
                index.row(m, slot, start, row);
                for (place, &at) in places.iter_mut().zip(&*row) {
                    let is_inside = (0..n).contains(&at) && *place != OUTSIDE;
                    within &= is_inside;
                    *place = if is_inside { *place + at * stride } else { OUTSIDE };
                }
            });
        }
        places.iter_mut().filter(|p| **p != OUTSIDE).for_each(|p| *p += base);
        within
    }
}

/// The place of what is outside of an input.
const OUTSIDE: i64 = -1;

/// Copies the elements at the places that are inside.
fn picked<T: Copy, U: From<T>>(source: &[T], places: &[i64], out: &mut [U]) {
    let inside = out.iter_mut().zip(places).filter(|(_, at)| **at != OUTSIDE);
    inside.for_each(|(x, &at)| *x = source[at as usize].into());
}

/// Copies every `step`-th element from `at` on.
fn strided<T: Copy, U: Copy + From<T>>(source: &[T], at: usize, step: i64, out: &mut [U]) {
    match step {
        0 => out.fill(source[at].into()),
        1 => out.iter_mut().zip(&source[at..]).for_each(|(o, &v)| *o = v.into()),
        step => {
            let mut i = at as i64;
            for o in out {
                *o = source[i as usize].into();
                i += step;
            }
        }
    }
}

impl Rows for Real {
    type Item = f64;

    fn row(&self, m: &mut Machine, slot: Slot, start: i64, out: &mut [f64]) {
        match self {
            Real::Const(v) => out.fill(*v),
            Real::Unary(f, a) => {
                a.row(m, slot, start, out);
                out.iter_mut().for_each(|x| *x = (f.apply)(*x));
            }
            Real::Neg(a) => {
                a.row(m, slot, start, out);
                out.iter_mut().for_each(|x| *x = -*x);
            }
            Real::Round(dtype, a) => {
                a.row(m, slot, start, out);
                round_all(*dtype, out);
            }
            Real::Binary(op, a, b) => {
                a.row(m, slot, start, out);
                m.with_reals(out.len(), |m, other| {
                    b.row(m, slot, start, other);
                    op.apply_rows(out, other);
                });
            }
            Real::Read(read) => {
                let fast = read.row_with(m, slot, start, out, |m, at, step, out| {
                    match m.inputs[read.input] {
                        InputElements::Float(v) => strided(v, at, step, out),
                        InputElements::Single(v) => strided(v, at, step, out),
                        InputElements::Int(_) => out.fill(0.0),
                    }
                });
                let found = fast
                    || read.gathered(m, slot, start, out, |m, places, out| {
                        match m.inputs[read.input] {
                            InputElements::Float(v) => picked(v, places, out),
                            InputElements::Single(v) => picked(v, places, out),
                            InputElements::Int(_) => out.fill(0.0),
                        }
                    });
                if !found {
                    each(m, slot, start, out, |m| self.eval(m));
                }
            }
            Real::If(c, a, b) => m.with_truths(out.len(), |m, chosen| {
                c.row(m, slot, start, chosen);
                runs(chosen, |chosen, from, to| {
                    let e = if chosen { a } else { b };
                    e.row(m, slot, start + from as i64, &mut out[from..to]);
                });
            }),
            Real::FromInt(sign, a) => m.with_ints(out.len(), |m, ints| {
                a.row(m, slot, start, ints);
                out.iter_mut().zip(ints).for_each(|(x, i)| *x = from_int(*sign, *i));
            }),
            Real::Reduce(r) => {
                let (op, unit) = r.monoid.real();
                out.fill(unit);
                m.with_reals(out.len(), |m, row| {
                    for_each(&r.over, m, |m| {
                        r.body.row(m, slot, start, row);
                        op.apply_rows(out, row);
                    });
                });
            }
        }
    }
}

impl Rows for Int {
    type Item = i64;

    fn row(&self, m: &mut Machine, slot: Slot, start: i64, out: &mut [i64]) {
        match self {
            Int::Const(v) => out.fill(*v),
            Int::Affine(a) => {
                m.slots[slot] = start;
                let (mut v, step) = (a.eval(&m.slots), a.factor(slot));
                for o in out {
                    *o = v;
                    v = v.wrapping_add(step);
                }
            }
            Int::Neg(a) => {
                a.row(m, slot, start, out);
                out.iter_mut().for_each(|x| *x = x.wrapping_neg());
            }
            Int::Abs(a) => {
                a.row(m, slot, start, out);
                out.iter_mut().for_each(|x| *x = x.wrapping_abs());
            }
            Int::Signum(sign, a) => {
                a.row(m, slot, start, out);
                out.iter_mut().for_each(|x| *x = signum(*sign, *x));
            }
            Int::Wrap(dtype, a) => {
                a.row(m, slot, start, out);
                out.iter_mut().for_each(|x| *x = wrap(*dtype, *x));
            }
            Int::Binary(op, a, b) => {
                a.row(m, slot, start, out);
                m.with_ints(out.len(), |m, other| {
                    b.row(m, slot, start, other);
                    out.iter_mut().zip(other).for_each(|(a, b)| *a = op.apply(*a, *b));
                });
            }
            Int::Read(read) => {
                let fast = read.row_with(m, slot, start, out, |m, at, step, out| {
                    match m.inputs[read.input] {
                        InputElements::Int(v) => strided(v, at, step, out),
                        InputElements::Float(_) | InputElements::Single(_) => out.fill(0),
                    }
                });
                let found = fast
                    || read.gathered(m, slot, start, out, |m, places, out| {
                        match m.inputs[read.input] {
                            InputElements::Int(v) => picked(v, places, out),
                            InputElements::Float(_) | InputElements::Single(_) => out.fill(0),
                        }
                    });
                if !found {
                    each(m, slot, start, out, |m| self.eval(m));
                }
            }
            Int::If(c, a, b) => m.with_truths(out.len(), |m, chosen| {
                c.row(m, slot, start, chosen);
                runs(chosen, |chosen, from, to| {
                    let e = if chosen { a } else { b };
                    e.row(m, slot, start + from as i64, &mut out[from..to]);
                });
            }),
            Int::FromReal(dtype, a) => m.with_reals(out.len(), |m, reals| {
                a.row(m, slot, start, reals);
                out.iter_mut().zip(reals).for_each(|(x, r)| *x = truncate(*dtype, *r));
            }),
            Int::FromTruth(a) => m.with_truths(out.len(), |m, truths| {
                a.row(m, slot, start, truths);
                out.iter_mut().zip(truths).for_each(|(x, t)| *x = *t as i64);
            }),
            Int::Reduce(r) => {
                let (op, unit) = r.monoid.int(r.dtype);
                out.fill(unit);
                m.with_ints(out.len(), |m, row| {
                    for_each(&r.over, m, |m| {
                        r.body.row(m, slot, start, row);
                        out.iter_mut().zip(&*row).for_each(|(a, b)| *a = op.apply(*a, *b));
                    });
                });
                if let Some(dtype) = r.dtype {
                    out.iter_mut().for_each(|x| *x = wrap(dtype, *x));
                }
            }
            Int::Slot(_) | Int::Exact(..) | Int::At(..) => {
                each(m, slot, start, out, |m| self.eval(m));
            }
        }
    }
}

impl Rows for Truth {
    type Item = bool;

    fn row(&self, m: &mut Machine, slot: Slot, start: i64, out: &mut [bool]) {
        match self {
            Truth::Const(v) => out.fill(*v),
            Truth::Real(cmp, a, b) => m.with_reals(out.len(), |m, left| {
                a.row(m, slot, start, left);
                m.with_reals(out.len(), |m, right| {
                    b.row(m, slot, start, right);
                    let pairs = left.iter().zip(right);
                    out.iter_mut().zip(pairs).for_each(|(o, (a, b))| *o = cmp.holds(*a, *b));
                });
            }),
            Truth::Int(cmp, sign, a, b) => m.with_ints(out.len(), |m, left| {
                a.row(m, slot, start, left);
                m.with_ints(out.len(), |m, right| {
                    b.row(m, slot, start, right);
                    let pairs = left.iter().zip(right);
                    let holds = |(a, b): (&i64, &mut i64)| compare(*cmp, *sign, *a, *b);
                    out.iter_mut().zip(pairs).for_each(|(o, pair)| *o = holds(pair));
                });
            }),
            Truth::Not(a) => {
                a.row(m, slot, start, out);
                out.iter_mut().for_each(|x| *x = !*x);
            }
            Truth::NonZero(a) => m.with_ints(out.len(), |m, ints| {
                a.row(m, slot, start, ints);
                out.iter_mut().zip(ints).for_each(|(o, i)| *o = *i != 0);
            }),
            // The second operand is evaluated where the first does not decide.
            Truth::And(a, b) | Truth::Or(a, b) => m.with_truths(out.len(), |m, first| {
                a.row(m, slot, start, first);
                let decides = matches!(self, Truth::Or(..));
                runs(first, |v, from, to| match v == decides {
                    true => out[from..to].fill(v),
                    false => b.row(m, slot, start + from as i64, &mut out[from..to]),
                });
            }),
            Truth::If(..) | Truth::Quantified(..) => {
                each(m, slot, start, out, |m| self.eval(m));
            }
        }
    }
}
