//! Conditions on integers, and what is known of them.

use super::integer::{Atom, Int};
use super::linear::{self, Inequality};
use super::list::{Space, Subset};
use mlc_dsl::library::Name;
use std::collections::{BTreeMap, BTreeSet};

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Condition {
    /// It holds or does not.
    Known(bool),
    /// The integer is not below zero.
    AtLeastZero(Int),
    /// The integer is zero.
    Zero(Int),
    /// It holds for every axis of a space.
    Every(Space, Box<Condition>),
    /// A truth value of which nothing is known.
    Attr(Name),
    /// It does not hold.
    Not(Box<Condition>),
    /// All hold.
    All(BTreeSet<Condition>),
    /// One holds.
    Any(BTreeSet<Condition>),
}

use Condition::{All, Any, AtLeastZero, Every, Known, Not, Zero};

impl Condition {
    /// It holds alone, or for every axis of a space.
    pub(crate) fn at(self, space: Option<&Space>) -> Condition {
        match space {
            None => self,
            Some(space) => Every(space.clone(), Box::new(self)),
        }
    }

    /// The contrary.
    pub(crate) fn negated(self) -> Condition {
        match self {
            Known(b) => Known(!b),
            AtLeastZero(i) => match Int::from(-1).plus(-1, &i) {
                Some(below) => AtLeastZero(below),
                None => Not(Box::new(AtLeastZero(i))),
            },
            Not(c) => *c,
            All(cs) => Any(cs.into_iter().map(Condition::negated).collect()),
            Any(cs) => All(cs.into_iter().map(Condition::negated).collect()),
            c @ (Zero(_) | Every(..) | Condition::Attr(_)) => Not(Box::new(c)),
        }
    }

    /// Both hold.
    pub(crate) fn and(self, other: Condition) -> Condition {
        match (self, other) {
            (Known(true), c) | (c, Known(true)) => c,
            (Known(false), _) | (_, Known(false)) => Known(false),
            (All(mut a), All(b)) => {
                a.extend(b);
                All(a)
            }
            (All(mut a), b) | (b, All(mut a)) => {
                a.insert(b);
                All(a)
            }
            (a, b) if a == b => a,
            (a, b) => All(BTreeSet::from([a, b])),
        }
    }

    /// One holds.
    pub(crate) fn or(self, other: Condition) -> Condition {
        self.negated().and(other.negated()).negated()
    }

    /// Calls `f` with every integer.
    pub(crate) fn each_int(&self, f: &mut dyn FnMut(&Int)) {
        match self {
            Known(_) | Condition::Attr(_) => {}
            AtLeastZero(i) | Zero(i) => f(i),
            Every(_, c) | Not(c) => c.each_int(f),
            All(cs) | Any(cs) => cs.iter().for_each(|c| c.each_int(f)),
        }
    }

    /// With other integers in the place of atoms.
    pub(crate) fn substituted(&self, f: &mut dyn FnMut(&Atom) -> Option<Int>) -> Option<Condition> {
        Some(match self {
            Known(_) | Condition::Attr(_) => self.clone(),
            AtLeastZero(i) => AtLeastZero(i.substituted(f)?),
            Zero(i) => Zero(i.substituted(f)?),
            Every(space, c) => Every(space.clone(), Box::new(c.substituted(f)?)),
            Not(c) => Not(Box::new(c.substituted(f)?)),
            All(cs) => All(cs.iter().map(|c| c.substituted(f)).collect::<Option<_>>()?),
            Any(cs) => Any(cs.iter().map(|c| c.substituted(f)).collect::<Option<_>>()?),
        })
    }
}

/// Indices whose ends are looked at together at most.
const ENDS: usize = 2;

/// What is known: of integers, of the entries for some axis of each segment, and of conditions that are not reduced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knowledge {
    single: Vec<Int>,
    every: BTreeMap<Subset, Vec<Int>>,
    nonzero: Vec<Int>,
    no: Vec<Condition>,
    yes: BTreeSet<Condition>,
    /// The last value of each index.
    last: BTreeMap<u32, Int>,
}

