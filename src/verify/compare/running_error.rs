//! Running error analysis of one side: what any grouping of its sums and products may do to each element.
//!
//! Every number carries a bound on its rounding error (Wilkinson's running error analysis, derived from the computed
//! values) and the largest and the smallest magnitude that some grouping of its factors and summands
//! passes through. Sums and products are considered unordered; the argument of any other function has
//! one value, which overflows or vanishes in every order or in none. From this follows how much a regrouped
//! sum may legitimately differ, and whether the kind of a value (finite, infinite, NaN) depends on the order only.

use super::Sample;
use mlc_backends::reference::{Algebra, Cmp, Element, Lifted, RealOp, function, lift};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::ir::{DType, Program};
use mlc_dsl::library::Library;

/// Distance from the ends of a type's range, as a factor, within which an order of operations decides.
const MARGIN: f64 = 4.0;

/// Operations for one evaluation.
const WORK: usize = 4_000_000;

/// A value and what rounding and order may do to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundedNumber {
    /// The value, sums and products as real numbers have them, beyond the range an infinity.
    pub value: f64,
    /// Rounding error of what it is a sum of.
    inner: f64,
    /// The sum of the magnitudes of its summands.
    spread: f64,
    terms: u32,
    /// Binary logarithm of the largest magnitude that a grouping passes through; at least 0.
    top: f64,
    /// The same of the smallest; at most 0.
    bottom: f64,
    /// The order of operations, or a factor of [`MARGIN`], decides whether it is finite.
    pub open: bool,
    /// Infinities have met, or a sum was multiplied by one: infinity and NaN depend on the order.
    pub wild: bool,
    /// A sum or product that is not finite: as a result, infinity and NaN are alike.
    pub loose: bool,
    /// It may have vanished on the way.
    faint: bool,
    /// It is a sum of products, however nested.
    pub pure: bool,
    /// What finite numbers were given to has overflowed on the way.
    pub overflowed: bool,
    /// What was not zero has vanished on the way.
    pub vanished: bool,
}

/// The algebra of a working type.
pub(crate) struct RunningError {
    unit: f64,
    largest: f64,
    normal: f64,
    least: f64,
}

/// Largest finite number, smallest normal and smallest positive one.
pub(crate) fn limits(dtype: DType) -> (f64, f64, f64) {
    let power = |n: i32| (2f64).powi(n);
    match dtype {
        DType::F16 => (dtype.largest(), power(-14), power(-24)),
        DType::BF16 => (dtype.largest(), power(-126), power(-133)),
        DType::F64 => (dtype.largest(), f64::MIN_POSITIVE, f64::from_bits(1)),
        _ => match dtype.small_float() {
            Some(f) => (f.largest(), f.smallest_normal(), f.smallest()),
            None => (DType::F32.largest(), power(-126), power(-149)),
        },
    }
}

/// The elements of one side's outputs, analysed in a working type. Inputs marked `given` count as
/// rounded once. `None` if a side is procedural, or too large.
pub(crate) fn analyse(
    library: &Library,
    program: &Program,
    sample: &Sample,
    dtype: DType,
    given: &[bool],
) -> Option<Vec<Vec<BoundedNumber>>> {
    let (largest, normal, least) = limits(dtype);
    let mut algebra = RunningError { unit: dtype.unit_roundoff(), largest, normal, least };
    let inputs: Vec<Lifted<BoundedNumber>> = sample
        .inputs
        .iter()
        .zip(&sample.instance.vars)
        .map(|(t, &var)| {
            let rounded = given.get(var).copied().unwrap_or(false);
            let number = |v: f64| {
                let error = if rounded { algebra.unit * v.abs() } else { 0.0 };
                Element::Number(algebra.leaf(v, error))
            };
            let elements = if t.dtype().is_float() {
                t.to_f64().into_iter().map(number).collect()
            } else {
                t.to_i64().into_iter().map(Element::Int).collect()
            };
            Lifted { dtype: t.dtype(), shape: t.shape().to_vec(), elements }
        })
        .collect();
    let outputs = lift(&mut algebra, program, library, &inputs, WORK).ok()?;
    let closed = |e: &Element<BoundedNumber>| match e {
        Element::Int(v) => algebra.leaf(*v as f64, 0.0),
        Element::Number(n) => algebra.close(n),
    };
    Some(outputs.iter().map(|o| o.elements.iter().map(closed).collect()).collect())
}

