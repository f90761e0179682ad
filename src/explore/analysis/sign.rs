//! Sign analysis: which classes cannot be negative, derived from the meanings of operators.
//!
//! Sound, not complete: sums of squares, exponentials, absolute values, and sums, products and
//! quotients of these. Never refers to an operator by name.

use crate::graph::Graph;
use crate::graph::language::{ENode, Head};
use egg::Id;
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, Monoid, Read};
use mlc_dsl::library::CallKind;
use std::cell::RefCell;
use std::collections::HashMap;

/// Operators that are looked through.
const DEPTH: usize = 8;

/// True if no element can be below zero or a negative zero; any may be NaN.
pub fn nonnegative(graph: &Graph, id: Id) -> bool {
    class(graph, id, DEPTH, &Open::default())
}

/// Classes that are not known to be so, and how many operators were looked through to see that.
type Open = RefCell<HashMap<Id, usize>>;

fn class(graph: &Graph, id: Id, depth: usize, open: &Open) -> bool {
    let id = graph.egg.find(id);
    if open.borrow().get(&id).is_some_and(|&d| d >= depth) {
        return false;
    }
    let facts = graph.facts(id);
    let fine: fn(f64) -> bool = |v| v.is_nan() || v.is_sign_positive();
    if let Some(v) = facts.uniform {
        return fine(v);
    }
    if facts.value.is_some() {
        return graph.every_element(id, "nonnegative", fine);
    }
    // Integers wrap around: only their values tell.
    let float = graph.type_of(id).dtype.is_float();
    let known =
        float && depth > 0 && graph.egg[id].nodes.iter().any(|n| node(graph, n, depth - 1, open));
    if !known {
        open.borrow_mut().insert(id, depth);
    }
    known
}

fn node(graph: &Graph, n: &ENode, depth: usize, open: &Open) -> bool {
    let Head::Apply(call, _) = n.head else { return false };
    let CallKind::Op(meanings) = &graph.library.call(call).kind else { return false };
    let [meaning] = meanings.as_slice() else { return false };
    SignReader { graph, node: n, depth, open }.holds(&meaning.value)
}

/// One application whose meaning is read.
struct SignReader<'a> {
    graph: &'a Graph,
    node: &'a ENode,
    depth: usize,
    open: &'a Open,
}

impl SignReader<'_> {
    fn argument(&self, input: usize) -> Option<Id> {
        self.node.args.get(input).map(|&a| self.graph.egg.find(a))
    }

    /// True if the expression's value is never below zero.
    fn holds(&self, e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Int(v) => *v >= 0,
            ExprKind::Float(v) => v.is_sign_positive(),
            ExprKind::Read(r) => {
                let inside = self
                    .argument(r.input)
                    .is_some_and(|a| class(self.graph, a, self.depth, self.open));
                inside && r.otherwise.as_ref().is_none_or(|o| self.holds(o))
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                self.same(a, b) || self.holds(a) && self.holds(b)
            }
            ExprKind::Binary(BinaryOp::Add | BinaryOp::Div, a, b) => self.holds(a) && self.holds(b),
            ExprKind::Binary(BinaryOp::Pow, a, b) => self.holds(a) || self.even(b),
            ExprKind::Reduce(r) => {
                matches!(r.monoid, Monoid::Sum | Monoid::Prod) && self.holds(&r.body)
            }
            ExprKind::Call(f, args) => match (f, args.as_slice()) {
                (Function::Exp | Function::Abs, [_]) => true,
                (Function::Sqrt | Function::Rsqrt | Function::Recip, [x]) => self.holds(x),
                (Function::Maximum, [a, b]) => self.holds(a) || self.holds(b),
                (Function::Minimum, [a, b]) => self.holds(a) && self.holds(b),
                _ => false,
            },
            _ => false,
        }
    }

    /// True if both are one element of one value.
    fn same(&self, a: &Expr, b: &Expr) -> bool {
        let read = |e: &Expr| match &e.kind {
            ExprKind::Read(Read { input, index, otherwise: None }) => {
                Some((self.argument(*input)?, index.clone()))
            }
            _ => None,
        };
        read(a).is_some_and(|a| Some(a) == read(b))
    }

    /// True of an even number, given by a value whose elements are all equal.
    fn even(&self, e: &Expr) -> bool {
        let ExprKind::Read(Read { input, otherwise: None, .. }) = &e.kind else { return false };
        let value = self.argument(*input).and_then(|a| self.graph.facts(a).uniform);
        value.is_some_and(|v| v % 2.0 == 0.0)
    }
}
