//! Arithmetic modulo a prime: rational arithmetic is exact, every other function is a keyed hash of
//! its arguments, normalised so that identities of the real functions also hold for the hashes
//! (an odd function is odd, a maximum does not depend on the order of its operands).

use mlc_backends::reference::{Algebra, Cmp, RealOp};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::ir::DType;
use std::collections::{BTreeSet, HashMap};

/// 2^61 - 1, a prime.
pub(crate) const P: u64 = (1 << 61) - 1;

/// Powers up to this one are computed by multiplication.
const MOST_POWER: u64 = 64;

/// Literals are taken for fractions of numbers below these, else for numbers about which nothing is known.
const MOST_DENOMINATOR: u64 = 1 << 20;
const MOST_NUMERATOR: f64 = (1u64 << 40) as f64;

/// The value of a rational function of the inputs and of hashed values, with bounds of its degree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldElement {
    /// Its value at the point.
    pub value: u64,
    /// At most the degree of the numerator.
    pub top: u64,
    /// At most the degree of the denominator.
    pub bottom: u64,
}

/// The field at one point.
#[derive(Debug)]
pub(crate) struct Field {
    key: u64,
    /// Values that were hashed.
    pub hashed: u64,
    /// The largest degree of an argument of a hash.
    pub deepest: u64,
    leaves: HashMap<u64, BTreeSet<u64>>,
}

pub(crate) fn add(a: u64, b: u64) -> u64 {
    let s = a + b;
    if s >= P { s - P } else { s }
}

fn sub(a: u64, b: u64) -> u64 {
    add(a, P - b)
}

pub(crate) fn mul(a: u64, b: u64) -> u64 {
    let w = u128::from(a) * u128::from(b);
    add((w as u64) & P, (w >> 61) as u64 % P)
}

fn power(mut a: u64, mut n: u64) -> u64 {
    let mut out = 1;
    while n > 0 {
        if n & 1 == 1 {
            out = mul(out, a);
        }
        a = mul(a, a);
        n >>= 1;
    }
    out
}

pub(crate) fn inverse(a: u64) -> u64 {
    power(a, P - 2)
}

/// One bit pattern out of two, reproducibly.
fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(23) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The simplest fraction within half a unit in the last place of a positive number, by continued
/// fractions; `None` if it is none of small numbers.
pub(crate) fn fraction(v: f64) -> Option<(u64, u64)> {
    let within = (f64::from_bits(v.to_bits() + 1) - v) / 2.0;
    let (mut h, mut k) = ((0u64, 1u64), (1u64, 0u64));
    let mut rest = v;
    for _ in 0..40 {
        let whole = rest.floor();
        if whole >= MOST_NUMERATOR {
            return None;
        }
        let next = |(before, last): (u64, u64)| {
            (whole as u64).checked_mul(last).and_then(|p| p.checked_add(before))
        };
        (h, k) = ((h.1, next(h)?), (k.1, next(k)?));
        if k.1 > MOST_DENOMINATOR || h.1 as f64 >= MOST_NUMERATOR {
            return None;
        }
        if (h.1 as f64 / k.1 as f64 - v).abs() <= within {
            return Some((h.1, k.1));
        }
        rest = 1.0 / (rest - whole);
    }
    None
}

impl FieldElement {
    /// A number that is the same at every point.
    fn fixed(value: u64) -> FieldElement {
        FieldElement { value, top: 0, bottom: 0 }
    }

    /// A whole number.
    pub(crate) fn whole(v: f64) -> FieldElement {
        let size = FieldElement::fixed(v.abs() as u64 % P);
        if v < 0.0 { size.negative() } else { size }
    }

    /// An input or a hash: a variable.
    pub(crate) fn variable(value: u64) -> FieldElement {
        FieldElement { value, top: 1, bottom: 0 }
    }

    /// The degree of the difference's numerator.
    pub(crate) fn apart(&self, other: &FieldElement) -> u64 {
        let left = self.top.saturating_add(other.bottom);
        left.max(other.top.saturating_add(self.bottom))
    }

    fn negative(self) -> FieldElement {
        FieldElement { value: sub(0, self.value), ..self }
    }

    fn sum(self, other: FieldElement, value: u64) -> FieldElement {
        let bottom = match (self.bottom, other.bottom) {
            (0, d) | (d, 0) => d,
            (a, b) => a.saturating_add(b),
        };
        FieldElement { value, top: self.apart(&other), bottom }
    }

    fn times(self, other: FieldElement) -> FieldElement {
        FieldElement {
            value: mul(self.value, other.value),
            top: self.top.saturating_add(other.top),
            bottom: self.bottom.saturating_add(other.bottom),
        }
    }

    fn inverted(self) -> Result<FieldElement, String> {
        match self.value {
            0 => Err(POLE.into()),
            v => Ok(FieldElement { value: inverse(v), top: self.bottom, bottom: self.top }),
        }
    }
}

