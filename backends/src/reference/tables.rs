//! Parts of a meaning that no element decides and few index variables do, computed once for all of their values: places and
//! weights of an interpolation, masks, mirrored indices.
//!
//! A table holds what the part evaluates to, so the results are bit-identical. A part that may lie outside of
//! anything, or that would take more memory than it saves time, stays as it is.

use super::affine_visitor::AffineVisitor;
use super::array::Elements;
use super::code::{Affine, FastRead, Int, Machine, Read, Real, Reduce, Slot, Truth, for_each};
use super::compile::{Body, MeaningCode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Entries of one table at most.
const LARGEST: i64 = 1 << 20;

/// The code with its tables, which it reads as inputs from number `inputs` on.
pub(super) fn tabulated(code: MeaningCode, inputs: usize) -> (MeaningCode, Vec<Elements>) {
    let points = code.axes.iter().fold(1i64, |n, a| n.saturating_mul(a.1));
    let mut t = Tables { extents: &code.extents, inputs, tables: vec![] };
    let body = match &code.body {
        Body::Real(r) => Body::Real(t.real(r, points)),
        Body::Int(d, i) => Body::Int(*d, t.int(i, points)),
    };
    let tables = t.tables;
    (MeaningCode { body, ..code }, tables)
}

struct Tables<'a> {
    extents: &'a [i64],
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

impl Tables<'_> {
    /// The variables that a part depends on and the place of its value in their table, if a table pays where the part is
    /// evaluated at so many points.
    fn layout(&self, part: &(impl AffineVisitor + Part), points: i64) -> Option<Layout> {
        if !part.is_closed() {
            return None;
        }
        let mut slots: BTreeSet<Slot> = BTreeSet::new();
        part.affines(&mut |a| slots.extend(a.terms.iter().map(|t| t.0)));
        let mut bound = Vec::new();
        part.bound(&mut bound);
        slots.retain(|s| !bound.contains(s));
        let (mut place, mut len) = (Affine::default(), 1i64);
        for &s in slots.iter().rev() {
            place.terms.push((s, len));
            len = len.checked_mul(self.extents[s]).filter(|&n| (1..=LARGEST).contains(&n))?;
        }
        let pays = len.checked_mul(2)? <= points;
        let over = slots.iter().map(|&s| (s, self.extents[s])).collect();
        pays.then_some(Layout { over, place, len })
    }

    /// Fills a table; `None` if a value does not exist.
    fn fill<T>(&self, layout: &Layout, mut value: impl FnMut(&mut Machine) -> T) -> Option<Vec<T>> {
        let mut m = Machine::new(self.extents.len(), &[]);
        let mut out = Vec::with_capacity(layout.len as usize);
        for_each(&layout.over, &mut m, |m| out.push(value(m)));
        m.verdict().is_ok().then_some(out)
    }

    fn add(&mut self, elements: Elements) -> usize {
        self.tables.push(elements);
        self.inputs + self.tables.len() - 1
    }

    fn real(&mut self, r: &Real, points: i64) -> Real {
        if !matches!(r, Real::Const(_))
            && let Some(layout) = self.layout(r, points)
            && let Some(values) = self.fill(&layout, |m| r.eval(m))
        {
            let input = self.add(Elements::Float(Arc::new(values)));
            return Real::Read(read(input, layout.place, layout.len));
        }
        match r {
            Real::Const(_) => r.clone(),
            Real::Unary(f, a) => Real::Unary(*f, Box::new(self.real(a, points))),
            Real::Neg(a) => Real::Neg(Box::new(self.real(a, points))),
            Real::Binary(op, a, b) => {
                let a = self.real(a, points);
                Real::Binary(*op, Box::new(a), Box::new(self.real(b, points)))
            }
            Real::Read(r) => {
                let otherwise = r.otherwise.as_ref().map(|e| self.real(e, points));
                Real::Read(Box::new(self.read(r, otherwise, points)))
            }
            Real::If(c, a, b) => {
                let (c, a) = (self.truth(c, points), self.real(a, points));
                Real::If(Box::new(c), Box::new(a), Box::new(self.real(b, points)))
            }
            Real::Reduce(r) => {
                let body = self.real(&r.body, inside(r, points));
                Real::Reduce(Box::new(Reduce {
                    monoid: r.monoid,
                    over: r.over.clone(),
                    dtype: r.dtype,
                    body,
                }))
            }
            Real::FromInt(s, a) => Real::FromInt(*s, Box::new(self.int(a, points))),
            Real::Round(d, a) => Real::Round(*d, Box::new(self.real(a, points))),
        }
    }

    fn int(&mut self, i: &Int, points: i64) -> Int {
        if !matches!(i, Int::Const(_) | Int::Affine(_) | Int::Slot(_))
            && let Some(layout) = self.layout(i, points)
            && let Some(values) = self.fill(&layout, |m| i.eval(m))
        {
            let input = self.add(Elements::Int(Arc::new(values)));
            return Int::Read(read(input, layout.place, layout.len));
        }
        let mut one = |a: &Int| Box::new(self.int(a, points));
        match i {
            Int::Const(_) | Int::Slot(_) | Int::Affine(_) => i.clone(),
            Int::Neg(a) => Int::Neg(one(a)),
            Int::Abs(a) => Int::Abs(one(a)),
            Int::Signum(s, a) => Int::Signum(*s, one(a)),
            Int::Wrap(d, a) => Int::Wrap(*d, one(a)),
            Int::Binary(op, a, b) => Int::Binary(*op, one(a), one(b)),
            Int::Exact(a, b) => Int::Exact(one(a), one(b)),
            Int::At(list, at) => {
                let list = list.iter().map(|v| self.int(v, points)).collect();
                Int::At(list, Box::new(self.int(at, points)))
            }
            Int::Read(r) => {
                let otherwise = r.otherwise.as_ref().map(|e| self.int(e, points));
                Int::Read(Box::new(self.read(r, otherwise, points)))
            }
            Int::If(c, a, b) => {
                let (c, a) = (self.truth(c, points), self.int(a, points));
                Int::If(Box::new(c), Box::new(a), Box::new(self.int(b, points)))
            }
            Int::Reduce(r) => {
                let body = self.int(&r.body, inside(r, points));
                Int::Reduce(Box::new(Reduce {
                    monoid: r.monoid,
                    over: r.over.clone(),
                    dtype: r.dtype,
                    body,
                }))
            }
            Int::FromReal(d, a) => Int::FromReal(*d, Box::new(self.real(a, points))),
            Int::FromTruth(a) => Int::FromTruth(Box::new(self.truth(a, points))),
        }
    }

    fn truth(&mut self, t: &Truth, points: i64) -> Truth {
        if !matches!(t, Truth::Const(_))
            && let Some(layout) = self.layout(t, points)
            && let Some(values) = self.fill(&layout, |m| i64::from(t.eval(m)))
        {
            let input = self.add(Elements::Int(Arc::new(values)));
            let value = Int::Read(read(input, layout.place, layout.len));
            return Truth::NonZero(Box::new(value));
        }
        match t {
            Truth::Const(_) => t.clone(),
            Truth::Real(cmp, a, b) => {
                let a = self.real(a, points);
                Truth::Real(*cmp, Box::new(a), Box::new(self.real(b, points)))
            }
            Truth::Int(cmp, s, a, b) => {
                let a = self.int(a, points);
                Truth::Int(*cmp, *s, Box::new(a), Box::new(self.int(b, points)))
            }
            Truth::And(a, b) => {
                let a = self.truth(a, points);
                Truth::And(Box::new(a), Box::new(self.truth(b, points)))
            }
            Truth::Or(a, b) => {
                let a = self.truth(a, points);
                Truth::Or(Box::new(a), Box::new(self.truth(b, points)))
            }
            Truth::Not(a) => Truth::Not(Box::new(self.truth(a, points))),
            Truth::NonZero(a) => Truth::NonZero(Box::new(self.int(a, points))),
            Truth::If(c, a, b) => {
                let (c, a) = (self.truth(c, points), self.truth(a, points));
                Truth::If(Box::new(c), Box::new(a), Box::new(self.truth(b, points)))
            }
            Truth::Quantified(q, over, a) => {
                let body = self.truth(a, times(over, points));
                Truth::Quantified(*q, over.clone(), Box::new(body))
            }
        }
    }

    /// An element, whose indices may have tables. One that is affine needs none.
    fn read<E: Clone>(&mut self, r: &Read<E>, otherwise: Option<E>, points: i64) -> Read<E> {
        let index = match r.fast {
            Some(_) => r.index.clone(),
            None => r.index.iter().map(|i| self.int(i, points)).collect(),
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

fn times(over: &[(Slot, i64)], points: i64) -> i64 {
    over.iter().fold(points, |n, v| n.saturating_mul(v.1))
}

fn inside<E>(r: &Reduce<E>, points: i64) -> i64 {
    times(&r.over, points)
}

/// What tables ask of a part.
trait Part {
    /// True if it reads no element, and has a value for all index variables.
    fn is_closed(&self) -> bool;

    /// The variables of its own reductions.
    fn bound(&self, out: &mut Vec<Slot>);
}

impl Part for Real {
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

    fn bound(&self, out: &mut Vec<Slot>) {
        match self {
            Real::Const(_) | Real::Read(_) => {}
            Real::Unary(_, a) | Real::Neg(a) | Real::Round(_, a) => a.bound(out),
            Real::Binary(_, a, b) => {
                a.bound(out);
                b.bound(out);
            }
            Real::If(c, a, b) => {
                c.bound(out);
                a.bound(out);
                b.bound(out);
            }
            Real::Reduce(r) => {
                out.extend(r.over.iter().map(|v| v.0));
                r.body.bound(out);
            }
            Real::FromInt(_, a) => a.bound(out),
        }
    }
}

impl Part for Int {
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

    fn bound(&self, out: &mut Vec<Slot>) {
        match self {
            Int::Const(_) | Int::Slot(_) | Int::Affine(_) | Int::At(..) | Int::Read(_) => {}
            Int::Neg(a) | Int::Abs(a) | Int::Signum(_, a) | Int::Wrap(_, a) => a.bound(out),
            Int::Binary(_, a, b) | Int::Exact(a, b) => {
                a.bound(out);
                b.bound(out);
            }
            Int::If(c, a, b) => {
                c.bound(out);
                a.bound(out);
                b.bound(out);
            }
            Int::Reduce(r) => {
                out.extend(r.over.iter().map(|v| v.0));
                r.body.bound(out);
            }
            Int::FromReal(_, a) => a.bound(out),
            Int::FromTruth(a) => a.bound(out),
        }
    }
}

impl Part for Truth {
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

    fn bound(&self, out: &mut Vec<Slot>) {
        match self {
            Truth::Const(_) => {}
            Truth::Real(_, a, b) => {
                a.bound(out);
                b.bound(out);
            }
            Truth::Int(_, _, a, b) => {
                a.bound(out);
                b.bound(out);
            }
            Truth::And(a, b) | Truth::Or(a, b) => {
                a.bound(out);
                b.bound(out);
            }
            Truth::Not(a) => a.bound(out),
            Truth::Quantified(_, over, a) => {
                out.extend(over.iter().map(|v| v.0));
                a.bound(out);
            }
            Truth::NonZero(a) => a.bound(out),
            Truth::If(c, a, b) => {
                c.bound(out);
                a.bound(out);
                b.bound(out);
            }
        }
    }
}