impl BoundedNumber {
    /// A bound of its rounding error: sums of three and more in any order.
    pub(crate) fn error(&self, unit: f64) -> f64 {
        let own = match self.terms {
            0 | 1 => 0.0,
            2 => self.value.abs(),
            _ => self.spread,
        };
        let error = self.inner + unit * own;
        if error.is_nan() { f64::INFINITY } else { error }
    }
}

/// Finite, one of the infinities, or NaN.
fn kind(v: f64) -> u8 {
    match v {
        _ if v.is_nan() => 3,
        f64::INFINITY => 2,
        f64::NEG_INFINITY => 1,
        _ => 0,
    }
}

impl RunningError {
    fn leaf(&self, value: f64, inner: f64) -> BoundedNumber {
        let log = if value == 0.0 || !value.is_finite() { 0.0 } else { value.abs().log2() };
        BoundedNumber {
            value,
            inner,
            spread: value.abs(),
            terms: 1,
            top: log.max(0.0),
            bottom: log.min(0.0),
            open: false,
            wild: false,
            loose: false,
            faint: value != 0.0 && value.abs() < self.normal,
            pure: true,
            overflowed: false,
            vanished: false,
        }
    }

    /// A value that came of others, with what is known of these.
    fn from(&self, value: f64, inner: f64, of: &[&BoundedNumber]) -> BoundedNumber {
        let any = |f: fn(&BoundedNumber) -> bool| of.iter().any(|n| f(n));
        BoundedNumber {
            open: any(|n| n.open),
            overflowed: any(|n| n.overflowed),
            vanished: any(|n| n.vanished),
            pure: of.iter().all(|n| n.pure),
            ..self.leaf(value, inner)
        }
    }

    /// The value as a function is given it: in the range of the type, or beyond it in any order.
    fn close(&self, n: &BoundedNumber) -> BoundedNumber {
        let error = n.error(self.unit);
        let size = n.value.abs();
        let finite = size.is_finite();
        let mut out =
            BoundedNumber { wild: n.wild, loose: n.loose, ..self.from(n.value, error, &[n]) };
        out.faint |= n.faint;
        if finite && size > self.largest * MARGIN {
            out.value = f64::INFINITY.copysign(n.value);
            out.overflowed = true;
            out.loose = true;
        } else if finite && n.top > (self.largest / MARGIN).log2() {
            out.open = true;
        } else if finite && size != 0.0 && size < self.least / MARGIN {
            out.value = 0.0f64.copysign(n.value);
            out.vanished = true;
        } else if finite && size != 0.0 && (size < self.normal || n.bottom < self.normal.log2()) {
            out.faint = true;
            out.inner = error.max(size);
        }
        out
    }

    /// A function of one closed number.
    fn apply(&self, a: &BoundedNumber, f: impl Fn(f64) -> f64) -> BoundedNumber {
        let value = f(a.value);
        let mut kinds = Vec::new();
        if a.faint {
            kinds.extend([0.0, self.normal].map(|v: f64| f(v.copysign(a.value))));
        }
        if a.wild {
            kinds.extend([f(f64::INFINITY), f(f64::NEG_INFINITY), f(f64::NAN)]);
        }
        let error = match a.inner {
            0.0 => 0.0,
            e => [e, -e, e / 3.0, -e / 3.0]
                .iter()
                .map(|d| (f(a.value + d) - value).abs())
                .fold(0.0, |m: f64, d| if d.is_nan() { f64::INFINITY } else { m.max(d) }),
        };
        let decided = |v: &f64| kind(self.in_range(*v)) == kind(self.in_range(value));
        let open = !a.wild && !kinds.iter().all(decided);
        let lost = a.wild && kinds.iter().any(|v| v.is_finite());
        self.result(value, error, &[a], open || lost, a.wild)
    }

    fn in_range(&self, v: f64) -> f64 {
        if v.is_finite() && v.abs() > self.largest { f64::INFINITY.copysign(v) } else { v }
    }

