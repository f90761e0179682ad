//! Expressions of attributes, extents, indices and elements.

use super::super::condition::Condition;
use super::super::integer::{Argument, Atom, Int};
use super::super::item::{Item, paired};
use super::super::list::{List, Outcome, Part, Space, small, unsupported};
use super::super::reshape;
use super::super::value::{Factor, Value, add, complement, negative};
use super::{Evaluation, MOST_AXES};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{BinaryOp, Elem, Expr, ExprKind, TypePart, UnaryOp};
use mlc_dsl::ir::DType;
use mlc_dsl::library::Name;
use std::collections::HashMap;

impl Evaluation<'_> {
    /// An expression of attributes, in the names given or else those of a scope.
    pub(super) fn expr(
        &mut self,
        scope: usize,
        names: Option<&HashMap<Name, Item>>,
        e: &Expr,
    ) -> Outcome<Item> {
        Ok(match &e.kind {
            ExprKind::Int(v) => Item::Int(Int::from(*v)),
            ExprKind::Float(v) => Item::Value(self.values.number(*v)),
            ExprKind::Bool(b) => Item::Truth(Condition::Known(*b)),
            ExprKind::DType(d) => Item::DType(*d),
            ExprKind::Name(n) | ExprKind::Size(n) => return self.name(scope, names, n),
            ExprKind::DTypeVar(n) => Item::TypeVar(n.clone()),
            ExprKind::Type(TypePart::DType, n) => Item::TypeVar(n.clone()),
            ExprKind::List(elems) => {
                Item::List(self.spliced(elems, &mut |s, e| s.expr(scope, names, e))?)
            }
            ExprKind::Entry(n, at) => {
                let l = self.name(scope, names, n)?.list()?;
                let at = self.expr(scope, names, at)?.int(&mut self.values)?;
                Item::Int(l.entry(&at)?)
            }
            ExprKind::Unary(op, a) => {
                let a = self.expr(scope, names, a)?;
                return self.unary(*op, a);
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.expr(scope, names, a)?, self.expr(scope, names, b)?);
                return self.binary(*op, a, b);
            }
            ExprKind::Call(f, args) => {
                let args =
                    args.iter().map(|a| self.expr(scope, names, a)).collect::<Outcome<Vec<_>>>()?;
                return self.call(*f, args);
            }
            ExprKind::If { cond, then, otherwise } => {
                let c = self.expr(scope, names, cond)?.truth()?;
                match self.values.decided(c)? {
                    Some(true) => return self.expr(scope, names, then),
                    Some(false) => return self.expr(scope, names, otherwise),
                    None => return unsupported("an attribute depends on a condition"),
                }
            }
            _ => return unsupported("an expression is not followed"),
        })
    }

    /// The list of these elements, each of which `of` evaluates.
    pub(super) fn spliced(
        &mut self,
        elems: &[Elem],
        of: &mut dyn FnMut(&mut Self, &Expr) -> Outcome<Item>,
    ) -> Outcome<List> {
        let mut out = Vec::new();
        for elem in elems {
            match elem {
                Elem::One(e) => out.push(Part::One(of(self, e)?.int(&mut self.values)?)),
                Elem::Splice(e) => out.extend(of(self, e)?.list()?.0),
            }
        }
        Ok(List(out))
    }

    pub(super) fn unary(&mut self, op: UnaryOp, a: Item) -> Outcome<Item> {
        Ok(match (op, a) {
            (UnaryOp::Neg, Item::Int(i)) => Item::Int(small(Int::default().plus(-1, &i))?),
            (UnaryOp::Neg, Item::List(l)) => {
                let entries =
                    l.0.iter().map(|p| Ok(p.with(small(Int::default().plus(-1, p.entry()))?)));
                Item::List(List(entries.collect::<Outcome<_>>()?))
            }
            (UnaryOp::Neg, a) => Item::Value(negative(&a.value(&mut self.values)?)),
            (UnaryOp::Not, Item::Truth(c)) => Item::Truth(c.negated()),
            (UnaryOp::Not, Item::Truths(cs)) => {
                Item::Truths(cs.into_iter().map(|(s, c)| (s, c.negated())).collect())
            }
            (UnaryOp::Not, a) => Item::Value(complement(&a.value(&mut self.values)?)),
        })
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: Item, b: Item) -> Outcome<Item> {
        use BinaryOp::{Add, And, Div, Eq, Ge, Gt, Le, Lt, MatMul, Mod, Mul, Ne, Or, Pow, Sub};
        let is_list = |i: &Item| matches!(i, Item::List(_) | Item::Fill(..));
        match op {
            And | Or => self.joined(op, a, b),
            Eq | Ne | Lt | Le | Gt | Ge => match (a, b) {
                (Item::DType(a), Item::DType(b)) => {
                    let same = if op == Ne { a != b } else { a == b };
                    Ok(Item::Truth(Condition::Known(same)))
                }
                (Item::Int(a), Item::Int(b)) => Ok(Item::Truth(compared(op, &a, &b)?)),
                (a, b) if is_list(&a) || is_list(&b) => {
                    let whole = is_list(&a) && is_list(&b) && matches!(op, Eq | Ne);
                    let (a, b) = paired(a, b)?;
                    let one = |(a, b): (&Part, &Part)| {
                        let space = a.space().cloned();
                        Ok((space, compared(if whole { Eq } else { op }, a.entry(), b.entry())?))
                    };
                    let each: Vec<_> = a.0.iter().zip(&b.0).map(one).collect::<Outcome<_>>()?;
                    Ok(match (whole, op) {
                        (true, Eq) => Item::Truth(every(each)),
                        (true, _) => Item::Truth(every(each).negated()),
                        (false, _) => Item::Truths(each),
                    })
                }
                (Item::Truth(a), Item::Truth(b)) if matches!(op, Eq | Ne) => {
                    let both = a.clone().and(b.clone()).or(a.negated().and(b.negated()));
                    Ok(Item::Truth(if op == Eq { both } else { both.negated() }))
                }
                (a, b) => {
                    let (a, b) = (a.value(&mut self.values)?, b.value(&mut self.values)?);
                    self.comparison(op, a, b)
                }
            },
            Add | Sub | Mul | Div | Mod if is_list(&a) || is_list(&b) => {
                let (a, b) = paired(a, b)?;
                let f = &mut |a: &Int, b: &Int| arithmetic(op, a, b);
                Ok(Item::List(a.zip(&b, f)?))
            }
            Add | Sub | Mul | Div | Mod => match (a, b) {
                (Item::Int(a), Item::Int(b)) => Ok(Item::Int(arithmetic(op, &a, &b)?)),
                (a, b) => {
                    let (a, b) = (a.value(&mut self.values)?, b.value(&mut self.values)?);
                    Ok(Item::Value(match op {
                        Add => add(&a, &b),
                        Sub => add(&a, &negative(&b)),
                        Mul => self.values.times(&a, &b)?,
                        Div => self.values.quotient(&a, &b)?,
                        _ => self.values.function(Function::Modulo, vec![a, b])?,
                    }))
                }
            },
            Pow => {
                let (a, b) = (a.value(&mut self.values)?, b.value(&mut self.values)?);
                Ok(Item::Value(self.values.power(&a, &b)?))
            }
            MatMul => unsupported("a product of matrices within a meaning"),
        }
    }

    pub(super) fn joined(&mut self, op: BinaryOp, a: Item, b: Item) -> Outcome<Item> {
        let one = |a: Condition, b: Condition| match op {
            BinaryOp::And => a.and(b),
            _ => a.or(b),
        };
        Ok(match (a, b) {
            (Item::Truth(a), Item::Truth(b)) => Item::Truth(one(a, b)),
            (Item::Truths(a), Item::Truths(b)) if a.len() == b.len() => {
                Item::Truths(a.into_iter().zip(b).map(|((s, a), (_, b))| (s, one(a, b))).collect())
            }
            (Item::Truths(cs), Item::Truth(c)) | (Item::Truth(c), Item::Truths(cs)) => {
                Item::Truths(cs.into_iter().map(|(s, a)| (s, one(a, c.clone()))).collect())
            }
            (a, b) => {
                let (a, b) = (a.value(&mut self.values)?, b.value(&mut self.values)?);
                Item::Value(match op {
                    BinaryOp::And => self.values.times(&a, &b)?,
                    _ => self.values.either(&a, &b)?,
                })
            }
        })
    }

    pub(super) fn comparison(&mut self, op: BinaryOp, a: Value, b: Value) -> Outcome<Item> {
        if self.values.is_integer(&a) && self.values.is_integer(&b) {
            let (a, b) = (self.values.as_integer(&a)?, self.values.as_integer(&b)?);
            return Ok(Item::Truth(compared(op, &a, &b)?));
        }
        let truths = self.values.is_truth(&a) && self.values.is_truth(&b);
        Ok(Item::Value(match op {
            // Of truth values: both, or neither.
            BinaryOp::Eq | BinaryOp::Ne if truths => {
                let either = self.values.either(&a, &b)?;
                let both = self.values.times(&a, &b)?;
                let differ = add(&either, &negative(&both));
                if op == BinaryOp::Ne { differ } else { complement(&differ) }
            }
            BinaryOp::Eq => self.values.equal(a, b),
            BinaryOp::Ne => complement(&self.values.equal(a, b)),
            BinaryOp::Lt => self.values.of(Factor::Less(a, b)),
            BinaryOp::Gt => self.values.of(Factor::Less(b, a)),
            BinaryOp::Le => self.values.of(Factor::AtMost(a, b)),
            _ => self.values.of(Factor::AtMost(b, a)),
        }))
    }

    pub(super) fn call(&mut self, f: Function, mut args: Vec<Item>) -> Outcome<Item> {
        use Function as F;
        let mut take = || {
            if args.is_empty() { unsupported("an argument is missing") } else { Ok(args.remove(0)) }
        };
        Ok(match f {
            F::Permute => Item::List(take()?.list()?.permuted(&take()?.list()?)?),
            F::Unpermute => Item::List(take()?.list()?.unpermuted(&take()?.list()?)?),
            F::Inverse => Item::List(take()?.list()?.inverse()?),
            F::Compose => Item::List(take()?.list()?.composed(&take()?.list()?)?),
            F::Pick => Item::List(take()?.list()?.picked(&take()?.list()?)?),
            F::Drop => Item::List(take()?.list()?.dropped(&take()?.list()?)?),
            F::Weave => {
                let (kept, inserted, at) = (take()?.list()?, take()?.list()?, take()?.list()?);
                Item::List(List::woven(&kept, &inserted, &at)?)
            }
            F::Replace => {
                let list = take()?.list()?;
                let at = take()?.int(&mut self.values)?;
                let value = take()?.int(&mut self.values)?;
                Item::List(list.replaced(&at, value)?)
            }
            F::Entry | F::At => {
                let list = take()?.list()?;
                let at = take()?.int(&mut self.values)?;
                Item::Int(list.entry(&at)?)
            }
            F::Length | F::Rank => match take()? {
                Item::Fill(n, _) => Item::Int(n),
                list => Item::Int(list.list()?.length()?),
            },
            F::Range => {
                let first = take()?.int(&mut self.values)?;
                let (from, to) = match take() {
                    Ok(to) => (first, to.int(&mut self.values)?),
                    Err(_) => (Int::from(0), first),
                };
                Item::List(range(&from, &to)?)
            }
            F::Fill => {
                let n = take()?.int(&mut self.values)?;
                Item::Fill(n, take()?.int(&mut self.values)?)
            }
            F::All => match take()? {
                Item::Truths(cs) => Item::Truth(every(cs)),
                Item::Truth(c) => Item::Truth(c),
                _ => return unsupported("`all` of no conditions"),
            },
            F::Any => match take()? {
                Item::Truths(cs) => {
                    let none = cs.into_iter().map(|(s, c)| (s, c.negated())).collect();
                    Item::Truth(every(none).negated())
                }
                Item::Truth(c) => Item::Truth(c),
                _ => return unsupported("`any` of no conditions"),
            },
            F::Maximum | F::Minimum => {
                let (a, b) = (take()?, take()?);
                match (a, b) {
                    (Item::Int(a), Item::Int(b)) => Item::Int(self.extreme(f, &a, &b)?),
                    (a @ (Item::List(_) | Item::Fill(..)), b)
                    | (a, b @ (Item::List(_) | Item::Fill(..))) => {
                        let (a, b) = paired(a, b)?;
                        let mut out = Vec::new();
                        for (p, q) in a.0.iter().zip(&b.0) {
                            out.push(p.with(self.extreme(f, p.entry(), q.entry())?));
                        }
                        Item::List(List(out))
                    }
                    (a, b) => {
                        let args = vec![a.value(&mut self.values)?, b.value(&mut self.values)?];
                        Item::Value(self.values.function(f, args)?)
                    }
                }
            }
            F::Product => Item::Int(product(&take()?.list()?)?),
            F::Total => {
                let list = take()?.list()?;
                let mut out = Int::from(0);
                for part in &list.0 {
                    let sum = match part {
                        Part::One(i) => i.clone(),
                        Part::Each(..) => Int::from(Atom::Of(
                            "total",
                            vec![Argument::List(List(vec![part.clone()]))],
                        )),
                    };
                    out = small(out.plus(1, &sum))?;
                }
                Item::Int(out)
            }
            F::Ravel => {
                let (index, shape) = (take()?.list()?, take()?.list()?);
                Item::Int(reshape::raveled(&index, &shape)?)
            }
            F::Unravel => {
                let number = take()?.int(&mut self.values)?;
                Item::List(reshape::unraveled(&number, &take()?.list()?)?)
            }
            F::Cast => {
                let (a, to) = (take()?, take()?);
                self.cast(a, to)?
            }
            F::Float => {
                let a = take()?;
                Item::Value(a.value(&mut self.values)?)
            }
            F::IsKnown | F::Contains | F::Increasing | F::IndexOf => {
                return super::super::function::refuse(f);
            }
            F::Abs
            | F::Sqrt
            | F::Rsqrt
            | F::Recip
            | F::Exp
            | F::Log
            | F::Floor
            | F::Ceil
            | F::Round
            | F::Sign
            | F::Erf
            | F::Sin
            | F::Cos
            | F::Tan
            | F::Asin
            | F::Acos
            | F::Atan
            | F::Sinh
            | F::Cosh
            | F::Tanh
            | F::Asinh
            | F::Acosh
            | F::Atanh
            | F::Modulo
            | F::Remainder
            | F::BitAnd
            | F::BitOr
            | F::BitXor
            | F::ShiftLeft
            | F::ShiftRight => {
                let mut values = Vec::new();
                for a in args {
                    values.push(a.value(&mut self.values)?);
                }
                Item::Value(self.values.function(f, values)?)
            }
            _ => return super::super::function::refuse(f),
        })
    }

    pub(super) fn cast(&mut self, a: Item, to: Item) -> Outcome<Item> {
        let v = a.value(&mut self.values)?;
        let kept = self.values.is_truth(&v);
        Ok(Item::Value(match to {
            Item::DType(d) if kept && d != DType::Str => v,
            Item::DType(DType::I64) if self.values.is_integer(&v) => v,
            Item::DType(d) => self.values.of(Factor::Convert(d, v)),
            Item::TypeVar(n) => self.values.of(Factor::ConvertTo(n, v)),
            _ => return unsupported("a type is not known"),
        }))
    }

    pub(super) fn extreme(&mut self, f: Function, a: &Int, b: &Int) -> Outcome<Int> {
        let larger = Condition::AtLeastZero(small(a.plus(-1, b))?);
        Ok(match (self.values.knowledge.decide(&larger), f) {
            (Some(true), Function::Maximum) | (Some(false), Function::Minimum) => a.clone(),
            (Some(_), _) => b.clone(),
            (None, _) => {
                let mut both = [a, b].map(|i| Argument::Int(i.clone()));
                both.sort();
                Int::from(Atom::Of(f.name(), both.to_vec()))
            }
        })
    }
}

