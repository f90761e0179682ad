//! Evaluates attribute expressions and conditions over symbolic extents.
//!
//! Total: what cannot be computed is an [`EvalError`], a condition that cannot be decided for
//! all values of the symbols is unknown.

pub(crate) mod function;
pub mod functions;
pub mod list_patterns;

use crate::expr::{BinaryOp, Elem, Expr, ExprKind, TypePart, UnaryOp};
use crate::ir::{Attr, DType, Extent, Type};
use crate::library::Name;
use thiserror::Error;

/// Why an expression has no value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EvalError {
    /// A name is not bound.
    #[error("{}", unbound(.0))]
    Unbound(String),
    /// An operation does not apply to its arguments.
    #[error("{0}")]
    Invalid(String),
    /// An extent must be known that is a symbol.
    #[error("{0}")]
    Symbolic(String),
    /// Two extents that would have to broadcast.
    #[error("extents {} and {} do not broadcast", .0.0, .0.1)]
    Apart(Box<(Extent, Extent)>),
    /// The form has no meaning among attributes.
    #[error("this expression is not an attribute")]
    NotAnAttribute,
}

fn unbound(name: &str) -> String {
    match name.split_once('#') {
        None => format!(
            "`{name}` has no value here: no argument and no attribute of that name is given"
        ),
        // Computed axes have generated names: operator, its axis, a mark and a number.
        Some((from, _)) => {
            let operator = from.split('.').next().unwrap_or(from);
            format!(
                "the axes that `{operator}` computes have no name here; \
                 `let r = {operator}(…)` and `r[..a]` give them one"
            )
        }
    }
}

impl EvalError {
    pub(crate) fn invalid(s: impl Into<String>) -> EvalError {
        EvalError::Invalid(s.into())
    }

    pub(crate) fn symbolic(what: &str) -> EvalError {
        EvalError::Symbolic(format!("{what} depends on symbolic extents"))
    }
}

/// What names stand for. Lookups are linear: environments are small.
#[derive(Clone, Debug, Default)]
pub struct Env {
    axes: Vec<(Name, Extent)>,
    segs: Vec<(Name, Vec<Extent>)>,
    attrs: Vec<(Name, Attr)>,
    dtypes: Vec<(Name, DType)>,
    tensors: Vec<(Name, Type)>,
}

fn find<'a, T>(list: &'a [(Name, T)], name: &str) -> Option<&'a T> {
    list.iter().find(|(n, _)| &**n == name).map(|(_, v)| v)
}

fn bind<T: PartialEq>(list: &mut Vec<(Name, T)>, name: &Name, value: T) -> bool {
    match find(list, name) {
        Some(known) => *known == value,
        None => {
            list.push((name.clone(), value));
            true
        }
    }
}

impl Env {
    /// The extent of an axis.
    pub fn axis(&self, name: &str) -> Option<&Extent> {
        find(&self.axes, name)
    }

    /// The extents of a segment.
    pub fn seg(&self, name: &str) -> Option<&[Extent]> {
        find(&self.segs, name).map(Vec::as_slice)
    }

    /// An attribute.
    pub fn attr(&self, name: &str) -> Option<&Attr> {
        find(&self.attrs, name)
    }

