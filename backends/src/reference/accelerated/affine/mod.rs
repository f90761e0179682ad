//! Accelerated code: index arithmetic in affine form, reads with affine offsets.
//!
//! Uses the ranges of index variables: `o / 64` is 0 if `o < 64`, and an index that
//! cannot leave its axis is not checked. Never changes a value.

pub mod visitor;

use super::super::code::compile::{Body, MeaningCode};
use super::super::code::{Affine, FastRead, Int, Read, Real, Reduce, Slot, Truth};
use super::super::scalar::{Cmp, IntOp};
use mlc_dsl::ir::DType;
use std::collections::BTreeMap;

/// The same code, accelerated. An output axis that the code takes apart by division becomes two.
pub fn accelerate(code: &MeaningCode) -> MeaningCode {
    let mut s =
        Simplifier { extents: code.extents.clone(), replaced: BTreeMap::new(), wanted: vec![] };
    let mut body = s.body(&code.body);
    let mut axes = code.axes.clone();
    for (slot, by) in std::mem::take(&mut s.wanted) {
        let splits = |&(s, n): &(Slot, i64)| s == slot && n > by && n % by == 0;
        let Some(at) = axes.iter().position(splits).filter(|_| code.step != Some(slot)) else {
            continue;
        };
        let (high, low) = (s.extents.len(), s.extents.len() + 1);
        let parts = [(high, axes[at].1 / by), (low, by)];
        s.extents.extend(parts.map(|p| p.1));
        let both = Affine { constant: 0, terms: vec![(high, by), (low, 1)] };
        s.replaced.insert(slot, Int::Affine(both));
        axes.splice(at..=at, parts);
    }
    if !s.replaced.is_empty() {
        body = s.body(&code.body);
    }
    MeaningCode { body, axes, extents: s.extents, step: code.step }
}

/// The output axes, counted from the left, that the code takes apart by division, and by what.
pub fn divided(code: &MeaningCode) -> Vec<(usize, i64)> {
    let mut s =
        Simplifier { extents: code.extents.clone(), replaced: BTreeMap::new(), wanted: vec![] };
    s.body(&code.body);
    let splits = |&(slot, by): &(Slot, i64)| {
        let at = code.axes.iter().position(|&(s, n)| s == slot && n > by && n % by == 0)?;
        Some((at, by))
    };
    s.wanted.iter().filter_map(splits).collect()
}

/// The value of an element whose indices are expressions over variables of these extents. The variables of its
/// reductions are added to them.
pub fn placed(code: &MeaningCode, index: &[Int], extents: &mut Vec<i64>) -> Body {
    placed_apart(code, index, &[], extents).0
}

/// The same with variables of the code's reductions taken apart, each into two of which the second has so many values. Also the
/// variables, under their new names, that are divided by a number.
pub fn placed_apart(
    code: &MeaningCode,
    index: &[Int],
    apart: &[(Slot, i64)],
    extents: &mut Vec<i64>,
) -> (Body, Vec<(Slot, i64)>) {
    let own = code.axes.iter().map(|a| a.0);
    let mut replaced: BTreeMap<Slot, Int> = own.zip(index.iter().cloned()).collect();
    let mut variable = |n: i64| {
        extents.push(n);
        extents.len() - 1
    };
    for (slot, &n) in code.extents.iter().enumerate() {
        replaced.entry(slot).or_insert_with(|| {
            let by = apart.iter().find(|(s, by)| *s == slot && *by > 0 && n % by == 0);
            let terms = match by {
                Some(&(_, by)) => vec![(variable(n / by), by), (variable(by), 1)],
                None => vec![(variable(n), 1)],
            };
            Int::Affine(Affine { constant: 0, terms })
        });
    }
    let mut s = Simplifier { extents: std::mem::take(extents), replaced, wanted: vec![] };
    let body = s.body(&code.body);
    *extents = s.extents;
    (body, s.wanted)
}

struct Simplifier {
    extents: Vec<i64>,
    /// Index variables that are expressions of others now.
    replaced: BTreeMap<Slot, Int>,
    /// Index variables that are divided by a number.
    wanted: Vec<(Slot, i64)>,
}

/// The sum of the terms; `None` on overflow.
pub fn combine(a: &Affine, b: &Affine, factor: i64) -> Option<Affine> {
    let mut terms: BTreeMap<Slot, i64> = a.terms.iter().copied().collect();
    for &(s, c) in &b.terms {
        let t = terms.entry(s).or_insert(0);
        *t = t.checked_add(c.checked_mul(factor)?)?;
    }
    let constant = a.constant.checked_add(b.constant.checked_mul(factor)?)?;
    Some(Affine { constant, terms: terms.into_iter().filter(|t| t.1 != 0).collect() })
}

