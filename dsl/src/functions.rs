//! The closed list of functions on attributes: lists, extents, numbers.

use crate::eval::{Env, EvalError, MAX_LIST, Val, binary, value};
use crate::ir::{Attr, Extent};
use crate::spec;
use crate::syntax::ast::{Arg, BinaryOp, ExprKind};

/// Every function with its parameters and one line of what it yields.
pub const FUNCTIONS: &[(&str, &str, &str)] = &[
    ("permute", "list, perm", "entry `i` is `list[perm[i]]`"),
    ("unpermute", "list, perm", "entry `perm[i]` is `list[i]`"),
    ("inverse", "perm", "the permutation that undoes `perm`"),
    ("compose", "p, q", "entry `i` is `p[q[i]]`"),
    ("pick", "list, positions", "the entries at these positions"),
    ("drop", "list, positions", "the entries at all other positions"),
    ("wide", "list", "the positions of all entries but those that are 1"),
    (
        "weave",
        "kept, inserted, positions",
        "the list with `inserted` at `positions`, `kept` elsewhere",
    ),
    (
        "positions_after_drop",
        "positions, dropped",
        "where positions come to lie once others are dropped",
    ),
    ("replace", "list, position, value", "the list with one entry changed"),
    ("entry", "list, position", "one entry"),
    (
        "range",
        "n | from, to",
        "the integers from 0 (or `from`) up to, not including, `n` (or `to`)",
    ),
    ("fill", "n, value", "`n` equal entries"),
    ("reverse", "list", "the entries from last to first"),
    ("length", "list", "number of entries"),
    ("rank", "x", "number of axes of a tensor or a segment"),
    ("shape", "x", "extents of a tensor"),
    ("dtype", "x", "element type of a tensor"),
    ("product", "list", "product of all entries"),
    ("total", "list", "sum of all entries"),
    ("contains", "list, value", "whether an entry equals `value`"),
    ("index_of", "list, value", "position of the first entry equal to `value`"),
    ("increasing", "list", "whether every entry is larger than the one before"),
    ("all", "conditions", "whether every one holds"),
    ("any", "conditions", "whether one holds"),
    ("maximum", "a, b", "the larger, entry by entry"),
    ("minimum", "a, b", "the smaller, entry by entry"),
    ("ceil_div", "a, b", "quotient rounded up, entry by entry"),
    ("normal_axis", "axis, rank", "a negative axis counted from the end"),
    ("normal_axes", "axes, rank", "sorted axes, negative ones counted from the end"),
    (
        "reshape_target",
        "shape, spec, allowzero",
        "ONNX Reshape's target: 0 copies an extent, -1 is the rest",
    ),
    ("broadcast_shapes", "a, b", "NumPy's common shape"),
    ("split_sizes", "n, parts", "ONNX Split's sizes: equal but for the last"),
    ("first_if", "condition, a, b", "`a` if the condition is known to hold, else `b`"),
    ("float", "n", "the integer as a real number"),
    ("int", "x", "the real number cut towards zero"),
    ("abs", "x", "absolute value"),
    ("sqrt", "x", "square root"),
    ("rsqrt", "x", "one over the square root"),
    ("recip", "x", "one over the number"),
    ("exp", "x", "exponential"),
    ("log", "x", "natural logarithm"),
    ("floor", "x", "largest integer not above, as a real number"),
    ("is_float", "dtype", "whether it is a type of real numbers"),
    ("without", "list, value", "the entries that differ from `value`"),
    (
        "replace_all",
        "list, positions, values",
        "the list with the entries at these positions changed",
    ),
    ("normal_list", "axes, rank", "axes in their order, negative ones counted from the end"),
    ("strides", "shape", "how far apart neighbours along each axis lie, in elements"),
    (
        "unit_axes",
        "from, to",
        "where `to` has entries of 1 that `from` lacks; an error if more differs",
    ),
    (
        "reshape_spec",
        "from, to",
        "ONNX Reshape's target with 0 for a copied symbol and -1 for the last one left",
    ),
    ("expand_spec", "from, to", "ONNX Expand's target: 1 where the operand has the extent already"),
    ("slice_start", "shape, start, step", "ONNX Slice's first index of each axis"),
    ("slice_size", "shape, start, end, step", "ONNX Slice's number of elements of each axis"),
    ("slice_end", "start, size, step", "ONNX Slice's `ends` for these first indices and sizes"),
    ("changed_axes", "shape, start, size", "the axes of which a slice takes only a part"),
    (
        "same_pads",
        "size, reach, stride",
        "padding in all that makes the result the size over the stride, rounded up",
    ),
    (
        "ceil_pads",
        "size, low, high, reach, stride",
        "padding behind that lets the last window begin inside",
    ),
    (
        "labels",
        "equation, i, ranks",
        "the labels of operand `i` of an einsum (or of its result) as numbers, `...` as negative ones",
    ),
    ("common", "a, b", "the entries of `a` that `b` has"),
    ("except", "a, b, …", "the entries of `a` that all the others lack"),
    ("places", "list, entries", "where the entries stand in the list"),
    (
        "is_around",
        "whole, start, size, to",
        "whether a reshape to `to` of a slice of a tensor of shape `whole` is a slice of its reshape",
    ),
    ("around_shape", "whole, start, size, to", "the shape of that reshape"),
    ("around_start", "whole, start, size, to", "where that slice begins"),
    (
        "is_spread",
        "from, to, map, shape",
        "whether a broadcast of a reshape is a reshape of a broadcast, block by block of its axes",
    ),
    ("spread_map", "from, to, map, shape", "the places of that broadcast"),
    ("spread_shape", "from, to, map, shape", "its shape"),
    (
        "is_box",
        "from, to, start, size",
        "whether this box of a reshape is a box of the tensor before it",
    ),
    ("box_start", "from, to, start, size", "where that box begins"),
    ("box_size", "from, to, start, size", "the extents of that box"),
    ("exact_quotient", "a, b", "quotients without remainder, entry by entry"),
];