/// A comparison of integers.
fn compared(op: BinaryOp, a: &Int, b: &Int) -> Outcome<Condition> {
    let (up, down) = (small(a.plus(-1, b))?, small(b.plus(-1, a))?);
    let known = |c: Condition| match &c {
        Condition::AtLeastZero(i) => i.number().map_or(c.clone(), |n| Condition::Known(n >= 0)),
        Condition::Zero(i) => i.number().map_or(c.clone(), |n| Condition::Known(n == 0)),
        _ => c,
    };
    let zero = |i: Int| match i.0.values().next() {
        Some(c) if *c < 0 => Int::default().plus(-1, &i).unwrap_or(i),
        _ => i,
    };
    Ok(match op {
        BinaryOp::Ge => known(Condition::AtLeastZero(up)),
        BinaryOp::Le => known(Condition::AtLeastZero(down)),
        BinaryOp::Lt => known(Condition::AtLeastZero(small(down.plus(-1, &Int::from(1)))?)),
        BinaryOp::Gt => known(Condition::AtLeastZero(small(up.plus(-1, &Int::from(1)))?)),
        BinaryOp::Ne => known(Condition::Zero(zero(up))).negated(),
        _ => known(Condition::Zero(zero(up))),
    })
}

fn arithmetic(op: BinaryOp, a: &Int, b: &Int) -> Outcome<Int> {
    let opaque = |name| {
        let both = [a, b].map(|i| Argument::Int(i.clone()));
        Int::from(Atom::Of(name, both.to_vec()))
    };
    Ok(match op {
        BinaryOp::Add => small(a.plus(1, b))?,
        BinaryOp::Sub => small(a.plus(-1, b))?,
        BinaryOp::Mul => small(a.times(b))?,
        BinaryOp::Div => match b.number() {
            Some(1) => a.clone(),
            _ => opaque("/"),
        },
        _ => opaque("%"),
    })
}

