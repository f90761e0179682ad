//! Solves expressions of extents and attributes: what one name must be, the others as they are, for an expression to
//! have a value.

use crate::law::facts::single_name;
use mlc_dsl::eval::functions::Function;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{BinaryOp, Elem, Expr, ExprKind, UnaryOp};
use mlc_dsl::ir::Attr;

/// The names in `e` of which one value gives `e` the value `v`, with that value. A list keeps what it can of its entries.
pub(crate) fn solutions(e: &Expr, v: &Attr, env: &Env) -> Vec<(String, Attr)> {
    let mut out = Vec::new();
    solve(e, v, env, &mut out);
    out
}

/// The entries of a list that is known.
fn list(e: &Expr, env: &Env) -> Option<Vec<i64>> {
    eval(e, env).ok()?.as_i64s()
}

fn solve(e: &Expr, v: &Attr, env: &Env, out: &mut Vec<(String, Attr)>) {
    if let Some(n) = single_name(e) {
        let every = |old: Vec<i64>| v.as_i64().map(|v| Attr::ints(vec![v; old.len()]));
        out.push((n.to_string(), list(e, env).and_then(every).unwrap_or_else(|| v.clone())));
        return;
    }
    match &e.kind {
        ExprKind::Entry(n, at) => {
            let whole = Expr { kind: ExprKind::Name(n.clone()), span: e.span };
            entry(&whole, at, v, env, out);
        }
        ExprKind::Unary(UnaryOp::Neg, a) => {
            out_of(a, map(v, |v| v.checked_neg()), env, out);
        }
        ExprKind::Binary(op, a, b) => {
            out_of(a, eval(b, env).ok().and_then(|b| zip(v, &b, |v, b| left(*op, v, b))), env, out);
            out_of(
                b,
                eval(a, env).ok().and_then(|a| zip(v, &a, |v, a| right(*op, v, a))),
                env,
                out,
            );
        }
        ExprKind::List(items) => entries(items, v, env, out),
        ExprKind::Call(f, args) => call(*f, args, v, env, out),
        _ => {}
    }
}

/// Goes on with a part of an expression, if it is known what that must be.
fn out_of(e: &Expr, v: Option<Attr>, env: &Env, out: &mut Vec<(String, Attr)>) {
    if let Some(v) = v {
        solve(e, &v, env, out);
    }
}

fn call(f: Function, args: &[Expr], v: &Attr, env: &Env, out: &mut Vec<(String, Attr)>) {
    match (f, args) {
        (Function::Product, [a]) => {
            let (Some(old), Some(v)) = (list(a, env), v.as_i64()) else { return };
            factored(&old, v).into_iter().for_each(|new| solve(a, &Attr::ints(new), env, out));
        }
        (Function::Total, [a]) => {
            let (Some(old), Some(v)) = (list(a, env), v.as_i64()) else { return };
            let missing = old.iter().try_fold(v, |rest, old| rest.checked_sub(*old));
            for i in 0..old.len() {
                let mut new = old.clone();
                let Some(changed) = missing.and_then(|missing| new[i].checked_add(missing)) else {
                    continue;
                };
                new[i] = changed;
                solve(a, &Attr::ints(new), env, out);
            }
        }
        (Function::Length | Function::Rank, [a]) => {
            let length = v.as_i64().and_then(|v| usize::try_from(v).ok()).filter(|v| *v <= 8);
            let (Some(mut new), Some(length)) = (list(a, env), length) else { return };
            new.resize(length, new.last().copied().unwrap_or(1));
            solve(a, &Attr::ints(new), env, out);
        }
        (Function::Drop, [a, at]) => {
            let (Some(old), Some(at), Some(v)) = (list(a, env), list(at, env), v.as_i64s()) else {
                return;
            };
            let mut kept = v.into_iter();
            let mut new = Vec::new();
            for (i, old) in old.iter().enumerate() {
                let own = if at.contains(&(i as i64)) { Some(*old) } else { kept.next() };
                new.extend(own);
            }
            new.extend(kept);
            solve(a, &Attr::ints(new), env, out);
        }
        (Function::Pick | Function::Permute, [a, at]) => {
            let (Some(mut new), Some(at), Some(v)) = (list(a, env), list(at, env), v.as_i64s())
            else {
                return;
            };
            if at.len() != v.len() {
                return;
            }
            for (at, v) in at.into_iter().zip(v) {
                let Some(slot) = usize::try_from(at).ok().and_then(|at| new.get_mut(at)) else {
                    return;
                };
                *slot = v;
            }
            solve(a, &Attr::ints(new), env, out);
        }
        (Function::Entry, [a, at]) => entry(a, at, v, env, out),
        (Function::Reverse, [a]) => {
            out_of(a, v.as_i64s().map(|v| Attr::ints(v.into_iter().rev())), env, out);
        }
        (Function::Maximum | Function::Minimum, [a, b]) => {
            solve(a, v, env, out);
            solve(b, v, env, out);
        }
        (Function::CeilDiv, [a, b]) => {
            let whole = eval(b, env).ok().and_then(|b| zip(v, &b, |v, b| v.checked_mul(b)));
            out_of(a, whole, env, out);
        }
        _ => {}
    }
}