    /// A dtype variable.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        find(&self.dtypes, name).copied()
    }

    /// The type of a tensor variable.
    pub fn tensor(&self, name: &str) -> Option<&Type> {
        find(&self.tensors, name)
    }

    /// Binds an axis; false if it is bound to another extent.
    pub fn bind_axis(&mut self, name: &Name, v: Extent) -> bool {
        bind(&mut self.axes, name, v)
    }

    /// Binds a segment; false if it is bound to other extents.
    pub fn bind_seg(&mut self, name: &Name, v: Vec<Extent>) -> bool {
        bind(&mut self.segs, name, v)
    }

    /// Binds an attribute; false if it is bound to another value.
    pub fn bind_attr(&mut self, name: &Name, v: Attr) -> bool {
        bind(&mut self.attrs, name, v)
    }

    /// Binds a dtype variable; false if it is bound to another dtype.
    pub fn bind_dtype(&mut self, name: &Name, v: DType) -> bool {
        bind(&mut self.dtypes, name, v)
    }

    /// Binds a tensor variable's type; false if it is bound to another type.
    pub fn bind_tensor(&mut self, name: &Name, v: Type) -> bool {
        bind(&mut self.tensors, name, v)
    }

    /// How much is bound, to undo later bindings with [`Env::rollback`].
    pub fn mark(&self) -> [usize; 5] {
        [self.axes.len(), self.segs.len(), self.attrs.len(), self.dtypes.len(), self.tensors.len()]
    }

    /// Forgets what was bound after `mark`.
    pub fn rollback(&mut self, mark: [usize; 5]) {
        self.axes.truncate(mark[0]);
        self.segs.truncate(mark[1]);
        self.attrs.truncate(mark[2]);
        self.dtypes.truncate(mark[3]);
        self.tensors.truncate(mark[4]);
    }

    /// All axes and segments, for messages.
    pub fn extents(&self) -> impl Iterator<Item = (&Name, String)> {
        let axes = self.axes.iter().map(|(n, e)| (n, e.to_string()));
        axes.chain(self.segs.iter().map(|(n, e)| (n, Attr::Ints(e.clone()).to_string())))
    }

    /// All attributes, for messages.
    pub fn attrs(&self) -> impl Iterator<Item = (&Name, &Attr)> {
        self.attrs.iter().map(|(n, a)| (n, a))
    }
}

/// A value: an attribute, or truth values that are not decided yet.
#[derive(Clone, Debug, PartialEq)]
pub enum Val {
    /// An attribute.
    Attr(Attr),
    /// A truth value; `None` if it depends on symbols.
    Truth(Option<bool>),
    /// Truth values, entry by entry.
    Truths(Vec<Option<bool>>),
}

impl Val {
    pub(crate) fn int(self) -> Result<Extent, EvalError> {
        match self {
            Val::Attr(Attr::Int(e)) => Ok(e),
            other => Err(EvalError::invalid(format!("expected an integer, found {other:?}"))),
        }
    }

    pub(crate) fn ints(self) -> Result<Vec<Extent>, EvalError> {
        match self {
            Val::Attr(Attr::Ints(v)) => Ok(v),
            other => {
                Err(EvalError::invalid(format!("expected a list of integers, found {other:?}")))
            }
        }
    }

    pub(crate) fn number(&self) -> Result<f64, EvalError> {
        let number = match self {
            Val::Attr(Attr::Int(e)) => return int_as_f64(e),
            Val::Attr(a) => a.as_f64(),
            _ => None,
        };
        number.ok_or_else(|| EvalError::invalid("expected a known number"))
    }

    fn truth(self) -> Result<Option<bool>, EvalError> {
        match self {
            Val::Truth(t) => Ok(t),
            Val::Attr(Attr::Bool(b)) => Ok(Some(b)),
            _ => Err(EvalError::invalid("expected a truth value")),
        }
    }
}

/// The value of an attribute expression.
pub fn eval(e: &Expr, env: &Env) -> Result<Attr, EvalError> {
    match value(e, env)? {
        Val::Attr(a) => Ok(a),
        Val::Truth(Some(b)) => Ok(Attr::Bool(b)),
        Val::Truth(None) | Val::Truths(_) => Err(EvalError::symbolic("the condition")),
    }
}

/// Whether a condition holds; `None` if it depends on symbols.
pub fn truth(e: &Expr, env: &Env) -> Result<Option<bool>, EvalError> {
    value(e, env)?.truth()
}

/// The value of any expression.
pub fn value(e: &Expr, env: &Env) -> Result<Val, EvalError> {
    bounded(any_value(e, env)?)
}

/// Entries of the longest list that is built: lists speak of axes, or of places along one.
pub(crate) const MAX_LIST: usize = 1 << 16;