    /// The result of a function: rounded, in the range or beyond it.
    fn result(
        &self,
        value: f64,
        error: f64,
        of: &[&BoundedNumber],
        open: bool,
        wild: bool,
    ) -> BoundedNumber {
        let size = value.abs();
        let mut out = self.from(value, error + self.unit * size, of);
        let sources_finite = of.iter().all(|n| n.value.is_finite());
        if !size.is_finite() {
            out.inner = 0.0;
            // What was given a value that vanished has a pole there.
            out.overflowed |= sources_finite && value.is_infinite() && !out.vanished;
        } else if size > self.largest * MARGIN {
            out = BoundedNumber { value: f64::INFINITY.copysign(value), overflowed: true, ..out };
        } else if size > self.largest / MARGIN {
            out.open = true;
        } else if size != 0.0 && size < self.least / MARGIN {
            out = BoundedNumber {
                value: 0.0f64.copysign(value),
                vanished: true,
                faint: false,
                ..out
            };
        } else if size != 0.0 && size < self.normal {
            out.inner = out.inner.max(size);
        } else if size == 0.0 && of.iter().any(|n| n.value != 0.0 && n.value.is_finite()) {
            // f64 itself has none this small.
            out.vanished |= of.iter().any(|n| n.value.abs() > 1.0);
        }
        out.open |= open;
        out.pure = false;
        out.wild = wild && !out.value.is_finite();
        out
    }

    fn sum(&self, a: &BoundedNumber, b: &BoundedNumber, sign: f64) -> BoundedNumber {
        let value = a.value + sign * b.value;
        let out = self.from(value, a.inner + b.inner, &[a, b]);
        let (high, low) = if a.top > b.top { (a.top, b.top) } else { (b.top, a.top) };
        BoundedNumber {
            spread: a.spread + b.spread,
            terms: a.terms + b.terms,
            top: high + (1.0 + (low - high).exp2()).log2(),
            bottom: a.bottom.min(b.bottom),
            wild: a.wild || b.wild || met(value, a, b),
            loose: !value.is_finite(),
            faint: a.faint || b.faint,
            ..out
        }
    }

    fn product(&self, a: &BoundedNumber, b: &BoundedNumber) -> BoundedNumber {
        let value = a.value * b.value;
        let (ea, eb) = (a.error(self.unit), b.error(self.unit));
        let part = |v: f64, e: f64| if e == 0.0 { 0.0 } else { v.abs() * e };
        let plain = [a, b].iter().any(|n| n.value.abs() == 1.0 && n.inner == 0.0);
        let own = if plain { 0.0 } else { self.unit * value.abs() };
        let inner = part(a.value, eb) + part(b.value, ea) + part(ea, eb) + own;
        let mixed = |n: &BoundedNumber| n.terms > 1 && n.spread > n.value.abs();
        let scattered = a.value.is_infinite() && mixed(b) || b.value.is_infinite() && mixed(a);
        let out = self.from(value, inner, &[a, b]);
        let overflows = value.is_infinite() && a.value.is_finite() && b.value.is_finite();
        BoundedNumber {
            top: a.top + b.top,
            bottom: a.bottom + b.bottom,
            wild: a.wild || b.wild || scattered || met(value, a, b),
            loose: !value.is_finite(),
            // Beyond f64 itself nothing is known.
            open: out.open || overflows,
            faint: a.faint || b.faint,
            ..out
        }
    }

    /// An operation of two closed numbers.
    fn join(
        &self,
        a: &BoundedNumber,
        b: &BoundedNumber,
        f: impl Fn(f64, f64) -> f64,
    ) -> BoundedNumber {
        let (a, b) = (self.close(a), self.close(b));
        let value = f(a.value, b.value);
        let or = |n: &BoundedNumber, v: f64| if n.faint { v.copysign(n.value) } else { n.value };
        let faint = [0.0, self.normal].map(|v| [f(or(&a, v), b.value), f(a.value, or(&b, v))]);
        let faint = faint.concat();
        let decided = |v: &f64| kind(self.in_range(*v)) == kind(self.in_range(value));
        let open = !faint.iter().all(decided) || a.wild || b.wild;
        let error = [(a.inner, 0.0), (-a.inner, 0.0), (0.0, b.inner), (0.0, -b.inner)]
            .iter()
            .map(|(da, db)| {
                if *da == 0.0 && *db == 0.0 {
                    0.0
                } else {
                    (f(a.value + da, b.value + db) - value).abs()
                }
            })
            .fold(0.0, |m: f64, d| if d.is_nan() { f64::INFINITY } else { m + d });
        self.result(value, error, &[&a, &b], open, false)
    }