/// The point lies on a pole; another one may not.
pub(crate) const POLE: &str = "a denominator is zero at this point";

impl Field {
    /// The field at the point of a key.
    pub(crate) fn at(key: u64) -> Field {
        Field { key, hashed: 0, deepest: 0, leaves: HashMap::new() }
    }

    /// The hash of a function's name and arguments.
    fn hash(&mut self, name: &str, args: &[FieldElement]) -> FieldElement {
        let mut h = self.key;
        for b in name.bytes() {
            h = mix(h, u64::from(b));
        }
        for a in args {
            h = mix(h, a.value);
            self.deepest = self.deepest.max(a.top.saturating_add(a.bottom));
        }
        self.hashed += 1;
        FieldElement::variable(mix(h, 0x5bd1) % P)
    }

    fn even(&mut self, name: &str, a: FieldElement) -> FieldElement {
        let a = if a.value > P / 2 { a.negative() } else { a };
        self.hash(name, &[a])
    }

    fn odd(&mut self, name: &str, a: FieldElement) -> FieldElement {
        match a.value {
            0 => FieldElement::fixed(0),
            v if v > P / 2 => self.hash(name, &[a.negative()]).negative(),
            _ => self.hash(name, &[a]),
        }
    }

    /// `exp(-x)` is `1 / exp(x)`.
    fn exp(&mut self, a: FieldElement) -> Result<FieldElement, String> {
        match a.value {
            0 => Ok(FieldElement::fixed(1)),
            v if v > P / 2 => self.hash("exp", &[a.negative()]).inverted(),
            _ => Ok(self.hash("exp", &[a])),
        }
    }

    /// 1 if the number is above zero, else 0.
    fn positive(&mut self, a: FieldElement) -> FieldElement {
        if a.value == 0 { FieldElement::fixed(0) } else { self.hash("positive", &[a]) }
    }

    fn difference(a: FieldElement, b: FieldElement) -> FieldElement {
        a.sum(b, sub(a.value, b.value))
    }

    fn complement(a: FieldElement) -> FieldElement {
        Field::difference(FieldElement::fixed(1), a)
    }

    /// The largest of a set, whatever its order, nesting and repetitions.
    fn largest(&mut self, a: FieldElement, b: FieldElement) -> FieldElement {
        let lowest = self.infinity().negative().value;
        let of = |f: &Field, n: &FieldElement| match f.leaves.get(&n.value) {
            Some(set) => set.clone(),
            None if n.value == lowest => BTreeSet::new(),
            None => BTreeSet::from([n.value]),
        };
        let mut set = of(self, &a);
        set.extend(of(self, &b));
        if set.len() <= 1 {
            return match set.first() {
                Some(v) if *v == a.value => a,
                Some(_) => b,
                None => a,
            };
        }
        let degrees =
            |value| FieldElement { value, top: a.top.max(b.top), bottom: a.bottom.max(b.bottom) };
        let args: Vec<FieldElement> = set.iter().map(|v| degrees(*v)).collect();
        let out = self.hash("max", &args);
        self.leaves.insert(out.value, set);
        out
    }

    fn infinity(&mut self) -> FieldElement {
        self.hash("constant", &[FieldElement::fixed(f64::INFINITY.to_bits() % P)])
    }

    fn power(&mut self, a: &FieldElement, b: &FieldElement) -> Result<FieldElement, String> {
        let of = |n: u64| FieldElement {
            value: power(a.value, n),
            top: a.top.saturating_mul(n),
            bottom: a.bottom.saturating_mul(n),
        };
        let fixed = b.top == 0 && b.bottom == 0;
        match b.value {
            n if fixed && n <= MOST_POWER => Ok(of(n)),
            n if fixed && P - n <= MOST_POWER => of(P - n).inverted(),
            _ => Ok(self.hash("pow", &[*a, *b])),
        }
    }
}

impl Algebra for Field {
    type Number = FieldElement;

    fn constant(&mut self, v: f64) -> FieldElement {
        let size = v.abs();
        let number = if size == size.trunc() && size < 9e15 {
            FieldElement::fixed(size as u64 % P)
        } else if size == f64::INFINITY {
            self.infinity()
        } else if let Some((n, d)) = fraction(size).filter(|_| size.is_finite()) {
            FieldElement::fixed(mul(n % P, inverse(d % P)))
        } else {
            self.hash("constant", &[FieldElement::fixed(size.to_bits() % P)])
        };
        if v < 0.0 { number.negative() } else { number }
    }