/// True if `name` is one of the functions on attributes.
pub fn is_function(name: &str) -> bool {
    FUNCTIONS.iter().any(|f| f.0 == name)
}

/// Calls a function.
pub(crate) fn call(name: &str, args: &[Arg], env: &Env) -> Result<Val, EvalError> {
    if let ("rank" | "shape" | "dtype", [Arg { value: v, .. }]) = (name, args)
        && let ExprKind::Name(n) = &v.kind
        && let Some(t) = env.tensor(n)
    {
        return Ok(Val::Attr(match name {
            "rank" => Attr::Int(Extent::from(t.rank())),
            "shape" => Attr::Ints(t.shape.clone()),
            _ => Attr::DType(t.dtype),
        }));
    }
    let vals = args.iter().map(|a| value(&a.value, env)).collect::<Result<Vec<_>, _>>()?;
    apply(name, vals)
}

/// Applies a function to values.
pub fn apply(name: &str, mut vals: Vec<Val>) -> Result<Val, EvalError> {
    if let Some(result) = spec::apply(name, &vals) {
        return result;
    }
    let arity = vals.len();
    let wrong = || EvalError::invalid(format!("`{name}` does not take {arity} arguments"));
    // Arguments are taken from the back: the last one first.
    let mut pop = || vals.pop().ok_or_else(wrong);
    let ints = |v: Vec<Extent>| Ok(Val::Attr(Attr::Ints(v)));
    let int = |v: Extent| Ok(Val::Attr(Attr::Int(v)));
    let truth = |t: Option<bool>| Ok(Val::Truth(t));
    match (name, arity) {
        ("permute" | "compose", 2) => {
            let (perm, list) = (positions(pop()?)?, pop()?.ints()?);
            ints(pick(&list, &perm)?)
        }
        ("unpermute", 2) => {
            let (perm, list) = (positions(pop()?)?, pop()?.ints()?);
            ints(pick(&list, &inverse(&perm)?)?)
        }
        ("inverse", 1) => {
            let perm = inverse(&positions(pop()?)?)?;
            ints(perm.into_iter().map(Extent::from).collect())
        }
        ("pick", 2) => {
            let (at, list) = (positions(pop()?)?, pop()?.ints()?);
            ints(pick(&list, &at)?)
        }
        ("drop", 2) => {
            let (at, list) = (positions(pop()?)?, pop()?.ints()?);
            let kept = list.into_iter().enumerate().filter(|(i, _)| !at.contains(i));
            ints(kept.map(|(_, v)| v).collect())
        }
        ("wide", 1) => {
            let list = pop()?.ints()?;
            let at = list.iter().enumerate().filter(|(_, e)| !e.is(1));
            ints(at.map(|(i, _)| Extent::from(i)).collect())
        }
        ("weave", 3) => {
            let (at, inserted, kept) = (positions(pop()?)?, pop()?.ints()?, pop()?.ints()?);
            ints(weave(kept, inserted, &at)?)
        }
        ("positions_after_drop", 2) => {
            let (dropped, at) = (positions(pop()?)?, positions(pop()?)?);
            let after = at.iter().map(|p| p - dropped.iter().filter(|d| *d < p).count());
            ints(after.map(Extent::from).collect())
        }
        ("replace", 3) => {
            let (v, at, mut list) = (pop()?.int()?, position(&pop()?.int()?)?, pop()?.ints()?);
            *list.get_mut(at).ok_or_else(|| out_of_range(at))? = v;
            ints(list)
        }
        ("entry", 2) => {
            let i = pop()?.int()?;
            at(pop()?, &i)
        }
        ("range", 1) => ints((0..count(pop()?)?).map(|i| Extent::from(i as i64)).collect()),
        ("range", 2) => {
            let (to, from) = (pop()?.int()?, pop()?.int()?);
            let (Some(from), Some(to)) = (from.as_const(), to.as_const()) else {
                return Err(EvalError::invalid("`range` needs known bounds"));
            };
            if to.saturating_sub(from) > MAX_LIST as i64 {
                return Err(crate::eval::too_long(to.saturating_sub(from) as usize));
            }
            ints((from..to).map(Extent::from).collect())
        }
        ("fill", 2) => {
            let v = pop()?.int()?;
            ints(vec![v; count(pop()?)?])
        }
        ("reverse", 1) => {
            let mut v = pop()?.ints()?;
            v.reverse();
            ints(v)
        }
        ("length" | "rank", 1) => int(Extent::from(match pop()? {
            Val::Attr(Attr::Floats(v)) => v.len(),
            v => v.ints()?.len(),
        })),
        ("product", 1) => all_of(BinaryOp::Mul, 1, pop()?),
        ("total", 1) => all_of(BinaryOp::Add, 0, pop()?),
        ("contains", 2) => {
            let (v, list) = (pop()?.int()?, pop()?.ints()?);
            truth(Some(list.contains(&v)))
        }
        ("index_of", 2) => {
            let (v, list) = (pop()?.int()?, pop()?.ints()?);
            let i = list.iter().position(|e| *e == v);
            int(Extent::from(i.ok_or_else(|| EvalError::invalid("the list has no such entry"))?))
        }
        ("increasing", 1) => {
            let list = positions(pop()?)?;
            truth(Some(list.windows(2).all(|w| w[0] < w[1])))
        }
        ("all" | "any", 1) => {
            let list = match pop()? {
                Val::Truths(t) => t,
                Val::Truth(t) => vec![t],
                // A comparison of empty lists has no truth values to show its kind.
                Val::Attr(Attr::Ints(v)) if v.is_empty() => vec![],
                _ => return Err(EvalError::invalid(format!("`{name}` takes conditions"))),
            };
            truth(if name == "all" { all(&list) } else { any(&list) })
        }
        ("maximum" | "minimum" | "ceil_div", 2) => {
            let (b, a) = (pop()?, pop()?);
            zip(name, a, b)
        }
        ("normal_axis", 2) => {
            let (rank, axis) = (count(pop()?)?, pop()?.int()?);
            int(Extent::from(normal_axis(&axis, rank)?))
        }
        ("normal_axes", 2) => {
            let (rank, axes) = (count(pop()?)?, pop()?.ints()?);
            let mut axes =
                axes.iter().map(|a| normal_axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
            axes.sort_unstable();
            if axes.windows(2).any(|w| w[0] == w[1]) {
                return Err(EvalError::invalid("an axis is listed twice"));
            }
            ints(axes.into_iter().map(Extent::from).collect())
        }
        ("reshape_target", 3) => {
            let (allowzero, spec, shape) = (pop()?.int()?, pop()?.ints()?, pop()?.ints()?);
            ints(reshape_target(&shape, &spec, allowzero.is(1))?)
        }
        ("broadcast_shapes", 2) => {
            let (b, a) = (pop()?.ints()?, pop()?.ints()?);
            ints(broadcast_shapes(&a, &b)?)
        }
        ("split_sizes", 2) => {
            let (parts, n) = (count(pop()?)?, pop()?.int()?);
            ints(split_sizes(&n, parts)?)
        }
        ("first_if", 3) => {
            let (b, a, c) = (pop()?, pop()?, pop()?);
            Ok(if matches!(c, Val::Truth(Some(true)) | Val::Attr(Attr::Bool(true))) {
                a
            } else {
                b
            })
        }
        ("int", 1) => match pop()? {
            v @ Val::Attr(Attr::Int(_)) => Ok(v),
            v => int(Extent::from(v.number()? as i64)),
        },
        (_, 1) => Ok(Val::Attr(Attr::float(real(name, pop()?.number()?).ok_or_else(wrong)?))),
        _ => Err(wrong()),
    }
}

fn real(name: &str, x: f64) -> Option<f64> {
    Some(match name {
        "float" => x,
        "abs" => x.abs(),
        "sqrt" => x.sqrt(),
        "rsqrt" => 1.0 / x.sqrt(),
        "recip" => 1.0 / x,
        "exp" => x.exp(),
        "log" => x.ln(),
        "floor" => x.floor(),
        _ => return None,
    })
}

fn zip(name: &str, a: Val, b: Val) -> Result<Val, EvalError> {
    let f = |a: &Extent, b: &Extent| match name {
        "maximum" => a.maximum(b),
        "minimum" => a.minimum(b),
        _ => spec::ceil_div(a, b),
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
        (a, b) if name != "ceil_div" => {
            let (a, b) = (a.number()?, b.number()?);
            Attr::float(if name == "maximum" { a.max(b) } else { a.min(b) })
        }
        _ => return Err(EvalError::invalid(format!("`{name}` takes integers"))),
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
                EvalError::invalid(format!("{whole} elements do not divide into rows of {known}"))
            })?
        };
    }
    Ok(out)
}

fn broadcast_shapes(a: &[Extent], b: &[Extent]) -> Result<Vec<Extent>, EvalError> {
    let n = a.len().max(b.len());
    let one = Extent::from(1);
    let entry = |list: &[Extent], i: usize| -> Extent {
        (i + list.len()).checked_sub(n).and_then(|i| list.get(i)).unwrap_or(&one).clone()
    };
    (0..n)
        .map(|i| match (entry(a, i), entry(b, i)) {
            (a, b) if a == b || b.is(1) => Ok(a),
            (a, b) if a.is(1) => Ok(b),
            (a, b) => Err(EvalError::invalid(format!("extents {a} and {b} do not broadcast"))),
        })
        .collect()
}

fn split_sizes(n: &Extent, parts: usize) -> Result<Vec<Extent>, EvalError> {
    let by = Extent::from(parts.max(1));
    if let Some(q) = n.div_exact(&by) {
        return Ok(vec![q; parts]);
    }
    let Some(n) = n.as_const() else {
        return Err(EvalError::invalid(format!("{n} does not divide into {parts} known parts")));
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