/// The value, unless a list or a polynomial has outgrown what is worked with.
fn bounded(v: Val) -> Result<Val, EvalError> {
    let large = |e: &Extent| e.is_too_large();
    let long = match &v {
        Val::Attr(Attr::Ints(list)) if list.iter().any(large) => None,
        Val::Attr(Attr::Int(e)) if large(e) => None,
        Val::Attr(Attr::Ints(list)) => Some(list.len()),
        Val::Attr(Attr::Floats(list)) => Some(list.len()),
        _ => Some(0),
    };
    match long {
        None => Err(EvalError::invalid(format!(
            "this extent is a polynomial of more than {} terms and factors",
            crate::ir::WEIGHT
        ))),
        Some(n) if n > MAX_LIST => Err(too_long(n)),
        Some(_) => Ok(v),
    }
}

pub(crate) fn too_long(n: usize) -> EvalError {
    EvalError::invalid(format!("a list of {n} entries; at most {MAX_LIST} are supported"))
}

/// A value of the other sign, zeros too: zero less zero would be the positive one.
pub(crate) fn negated(v: Val) -> Result<Val, EvalError> {
    match v {
        Val::Attr(Attr::Float(bits)) => Ok(Val::Attr(Attr::float(-f64::from_bits(bits)))),
        other => binary(BinaryOp::Sub, Val::Attr(Attr::int(0)), other),
    }
}

fn any_value(e: &Expr, env: &Env) -> Result<Val, EvalError> {
    match &e.kind {
        ExprKind::Int(v) => Ok(Val::Attr(Attr::int(*v))),
        ExprKind::Float(v) => Ok(Val::Attr(Attr::float(*v))),
        ExprKind::Str(s) => Ok(Val::Attr(Attr::Str(s.clone()))),
        ExprKind::Bool(b) => Ok(Val::Attr(Attr::Bool(*b))),
        ExprKind::Name(n) => name(n, env),
        ExprKind::Size(n) => size(n, env),
        ExprKind::List(items) => list(items, env),
        ExprKind::Unary(UnaryOp::Neg, a) => negated(value(a, env)?),
        ExprKind::Unary(UnaryOp::Not, a) => not(value(a, env)?),
        ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
            connect(*op, value(a, env)?, value(b, env)?)
        }
        ExprKind::Binary(op, a, b) => binary(*op, value(a, env)?, value(b, env)?),
        ExprKind::If { cond, then, otherwise } => match truth(cond, env)? {
            Some(true) => value(then, env),
            Some(false) => value(otherwise, env),
            None => Err(EvalError::symbolic("the condition")),
        },
        ExprKind::Call(f, args) => {
            let args = args.iter().map(|a| value(a, env)).collect::<Result<Vec<_>, _>>()?;
            functions::apply(*f, args)
        }
        ExprKind::Entry(list, i) => functions::at(name(list, env)?, &value(i, env)?.int()?),
        ExprKind::DType(d) => Ok(Val::Attr(Attr::DType(*d))),
        ExprKind::Type(part, tensor) => {
            let Some(ty) = env.tensor(tensor) else {
                return functions::apply(part.function(), vec![name(tensor, env)?]);
            };
            Ok(Val::Attr(match part {
                TypePart::Rank => Attr::Int(Extent::from(ty.rank())),
                TypePart::Shape => Attr::Ints(ty.shape.clone()),
                TypePart::DType => Attr::DType(ty.dtype),
            }))
        }
        ExprKind::Apply(a) => {
            let f = a.function().ok_or(EvalError::NotAnAttribute)?;
            let args =
                a.args.iter().map(|a| value(&a.value, env)).collect::<Result<Vec<_>, _>>()?;
            functions::apply(f, args)
        }
        ExprKind::Test(..)
        | ExprKind::Ask(..)
        | ExprKind::Tuple(_)
        | ExprKind::Mark(_)
        | ExprKind::Index(_)
        | ExprKind::DTypeVar(_)
        | ExprKind::Lowest
        | ExprKind::Read(_)
        | ExprKind::Reduce(_) => Err(EvalError::NotAnAttribute),
    }
}

