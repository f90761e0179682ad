//! Interval analysis of classes, derived from the meanings of operators.
//!
//! Sound up to rounding of the bounds themselves, not complete: constants, bounded functions, and
//! arithmetic on them. NaN is in every interval. Never refers to an operator by name.

use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use egg::Id;
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, Monoid, Read, UnaryOp};
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::CallKind;
use std::cell::RefCell;
use std::collections::HashMap;

/// Operators that are looked through.
const DEPTH: usize = 6;

/// A lower and an upper bound.
type Interval = (f64, f64);

const ALL: Interval = (f64::NEG_INFINITY, f64::INFINITY);

/// True if every element lies between these bounds, or is NaN.
pub fn within(graph: &Graph, id: Id, low: f64, high: f64) -> bool {
    let (l, h) = class(graph, id, DEPTH, &Seen::default());
    l >= low && h <= high
}

/// Bounds of classes by how many operators were looked through.
type Seen = RefCell<HashMap<(Id, usize), Interval>>;

/// What every element of a type lies between: integers have ends.
fn all(dtype: DType) -> Interval {
    dtype.int_range().map_or(ALL, |(low, high)| (low as f64, high as f64))
}

fn class(graph: &Graph, id: Id, depth: usize, seen: &Seen) -> Interval {
    let id = graph.egg.find(id);
    let dtype = graph.facts(id).types.first().map_or(DType::F32, |t| t.dtype);
    if let Some(v) = graph.facts(id).uniform {
        return if v.is_nan() { ALL } else { (v, v) };
    }
    if let Some(known) = graph.bounds(id) {
        return known;
    }
    if depth == 0 {
        return all(dtype);
    }
    if let Some(known) = seen.borrow().get(&(id, depth)) {
        return *known;
    }
    // A class that contains itself has no bounds by itself.
    seen.borrow_mut().insert((id, depth), all(dtype));
    let of = |n: &ENode| node(graph, n, dtype, depth - 1, seen);
    let found = graph.egg[id].nodes.iter().map(of);
    let out = found.fold(all(dtype), |a, b| (a.0.max(b.0), a.1.min(b.1)));
    seen.borrow_mut().insert((id, depth), out);
    out
}

fn node(graph: &Graph, n: &ENode, dtype: DType, depth: usize, seen: &Seen) -> Interval {
    let Head::Apply(call, _) = n.head else { return ALL };
    let CallKind::Op(meanings) = &graph.library.call(call).kind else { return ALL };
    let [meaning] = meanings.as_slice() else { return ALL };
    let ends = all(dtype);
    let out = IntervalReader { graph, node: n, dtype, depth, seen }.of(&meaning.value);
    // The extreme of nothing is infinite, or an end of the type.
    let inside = |v: f64, end: f64| if v.is_infinite() { end } else { v };
    match out.0.is_nan() || out.1.is_nan() {
        true => ends,
        false => (inside(out.0, ends.0), inside(out.1, ends.1)),
    }
}

/// One application whose meaning is read.
struct IntervalReader<'a> {
    graph: &'a Graph,
    node: &'a ENode,
    dtype: DType,
    depth: usize,
    seen: &'a Seen,
}

