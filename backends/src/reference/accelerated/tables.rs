//! Tabulates subexpressions that depend on no element and few index variables: interpolation indices and weights, masks, mirrored indices.
//!
//! A table holds what the part evaluates to, so the results are bit-identical. A part that may lie outside of
//! anything, or that would take more memory than it saves time, stays as it is.

use super::super::array::Elements;
use super::super::code::compile::{Body, MeaningCode};
use super::super::code::{
    Affine, FastRead, Int, Machine, Read, Real, Reduce, Slot, Truth, for_each,
};
use super::affine::visitor::AffineVisitor;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Entries of one table at most.
const LARGEST: i64 = 1 << 20;

/// The code with its tables, which it reads as inputs from number `inputs` on.
pub fn tabulated(code: MeaningCode, inputs: usize) -> (MeaningCode, Vec<Elements>) {
    let (slots, open) = (code.extents.len(), code.axes.clone());
    let mut t = Tables { slots, open, inputs, tables: vec![] };
    let body = match &code.body {
        Body::Real(r) => Body::Real(t.real(r)),
        Body::Int(d, i) => Body::Int(*d, t.int(i)),
    };
    let tables = t.tables;
    (MeaningCode { body, ..code }, tables)
}

struct Tables {
    /// How many index variables there are.
    slots: usize,
    /// Those that have a value where a part is evaluated: of the output, and of the reductions around the part.
    open: Vec<(Slot, i64)>,
    inputs: usize,
    tables: Vec<Elements>,
}

/// An element of the table of an expression, if it is given one.
fn read<E>(input: usize, place: Affine, len: i64) -> Box<Read<E>> {
    let fast = Some(FastRead { offset: place.clone(), checked: vec![] });
    let index = vec![Int::Affine(place)];
    let (shape, strides) = (vec![len], vec![1]);
    Box::new(Read { input, index, linear: None, shape, strides, otherwise: None, fast })
}

impl Tables {
    /// The variables that a part depends on and the place of its value in their table, if a table pays where the part is
    /// evaluated.
    fn layout(&self, part: &(impl AffineVisitor + Closed)) -> Option<Layout> {
        if !part.is_closed() {
            return None;
        }
        let mut slots: BTreeSet<Slot> = BTreeSet::new();
        part.affines(&mut |a| slots.extend(a.terms.iter().map(|t| t.0)));
        let mut over: Vec<(Slot, i64)> =
            self.open.iter().copied().filter(|v| slots.contains(&v.0)).collect();
        over.sort_unstable();
        let (mut place, mut len) = (Affine::default(), 1i64);
        for &(slot, n) in over.iter().rev() {
            place.terms.push((slot, len));
            len = len.checked_mul(n).filter(|n| (1..=LARGEST).contains(n))?;
        }
        let points = self.open.iter().fold(1i64, |n, v| n.saturating_mul(v.1));
        (len.checked_mul(2)? <= points).then_some(Layout { over, place, len })
    }

    /// Fills a table; `None` if a value does not exist.
    fn fill<T>(&self, layout: &Layout, mut value: impl FnMut(&mut Machine) -> T) -> Option<Vec<T>> {
        let mut m = Machine::new(self.slots, &[]);
        let mut out = Vec::with_capacity(layout.len as usize);
        for_each(&layout.over, &mut m, |m| out.push(value(m)));
        m.verdict().is_ok().then_some(out)
    }

    /// What `f` makes of the body of a reduction over these variables.
    fn within<T>(&mut self, over: &[(Slot, i64)], f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.open.len();
        self.open.extend(over);
        let body = f(self);
        self.open.truncate(outer);
        body
    }

    fn add(&mut self, elements: Elements) -> usize {
        self.tables.push(elements);
        self.inputs + self.tables.len() - 1
    }