fn constant(v: i64) -> Int {
    Int::Affine(Affine { constant: v, terms: vec![] })
}

fn as_affine(i: &Int) -> Option<&Affine> {
    match i {
        Int::Affine(a) => Some(a),
        _ => None,
    }
}

fn as_const(i: &Int) -> Option<i64> {
    as_affine(i).filter(|a| a.terms.is_empty()).map(|a| a.constant)
}

impl Simplifier {
    /// What an index variable is.
    fn variable(&self, s: Slot) -> Int {
        match self.replaced.get(&s) {
            Some(i) => i.clone(),
            None if self.extents[s] == 1 => constant(0),
            None => Int::Affine(Affine { constant: 0, terms: vec![(s, 1)] }),
        }
    }

    /// The variables of a reduction under their present names.
    fn renamed(&self, over: &[(Slot, i64)]) -> Vec<(Slot, i64)> {
        let names = |&(s, n): &(Slot, i64)| match self.replaced.get(&s) {
            Some(Int::Affine(Affine { terms, .. })) if terms.len() == 1 => vec![(terms[0].0, n)],
            Some(Int::Affine(Affine { terms, .. })) if terms.len() == 2 => {
                terms.iter().map(|t| (t.0, self.extents[t.0])).collect()
            }
            _ => vec![(s, n)],
        };
        over.iter().flat_map(names).collect()
    }

    fn reduce<E>(&self, r: &Reduce<E>, body: E) -> Reduce<E> {
        Reduce { monoid: r.monoid, over: self.renamed(&r.over), dtype: r.dtype, body }
    }

    fn body(&mut self, body: &Body) -> Body {
        match body {
            Body::Real(r) => Body::Real(self.real(r)),
            Body::Int(d, i) => Body::Int(*d, self.int(i)),
        }
    }

    /// The smallest and the largest value.
    fn range(&self, a: &Affine) -> (i128, i128) {
        let c = a.constant as i128;
        a.terms.iter().fold((c, c), |(low, high), &(s, c)| {
            let most = c as i128 * (self.extents[s] - 1).max(0) as i128;
            (low + most.min(0), high + most.max(0))
        })
    }

    fn int_range(&self, i: &Int) -> Option<(i128, i128)> {
        match i {
            Int::Affine(a) => Some(self.range(a)),
            Int::Binary(IntOp::FloorMod, _, b) => {
                as_const(b).filter(|&b| b > 0).map(|b| (0, b as i128 - 1))
            }
            Int::Binary(IntOp::FloorDiv, a, b) => {
                let ((low, high), b) = (self.int_range(a)?, as_const(b).filter(|&b| b > 0)?);
                Some((low.div_euclid(b as i128), high.div_euclid(b as i128)))
            }
            _ => None,
        }
    }

    fn int(&mut self, i: &Int) -> Int {
        match i {
            Int::Const(v) => constant(*v),
            Int::Slot(s) => self.variable(*s),
            Int::Affine(a) => self.affine(a),
            Int::Neg(a) => {
                let a = self.int(a);
                let negated = as_affine(&a).and_then(|a| combine(&Affine::default(), a, -1));
                negated.map_or_else(|| Int::Neg(Box::new(a)), Int::Affine)
            }
            Int::Abs(a) => Int::Abs(Box::new(self.int(a))),
            Int::Signum(s, a) => Int::Signum(*s, Box::new(self.int(a))),
            Int::Binary(op, a, b) => {
                let (a, b) = (self.int(a), self.int(b));
                self.operation(*op, a, b)
            }
            Int::Wrap(d, a) => {
                let a = self.int(a);
                if self.fits(*d, &a) { a } else { Int::Wrap(*d, Box::new(a)) }
            }
            Int::Exact(a, b) => {
                let (a, b) = (self.int(a), self.int(b));
                exact(&a, &b).unwrap_or_else(|| Int::Exact(Box::new(a), Box::new(b)))
            }
            Int::At(list, at) => {
                let list = list.iter().map(|v| self.int(v)).collect();
                Int::At(list, Box::new(self.int(at)))
            }
            Int::Read(r) => {
                let otherwise = r.otherwise.as_ref().map(|e| self.int(e));
                Int::Read(Box::new(self.read(r, otherwise)))
            }
            Int::If(c, a, b) => match self.truth(c) {
                Truth::Const(true) => self.int(a),
                Truth::Const(false) => self.int(b),
                c => Int::If(Box::new(c), Box::new(self.int(a)), Box::new(self.int(b))),
            },
            Int::Reduce(r) => {
                let body = self.int(&r.body);
                Int::Reduce(Box::new(self.reduce(r, body)))
            }
            Int::FromReal(d, a) => Int::FromReal(*d, Box::new(self.real(a))),
            Int::FromTruth(a) => Int::FromTruth(Box::new(self.truth(a))),
        }
    }

