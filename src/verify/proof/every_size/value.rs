//! Values of elements as polynomials over factors: elements of variables, functions of values, conditions, and sums that do not
//! come apart.
//!
//! A sum over an index is split into its summands, what does not depend on the index is taken out, conditions on the index become
//! ranges, and what is left is written with indices that are numbered alike however they were named. Coefficients are numbers
//! modulo a prime; conditions and truth values are 1 or 0.

use super::condition::{Condition, Knowledge};
use super::integer::{Atom, Int};
use super::list::{List, Outcome, Space, small, unsupported};
use crate::proof::prime_field::{self, P};
use indexmap::IndexSet;
use itertools::Itertools;
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::Monoid;
use mlc_dsl::ir::DType;
use mlc_dsl::library::Name;
use std::collections::BTreeMap;

/// Summands of a value at most.
pub(super) const MOST: usize = 256;

/// Values in values at most.
const DEPTH: usize = 200;

/// A polynomial: products of factors, by their numbers in order, each with its coefficient.
pub(crate) type Value = BTreeMap<Vec<u32>, u64>;

/// An index of a reduction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Bound {
    /// Its number.
    pub index: u32,
    /// How many values it takes, from zero on.
    pub range: Int,
    /// It stands for an index along each axis of these.
    pub space: Option<Space>,
}

/// What a value is a product of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Factor {
    /// An element of a variable.
    Read(usize, List),
    /// An integer's atom.
    Atom(Atom),
    /// A real number of an attribute.
    Real(Name),
    /// A number that is no small fraction.
    Number(u64),
    /// 1 where the condition holds, else 0.
    If(Condition),
    /// A function of values.
    Function(Function, Vec<Value>),
    /// A function of one value and an element type.
    Convert(DType, Value),
    /// The same to a type that a variable names.
    ConvertTo(Name, Value),
    /// A comparison: 1 where it holds, else 0.
    Less(Value, Value),
    /// `a <= b`.
    AtMost(Value, Value),
    /// `a == b`, in order.
    Equal(Value, Value),
    /// One over a value.
    Inverse(Value),
    /// A power that is no product.
    Power(Value, Value),
    /// The largest of some values, or the smallest.
    Extreme { largest: bool, of: Vec<Value> },
    /// The lowest number of a type.
    Lowest,
    /// A quotient of integers.
    Quotient(Value, Value),
    /// A reduction that does not come apart.
    Reduce(Monoid, Vec<Bound>, Value),
}

/// All factors that have a number.
#[derive(Default)]
pub(crate) struct Values {
    pub(super) factors: IndexSet<Factor>,
    pub(super) next: u32,
    /// Elements are real numbers: division is that of a field.
    pub real: bool,
    /// What is known where values are computed.
    pub knowledge: Knowledge,
    /// Variables whose elements are truth values.
    pub truths: std::collections::BTreeSet<usize>,
    /// How deep values nest in values where one is computed.
    pub(super) depth: usize,
    /// Indices of the reductions around what is computed.
    pub open: Vec<u32>,
}

impl Values {
    /// Computes what lies within a value, unless it nests too deep.
    pub(crate) fn deeper<T>(&mut self, f: impl FnOnce(&mut Values) -> Outcome<T>) -> Outcome<T> {
        self.depth += 1;
        let out = if self.depth > DEPTH { unsupported("it nests too deep") } else { f(self) };
        self.depth -= 1;
        out
    }

