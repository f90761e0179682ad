//! Compares one output on one input set: is the result as good as the source?
//!
//! If the reference interpreter ran the source, both are compared with its values; the source's own error,
//! and its change when the inputs are perturbed by a rounding, bound the error of the result. Otherwise
//! the result is compared with the source.

use crate::error::Error;
use mlc_backends::reference::Array;
use mlc_dsl::ir::{DType, Tensor};

/// The result may be that many times as far from the truth as the source.
pub const FACTOR: f64 = 16.0;
/// And that many roundings of an output's largest element beyond.
pub const UNITS: f64 = 64.0;
/// Without the reference interpreter: the part of an output's largest element that regrouped sums explain.
pub const PART: f64 = 5e-3;
/// A source that is off by that part of an output's largest element tells nothing.
const LOST: f64 = 0.1;

/// The runs of one output.
pub struct Runs<'a> {
    /// The reference interpreter's values of the source, where it ran.
    pub truth: Option<&'a Array>,
    /// The source's.
    pub source: &'a Tensor,
    /// The source's on inputs that are moved by a rounding, where that was needed.
    pub moved: Option<&'a Tensor>,
    /// The reference interpreter's with every value on the way moved by a rounding, where that was needed.
    pub disturbed: Option<&'a Array>,
    /// The result's.
    pub result: &'a Tensor,
}

/// How strict the comparison is.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The user's: the part of an output's largest element that an element may be off.
    pub tolerance: Option<f64>,
    /// The coarsest rounding of the two programs.
    pub unit: f64,
    /// The user allows approximations: they stray as far as regrouped sums may without the reference interpreter, and are finite
    /// where the source overflows.
    pub is_approx: bool,
    /// Without the reference interpreter: whether values that are not finite may be overflow, which decides nothing.
    pub overflows: bool,
}

/// What is wrong with an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is too far off.
    Far,
    /// It is finite, infinite of one sign, or NaN where the source is not.
    Kind,
}

/// An element that is wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its position in row-major order.
    pub at: usize,
    /// What is wrong with it.
    pub wrong: Wrong,
    /// The source's value.
    pub source: f64,
    /// The result's.
    pub result: f64,
    /// The reference interpreter's.
    pub truth: Option<f64>,
    /// Its distance relative to the output's largest element.
    pub error: f64,
}

/// What an output shows.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Elements that were compared.
    pub compared: usize,
    /// Elements that tell nothing: there the source itself is lost.
    pub void: usize,
    /// Distance of the result from the truth, or from the source; relative to the largest element.
    pub error: f64,
    /// Distance of the source from the truth.
    pub source_error: f64,
    /// Elements that are wrong, by position.
    pub wrong: Vec<Finding>,
}

impl Verdict {
    /// The element that is furthest off.
    pub fn worst(&self) -> Option<&Finding> {
        self.wrong.iter().rev().max_by(|a, b| a.error.total_cmp(&b.error))
    }

    /// True if the element at a position is wrong.
    pub fn is_wrong(&self, at: usize) -> bool {
        self.wrong.binary_search_by_key(&at, |f| f.at).is_ok()
    }

    /// Keeps those wrong elements for which `f` holds; the others tell nothing.
    pub fn keep(&mut self, f: impl Fn(&Finding) -> bool) {
        let before = self.wrong.len();
        self.wrong.retain(f);
        let dropped = before - self.wrong.len();
        (self.void, self.compared) = (self.void + dropped, self.compared - dropped);
    }
}

/// What kind of number a value is; zeros of either sign are alike, infinities are not.
fn kind(v: f64) -> u8 {
    match v {
        v if v.is_nan() => 3,
        f64::INFINITY => 2,
        f64::NEG_INFINITY => 1,
        _ => 0,
    }
}

/// What may be flushed to zero.
fn tiny(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 6.2e-5,
        DType::F64 => f64::MIN_POSITIVE,
        _ => f32::MIN_POSITIVE.into(),
    }
}

/// Compares one output.
pub fn verdict(runs: &Runs<'_>, rule: &Rule) -> Verdict {
    let n = runs.source.len();
    if runs.source.bytes() == runs.result.bytes() {
        return Verdict { compared: n, ..Verdict::default() };
    }
    if !runs.source.dtype().is_float() {
        return whole(runs);
    }
    let (s, r) = (runs.source.to_f64(), runs.result.to_f64());
    let moved = runs.moved.map(Tensor::to_f64);
    let truth = runs.truth.map(Array::to_f64);
    let disturbed = runs.disturbed.map(Array::to_f64);
    Floats {
        rule,
        dtype: runs.source.dtype(),
        s: &s,
        r: &r,
        moved: moved.as_deref(),
        disturbed: disturbed.as_deref(),
        t: truth.as_deref(),
    }
    .verdict()
}

