//! Sums and products of extents: terms are sorted, so that sums are merged.

use super::{Atom, Extent, Monomial, WEIGHT, monomial_weight};
use itertools::{EitherOrBoth, Itertools};
use std::ops::{Add, Mul, Neg, Sub};

impl Extent {
    /// The sum of this and a multiple of another.
    fn plus(&self, factor: i64, other: &Extent) -> Extent {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return Extent::from(a.wrapping_add(factor.wrapping_mul(b)));
        }
        if self.is_too_large() || other.is_too_large() {
            return Extent::too_large();
        }
        if other.is(0) {
            return self.clone();
        }
        let scaled = |(m, c): &(Monomial, i64)| (m.clone(), c.wrapping_mul(factor));
        let (a, b) = (self.as_terms(), other.as_terms());
        let mut sum = Vec::with_capacity(a.len() + b.len());
        let mut weight = 0u64;
        for both in a.iter().merge_join_by(b.iter(), |a, b| a.0.cmp(&b.0)) {
            let term = match both {
                EitherOrBoth::Left(a) => a.clone(),
                EitherOrBoth::Right(b) => scaled(b),
                EitherOrBoth::Both((m, c), (_, d)) => {
                    (m.clone(), c.wrapping_add(factor.wrapping_mul(*d)))
                }
            };
            weight = weight.saturating_add(monomial_weight(&term.0));
            sum.push(term);
        }
        if weight > WEIGHT {
            return Extent::too_large();
        }
        Extent::of_sorted(sum)
    }
}

fn multiply_monomials(a: &Monomial, b: &Monomial) -> Monomial {
    let product = |both: EitherOrBoth<&(Atom, u32), &(Atom, u32)>| match both {
        EitherOrBoth::Left(one) | EitherOrBoth::Right(one) => one.clone(),
        EitherOrBoth::Both((atom, p), (_, q)) => (atom.clone(), p.saturating_add(*q)),
    };
    a.iter().merge_join_by(b, |a, b| a.0.cmp(&b.0)).map(product).collect()
}

impl Add for &Extent {
    type Output = Extent;
    fn add(self, other: &Extent) -> Extent {
        match self.is(0) {
            true => other.clone(),
            false => self.plus(1, other),
        }
    }
}

impl Neg for &Extent {
    type Output = Extent;
    fn neg(self) -> Extent {
        Extent::from(0).plus(-1, self)
    }
}

impl Sub for &Extent {
    type Output = Extent;
    fn sub(self, other: &Extent) -> Extent {
        self.plus(-1, other)
    }
}

impl Mul for &Extent {
    type Output = Extent;
    fn mul(self, other: &Extent) -> Extent {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return Extent::from(a.wrapping_mul(b));
        }
        if self.is_too_large() || other.is_too_large() {
            return Extent::too_large();
        }
        if self.is(1) {
            return other.clone();
        }
        if other.is(1) {
            return self.clone();
        }
        let (a, b) = (self.as_terms(), other.as_terms());
        Extent::from_terms(a.iter().flat_map(|(m, c)| {
            b.iter().map(move |(n, d)| (multiply_monomials(m, n), c.wrapping_mul(*d)))
        }))
    }
}
