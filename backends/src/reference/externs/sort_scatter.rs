//! Rust references of scatter and top-k.

use super::super::array::{Array, Elements};
use super::super::scalar::{IntOp, RealOp};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, DType, Type};
use std::cmp::Ordering;

/// The rows of `x[n, s]` with those of `u[m, s]` written to the places `i[m]`, in the order of `u`: in their stead, or
/// combined with what is there by `add`, `mul`, `max` or `min`.
pub(crate) fn write_rows(env: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let ([x, i, u], [t]) = (args, types) else {
        return Err("three arguments yield one result".into());
    };
    let (&[n, s], Elements::Int(places)) = (x.shape(), i.elements()) else {
        return Err("the target has two axes, and its places are integers".into());
    };
    let word = match env.attr("reduction") {
        Some(Attr::Str(s)) => s.as_str(),
        _ => "none",
    };
    let unsigned = t.dtype == DType::U64;
    let (real, whole) = match word {
        "none" => (None, IntOp::Add),
        "add" => (Some(RealOp::Add), IntOp::Add),
        "mul" => (Some(RealOp::Mul), IntOp::Mul),
        "max" => (Some(RealOp::Max), if unsigned { IntOp::MaxU } else { IntOp::Max }),
        "min" => (Some(RealOp::Min), if unsigned { IntOp::MinU } else { IntOp::Min }),
        other => return Err(format!("there is no reduction {other:?}")),
    };
    let mut rows = Vec::with_capacity(places.len());
    for &p in places.iter() {
        match usize::try_from(p) {
            Ok(p) if p < n => rows.push(p),
            _ => return Err(format!("the place {p} is not below {n}")),
        }
    }
    let y = match (x.elements(), u.elements()) {
        (Elements::Float(x), Elements::Float(u)) => {
            let y = written(x, u, &rows, s, |a, b| real.map_or(b, |op| op.apply(a, b)));
            Array::from_f64(t.dtype, vec![n, s], y)
        }
        (Elements::Int(x), Elements::Int(u)) => {
            let y = written(x, u, &rows, s, |a, b| real.map_or(b, |_| whole.apply(a, b)));
            Array::from_i64(t.dtype, vec![n, s], y)
        }
        _ => None,
    };
    Ok(vec![y.ok_or("target and updates differ in type")?])
}

fn written<T: Copy>(x: &[T], u: &[T], rows: &[usize], s: usize, f: impl Fn(T, T) -> T) -> Vec<T> {
    let mut y = x.to_vec();
    for (m, &row) in rows.iter().enumerate() {
        for (to, &from) in y[row * s..][..s].iter_mut().zip(&u[m * s..][..s]) {
            *to = f(*to, from);
        }
    }
    y
}

/// The places of the first elements of every row of `x[b, n]` in descending (`largest`) or ascending order; equal elements in
/// the order of their places, NaN as the largest.
pub(crate) fn order_rows(env: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let ([x], [t]) = (args, types) else {
        return Err("one argument yields one result".into());
    };
    let &[b, n] = x.shape() else { return Err("the argument has two axes".into()) };
    let k = t.shape.get(1).and_then(|e| e.as_const()).and_then(|k| usize::try_from(k).ok());
    let k = k.ok_or("the number of elements is known")?;
    let largest = !matches!(env.attr("largest"), Some(Attr::Bool(false)));
    let unsigned = x.dtype() == DType::U64;
    let compare = |i: usize, j: usize| match x.elements() {
        Elements::Float(v) => {
            v[i].partial_cmp(&v[j]).unwrap_or_else(|| v[i].is_nan().cmp(&v[j].is_nan()))
        }
        Elements::Int(v) if unsigned => (v[i] as u64).cmp(&(v[j] as u64)),
        Elements::Int(v) => v[i].cmp(&v[j]),
    };
    let mut places = Vec::with_capacity(b.saturating_mul(k));
    for row in 0..b {
        let mut order: Vec<usize> = (0..n).collect();
        // A stable sort keeps equal elements in their order.
        order.sort_by(|&i, &j| {
            let o: Ordering = compare(row * n + i, row * n + j);
            if largest { o.reverse() } else { o }
        });
        places.extend(order.into_iter().take(k).map(|i| i as i64));
    }
    let y = Array::from_i64(t.dtype, vec![b, k], places);
    Ok(vec![y.ok_or("there are fewer elements than asked for")?])
}