    /// One of two closed numbers.
    fn one(&self, a: &BoundedNumber, b: &BoundedNumber, value: f64, error: f64) -> BoundedNumber {
        let out = self.from(value, error, &[a, b]);
        let wild = (a.wild || b.wild) && !value.is_finite();
        BoundedNumber { wild, faint: a.faint || b.faint, pure: false, ..out }
    }
}

/// True if NaN came of infinities.
fn met(value: f64, a: &BoundedNumber, b: &BoundedNumber) -> bool {
    value.is_nan() && !a.value.is_nan() && !b.value.is_nan()
}

impl Algebra for RunningError {
    type Number = BoundedNumber;

    fn constant(&mut self, value: f64) -> BoundedNumber {
        // A number of few digits is the same in every type.
        let short = value as f32 as f64 == value && (value as f32).to_bits().trailing_zeros() >= 14;
        let error = if short || !value.is_finite() { 0.0 } else { self.unit * value.abs() };
        self.leaf(value, error)
    }

    fn function(&mut self, f: Function, a: &BoundedNumber) -> Result<BoundedNumber, String> {
        let a = self.close(a);
        if f == Function::Abs {
            return Ok(self.one(&a, &a, a.value.abs(), a.inner));
        }
        let value = |x: f64| function(f, x).unwrap_or(f64::NAN);
        Ok(self.apply(&a, value))
    }

    fn operation(
        &mut self,
        op: RealOp,
        a: &BoundedNumber,
        b: &BoundedNumber,
    ) -> Result<BoundedNumber, String> {
        Ok(match op {
            RealOp::Add => self.sum(a, b, 1.0),
            RealOp::Sub => self.sum(a, b, -1.0),
            RealOp::Mul => self.product(a, b),
            RealOp::Max | RealOp::Min => {
                let (a, b) = (self.close(a), self.close(b));
                self.one(&a, &b, op.apply(a.value, b.value), a.inner.max(b.inner))
            }
            RealOp::Div | RealOp::Pow | RealOp::Modulo | RealOp::Remainder => {
                self.join(a, b, |a, b| op.apply(a, b))
            }
        })
    }

    fn comparison(&mut self, cmp: Cmp, a: &BoundedNumber, b: &BoundedNumber) -> BoundedNumber {
        let (a, b) = (self.close(a), self.close(b));
        let reach = a.inner + b.inner;
        let unsure = reach > 0.0 && (a.value - b.value).abs() <= reach;
        let value = f64::from(u8::from(cmp.holds(a.value, b.value)));
        let out = self.from(value, if unsure { 1.0 } else { 0.0 }, &[&a, &b]);
        BoundedNumber { open: out.open || a.wild || b.wild, ..out }
    }

    fn conversion(&mut self, to: DType, a: &BoundedNumber) -> BoundedNumber {
        let a = self.close(a);
        if !to.is_float() {
            return self.result(a.value.trunc(), a.inner, &[&a], false, false);
        }
        let (largest, normal, least) = limits(to);
        let narrow =
            RunningError { unit: to.unit_roundoff().max(self.unit), largest, normal, least };
        let out = narrow.result(a.value, a.inner, &[&a], false, a.wild);
        narrow.close(&out)
    }

    fn choice(
        &mut self,
        c: &BoundedNumber,
        a: &BoundedNumber,
        b: &BoundedNumber,
    ) -> Result<BoundedNumber, String> {
        let (a, b) = (self.close(a), self.close(b));
        let chosen = if c.value != 0.0 { &a } else { &b };
        let unsure = c.error(self.unit) > 0.0;
        let jump = (a.value - b.value).abs();
        let error = if unsure { a.inner.max(b.inner) + jump } else { chosen.inner };
        let split = unsure && kind(a.value) != kind(b.value);
        let open = c.open || chosen.open || split || (unsure && (a.open || b.open));
        Ok(BoundedNumber {
            open,
            inner: if error.is_nan() { f64::INFINITY } else { error },
            ..*chosen
        })
    }
}