/// One entry of a list.
fn entry(whole: &Expr, at: &Expr, v: &Attr, env: &Env, out: &mut Vec<(String, Attr)>) {
    let at = eval(at, env).ok().and_then(|at| usize::try_from(at.as_i64()?).ok());
    if let (Some(mut new), Some(at), Some(v)) = (list(whole, env), at, v.as_i64())
        && let Some(slot) = new.get_mut(at)
    {
        *slot = v;
        solve(whole, &Attr::ints(new), env, out);
    }
}

/// The quotient, if it is a whole number.
fn exact(a: i64, b: i64) -> Option<i64> {
    a.checked_div(b).filter(|q| q.checked_mul(b) == Some(a))
}

/// Each part of a list on its own; what is spliced in takes the entries that the others leave.
fn entries(items: &[Elem], v: &Attr, env: &Env, out: &mut Vec<(String, Attr)>) {
    let Some(v) = v.as_i64s() else { return };
    let spliced = items.iter().filter(|i| matches!(i, Elem::Splice(_))).count();
    let single = items.len() - spliced;
    if spliced > 1 || v.len() < single || (spliced == 0 && v.len() != single) {
        return;
    }
    let mut at = 0;
    for item in items {
        match item {
            Elem::One(e) => {
                solve(e, &Attr::int(v[at]), env, out);
                at += 1;
            }
            Elem::Splice(e) => {
                let end = at + v.len() - single;
                solve(e, &Attr::ints(v[at..end].to_vec()), env, out);
                at = end;
            }
        }
    }
}

/// Lists of that product: with one entry changed, or with the factors that the entries already have.
fn factored(old: &[i64], product: i64) -> Vec<Vec<i64>> {
    let mut out = Vec::new();
    for i in 0..old.len() {
        let others = old.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, v)| *v);
        let others = others.fold(1i64, i64::saturating_mul);
        if let Some(own) = exact(product, others) {
            let mut new = old.to_vec();
            new[i] = own;
            out.push(new);
        }
    }
    if out.is_empty() && product > 0 {
        let mut rest = product;
        let mut new: Vec<i64> = Vec::with_capacity(old.len().max(1));
        for v in old {
            let factor = common_divisor(*v, rest);
            new.push(factor);
            rest /= factor;
        }
        match new.last_mut() {
            Some(last) => *last *= rest,
            None => new.push(rest),
        }
        out.push(new);
    }
    out
}

/// The greatest common divisor with a positive number; at least 1.
pub(crate) fn common_divisor(a: i64, b: i64) -> i64 {
    let (mut x, mut y) = (a.unsigned_abs(), b.unsigned_abs());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    i64::try_from(x.max(1)).unwrap_or(1)
}

fn map(v: &Attr, f: impl Fn(i64) -> Option<i64>) -> Option<Attr> {
    match v.as_i64() {
        Some(v) => f(v).map(Attr::int),
        None => Some(Attr::ints(v.as_i64s()?.into_iter().map(f).collect::<Option<Vec<_>>>()?)),
    }
}

