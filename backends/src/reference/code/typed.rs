//! Compiled subexpressions and how operations combine them: which are floats, which integers of which
//! type, which truth values, and which lists.

use super::super::scalar::{self, Cmp, IntOp, Monoid, RealOp};
use super::index_lists;
use super::{Int, Quantifier, Real, Reduce, Sign, Slot, Truth};
use mlc_dsl::expr::{self, BinaryOp};
use mlc_dsl::ir::DType;

/// What an integer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberKind {
    /// A number that takes the type of what it meets.
    Literal,
    /// An index or extent: unbounded.
    Index,
    /// Of an element.
    Elem(DType),
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) enum Comp {
    Int(Int, NumberKind),
    Real(Real),
    Truth(Truth),
    Truths(Vec<Truth>),
    List(List),
    DType(DType),
    Word(String),
    /// The lowest number of the type it meets.
    Lowest,
}

/// A list of integers.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    pub(crate) items: Vec<Int>,
    /// The number and the extents it was unravelled from.
    pub(crate) unravelled: Option<(Int, Vec<Int>)>,
}

impl From<Vec<Int>> for List {
    fn from(items: Vec<Int>) -> List {
        List { items, unravelled: None }
    }
}

pub(crate) fn sign(kind: NumberKind) -> Sign {
    if kind == NumberKind::Elem(DType::U64) { Sign::Unsigned } else { Sign::Signed }
}

/// An integer of that kind, wrapped if the kind is narrower than 64 bits.
pub(crate) fn of_kind(v: Int, kind: NumberKind) -> Comp {
    Comp::Int(
        match kind {
            NumberKind::Elem(d) if d.size() < 8 => Int::Wrap(d, Box::new(v)),
            NumberKind::Elem(_) | NumberKind::Literal | NumberKind::Index => v,
        },
        kind,
    )
}

/// The expression as a float.
pub(crate) fn real(c: Comp) -> Result<Real, String> {
    Ok(match c {
        Comp::Real(r) => r,
        Comp::Int(Int::Const(v), _) => Real::Const(v as f64),
        Comp::Int(v, k) => Real::FromInt(sign(k), Box::new(v)),
        Comp::Lowest => Real::Const(f64::NEG_INFINITY),
        Comp::Truth(t) => Real::FromInt(Sign::Signed, Box::new(Int::FromTruth(Box::new(t)))),
        Comp::Truths(_) | Comp::List(_) => return Err("expected an element, found a list".into()),
        Comp::DType(_) | Comp::Word(_) => return Err("expected a number, found a word".into()),
    })
}

/// The expression as an integer of a type, or of unbounded size.
pub(crate) fn int(c: Comp, dtype: Option<DType>) -> Result<Int, String> {
    Ok(match (c, dtype) {
        (Comp::Int(v, NumberKind::Elem(d)), Some(t)) if d == t => v,
        (Comp::Int(v, _), None) => v,
        (Comp::Int(v, _), Some(t)) => Int::Wrap(t, Box::new(v)),
        (Comp::Lowest, t) => Int::Const(scalar::lowest(t)),
        (Comp::Truth(t), _) => Int::FromTruth(Box::new(t)),
        (Comp::Real(_), _) => return Err("expected an integer, found a real number".into()),
        (Comp::Truths(_) | Comp::List(_), _) => {
            return Err("expected a single number, found a list".into());
        }
        (Comp::DType(_) | Comp::Word(_), _) => {
            return Err("expected a number, found a word".into());
        }
    })
}

/// The expression as a truth value.
pub(crate) fn truth(c: Comp) -> Result<Truth, String> {
    match c {
        Comp::Truth(t) => Ok(t),
        Comp::Int(v, NumberKind::Elem(DType::Bool)) => Ok(Truth::NonZero(Box::new(v))),
        _ => Err("expected a truth value, found a number".into()),
    }
}

/// The kind of what two integers make together. An element and an extent make an index, so that
/// `i[..] + |n|` cannot overflow a narrow element type.
fn common(a: NumberKind, b: NumberKind) -> Result<NumberKind, String> {
    match (a, b) {
        (NumberKind::Elem(a), NumberKind::Elem(b)) if a != b => {
            Err(format!("elements of {a} and {b} cannot be combined"))
        }
        (NumberKind::Elem(_), NumberKind::Elem(_) | NumberKind::Literal) => Ok(a),
        (NumberKind::Literal, NumberKind::Elem(_)) => Ok(b),
        (NumberKind::Literal, NumberKind::Literal) => Ok(NumberKind::Literal),
        (NumberKind::Index, _) | (_, NumberKind::Index) => Ok(NumberKind::Index),
    }
}

