//! The closed list of functions on attributes: lists, extents, numbers.

pub use crate::eval::function::{FUNCTIONS, Function};
use crate::eval::{EvalError, MAX_LIST, Val, binary};
use crate::expr::BinaryOp;
use crate::ir::{Attr, Common, Extent, common_extent};
use crate::onnx::shapes;
use Function as F;

/// Applies a function to values.
pub fn apply(f: Function, mut vals: Vec<Val>) -> Result<Val, EvalError> {
    if let Some(result) = shapes::apply(f, &vals) {
        return result;
    }
    let arity = vals.len();
    let wrong = || EvalError::invalid(format!("`{f}` does not take {arity} arguments"));
    // Arguments are taken from the back: the last one first.
    let mut pop = || vals.pop().ok_or_else(wrong);
    let ints = |v: Vec<Extent>| Ok(Val::Attr(Attr::Ints(v)));
    let int = |v: Extent| Ok(Val::Attr(Attr::Int(v)));
    let truth = |t: Option<bool>| Ok(Val::Truth(t));
    match (f, arity) {
        (F::Permute | F::Compose, 2) => {
            let (perm, list) = (positions(pop()?)?, pop()?.ints()?);
            ints(pick(&list, &perm)?)
        }
        (F::Unpermute, 2) => {
            let (perm, list) = (positions(pop()?)?, pop()?.ints()?);
            ints(pick(&list, &inverse(&perm)?)?)
        }
        (F::Inverse, 1) => {
            let perm = inverse(&positions(pop()?)?)?;
            ints(perm.into_iter().map(Extent::from).collect())
        }
        (F::Pick, 2) => {
            let (at, list) = (positions(pop()?)?, pop()?.ints()?);
            ints(pick(&list, &at)?)
        }
        (F::Drop, 2) => {
            let (at, list) = (positions(pop()?)?, pop()?.ints()?);
            let kept = list.into_iter().enumerate().filter(|(i, _)| !at.contains(i));
            ints(kept.map(|(_, v)| v).collect())
        }
        (F::Wide, 1) => {
            let list = pop()?.ints()?;
            let at = list.iter().enumerate().filter(|(_, e)| !e.is(1));
            ints(at.map(|(i, _)| Extent::from(i)).collect())
        }
        (F::Weave, 3) => {
            let (at, inserted, kept) = (positions(pop()?)?, pop()?.ints()?, pop()?.ints()?);
            ints(weave(kept, inserted, &at)?)
        }
        (F::PositionsAfterDrop, 2) => {
            let (dropped, at) = (positions(pop()?)?, positions(pop()?)?);
            let after = at.iter().map(|p| p - dropped.iter().filter(|d| *d < p).count());
            ints(after.map(Extent::from).collect())
        }
        (F::Replace, 3) => {
            let (v, at, mut list) = (pop()?.int()?, position(&pop()?.int()?)?, pop()?.ints()?);
            *list.get_mut(at).ok_or_else(|| out_of_range(at))? = v;
            ints(list)
        }
        (F::Entry, 2) => {
            let i = pop()?.int()?;
            at(pop()?, &i)
        }
        (F::Range, 1) => ints((0..count(pop()?)?).map(|i| Extent::from(i as i64)).collect()),
        (F::Range, 2) => {
            let (to, from) = (pop()?.int()?, pop()?.int()?);
            let (Some(from), Some(to)) = (from.as_const(), to.as_const()) else {
                return Err(EvalError::symbolic("a bound of `range`"));
            };
            if to.saturating_sub(from) > MAX_LIST as i64 {
                return Err(crate::eval::too_long(to.saturating_sub(from) as usize));
            }
            ints((from..to).map(Extent::from).collect())
        }
        (F::Fill, 2) => {
            let v = pop()?.int()?;
            ints(vec![v; count(pop()?)?])
        }
        (F::Reverse, 1) => {
            let mut v = pop()?.ints()?;
            v.reverse();
            ints(v)
        }
        (F::Length | F::Rank, 1) => int(Extent::from(match pop()? {
            Val::Attr(Attr::Floats(v)) => v.len(),
            v => v.ints()?.len(),
        })),
        (F::Product, 1) => all_of(BinaryOp::Mul, 1, pop()?),
        (F::Total, 1) => all_of(BinaryOp::Add, 0, pop()?),
        (F::Contains, 2) => {
            let (v, list) = (pop()?.int()?, pop()?.ints()?);
            truth(Some(list.contains(&v)))
        }
        (F::IndexOf, 2) => {
            let (v, list) = (pop()?.int()?, pop()?.ints()?);
            let i = list.iter().position(|e| *e == v);
            int(Extent::from(i.ok_or_else(|| EvalError::invalid("the list has no such entry"))?))
        }
        (F::Increasing, 1) => {
            let list = positions(pop()?)?;
            truth(Some(list.windows(2).all(|w| w[0] < w[1])))
        }
        (F::All | F::Any, 1) => {
            let list = match pop()? {
                Val::Truths(t) => t,
                Val::Truth(t) => vec![t],
                // A comparison of empty lists has no truth values to show its kind.
                Val::Attr(Attr::Ints(v)) if v.is_empty() => vec![],
                _ => return Err(EvalError::invalid(format!("`{f}` takes conditions"))),
            };
            truth(if f == F::All { all(&list) } else { any(&list) })
        }
        (F::Maximum | F::Minimum | F::CeilDiv, 2) => {
            let (b, a) = (pop()?, pop()?);
            zip(f, a, b)
        }
        (F::NormalAxis, 2) => {
            let (rank, axis) = (count(pop()?)?, pop()?.int()?);
            int(Extent::from(normal_axis(&axis, rank)?))
        }
        (F::NormalAxes, 2) => {
            let (rank, axes) = (count(pop()?)?, pop()?.ints()?);
            let mut axes =
                axes.iter().map(|a| normal_axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
            axes.sort_unstable();
            if axes.windows(2).any(|w| w[0] == w[1]) {
                return Err(EvalError::invalid("an axis is listed twice"));
            }
            ints(axes.into_iter().map(Extent::from).collect())
        }
        (F::ReshapeTarget, 3) => {
            let (allowzero, spec, shape) = (pop()?.int()?, pop()?.ints()?, pop()?.ints()?);
            ints(reshape_target(&shape, &spec, allowzero.is(1))?)
        }
        (F::BroadcastShapes, 2) => {
            let (b, a) = (pop()?.ints()?, pop()?.ints()?);
            let shape = common_shape(&a, &b).map_err(|apart| EvalError::Apart(Box::new(apart)));
            ints(shape?)
        }
        (F::SplitSizes, 2) => {
            let (parts, n) = (count(pop()?)?, pop()?.int()?);
            ints(split_sizes(&n, parts)?)
        }
        (F::FirstIf, 3) => {
            let (b, a, c) = (pop()?, pop()?, pop()?);
            Ok(if matches!(c, Val::Truth(Some(true)) | Val::Attr(Attr::Bool(true))) {
                a
            } else {
                b
            })
        }
        (F::Int, 1) => match pop()? {
            v @ Val::Attr(Attr::Int(_)) => Ok(v),
            v => int(Extent::from(v.number()? as i64)),
        },
        (_, 1) => Ok(Val::Attr(Attr::float(real(f, pop()?.number()?).ok_or_else(wrong)?))),
        _ => Err(wrong()),
    }
}

fn real(f: Function, x: f64) -> Option<f64> {
    Some(match f {
        F::Float => x,
        F::Abs => x.abs(),
        F::Sqrt => x.sqrt(),
        F::Rsqrt => 1.0 / x.sqrt(),
        F::Recip => 1.0 / x,
        F::Exp => x.exp(),
        F::Log => x.ln(),
        F::Floor => x.floor(),
        _ => return None,
    })
}

fn zip(function: Function, a: Val, b: Val) -> Result<Val, EvalError> {
    let f = |a: &Extent, b: &Extent| match function {
        F::Maximum => a.maximum(b),
        F::Minimum => a.minimum(b),
        _ => shapes::ceil_div(a, b),
    };
    Ok(Val::Attr(match (a, b) {
        (Val::Attr(Attr::Ints(a)), Val::Attr(Attr::Ints(b))) if a.len() == b.len() => {
            Attr::Ints(a.iter().zip(&b).map(|(a, b)| f(a, b)).collect())
        }
        (Val::Attr(Attr::Ints(a)), Val::Attr(Attr::Int(b))) => {
            Attr::Ints(a.iter().map(|a| f(a, &b)).collect())
        }
        (Val::Attr(Attr::Int(a)), Val::Attr(Attr::Ints(b))) => {
            Attr::Ints(b.iter().map(|b| f(&a, b)).collect())
        }
        (Val::Attr(Attr::Int(a)), Val::Attr(Attr::Int(b))) => Attr::Int(f(&a, &b)),
        (a, b) if function != F::CeilDiv => {
            let (a, b) = (a.number()?, b.number()?);
            // As of elements: NaN if either is.
            let v = if function == F::Maximum { a.max(b) } else { a.min(b) };
            Attr::float(if a.is_nan() || b.is_nan() { f64::NAN } else { v })
        }
        _ => return Err(EvalError::invalid(format!("`{function}` takes integers"))),
    }))
}

/// All entries of a list joined, which fails where 64 bits do not hold the result.
fn all_of(op: BinaryOp, unit: i64, list: Val) -> Result<Val, EvalError> {
    let entry = |e| Val::Attr(Attr::Int(e));
    let join = |sum: Val, e: Extent| binary(op, sum, entry(e));
    list.ints()?.into_iter().try_fold(entry(Extent::from(unit)), join)
}

/// Three-valued conjunction.
pub(crate) fn all(list: &[Option<bool>]) -> Option<bool> {
    if list.contains(&Some(false)) {
        return Some(false);
    }
    list.iter().all(Option::is_some).then_some(true)
}

/// Three-valued disjunction.
pub(crate) fn any(list: &[Option<bool>]) -> Option<bool> {
    if list.contains(&Some(true)) {
        return Some(true);
    }
    list.iter().all(Option::is_some).then_some(false)
}

/// Entry `i` of a list.
pub(crate) fn at(list: Val, i: &Extent) -> Result<Val, EvalError> {
    let place = |len: usize| match i.as_const() {
        Some(i) if i < 0 => position(&Extent::from(i + len as i64)),
        _ => position(i),
    };
    Ok(Val::Attr(match list {
        Val::Attr(Attr::Floats(v)) => {
            let i = place(v.len())?;
            Attr::Float(*v.get(i).ok_or_else(|| out_of_range(i))?)
        }
        list => {
            let list = list.ints()?;
            let i = place(list.len())?;
            Attr::Int(list.get(i).ok_or_else(|| out_of_range(i))?.clone())
        }
    }))
}

fn out_of_range(i: usize) -> EvalError {
    EvalError::invalid(format!("position {i} is out of range"))
}

fn position(e: &Extent) -> Result<usize, EvalError> {
    e.as_const()
        .and_then(|v| usize::try_from(v).ok())
        .ok_or_else(|| EvalError::invalid(format!("`{e}` is not a position")))
}

fn positions(v: Val) -> Result<Vec<usize>, EvalError> {
    v.ints()?.iter().map(position).collect()
}

fn count(v: Val) -> Result<usize, EvalError> {
    let n = v.int()?;
    match n.as_const() {
        Some(n) if (0..=MAX_LIST as i64).contains(&n) => Ok(n as usize),
        Some(n) if n > 0 => Err(crate::eval::too_long(n as usize)),
        Some(n) => Err(EvalError::invalid(format!("a length cannot be {n}"))),
        None => Err(EvalError::invalid(format!("the length `{n}` depends on symbols"))),
    }
}

fn pick(list: &[Extent], at: &[usize]) -> Result<Vec<Extent>, EvalError> {
    at.iter().map(|&i| list.get(i).cloned().ok_or_else(|| out_of_range(i))).collect()
}

/// The inverse of a permutation; an error if it is none.
pub(crate) fn inverse(perm: &[usize]) -> Result<Vec<usize>, EvalError> {
    let mut out = vec![usize::MAX; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        match out.get_mut(p) {
            Some(slot) if *slot == usize::MAX => *slot = i,
            _ => return Err(EvalError::invalid("the list is not a permutation")),
        }
    }
    Ok(out)
}

fn weave(kept: Vec<Extent>, inserted: Vec<Extent>, at: &[usize]) -> Result<Vec<Extent>, EvalError> {
    let n = kept.len() + inserted.len();
    if inserted.len() != at.len() || at.iter().any(|&p| p >= n) {
        return Err(EvalError::invalid(format!(
            "`weave` of {} kept and {} inserted entries cannot put the latter at the positions {at:?}: \
             there is one position below {n} for each of them",
            kept.len(),
            inserted.len()
        )));
    }
    let mut out: Vec<Option<Extent>> = vec![None; n];
    for (v, &p) in inserted.into_iter().zip(at) {
        out[p] = Some(v);
    }
    let mut kept = kept.into_iter();
    out.into_iter()
        .map(|v| v.or_else(|| kept.next()))
        .collect::<Option<_>>()
        .ok_or_else(|| EvalError::invalid("a position is listed twice"))
}

fn normal_axis(axis: &Extent, rank: usize) -> Result<usize, EvalError> {
    let bad = || EvalError::invalid(format!("axis {axis} is outside a tensor of {rank} axes"));
    let a = axis.as_const().ok_or_else(bad)?;
    let a = if a < 0 { a.checked_add(rank as i64).ok_or_else(bad)? } else { a };
    usize::try_from(a).ok().filter(|&a| a < rank).ok_or_else(bad)
}

fn reshape_target(
    shape: &[Extent],
    spec: &[Extent],
    allowzero: bool,
) -> Result<Vec<Extent>, EvalError> {
    let mut out = Vec::with_capacity(spec.len());
    let mut rest = None;
    for (i, d) in spec.iter().enumerate() {
        if d.is(-1) {
            if rest.replace(i).is_some() {
                return Err(EvalError::invalid("a shape has more than one -1"));
            }
            out.push(Extent::from(1));
        } else if d.is(0) && !allowzero {
            let copied = shape.get(i);
            out.push(copied.ok_or_else(|| EvalError::invalid("0 copies no extent here"))?.clone());
        } else {
            out.push(d.clone());
        }
    }
    if let Some(i) = rest {
        let whole = shape.iter().fold(Extent::from(1), |a, b| &a * b);
        let known = out.iter().fold(Extent::from(1), |a, b| &a * b);
        out[i] = if known.is(0) {
            Extent::from(0)
        } else {
            whole.div_exact(&known).ok_or_else(|| {
                let reason = format!("{whole} elements do not divide into rows of {known}");
                let is_known = whole.as_const().and(known.as_const()).is_some();
                if is_known { EvalError::Invalid(reason) } else { EvalError::Symbolic(reason) }
            })?
        };
    }
    Ok(out)
}

/// The open extents of a tensor's other shape that are none of its own in their place. None are where only axes of one element come or go.
pub fn moved_extents<'t>(from: &[Extent], to: &'t [Extent]) -> Vec<&'t Extent> {
    let adds = |short: &[Extent], long: &[Extent]| {
        let mut rest = short.iter().peekable();
        long.iter().all(|e| rest.next_if_eq(&e).is_some() || e.is(1)) && rest.next().is_none()
    };
    if adds(from, to) || adds(to, from) {
        return vec![];
    }
    let is_moved = |(i, e): &(usize, &Extent)| e.as_const().is_none() && from.get(*i) != Some(*e);
    to.iter().enumerate().filter(is_moved).map(|(_, e)| e).collect()
}

