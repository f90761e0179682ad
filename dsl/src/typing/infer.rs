//! Type inference: the result types of an operator for given argument types.

use crate::eval::{Env, EvalError, eval, truth};
use crate::expr::{AttrKind, Expr};
use crate::ir::{Attr, DType, Extent, Type};
use crate::library::{AttrParam, Callable, DTypePattern, Dim, Name, TypePattern};
use crate::typing::mismatch::Mismatch;
use thiserror::Error;

/// Why an application is ill-typed.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TypeError {
    /// Wrong number of arguments.
    #[error("`{op}` takes {expected} tensors, {found} given")]
    Arity {
        /// Name of the operator that is applied.
        op: Name,
        /// Tensors it takes.
        expected: usize,
        /// Tensors given.
        found: usize,
    },
    /// An argument's type does not fit.
    #[error("`{op}`, argument `{input}`: {reason}")]
    Input {
        /// Name of the operator that is applied.
        op: Name,
        /// Name of the parameter, as declared.
        input: Name,
        /// What does not fit.
        reason: Box<Mismatch>,
    },
    /// An attribute does not fit.
    #[error("`{op}`, attribute `{attr}`: {reason}")]
    Attr {
        /// Name of the operator that is applied.
        op: Name,
        /// Name of the attribute, as declared.
        attr: Name,
        /// What does not fit.
        reason: String,
    },
    /// A declared condition does not hold.
    #[error("`{op}` needs `{condition}`, which does not hold here")]
    Condition {
        /// Name of the operator that declares it.
        op: Name,
        /// The condition; it is put in words only where somebody reads them.
        condition: Box<Expr>,
    },
    /// An extent of the result has no value or is negative.
    #[error("`{op}`: {reason}")]
    Result {
        /// Name of the operator that is applied.
        op: Name,
        /// What is wrong.
        reason: String,
    },
}

impl TypeError {
    /// The two extents that would have to be equal.
    pub fn unequal(&self) -> Option<(&Extent, &Extent)> {
        match self {
            TypeError::Input { reason, .. } => reason.unequal(),
            _ => None,
        }
    }

    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            TypeError::Arity { op, expected, .. } => format!("give `{op}` {expected} tensors"),
            TypeError::Input { op, input, .. } => {
                format!(
                    "compare the argument with the declaration of `{input}`; `explain {op}` shows it"
                )
            }
            TypeError::Attr { op, attr, .. } => {
                format!(
                    "write `{op}(…, {attr}=…)` with a value of the kind that `explain {op}` shows"
                )
            }
            TypeError::Condition { op, .. } => {
                format!(
                    "`{op}` is declared with this condition; change the arguments so that it holds"
                )
            }
            TypeError::Result { op, .. } => {
                format!("compare the extents of the arguments with the declaration of `{op}`")
            }
        }
    }
}

/// A well-typed application.
#[derive(Clone, Debug)]
pub struct Application {
    /// One type per output.
    pub types: Vec<Type>,
    /// All attributes in declared order, axes counted from the front.
    pub attrs: Vec<Attr>,
    /// What the declaration's names stand for.
    pub env: Env,
}