/// Entry by entry; one number stands for every entry.
fn zip(a: &Attr, b: &Attr, f: impl Fn(i64, i64) -> Option<i64>) -> Option<Attr> {
    match (a.as_i64(), b.as_i64()) {
        (_, Some(b)) => map(a, |a| f(a, b)),
        (Some(a), None) => map(b, |b| f(a, b)),
        (None, None) => {
            let (a, b) = (a.as_i64s()?, b.as_i64s()?);
            let each = a.iter().zip(&b).map(|(a, b)| f(*a, *b)).collect::<Option<Vec<_>>>()?;
            (a.len() == b.len()).then(|| Attr::ints(each))
        }
    }
}

/// `a` of `a op b == v`, among integers.
fn left(op: BinaryOp, v: i64, b: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => v.checked_sub(b),
        BinaryOp::Sub => v.checked_add(b),
        BinaryOp::Mul => exact(v, b),
        BinaryOp::Div if b != 0 => v.checked_mul(b),
        _ => None,
    }
}

/// `b` of `a op b == v`, among integers.
fn right(op: BinaryOp, v: i64, a: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => v.checked_sub(a),
        BinaryOp::Sub => a.checked_sub(v),
        BinaryOp::Mul => exact(v, a),
        BinaryOp::Div => a.checked_div(v).filter(|b| *b != 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is proposed where `s` is `[2, 3]`, `f` is `[0]` and the axis `n` is 4.
    fn proposed(e: &str, v: Attr) -> Vec<String> {
        let text = format!("def t(x: F[n], s: ints, f: ints) -> F[n]\n  = x\n  if all({e} == 0)\n");
        let (library, diags) = mlc_dsl::check::library(&[("t.rules", &*text)]);
        let found = library.calls.iter().find_map(|c| c.conditions.first()).cloned();
        let condition = found.unwrap_or_else(|| panic!("{diags:?}"));
        let ExprKind::Call(Function::All, args) = &condition.kind else { panic!("no `all`") };
        let ExprKind::Binary(BinaryOp::Eq, e, _) = &args[0].kind else { panic!("no equation") };
        let mut env = Env::default();
        env.bind_attr(&"s".into(), Attr::ints([2, 3]));
        env.bind_attr(&"f".into(), Attr::ints([0]));
        env.bind_axis(&"n".into(), 4.into());
        solutions(e, &v, &env).into_iter().map(|(n, v)| format!("{n} = {v}")).collect()
    }

    #[test]
    fn names_in_equations_are_worked_out() {
        for (e, v, expected) in [
            ("product(s)", Attr::int(12), &["s = [4, 3]", "s = [2, 6]"][..]),
            ("product(s)", Attr::int(10), &["s = [2, 5]"]),
            ("product(s)", Attr::int(7), &["s = [1, 7]"]),
            ("product(drop(s, [0]))", Attr::int(4), &["s = [2, 4]"]),
            ("total(s)", Attr::int(9), &["s = [6, 3]", "s = [2, 7]"]),
            ("length(s)", Attr::int(3), &["s = [2, 3, 3]"]),
            ("s[1]", Attr::int(9), &["s = [2, 9]"]),
            ("-1 * |n|", Attr::int(i64::MIN), &[]),
            (
                "total(s)",
                Attr::int(i64::MAX),
                &["s = [9223372036854775804, 3]", "s = [2, 9223372036854775805]"],
            ),
            ("drop(s, [0])", Attr::ints([7, 8]), &["s = [2, 7, 8]"]),
            ("pick(s, f)", Attr::ints([9]), &["s = [9, 3]"]),
            ("[|n|, ..s]", Attr::ints([6, 5, 1]), &["n = 6", "s = [5, 1]"]),
            ("|n| * product(s)", Attr::int(48), &["n = 8", "s = [4, 3]", "s = [2, 6]"]),
            ("|n| + 3", Attr::int(9), &["n = 6"]),
            ("5 - |n|", Attr::int(2), &["n = 3"]),
            ("|n| / 2", Attr::int(3), &["n = 6"]),
        ] {
            assert_eq!(proposed(e, v), expected, "{e}");
        }
    }
}
