//! Decides linear inequalities from known ones, by elimination (Fourier and Motzkin).
//! Incomplete: what it does not show may hold all the same.

use std::collections::{BTreeMap, BTreeSet};

/// Inequalities after which elimination gives up.
const MOST: usize = 400;

/// That a sum of multiples of unknowns is at least zero, or above it. The unknown `K::default()` is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inequality<K: Ord> {
    /// Coefficients, none of them zero.
    pub terms: BTreeMap<K, i64>,
    /// It is above zero.
    pub strict: bool,
}

impl<K: Ord + Clone + Default> Inequality<K> {
    /// `terms >= 0`.
    pub(crate) fn at_least_zero(terms: BTreeMap<K, i64>) -> Inequality<K> {
        Inequality { terms, strict: false }
    }

    /// True if it has no unknown and does not hold.
    fn is_impossible(&self) -> bool {
        let one = K::default();
        let known = self.terms.get(&one).copied().unwrap_or(0);
        self.terms.keys().all(|k| *k == one) && (known < 0 || known == 0 && self.strict)
    }

    /// The sum with another one in which an unknown no longer occurs; nothing if a coefficient overflows.
    fn without(&self, upper: &Inequality<K>, unknown: &K) -> Option<Inequality<K>> {
        let (a, b) = (self.terms[unknown], upper.terms[unknown].checked_neg()?);
        let mut terms = BTreeMap::new();
        for (row, factor) in [(self, b), (upper, a)] {
            for (k, c) in &row.terms {
                let entry: &mut i64 = terms.entry(k.clone()).or_default();
                *entry = entry.checked_add(c.checked_mul(factor)?)?;
            }
        }
        terms.retain(|_, c| *c != 0);
        Some(Inequality { terms, strict: self.strict || upper.strict })
    }

    /// The inequality divided by what its coefficients have in common, rounded if unknowns are integers; nothing if it always holds.
    fn reduced(mut self, integers: bool) -> Option<Inequality<K>> {
        let one = K::default();
        if integers && self.strict {
            *self.terms.entry(one.clone()).or_default() -= 1;
            self.strict = false;
        }
        let unknowns = self.terms.iter().filter(|(k, _)| !integers || **k != one);
        let common = unknowns.fold(0, |g, (_, c)| gcd(g, c.unsigned_abs())) as i64;
        if self.terms.keys().all(|k| *k == one) {
            return self.is_impossible().then_some(self);
        }
        for (k, c) in &mut self.terms {
            *c = if *k == one { c.div_euclid(common) } else { *c / common };
        }
        self.terms.retain(|_, c| *c != 0);
        Some(self)
    }
}

/// True if no numbers satisfy all of these, as elimination shows: no integers, or else no real numbers.
pub(crate) fn is_contradiction<K: Ord + Clone + Default>(
    known: impl IntoIterator<Item = Inequality<K>>,
    integers: bool,
) -> bool {
    let mut rows: BTreeSet<Inequality<K>> =
        known.into_iter().filter_map(|k| k.reduced(integers)).collect();
    let one = K::default();
    loop {
        if rows.iter().any(Inequality::is_impossible) {
            return true;
        }
        // The unknown that is eliminated at least cost.
        let mut counts: BTreeMap<&K, (usize, usize)> = BTreeMap::new();
        for (k, c) in rows.iter().flat_map(|r| &r.terms).filter(|(k, _)| **k != one) {
            let count = counts.entry(k).or_default();
            if *c > 0 { count.0 += 1 } else { count.1 += 1 }
        }
        let cheapest = counts.into_iter().min_by_key(|(_, (up, down))| up * down);
        let Some((unknown, (up, down))) = cheapest else { return false };
        if rows.len() + up * down > MOST {
            return false;
        }
        let unknown = unknown.clone();
        let (with, rest): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|r| r.terms.contains_key(&unknown));
        rows = rest.into_iter().collect();
        for lower in with.iter().filter(|r| r.terms[&unknown] > 0) {
            for upper in with.iter().filter(|r| r.terms[&unknown] < 0) {
                let Some(joined) = lower.without(upper, &unknown) else { return false };
                rows.extend(joined.reduced(integers));
            }
        }
    }
}

/// The inequalities that share unknowns with one, directly or by others.
pub(crate) fn relevant<K: Ord + Clone + Default>(
    of: &Inequality<K>,
    known: Vec<Inequality<K>>,
) -> Vec<Inequality<K>> {
    let one = K::default();
    let unknowns =
        |i: &Inequality<K>| -> Vec<K> { i.terms.keys().filter(|k| **k != one).cloned().collect() };
    let mut reached: BTreeSet<K> = unknowns(of).into_iter().collect();
    let mut out = Vec::new();
    let mut left = known;
    loop {
        let (near, far): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|k| unknowns(k).iter().any(|m| reached.contains(m)));
        if near.is_empty() {
            return out;
        }
        near.iter().for_each(|k| reached.extend(unknowns(k)));
        out.extend(near);
        left = far;
    }
}

/// The greatest common divisor.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
