//! Functions on lists of indices in meanings.

use super::super::scalar::{Cmp, IntOp};
use super::typed::{Comp, List, NumberKind, int, truth};
use super::{Int, Truth};
use mlc_dsl::eval::functions::Function;

/// The expression as a list.
pub(crate) fn list(c: Comp) -> Result<List, String> {
    match c {
        Comp::List(l) => Ok(l),
        _ => Err("expected a list, found a single value".into()),
    }
}

/// Two lists of equal length, or a list and a number for every entry.
fn pairs(a: Comp, b: Comp) -> Result<Vec<(Int, Int)>, String> {
    match (a, b) {
        (Comp::List(a), Comp::List(b)) => {
            if a.items.len() != b.items.len() {
                let (a, b) = (a.items.len(), b.items.len());
                return Err(format!("lists of {a} and {b} entries cannot be combined"));
            }
            Ok(a.items.into_iter().zip(b.items).collect())
        }
        (Comp::List(a), b) => {
            let b = int(b, None)?;
            Ok(a.items.into_iter().map(|a| (a, b.clone())).collect())
        }
        (a, b) => {
            let a = int(a, None)?;
            Ok(list(b)?.items.into_iter().map(|b| (a.clone(), b)).collect())
        }
    }
}

/// `f` of the entries.
pub(crate) fn elementwise(
    a: Comp,
    b: Comp,
    mut f: impl FnMut(Int, Int) -> Int,
) -> Result<Comp, String> {
    let items: Vec<Int> = pairs(a, b)?.into_iter().map(|(a, b)| f(a, b)).collect();
    Ok(Comp::List(items.into()))
}

/// Comparison of the entries; equality of two lists is one truth value.
pub(crate) fn compare(cmp: Cmp, a: Comp, b: Comp) -> Result<Comp, String> {
    let whole = matches!((&a, &b), (Comp::List(_), Comp::List(_)));
    let entry = |(a, b)| {
        let sign = super::Sign::Signed;
        Truth::Int(cmp, sign, Box::new(a), Box::new(b))
    };
    let truths: Vec<Truth> = pairs(a, b)?.into_iter().map(entry).collect();
    Ok(match cmp {
        Cmp::Eq if whole => Comp::Truth(all(truths)),
        Cmp::Ne if whole => Comp::Truth(any(truths)),
        Cmp::Eq | Cmp::Ne | Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge => Comp::Truths(truths),
    })
}

fn all(truths: Vec<Truth>) -> Truth {
    let both = |a, b| Truth::And(Box::new(a), Box::new(b));
    truths.into_iter().reduce(both).unwrap_or(Truth::Const(true))
}

fn any(truths: Vec<Truth>) -> Truth {
    let one = |a, b| Truth::Or(Box::new(a), Box::new(b));
    truths.into_iter().reduce(one).unwrap_or(Truth::Const(false))
}

fn positions(l: &List) -> Result<Vec<usize>, String> {
    let position = |i: &Int| match i {
        Int::Const(v) => usize::try_from(*v).ok(),
        _ => None,
    };
    let all: Option<Vec<usize>> = l.items.iter().map(position).collect();
    all.ok_or_else(|| "positions are known numbers".into())
}

/// The extents of a list: numbers, or variables that stand for them.
fn extents(l: &List) -> Result<&[Int], String> {
    let are_known = l.items.iter().all(|i| matches!(i, Int::Const(_) | Int::Slot(_)));
    are_known.then_some(&*l.items).ok_or_else(|| "extents are known numbers".into())
}

/// Row-major strides in elements.
fn strides(shape: &[Int]) -> Vec<Int> {
    let mut out = vec![Int::Const(1); shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = match (&out[i], &shape[i]) {
            (Int::Const(a), Int::Const(b)) => Int::Const(a.saturating_mul(*b)),
            (Int::Const(1), n) => n.clone(),
            (a, b) => of(IntOp::Mul, a.clone(), b.clone()),
        };
    }
    out
}

fn pick(l: &List, at: &[usize]) -> Result<Vec<Int>, String> {
    let entry =
        |&i: &usize| l.items.get(i).cloned().ok_or_else(|| format!("position {i} is out of range"));
    at.iter().map(entry).collect()
}

/// The list `r` with `pick(r, at) = inserted` and the other entries from `kept`, in order.
fn weave(kept: &List, inserted: &List, at: &[usize]) -> Result<Vec<Int>, String> {
    let n = kept.items.len() + inserted.items.len();
    let mut out: Vec<Option<Int>> = vec![None; n];
    if inserted.items.len() != at.len() {
        return Err("as many positions as entries to insert".into());
    }
    for (v, &p) in inserted.items.iter().zip(at) {
        *out.get_mut(p).ok_or_else(|| format!("position {p} is out of range"))? = Some(v.clone());
    }
    let mut kept = kept.items.iter().cloned();
    let whole: Option<Vec<Int>> = out.into_iter().map(|v| v.or_else(|| kept.next())).collect();
    whole.ok_or_else(|| "a position is listed twice".into())
}

fn of(op: IntOp, a: Int, b: Int) -> Int {
    Int::Binary(op, Box::new(a), Box::new(b))
}

