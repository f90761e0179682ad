//! What a law's types, conditions and cases say before its sides are evaluated.

use super::super::condition::Condition;
use super::super::integer::{Atom, Int};
use super::super::item::Item;
use super::super::list::{AxisKind, List, Outcome, Part, Space, Stuck, small};
use super::super::order::Order;
use super::super::value::{Factor, Value, add, negative};
use super::{Evaluation, MOST_AXES};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{AttrKind, BinaryOp, Expr, ExprKind, Predicate};
use mlc_dsl::library::{Dim, Name};
use std::collections::HashMap;

impl Evaluation<'_> {
    /// Learns what the law's types and conditions say, and its cases.
    pub(crate) fn learn(&mut self) -> Outcome<()> {
        for v in &self.law.vars {
            for dim in v.ty.dims.iter().flatten() {
                let extents = match dim {
                    Dim::Axis(n) => List(vec![Part::One(self.size(n))]),
                    Dim::Seg(n) => self.segment(n)?,
                    Dim::Value(_) | Dim::Splice(_) => continue,
                };
                self.at_least_zero(&extents);
            }
        }
        for a in &self.law.attrs {
            if a.ty.kind == AttrKind::Shape {
                let shape = self.list_attribute(&a.name)?;
                self.at_least_zero(&shape);
            }
        }
        let law = self.law;
        self.learn_conditions(0, None, &law.conditions)?;
        for c in self.known.cases.clone() {
            self.equalities(&c)?;
            self.values.knowledge.learn(&c);
        }
        Ok(())
    }

    /// Learns conditions; what is not followed is not known.
    pub(super) fn learn_conditions(
        &mut self,
        scope: usize,
        names: Option<&HashMap<Name, Item>>,
        conditions: &[Expr],
    ) -> Outcome<()> {
        for e in conditions {
            if let ExprKind::Test(p, args) = &e.kind {
                // An operator's own parameters are no variables of the law, whatever their names.
                if names.is_none() {
                    self.learn_predicate(*p, args);
                }
                continue;
            }
            match self.expr(scope, names, e) {
                Ok(Item::Truth(c)) => {
                    self.equalities(&c)?;
                    self.values.knowledge.learn(&c);
                }
                Ok(item) => self.learn_order(item),
                Err(Stuck::Unsupported(_) | Stuck::Cases(_)) => {}
                // Lists with different axes are not equal, and a position may be none, which only an equation excludes.
                Err(Stuck::Axes(..) | Stuck::Position(..)) if !is_equation(e) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Learns between what the elements of variables lie.
    pub(super) fn learn_predicate(&mut self, predicate: Predicate, args: &[Expr]) {
        let (tensors, bounds) = predicate.split(args);
        let bounds: Vec<Option<Value>> = match predicate {
            Predicate::Nonnegative | Predicate::Positive => vec![Some(Value::new()), None],
            Predicate::Within => {
                let value =
                    |e: &Expr| self.expr(0, None, e).and_then(|i| i.value(&mut self.values));
                bounds.iter().map(value).map(Result::ok).collect()
            }
            _ => return,
        };
        for name in tensors.iter().filter_map(Expr::as_name) {
            let var = self.law.vars.iter().position(|v| v.name == *name);
            let (Some(var), [low, high]) = (var, bounds.as_slice()) else { continue };
            let strict = predicate == Predicate::Positive;
            self.bounds.push((var, low.clone(), high.clone(), strict));
        }
    }

    /// What is known of the order of all values that were met.
    pub(crate) fn known_order(&mut self) -> Order {
        let mut order = self.order.clone();
        for (var, low, high, strict) in self.bounds.clone() {
            for read in self.values.reads(var) {
                if let Some(low) = &low {
                    order.learn(add(&read, &negative(low)), strict);
                }
                if let Some(high) = &high {
                    order.learn(add(high, &negative(&read)), false);
                }
            }
        }
        order
    }

    /// Learns a comparison of values.
    pub(super) fn learn_order(&mut self, item: Item) {
        let Item::Value(v) = item else { return };
        let Some((factors, 1)) = v.first_key_value().filter(|_| v.len() == 1) else { return };
        let [factor] = factors.as_slice() else { return };
        match self.values.get(*factor).clone() {
            Factor::Less(a, b) => self.order.learn(add(&b, &negative(&a)), true),
            Factor::AtMost(a, b) => self.order.learn(add(&b, &negative(&a)), false),
            Factor::Equal(a, b) => self.order.learn_zero(add(&a, &negative(&b))),
            _ => {}
        }
    }

    /// True of cases that do not occur.
    pub(crate) fn is_void(&self) -> bool {
        self.values.knowledge.is_contradiction()
    }

    pub(super) fn at_least_zero(&mut self, extents: &List) {
        for part in &extents.0 {
            let least = Condition::AtLeastZero(part.entry().clone());
            self.values.knowledge.learn(&least.at(part.space()));
        }
    }

    /// An extent or attribute that a condition makes another integer is that.
    pub(super) fn equalities(&self, c: &Condition) -> Outcome<()> {
        match c {
            Condition::All(cs) => cs.iter().try_for_each(|c| self.equalities(c)),
            // What holds of some axes of a segment says nothing of the others.
            Condition::Every(space, c) if space.subset().1.is_empty() => self.equalities(c),
            Condition::Zero(i) => {
                if let Some((segment, kinds)) = same_axes(i) {
                    return Err(Stuck::Axes(segment, kinds));
                }
                let alone = i.0.iter().find_map(|(m, c)| match m.as_slice() {
                    [a @ (Atom::Attr(_) | Atom::Size(_))] if c.abs() == 1 => Some((a.clone(), *c)),
                    _ => None,
                });
                let Some((atom, c)) = alone else { return Ok(()) };
                let rest = small(i.plus(-c, &Int::from(atom.clone())))?;
                let value = small(Int::default().plus(-c, &rest))?;
                match value.mentions(&atom) || self.known.equal.contains_key(&atom) {
                    true => Ok(()),
                    false => Err(Stuck::Equal(atom, value)),
                }
            }
            _ => Ok(()),
        }
    }
}

/// True of conditions under which everything that they compare has the same axes.
fn is_equation(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Binary(BinaryOp::And, a, b) => is_equation(a) && is_equation(b),
        ExprKind::Binary(BinaryOp::Eq, ..) => true,
        ExprKind::Call(Function::All, args) => args.iter().all(|a| match &a.kind {
            ExprKind::Binary(op, ..) => !matches!(op, BinaryOp::Or | BinaryOp::And),
            _ => false,
        }),
        _ => false,
    }
}

/// A segment whose number of axes is said to be that of another one, or a small number.
fn same_axes(zero: &Int) -> Option<(Name, Vec<AxisKind>)> {
    let own = |space: Space| space.path.is_empty().then_some(space.base);
    let mut terms = zero.0.iter();
    let (first, second) = (terms.next()?, terms.next());
    let length = |m: &[Atom]| match m {
        [Atom::Length(space)] => Some(space.clone()),
        _ => None,
    };
    match (first, second, terms.next()) {
        ((m, 1 | -1), None, None) => Some((own(length(m)?)?, vec![])),
        ((none, n), Some((m, c)), None)
            if none.is_empty() && c.abs() == 1 && (0..=MOST_AXES).contains(&(-n * c)) =>
        {
            Some((own(length(m)?)?, vec![AxisKind::One; (-n * c) as usize]))
        }
        ((a, c), Some((b, d)), None) if *c == -d && c.abs() == 1 => {
            // A list whose axes are not known has those of a segment.
            let (a, b) = match (length(a)?, length(b)?) {
                (a, b) if a.loose && !b.loose => (b, a),
                (a, b) => (a, b),
            };
            Some((own(b)?, vec![AxisKind::Each(Some(a))]))
        }
        _ => None,
    }
}