    /// A new index.
    pub(crate) fn index(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// A number.
    pub(crate) fn number(&mut self, v: f64) -> Value {
        let size = v.abs();
        let plain = match prime_field::fraction(size).filter(|_| size.is_finite() && size > 0.0) {
            _ if size == size.trunc() && size < 9e15 => Some(size as u64 % P),
            Some((n, d)) if self.real => Some(prime_field::mul(n % P, prime_field::inverse(d % P))),
            _ => None,
        };
        let (factors, coefficient) = match plain {
            Some(0) => return Value::new(),
            Some(n) => (vec![], n),
            None => (vec![self.factor(Factor::Number(size.to_bits()))], 1),
        };
        let coefficient = if v < 0.0 { P - coefficient } else { coefficient };
        Value::from([(factors, coefficient)])
    }

    /// The number of a factor.
    fn factor(&mut self, f: Factor) -> u32 {
        self.factors.insert_full(f).0 as u32
    }

    /// The value that a factor is by itself.
    pub(crate) fn of(&mut self, f: Factor) -> Value {
        match f {
            Factor::If(c) => self.truth(&c),
            f => Value::from([(vec![self.factor(f)], 1)]),
        }
    }

    /// 1 where the condition holds, else 0.
    pub(crate) fn truth(&mut self, c: &Condition) -> Value {
        match self.knowledge.reduced(c) {
            Condition::Known(true) => Value::from([(vec![], 1)]),
            Condition::Known(false) => Value::new(),
            Condition::Not(inner) => {
                let holds = self.truth(&inner);
                complement(&holds)
            }
            Condition::Any(cs) => {
                let none = Condition::All(cs.into_iter().map(Condition::negated).collect());
                let none = self.truth(&none);
                complement(&none)
            }
            c => Value::from([(vec![self.factor(Factor::If(c))], 1)]),
        }
    }

    /// An integer as a value.
    pub(crate) fn integer(&mut self, i: &Int) -> Outcome<Value> {
        let mut out = Value::new();
        for (atoms, c) in &i.0 {
            let mut product = self.number(*c as f64);
            for a in atoms {
                let factor = match a {
                    Atom::Element(v) => match self.factors.get_index(*v as usize) {
                        Some(f) => f.clone(),
                        None => return unsupported("an element is not known"),
                    },
                    _ => Factor::Atom(a.clone()),
                };
                let factor = self.of(factor);
                product = self.times(&product, &factor)?;
            }
            out = add(&out, &product);
        }
        Ok(out)
    }

    /// A value as an integer: what is no integer of the law is an element.
    pub(crate) fn as_integer(&mut self, v: &Value) -> Outcome<Int> {
        let mut out = Int::from(0);
        for (factors, c) in v {
            let coefficient = if *c > P / 2 { -((P - c) as i64) } else { *c as i64 };
            let mut product = Int::from(coefficient);
            for f in factors {
                let atom = match self.factors.get_index(*f as usize) {
                    Some(Factor::Atom(a)) => a.clone(),
                    _ => Atom::Element(*f),
                };
                product = small(product.times(&Int::from(atom)))?;
            }
            out = small(out.plus(1, &product))?;
        }
        Ok(out)
    }

    /// True if the value is of integers of the law alone.
    pub(crate) fn is_integer(&self, v: &Value) -> bool {
        let plain = |f: &u32| matches!(self.factors.get_index(*f as usize), Some(Factor::Atom(_)));
        v.keys().flatten().all(plain) && v.values().all(|c| *c < 1 << 40 || *c > P - (1 << 40))
    }

    /// The product.
    pub(crate) fn times(&mut self, a: &Value, b: &Value) -> Outcome<Value> {
        let mut out = Value::new();
        for ((f, c), (g, d)) in a.iter().cartesian_product(b) {
            let coefficient = prime_field::mul(*c, *d);
            let product = self.product(&[f.as_slice(), g.as_slice()].concat());
            let Some(mut factors) = product else { continue };
            factors.sort_unstable();
            out = add(&out, &Value::from([(factors, coefficient)]));
        }
        match out.len() > MOST {
            true => unsupported("its sums have too many terms"),
            false => Ok(out),
        }
    }

    /// The factors of a product: conditions as one, truth values once, a value and its inverse gone; `None` if it is zero.
    fn product(&mut self, factors: &[u32]) -> Option<Vec<u32>> {
        let mut condition = Condition::Known(true);
        let mut counts: BTreeMap<u32, i64> = BTreeMap::new();
        for f in factors {
            match &self.factors[*f as usize] {
                Factor::If(c) => condition = condition.and(c.clone()),
                _ if self.is_truth_factor(*f) => drop(counts.insert(*f, 1)),
                Factor::Inverse(v) => match v.iter().exactly_one() {
                    Ok((one, 1)) if one.len() == 1 => *counts.entry(one[0]).or_default() -= 1,
                    _ => *counts.entry(*f).or_default() += 1,
                },
                _ => *counts.entry(*f).or_default() += 1,
            }
        }
        // A root times itself is what it is of, if that is one factor.
        let roots: Vec<(u32, u32)> = counts
            .iter()
            .filter(|(_, n)| self.real && n.abs() > 1)
            .filter_map(|(f, _)| match &self.factors[*f as usize] {
                Factor::Function(Function::Sqrt, args) => match args[0].iter().exactly_one() {
                    Ok((of, 1)) if of.len() == 1 => Some((*f, of[0])),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        for (root, of) in roots {
            let n = counts.remove(&root).unwrap_or_default();
            *counts.entry(of).or_default() += n / 2;
            counts.insert(root, n % 2);
        }
        let mut out = Vec::new();
        for (f, n) in counts {
            let each = match n < 0 {
                true => self.factor(Factor::Inverse(Value::from([(vec![f], 1)]))),
                false => f,
            };
            out.extend(std::iter::repeat_n(each, n.unsigned_abs() as usize));
        }
        match self.knowledge.reduced(&joined(condition)) {
            Condition::Known(false) => return None,
            Condition::Known(true) => {}
            c => out.push(self.factor(Factor::If(c))),
        }
        Some(out)
    }

    /// One over a value.
    pub(crate) fn inverse(&mut self, v: &Value) -> Outcome<Value> {
        if let Ok((factors, c)) = v.iter().exactly_one() {
            let mut out = Value::from([(vec![], prime_field::inverse(*c))]);
            for f in factors.clone() {
                let inverse = match self.factors[f as usize].clone() {
                    Factor::Inverse(v) => v,
                    _ => self.of(Factor::Inverse(Value::from([(vec![f], 1)]))),
                };
                out = self.times(&out, &inverse)?;
            }
            return Ok(out);
        }
        if v.is_empty() {
            return unsupported("it divides by zero");
        }
        // The first coefficient is 1, so that multiples have one inverse.
        let (_, first) = v.first_key_value().map(|(f, c)| (f.clone(), *c)).unwrap_or_default();
        let by = prime_field::inverse(first);
        let unit = self.of(Factor::Inverse(scaled(v, by)));
        Ok(scaled(&unit, by))
    }
}

/// `a + b`.
pub(crate) fn add(a: &Value, b: &Value) -> Value {
    let mut out = a.clone();
    for (factors, c) in b {
        let sum = prime_field::add(out.get(factors).copied().unwrap_or(0), *c);
        match sum {
            0 => drop(out.remove(factors)),
            _ => drop(out.insert(factors.clone(), sum)),
        }
    }
    out
}

/// A multiple.
pub(crate) fn scaled(a: &Value, by: u64) -> Value {
    let each = a.iter().map(|(f, c)| (f.clone(), prime_field::mul(*c, by)));
    each.filter(|(_, c)| *c != 0).collect()
}

/// `-a`.
pub(crate) fn negative(a: &Value) -> Value {
    scaled(a, P - 1)
}

/// One less a truth value.
pub(crate) fn complement(a: &Value) -> Value {
    add(&Value::from([(vec![], 1)]), &negative(a))
}

/// A condition in which those for every axis of one space are one.
fn joined(c: Condition) -> Condition {
    let Condition::All(all) = c else { return c };
    let mut spaces: BTreeMap<Space, Condition> = BTreeMap::new();
    let mut out = Condition::Known(true);
    for c in all {
        match c {
            Condition::Every(space, inner) => {
                let known = spaces.remove(&space).unwrap_or(Condition::Known(true));
                spaces.insert(space, known.and(*inner));
            }
            c => out = out.and(c),
        }
    }
    let every = spaces.into_iter().map(|(space, c)| Condition::Every(space, Box::new(c)));
    every.fold(out, Condition::and)
}

impl Values {
    /// The elements of a variable that were met.
    pub(crate) fn reads(&self, var: usize) -> Vec<Value> {
        let of = |(i, f): (usize, &Factor)| match f {
            Factor::Read(v, _) if *v == var => Some(Value::from([(vec![i as u32], 1)])),
            _ => None,
        };
        self.factors.iter().enumerate().filter_map(of).collect()
    }

    /// A factor by its number.
    pub(crate) fn get(&self, factor: u32) -> &Factor {
        &self.factors[factor as usize]
    }

    /// True if an index occurs in a factor.
    pub(crate) fn mentions(&self, factor: u32, index: u32) -> bool {
        let mut found = false;
        self.each_atom(factor, &mut |a| found |= *a == Atom::Index(index));
        found
    }

    /// The atoms of a value.
    pub(crate) fn each_atom_of(&self, v: &Value, f: &mut dyn FnMut(&Atom)) {
        let factors: std::collections::BTreeSet<u32> = v.keys().flatten().copied().collect();
        factors.into_iter().for_each(|factor| self.each_atom(factor, f));
    }

    fn each_atom(&self, factor: u32, f: &mut dyn FnMut(&Atom)) {
        // An element within an integer has atoms of its own.
        let int = &mut |i: &Int| {
            i.each_atom(&mut |a| {
                f(a);
                if let Atom::Element(inner) = a {
                    self.each_atom(*inner, f);
                }
            });
        };
        match self.get(factor) {
            Factor::Read(_, index) => index.each_int(int),
            Factor::Atom(a) => int(&Int::from(a.clone())),
            Factor::If(c) => c.each_int(int),
            Factor::Reduce(_, bounds, body) => {
                bounds.iter().for_each(|b| int(&b.range));
                self.each_atom_of(body, f);
            }
            other => other.values().into_iter().for_each(|v| self.each_atom_of(v, f)),
        }
    }

    /// A value with other integers in the place of atoms.
    pub(crate) fn moved(
        &mut self,
        v: &Value,
        f: &mut dyn FnMut(&Atom) -> Option<Int>,
    ) -> Outcome<Value> {
        let mut out = Value::new();
        for (factors, c) in v {
            let mut product = Value::from([(vec![], *c)]);
            for factor in factors {
                let moved = self.moved_factor(*factor, f)?;
                product = self.times(&product, &moved)?;
            }
            out = add(&out, &product);
        }
        Ok(out)
    }

    fn moved_factor(
        &mut self,
        factor: u32,
        f: &mut dyn FnMut(&Atom) -> Option<Int>,
    ) -> Outcome<Value> {
        self.deeper(|values| values.moved_within(factor, f))
    }

    fn moved_within(
        &mut self,
        factor: u32,
        f: &mut dyn FnMut(&Atom) -> Option<Int>,
    ) -> Outcome<Value> {
        let own = self.get(factor).clone();
        // Elements within integers are moved, too.
        let mut elements = Vec::new();
        self.each_element(&own, &mut |n| elements.push(n));
        let mut known: BTreeMap<u32, Int> = BTreeMap::new();
        for n in elements {
            let moved = self.moved_factor(n, f)?;
            known.insert(n, self.as_integer(&moved)?);
        }
        let f = &mut |a: &Atom| match a {
            Atom::Element(n) => known.get(n).cloned(),
            _ => f(a),
        };
        Ok(match own {
            Factor::Read(var, index) => match index.substituted(f) {
                Some(index) => self.of(Factor::Read(var, index)),
                None => return unsupported("its numbers grow too large"),
            },
            Factor::Atom(a) => {
                let moved = small(Int::from(a).substituted(f))?;
                self.integer(&moved)?
            }
            Factor::If(c) => match c.substituted(f) {
                Some(c) => self.truth(&c),
                None => return unsupported("its numbers grow too large"),
            },
            Factor::Reduce(monoid, bounds, body) => {
                let mut moved = Vec::new();
                for b in bounds {
                    moved.push(Bound { range: small(b.range.substituted(f))?, ..b });
                }
                let body = self.moved(&body, f)?;
                self.of(Factor::Reduce(monoid, moved, body))
            }
            other => {
                let values = other.values().into_iter().cloned().collect::<Vec<_>>();
                let values =
                    values.iter().map(|v| self.moved(v, f)).collect::<Outcome<Vec<_>>>()?;
                self.rebuilt(other, values)?
            }
        })
    }

    fn each_element(&self, factor: &Factor, f: &mut dyn FnMut(u32)) {
        let int = &mut |i: &Int| {
            i.each_atom(&mut |a| {
                if let Atom::Element(n) = a {
                    f(*n);
                }
            });
        };
        match factor {
            Factor::Read(_, index) => index.each_int(int),
            Factor::Atom(a) => int(&Int::from(a.clone())),
            Factor::If(c) => c.each_int(int),
            Factor::Reduce(_, bounds, _) => bounds.iter().for_each(|b| int(&b.range)),
            _ => {}
        }
    }
}

impl Factor {
    /// The values that it is a function of.
    pub(crate) fn values(&self) -> Vec<&Value> {
        match self {
            Factor::Function(_, values) | Factor::Extreme { of: values, .. } => {
                values.iter().collect()
            }
            Factor::Convert(_, v) | Factor::ConvertTo(_, v) | Factor::Inverse(v) => vec![v],
            Factor::Less(a, b)
            | Factor::AtMost(a, b)
            | Factor::Equal(a, b)
            | Factor::Power(a, b)
            | Factor::Quotient(a, b) => vec![a, b],
            Factor::Reduce(_, _, body) => vec![body],
            Factor::Read(..)
            | Factor::Atom(_)
            | Factor::Real(_)
            | Factor::Number(_)
            | Factor::If(_)
            | Factor::Lowest => vec![],
        }
    }
}