/// Types an application of `call`. Attributes that are `None` take their defaults.
pub fn infer(
    call: &Callable,
    args: &[&Type],
    attrs: &[Option<Attr>],
) -> Result<Application, TypeError> {
    let op = &call.name;
    if args.len() != call.inputs.len() {
        let (expected, found) = (call.inputs.len(), args.len());
        return Err(TypeError::Arity { op: op.clone(), expected, found });
    }
    let mut env = Env::default();
    let mut given: Vec<Option<Attr>> = attrs.to_vec();
    given.resize(call.attrs.len(), None);
    let mut hints = Vec::new();
    for (param, v) in call.attrs.iter().zip(&mut given) {
        if let Some(a) = v.take() {
            let mut a = param.ty.kind.taken(a);
            normalise_axis(call, args, param, &mut a, &mut hints)?;
            env.bind_attr(&param.name, a.clone());
            *v = Some(a);
        }
    }
    for (input, ty) in call.inputs.iter().zip(args) {
        unify(&input.ty, ty, &mut env, &hints).map_err(|reason| TypeError::Input {
            op: op.clone(),
            input: input.name.clone(),
            reason: Box::new(reason),
        })?;
        env.bind_tensor(&input.name, (*ty).clone());
    }
    for (param, v) in call.attrs.iter().zip(&mut given) {
        if v.is_some() {
            continue;
        }
        let bad =
            |reason: String| TypeError::Attr { op: op.clone(), attr: param.name.clone(), reason };
        let default = param.default.as_ref().ok_or_else(|| bad("is missing".into()))?;
        let mut a = param.ty.kind.taken(eval(default, &env).map_err(|e| bad(e.to_string()))?);
        let mut hints = Vec::new();
        normalise_axis(call, args, param, &mut a, &mut hints)?;
        env.bind_attr(&param.name, a.clone());
        *v = Some(a);
    }
    let attrs: Vec<Attr> = given.into_iter().flatten().collect();
    for (param, a) in call.attrs.iter().zip(&attrs) {
        check_attr(param, a, &env).map_err(|reason| TypeError::Attr {
            op: op.clone(),
            attr: param.name.clone(),
            reason,
        })?;
    }
    bind_wheres(&call.wheres, &mut env)
        .map_err(|e| TypeError::Result { op: op.clone(), reason: e.to_string() })?;
    for c in &call.conditions {
        let holds = truth(c, &env)
            .map_err(|e| TypeError::Result { op: op.clone(), reason: e.to_string() })?;
        if holds == Some(false) {
            return Err(TypeError::Condition { op: op.clone(), condition: Box::new(c.clone()) });
        }
    }
    let types = call
        .outputs
        .iter()
        .map(|(_, ty)| resolve(ty, &env))
        .collect::<Result<_, _>>()
        .map_err(|reason| TypeError::Result { op: op.clone(), reason })?;
    Ok(Application { types, attrs, env })
}

/// Why a value of type `found` cannot be one that is declared `declared`, if it cannot for any value of the symbols.
pub fn mismatch(found: &Type, declared: &Type) -> Option<String> {
    let differ = |(a, b): (&Extent, &Extent)| matches!((a - b).sign(), Some(-1 | 1));
    let fits = found.dtype == declared.dtype
        && found.rank() == declared.rank()
        && !found.shape.iter().zip(&declared.shape).any(differ);
    (!fits).then(|| format!("its body yields {found}, but {declared} is declared"))
}

/// Evaluates `where` clauses in order: an integer is an axis, a list a segment.
pub fn bind_wheres(wheres: &[(Name, Expr)], env: &mut Env) -> Result<(), EvalError> {
    for (name, e) in wheres {
        match eval(e, env)? {
            Attr::Int(v) => env.bind_axis(name, v),
            Attr::Ints(v) => env.bind_seg(name, v),
            _ => return Err(EvalError::invalid(format!("`{name}` is not an extent"))),
        };
    }
    Ok(())
}

/// Turns an `axis(n)` attribute to count from the front and notes where `n` lies.
fn normalise_axis(
    call: &Callable,
    args: &[&Type],
    param: &AttrParam,
    a: &mut Attr,
    hints: &mut Vec<(Name, usize)>,
) -> Result<(), TypeError> {
    let Some(of) = param.ty.axis() else { return Ok(()) };
    let bad = |reason: String| TypeError::Attr {
        op: call.name.clone(),
        attr: param.name.clone(),
        reason,
    };
    let has_axis =
        |ty: &TypePattern| ty.dims.iter().flatten().any(|d| matches!(d, Dim::Axis(n) if n == of));
    let arg = call.inputs.iter().position(|i| has_axis(&i.ty));
    let rank = arg.map(|i| args[i].rank()).ok_or_else(|| bad("no input has this axis".into()))?;
    let v = a.as_i64().ok_or_else(|| bad("is not a known integer".into()))?;
    let v = if v < 0 { v.saturating_add(rank as i64) } else { v };
    if v < 0 || v >= rank as i64 {
        return Err(bad(format!("axis {v} is outside a tensor of {rank} axes")));
    }
    *a = Attr::int(v);
    hints.push((of.clone(), v as usize));
    Ok(())
}