fn name(n: &str, env: &Env) -> Result<Val, EvalError> {
    match env.attr(n) {
        Some(a) => Ok(Val::Attr(a.clone())),
        None => size(n, env),
    }
}

fn size(n: &str, env: &Env) -> Result<Val, EvalError> {
    if let Some(e) = env.axis(n) {
        return Ok(Val::Attr(Attr::Int(e.clone())));
    }
    match env.seg(n) {
        Some(s) => Ok(Val::Attr(Attr::Ints(s.to_vec()))),
        None => Err(EvalError::Unbound(n.to_string())),
    }
}

fn list(items: &[Elem], env: &Env) -> Result<Val, EvalError> {
    let mut parts = Vec::with_capacity(items.len());
    let mut entries = 0;
    for item in items {
        let found = value(item.expr(), env)?;
        entries += match &found {
            Val::Attr(Attr::Ints(v)) => v.len(),
            Val::Attr(Attr::Floats(v)) => v.len(),
            _ => 1,
        };
        if entries > MAX_LIST {
            return Err(too_long(entries));
        }
        match (item, found) {
            (Elem::One(_), Val::Attr(Attr::Float(b))) => parts.push(Attr::Floats(vec![b])),
            (Elem::Splice(_), Val::Attr(v @ Attr::Floats(_))) => parts.push(v),
            (Elem::One(_), v) => parts.push(Attr::Ints(vec![v.int()?])),
            (Elem::Splice(_), v) => parts.push(Attr::Ints(v.ints()?)),
        }
    }
    // One real number makes all of them real.
    if parts.iter().any(|p| matches!(p, Attr::Floats(_))) {
        let numbers: Option<Vec<Vec<f64>>> = parts.iter().map(Attr::as_f64s).collect();
        let numbers = numbers.ok_or_else(|| EvalError::invalid("expected known numbers"))?;
        return Ok(Val::Attr(Attr::floats(numbers.concat())));
    }
    let ints = parts.iter().filter_map(Attr::as_extents);
    Ok(Val::Attr(Attr::Ints(ints.flatten().cloned().collect())))
}

fn not(v: Val) -> Result<Val, EvalError> {
    match v {
        Val::Truths(t) => Ok(Val::Truths(t.into_iter().map(|t| t.map(|b| !b)).collect())),
        v => Ok(Val::Truth(v.truth()?.map(|b| !b))),
    }
}

/// Three-valued `and` and `or`, entry by entry where a side is a list.
fn connect(op: BinaryOp, a: Val, b: Val) -> Result<Val, EvalError> {
    let absorbing = op == BinaryOp::Or;
    let join = |a: Option<bool>, b: Option<bool>| match (a, b) {
        (Some(v), _) | (_, Some(v)) if v == absorbing => Some(absorbing),
        (Some(_), Some(_)) => Some(!absorbing),
        _ => None,
    };
    Ok(match (a, b) {
        (Val::Truths(a), Val::Truths(b)) if a.len() == b.len() => {
            Val::Truths(a.into_iter().zip(b).map(|(a, b)| join(a, b)).collect())
        }
        (Val::Truths(a), b) => {
            let b = b.truth()?;
            Val::Truths(a.into_iter().map(|a| join(a, b)).collect())
        }
        (a, Val::Truths(b)) => {
            let a = a.truth()?;
            Val::Truths(b.into_iter().map(|b| join(a, b)).collect())
        }
        (a, b) => Val::Truth(join(a.truth()?, b.truth()?)),
    })
}

