//! Functions of values, written so that equal ones meet: operands in order, signs outside, powers as products.

use super::condition::Condition;
use super::list::{Outcome, unsupported};
use super::value::{Factor, Value, Values, add, complement, negative, scaled};
use crate::proof::prime_field::P;
use mlc_dsl::eval::functions::Function;
use std::collections::BTreeSet;

/// Powers up to this one are products.
const MOST_POWER: u64 = 8;

/// Truth values that are tried in all ways.
const MOST_TRUTHS: usize = 6;

impl Values {
    /// A factor with other values in the place of those that it is a function of.
    pub(crate) fn rebuilt(&mut self, factor: Factor, values: Vec<Value>) -> Outcome<Value> {
        let mut values = values.into_iter();
        let mut next = || values.next().unwrap_or_default();
        match factor {
            Factor::Function(f, args) => {
                let args = args.iter().map(|_| next()).collect();
                self.function(f, args)
            }
            Factor::Extreme { largest, of } => {
                let of: Vec<Value> = of.iter().map(|_| next()).collect();
                Ok(self.extreme(largest, &of))
            }
            Factor::Convert(d, _) => Ok(self.of(Factor::Convert(d, next()))),
            Factor::ConvertTo(n, _) => Ok(self.of(Factor::ConvertTo(n, next()))),
            Factor::Inverse(_) => self.inverse(&next()),
            Factor::Less(..) => Ok(self.of(Factor::Less(next(), next()))),
            Factor::AtMost(..) => Ok(self.of(Factor::AtMost(next(), next()))),
            Factor::Equal(..) => Ok(self.equal(next(), next())),
            Factor::Power(..) => self.power(&next(), &next()),
            Factor::Quotient(..) => self.quotient(&next(), &next()),
            other => Ok(self.of(other)),
        }
    }

    /// A function of elements.
    pub(crate) fn function(&mut self, f: Function, args: Vec<Value>) -> Outcome<Value> {
        let even = matches!(f, Function::Abs | Function::Cos);
        let odd = self.real
            && matches!(
                f,
                Function::Sin
                    | Function::Tan
                    | Function::Asin
                    | Function::Atan
                    | Function::Asinh
                    | Function::Atanh
                    | Function::Erf
                    | Function::Sign
            );
        match (f, args.as_slice()) {
            (Function::Recip, [a]) => self.inverse(a),
            (Function::Exp, [a]) if self.real => self.exponential(a),
            (Function::Log, [a]) if self.real => self.logarithm(a),
            (Function::Tanh, [a]) if self.real => {
                // 2 / (1 + exp(-2a)) - 1
                let back = self.exponential(&scaled(a, P - 2))?;
                let one = Value::from([(vec![], 1)]);
                let inverse = self.inverse(&add(&one, &back))?;
                Ok(add(&scaled(&inverse, 2), &negative(&one)))
            }
            (Function::Sinh | Function::Cosh, [a]) if self.real => {
                let (up, down) = (self.exponential(a)?, self.exponential(&negative(a))?);
                let down = if f == Function::Sinh { negative(&down) } else { down };
                Ok(scaled(&add(&up, &down), crate::proof::prime_field::inverse(2)))
            }
            (Function::Tan, [a]) if self.real => {
                let sine = self.function(Function::Sin, vec![a.clone()])?;
                let cosine = self.function(Function::Cos, vec![a.clone()])?;
                self.quotient(&sine, &cosine)
            }
            (Function::Rsqrt, [a]) => {
                let root = self.of(Factor::Function(Function::Sqrt, vec![a.clone()]));
                self.inverse(&root)
            }
            (Function::Sqrt, [a]) if self.real => {
                let only =
                    a.first_key_value().filter(|(f, c)| a.len() == 1 && f.len() == 1 && **c == 1);
                let of = only.map(|(f, _)| self.get(f[0]).clone());
                match of {
                    Some(Factor::Inverse(v)) => {
                        let root = self.function(Function::Sqrt, vec![v])?;
                        self.inverse(&root)
                    }
                    _ => Ok(self.of(Factor::Function(f, args))),
                }
            }
            (Function::Maximum, [a, b]) => Ok(self.extreme(true, &[a.clone(), b.clone()])),
            (Function::Minimum, [a, b]) => Ok(self.extreme(false, &[a.clone(), b.clone()])),
            (_, [a]) if (even || odd) && leads_negative(a) => {
                let positive = self.of(Factor::Function(f, vec![negative(a)]));
                Ok(if odd { negative(&positive) } else { positive })
            }
            (_, [a]) if odd && a.is_empty() => Ok(Value::new()),
            (Function::BitAnd | Function::BitOr | Function::BitXor, [a, b]) if b < a => {
                Ok(self.of(Factor::Function(f, vec![b.clone(), a.clone()])))
            }
            _ => Ok(self.of(Factor::Function(f, args))),
        }
    }