/// NumPy's common shape; the extents that cannot be aligned where there is none. Of two open extents either may be one.
pub fn common_shape(a: &[Extent], b: &[Extent]) -> Result<Vec<Extent>, (Extent, Extent)> {
    let n = a.len().max(b.len());
    let one = Extent::from(1);
    let entry = |list: &[Extent], i: usize| -> Extent {
        (i + list.len()).checked_sub(n).and_then(|i| list.get(i)).unwrap_or(&one).clone()
    };
    let common = |(a, b): (Extent, Extent)| match common_extent(&a, &b) {
        Common::Is(e) => Ok(e),
        Common::IfEqual | Common::Apart => Err((a, b)),
    };
    (0..n).map(|i| common((entry(a, i), entry(b, i)))).collect()
}

fn split_sizes(n: &Extent, parts: usize) -> Result<Vec<Extent>, EvalError> {
    let by = Extent::from(parts.max(1));
    if let Some(q) = n.div_exact(&by) {
        return Ok(vec![q; parts]);
    }
    let Some(n) = n.as_const() else {
        // The last part has what is left.
        let size = crate::onnx::shapes::ceil_div(n, &by);
        let others = &size * &Extent::from(parts.saturating_sub(1));
        let mut out = vec![size; parts];
        if let Some(last) = out.last_mut() {
            *last = n - &others;
        }
        return Ok(out);
    };
    let size = (n + parts as i64 - 1) / parts.max(1) as i64;
    let last = n - size * (parts as i64 - 1);
    if last < 0 {
        return Err(EvalError::invalid(format!("{n} does not divide into {parts} parts")));
    }
    let mut out = vec![Extent::from(size); parts];
    if let Some(e) = out.last_mut() {
        *e = Extent::from(last);
    }
    Ok(out)
}