/// Where integers stand: alone, or as entries for some axis of a segment.
type Place<'a> = Option<&'a Space>;

impl Knowledge {
    /// The inequalities of a place: those of its segment, and those of integers that stand alone.
    fn inequalities(&self, place: Place<'_>) -> Vec<&Int> {
        let own = place.map(Space::subset);
        // What holds of all axes of a segment holds of those that are picked.
        let all =
            place.map(|p| Space::segment(&p.base).subset()).filter(|a| Some(a) != own.as_ref());
        let known = [own, all].into_iter().flatten().filter_map(|s| self.every.get(&s)).flatten();
        self.single.iter().chain(known).collect()
    }

    /// True if what is known contradicts itself: then everything follows.
    pub(crate) fn is_contradiction(&self) -> bool {
        linear::is_contradiction(self.inequalities(None).into_iter().map(at_least_zero), true)
    }

    /// Learns a condition.
    pub(crate) fn learn(&mut self, c: &Condition) {
        self.learn_at(c, None);
    }

    fn learn_at(&mut self, c: &Condition, place: Place<'_>) {
        match c {
            Known(true) => {}
            // Whatever contradicts itself.
            Known(false) => self.push(Int::from(-1), None),
            AtLeastZero(i) => self.push(i.clone(), place),
            Zero(i) => {
                self.push(i.clone(), place);
                if let Some(below) = Int::default().plus(-1, i) {
                    self.push(below, place);
                }
            }
            Every(space, c) => self.learn_at(c, Some(space)),
            All(cs) => cs.iter().for_each(|c| self.learn_at(c, place)),
            Not(inner) => {
                if let Zero(i) = &**inner {
                    self.nonzero.push(i.clone());
                }
                if place.is_none() {
                    self.no.push((**inner).clone());
                }
            }
            // One of them: known where all others are known not to hold.
            Any(_) | Condition::Attr(_) if place.is_none() => drop(self.yes.insert(c.clone())),
            Any(_) | Condition::Attr(_) => {}
        }
    }

    fn push(&mut self, i: Int, place: Place<'_>) {
        match place {
            None => self.single.push(i),
            Some(space) => self.every.entry(space.subset()).or_default().push(i),
        }
    }

    /// Whether a condition holds, if that is known.
    pub(crate) fn decide(&self, c: &Condition) -> Option<bool> {
        self.decide_at(c, None)
    }

    fn decide_at(&self, c: &Condition, place: Place<'_>) -> Option<bool> {
        if place.is_none() && (self.yes.contains(c) || self.no.contains(c)) {
            return Some(self.yes.contains(c));
        }
        match c {
            Known(b) => Some(*b),
            AtLeastZero(i) => self.sign(i, place),
            Zero(i) => {
                let below = Int::default().plus(-1, i)?;
                match (self.sign(i, place), self.sign(&below, place)) {
                    (Some(true), Some(true)) => Some(true),
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    _ if self.nonzero.contains(i) || self.nonzero.contains(&below) => Some(false),
                    _ => None,
                }
            }
            Every(space, inner) => {
                if self.decide_at(inner, Some(space)) == Some(true) {
                    return Some(true);
                }
                // It would imply what is known not to hold for every axis.
                let implied = |no: &Condition| match no {
                    Every(other, no) if other.subset() == space.subset() => {
                        let mut more = self.clone();
                        more.learn_at(inner, Some(space));
                        more.decide_at(no, Some(space)) == Some(true)
                    }
                    _ => false,
                };
                self.no.iter().any(implied).then_some(false)
            }
            Condition::Attr(_) => None,
            Not(c) => self.decide_at(c, place).map(|b| !b),
            All(cs) => {
                let all: Vec<Option<bool>> = cs.iter().map(|c| self.decide_at(c, place)).collect();
                match all.contains(&Some(false)) {
                    true => Some(false),
                    false => all.iter().all(|b| *b == Some(true)).then_some(true),
                }
            }
            Any(cs) => {
                let any: Vec<Option<bool>> = cs.iter().map(|c| self.decide_at(c, place)).collect();
                match any.contains(&Some(true)) {
                    true => Some(true),
                    false => any.iter().all(|b| *b == Some(false)).then_some(false),
                }
            }
        }
    }