fn check_attr(param: &AttrParam, a: &Attr, env: &Env) -> Result<(), String> {
    let kind = param.ty.kind;
    if !kind.admits(a) {
        return Err(format!("expected {kind}, found {a}"));
    }
    if matches!(a, Attr::DType(DType::Str)) {
        return Err("numbers are no texts; an operator of its own writes them".into());
    }
    let rank = param.ty.of.as_ref().and_then(|s| env.seg(s)).map(<[Extent]>::len);
    match (kind, rank, a) {
        (AttrKind::Ints, Some(n), Attr::Ints(v)) if v.len() != n => {
            Err(format!("expected {n} entries, found {}", v.len()))
        }
        (AttrKind::Floats, Some(n), a) if a.as_f64s().is_none_or(|v| v.len() != n) => {
            Err(format!("expected {n} real numbers, found {a}"))
        }
        (AttrKind::Axes, Some(n), Attr::Ints(_)) => match a.as_i64s() {
            Some(v)
                if v.iter().all(|&p| p >= 0 && p < n as i64) && v.is_sorted_by(|a, b| a < b) =>
            {
                Ok(())
            }
            _ => Err(format!("{a} are not increasing axes of a tensor of {n} axes")),
        },
        (AttrKind::Perm, Some(n), Attr::Ints(_)) => {
            let perm: Option<Vec<usize>> =
                a.as_i64s().and_then(|v| v.into_iter().map(|p| usize::try_from(p).ok()).collect());
            match perm {
                Some(p) if p.len() == n && crate::eval::functions::inverse(&p).is_ok() => Ok(()),
                _ => Err(format!("{a} does not permute {n} axes")),
            }
        }
        _ => Ok(()),
    }
}

/// Matches a type against a pattern, binding what is unbound. `hints` tell where an axis lies, which
/// decides between two segments of unknown length.
pub fn unify(
    pattern: &TypePattern,
    ty: &Type,
    env: &mut Env,
    hints: &[(Name, usize)],
) -> Result<(), Mismatch> {
    match &pattern.dtype {
        p @ DTypePattern::Fixed(d) if !p.admits(ty.dtype) => {
            return Err(Mismatch::Fixed { expected: *d, found: ty.dtype });
        }
        DTypePattern::Fixed(_) => {}
        p @ DTypePattern::Var(v) => {
            if !p.admits(ty.dtype) {
                return Err(Mismatch::NotAdmitted { variable: v.clone(), found: ty.dtype });
            }
            if !env.bind_dtype(v, ty.dtype) {
                return Err(Mismatch::OtherType { variable: v.clone(), found: ty.dtype });
            }
        }
    }
    match &pattern.dims {
        Some(dims) => unify_dims(dims, &ty.shape, env, hints),
        None => Ok(()),
    }
}

/// The length of a dimension, if it is known already.
fn dim_len(d: &Dim, env: &Env) -> Option<usize> {
    match d {
        Dim::Axis(_) | Dim::Value(_) => Some(1),
        Dim::Seg(s) => env.seg(s).map(<[Extent]>::len),
        Dim::Splice(e) => match eval(e, env) {
            Ok(Attr::Ints(v)) => Some(v.len()),
            _ => None,
        },
    }
}

/// Matches extents against dimensions.
pub fn unify_dims(
    dims: &[Dim],
    shape: &[Extent],
    env: &mut Env,
    hints: &[(Name, usize)],
) -> Result<(), Mismatch> {
    let unknown = dims.iter().filter(|d| dim_len(d, env).is_none()).count();
    if unknown >= 2 {
        let hinted = dims.iter().enumerate().find_map(|(i, d)| match d {
            Dim::Axis(n) => hints.iter().find(|(h, _)| h == n).map(|(_, at)| (i, *at)),
            _ => None,
        });
        let Some((i, at)) = hinted.filter(|(_, at)| *at < shape.len()) else {
            return Err(Mismatch::TwoSegments);
        };
        unify_dims(&dims[..i], &shape[..at], env, &[])?;
        unify_dims(&dims[i..=i], &shape[at..=at], env, &[])?;
        return unify_dims(&dims[i + 1..], &shape[at + 1..], env, &[]);
    }
    let known: usize = dims.iter().filter_map(|d| dim_len(d, env)).sum();
    let wrong_rank = || Mismatch::Rank(shape.len());
    let free = shape.len().checked_sub(known).ok_or_else(wrong_rank)?;
    if unknown == 0 && free != 0 {
        return Err(wrong_rank());
    }
    let mut at = 0;
    for d in dims {
        let n = dim_len(d, env).unwrap_or(free);
        let part = shape.get(at..at + n).ok_or_else(wrong_rank)?;
        unify_dim(d, part, env)?;
        at += n;
    }
    for (name, position) in hints {
        let here = dims.iter().position(|d| matches!(d, Dim::Axis(n) if n == name));
        if let Some(i) = here {
            let at: usize = dims[..i].iter().filter_map(|d| dim_len(d, env)).sum();
            if at != *position {
                return Err(Mismatch::Place { axis: name.clone(), at, hinted: *position });
            }
        }
    }
    Ok(())
}