    fn function(&mut self, f: Function, a: &FieldElement) -> Result<FieldElement, String> {
        let a = *a;
        let twice =
            |field: &mut Field| field.exp(FieldElement { value: add(a.value, a.value), ..a });
        let one = FieldElement::fixed(1);
        Ok(match f {
            Function::Recip => a.inverted()?,
            Function::Rsqrt => self.hash("sqrt", &[a]).inverted()?,
            Function::Exp => self.exp(a)?,
            Function::Tanh => {
                let e = twice(self)?;
                let over = e.sum(one, add(e.value, 1)).inverted()?;
                Field::difference(e, one).times(over)
            }
            Function::Sinh | Function::Cosh => {
                let e = self.exp(a)?;
                let back = e.inverted()?;
                let half = FieldElement::fixed(inverse(2));
                let both = match f {
                    Function::Sinh => Field::difference(e, back),
                    _ => e.sum(back, add(e.value, back.value)),
                };
                both.times(half)
            }
            Function::Log if a.value == 1 => FieldElement::fixed(0),
            Function::Sqrt if a.value <= 1 => a,
            Function::Abs | Function::Cos => self.even(f.name(), a),
            Function::Sin
            | Function::Tan
            | Function::Asin
            | Function::Atan
            | Function::Asinh
            | Function::Atanh
            | Function::Erf
            | Function::Sign => self.odd(f.name(), a),
            _ => self.hash(f.name(), &[a]),
        })
    }

    fn operation(
        &mut self,
        op: RealOp,
        a: &FieldElement,
        b: &FieldElement,
    ) -> Result<FieldElement, String> {
        Ok(match op {
            RealOp::Add => a.sum(*b, add(a.value, b.value)),
            RealOp::Sub => Field::difference(*a, *b),
            RealOp::Mul => a.times(*b),
            RealOp::Div => a.times(b.inverted()?),
            RealOp::Pow => self.power(a, b)?,
            RealOp::Max => self.largest(*a, *b),
            RealOp::Min => self.largest(a.negative(), b.negative()).negative(),
            RealOp::Modulo => self.hash("modulo", &[*a, *b]),
            RealOp::Remainder => self.hash("remainder", &[*a, *b]),
        })
    }

    fn comparison(&mut self, cmp: Cmp, a: &FieldElement, b: &FieldElement) -> FieldElement {
        let (above, below) = (Field::difference(*b, *a), Field::difference(*a, *b));
        match cmp {
            Cmp::Lt => self.positive(above),
            Cmp::Gt => self.positive(below),
            Cmp::Le => Field::complement(self.positive(below)),
            Cmp::Ge => Field::complement(self.positive(above)),
            Cmp::Eq if above.value == 0 => FieldElement::fixed(1),
            Cmp::Ne if above.value == 0 => FieldElement::fixed(0),
            Cmp::Eq => self.even("zero", above),
            Cmp::Ne => Field::complement(self.even("zero", above)),
        }
    }

    fn conversion(&mut self, to: DType, a: &FieldElement) -> FieldElement {
        self.hash(&to.to_string(), &[*a])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_the_simplest_fractions() {
        let known = [(0.1, Some((1, 10))), (1.0 / 3.0, Some((1, 3))), (2.75, Some((11, 4)))];
        for (v, expected) in known {
            assert_eq!(fraction(v), expected, "{v}");
        }
        assert_eq!(fraction(std::f64::consts::SQRT_2), None);
        assert_eq!(fraction(0.1 + 0.2), None);
    }

    #[test]
    fn the_field_is_one() {
        for a in [1, 2, 12_345, P - 1, P / 2] {
            assert_eq!(mul(a, inverse(a)), 1);
            assert_eq!(add(a, sub(0, a)), 0);
        }
        assert_eq!(mul(P - 1, P - 1), 1);
    }

    #[test]
    fn identities_of_real_functions_hold_for_hashes() {
        let mut f = Field::at(7);
        let (x, y, z) =
            (FieldElement::variable(11), FieldElement::variable(99), FieldElement::variable(P - 5));
        let mut max =
            |a: &FieldElement, b: &FieldElement| f.operation(RealOp::Max, a, b).expect("a number");
        let (left, right) = (max(&x, &y), max(&y, &z));
        let (left, right) = (max(&left, &z), max(&right, &x));
        assert_eq!(left.value, right.value);
        let lowest = f.constant(f64::NEG_INFINITY);
        let same = f.operation(RealOp::Max, &x, &lowest).expect("a number");
        assert_eq!(same.value, x.value);
        let (plus, minus) =
            (f.function(Function::Sin, &x), f.function(Function::Sin, &x.negative()));
        let (plus, minus) = (plus.expect("a number"), minus.expect("a number"));
        assert_eq!(add(plus.value, minus.value), 0);
        let (up, down) = (f.function(Function::Exp, &x), f.function(Function::Exp, &x.negative()));
        let (up, down) = (up.expect("a number"), down.expect("a number"));
        assert_eq!(mul(up.value, down.value), 1);
        assert_ne!(f.function(Function::Exp, &y).expect("a number").value, up.value);
    }
}
