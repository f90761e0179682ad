//! Compiled meanings: typed trees over numbered index variables, and their plain evaluation.
//!
//! Evaluation looks up no names and allocates nothing. A read outside its input without
//! `else` is recorded as a [`Fault`]; its value is then 0 and the run fails.

pub mod cache;
pub mod compile;
mod equality;
mod index_lists;
mod typed;

use super::Noise;
use super::array::{round_to, truncate, wrap};
use super::scalar::{Cmp, IntOp, Monoid, RealOp, Unary};
use mlc_dsl::ir::DType;

/// Number of an index variable.
pub type Slot = usize;

/// An expression that yields a float.
#[derive(Clone, Debug)]
pub enum Real {
    /// A number.
    Const(f64),
    /// A function of one number.
    Unary(Unary, Box<Real>),
    /// The number with the other sign.
    Neg(Box<Real>),
    /// An operation on two numbers.
    Binary(RealOp, Box<Real>, Box<Real>),
    /// An element of an input.
    Read(Box<Read<Real>>),
    /// The first value where the condition holds, else the second; only that one is evaluated.
    If(Box<Truth>, Box<Real>, Box<Real>),
    /// A reduction over index variables.
    Reduce(Box<Reduce<Real>>),
    /// An integer, of `u64` if the flag says so.
    FromInt(Sign, Box<Int>),
    /// Rounded to a type.
    Round(DType, Box<Real>),
}

/// How the 64 bits of an integer are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sign {
    /// As an `i64`.
    Signed,
    /// As a `u64`.
    Unsigned,
}

/// An expression that yields an integer: an index or an element.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Int {
    /// A number.
    Const(i64),
    /// The value of an index variable.
    Slot(Slot),
    /// Only in accelerated code.
    Affine(Affine),
    /// The number with the other sign; wraps.
    Neg(Box<Int>),
    /// The magnitude; wraps.
    Abs(Box<Int>),
    /// -1, 0 or 1.
    Signum(Sign, Box<Int>),
    /// An operation on two integers.
    Binary(IntOp, Box<Int>, Box<Int>),
    /// Wrapped to a type.
    Wrap(DType, Box<Int>),
    /// The quotient; outside of any tensor if there is a remainder.
    Exact(Box<Int>, Box<Int>),
    /// An entry of a list; negative positions count from the end.
    At(Box<[Int]>, Box<Int>),
    /// An element of an input.
    Read(Box<Read<Int>>),
    /// The first value where the condition holds, else the second; only that one is evaluated.
    If(Box<Truth>, Box<Int>, Box<Int>),
    /// A reduction over index variables.
    Reduce(Box<Reduce<Int>>),
    /// Cut towards zero.
    FromReal(DType, Box<Real>),
    /// 1 where it holds, else 0.
    FromTruth(Box<Truth>),
}

/// An expression that yields a truth value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Truth {
    /// A truth value.
    Const(bool),
    /// A comparison of floats.
    Real(Cmp, Box<Real>, Box<Real>),
    /// A comparison of integers.
    Int(Cmp, Sign, Box<Int>, Box<Int>),
    /// Both; the second is evaluated only where the first holds.
    And(Box<Truth>, Box<Truth>),
    /// One or both; the second is evaluated only where the first does not hold.
    Or(Box<Truth>, Box<Truth>),
    /// The opposite.
    Not(Box<Truth>),
    /// Whether an integer differs from 0.
    NonZero(Box<Int>),
    /// The first value where the condition holds, else the second.
    If(Box<Truth>, Box<Truth>, Box<Truth>),
    /// Whether one (`true`) or every (`false`) value of the variables makes the body true.
    Quantified(Quantifier, Vec<(Slot, i64)>, Box<Truth>),
}

/// Reductions of truth values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantifier {
    /// Some value makes it true; false over none.
    Any,
    /// Every value makes it true; true over none.
    All,
}

/// `constant + Σ factor * slot`; each slot once, no factor zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Affine {
    /// What does not depend on any variable.
    pub constant: i64,
    /// Variables and their factors.
    pub terms: Vec<(Slot, i64)>,
}

impl Affine {
    /// Its value.
    #[inline]
    pub fn eval(&self, slots: &[i64]) -> i64 {
        self.terms.iter().fold(self.constant, |v, &(s, c)| v.wrapping_add(c.wrapping_mul(slots[s])))
    }

    /// The factor of a variable; 0 if there is none.
    pub fn factor(&self, slot: Slot) -> i64 {
        self.terms.iter().find(|t| t.0 == slot).map_or(0, |t| t.1)
    }
}