/// All hold, for each axis where they are of one.
fn every(cs: Vec<(Option<Space>, Condition)>) -> Condition {
    cs.into_iter().fold(Condition::Known(true), |all, (space, c)| {
        all.and(match (space, c) {
            (_, Condition::Known(true)) => Condition::Known(true),
            (Some(space), c) => Condition::Every(space, Box::new(c)),
            (None, c) => c,
        })
    })
}

/// The integers from one up to another: positions of a segment, or a few.
fn range(from: &Int, to: &Int) -> Outcome<List> {
    let n = small(to.plus(-1, from))?;
    if let Some(n) = n.number().filter(|n| (0..=8).contains(n)) {
        let each = (0..n).map(|i| Ok(Part::One(small(from.plus(1, &Int::from(i)))?)));
        return Ok(List(each.collect::<Outcome<_>>()?));
    }
    match n.atom() {
        Some(Atom::Length(space)) if space.path.is_empty() => {
            let position = Int::from(Atom::Position(space.base.clone()));
            Ok(List::each(space.clone(), small(position.plus(1, from))?))
        }
        _ => ranges(from, &n),
    }
}

/// Positions of several segments and single axes one after the other, as many as a sum says.
fn ranges(from: &Int, n: &Int) -> Outcome<List> {
    let mut out = Vec::new();
    let mut next = from.clone();
    // Segments come first: where that is not so, the positions are those of other axes, which is told where they are used.
    let (ones, lengths): (Vec<_>, Vec<_>) = n.0.iter().partition(|(m, _)| m.is_empty());
    for (m, c) in lengths.into_iter().chain(ones) {
        let count = match m.as_slice() {
            [a @ Atom::Length(_)] if *c == 1 => Int::from(a.clone()),
            [] if (1..=MOST_AXES).contains(c) => Int::from(*c),
            _ => return unsupported("a range of positions is of no segment"),
        };
        let end = small(next.plus(1, &count))?;
        out.extend(range(&next, &end)?.0);
        next = end;
    }
    Ok(List(out))
}

/// The product of all entries.
pub(in super::super) fn product(list: &List) -> Outcome<Int> {
    let mut out = Int::from(1);
    for part in &list.0 {
        let factor = match part {
            Part::One(i) => i.clone(),
            Part::Each(_, i) if i.number() == Some(1) => Int::from(1),
            Part::Each(..) => {
                Int::from(Atom::Of("product", vec![Argument::List(List(vec![part.clone()]))]))
            }
        };
        out = small(out.times(&factor))?;
    }
    Ok(out)
}