pub(crate) fn negate(c: Comp) -> Result<Comp, String> {
    Ok(match c {
        Comp::Int(v, k) => of_kind(Int::Neg(Box::new(v)), k),
        Comp::List(l) => {
            let items = l.items.into_iter().map(|v| Int::Neg(Box::new(v)));
            Comp::List(items.collect::<Vec<_>>().into())
        }
        other => Comp::Real(Real::Neg(Box::new(real(other)?))),
    })
}

/// An operation on floats or integers: `ints` are its forms for indices, elements and `u64` elements.
pub(crate) fn arithmetic(op: RealOp, ints: [IntOp; 3], a: Comp, b: Comp) -> Result<Comp, String> {
    if let (Comp::List(_), _) | (_, Comp::List(_)) = (&a, &b) {
        return index_lists::elementwise(a, b, |a, b| {
            Int::Binary(ints[0], Box::new(a), Box::new(b))
        });
    }
    let kind = match (&a, &b) {
        (Comp::Int(_, a), Comp::Int(_, b)) => common(*a, *b)?,
        (Comp::Int(_, k), Comp::Lowest) | (Comp::Lowest, Comp::Int(_, k)) => *k,
        _ => return Ok(Comp::Real(Real::Binary(op, Box::new(real(a)?), Box::new(real(b)?)))),
    };
    let (form, dtype) = match kind {
        NumberKind::Literal | NumberKind::Index => (ints[0], None),
        NumberKind::Elem(DType::Bool) => return Err("truth values are not numbers".into()),
        NumberKind::Elem(DType::U64) => (ints[2], Some(DType::U64)),
        NumberKind::Elem(d) => (ints[1], Some(d)),
    };
    let (a, b) = (Box::new(int(a, dtype)?), Box::new(int(b, dtype)?));
    Ok(of_kind(Int::Binary(form, a, b), kind))
}

pub(crate) fn binary(op: BinaryOp, a: Comp, b: Comp) -> Result<Comp, String> {
    let cmp = match op {
        BinaryOp::And => {
            return Ok(Comp::Truth(Truth::And(Box::new(truth(a)?), Box::new(truth(b)?))));
        }
        BinaryOp::Or => {
            return Ok(Comp::Truth(Truth::Or(Box::new(truth(a)?), Box::new(truth(b)?))));
        }
        BinaryOp::Add => return arithmetic(RealOp::Add, [IntOp::Add; 3], a, b),
        BinaryOp::Sub => return arithmetic(RealOp::Sub, [IntOp::Sub; 3], a, b),
        BinaryOp::Mul => return arithmetic(RealOp::Mul, [IntOp::Mul; 3], a, b),
        BinaryOp::Pow => {
            return arithmetic(RealOp::Pow, [IntOp::Pow, IntOp::Pow, IntOp::PowU], a, b);
        }
        BinaryOp::Div => {
            return arithmetic(RealOp::Div, [IntOp::FloorDiv, IntOp::Div, IntOp::DivU], a, b);
        }
        BinaryOp::Mod => {
            let ints = [IntOp::FloorMod, IntOp::FloorMod, IntOp::RemU];
            return arithmetic(RealOp::Modulo, ints, a, b);
        }
        BinaryOp::MatMul => return Err("`@` has no element".into()),
        BinaryOp::Eq => Cmp::Eq,
        BinaryOp::Ne => Cmp::Ne,
        BinaryOp::Lt => Cmp::Lt,
        BinaryOp::Le => Cmp::Le,
        BinaryOp::Gt => Cmp::Gt,
        BinaryOp::Ge => Cmp::Ge,
    };
    match (a, b) {
        (Comp::Word(a), Comp::Word(b)) => Ok(Comp::Truth(Truth::Const(cmp.holds(&a, &b)))),
        (Comp::DType(a), Comp::DType(b)) => Ok(Comp::Truth(Truth::Const(cmp.holds(&a, &b)))),
        (a @ Comp::List(_), b) | (a, b @ Comp::List(_)) => index_lists::compare(cmp, a, b),
        (a @ Comp::Real(_), b) | (a, b @ Comp::Real(_)) => {
            Ok(Comp::Truth(Truth::Real(cmp, Box::new(real(a)?), Box::new(real(b)?))))
        }
        (a, b) => {
            let kind = match (&a, &b) {
                (Comp::Int(_, a), Comp::Int(_, b)) => common(*a, *b)?,
                (Comp::Int(_, k), _) | (_, Comp::Int(_, k)) => *k,
                _ => NumberKind::Literal,
            };
            let dtype = if let NumberKind::Elem(d) = kind { Some(d) } else { None };
            let (a, b) = (Box::new(int(a, dtype)?), Box::new(int(b, dtype)?));
            Ok(Comp::Truth(Truth::Int(cmp, sign(kind), a, b)))
        }
    }
}