/// Integers and truth values: equal, or not.
fn whole(runs: &Runs<'_>) -> Verdict {
    let (s, r) = (runs.source.to_i64(), runs.result.to_i64());
    let truth: Option<Vec<i64>> = runs.truth.and_then(|t| t.ints().map(<[i64]>::to_vec));
    let moved = runs.moved.map(Tensor::to_i64);
    let disturbed: Option<Vec<i64>> = runs.disturbed.and_then(|t| t.ints().map(<[i64]>::to_vec));
    let mut out = Verdict::default();
    for i in 0..s.len() {
        let lost = |other: &Option<Vec<i64>>| other.as_ref().is_some_and(|v| v[i] != s[i]);
        if lost(&truth) || lost(&moved) || lost(&disturbed) {
            out.void += 1;
            continue;
        }
        out.compared += 1;
        if s[i] != r[i] {
            let value = |v: i64| v as f64;
            out.wrong.push(Finding {
                at: i,
                wrong: Wrong::Far,
                source: value(s[i]),
                result: value(r[i]),
                truth: truth.as_ref().map(|t| value(t[i])),
                error: (value(s[i]) - value(r[i])).abs() / value(s[i]).abs().max(1.0),
            });
            out.error = out.error.max(1.0);
        }
    }
    out
}

/// The values of an output of floats.
struct Floats<'a> {
    rule: &'a Rule,
    dtype: DType,
    s: &'a [f64],
    r: &'a [f64],
    moved: Option<&'a [f64]>,
    disturbed: Option<&'a [f64]>,
    t: Option<&'a [f64]>,
}

impl Floats<'_> {
    /// What the result is held against.
    fn sought(&self, i: usize) -> f64 {
        self.t.map_or(self.s[i], |t| t[i])
    }

    /// How far the source itself is off, or moves with its inputs; `None` where it is lost.
    fn own(&self, i: usize) -> Option<f64> {
        let (s, sought) = (self.s[i], self.sought(i));
        let moves = |other: Option<&[f64]>, from: f64| match other.map(|v| v[i]) {
            Some(v) if kind(v) != kind(from) => None,
            Some(v) if v.is_finite() => Some((v - from).abs()),
            _ => Some(0.0),
        };
        if kind(s) != kind(sought) {
            return None;
        }
        let off = if s.is_finite() { (s - sought).abs() } else { 0.0 };
        Some(off.max(moves(self.moved, s)?).max(moves(self.disturbed, sought)?))
    }

    fn verdict(&self) -> Verdict {
        let own: Vec<Option<f64>> = (0..self.s.len()).map(|i| self.own(i)).collect();
        let finite = || (0..own.len()).filter(|&i| own[i].is_some() && self.s[i].is_finite());
        let scale = finite().map(|i| self.sought(i).abs()).fold(0.0, f64::max);
        let scale = scale.max(tiny(self.dtype));
        // The source's errors are either of one size, or in proportion to the elements.
        let error = |i: usize| own[i].unwrap_or(0.0);
        let alike = finite().map(error).fold(0.0, f64::max);
        let part = |i: usize| error(i) / self.sought(i).abs().max(tiny(self.dtype));
        let in_part = finite().map(part).fold(0.0, f64::max);
        let lost = alike > LOST * scale && self.rule.tolerance.is_none();
        let mut out = Verdict { source_error: alike / scale, ..Verdict::default() };
        for (i, own) in own.iter().enumerate() {
            let Some(own) = *own else {
                out.void += 1;
                continue;
            };
            let (sought, r) = (self.sought(i), self.r[i]);
            if kind(r) != kind(sought) {
                if self.is_overflow(i) || self.rule.is_approx && r.is_finite() {
                    out.void += 1;
                } else {
                    out.compared += 1;
                    self.note(&mut out, i, Wrong::Kind, f64::INFINITY);
                }
                continue;
            }
            out.compared += 1;
            if !sought.is_finite() {
                continue;
            }
            let off = (r - sought).abs();
            out.error = out.error.max(off / scale);
            let typical = alike.min(in_part * sought.abs());
            let allowed = match (self.rule.tolerance, self.t) {
                (Some(tolerance), _) => tolerance * scale,
                (None, Some(_)) if self.rule.is_approx => (PART * scale).max(FACTOR * alike),
                (None, Some(_)) => FACTOR * own.max(typical) + UNITS * self.rule.unit * scale,
                (None, None) => (PART * scale).max(FACTOR * alike),
            };
            if off > allowed + tiny(self.dtype) {
                // An ill-conditioned output tells nothing of its finite values.
                if lost {
                    (out.void, out.compared) = (out.void + 1, out.compared - 1);
                } else {
                    self.note(&mut out, i, Wrong::Far, off / scale);
                }
            }
        }
        out
    }

    /// True if only the reference interpreter could tell whether another kind of number is overflow.
    fn is_overflow(&self, i: usize) -> bool {
        self.t.is_none() && self.rule.overflows && !self.s[i].is_finite()
    }

    fn note(&self, out: &mut Verdict, i: usize, wrong: Wrong, error: f64) {
        out.wrong.push(Finding {
            at: i,
            wrong,
            source: self.s[i],
            result: self.r[i],
            truth: self.t.map(|t| t[i]),
            error,
        });
    }
}

