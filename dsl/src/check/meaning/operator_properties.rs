//! Properties of operators derived from their meaning, beyond the class: they decide which schemas apply.

use crate::eval::function::Function;
use crate::expr::{AttrKind, BinaryOp, Elem, Expr, ExprKind, Monoid, Read, UnaryOp};
use crate::library::{CallKind, Callable, Dim, Library, OpClass};
use crate::syntax::print_resolved;
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
                super::super::elaborate::is_pointwise(c)
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
    !e.any(&mut |e| match &e.kind {
        ExprKind::Size(_) | ExprKind::Type(..) | ExprKind::Entry(..) => true,
        ExprKind::Index(_) | ExprKind::Read(_) | ExprKind::Reduce(_) => true,
        ExprKind::Name(n) => !named(n),
        ExprKind::Call(f, _) => {
            matches!(f, Function::Shape | Function::Rank | Function::Length | Function::Dtype)
        }
        _ => false,
    })
}

/// What a reduction over listed axes reduces by; `None` of operators that do something else with their axes.
pub fn reduces_by(c: &Callable) -> Option<Monoid> {
    let CallKind::Op(meanings) = &c.kind else { return None };
    let ([m], [x], [axes]) = (meanings.as_slice(), c.inputs.as_slice(), c.attrs.as_slice()) else {
        return None;
    };
    let [Dim::Seg(a)] = x.ty.dims.as_deref()? else { return None };
    let [(_, result)] = c.outputs.as_slice() else { return None };
    let [Dim::Seg(b)] = result.dims.as_deref()? else { return None };
    let ExprKind::Reduce(reduce) = &m.value.kind else { return None };
    let ([kept], [over]) = (m.index.as_slice(), reduce.over.as_slice()) else { return None };
    let ExprKind::Read(Read { input: 0, index, otherwise: None }) = &reduce.body.kind else {
        return None;
    };
    let [index] = index.as_slice() else { return None };
    let given = |n: &str| c.wheres.iter().find(|(w, _)| **w == *n).map(|(_, e)| print_resolved(e));
    let own = Expr::new(ExprKind::Name(axes.name.clone()));
    let variable = |id| Expr::new(ExprKind::Index(id));
    let woven = vec![variable(kept.id), variable(over.id), own];
    let canonical = axes.ty.kind == AttrKind::Axes
        && axes.ty.of.as_ref() == Some(a)
        && kept.segment
        && over.segment
        && given(b) == Some(format!("drop(|{a}|, {})", axes.name))
        && given(&over.name) == Some(format!("pick(|{a}|, {})", axes.name))
        && *index == Elem::Splice(Expr::call(Function::Weave, woven))
        && c.conditions.is_empty();
    canonical.then_some(reduce.monoid)
}

/// True if a reduction's result is one of the elements, so that nothing is rounded and one more of the same changes nothing.
pub fn selects(c: &Callable) -> bool {
    matches!(reduces_by(c), Some(Monoid::Max | Monoid::Min))
}

/// True if `f` of two values is what `r` makes of them.
pub fn joins(f: &Callable, r: &Callable) -> bool {
    let Some(value) = meaning(f).filter(|_| f.inputs.len() == 2) else { return false };
    let both = |a: &Expr, b: &Expr| reads(a, 0) && reads(b, 1) || reads(a, 1) && reads(b, 0);
    match (&value.kind, reduces_by(r)) {
        (ExprKind::Binary(BinaryOp::Add, a, b), Some(Monoid::Sum)) => both(a, b),
        (ExprKind::Binary(BinaryOp::Mul, a, b), Some(Monoid::Prod)) => both(a, b),
        (ExprKind::Call(Function::Maximum, args), Some(Monoid::Max))
        | (ExprKind::Call(Function::Minimum, args), Some(Monoid::Min)) => {
            matches!(args.as_slice(), [a, b] if both(a, b))
        }
        _ => false,
    }
}

/// True if an expression is the element of an input.
fn reads(e: &Expr, i: usize) -> bool {
    matches!(&e.kind, ExprKind::Read(Read { input, otherwise: None, .. }) if *input == i)
}

/// True if `f(x, x)` is `x`, whatever `x` is.
pub fn idempotent(c: &Callable) -> bool {
    let Some(value) = meaning(c).filter(|_| c.inputs.len() == 2) else { return false };
    match &value.kind {
        ExprKind::Binary(BinaryOp::And | BinaryOp::Or, a, b) => reads(a, 0) && reads(b, 1),
        ExprKind::Call(Function::Maximum | Function::Minimum, args) => {
            matches!(args.as_slice(), [a, b] if reads(a, 0) && reads(b, 1))
        }
        _ => false,
    }
}

