//! Extents: integer polynomials in symbols such as `2*seq + 1`.
//!
//! One polynomial has one representation, so equality is structural. Division that is not exact is an opaque atom, and so is
//! the positive part, by which minimum and maximum are written: `min(n, 3)` is `n - max(n - 3, 0)`, so that the two parts into
//! which it cuts an axis add up to the axis again. Symbols stand for non-negative integers. A polynomial that would outgrow
//! [`WEIGHT`] is *too large*: nothing is known of it, and no type has it for an extent.

mod arithmetic;
mod bounds;
mod display;
mod linear;
mod values;

pub use linear::Linear;
pub use values::{ExtentValues, SharedExtents};

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An indivisible factor of a monomial.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// A symbol, e.g. `batch`.
    Sym(Arc<str>),
    /// Division rounded towards minus infinity.
    Div(Extent, Extent),
    /// The remainder of that division.
    Mod(Extent, Extent),
    /// The positive part `max(e, 0)` of an extent of either sign, whose leading coefficient is positive and whose coefficients
    /// have no common divisor.
    Positive(Extent),
    /// What extents have in common that broadcast: each is 1, or all others are equal. Two or more, sorted.
    Common(Vec<Extent>),
}

/// Atoms with positive powers, sorted.
pub type Monomial = Vec<(Atom, u32)>;

/// An integer polynomial.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent(Repr);

/// Terms and factors that a polynomial may have, those of its atoms among them.
pub const WEIGHT: u64 = 4096;

/// A quotient of polynomials with more terms is not looked for.
const MOST_QUOTIENT_TERMS: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Known(i64),
    /// At least one non-constant monomial; sorted; coefficients are not zero. The weight comes last.
    Poly(Arc<Vec<(Monomial, i64)>>, u64),
    TooLarge,
}

impl From<i64> for Extent {
    fn from(v: i64) -> Extent {
        Extent(Repr::Known(v))
    }
}

impl From<i32> for Extent {
    fn from(v: i32) -> Extent {
        Extent(Repr::Known(v.into()))
    }
}

impl From<usize> for Extent {
    fn from(v: usize) -> Extent {
        Extent(Repr::Known(v as i64))
    }
}

impl Extent {
    /// A symbol.
    pub fn sym(name: &str) -> Extent {
        Extent::atom(Atom::Sym(Arc::from(name)))
    }

    pub(super) fn atom(a: Atom) -> Extent {
        Extent::from_terms([(vec![(a, 1)], 1)])
    }

    pub(super) fn too_large() -> Extent {
        Extent(Repr::TooLarge)
    }

    /// True if the polynomial outgrew [`WEIGHT`] and is lost.
    pub fn is_too_large(&self) -> bool {
        matches!(self.0, Repr::TooLarge)
    }

    fn weight(&self) -> u64 {
        match &self.0 {
            Repr::Known(_) => 1,
            Repr::Poly(_, weight) => *weight,
            Repr::TooLarge => WEIGHT + 1,
        }
    }