/// The row-major number of an index.
fn ravel(index: &List, shape: &[Int]) -> Result<Int, String> {
    if index.items.len() != shape.len() {
        return Err("an index has one entry per extent".into());
    }
    let terms = index.items.iter().zip(strides(shape));
    let term = |(i, s): (&Int, Int)| of(IntOp::Mul, i.clone(), s);
    let sum = terms.map(term).reduce(|a, b| of(IntOp::Add, a, b));
    Ok(sum.unwrap_or(Int::Const(0)))
}

/// The index of a row-major number. The first entry is not reduced, so that a number too large is
/// out of range.
fn unravel(number: Int, shape: &[Int]) -> List {
    let digit = |(d, s): (usize, Int)| {
        let quotient = of(IntOp::FloorDiv, number.clone(), s);
        if d == 0 { quotient } else { of(IntOp::FloorMod, quotient, shape[d].clone()) }
    };
    let items = strides(shape).into_iter().enumerate().map(digit).collect();
    List { items, unravelled: Some((number, shape.to_vec())) }
}

/// An entry of a list.
pub(crate) fn at(list: Vec<Int>, position: Int) -> Comp {
    Comp::Int(Int::At(list.into(), Box::new(position)), NumberKind::Index)
}

/// Calls a function; `None` if it is none of lists.
pub(crate) fn call(f: Function, args: &[Comp]) -> Option<Result<Comp, String>> {
    let ints = |v: Result<Vec<Int>, String>| v.map(|v| Comp::List(v.into()));
    let one = |v: Int| Ok(Comp::Int(v, NumberKind::Index));
    Some(match (f, args) {
        (
            Function::Permute | Function::Compose | Function::Pick,
            [Comp::List(l), Comp::List(at)],
        ) => ints(positions(at).and_then(|at| pick(l, &at))),
        (Function::Unpermute, [Comp::List(l), Comp::List(perm)]) => {
            ints(positions(perm).and_then(|perm| {
                let inverse = (0..perm.len()).map(|i| perm.iter().position(|&p| p == i));
                let inverse: Option<Vec<usize>> = inverse.collect();
                pick(l, &inverse.ok_or("the list is not a permutation")?)
            }))
        }
        (Function::Drop, [Comp::List(l), Comp::List(at)]) => ints(positions(at).map(|at| {
            let kept = l.items.iter().enumerate().filter(|(i, _)| !at.contains(i));
            kept.map(|(_, v)| v.clone()).collect()
        })),
        (Function::Weave, [Comp::List(kept), Comp::List(inserted), Comp::List(at)]) => {
            ints(positions(at).and_then(|at| weave(kept, inserted, &at)))
        }
        (Function::Reverse, [Comp::List(l)]) => ints(Ok(l.items.iter().rev().cloned().collect())),
        (Function::Replace, [Comp::List(l), Comp::Int(Int::Const(at), _), Comp::Int(v, _)]) => {
            let mut items = l.items.clone();
            match usize::try_from(*at).ok().and_then(|at| items.get_mut(at)) {
                Some(slot) => {
                    *slot = v.clone();
                    ints(Ok(items))
                }
                None => Err(format!("position {at} is out of range")),
            }
        }
        (Function::Exact, [a @ Comp::List(_), b] | [a, b @ Comp::List(_)]) => {
            elementwise(a.clone(), b.clone(), |a, b| Int::Exact(Box::new(a), Box::new(b)))
        }
        (Function::Exact, [a, b]) => int(a.clone(), None)
            .and_then(|a| one(Int::Exact(Box::new(a), Box::new(int(b.clone(), None)?)))),
        (Function::Maximum, [a @ Comp::List(_), b] | [a, b @ Comp::List(_)]) => {
            elementwise(a.clone(), b.clone(), |a, b| of(IntOp::Max, a, b))
        }
        (Function::Minimum, [a @ Comp::List(_), b] | [a, b @ Comp::List(_)]) => {
            elementwise(a.clone(), b.clone(), |a, b| of(IntOp::Min, a, b))
        }
        (Function::Ravel, [Comp::List(l), Comp::List(shape)]) => {
            extents(shape).and_then(|s| ravel(l, s)).and_then(one)
        }
        (Function::Unravel, [Comp::Int(number, _), Comp::List(shape)]) => {
            extents(shape).map(|s| Comp::List(unravel(number.clone(), s)))
        }
        (Function::Product, [Comp::List(l)]) => {
            let product = l.items.iter().cloned().reduce(|a, b| of(IntOp::Mul, a, b));
            one(product.unwrap_or(Int::Const(1)))
        }
        (Function::Total, [Comp::List(l)]) => {
            let sum = l.items.iter().cloned().reduce(|a, b| of(IntOp::Add, a, b));
            one(sum.unwrap_or(Int::Const(0)))
        }
        (Function::Length | Function::Rank, [Comp::List(l)]) => {
            one(Int::Const(l.items.len() as i64))
        }
        (Function::Entry | Function::At, [Comp::List(l), Comp::Int(i, _)]) => {
            Ok(at(l.items.clone(), i.clone()))
        }
        (Function::All, [Comp::Truths(t)]) => Ok(Comp::Truth(all(t.clone()))),
        (Function::Any, [Comp::Truths(t)]) => Ok(Comp::Truth(any(t.clone()))),
        (Function::All | Function::Any, [t @ Comp::Truth(_)]) => truth(t.clone()).map(Comp::Truth),
        _ => return None,
    })
}