fn hull(list: &[f64]) -> Interval {
    if list.iter().any(|v| v.is_nan()) {
        return ALL;
    }
    let low = list.iter().copied().fold(f64::INFINITY, f64::min);
    (low, list.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

fn monotone(x: Interval, f: fn(f64) -> f64) -> Interval {
    hull(&[f(x.0), f(x.1)])
}

impl IntervalReader<'_> {
    fn of(&self, e: &Expr) -> Interval {
        match &e.kind {
            ExprKind::Int(v) => (*v as f64, *v as f64),
            ExprKind::Float(v) => (*v, *v),
            ExprKind::Unary(UnaryOp::Neg, a) => self.computed(monotone(self.of(a), |v| -v)),
            ExprKind::Read(r) => self.element(r),
            ExprKind::Binary(op, a, b) => self.computed(binary(*op, self.of(a), self.of(b))),
            ExprKind::Reduce(r) if matches!(r.monoid, Monoid::Max | Monoid::Min) => {
                // No elements have an infinite one.
                let (low, high) = self.of(&r.body);
                if r.monoid == Monoid::Max {
                    (f64::NEG_INFINITY, high)
                } else {
                    (low, f64::INFINITY)
                }
            }
            ExprKind::If { then, otherwise, .. } => {
                let (a, b) = (self.of(then), self.of(otherwise));
                (a.0.min(b.0), a.1.max(b.1))
            }
            ExprKind::Call(f, args) => match args.as_slice() {
                [x] => self.computed(function(*f, self.of(x))),
                // A conversion to floats keeps bounds that are numbers of the type.
                [x, _] if *f == Function::Cast && self.dtype.is_float() => {
                    let (low, high) = self.of(x);
                    let kept = |v: f64| v.is_finite() && !self.dtype.overflows(v);
                    if kept(low) && kept(high) { (low, high) } else { ALL }
                }
                [a, b] => match (f, self.of(a), self.of(b)) {
                    (Function::Maximum, a, b) => (a.0.max(b.0), a.1.max(b.1)),
                    (Function::Minimum, a, b) => (a.0.min(b.0), a.1.min(b.1)),
                    _ => ALL,
                },
                _ => ALL,
            },
            _ => ALL,
        }
    }

    /// The bounds of what is computed: integers wrap around beyond their type.
    fn computed(&self, out: Interval) -> Interval {
        let kept = |v: f64| self.dtype.is_float() || v.is_finite() && self.dtype.is_exact(v);
        if kept(out.0) && kept(out.1) { out } else { all(self.dtype) }
    }

    fn element(&self, r: &Read) -> Interval {
        let Some(&arg) = self.node.args.get(r.input) else { return ALL };
        let inside = class(self.graph, arg, self.depth, self.seen);
        match r.otherwise.as_ref().map(|o| self.of(o)) {
            Some(o) => (inside.0.min(o.0), inside.1.max(o.1)),
            None => inside,
        }
    }
}

fn binary(op: BinaryOp, a: Interval, b: Interval) -> Interval {
    match op {
        BinaryOp::Add => (a.0 + b.0, a.1 + b.1),
        BinaryOp::Sub => (a.0 - b.1, a.1 - b.0),
        BinaryOp::Mul => hull(&[a.0 * b.0, a.0 * b.1, a.1 * b.0, a.1 * b.1]),
        BinaryOp::Div if b.0 > 0.0 || b.1 < 0.0 => {
            hull(&[a.0 / b.0, a.0 / b.1, a.1 / b.0, a.1 / b.1])
        }
        _ => ALL,
    }
}

fn function(f: Function, x: Interval) -> Interval {
    match f {
        Function::Abs if x.0 <= 0.0 && x.1 >= 0.0 => (0.0, x.1.max(-x.0)),
        Function::Abs => monotone(x, f64::abs),
        Function::Exp => monotone(x, f64::exp),
        Function::Log if x.0 >= 0.0 => monotone(x, f64::ln),
        Function::Sqrt if x.0 >= 0.0 => monotone(x, f64::sqrt),
        Function::Sqrt => (0.0, x.1.max(0.0).sqrt()),
        Function::Recip if x.0 > 0.0 || x.1 < 0.0 => monotone(x, |v| 1.0 / v),
        Function::Tanh => monotone(x, f64::tanh),
        Function::Erf | Function::Sin | Function::Cos | Function::Sign => (-1.0, 1.0),
        Function::Floor => monotone(x, f64::floor),
        Function::Ceil => monotone(x, f64::ceil),
        Function::Round => monotone(x, f64::round_ties_even),
        Function::Atan => monotone(x, f64::atan),
        _ => ALL,
    }
}

/// The bounds that a condition `within(x, low, high)` names.
pub fn named(bounds: &[Option<Attr>]) -> Option<Interval> {
    match bounds {
        [Some(low), Some(high)] => Some((low.as_f64()?, high.as_f64()?)),
        _ => None,
    }
}
