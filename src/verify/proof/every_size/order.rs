//! Cases of the order of values: maxima, absolute values and comparisons become plain once it is known which of two values is larger.

use super::linear::{Inequality, gcd, is_contradiction, relevant};
use super::list::{Outcome, unsupported};
use super::value::{Factor, Value, Values, add, negative};
use crate::proof::prime_field::{P, inverse, mul};
use mlc_dsl::eval::functions::Function;
use std::collections::BTreeMap;

/// Cases at most.
const MOST_CASES: usize = 300;

/// Coefficients are fractions of numbers below this.
const MOST_FRACTION: u64 = 1 << 20;

/// What is known of the order of values: that each is not below zero, or above it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order(Vec<(Value, bool)>, Vec<Value>);

impl Order {
    /// Learns that a value is not below zero, or above it.
    pub(crate) fn learn(&mut self, v: Value, strict: bool) {
        self.0.push((v, strict));
    }

    /// Learns that a value is zero.
    pub(crate) fn learn_zero(&mut self, v: Value) {
        self.1.push(v);
    }
}

/// How values without comparisons are compared.
type Same<'a> = &'a mut dyn FnMut(&Values, &Value, &Value) -> bool;

impl Values {
    /// True if two values are equal in every order that values may have.
    pub(crate) fn equal_in_every_order(
        &mut self,
        a: &Value,
        b: &Value,
        order: &Order,
        same: Same<'_>,
    ) -> bool {
        let mut left = MOST_CASES;
        self.equal_in(a, b, order, same, &mut left).unwrap_or(false)
    }

    fn equal_in(
        &mut self,
        a: &Value,
        b: &Value,
        order: &Order,
        same: Same<'_>,
        left: &mut usize,
    ) -> Outcome<bool> {
        if *left == 0 {
            return unsupported("it has too many cases");
        }
        *left -= 1;
        // What is zero is left out first.
        if let Some((zero, others)) = order.1.split_last() {
            let mut rest = Order(order.0.clone(), others.to_vec());
            let Some((factor, value)) = self.solved(zero) else {
                return self.equal_in(a, b, &rest, same, left);
            };
            let (a, b) = (self.replaced(a, factor, &value)?, self.replaced(b, factor, &value)?);
            for (v, _) in &mut rest.0 {
                *v = self.replaced(v, factor, &value)?;
            }
            for v in &mut rest.1 {
                *v = self.replaced(v, factor, &value)?;
            }
            return self.equal_in(&a, &b, &rest, same, left);
        }
        let mut open = None;
        let (a, b) = (self.plain(a, order, &mut open)?, self.plain(b, order, &mut open)?);
        if a == b || same(self, &a, &b) {
            return Ok(true);
        }
        let Some(v) = open else { return Ok(false) };
        for v in [v.clone(), negative(&v)] {
            let mut more = order.clone();
            more.learn(v, true);
            if !self.is_void(&more) && !self.equal_in(&a, &b, &more, same, left)? {
                return Ok(false);
            }
        }
        let mut zero = order.clone();
        zero.learn(v.clone(), false);
        zero.learn(negative(&v), false);
        if self.is_void(&zero) {
            return Ok(true);
        }
        if self.solved(&v).is_some() {
            zero = order.clone();
            zero.learn_zero(v);
        }
        self.equal_in(&a, &b, &zero, same, left)
    }

    /// A value in which what the order decides is gone; `open` is a value whose sign decides more.
    fn plain(&mut self, v: &Value, order: &Order, open: &mut Option<Value>) -> Outcome<Value> {
        let mut out = Value::new();
        for (factors, c) in v {
            let mut product = Value::from([(vec![], *c)]);
            for f in factors {
                let factor = self.plain_factor(*f, order, open)?;
                product = self.times(&product, &factor)?;
            }
            out = add(&out, &product);
        }
        Ok(out)
    }

    fn plain_factor(
        &mut self,
        factor: u32,
        order: &Order,
        open: &mut Option<Value>,
    ) -> Outcome<Value> {
        let own = self.get(factor).clone();
        if matches!(own, Factor::Reduce(..)) || own.values().is_empty() {
            return Ok(Value::from([(vec![factor], 1)]));
        }
        self.deeper(|values| values.plain_function(own, order, open))
    }

