//! What the meaning of an operator shows of it beyond its class: which schemas it takes part in.

use crate::library::{CallKind, Callable, Dim, Library, OpClass};
use crate::syntax::ast::{Arg, BinaryOp, Elem, Expr, ExprKind, UnaryOp};
use crate::term::TermKind;

/// True if every element of the result is one function of the operands' elements at its place: of an `op` its meaning says
/// so, of a `def` its body, which applies such operators to its parameters and to numbers.
pub fn pointwise(library: &Library, c: &Callable) -> bool {
    let closed = c.attrs.iter().all(|a| a.ty.of.is_none());
    closed
        && match &c.kind {
            CallKind::Op(_) => c.class == OpClass::Pointwise,
            CallKind::Def(body) => {
                let named =
                    |n: &str| c.attrs.iter().any(|a| *a.name == *n) || n == "pi" || n == "inf";
                super::elaborate::is_pointwise(c)
                    && matches!(body.roots.as_slice(), [_])
                    && body.terms.iter().all(|(_, t)| match &t.kind {
                        TermKind::Var(_) => true,
                        TermKind::Scalar(e) => is_number(e, &named),
                        TermKind::Apply(call, _) if library.find("broadcast") == Some(*call) => {
                            matches!(body.terms.get(t.args[0]).kind, TermKind::Scalar(_))
                        }
                        TermKind::Apply(call, attrs) => {
                            attrs.iter().flatten().all(|e| is_number(e, &|_| true))
                                && pointwise(library, library.call(*call))
                        }
                        TermKind::Output(_) | TermKind::EachFold(..) | TermKind::EachPart(_) => {
                            false
                        }
                    })
            }
            CallKind::Extern(_) => false,
        }
}

/// True if an expression hangs on no extent and on no name but those.
fn is_number(e: &Expr, named: &dyn Fn(&str) -> bool) -> bool {
    let mut sound = true;
    super::walk(e, &mut |e| match &e.kind {
        ExprKind::Size(_) | ExprKind::Index { .. } | ExprKind::Reduce { .. } => sound = false,
        ExprKind::Name(n) => sound &= named(n),
        ExprKind::Call { callee, .. } => {
            sound &= !matches!(callee.text.as_str(), "shape" | "rank" | "length" | "dtype");
        }
        _ => {}
    });
    sound
}

/// What a reduction over listed axes reduces by: `sum`, `max`, …; `None` of operators that do something else with their axes.
pub fn reduces_by(c: &Callable) -> Option<&str> {
    let CallKind::Op(meanings) = &c.kind else { return None };
    let ([m], [x], [axes]) = (meanings.as_slice(), c.inputs.as_slice(), c.attrs.as_slice()) else {
        return None;
    };
    let [Dim::Seg(a)] = x.ty.dims.as_deref()? else { return None };
    let [(_, result)] = c.outputs.as_slice() else { return None };
    let [Dim::Seg(b)] = result.dims.as_deref()? else { return None };
    let ExprKind::Reduce { monoid, axes: over, body } = &m.value.kind else { return None };
    let [Elem::Splice(Expr { kind: ExprKind::Name(r), .. })] = over.as_slice() else { return None };
    let given = |n: &str| {
        c.wheres.iter().find(|(w, _)| **w == *n).map(|(_, e)| crate::syntax::print_expr(e))
    };
    let canonical = axes.ty.name.text == "axes"
        && axes.ty.of.as_ref().is_some_and(|of| *of.text == **a)
        && given(b) == Some(format!("drop(|{a}|, {})", axes.name))
        && given(r) == Some(format!("pick(|{a}|, {})", axes.name))
        && crate::syntax::print_expr(body)
            == format!("{}[..weave({b}, {r}, {})]", x.name, axes.name)
        && c.conditions.is_empty();
    canonical.then_some(monoid.text.as_str())
}

/// True if a reduction's result is one of the elements, so that nothing is rounded and one more of the same changes nothing.
pub fn selects(c: &Callable) -> bool {
    matches!(reduces_by(c), Some("max" | "min"))
}

/// True if `f` of two values is what `r` makes of them.
pub fn joins(f: &Callable, r: &Callable) -> bool {
    let Some((value, _)) = meaning(f).filter(|_| f.inputs.len() == 2) else { return false };
    let read = |e: &Expr, i: usize| matches!(&e.kind, ExprKind::Index { base, .. } if *base.text == *f.inputs[i].name);
    let both = |a: &Expr, b: &Expr| read(a, 0) && read(b, 1) || read(a, 1) && read(b, 0);
    match (&value.kind, reduces_by(r)) {
        (ExprKind::Binary(BinaryOp::Add, a, b), Some("sum")) => both(a, b),
        (ExprKind::Binary(BinaryOp::Mul, a, b), Some("prod")) => both(a, b),
        (ExprKind::Call { callee, args }, Some(by @ ("max" | "min"))) => {
            callee.text == format!("{by}imum")
                && matches!(args.as_slice(), [a, b] if both(&a.value, &b.value))
        }
        _ => false,
    }
}

/// True if `f(x, x)` is `x`, whatever `x` is.
pub fn idempotent(c: &Callable) -> bool {
    let read = |e: &Expr, i: usize| matches!(&e.kind, ExprKind::Index { base, .. } if *base.text == *c.inputs[i].name);
    let Some((value, _)) = meaning(c).filter(|_| c.inputs.len() == 2) else { return false };
    match &value.kind {
        ExprKind::Binary(BinaryOp::And | BinaryOp::Or, a, b) => read(a, 0) && read(b, 1),
        ExprKind::Call { callee, args } => {
            matches!(callee.text.as_str(), "maximum" | "minimum")
                && matches!(args.as_slice(), [a, b] if read(&a.value, 0) && read(&b.value, 1))
        }
        _ => false,
    }
}