/// The largest difference relative to the largest finite element; NaN and infinities must agree.
pub fn difference(a: &Tensor, b: &Tensor) -> Result<f64, Error> {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        let (a, b) = ((a.dtype(), a.shape()), (b.dtype(), b.shape()));
        return Err(Error::unexpected(format!("{a:?} became {b:?}")));
    }
    if a.bytes() == b.bytes() {
        return Ok(0.0);
    }
    let (x, y) = (a.to_f64(), b.to_f64());
    let scale = x.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let mut worst = 0.0f64;
    for (i, (&p, &q)) in x.iter().zip(&y).enumerate() {
        if p == q || p.is_nan() && q.is_nan() {
            continue;
        }
        if !p.is_finite() || !q.is_finite() {
            return Err(Error::unexpected(format!("element {i}: {p} became {q}")));
        }
        worst = worst.max((p - q).abs());
    }
    Ok(if worst == 0.0 { 0.0 } else { worst / scale.max(f64::MIN_POSITIVE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(v: &[f32]) -> Tensor {
        Tensor::from_f32(vec![v.len()], v.to_vec())
    }

    fn compared(t: &[f64], s: &[f32], r: &[f32]) -> Verdict {
        let truth = Array::from_f64(DType::F32, vec![t.len()], t.to_vec());
        let rule =
            Rule { tolerance: None, unit: 2f64.powi(-24), is_approx: false, overflows: false };
        let (source, result) = (tensor(s), tensor(r));
        verdict(
            &Runs {
                truth: truth.as_ref(),
                source: &source,
                moved: None,
                disturbed: None,
                result: &result,
            },
            &rule,
        )
    }

    #[test]
    fn elements_are_compared_with_the_source_and_its_truth() {
        const INF: f32 = f32::INFINITY;
        const NAN: f32 = f32::NAN;
        // (truth, source, result, elements that are wrong, elements that tell nothing)
        type Case<'a> = (&'a [f64], &'a [f32], &'a [f32], &'a [usize], usize);
        let cases: [Case; 10] = [
            (&[1.0, 2.0], &[1.0, 2.0], &[1.000_001, 2.0], &[], 0),
            (&[1.0, 2.0], &[1.0, 2.0], &[1.01, 2.0], &[0], 0),
            (&[1e-6, 1e6], &[1e-6, 1e6], &[2e-6, 1e6], &[], 0),
            (&[1e-6, 1e-6], &[1e-6, 1e-6], &[2e-6, 1e-6], &[0], 0),
            (&[1.0, 2.0], &[1.001, 2.0], &[0.999, 2.0], &[], 0),
            (&[1.0, 2.0], &[1.0, 2.0], &[NAN, 2.0], &[0], 0),
            (&[1e60, 2.0], &[INF, 2.0], &[NAN, 2.0], &[], 1),
            (&[f64::INFINITY, 2.0], &[INF, 2.0], &[7.0, 2.0], &[0], 0),
            (&[f64::NAN, 2.0], &[NAN, 2.0], &[7.0, 2.0], &[0], 0),
            (&[f64::INFINITY, 2.0], &[INF, 2.0], &[-INF, 2.0], &[0], 0),
        ];
        for (i, (t, s, r, wrong, void)) in cases.into_iter().enumerate() {
            let v = compared(t, s, r);
            let found: Vec<usize> = v.wrong.iter().map(|f| f.at).collect();
            assert_eq!((found.as_slice(), v.void), (wrong, void), "case {i}: {v:?}");
        }
    }
}