    fn plain_function(
        &mut self,
        own: Factor,
        order: &Order,
        open: &mut Option<Value>,
    ) -> Outcome<Value> {
        let mut values = Vec::new();
        for v in own.values() {
            values.push(self.plain(v, order, open)?);
        }
        let one = Value::from([(vec![], 1)]);
        let mut sign = |values: &mut Values, v: &Value| {
            let known = values.sign(v, order);
            if known.is_none() && values.is_comparable(v) {
                open.get_or_insert_with(|| {
                    values.open_factor(v, order).unwrap_or_else(|| v.clone())
                });
            }
            known
        };
        match (&own, values.as_slice()) {
            (Factor::Less(..), [a, b]) => {
                if let Some(s) = sign(self, &add(b, &negative(a))) {
                    return Ok(if s > 0 { one } else { Value::new() });
                }
            }
            (Factor::AtMost(..), [a, b]) => {
                if let Some(s) = sign(self, &add(b, &negative(a))) {
                    return Ok(if s >= 0 { one } else { Value::new() });
                }
            }
            (Factor::Equal(..), [a, b]) => {
                if let Some(s) = sign(self, &add(a, &negative(b))) {
                    return Ok(if s == 0 { one } else { Value::new() });
                }
            }
            (Factor::Extreme { largest, .. }, all) => {
                let mut kept: Vec<Value> = Vec::new();
                for v in all {
                    let mut beaten = false;
                    let mut rest = Vec::new();
                    for k in kept {
                        let difference = add(v, &negative(&k));
                        let s = if beaten { None } else { sign(self, &difference) };
                        let s = s.map(|s| if *largest { s } else { -s });
                        match s {
                            Some(s) if s > 0 => {}
                            Some(_) => {
                                beaten = true;
                                rest.push(k);
                            }
                            None => rest.push(k),
                        }
                    }
                    if !beaten {
                        rest.push(v.clone());
                    }
                    kept = rest;
                }
                return Ok(self.extreme(*largest, &kept));
            }
            (Factor::Function(Function::Abs, _), [a]) => match sign(self, a) {
                Some(s) if s >= 0 => return Ok(a.clone()),
                Some(_) => return Ok(negative(a)),
                None => {}
            },
            (Factor::Function(Function::Sign, _), [a]) => match sign(self, a) {
                Some(0) => return Ok(Value::new()),
                Some(s) if s > 0 => return Ok(one),
                Some(_) => return Ok(negative(&one)),
                None => {}
            },
            (Factor::Function(Function::Sqrt, _), [a]) if self.real => {
                // The root of a square is the absolute value.
                let pair = a
                    .first_key_value()
                    .filter(|(f, c)| a.len() == 1 && **c == 1 && f.len() == 2 && f[0] == f[1]);
                if let Some((f, _)) = pair {
                    let of = Value::from([(vec![f[0]], 1)]);
                    match sign(self, &of) {
                        Some(s) if s >= 0 => return Ok(of),
                        Some(_) => return Ok(negative(&of)),
                        None => {}
                    }
                }
            }
            _ => {}
        }
        self.rebuilt(own, values)
    }

    /// The sign of a value: above zero, zero, below; nothing if it is not known.
    fn sign(&mut self, v: &Value, order: &Order) -> Option<i32> {
        if v.is_empty() {
            return Some(0);
        }
        let follows = |values: &mut Values, v: &Value, strict: bool| {
            let mut contrary = order.clone();
            contrary.learn(negative(v), !strict);
            values.is_void_about(&contrary)
        };
        let down = negative(v);
        if follows(self, v, true) {
            return Some(1);
        }
        if let Some((factors, c)) = v.first_key_value().filter(|(f, _)| v.len() == 1 && f.len() > 1)
        {
            let (factors, mut sign) = (factors.clone(), fraction(*c)?.0.signum() as i32);
            for f in factors {
                sign *= self.sign(&Value::from([(vec![f], 1)]), order)?;
            }
            return Some(sign);
        }
        if follows(self, &down, true) {
            return Some(-1);
        }
        (follows(self, v, false) && follows(self, &down, false)).then_some(0)
    }

    /// The first factor of a product whose sign is not known.
    fn open_factor(&mut self, v: &Value, order: &Order) -> Option<Value> {
        let (factors, _) = v.first_key_value().filter(|(f, _)| v.len() == 1 && f.len() > 1)?;
        let single = |f: &u32| Value::from([(vec![*f], 1)]);
        factors.clone().iter().map(single).find(|f| self.sign(f, order).is_none())
    }

    /// True of values whose order says something of both: of integers that wrap around none that are computed.
    fn is_comparable(&self, difference: &Value) -> bool {
        let plain = |f: &u32| !matches!(self.get(*f), Factor::If(_) | Factor::Reduce(..));
        self.real && difference.keys().flatten().all(plain)
            || difference.len() <= 2
                && difference
                    .iter()
                    .all(|(f, c)| f.is_empty() || f.len() == 1 && (*c == 1 || *c == P - 1))
    }

    /// True of an order that no values have.
    fn is_void(&mut self, order: &Order) -> bool {
        is_contradiction(self.inequalities(order), false)
    }

    /// The same as far as it follows from what has to do with what was learned last.
    fn is_void_about(&mut self, order: &Order) -> bool {
        let mut all = self.inequalities(order);
        let Some(last) = order.0.last().and_then(|(v, strict)| self.inequality(v, *strict)) else {
            return false;
        };
        all.retain(|i| *i != last);
        let mut near = relevant(&last, all);
        near.push(last);
        is_contradiction(near, false)
    }

    /// What is known of an order, and of what is never below zero.
    fn inequalities(&mut self, order: &Order) -> Vec<Inequality<Vec<u32>>> {
        let mut out: Vec<_> =
            order.0.iter().filter_map(|(v, strict)| self.inequality(v, *strict)).collect();
        let products: Vec<Vec<u32>> = out.iter().flat_map(|i| i.terms.keys().cloned()).collect();
        for p in products {
            if let Some(strict) = self.is_positive(&p) {
                let one = Inequality { terms: BTreeMap::from([(p, 1)]), strict };
                out.push(one);
            }
        }
        out.sort();
        out.dedup();
        out
    }