    fn real(&mut self, r: &Real) -> Real {
        if !matches!(r, Real::Const(_))
            && let Some(layout) = self.layout(r)
            && let Some(values) = self.fill(&layout, |m| r.eval(m))
        {
            let input = self.add(Elements::Float(Arc::new(values)));
            return Real::Read(read(input, layout.place, layout.len));
        }
        match r {
            Real::Const(_) => r.clone(),
            Real::Unary(f, a) => Real::Unary(*f, Box::new(self.real(a))),
            Real::Neg(a) => Real::Neg(Box::new(self.real(a))),
            Real::Binary(op, a, b) => {
                let a = self.real(a);
                Real::Binary(*op, Box::new(a), Box::new(self.real(b)))
            }
            Real::Read(r) => {
                let otherwise = r.otherwise.as_ref().map(|e| self.real(e));
                Real::Read(Box::new(self.read(r, otherwise)))
            }
            Real::If(c, a, b) => {
                let (c, a) = (self.truth(c), self.real(a));
                Real::If(Box::new(c), Box::new(a), Box::new(self.real(b)))
            }
            Real::Reduce(r) => {
                let body = self.within(&r.over, |t| t.real(&r.body));
                Real::Reduce(Box::new(Reduce {
                    monoid: r.monoid,
                    over: r.over.clone(),
                    dtype: r.dtype,
                    body,
                }))
            }
            Real::FromInt(s, a) => Real::FromInt(*s, Box::new(self.int(a))),
            Real::Round(d, a) => Real::Round(*d, Box::new(self.real(a))),
        }
    }

    fn int(&mut self, i: &Int) -> Int {
        if !matches!(i, Int::Const(_) | Int::Affine(_) | Int::Slot(_))
            && let Some(layout) = self.layout(i)
            && let Some(values) = self.fill(&layout, |m| i.eval(m))
        {
            let input = self.add(Elements::Int(Arc::new(values)));
            return Int::Read(read(input, layout.place, layout.len));
        }
        let mut one = |a: &Int| Box::new(self.int(a));
        match i {
            Int::Const(_) | Int::Slot(_) | Int::Affine(_) => i.clone(),
            Int::Neg(a) => Int::Neg(one(a)),
            Int::Abs(a) => Int::Abs(one(a)),
            Int::Signum(s, a) => Int::Signum(*s, one(a)),
            Int::Wrap(d, a) => Int::Wrap(*d, one(a)),
            Int::Binary(op, a, b) => Int::Binary(*op, one(a), one(b)),
            Int::Exact(a, b) => Int::Exact(one(a), one(b)),
            Int::At(list, at) => {
                let list = list.iter().map(|v| self.int(v)).collect();
                Int::At(list, Box::new(self.int(at)))
            }
            Int::Read(r) => {
                let otherwise = r.otherwise.as_ref().map(|e| self.int(e));
                Int::Read(Box::new(self.read(r, otherwise)))
            }
            Int::If(c, a, b) => {
                let (c, a) = (self.truth(c), self.int(a));
                Int::If(Box::new(c), Box::new(a), Box::new(self.int(b)))
            }
            Int::Reduce(r) => {
                let body = self.within(&r.over, |t| t.int(&r.body));
                Int::Reduce(Box::new(Reduce {
                    monoid: r.monoid,
                    over: r.over.clone(),
                    dtype: r.dtype,
                    body,
                }))
            }
            Int::FromReal(d, a) => Int::FromReal(*d, Box::new(self.real(a))),
            Int::FromTruth(a) => Int::FromTruth(Box::new(self.truth(a))),
        }
    }