    /// An expression that is affine already, with its variables as they are now.
    fn affine(&mut self, a: &Affine) -> Int {
        a.terms.iter().fold(constant(a.constant), |sum, &(s, c)| {
            let part = self.operation(IntOp::Mul, self.variable(s), constant(c));
            self.operation(IntOp::Add, sum, part)
        })
    }

    /// An operation, in affine form if it has one.
    fn operation(&mut self, op: IntOp, a: Int, b: Int) -> Int {
        self.binary(op, &a, &b).unwrap_or_else(|| Int::Binary(op, Box::new(a), Box::new(b)))
    }

    /// The operation in affine form, if it has one.
    fn binary(&mut self, op: IntOp, a: &Int, b: &Int) -> Option<Int> {
        let x = as_affine(a)?;
        let y = as_affine(b)?;
        let by = y.terms.is_empty().then_some(y.constant);
        let affine = match op {
            IntOp::Add => combine(x, y, 1)?,
            IntOp::Sub => combine(x, y, -1)?,
            IntOp::Mul => match by {
                Some(c) => combine(&Affine::default(), x, c)?,
                None if x.terms.is_empty() => combine(&Affine::default(), y, x.constant)?,
                None => return None,
            },
            IntOp::FloorDiv | IntOp::FloorMod => {
                let by = by.filter(|&b| b > 0)?;
                let (quotient, rest) = self.divide(x, by)?;
                if op == IntOp::FloorDiv { quotient } else { rest }
            }
            _ => {
                let (x, y) = (as_const(a)?, as_const(b)?);
                Affine { constant: op.apply(x, y), terms: vec![] }
            }
        };
        Some(Int::Affine(affine))
    }

    /// Quotient and remainder, if both are affine: what is a multiple of the divisor leaves, and the
    /// rest must lie within one multiple.
    fn divide(&mut self, a: &Affine, by: i64) -> Option<(Affine, Affine)> {
        let mut quotient = Affine { constant: a.constant.div_euclid(by), terms: vec![] };
        let mut rest = Affine { constant: a.constant.rem_euclid(by), terms: vec![] };
        for &(s, c) in &a.terms {
            if c % by == 0 {
                quotient.terms.push((s, c / by));
            } else {
                rest.terms.push((s, c));
            }
        }
        let (low, high) = self.range(&rest);
        let multiple = low.div_euclid(by as i128);
        if multiple != high.div_euclid(by as i128) {
            if let [(s, 1)] = rest.terms.as_slice() {
                self.wanted.push((*s, by));
            }
            return None;
        }
        let multiple = i64::try_from(multiple).ok()?;
        quotient.constant = quotient.constant.checked_add(multiple)?;
        rest.constant = rest.constant.checked_sub(multiple.checked_mul(by)?)?;
        Some((quotient, rest))
    }

    fn fits(&self, dtype: DType, a: &Int) -> bool {
        match (dtype.int_range(), self.int_range(a)) {
            (Some((low, high)), Some((l, h))) => low <= l && h <= high,
            _ => dtype == DType::I64 || dtype == DType::U64,
        }
    }

    fn read<E>(&mut self, r: &Read<E>, otherwise: Option<E>) -> Read<E> {
        let index: Vec<Int> = r.index.iter().map(|i| self.int(i)).collect();
        let linear = r.linear.as_ref().map(|l| self.int(l));
        let total: i128 = r.shape.iter().map(|&n| n as i128).product();
        let whole = linear.as_ref().and_then(as_affine).filter(|l| {
            let (low, high) = self.range(l);
            low >= 0 && high < total
        });
        let fast = match whole {
            Some(offset) => Some(FastRead { offset: offset.clone(), checked: vec![] }),
            None => self.fast(&index, &r.shape, &r.strides),
        };
        let (shape, strides) = (r.shape.clone(), r.strides.clone());
        Read { input: r.input, index, linear, shape, strides, otherwise, fast }
    }

    fn fast(&self, index: &[Int], shape: &[i64], strides: &[i64]) -> Option<FastRead> {
        let mut fast = FastRead { offset: Affine::default(), checked: vec![] };
        for (axis, i) in index.iter().enumerate() {
            let i = as_affine(i)?;
            fast.offset = combine(&fast.offset, i, strides[axis])?;
            let (low, high) = self.range(i);
            if low < 0 || high >= shape[axis] as i128 {
                fast.checked.push((i.clone(), axis, shape[axis]));
            }
        }
        Some(fast)
    }