pub(crate) fn choose(c: Truth, a: Comp, b: Comp) -> Result<Comp, String> {
    let c = Box::new(c);
    Ok(match (a, b) {
        (Comp::Truth(a), b) => Comp::Truth(Truth::If(c, Box::new(a), Box::new(truth(b)?))),
        (a, Comp::Truth(b)) => Comp::Truth(Truth::If(c, Box::new(truth(a)?), Box::new(b))),
        (a @ Comp::List(_), b) | (a, b @ Comp::List(_)) => {
            index_lists::elementwise(a, b, |a, b| Int::If(c.clone(), Box::new(a), Box::new(b)))?
        }
        (a @ (Comp::Int(..) | Comp::Lowest), b @ (Comp::Int(..) | Comp::Lowest)) => {
            let kind = match (&a, &b) {
                (Comp::Int(_, a), Comp::Int(_, b)) => common(*a, *b)?,
                (Comp::Int(_, k), _) | (_, Comp::Int(_, k)) => *k,
                _ => return Ok(Comp::Lowest),
            };
            let dtype = if let NumberKind::Elem(d) = kind { Some(d) } else { None };
            Comp::Int(Int::If(c, Box::new(int(a, dtype)?), Box::new(int(b, dtype)?)), kind)
        }
        (a, b) => Comp::Real(Real::If(c, Box::new(real(a)?), Box::new(real(b)?))),
    })
}

pub(crate) fn cast(v: Comp, to: DType) -> Result<Comp, String> {
    Ok(if to.is_float() {
        let v = real(v)?;
        Comp::Real(if to == DType::F64 { v } else { Real::Round(to, Box::new(v)) })
    } else {
        let v = match v {
            Comp::Real(r) => Int::FromReal(to, Box::new(r)),
            other => Int::Wrap(to, Box::new(int(other, None)?)),
        };
        Comp::Int(v, NumberKind::Elem(to))
    })
}

/// A reduction; `count` is how many values the variables have together.
pub(crate) fn fold(
    monoid: expr::Monoid,
    over: Vec<(Slot, i64)>,
    count: Int,
    body: Comp,
) -> Result<Comp, String> {
    let monoid = match monoid {
        expr::Monoid::Any => return Ok(quantified(Quantifier::Any, over, truth(body)?)),
        expr::Monoid::All => return Ok(quantified(Quantifier::All, over, truth(body)?)),
        expr::Monoid::Sum => Monoid::Sum,
        expr::Monoid::Prod => Monoid::Prod,
        expr::Monoid::Max => Monoid::Max,
        expr::Monoid::Min => Monoid::Min,
        expr::Monoid::Mean => {
            let sum = Reduce { monoid: Monoid::Sum, over, dtype: None, body: real(body)? };
            let sum = Box::new(Real::Reduce(Box::new(sum)));
            return Ok(Comp::Real(Real::Binary(
                RealOp::Div,
                sum,
                Box::new(real(Comp::Int(count, NumberKind::Index))?),
            )));
        }
    };
    Ok(match body {
        Comp::Int(body, kind) => {
            let dtype = if let NumberKind::Elem(d) = kind { Some(d) } else { None };
            Comp::Int(Int::Reduce(Box::new(Reduce { monoid, over, dtype, body })), kind)
        }
        body => {
            let body = real(body)?;
            Comp::Real(Real::Reduce(Box::new(Reduce { monoid, over, dtype: None, body })))
        }
    })
}

fn quantified(q: Quantifier, over: Vec<(Slot, i64)>, body: Truth) -> Comp {
    Comp::Truth(Truth::Quantified(q, over, Box::new(body)))
}