/// Functions whose value at a negated number is negated.
const ODD: &[Function] = &[
    Function::Erf,
    Function::Sin,
    Function::Tan,
    Function::Asin,
    Function::Atan,
    Function::Sinh,
    Function::Tanh,
    Function::Asinh,
    Function::Atanh,
];

/// True if the operator of a negated operand is the negated operator: such a function of its one operand.
pub fn odd(c: &Callable) -> bool {
    c.inputs.len() == 1
        && meaning(c).is_some_and(|e| match &e.kind {
            ExprKind::Call(f, args) => {
                ODD.contains(f) && matches!(args.as_slice(), [a] if reads(a, 0))
            }
            _ => false,
        })
}

/// True if a larger operand never makes a smaller result, and no number becomes NaN, for all numbers and infinities: an
/// operator of one operand, by the functions that its meaning is made of.
pub fn increasing(c: &Callable) -> bool {
    let one = c.inputs.len() == 1 && c.attrs.is_empty();
    one && meaning(c).is_some_and(|e| trend(e) == Some(Trend::Up))
}

/// True if the operator is a sum of multiples of its operands.
pub fn linear(c: &Callable) -> bool {
    meaning(c).is_some_and(|e| degree(e) == Some(1)) && c.attrs.is_empty()
}

/// True if the result is zero, of either sign, where all operands are.
pub fn keeps_zero(c: &Callable) -> bool {
    meaning(c).is_some_and(is_zero) && c.attrs.is_empty()
}

/// The value of the one equation of an `op`.
pub fn only_meaning(c: &Callable) -> Option<&Expr> {
    let CallKind::Op(meanings) = &c.kind else { return None };
    match meanings.as_slice() {
        [m] => Some(&m.value),
        _ => None,
    }
}

/// The same of a pointwise `op`.
fn meaning(c: &Callable) -> Option<&Expr> {
    only_meaning(c).filter(|_| c.class == OpClass::Pointwise)
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
const RISING: &[Function] = &[
    Function::Exp,
    Function::Erf,
    Function::Tanh,
    Function::Sinh,
    Function::Asinh,
    Function::Atan,
    Function::Floor,
    Function::Ceil,
    Function::Round,
    Function::Sign,
];

/// How a value follows the element that it is computed from; `None` where that is not known.
fn trend(e: &Expr) -> Option<Trend> {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Float(_) => Some(Trend::Flat),
        ExprKind::Read(Read { otherwise: None, .. }) => Some(Trend::Up),
        ExprKind::Unary(UnaryOp::Neg, a) => trend(a).map(Trend::turned),
        ExprKind::Call(f, args) => match (f, args.as_slice()) {
            (f, [a]) if RISING.contains(f) => trend(a),
            (Function::Maximum | Function::Minimum, [a, b]) => both(trend(a)?, trend(b)?),
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
    let floor = |e: &Expr| matches!(&e.kind, ExprKind::Call(Function::Exp, _));
    match &e.kind {
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            number(a).is_some_and(|k| k > 0.0) && floor(b)
                || number(b).is_some_and(|k| k > 0.0) && floor(a)
        }
        _ => false,
    }
}

/// Functions that are zero at zero, beside those that are odd.
const ZERO_AT_ZERO: &[Function] = &[
    Function::Abs,
    Function::Sqrt,
    Function::Sign,
    Function::Floor,
    Function::Ceil,
    Function::Round,
];

/// True if a value is zero where the elements that it is computed from are.
fn is_zero(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Int(n) => *n == 0,
        ExprKind::Float(x) => *x == 0.0,
        ExprKind::Read(Read { otherwise: None, .. }) => true,
        ExprKind::Unary(UnaryOp::Neg, a) => is_zero(a),
        ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => is_zero(a) && is_zero(b),
        ExprKind::Binary(BinaryOp::Mul, a, b) => {
            let finite = |e: &Expr| is_zero(e) || number(e).is_some_and(f64::is_finite);
            finite(a) && finite(b) && (is_zero(a) || is_zero(b))
        }
        ExprKind::Binary(BinaryOp::Div, a, b) => {
            is_zero(a) && number(b).is_some_and(|k| k != 0.0 && !k.is_nan())
        }
        ExprKind::Call(f, args) => match args.as_slice() {
            [a] => is_zero(a) && (ODD.contains(f) || ZERO_AT_ZERO.contains(f)),
            [a, b] => {
                matches!(f, Function::Maximum | Function::Minimum) && is_zero(a) && is_zero(b)
            }
            _ => false,
        },
        _ => false,
    }
}

/// The degree of a value as a form in its elements: 0 of a number, 1 of a sum of multiples.
fn degree(e: &Expr) -> Option<u8> {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Float(_) => Some(0),
        ExprKind::Read(Read { otherwise: None, .. }) => Some(1),
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