/// An element of an input, of the kind `E`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Read<E> {
    /// Number of the input.
    pub input: usize,
    /// One index per axis.
    pub index: Vec<Int>,
    /// The row-major offset, where the index is written as `..unravel(offset, shape of the input)`.
    pub linear: Option<Int>,
    /// The input's shape.
    pub shape: Vec<i64>,
    /// Elements between neighbours along each axis.
    pub strides: Vec<i64>,
    /// The value outside the input.
    pub otherwise: Option<E>,
    /// Only in accelerated code.
    pub fast: Option<FastRead>,
}

/// A read whose offset is affine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FastRead {
    /// The row-major offset.
    pub offset: Affine,
    /// The indices that may lie outside their axis: position and extent of the axis.
    pub checked: Vec<(Affine, usize, i64)>,
}

/// A reduction over index variables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce<E> {
    /// What joins two values.
    pub monoid: Monoid,
    /// The variables and how many values each takes.
    pub over: Vec<(Slot, i64)>,
    /// The type of integers; `None` for unbounded ones.
    pub dtype: Option<DType>,
    /// The value for one assignment of the variables.
    pub body: E,
}

/// A read outside an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The input; `None` if it is a list that was left.
    pub input: Option<usize>,
    /// Axis, index and extent; `None` if the index exists for no element.
    pub at: Option<(usize, i64, i64)>,
}

/// The elements of an input.
#[derive(Clone, Copy, Debug)]
pub enum InputElements<'a> {
    /// Floats.
    Float(&'a [f64]),
    /// Floats of 32 bits where a tensor has them.
    Single(&'a [f32]),
    /// Integers and truth values.
    Int(&'a [i64]),
}

/// What an evaluation reads and writes.
#[derive(Debug)]
pub struct Machine<'a> {
    /// The values of index variables.
    pub slots: Vec<i64>,
    /// The elements of each input.
    pub inputs: &'a [InputElements<'a>],
    /// An `exact` quotient in the current index has a remainder.
    outside: bool,
    /// The first fault, if there was one.
    pub fault: Option<Fault>,
    /// How numbers are rounded that are computed on the way; not at all if it is `None`.
    pub noise: Option<Noise>,
    /// Rows of floats that are free for use.
    pub reals: Vec<Vec<f64>>,
    /// Rows of integers that are free for use.
    pub ints: Vec<Vec<i64>>,
    /// Rows of truth values that are free for use.
    pub truths: Vec<Vec<bool>>,
}

impl<'a> Machine<'a> {
    /// A machine with so many index variables, all 0.
    pub fn new(slots: usize, inputs: &'a [InputElements<'a>]) -> Machine<'a> {
        Machine {
            slots: vec![0; slots],
            inputs,
            outside: false,
            fault: None,
            noise: None,
            reals: vec![],
            ints: vec![],
            truths: vec![],
        }
    }

    /// An element as a float.
    #[inline]
    pub fn float(&self, input: usize, offset: usize) -> f64 {
        match self.inputs[input] {
            InputElements::Float(v) => v[offset],
            InputElements::Single(v) => f64::from(v[offset]),
            InputElements::Int(v) => v[offset] as f64,
        }
    }

    /// An element as an integer.
    #[inline]
    pub fn int(&self, input: usize, offset: usize) -> i64 {
        match self.inputs[input] {
            InputElements::Int(v) => v[offset],
            InputElements::Float(v) => v[offset] as i64,
            InputElements::Single(v) => f64::from(v[offset]) as i64,
        }
    }

    /// A number that was computed.
    #[inline]
    fn computed(&self, v: f64) -> f64 {
        self.noise.map_or(v, |noise| noise.rounded(v))
    }

    /// Why the evaluation failed, if it did.
    pub fn verdict(&self) -> Result<(), Fault> {
        match &self.fault {
            Some(f) => Err(f.clone()),
            None if self.outside => Err(Fault { input: None, at: None }),
            None => Ok(()),
        }
    }

    /// Evaluates an index; `None` if it exists for no element.
    pub(super) fn index<T>(&mut self, eval: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let outer = std::mem::replace(&mut self.outside, false);
        let value = eval(self);
        let inexact = std::mem::replace(&mut self.outside, outer);
        (!inexact).then_some(value)
    }

    /// Records a fault; the first one stays.
    #[cold]
    pub fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }
}

/// Runs `body` for all values of `over`, the last variable fastest.
#[inline]
pub fn for_each<'a>(
    over: &[(Slot, i64)],
    m: &mut Machine<'a>,
    mut body: impl FnMut(&mut Machine<'a>),
) {
    let _: Result<(), std::convert::Infallible> = try_for_each(over, m, |m| {
        body(m);
        Ok(())
    });
}