    /// The exponential of a sum as a product.
    fn exponential(&mut self, a: &Value) -> Outcome<Value> {
        let mut out = Value::from([(vec![], 1)]);
        for (factors, c) in a {
            let one = Value::from([(factors.clone(), 1)]);
            let times = match (*c, P - *c) {
                _ if factors.is_empty() => None,
                (n, _) if n <= MOST_POWER => Some(n as i64),
                (_, n) if n <= MOST_POWER => Some(-(n as i64)),
                _ => None,
            };
            let (base, times) = match times {
                Some(n) => (one, n),
                // Of a multiple and its negative one is the inverse of the other.
                None if *c > P / 2 => (Value::from([(factors.clone(), P - *c)]), -1),
                None => (Value::from([(factors.clone(), *c)]), 1),
            };
            let base = self.of(Factor::Function(Function::Exp, vec![base]));
            let base = if times < 0 { self.inverse(&base)? } else { base };
            for _ in 0..times.abs() {
                out = self.times(&out, &base)?;
            }
        }
        Ok(out)
    }

    /// The logarithm; of a product of exponentials the sum of what they are of.
    fn logarithm(&mut self, a: &Value) -> Outcome<Value> {
        let plain = self.of(Factor::Function(Function::Log, vec![a.clone()]));
        let Some((factors, 1)) = a.first_key_value().filter(|_| a.len() == 1) else {
            return Ok(plain);
        };
        let mut out = Value::new();
        for f in factors {
            let (base, sign) = match self.get(*f) {
                Factor::Inverse(v) => (v.clone(), P - 1),
                _ => (Value::from([(vec![*f], 1)]), 1),
            };
            let only = base.first_key_value().filter(|(f, c)| f.len() == 1 && **c == 1);
            let of = only.map(|(f, _)| self.get(f[0]).clone()).filter(|_| base.len() == 1);
            let log = match of {
                Some(Factor::Function(Function::Exp, args)) => {
                    args.into_iter().next().unwrap_or_default()
                }
                _ if factors.len() == 1 && sign != 1 => {
                    self.of(Factor::Function(Function::Log, vec![base]))
                }
                _ => return Ok(plain),
            };
            out = add(&out, &scaled(&log, sign));
        }
        Ok(out)
    }

    /// The largest of some values, or the smallest, whatever their order, nesting and repetitions.
    pub(crate) fn extreme(&mut self, largest: bool, values: &[Value]) -> Value {
        let mut all: BTreeSet<Value> = BTreeSet::new();
        for v in values {
            match v.iter().next().filter(|_| v.len() == 1) {
                Some((f, 1)) if f.len() == 1 => match self.get(f[0]) {
                    Factor::Extreme { largest: same, of } if *same == largest => {
                        all.extend(of.iter().cloned());
                    }
                    Factor::Lowest if largest => {}
                    _ => drop(all.insert(v.clone())),
                },
                _ => drop(all.insert(v.clone())),
            }
        }
        match all.len() {
            0 => self.of(Factor::Lowest),
            1 => all.pop_first().unwrap_or_default(),
            _ => {
                let of = all.into_iter().collect();
                self.of(Factor::Extreme { largest, of })
            }
        }
    }

    /// 1 where both are equal.
    pub(crate) fn equal(&mut self, a: Value, b: Value) -> Value {
        // No real number is infinite.
        if self.real && [&a, &b].into_iter().any(|v| self.is_infinite(v)) && a != b {
            return Value::new();
        }
        match a.cmp(&b) {
            std::cmp::Ordering::Equal => Value::from([(vec![], 1)]),
            std::cmp::Ordering::Less => self.of(Factor::Equal(a, b)),
            std::cmp::Ordering::Greater => self.of(Factor::Equal(b, a)),
        }
    }