/// Arithmetic and comparison; lists entry by entry, a single number meeting every entry.
pub(crate) fn binary(op: BinaryOp, a: Val, b: Val) -> Result<Val, EvalError> {
    use Val::Attr as V;
    match (a, b) {
        (V(Attr::Ints(a)), V(Attr::Ints(b))) => {
            if a.len() != b.len() {
                return match op {
                    BinaryOp::Eq => Ok(Val::Truth(Some(false))),
                    BinaryOp::Ne => Ok(Val::Truth(Some(true))),
                    _ => Err(EvalError::invalid(format!(
                        "lists of {} and {} entries cannot be combined",
                        a.len(),
                        b.len()
                    ))),
                };
            }
            elementwise(op, a.into_iter().zip(b), true)
        }
        (V(Attr::Ints(a)), V(Attr::Int(b))) => {
            elementwise(op, a.into_iter().map(|a| (a, b.clone())), false)
        }
        (V(Attr::Int(a)), V(Attr::Ints(b))) => {
            elementwise(op, b.into_iter().map(|b| (a.clone(), b)), false)
        }
        (V(Attr::Int(a)), V(Attr::Int(b))) => ints(op, &a, &b),
        (a @ V(Attr::Float(_)), b) | (a, b @ V(Attr::Float(_))) => {
            floats(op, a.number()?, b.number()?)
        }
        (V(a), V(b)) if matches!(op, BinaryOp::Eq | BinaryOp::Ne) => {
            Ok(Val::Truth(Some((a == b) == (op == BinaryOp::Eq))))
        }
        (a, b) if matches!(op, BinaryOp::Eq | BinaryOp::Ne) => {
            let same = match (a.truth()?, b.truth()?) {
                (Some(a), Some(b)) => Some((a == b) == (op == BinaryOp::Eq)),
                _ => None,
            };
            Ok(Val::Truth(same))
        }
        (a, b) => Err(EvalError::invalid(format!("{op:?} does not apply to {a:?} and {b:?}"))),
    }
}

/// `whole` makes `==` and `!=` of two lists one truth value instead of one per entry.
fn elementwise(
    op: BinaryOp,
    pairs: impl Iterator<Item = (Extent, Extent)>,
    whole: bool,
) -> Result<Val, EvalError> {
    let vals = pairs.map(|(a, b)| ints(op, &a, &b)).collect::<Result<Vec<_>, _>>()?;
    let comparison = matches!(
        op,
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge
    );
    if !comparison {
        return Ok(Val::Attr(Attr::Ints(
            vals.into_iter().map(Val::int).collect::<Result<_, _>>()?,
        )));
    }
    let truths = vals.into_iter().map(Val::truth).collect::<Result<Vec<_>, _>>()?;
    Ok(match op {
        BinaryOp::Eq if whole => Val::Truth(functions::all(&truths)),
        BinaryOp::Ne if whole => Val::Truth(functions::any(&truths)),
        _ => Val::Truths(truths),
    })
}

/// Comparisons and arithmetic of known integers; `None` for what is to be said in words, and for powers.
fn known(op: BinaryOp, a: i64, b: i64) -> Option<Val> {
    let int = |v: Option<i64>| v.map(|v| Val::Attr(Attr::int(v)));
    let truth = |t: bool| Some(Val::Truth(Some(t)));
    match op {
        BinaryOp::Add => int(a.checked_add(b)),
        BinaryOp::Sub => int(a.checked_sub(b)),
        BinaryOp::Mul => int(a.checked_mul(b)),
        BinaryOp::Eq => truth(a == b),
        BinaryOp::Ne => truth(a != b),
        BinaryOp::Ge => truth(a >= b),
        BinaryOp::Gt => truth(a > b),
        BinaryOp::Le => truth(a <= b),
        BinaryOp::Lt => truth(a < b),
        BinaryOp::Div | BinaryOp::Mod | BinaryOp::Pow => None,
        BinaryOp::And | BinaryOp::Or | BinaryOp::MatMul => None,
    }
}

