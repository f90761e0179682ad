//! What is known of an extent for every value of its symbols: bounds and signs. Never more than is proved; what is not seen is
//! not known.

use super::{Atom, Extent, Monomial};
use itertools::Itertools;

/// Positive parts that one proof takes apart, one in the other.
const MOST_CASES: usize = 5;

impl Extent {
    /// −1, 0 or 1 (0 only for exactly zero) if the sign is the same for every value of the symbols;
    /// a polynomial that is zero for some values and positive for the others has no sign.
    pub fn sign(&self) -> Option<i32> {
        if let Some(v) = self.as_const() {
            return Some(v.signum() as i32);
        }
        if self.at_least(1) {
            return Some(1);
        }
        (-self).at_least(1).then_some(-1)
    }

    /// True if the value is at least `bound` for every value of the symbols, as far as that is seen.
    pub fn at_least(&self, bound: i64) -> bool {
        self.at_least_where(bound, &[])
    }

    /// True if the value is at least `bound` wherever all of `facts` are at least 0, as far as that is seen.
    pub fn at_least_where(&self, bound: i64, facts: &[Extent]) -> bool {
        if let Some(v) = self.as_const() {
            return v >= bound;
        }
        let rest = self - &Extent::from(bound);
        !rest.is_too_large() && is_natural(&rest, &mut facts.to_vec(), MOST_CASES)
    }

    /// The extent where all of `facts` are at least 0: positive parts whose sign these decide are gone.
    pub fn where_all(&self, facts: &[Extent]) -> Extent {
        let mut left = self.clone();
        for part in self.positive_parts() {
            let inner = part.where_all(facts);
            let value = match &inner {
                e if (-e).at_least_where(0, facts) => Extent::from(0),
                e if e.at_least_where(0, facts) => e.clone(),
                e => e.positive(),
            };
            left = left.with_positive(&part, &value);
        }
        left
    }

    /// The positive parts of the polynomial, and those within them and within quotients.
    pub fn all_positive_parts(&self) -> Vec<Extent> {
        let terms = self.as_terms();
        let atoms = terms.iter().flat_map(|(m, _)| m).map(|(atom, _)| atom);
        let parts = atoms.flat_map(|atom| match atom {
            Atom::Sym(_) => vec![],
            Atom::Positive(e) => [e.all_positive_parts(), vec![e.clone()]].concat(),
            Atom::Div(a, b) | Atom::Mod(a, b) => {
                [a.all_positive_parts(), b.all_positive_parts()].concat()
            }
            Atom::Common(all) => all.iter().flat_map(Extent::all_positive_parts).collect(),
        });
        parts.unique().collect()
    }

    /// What the polynomial takes the positive parts of, those within others and within quotients left out.
    pub fn positive_parts(&self) -> Vec<Extent> {
        let mut parts: Vec<Extent> = Vec::new();
        for (m, _) in self.as_terms().iter() {
            for (atom, _) in m {
                match atom {
                    Atom::Positive(e) if !parts.contains(e) => parts.push(e.clone()),
                    _ => {}
                }
            }
        }
        parts
    }

    /// The polynomial with `value` in place of the positive part of `e`.
    fn with_positive(&self, e: &Extent, value: &Extent) -> Extent {
        let mut sum = Extent::from(0);
        for (mut m, c) in self.terms() {
            let power = match m.iter().position(|(a, _)| matches!(a, Atom::Positive(x) if x == e)) {
                Some(at) => m.remove(at).1,
                None => 0,
            };
            let mut product = Extent::from_terms([(m, c)]);
            for _ in 0..power {
                product = &product * value;
            }
            sum = &sum + &product;
        }
        sum
    }
}

/// True if `e` is seen to be at least 0 where all of `facts` are. A positive part is one of two polynomials; in each case one
/// fact more is known.
fn is_natural(e: &Extent, facts: &mut Vec<Extent>, cases: usize) -> bool {
    // With one fact, or the sum of two.
    let rests = || facts.iter().map(|f| e - f);
    if is_sum_of_naturals(e)
        || rests().any(|rest| {
            is_sum_of_naturals(&rest) || facts.iter().any(|f| is_sum_of_naturals(&(&rest - f)))
        })
    {
        return true;
    }
    let Some(part) = e.positive_parts().into_iter().next().filter(|_| cases > 0) else {
        return false;
    };
    [(-&part, Extent::from(0)), (part.clone(), part.clone())].into_iter().all(|(fact, value)| {
        facts.push(fact);
        let natural = is_natural(&e.with_positive(&part, &value), facts, cases - 1);
        facts.pop();
        natural
    })
}

fn is_sum_of_naturals(e: &Extent) -> bool {
    let natural = |m: &Monomial| m.iter().all(|(a, _)| a.is_natural());
    !e.is_too_large() && e.as_terms().iter().all(|(m, c)| *c > 0 && natural(m))
}

impl Atom {
    /// True if the atom is seen to be at least 0 for every value of the symbols.
    fn is_natural(&self) -> bool {
        match self {
            Atom::Sym(_) | Atom::Positive(_) => true,
            Atom::Div(a, b) => a.at_least(0) && b.at_least(0),
            // The remainder has the divisor's sign.
            Atom::Mod(_, b) => b.at_least(0),
            Atom::Common(all) => all.iter().all(|e| e.at_least(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slices of an axis `n` at every bound from -4 to 4: clamped bounds are ordered, and parts add up to the whole.
    #[test]
    fn clamped_bounds_are_ordered() {
        let n = Extent::sym("n");
        let front = |b: i64| if b < 0 { &n + &Extent::from(b) } else { Extent::from(b) };
        let clamp = |b: i64| front(b).positive().minimum(&n);
        for a in -4..=4 {
            let at = clamp(a);
            assert!(at.at_least(0) && (&n - &at).at_least(0), "0 <= {at} <= n");
            assert_eq!(&(&n - &at) + &at, n);
            for v in 0..10 {
                let expected = (if a < 0 { v + a } else { a }).clamp(0, v);
                assert_eq!(at.eval(&|_| Some(v)), Some(expected), "{at} where n is {v}");
            }
            for b in a..=4 {
                if (a < 0) == (b < 0) {
                    assert!((&clamp(b) - &at).at_least(0), "{at} <= {}", clamp(b));
                }
            }
        }
        let first = n.minimum(&Extent::from(5));
        let within = (&first - &Extent::from(2)).positive();
        assert_eq!(within, &clamp(0) + &(&first - &n.minimum(&Extent::from(2))), "one form");
    }

    #[test]
    fn facts_decide_positive_parts() {
        let (n, number) = (Extent::sym("n"), |v: i64| Extent::from(v));
        let first = n.minimum(&number(512));
        assert!(!(&first - &n).at_least(0));
        let fits = &number(512) - &n;
        assert!((&first - &n).at_least_where(0, std::slice::from_ref(&fits)));
        assert_eq!(first.where_all(&[fits]), n);
        assert_eq!(first.where_all(&[&n - &number(600)]), number(512));
        assert_eq!(first.where_all(&[&n - &number(100)]), first);
    }
}