fn unify_dim(d: &Dim, part: &[Extent], env: &mut Env) -> Result<(), Mismatch> {
    match d {
        Dim::Axis(n) => {
            if !env.bind_axis(n, part[0].clone()) {
                let bound = env.axis(n).cloned().unwrap_or_else(|| part[0].clone());
                return Err(Mismatch::Axis { axis: n.clone(), bound, found: part[0].clone() });
            }
        }
        Dim::Seg(s) => {
            if !env.bind_seg(s, part.to_vec()) {
                let bound = env.seg(s).filter(|b| b.len() == part.len());
                let mut pairs = bound.unwrap_or_default().iter().zip(part);
                let differing = pairs.find(|(a, b)| a != b).map(|(a, b)| (a.clone(), b.clone()));
                return Err(Mismatch::Segment { segment: s.clone(), differing });
            }
        }
        // What is computed from names that are not bound yet is left open.
        Dim::Value(e) => match eval(e, env) {
            Err(EvalError::Unbound(_)) => {}
            computed => match computed? {
                Attr::Int(computed) if computed == part[0] => {}
                computed => {
                    let computed = if let Attr::Int(n) = computed { Some(n) } else { None };
                    return Err(Mismatch::Extent { computed, found: part[0].clone() });
                }
            },
        },
        Dim::Splice(e) => match eval(e, env) {
            Err(EvalError::Unbound(_)) => {}
            computed => {
                if computed? != Attr::Ints(part.to_vec()) {
                    return Err(Mismatch::Extents);
                }
            }
        },
    }
    Ok(())
}

/// Most elements of a tensor: their bytes are a number of 63 bits, whatever their type.
const MOST_ELEMENTS: i64 = 1 << 59;

/// True if the product of all known extents but zeros can be counted.
pub fn is_countable(shape: &[Extent]) -> bool {
    let known = shape.iter().filter_map(Extent::as_const).filter(|&n| n > 0);
    let count = known.into_iter().try_fold(1i64, i64::checked_mul);
    count.is_some_and(|n| n <= MOST_ELEMENTS)
}

/// What is wrong with extents that are not [countable](is_countable).
pub fn too_many(shape: &[Extent]) -> String {
    let shape: Vec<String> = shape.iter().map(Extent::to_string).collect();
    format!("a tensor of shape [{}] has more elements than 2^59", shape.join(", "))
}

/// The concrete type of a pattern whose names are all bound.
pub fn resolve(ty: &TypePattern, env: &Env) -> Result<Type, String> {
    let dtype = resolve_dtype(&ty.dtype, env)?;
    let dims = ty.dims.as_ref().ok_or("the result's shape is not declared")?;
    Ok(Type { dtype, shape: resolve_dims(dims, env)? })
}

/// The element type of a pattern whose name is bound, be it by an attribute.
pub fn resolve_dtype(pattern: &DTypePattern, env: &Env) -> Result<DType, String> {
    match pattern {
        DTypePattern::Fixed(d) => Ok(*d),
        DTypePattern::Var(n) => match (env.dtype(n), env.attr(n)) {
            (Some(d), _) | (None, Some(&Attr::DType(d))) => Ok(d),
            _ => Err(format!("the element type `{n}` cannot be inferred")),
        },
    }
}

/// The extents of dimensions whose names are all bound.
pub fn resolve_dims(dims: &[Dim], env: &Env) -> Result<Vec<Extent>, String> {
    let mut shape = Vec::with_capacity(dims.len());
    for d in dims {
        match d {
            Dim::Axis(n) => {
                shape.push(
                    env.axis(n)
                        .ok_or_else(|| format!("the extent of axis `{n}` cannot be inferred"))?
                        .clone(),
                );
            }
            Dim::Seg(s) => shape.extend_from_slice(
                env.seg(s)
                    .ok_or_else(|| format!("the extents of segment `..{s}` cannot be inferred"))?,
            ),
            Dim::Value(e) => match eval(e, env).map_err(|e| e.to_string())? {
                Attr::Int(v) => shape.push(v),
                other => return Err(format!("{other} is not an extent")),
            },
            Dim::Splice(e) => match eval(e, env).map_err(|e| e.to_string())? {
                Attr::Ints(v) => shape.extend(v),
                other => return Err(format!("{other} is not a list of extents")),
            },
        }
    }
    if let Some(e) = shape.iter().find(|e| e.sign() == Some(-1) || e.is_too_large()) {
        return Err(format!("an extent of the result is {e}"));
    }
    match is_countable(&shape) {
        true => Ok(shape),
        false => Err(too_many(&shape)),
    }
}