fn ints(op: BinaryOp, a: &Extent, b: &Extent) -> Result<Val, EvalError> {
    if let (Some(x), Some(y)) = (a.as_const(), b.as_const())
        && let Some(v) = known(op, x, y)
    {
        return Ok(v);
    }
    let at_least = |x: Extent| match (x.at_least(0), (-&x).at_least(1)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    let equal = || match (a - b).sign() {
        Some(0) => Some(true),
        Some(_) => Some(false),
        None => None,
    };
    let one = Extent::from(1);
    // Known numbers never wrap: a size that 64 bits do not hold is no size.
    let within = |result: Extent, exact: fn(i64, i64) -> Option<i64>| {
        let known = a.as_const().zip(b.as_const());
        match known.is_none_or(|(a, b)| exact(a, b).is_some()) {
            true => Ok(Val::Attr(Attr::Int(result))),
            false => Err(EvalError::invalid(format!("{op:?} of {a} and {b} exceeds 64 bits"))),
        }
    };
    Ok(match op {
        BinaryOp::Add => within(a + b, i64::checked_add)?,
        BinaryOp::Sub => within(a - b, i64::checked_sub)?,
        BinaryOp::Mul => within(a * b, i64::checked_mul)?,
        BinaryOp::Div => {
            if b.is(0) {
                return Err(EvalError::invalid("division by zero"));
            }
            within(a.floor_div(b), i64::checked_div)?
        }
        BinaryOp::Mod => {
            if b.is(0) {
                return Err(EvalError::invalid("remainder by zero"));
            }
            Val::Attr(Attr::Int(a.modulo(b)))
        }
        BinaryOp::Pow => match (a.as_const(), b.as_const()) {
            (Some(x), Some(n)) if (0..63).contains(&n) => {
                let power = x.checked_pow(n as u32);
                let wide = || EvalError::invalid(format!("{a}^{b} exceeds 64 bits"));
                Val::Attr(Attr::int(power.ok_or_else(wide)?))
            }
            _ => floats(op, int_as_f64(a)?, int_as_f64(b)?)?,
        },
        BinaryOp::Eq => Val::Truth(equal()),
        BinaryOp::Ne => Val::Truth(equal().map(|t| !t)),
        BinaryOp::Ge => Val::Truth(at_least(a - b)),
        BinaryOp::Gt => Val::Truth(at_least(&(a - b) - &one)),
        BinaryOp::Le => Val::Truth(at_least(b - a)),
        BinaryOp::Lt => Val::Truth(at_least(&(b - a) - &one)),
        BinaryOp::And | BinaryOp::Or | BinaryOp::MatMul => {
            return Err(EvalError::invalid(format!("{op:?} does not apply to integers")));
        }
    })
}

fn int_as_f64(e: &Extent) -> Result<f64, EvalError> {
    e.as_const().map(|v| v as f64).ok_or_else(|| EvalError::symbolic("a number"))
}

fn floats(op: BinaryOp, a: f64, b: f64) -> Result<Val, EvalError> {
    Ok(match op {
        BinaryOp::Add => Val::Attr(Attr::float(a + b)),
        BinaryOp::Sub => Val::Attr(Attr::float(a - b)),
        BinaryOp::Mul => Val::Attr(Attr::float(a * b)),
        BinaryOp::Div => Val::Attr(Attr::float(a / b)),
        BinaryOp::Pow => Val::Attr(Attr::float(a.powf(b))),
        BinaryOp::Mod => Val::Attr(Attr::float(a.rem_euclid(b))),
        BinaryOp::Eq => Val::Truth(Some(a == b)),
        BinaryOp::Ne => Val::Truth(Some(a != b)),
        BinaryOp::Lt => Val::Truth(Some(a < b)),
        BinaryOp::Le => Val::Truth(Some(a <= b)),
        BinaryOp::Gt => Val::Truth(Some(a > b)),
        BinaryOp::Ge => Val::Truth(Some(a >= b)),
        BinaryOp::And | BinaryOp::Or | BinaryOp::MatMul => {
            return Err(EvalError::invalid(format!("{op:?} does not apply to numbers")));
        }
    })
}
