//! What symbols of a model's shapes have to be for a node to have a meaning.
//!
//! Exporters leave a symbol where they have traced one number: a batch that is declared free, and `Reshape`s that say 1.
//! Such a model computes something for that number only, so it is read for it. Nothing is assumed that leaves a choice.

use mlc_dsl::ir::{Atom, Extent};

/// A symbol, and what it has to be for two extents to be equal.
pub(super) fn equality_needs(a: &Extent, b: &Extent) -> Option<(String, Extent)> {
    symbol_for(a, b).or_else(|| number_for(a, b))
}

/// A symbol, and what it has to be for two extents to broadcast. A symbol and a number leave a choice: the symbol may be 1.
/// So does an extent that is 1 unless it is 0.
pub(super) fn broadcast_needs(a: &Extent, b: &Extent) -> Option<(String, Extent)> {
    if is_at_most_one(a) || is_at_most_one(b) {
        return None;
    }
    let one = Extent::from(1);
    let may_be_one = |e: &Extent| e.as_const().is_none() && number_for(e, &one).is_some();
    symbol_for(a, b).or_else(|| number_for(a, b).filter(|_| !may_be_one(a) && !may_be_one(b)))
}

/// True of the first element of an axis, as far as there is one.
fn is_at_most_one(e: &Extent) -> bool {
    e.as_minimum().is_some_and(|(whole, bound)| bound == 1 && whole.at_least(0))
}

/// True if two extents differ in more than sums and products of symbols, so that nothing is seen of when they are equal.
pub(super) fn is_open(a: &Extent, b: &Extent) -> bool {
    let plain = |(atom, _): &(Atom, u32)| matches!(atom, Atom::Sym(_));
    (a - b).terms().iter().any(|(m, _)| !m.iter().all(plain))
}

/// Extents of one symbol and a number that do not broadcast: they would if the symbol were another number, or 1.
#[derive(Clone, Debug)]
pub(super) struct Misfit {
    pub symbol: String,
    pub number: Extent,
    /// What is wrong.
    pub reason: String,
}

/// A bare symbol, and an extent of others that it has to be.
fn symbol_for(a: &Extent, b: &Extent) -> Option<(String, Extent)> {
    let symbol = |e: &Extent| match e.terms().as_slice() {
        [(m, 1)] => match m.as_slice() {
            [(Atom::Sym(s), 1)] => Some(s.to_string()),
            _ => None,
        },
        _ => None,
    };
    let is = |symbol: Option<String>, other: &Extent| {
        let symbol = symbol?;
        let mentions = other.symbols().iter().any(|s| **s == *symbol);
        (!mentions && other.as_const().is_none()).then(|| (symbol, other.clone()))
    };
    is(symbol(b), a).or_else(|| is(symbol(a), b))
}

/// The one number for which two extents are equal, if their difference is linear in the one symbol that they have.
pub(super) fn number_for(a: &Extent, b: &Extent) -> Option<(String, Extent)> {
    let difference = a - b;
    let symbols = difference.symbols();
    let [symbol] = symbols.as_slice() else { return None };
    let (mut factor, mut rest) = (0i64, 0i64);
    for (monomial, coefficient) in difference.terms() {
        match monomial.as_slice() {
            [] => rest = coefficient,
            [(Atom::Sym(_), 1)] => factor = coefficient,
            _ => return None,
        }
    }
    let n = rest.checked_neg().filter(|n| factor != 0 && n.checked_rem(factor) == Some(0))?;
    let n = n.checked_div(factor).filter(|&n| n >= 1)?;
    Some((symbol.to_string(), Extent::from(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(found: Option<(String, Extent)>) -> Option<String> {
        found.map(|(symbol, extent)| format!("{symbol} = {extent}"))
    }

    #[test]
    fn extents_are_equal_for_one_number() {
        let (s, t) = (Extent::sym("s"), Extent::sym("t"));
        let times = |n: i64, e: &Extent| &Extent::from(n) * e;
        let equal = |a: &Extent, b: &Extent| named(equality_needs(a, b));
        assert_eq!(equal(&times(49, &s), &Extent::from(49)).as_deref(), Some("s = 1"));
        assert_eq!(equal(&Extent::from(12), &times(4, &s)).as_deref(), Some("s = 3"));
        assert_eq!(equal(&s, &Extent::from(7)).as_deref(), Some("s = 7"));
        assert_eq!(equal(&s, &times(2, &t)).as_deref(), Some("s = 2*t"));
        for (a, b) in [
            (times(2, &s), Extent::from(3)),
            (times(2, &s), times(3, &t)),
            (times(2, &s), Extent::from(0)),
        ] {
            assert_eq!(equal(&a, &b), None, "{a} and {b}");
        }
    }

    #[test]
    fn a_broadcast_leaves_a_choice() {
        let s = Extent::sym("s");
        let needs = |a: &Extent, b: i64| named(broadcast_needs(a, &Extent::from(b)));
        assert_eq!(needs(&s, 49), None, "1 and 49 both broadcast");
        assert_eq!(needs(&(&Extent::from(49) * &s), 49).as_deref(), Some("s = 1"));
        assert_eq!(needs(&(&s + &Extent::from(1)), 5).as_deref(), Some("s = 4"));
        let first = Extent::sym("t").minimum(&Extent::from(1));
        assert_eq!(named(broadcast_needs(&s, &first)), None, "`first` may be 1 or 0");
    }

    #[test]
    fn extents_that_are_computed_are_open() {
        let (s, two) = (Extent::sym("s"), Extent::from(2));
        let even = &s.floor_div(&two) * &two;
        assert!(is_open(&even, &s) && is_open(&Extent::from(8), &even));
        assert!(!is_open(&even, &(&even + &two)) && !is_open(&(&s * &s), &two));
    }
}
