//! What expressions of laws and meanings stand for: integers, lists, conditions and values.

use super::condition::Condition;
use super::integer::{Atom, Int};
use super::list::{List, Outcome, Part, Space, unsupported};
use super::value::{Value, Values};
use mlc_dsl::ir::DType;
use mlc_dsl::library::Name;

/// What an expression stands for.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// An integer of the law.
    Int(Int),
    /// A list of them.
    List(List),
    /// As many equal entries as wanted.
    Fill(Int, Int),
    /// Whether something holds.
    Truth(Condition),
    /// Whether it does, for each entry of a list.
    Truths(Vec<(Option<Space>, Condition)>),
    /// An element, or a number.
    Value(Value),
    /// An element type.
    DType(DType),
    /// The element type that a variable names.
    TypeVar(Name),
}

impl Item {
    /// The integer.
    pub(crate) fn int(self, values: &mut Values) -> Outcome<Int> {
        match self {
            Item::Int(i) => Ok(i),
            Item::Value(v) => values.as_integer(&v),
            other => unsupported(format!("{} is no integer", other.kind())),
        }
    }

    /// The value.
    pub(crate) fn value(self, values: &mut Values) -> Outcome<Value> {
        match self {
            Item::Int(i) => values.integer(&i),
            Item::Value(v) => Ok(v),
            Item::Truth(c) => Ok(values.truth(&c)),
            other => unsupported(format!("{} is no value", other.kind())),
        }
    }

    /// The condition.
    pub(crate) fn truth(self) -> Outcome<Condition> {
        match self {
            Item::Truth(c) => Ok(c),
            other => unsupported(format!("{} is no condition", other.kind())),
        }
    }

    /// The list.
    pub(crate) fn list(self) -> Outcome<List> {
        match self {
            Item::List(l) => Ok(l),
            Item::Fill(n, v) => match (n.number(), n.atom()) {
                (Some(n), _) if (0..=8).contains(&n) => {
                    Ok(List((0..n).map(|_| Part::One(v.clone())).collect()))
                }
                (_, Some(Atom::Length(space))) => Ok(List::each(space.clone(), v)),
                _ => unsupported("a list has an unknown number of entries"),
            },
            other => unsupported(format!("{} is no list", other.kind())),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Item::Int(_) => "an integer",
            Item::List(_) | Item::Fill(..) => "a list",
            Item::Truth(_) => "a condition",
            Item::Truths(_) => "a list of conditions",
            Item::Value(_) => "a value",
            Item::DType(_) | Item::TypeVar(_) => "an element type",
        }
    }
}

/// Two operands of an operation entry by entry, as lists; an integer stands for every entry.
pub(crate) fn paired(a: Item, b: Item) -> Outcome<(List, List)> {
    let like = |l: &List, i: &Int| List(l.0.iter().map(|p| p.with(i.clone())).collect());
    Ok(match (a, b) {
        (Item::List(a), Item::List(b)) => {
            a.aligned(&b)?;
            (a, b)
        }
        (Item::List(a), Item::Int(b) | Item::Fill(_, b)) => {
            let b = like(&a, &b);
            (a, b)
        }
        (Item::Int(a) | Item::Fill(_, a), Item::List(b)) => (like(&b, &a), b),
        (a, b) => (a.list()?, b.list()?),
    })
}