    /// Whether an integer is not below zero, if that is known.
    fn sign(&self, i: &Int, place: Place<'_>) -> Option<bool> {
        let known = self.inequalities(place);
        if follows(i, &known) {
            return Some(true);
        }
        let below = Int::from(-1).plus(-1, i)?;
        if follows(&below, &known) {
            return Some(false);
        }
        match (self.at_ends(i, &known, ENDS), self.at_ends(&below, &known, ENDS)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// True if an integer that is linear in an index is not below zero at both ends of the index's range.
    fn at_ends(&self, i: &Int, known: &[&Int], depth: usize) -> bool {
        if follows(i, known) {
            return true;
        }
        let mut products: Vec<u32> = Vec::new();
        for m in i.0.keys().filter(|m| m.len() > 1) {
            products.extend(m.iter().filter_map(|a| match a {
                Atom::Index(n) => Some(*n),
                _ => None,
            }));
        }
        depth > 0
            && products.iter().any(|n| {
                let (Some(last), index) = (self.last.get(n), Atom::Index(*n)) else { return false };
                let linear = i.0.keys().all(|m| m.iter().filter(|a| **a == index).count() < 2);
                let ends = [Some(Int::from(0)), Some(last.clone())];
                linear
                    && ends.into_iter().flatten().all(|end| {
                        let at = i.substituted(&mut |a| (*a == index).then(|| end.clone()));
                        at.is_some_and(|at| self.at_ends(&at, known, depth - 1))
                    })
            })
    }

    /// The last value of an index.
    pub(crate) fn learn_last(&mut self, index: u32, last: Int) {
        self.last.insert(index, last);
    }

    /// A condition whose parts that are known to hold are left out, and those that others imply.
    pub(crate) fn reduced(&self, c: &Condition) -> Condition {
        match self.decide(c) {
            Some(b) => Known(b),
            None => match c {
                All(cs) => self.least_at(cs, None),
                Every(space, inner) => match &**inner {
                    All(cs) => Every(space.clone(), Box::new(self.least_at(cs, Some(space)))),
                    _ => c.clone(),
                },
                _ => c.clone(),
            },
        }
    }

    fn least_at(&self, cs: &BTreeSet<Condition>, place: Place<'_>) -> Condition {
        let mut kept: BTreeSet<Condition> = cs.clone();
        for c in cs {
            let mut others = self.clone();
            kept.iter().filter(|k| *k != c).for_each(|k| others.learn_at(k, place));
            if others.decide_at(c, place) == Some(true) {
                kept.remove(c);
            }
        }
        let only = kept.first().filter(|_| kept.len() == 1).cloned();
        only.unwrap_or(All(kept))
    }
}

fn at_least_zero(i: &Int) -> Inequality<Vec<Atom>> {
    Inequality::at_least_zero(i.0.clone())
}

/// True if `i >= 0` follows from integers that are not below zero: its contrary contradicts them.
fn follows(i: &Int, known: &[&Int]) -> bool {
    let known: Vec<Inequality<Vec<Atom>>> = known.iter().map(|k| at_least_zero(k)).collect();
    if let Some(n) = i.number() {
        return n >= 0 || linear::is_contradiction(known, true);
    }
    let Some(contrary) = Int::from(-1).plus(-1, i) else { return false };
    let contrary = at_least_zero(&contrary);
    let mut all = linear::relevant(&contrary, known);
    all.push(contrary);
    linear::is_contradiction(all, true)
}