/// The same up to the first failure.
#[inline]
pub(super) fn try_for_each<'a, E>(
    over: &[(Slot, i64)],
    m: &mut Machine<'a>,
    mut body: impl FnMut(&mut Machine<'a>) -> Result<(), E>,
) -> Result<(), E> {
    if over.iter().any(|&(_, n)| n <= 0) {
        return Ok(());
    }
    over.iter().for_each(|&(s, _)| m.slots[s] = 0);
    loop {
        body(m)?;
        let mut at = over.len();
        loop {
            if at == 0 {
                return Ok(());
            }
            at -= 1;
            let (s, n) = over[at];
            m.slots[s] += 1;
            if m.slots[s] < n {
                break;
            }
            m.slots[s] = 0;
        }
    }
}

impl<E> Read<E> {
    /// The offset of the element; else which axis is left, if it is an axis that is left.
    #[inline]
    fn offset(&self, m: &mut Machine) -> Result<usize, Option<(usize, i64, i64)>> {
        if let Some(fast) = &self.fast {
            for (index, axis, n) in &fast.checked {
                let v = index.eval(&m.slots);
                if v < 0 || v >= *n {
                    return Err(Some((*axis, v, *n)));
                }
            }
            return Ok(fast.offset.eval(&m.slots) as usize);
        }
        let mut offset = 0;
        let mut left = None;
        let exists = m.index(|m| {
            for (axis, index) in self.index.iter().enumerate() {
                let v = index.eval(m);
                let n = self.shape[axis];
                if v < 0 || v >= n {
                    left = left.or(Some((axis, v, n)));
                } else {
                    offset += v * self.strides[axis];
                }
            }
        });
        match (exists, left) {
            (Some(()), None) => Ok(offset as usize),
            (None, _) => Err(None),
            (Some(()), left) => Err(left),
        }
    }

    /// The fault of a read outside the input.
    pub fn fault(&self, at: Option<(usize, i64, i64)>) -> Fault {
        Fault { input: Some(self.input), at }
    }
}

impl Real {
    /// Its value.
    pub fn eval(&self, m: &mut Machine) -> f64 {
        match self {
            Real::Const(v) => *v,
            Real::Unary(f, a) => {
                let v = (f.apply)(a.eval(m));
                m.computed(v)
            }
            Real::Neg(a) => -a.eval(m),
            Real::Binary(op, a, b) => {
                let a = a.eval(m);
                let v = op.apply(a, b.eval(m));
                m.computed(v)
            }
            Real::Read(read) => match (read.offset(m), &read.otherwise) {
                (Ok(offset), _) => m.float(read.input, offset),
                (Err(_), Some(e)) => e.eval(m),
                (Err(at), None) => {
                    m.fail(read.fault(at));
                    0.0
                }
            },
            Real::If(c, a, b) => {
                if c.eval(m) {
                    a.eval(m)
                } else {
                    b.eval(m)
                }
            }
            Real::Reduce(r) => {
                let (op, mut acc) = r.monoid.real();
                for_each(&r.over, m, |m| {
                    let v = op.apply(acc, r.body.eval(m));
                    acc = m.computed(v);
                });
                acc
            }
            Real::FromInt(sign, a) => from_int(*sign, a.eval(m)),
            Real::Round(dtype, a) => round_to(*dtype, a.eval(m)),
        }
    }
}

/// The float of an integer.
pub fn from_int(sign: Sign, v: i64) -> f64 {
    match sign {
        Sign::Signed => v as f64,
        Sign::Unsigned => v as u64 as f64,
    }
}

/// −1, 0 or 1.
pub fn signum(sign: Sign, v: i64) -> i64 {
    match sign {
        Sign::Signed => v.signum(),
        Sign::Unsigned => (v != 0) as i64,
    }
}

impl Int {
    /// Its value.
    pub fn eval(&self, m: &mut Machine) -> i64 {
        match self {
            Int::Const(v) => *v,
            Int::Slot(s) => m.slots[*s],
            Int::Affine(a) => a.eval(&m.slots),
            Int::Neg(a) => a.eval(m).wrapping_neg(),
            Int::Abs(a) => a.eval(m).wrapping_abs(),
            Int::Signum(sign, a) => signum(*sign, a.eval(m)),
            Int::Binary(op, a, b) => {
                let a = a.eval(m);
                op.apply(a, b.eval(m))
            }
            Int::Wrap(dtype, a) => wrap(*dtype, a.eval(m)),
            Int::Exact(a, b) => {
                let (a, b) = (a.eval(m), b.eval(m));
                if b == 0 || a.wrapping_rem(b) != 0 {
                    m.outside = true;
                    return 0;
                }
                a.wrapping_div(b)
            }
            Int::At(list, at) => {
                let i = at.eval(m);
                let n = list.len() as i64;
                let i = if i < 0 { i + n } else { i };
                match usize::try_from(i).ok().and_then(|i| list.get(i)) {
                    Some(v) => v.eval(m),
                    None => {
                        m.outside = true;
                        0
                    }
                }
            }
            Int::Read(read) => match (read.offset(m), &read.otherwise) {
                (Ok(offset), _) => m.int(read.input, offset),
                (Err(_), Some(e)) => e.eval(m),
                (Err(at), None) => {
                    m.fail(read.fault(at));
                    0
                }
            },
            Int::If(c, a, b) => {
                if c.eval(m) {
                    a.eval(m)
                } else {
                    b.eval(m)
                }
            }
            Int::Reduce(r) => {
                let (op, mut acc) = r.monoid.int(r.dtype);
                for_each(&r.over, m, |m| acc = op.apply(acc, r.body.eval(m)));
                r.dtype.map_or(acc, |d| wrap(d, acc))
            }
            Int::FromReal(dtype, a) => truncate(*dtype, a.eval(m)),
            Int::FromTruth(a) => a.eval(m) as i64,
        }
    }
}