    /// The value, if no symbol occurs.
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Known(v) => Some(v),
            Repr::Poly(..) | Repr::TooLarge => None,
        }
    }

    /// The symbol, if it is one alone.
    pub fn as_symbol(&self) -> Option<&Arc<str>> {
        match self.as_poly() {
            [(monomial, 1)] => match monomial.as_slice() {
                [(Atom::Sym(s), 1)] => Some(s),
                _ => None,
            },
            _ => None,
        }
    }

    /// The terms of a polynomial that is no number.
    fn as_poly(&self) -> &[(Monomial, i64)] {
        match &self.0 {
            Repr::Poly(terms, _) => terms,
            Repr::Known(_) | Repr::TooLarge => &[],
        }
    }

    /// True if the extent is the known number `v`.
    pub fn is(&self, v: i64) -> bool {
        self.as_const() == Some(v)
    }

    /// The monomials with their coefficients, sorted; none for zero, nor for what is too large.
    pub fn terms(&self) -> Vec<(Monomial, i64)> {
        self.as_terms().into_owned()
    }

    /// The same, where they are.
    fn as_terms(&self) -> Cow<'_, [(Monomial, i64)]> {
        match &self.0 {
            Repr::Known(0) | Repr::TooLarge => Cow::Borrowed(&[]),
            Repr::Known(v) => Cow::Owned(vec![(vec![], *v)]),
            Repr::Poly(p, _) => Cow::Borrowed(p),
        }
    }

    /// The sum of different monomials, sorted.
    fn of_sorted(mut terms: Vec<(Monomial, i64)>) -> Extent {
        terms.retain(|(_, c)| *c != 0);
        match terms.as_slice() {
            [] => Extent::from(0),
            [(m, c)] if m.is_empty() => Extent::from(*c),
            _ => {
                let weight = terms.iter().map(|(m, _)| monomial_weight(m)).sum();
                Extent(Repr::Poly(Arc::new(terms), weight))
            }
        }
    }

    /// The sum of monomials with coefficients, in any order.
    pub fn from_terms(terms: impl IntoIterator<Item = (Monomial, i64)>) -> Extent {
        let mut sum: BTreeMap<Monomial, i64> = BTreeMap::new();
        let mut weight = 0u64;
        for (m, c) in terms {
            let known = sum.len();
            let own = monomial_weight(&m);
            let e = sum.entry(m).or_insert(0);
            *e = e.wrapping_add(c);
            weight += if sum.len() > known { own } else { 0 };
            if weight > WEIGHT {
                return Extent::too_large();
            }
        }
        Extent::of_sorted(sum.into_iter().collect())
    }

    /// The quotient if the division leaves no remainder for every value of the symbols.
    pub fn div_exact(&self, by: &Extent) -> Option<Extent> {
        if self.is_too_large() || by.is_too_large() {
            return None;
        }
        if let (Some(a), Some(b)) = (self.as_const(), by.as_const()) {
            return (b != 0 && a % b == 0).then(|| Extent::from(a / b));
        }
        if self == by {
            return Some(Extent::from(1));
        }
        let divisor = by.terms();
        let (bm, bc) = leading(&divisor)?;
        let by_term = |(m, c): &(Monomial, i64)| match c.checked_rem(*bc) {
            Some(0) => Some((divide_monomial(m, bm)?, c / bc)),
            _ => None,
        };
        if divisor.len() == 1 {
            let terms: Option<Vec<_>> = self.terms().iter().map(by_term).collect();
            return terms.map(Extent::from_terms);
        }
        let (mut rest, mut quotient) = (self.clone(), vec![]);
        while !rest.is(0) {
            if quotient.len() == MOST_QUOTIENT_TERMS {
                return None;
            }
            let terms = rest.terms();
            let term = by_term(leading(&terms)?)?;
            rest = &rest - &(&Extent::from_terms([term.clone()]) * by);
            quotient.push(term);
        }
        Some(Extent::from_terms(quotient))
    }

    /// Division rounded towards minus infinity. Division by zero is zero, so that evaluation is total.
    pub fn floor_div(&self, by: &Extent) -> Extent {
        if self.is_too_large() || by.is_too_large() {
            return Extent::too_large();
        }
        if let (Some(a), Some(b)) = (self.as_const(), by.as_const()) {
            return Extent::from(if b == 0 { 0 } else { floor_div(a, b) });
        }
        if let Some(q) = self.div_exact(by) {
            return q;
        }
        if let Some(k) = by.as_const().filter(|&k| k > 0) {
            // Whole multiples of the divisor leave the atom: (2*n + 1)/2 is n + 1/2.
            let (whole, rest): (Vec<_>, Vec<_>) =
                self.terms().into_iter().partition(|(_, c)| c % k == 0);
            if !whole.is_empty() {
                let whole = Extent::from_terms(whole.into_iter().map(|(m, c)| (m, c / k)));
                return &whole + &Extent::from_terms(rest).floor_div(by);
            }
            if let Some(once) = self.divided_again(k) {
                return once;
            }
        }
        Extent::atom(Atom::Div(self.clone(), by.clone()))
    }

    /// The quotient by `k` of a quotient and a number, as one division: `(n/j + r)/k` is `(n + r*j)/(j*k)`.
    fn divided_again(&self, k: i64) -> Option<Extent> {
        let terms = self.terms();
        let (quotient, rest): (Vec<_>, Vec<_>) = terms.iter().partition(|(m, _)| !m.is_empty());
        let [(m, 1)] = quotient.as_slice() else { return None };
        let [(Atom::Div(n, j), 1)] = m.as_slice() else { return None };
        let j = j.as_const().filter(|&j| j > 0)?;
        let added = rest.first().map_or(Some(0), |(_, r)| r.checked_mul(j))?;
        Some((n + &Extent::from(added)).floor_div(&Extent::from(j.checked_mul(k)?)))
    }

    /// The remainder that belongs to [`Extent::floor_div`].
    pub fn modulo(&self, by: &Extent) -> Extent {
        if self.is_too_large() || by.is_too_large() {
            return Extent::too_large();
        }
        if let (Some(a), Some(b)) = (self.as_const(), by.as_const()) {
            return Extent::from(if b == 0 { 0 } else { a - b * floor_div(a, b) });
        }
        if self.div_exact(by).is_some() {
            return Extent::from(0);
        }
        Extent::atom(Atom::Mod(self.clone(), by.clone()))
    }

    /// The larger of two.
    pub fn maximum(&self, other: &Extent) -> Extent {
        other + &(self - other).positive()
    }

    /// The smaller of two.
    pub fn minimum(&self, other: &Extent) -> Extent {
        self - &(self - other).positive()
    }

    /// The larger of the extent and 0.
    pub fn positive(&self) -> Extent {
        if let Some(v) = self.as_const() {
            return Extent::from(v.max(0));
        }
        if self.is_too_large() || self.at_least(0) {
            return self.clone();
        }
        if (-self).at_least(0) {
            return Extent::from(0);
        }
        if let Some(flat) = self.positive_of_clamped() {
            return flat;
        }
        let terms = self.terms();
        let common = terms.iter().fold(0, |g, (_, c)| gcd(g, c.unsigned_abs()));
        let negative = terms.last().is_some_and(|(_, c)| *c < 0);
        match i64::try_from(common) {
            Ok(common) if common > 1 => {
                let reduced = terms.into_iter().map(|(m, c)| (m, c / common));
                &Extent::from(common) * &Extent::from_terms(reduced).positive()
            }
            // max(-e, 0) is max(e, 0) - e.
            _ if negative => self + &(-self).positive(),
            _ => Extent::atom(Atom::Positive(self.clone())),
        }
    }

    /// The positive part of a clamped extent and a distance from it, as those of what is clamped:
    /// `max(max(a, 0) - c, 0)` is `max(a - c, 0)`, and `max(r - max(a, 0), 0)` is `max(r, 0) - max(a, 0)` where `r - a` is a
    /// known number.
    fn positive_of_clamped(&self) -> Option<Extent> {
        self.terms().into_iter().find_map(|(m, c)| {
            let [(Atom::Positive(inner), 1)] = m.as_slice() else { return None };
            let clamped = Extent::from_terms([(m.clone(), c)]);
            let rest = self - &clamped;
            match c {
                1 if (-&rest).at_least(0) => Some((inner + &rest).positive()),
                -1 => match (&rest - inner).as_const()? {
                    0.. => Some(&rest.positive() + &clamped),
                    _ => Some(Extent::from(0)),
                },
                _ => None,
            }
        })
    }

    /// Two extents whose minimum this is, of which one is a known number, if it is such a minimum.
    pub fn as_minimum(&self) -> Option<(Extent, i64)> {
        self.terms().into_iter().find_map(|(m, c)| {
            let ([(Atom::Positive(inner), 1)], -1) = (m.as_slice(), c) else { return None };
            let whole = self - &Extent::from_terms([(m.clone(), c)]);
            let bound = (&whole - inner).as_const()?;
            Some((whole, bound))
        })
    }

    /// The value where `symbol` gives each symbol's; `None` if one is missing, or 64 bits do not hold it.
    pub fn eval(&self, symbol: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        let terms = match &self.0 {
            Repr::Known(v) => return Some(*v),
            Repr::TooLarge => return None,
            Repr::Poly(terms, _) => terms,
        };
        let mut sum = 0i64;
        for (m, c) in terms.iter() {
            let mut product = *c;
            for (a, power) in m {
                let v = a.eval(symbol)?;
                product = product.checked_mul(v.checked_pow(*power)?)?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    /// The extent with every symbol replaced by what `symbol` gives, if it gives something.
    pub fn substitute(&self, symbol: &dyn Fn(&str) -> Option<Extent>) -> Extent {
        let Repr::Poly(terms, _) = &self.0 else { return self.clone() };
        let mut sum = Extent::from(0);
        for (m, c) in terms.iter() {
            let mut product = Extent::from(*c);
            for (a, power) in m {
                let v = a.substitute(symbol);
                for _ in 0..*power {
                    product = &product * &v;
                }
            }
            sum = &sum + &product;
        }
        sum
    }

    /// The number that it is where all its symbols have one, else itself.
    pub fn bound(&self, symbol: &dyn Fn(&str) -> Option<i64>) -> Extent {
        match self.as_const() {
            Some(_) => self.clone(),
            None => self.eval(symbol).map_or_else(|| self.clone(), Extent::from),
        }
    }

    /// The names of all symbols, each once, sorted.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        let mut out = Vec::new();
        for (m, _) in self.as_terms().iter() {
            for (a, _) in m {
                match a {
                    Atom::Sym(s) => out.push(s.clone()),
                    Atom::Div(a, b) | Atom::Mod(a, b) => {
                        out.extend(a.symbols());
                        out.extend(b.symbols());
                    }
                    Atom::Positive(e) => out.extend(e.symbols()),
                    Atom::Common(all) => out.extend(all.iter().flat_map(Extent::symbols)),
                }
            }
        }
        out.sort();
        out.dedup();
        out
    }
}

/// Factors of a monomial, and what its atoms weigh; the monomial itself counts, too.
fn monomial_weight(m: &Monomial) -> u64 {
    let factor = |(a, power): &(Atom, u32)| a.weight().saturating_mul((*power).into());
    m.iter().map(factor).fold(1, u64::saturating_add)
}

impl Atom {
    fn weight(&self) -> u64 {
        match self {
            Atom::Sym(_) => 1,
            Atom::Div(a, b) | Atom::Mod(a, b) => a.weight().saturating_add(b.weight()),
            Atom::Positive(e) => e.weight(),
            Atom::Common(all) => all.iter().fold(0, |sum, e| sum.saturating_add(e.weight())),
        }
    }

    fn eval(&self, symbol: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        Some(match self {
            Atom::Sym(s) => symbol(s)?,
            Atom::Div(a, b) => match b.eval(symbol)? {
                0 => 0,
                d => floor_div(a.eval(symbol)?, d),
            },
            Atom::Mod(a, b) => match b.eval(symbol)? {
                0 => 0,
                d => {
                    let v = a.eval(symbol)?;
                    v - d * floor_div(v, d)
                }
            },
            Atom::Positive(e) => e.eval(symbol)?.max(0),
            Atom::Common(all) => {
                let values: Option<Vec<i64>> = all.iter().map(|e| e.eval(symbol)).collect();
                let values = values?;
                if values.contains(&0) { 0 } else { values.into_iter().max()? }
            }
        })
    }

    fn substitute(&self, symbol: &dyn Fn(&str) -> Option<Extent>) -> Extent {
        match self {
            Atom::Sym(s) => symbol(s).unwrap_or_else(|| Extent::atom(self.clone())),
            Atom::Div(a, b) => a.substitute(symbol).floor_div(&b.substitute(symbol)),
            Atom::Mod(a, b) => a.substitute(symbol).modulo(&b.substitute(symbol)),
            Atom::Positive(e) => e.substitute(symbol).positive(),
            Atom::Common(all) => Extent::common(all.iter().map(|e| e.substitute(symbol)).collect()),
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn floor_div(a: i64, b: i64) -> i64 {
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// The term of the highest degree, and among those the one whose first atoms have the highest powers: that of a product is
/// the product of those of its factors.
fn leading(terms: &[(Monomial, i64)]) -> Option<&(Monomial, i64)> {
    let degree = |m: &Monomial| m.iter().map(|(_, power)| u64::from(*power)).sum::<u64>();
    let by_atoms = |a: &Monomial, b: &Monomial| {
        let mut pairs = a.iter().zip(b);
        pairs
            .find(|(a, b)| a != b)
            .map_or(a.len().cmp(&b.len()), |((a, p), (b, q))| b.cmp(a).then(p.cmp(q)))
    };
    terms.iter().max_by(|(a, _), (b, _)| degree(a).cmp(&degree(b)).then_with(|| by_atoms(a, b)))
}

fn divide_monomial(m: &Monomial, by: &Monomial) -> Option<Monomial> {
    let mut out = m.clone();
    for (atom, power) in by {
        let at = out.iter().position(|(a, _)| a == atom)?;
        match out[at].1.checked_sub(*power)? {
            0 => drop(out.remove(at)),
            left => out[at].1 = left,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_polynomial_one_form() {
        let (b, s) = (Extent::sym("b"), Extent::sym("s"));
        let two = Extent::from(2);
        assert_eq!(&(&b + &s) * &two, &(&two * &s) + &(&two * &b));
        assert_eq!(&b - &b, Extent::from(0));
        assert_eq!((&(&b * &s) * &two).div_exact(&(&s * &two)), Some(b.clone()));
        assert_eq!((&(&two * &b) + &Extent::from(1)).floor_div(&two), b);
        assert_eq!((&two * &s).to_string(), "2*s");
        assert_eq!((&(&two * &s) + &Extent::from(1)).to_string(), "2*s + 1");
    }

    #[test]
    fn polynomials_divide() {
        let (b, s) = (Extent::sym("b"), Extent::sym("s"));
        let number = |n: i64| Extent::from(n);
        let third = s.floor_div(&number(3));
        let factors = [
            &s - &number(1),
            &b + &s,
            &(&b * &third) - &number(2),
            &number(-3) * &(&s * &s),
            number(4),
        ];
        for x in &factors {
            for y in &factors {
                assert_eq!((x * y).div_exact(y).as_ref(), Some(x), "{x} by {y}");
                assert_eq!((&(x * y) + &b).div_exact(&(&s - &number(1))), None, "{x} by {y}");
            }
        }
        let power = (0..9).fold(s.clone(), |p, _| &p * &p);
        assert_eq!(
            (&power - &number(1)).div_exact(&(&s - &number(1))),
            None,
            "a quotient of 512 terms"
        );
        assert_eq!(b.div_exact(&number(0)), None);
    }

    #[test]
    fn polynomials_stay_small() {
        let sum = ["a", "b", "c", "d"].iter().fold(Extent::from(0), |s, n| &s + &Extent::sym(n));
        let mut squared = sum.clone();
        for _ in 0..60 {
            squared = &squared * &squared;
        }
        let factor = |i: i32| &Extent::sym(&format!("n{i}")) + &Extent::from(1);
        let product = (0..40).fold(Extent::from(1), |p, i| &p * &factor(i));
        let halved = (0..200).fold(sum.clone(), |e, _| {
            &e.floor_div(&Extent::from(2)) + &e.floor_div(&Extent::from(3))
        });
        for large in [squared, product, halved] {
            assert!(large.is_too_large());
            assert!(large.to_string().len() < 100);
            assert_eq!((large.as_const(), large.sign()), (None, None));
            assert_eq!(large.div_exact(&large), None);
            assert!(!large.at_least(0) && (&large - &large).is_too_large());
            assert_eq!(large.eval(&|_| Some(1)), None);
            assert!(large.maximum(&sum).is_too_large() && sum.modulo(&large).is_too_large());
        }
        let eighth = (0..3).fold(sum, |e, _| &e * &e);
        assert_eq!(eighth.eval(&|_| Some(1)), Some(1 << 16));
    }

    #[test]
    fn division_and_remainder_agree_with_integers() {
        let n = Extent::sym("n");
        for k in [1i64, 2, 3, 7] {
            let e = (&n + &Extent::from(5)).floor_div(&Extent::from(k));
            let m = (&n + &Extent::from(5)).modulo(&Extent::from(k));
            for v in 0..20 {
                let sym = |_: &str| Some(v);
                assert_eq!(e.eval(&sym), Some((v + 5).div_euclid(k)));
                assert_eq!(m.eval(&sym), Some((v + 5).rem_euclid(k)));
            }
        }
    }

    #[test]
    fn a_quotient_of_a_quotient_is_one() {
        let n = Extent::sym("n");
        for (j, r, k) in [(3, 0, 2), (2, -1, 5), (4, 7, 3)] {
            let number = |v: i64| Extent::from(v);
            let twice = (&n.floor_div(&number(j)) + &number(r)).floor_div(&number(k));
            assert_eq!(twice, (&n + &number(r * j)).floor_div(&number(j * k)));
            for v in -20..20i64 {
                let wanted = (v.div_euclid(j) + r).div_euclid(k);
                assert_eq!(twice.eval(&|_| Some(v)), Some(wanted));
            }
        }
    }
}