    /// Whether a product is above zero, or at least not below it, by what its factors are.
    fn is_positive(&self, product: &[u32]) -> Option<bool> {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        product.iter().for_each(|f| *counts.entry(*f).or_default() += 1);
        if product.is_empty() || !self.real {
            return None;
        }
        counts.into_iter().try_fold(true, |strict, (f, n)| match self.get(f) {
            Factor::Function(Function::Exp, _) => Some(strict),
            Factor::Function(Function::Sqrt | Function::Abs, _) => Some(false),
            Factor::Inverse(v) => {
                let positive = |(f, c): (&Vec<u32>, &u64)| {
                    fraction(*c).is_some_and(|(n, _)| n > 0)
                        && (f.is_empty() || self.is_positive(f) == Some(true))
                };
                let all = v.iter().all(positive);
                if all { Some(strict) } else { (n % 2 == 0).then_some(strict) }
            }
            _ if n % 2 == 0 => Some(false),
            _ if self.is_truth_factor(f) => Some(false),
            _ => None,
        })
    }

    /// A value as an inequality over products of factors; nothing if a coefficient is no small fraction.
    fn inequality(&self, v: &Value, strict: bool) -> Option<Inequality<Vec<u32>>> {
        let fractions = v.iter().map(|(f, c)| Some((f.clone(), fraction(*c)?)));
        let fractions: Vec<(Vec<u32>, (i64, i64))> = fractions.collect::<Option<_>>()?;
        let mut common: i64 = 1;
        for (_, (_, d)) in &fractions {
            common = common.checked_mul(d / gcd(common.unsigned_abs(), d.unsigned_abs()) as i64)?;
        }
        let terms = fractions.into_iter().map(|(f, (n, d))| Some((f, n.checked_mul(common / d)?)));
        Some(Inequality { terms: terms.collect::<Option<_>>()?, strict })
    }

    /// A factor that stands alone in a value, and what it is where the value is zero.
    fn solved(&mut self, v: &Value) -> Option<(u32, Value)> {
        let alone = |f: &u32| {
            matches!(self.get(*f), Factor::Read(..) | Factor::Real(_) | Factor::Function(..))
                && v.keys().flatten().filter(|g| *g == f).count() == 1
                && v.iter().all(|(fs, _)| {
                    fs.len() == 1 && fs[0] == *f || fs.iter().all(|g| !self.contains(*g, *f))
                })
        };
        let single = v.iter().filter(|(f, _)| f.len() == 1).find(|(f, _)| alone(&f[0]));
        let (factors, c) = single.map(|(f, c)| (f.clone(), *c))?;
        if !self.real && c != 1 && c != P - 1 {
            return None;
        }
        let mut rest = v.clone();
        rest.remove(&factors);
        let by = P - inverse(c);
        let value = rest.into_iter().map(|(f, d)| (f, mul(d, by))).collect();
        Some((factors[0], value))
    }

    /// True if a factor is, or is a function of, another.
    fn contains(&self, factor: u32, other: u32) -> bool {
        factor == other
            || self
                .get(factor)
                .values()
                .iter()
                .any(|v| v.keys().flatten().any(|f| self.contains(*f, other)))
    }

    /// A value with another in the place of a factor.
    fn replaced(&mut self, v: &Value, factor: u32, by: &Value) -> Outcome<Value> {
        let mut out = Value::new();
        for (factors, c) in v {
            let mut product = Value::from([(vec![], *c)]);
            for f in factors {
                let own = self.get(*f).clone();
                let new = if *f == factor {
                    by.clone()
                } else if self.contains(*f, factor) {
                    let values = own.values().into_iter().cloned().collect::<Vec<_>>();
                    let values = values
                        .iter()
                        .map(|v| self.replaced(v, factor, by))
                        .collect::<Outcome<_>>()?;
                    match own {
                        Factor::Reduce(..) => return unsupported("a value stands in a sum"),
                        own => self.rebuilt(own, values)?,
                    }
                } else {
                    Value::from([(vec![*f], 1)])
                };
                product = self.times(&product, &new)?;
            }
            out = add(&out, &product);
        }
        Ok(out)
    }
}

/// The small fraction that a number modulo the prime is.
fn fraction(c: u64) -> Option<(i64, i64)> {
    let reconstruct = |c: u64| {
        // Euclid's algorithm, stopped half-way.
        let (mut r, mut s) = ((P, c), (0i64, 1i64));
        while r.1 >= MOST_FRACTION {
            let q = r.0 / r.1;
            r = (r.1, r.0 - q * r.1);
            s = (s.1, s.0.checked_sub((q as i64).checked_mul(s.1)?)?);
        }
        let small = s.1.unsigned_abs() < MOST_FRACTION && s.1 != 0;
        let sign = s.1.signum();
        small.then_some((r.1 as i64 * sign, s.1.abs()))
    };
    reconstruct(c)
}