    fn truth(&mut self, t: &Truth) -> Truth {
        if !matches!(t, Truth::Const(_))
            && let Some(layout) = self.layout(t)
            && let Some(values) = self.fill(&layout, |m| i64::from(t.eval(m)))
        {
            let input = self.add(Elements::Int(Arc::new(values)));
            let value = Int::Read(read(input, layout.place, layout.len));
            return Truth::NonZero(Box::new(value));
        }
        match t {
            Truth::Const(_) => t.clone(),
            Truth::Real(cmp, a, b) => {
                let a = self.real(a);
                Truth::Real(*cmp, Box::new(a), Box::new(self.real(b)))
            }
            Truth::Int(cmp, s, a, b) => {
                let a = self.int(a);
                Truth::Int(*cmp, *s, Box::new(a), Box::new(self.int(b)))
            }
            Truth::And(a, b) => {
                let a = self.truth(a);
                Truth::And(Box::new(a), Box::new(self.truth(b)))
            }
            Truth::Or(a, b) => {
                let a = self.truth(a);
                Truth::Or(Box::new(a), Box::new(self.truth(b)))
            }
            Truth::Not(a) => Truth::Not(Box::new(self.truth(a))),
            Truth::NonZero(a) => Truth::NonZero(Box::new(self.int(a))),
            Truth::If(c, a, b) => {
                let (c, a) = (self.truth(c), self.truth(a));
                Truth::If(Box::new(c), Box::new(a), Box::new(self.truth(b)))
            }
            Truth::Quantified(q, over, a) => {
                let body = self.within(over, |t| t.truth(a));
                Truth::Quantified(*q, over.clone(), Box::new(body))
            }
        }
    }

    /// An element, whose indices may have tables. One that is affine needs none.
    fn read<E: Clone>(&mut self, r: &Read<E>, otherwise: Option<E>) -> Read<E> {
        let index = match r.fast {
            Some(_) => r.index.clone(),
            None => r.index.iter().map(|i| self.int(i)).collect(),
        };
        let (shape, strides) = (r.shape.clone(), r.strides.clone());
        let (linear, fast) = (r.linear.clone(), r.fast.clone());
        Read { input: r.input, index, linear, shape, strides, otherwise, fast }
    }
}

/// Where the values of a part lie.
struct Layout {
    over: Vec<(Slot, i64)>,
    place: Affine,
    len: i64,
}

/// Code that may have no element in it.
trait Closed {
    /// True if it reads no element, and has a value for all index variables.
    fn is_closed(&self) -> bool;
}

impl Closed for Real {
    fn is_closed(&self) -> bool {
        match self {
            Real::Const(_) => true,
            Real::Unary(_, a) | Real::Neg(a) | Real::Round(_, a) => a.is_closed(),
            Real::Binary(_, a, b) => a.is_closed() && b.is_closed(),
            Real::Read(_) => false,
            Real::If(c, a, b) => c.is_closed() && a.is_closed() && b.is_closed(),
            Real::Reduce(r) => r.body.is_closed(),
            Real::FromInt(_, a) => a.is_closed(),
        }
    }
}

impl Closed for Int {
    fn is_closed(&self) -> bool {
        match self {
            Int::Const(_) | Int::Slot(_) | Int::Affine(_) => true,
            Int::Neg(a) | Int::Abs(a) | Int::Signum(_, a) | Int::Wrap(_, a) => a.is_closed(),
            Int::Binary(_, a, b) => a.is_closed() && b.is_closed(),
            Int::Exact(..) | Int::At(..) | Int::Read(_) => false,
            Int::If(c, a, b) => c.is_closed() && a.is_closed() && b.is_closed(),
            Int::Reduce(r) => r.body.is_closed(),
            Int::FromReal(_, a) => a.is_closed(),
            Int::FromTruth(a) => a.is_closed(),
        }
    }
}

impl Closed for Truth {
    fn is_closed(&self) -> bool {
        match self {
            Truth::Const(_) => true,
            Truth::Real(_, a, b) => a.is_closed() && b.is_closed(),
            Truth::Int(_, _, a, b) => a.is_closed() && b.is_closed(),
            Truth::And(a, b) | Truth::Or(a, b) => a.is_closed() && b.is_closed(),
            Truth::Not(a) | Truth::Quantified(_, _, a) => a.is_closed(),
            Truth::NonZero(a) => a.is_closed(),
            Truth::If(c, a, b) => c.is_closed() && a.is_closed() && b.is_closed(),
        }
    }
}
