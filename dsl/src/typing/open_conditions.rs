//! What of a declaration's conditions symbols decide: comparisons of extents that are left once an application is well typed.

use super::infer::{Application, infer};
use crate::eval::function::Function;
use crate::eval::{Env, eval, truth};
use crate::expr::{BinaryOp, Expr, ExprKind};
use crate::ir::{Attr, Extent, Type};
use crate::library::Callable;

/// A comparison of two extents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// `==`, `!=`, `<`, `<=`, `>` or `>=`.
    op: BinaryOp,
    /// What stands before it.
    left: Extent,
    /// What stands after it.
    right: Extent,
}

impl Comparison {
    /// Whether it holds where extents have these values; `None` if one has none.
    pub fn holds(&self, value: impl Fn(&Extent) -> Option<i64>) -> Option<bool> {
        let order = value(&self.left)?.cmp(&value(&self.right)?);
        Some(match self.op {
            BinaryOp::Eq => order.is_eq(),
            BinaryOp::Ne => order.is_ne(),
            BinaryOp::Lt => order.is_lt(),
            BinaryOp::Le => order.is_le(),
            BinaryOp::Gt => order.is_gt(),
            BinaryOp::Ge => order.is_ge(),
            _ => return None,
        })
    }

    /// The two extents, if it wants them equal.
    pub fn as_equality(&self) -> Option<(&Extent, &Extent)> {
        (self.op == BinaryOp::Eq).then_some((&self.left, &self.right))
    }
}

/// What remains to be checked of an application once its symbols are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenConditions {
    /// Comparisons that must hold.
    pub comparisons: Vec<Comparison>,
    /// There is more than comparisons say: the application must be typed again.
    pub more: bool,
}

impl OpenConditions {
    /// Of an application to arguments whose extents symbols decide.
    pub fn of(call: &Callable, args: &[&Type], attrs: &[Option<Attr>]) -> OpenConditions {
        let mut open = OpenConditions::default();
        let Ok(Application { types, env, .. }) = infer(call, args, attrs) else {
            return OpenConditions { more: true, ..open };
        };
        call.conditions.iter().for_each(|c| open.add(c, &env));
        let signed = types.iter().flat_map(|t| &t.shape).filter(|e| !e.at_least(0));
        let zero = || Extent::from(0);
        let not_negative =
            signed.map(|e| Comparison { op: BinaryOp::Ge, left: e.clone(), right: zero() });
        open.comparisons.extend(not_negative);
        open
    }

    /// Nothing remains: the application is well typed for all values of its symbols.
    pub fn is_empty(&self) -> bool {
        self.comparisons.is_empty() && !self.more
    }

    fn add(&mut self, condition: &Expr, env: &Env) {
        if truth(condition, env) == Ok(Some(true)) {
            return;
        }
        let known = match &condition.kind {
            ExprKind::Binary(BinaryOp::And, a, b) => {
                return [a, b].into_iter().for_each(|c| self.add(c, env));
            }
            ExprKind::Call(Function::All, args) => match args.as_slice() {
                [one] => comparisons(one, env, true),
                _ => None,
            },
            _ => comparisons(condition, env, false),
        };
        match known {
            Some(known) => self.comparisons.extend(known),
            None => self.more = true,
        }
    }
}

/// The comparisons that one of extents or lists stands for; of lists all must hold where `all` says so or they are to be equal.
fn comparisons(e: &Expr, env: &Env, all: bool) -> Option<Vec<Comparison>> {
    let ExprKind::Binary(op, a, b) = &e.kind else { return None };
    let is_comparison = matches!(
        op,
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge
    );
    let sides = [eval(a, env).ok()?, eval(b, env).ok()?];
    let one = |left: &Extent, right: &Extent| Comparison {
        op: *op,
        left: left.clone(),
        right: right.clone(),
    };
    let every = all || *op == BinaryOp::Eq;
    match &sides {
        _ if !is_comparison => None,
        [Attr::Int(a), Attr::Int(b)] => Some(vec![one(a, b)]),
        [Attr::Ints(a), Attr::Ints(b)] if every && a.len() == b.len() => {
            Some(a.iter().zip(b).map(|(a, b)| one(a, b)).collect())
        }
        [Attr::Ints(a), Attr::Int(b)] if all => Some(a.iter().map(|a| one(a, b)).collect()),
        [Attr::Int(a), Attr::Ints(b)] if all => Some(b.iter().map(|b| one(a, b)).collect()),
        _ => None,
    }
}