/// Compares integers.
pub fn compare(cmp: Cmp, sign: Sign, a: i64, b: i64) -> bool {
    match sign {
        Sign::Signed => cmp.holds(a, b),
        Sign::Unsigned => cmp.holds(a as u64, b as u64),
    }
}

impl Truth {
    /// Its value.
    pub fn eval(&self, m: &mut Machine) -> bool {
        match self {
            Truth::Const(v) => *v,
            Truth::Real(cmp, a, b) => {
                let a = a.eval(m);
                cmp.holds(a, b.eval(m))
            }
            Truth::Int(cmp, sign, a, b) => {
                let a = a.eval(m);
                compare(*cmp, *sign, a, b.eval(m))
            }
            Truth::And(a, b) => a.eval(m) && b.eval(m),
            Truth::Or(a, b) => a.eval(m) || b.eval(m),
            Truth::Not(a) => !a.eval(m),
            Truth::NonZero(a) => a.eval(m) != 0,
            Truth::If(c, a, b) => {
                if c.eval(m) {
                    a.eval(m)
                } else {
                    b.eval(m)
                }
            }
            Truth::Quantified(q, over, body) => {
                let mut acc = *q == Quantifier::All;
                for_each(over, m, |m| match q {
                    Quantifier::Any => acc |= body.eval(m),
                    Quantifier::All => acc &= body.eval(m),
                });
                acc
            }
        }
    }
}

/// True if a value takes a loop over elements.
pub fn reduces(code: &compile::MeaningCode) -> bool {
    match &code.body {
        compile::Body::Real(r) => r.reduces(),
        compile::Body::Int(_, i) => i.reduces(),
    }
}

impl Real {
    /// True if it takes a loop over elements.
    fn reduces(&self) -> bool {
        match self {
            Real::Const(_) => false,
            Real::Unary(_, a) | Real::Neg(a) | Real::Round(_, a) => a.reduces(),
            Real::Binary(_, a, b) => a.reduces() || b.reduces(),
            Real::Read(r) => r.reduces() || r.otherwise.as_ref().is_some_and(Real::reduces),
            Real::If(c, a, b) => c.reduces() || a.reduces() || b.reduces(),
            Real::Reduce(_) => true,
            Real::FromInt(_, a) => a.reduces(),
        }
    }
}

impl<E> Read<E> {
    fn reduces(&self) -> bool {
        self.index.iter().any(Int::reduces)
    }
}

impl Int {
    fn reduces(&self) -> bool {
        match self {
            Int::Const(_) | Int::Slot(_) | Int::Affine(_) => false,
            Int::Neg(a) | Int::Abs(a) | Int::Signum(_, a) | Int::Wrap(_, a) => a.reduces(),
            Int::Binary(_, a, b) | Int::Exact(a, b) => a.reduces() || b.reduces(),
            Int::At(list, at) => list.iter().any(Int::reduces) || at.reduces(),
            Int::Read(r) => r.reduces() || r.otherwise.as_ref().is_some_and(Int::reduces),
            Int::If(c, a, b) => c.reduces() || a.reduces() || b.reduces(),
            Int::Reduce(_) => true,
            Int::FromReal(_, a) => a.reduces(),
            Int::FromTruth(a) => a.reduces(),
        }
    }
}

impl Truth {
    fn reduces(&self) -> bool {
        match self {
            Truth::Const(_) => false,
            Truth::Real(_, a, b) => a.reduces() || b.reduces(),
            Truth::Int(_, _, a, b) => a.reduces() || b.reduces(),
            Truth::And(a, b) | Truth::Or(a, b) => a.reduces() || b.reduces(),
            Truth::Not(a) => a.reduces(),
            Truth::NonZero(a) => a.reduces(),
            Truth::If(c, a, b) => c.reduces() || a.reduces() || b.reduces(),
            Truth::Quantified(..) => true,
        }
    }
}
