//! Numbers of a pattern that are computed from one name, such as `recip(t)` or `-l`: which value of the name yields the
//! number of a program.

use crate::eval::functions::Function;
use crate::eval::{Env, eval};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::library::Name;
use std::collections::HashSet;

/// The name that nothing binds and whose value makes `e` the number `v`, with that value. `None` if more than one is open, or no
/// finite value is the only one.
pub fn solve(e: &Expr, v: f64, env: &Env) -> Option<(Name, f64)> {
    if !v.is_finite() {
        return None;
    }
    let known = |e: &Expr| eval(e, env).ok().and_then(|a| a.as_f64());
    match &e.kind {
        ExprKind::Name(n) => env.attr(n).is_none().then(|| (n.clone(), v)),
        ExprKind::Unary(UnaryOp::Neg, a) => solve(a, -v, env),
        ExprKind::Binary(op, a, b) => match (known(a), known(b)) {
            (Some(x), None) => solve(b, right(*op, x, v)?, env),
            (None, Some(y)) => solve(a, left(*op, y, v)?, env),
            _ => None,
        },
        ExprKind::Call(f, args) => match args.as_slice() {
            [a] => solve(a, argument(*f, v)?, env),
            _ => None,
        },
        _ => None,
    }
}

/// The name that [`solve`] finds once those in `found` are known.
pub(super) fn solvable(e: &Expr, found: &HashSet<Name>) -> Option<Name> {
    let open = |e: &Expr| {
        let mut open = false;
        e.walk(&mut |e| {
            open |=
                matches!(&e.kind, ExprKind::Name(n) | ExprKind::Entry(n, _) if !found.contains(n));
        });
        open
    };
    match &e.kind {
        ExprKind::Name(n) => (!found.contains(n)).then(|| n.clone()),
        ExprKind::Unary(UnaryOp::Neg, a) => solvable(a, found),
        ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div, a, b) => {
            match (open(a), open(b)) {
                (false, true) => solvable(b, found),
                (true, false) => solvable(a, found),
                _ => None,
            }
        }
        ExprKind::Call(f, args) => match args.as_slice() {
            [a] => argument(*f, 0.5).and_then(|_| solvable(a, found)),
            _ => None,
        },
        _ => None,
    }
}

/// `b` of `x op b == v`.
fn right(op: BinaryOp, x: f64, v: f64) -> Option<f64> {
    match op {
        BinaryOp::Add => Some(v - x),
        BinaryOp::Sub => Some(x - v),
        BinaryOp::Mul if x != 0.0 => Some(v / x),
        BinaryOp::Div if x != 0.0 && v != 0.0 => Some(x / v),
        _ => None,
    }
}

/// `a` of `a op y == v`.
fn left(op: BinaryOp, y: f64, v: f64) -> Option<f64> {
    match op {
        BinaryOp::Add => Some(v - y),
        BinaryOp::Sub => Some(v + y),
        BinaryOp::Mul if y != 0.0 => Some(v / y),
        BinaryOp::Div if y != 0.0 => Some(v * y),
        _ => None,
    }
}

/// `a` of `f(a) == v`, where there is one.
fn argument(f: Function, v: f64) -> Option<f64> {
    match f {
        Function::Recip if v != 0.0 => Some(1.0 / v),
        Function::Sqrt if v >= 0.0 => Some(v * v),
        Function::Rsqrt if v > 0.0 => Some(1.0 / (v * v)),
        Function::Exp if v > 0.0 => Some(v.ln()),
        Function::Log => Some(v.exp()),
        Function::Float => Some(v),
        _ => None,
    }
}