/// Functions whose value at a negated number is negated.
const ODD: &[&str] = &["erf", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh"];

/// True if the operator of a negated operand is the negated operator: such a function of its one operand.
pub fn odd(c: &Callable) -> bool {
    c.inputs.len() == 1
        && meaning(c).is_some_and(|(e, _)| match &e.kind {
            ExprKind::Call { callee, args } => {
                let read =
                    |a: &Arg| matches!(a.value.kind, ExprKind::Index { otherwise: None, .. });
                ODD.contains(&callee.text.as_str()) && matches!(args.as_slice(), [a] if read(a))
            }
            _ => false,
        })
}

/// True if a larger operand never makes a smaller result, and no number becomes NaN, for all numbers and infinities: an
/// operator of one operand, by the functions that its meaning is made of.
pub fn increasing(c: &Callable) -> bool {
    let one = c.inputs.len() == 1 && c.attrs.is_empty();
    one && meaning(c).is_some_and(|(e, _)| trend(e) == Some(Trend::Up))
}

/// True if the operator is a sum of multiples of its operands.
pub fn linear(c: &Callable) -> bool {
    meaning(c).is_some_and(|(e, _)| degree(e) == Some(1)) && c.attrs.is_empty()
}

/// The one equation of a pointwise `op`.
fn meaning(c: &Callable) -> Option<(&Expr, &Callable)> {
    let CallKind::Op(meanings) = &c.kind else { return None };
    match meanings.as_slice() {
        [m] if c.class == OpClass::Pointwise => Some((&m.value, c)),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trend {
    Up,
    Down,
    Flat,
}

impl Trend {
    fn turned(self) -> Trend {
        match self {
            Trend::Up => Trend::Down,
            Trend::Down => Trend::Up,
            Trend::Flat => Trend::Flat,
        }
    }
}

/// Functions of all numbers and infinities that never fall.
const RISING: &[&str] =
    &["exp", "erf", "tanh", "sinh", "asinh", "atan", "floor", "ceil", "round", "sign"];

/// How a value follows the element that it is computed from; `None` where that is not known.
fn trend(e: &Expr) -> Option<Trend> {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Float(_) => Some(Trend::Flat),
        ExprKind::Index { otherwise: None, .. } => Some(Trend::Up),
        ExprKind::Unary(UnaryOp::Neg, a) => trend(a).map(Trend::turned),
        ExprKind::Call { callee, args } => match (callee.text.as_str(), args.as_slice()) {
            (f, [a]) if RISING.contains(&f) => trend(&a.value),
            ("maximum" | "minimum", [a, b]) => both(trend(&a.value)?, trend(&b.value)?),
            _ => None,
        },
        // Infinities of both signs meet in no sum of values that follow one element alike; a difference is such a sum.
        ExprKind::Binary(BinaryOp::Add, a, b) => both(trend(a)?, trend(b)?),
        ExprKind::Binary(BinaryOp::Sub, a, b) => both(trend(a)?, trend(b)?.turned()),
        ExprKind::Binary(BinaryOp::Mul, a, b) => match (number(a), number(b)) {
            (Some(k), _) => scaled(trend(b)?, k),
            (_, Some(k)) => scaled(trend(a)?, k),
            _ => None,
        },
        ExprKind::Binary(BinaryOp::Div, a, b) => match (number(a), number(b)) {
            (_, Some(k)) => scaled(trend(a)?, k),
            (Some(k), None) if positive(b) => scaled(trend(b)?.turned(), k),
            _ => None,
        },
        _ => None,
    }
}

fn both(a: Trend, b: Trend) -> Option<Trend> {
    match (a, b) {
        (Trend::Flat, t) | (t, Trend::Flat) => Some(t),
        (a, b) => (a == b).then_some(a),
    }
}

fn scaled(t: Trend, k: f64) -> Option<Trend> {
    match k.is_finite() && k != 0.0 {
        true => Some(if k > 0.0 { t } else { t.turned() }),
        false => None,
    }
}

fn number(e: &Expr) -> Option<f64> {
    let closed = is_number(e, &|_| false);
    closed.then(|| crate::eval::eval(e, &crate::eval::Env::default()).ok()?.as_f64()).flatten()
}

/// True if a value is never zero, negative or a reciprocal's pole: a positive number and what is never below zero.
fn positive(e: &Expr) -> bool {
    let floor = |e: &Expr| match &e.kind {
        ExprKind::Call { callee, .. } => callee.text == "exp",
        _ => false,
    };
    match &e.kind {
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            number(a).is_some_and(|k| k > 0.0) && floor(b)
                || number(b).is_some_and(|k| k > 0.0) && floor(a)
        }
        _ => false,
    }
}

/// The degree of a value as a form in its elements: 0 of a number, 1 of a sum of multiples.
fn degree(e: &Expr) -> Option<u8> {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Float(_) => Some(0),
        ExprKind::Index { otherwise: None, .. } => Some(1),
        ExprKind::Unary(UnaryOp::Neg, a) => degree(a),
        ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => {
            let (a, b) = (degree(a)?, degree(b)?);
            (a == b).then_some(a)
        }
        ExprKind::Binary(BinaryOp::Mul, a, b) => {
            let sum = degree(a)? + degree(b)?;
            (sum < 2).then_some(sum)
        }
        ExprKind::Binary(BinaryOp::Div, a, b) => match number(b) {
            Some(k) if k != 0.0 && k.is_finite() => degree(a),
            _ => None,
        },
        _ => None,
    }
}