    fn is_infinite(&self, v: &Value) -> bool {
        let infinite = |f: &u32| *self.get(*f) == Factor::Number(f64::INFINITY.to_bits());
        v.len() == 1 && v.keys().all(|f| f.len() == 1 && infinite(&f[0]))
    }

    /// A power.
    pub(crate) fn power(&mut self, a: &Value, b: &Value) -> Outcome<Value> {
        let number = match b.iter().next() {
            None => Some(0),
            Some((f, c)) if f.is_empty() && b.len() == 1 => Some(*c),
            Some(_) => None,
        };
        let times = |values: &mut Values, n: u64| {
            (0..n).try_fold(Value::from([(vec![], 1)]), |out, _| values.times(&out, a))
        };
        match number {
            Some(n) if n <= MOST_POWER => times(self, n),
            Some(n) if self.real && P - n <= MOST_POWER => {
                let positive = times(self, P - n)?;
                self.inverse(&positive)
            }
            _ => Ok(self.of(Factor::Power(a.clone(), b.clone()))),
        }
    }

    /// A quotient.
    pub(crate) fn quotient(&mut self, a: &Value, b: &Value) -> Outcome<Value> {
        if !self.real {
            return Ok(match b.iter().next() {
                Some((f, 1)) if f.is_empty() && b.len() == 1 => a.clone(),
                _ => self.of(Factor::Quotient(a.clone(), b.clone())),
            });
        }
        let inverse = self.inverse(b)?;
        self.times(a, &inverse)
    }

    /// True of a value that is 1 or 0, whatever its factors are.
    pub(crate) fn is_truth(&self, v: &Value) -> bool {
        let factors: BTreeSet<u32> = v.keys().flatten().copied().collect();
        if factors.len() > MOST_TRUTHS || !factors.iter().all(|f| self.is_truth_factor(*f)) {
            return false;
        }
        let factors: Vec<u32> = factors.into_iter().collect();
        (0u32..1 << factors.len()).all(|way| {
            let holds =
                |f: &u32| factors.iter().position(|g| g == f).is_some_and(|i| way >> i & 1 == 1);
            let terms = v.iter().filter(|(fs, _)| fs.iter().all(holds));
            let sum = terms.fold(0, |sum, (_, c)| crate::proof::prime_field::add(sum, *c));
            sum <= 1
        })
    }

    /// True of a factor that is 1 or 0.
    pub(crate) fn is_truth_factor(&self, factor: u32) -> bool {
        match self.get(factor) {
            Factor::If(_) | Factor::Less(..) | Factor::AtMost(..) | Factor::Equal(..) => true,
            Factor::Read(var, _) => self.truths.contains(var),
            _ => false,
        }
    }

    /// One of two values: the first where a truth value is 1.
    pub(crate) fn choice(&mut self, c: &Value, a: &Value, b: &Value) -> Outcome<Value> {
        let chosen = self.times(c, a)?;
        let other = self.times(&complement(c), b)?;
        Ok(add(&chosen, &other))
    }

    /// The same where a condition holds.
    pub(crate) fn chosen(&mut self, c: Condition, a: &Value, b: &Value) -> Outcome<Value> {
        let (holds, not) = (self.truth(&c), self.truth(&c.negated()));
        let chosen = self.times(&holds, a)?;
        let other = self.times(&not, b)?;
        Ok(add(&chosen, &other))
    }

    /// One of them holds.
    pub(crate) fn either(&mut self, a: &Value, b: &Value) -> Outcome<Value> {
        let both = self.times(a, b)?;
        Ok(add(&add(a, b), &scaled(&both, P - 1)))
    }
}

/// True if the first coefficient is that of a negative number.
fn leads_negative(a: &Value) -> bool {
    a.first_key_value().is_some_and(|(_, c)| *c > P / 2)
}

/// Functions that no value is known of.
pub(crate) fn refuse<T>(f: Function) -> Outcome<T> {
    unsupported(format!("`{f}` is not followed"))
}