    fn real(&mut self, r: &Real) -> Real {
        match r {
            Real::Const(v) => Real::Const(*v),
            Real::Unary(f, a) => Real::Unary(*f, Box::new(self.real(a))),
            Real::Neg(a) => Real::Neg(Box::new(self.real(a))),
            Real::Binary(op, a, b) => {
                Real::Binary(*op, Box::new(self.real(a)), Box::new(self.real(b)))
            }
            Real::Read(r) => {
                let otherwise = r.otherwise.as_ref().map(|e| self.real(e));
                Real::Read(Box::new(self.read(r, otherwise)))
            }
            Real::If(c, a, b) => match self.truth(c) {
                Truth::Const(true) => self.real(a),
                Truth::Const(false) => self.real(b),
                c => Real::If(Box::new(c), Box::new(self.real(a)), Box::new(self.real(b))),
            },
            Real::Reduce(r) => {
                let body = self.real(&r.body);
                Real::Reduce(Box::new(self.reduce(r, body)))
            }
            Real::FromInt(s, a) => Real::FromInt(*s, Box::new(self.int(a))),
            Real::Round(d, a) => Real::Round(*d, Box::new(self.real(a))),
        }
    }

    fn truth(&mut self, t: &Truth) -> Truth {
        match t {
            Truth::Const(b) => Truth::Const(*b),
            Truth::Real(cmp, a, b) => {
                Truth::Real(*cmp, Box::new(self.real(a)), Box::new(self.real(b)))
            }
            Truth::Int(cmp, sign, a, b) => {
                let (a, b) = (self.int(a), self.int(b));
                match self.decide(*cmp, &a, &b) {
                    Some(v) => Truth::Const(v),
                    None => Truth::Int(*cmp, *sign, Box::new(a), Box::new(b)),
                }
            }
            Truth::And(a, b) => match (self.truth(a), self.truth(b)) {
                (Truth::Const(true), t) | (t, Truth::Const(true)) => t,
                (Truth::Const(false), _) => Truth::Const(false),
                (a, b) => Truth::And(Box::new(a), Box::new(b)),
            },
            Truth::Or(a, b) => match (self.truth(a), self.truth(b)) {
                (Truth::Const(false), t) | (t, Truth::Const(false)) => t,
                (Truth::Const(true), _) => Truth::Const(true),
                (a, b) => Truth::Or(Box::new(a), Box::new(b)),
            },
            Truth::Not(a) => match self.truth(a) {
                Truth::Const(b) => Truth::Const(!b),
                a => Truth::Not(Box::new(a)),
            },
            Truth::NonZero(a) => Truth::NonZero(Box::new(self.int(a))),
            Truth::If(c, a, b) => {
                Truth::If(Box::new(self.truth(c)), Box::new(self.truth(a)), Box::new(self.truth(b)))
            }
            Truth::Quantified(q, over, a) => {
                Truth::Quantified(*q, self.renamed(over), Box::new(self.truth(a)))
            }
        }
    }

    /// The comparison, if it is the same for all values of the index variables.
    fn decide(&self, cmp: Cmp, a: &Int, b: &Int) -> Option<bool> {
        let (low, high) = self.range(&combine(as_affine(a)?, as_affine(b)?, -1)?);
        let both = |x: bool, y: bool| (x == y).then_some(x);
        match cmp {
            Cmp::Lt | Cmp::Ge => both(cmp.holds(low, 0), cmp.holds(high, 0)),
            Cmp::Le | Cmp::Gt => both(cmp.holds(low, 0), cmp.holds(high, 0)),
            Cmp::Eq | Cmp::Ne if low == 0 && high == 0 => Some(cmp == Cmp::Eq),
            Cmp::Eq | Cmp::Ne if low > 0 || high < 0 => Some(cmp == Cmp::Ne),
            Cmp::Eq | Cmp::Ne => None,
        }
    }
}

/// The quotient, if it has no remainder for any values of the index variables.
fn exact(a: &Int, b: &Int) -> Option<Int> {
    let (a, by) = (as_affine(a)?, as_const(b).filter(|&b| b > 0)?);
    let whole = a.constant % by == 0 && a.terms.iter().all(|t| t.1 % by == 0);
    whole.then(|| {
        Int::Affine(Affine {
            constant: a.constant / by,
            terms: a.terms.iter().map(|&(s, c)| (s, c / by)).collect(),
        })
    })
}
