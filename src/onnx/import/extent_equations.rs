//! Equations between extents without which a node of the model is ill-typed.
//!
//! Exporters leave a symbol where they have traced one number: a batch that is declared free, and `Reshape`s that say 1.
//! Such a model computes something for that number only, so it is read for it. Nothing is assumed that leaves a choice.

use mlc_dsl::ir::{Atom, Extent, parts};

/// What an extent has to be: a symbol, or what several have in common that broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtentEquation {
    pub of: Extent,
    pub is: Extent,
}

impl ExtentEquation {
    pub fn of(of: Extent, is: Extent) -> ExtentEquation {
        ExtentEquation { of, is }
    }

    /// The symbol, if it is one.
    pub fn symbol(&self) -> Option<String> {
        symbol(&self.of)
    }
}

/// What has to hold for two extents to be equal.
pub(crate) fn equality_needs(a: &Extent, b: &Extent) -> Option<ExtentEquation> {
    let need = |(symbol, is): (String, Extent)| ExtentEquation::of(Extent::sym(&symbol), is);
    let common = |joined: &Extent, e: &Extent| {
        let all = parts(joined);
        (all.len() > 1 && all.contains(e)).then(|| ExtentEquation::of(joined.clone(), e.clone()))
    };
    let found = common(a, b).or_else(|| common(b, a));
    found.or_else(|| symbol_for(a, b).or_else(|| number_for(a, b)).map(need))
}

/// True if two extents differ in more than sums and products of symbols, so that nothing is seen of when they are equal.
pub(crate) fn is_open(a: &Extent, b: &Extent) -> bool {
    let plain = |(atom, _): &(Atom, u32)| matches!(atom, Atom::Sym(_));
    (a - b).terms().iter().any(|(m, _)| !m.iter().all(plain))
}

/// Extents of one symbol and a number that do not broadcast: they would if the symbol were another number, or 1.
#[derive(Clone, Debug)]
pub(crate) struct BroadcastMisfit {
    pub symbol: String,
    pub number: Extent,
    /// What is wrong.
    pub reason: String,
}

/// A bare symbol, and an extent of others that it has to be.
fn symbol_for(a: &Extent, b: &Extent) -> Option<(String, Extent)> {
    let is = |symbol: Option<String>, other: &Extent| {
        let symbol = symbol?;
        let mentions = other.symbols().iter().any(|s| **s == *symbol);
        (!mentions && other.as_const().is_none()).then(|| (symbol, other.clone()))
    };
    is(symbol(b), a).or_else(|| is(symbol(a), b))
}

/// The name of a bare symbol.
fn symbol(e: &Extent) -> Option<String> {
    match e.terms().as_slice() {
        [(m, 1)] => match m.as_slice() {
            [(Atom::Sym(s), 1)] => Some(s.to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// The one number for which two extents are equal, if their difference is linear in the one symbol that they have.
pub(crate) fn number_for(a: &Extent, b: &Extent) -> Option<(String, Extent)> {
    let line = (a - b).linear()?;
    let n = line.root().filter(|&n| n >= 1)?;
    Some((line.symbol.to_string(), Extent::from(n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlc_dsl::ir::{Common, common_extent};

    fn named(found: Option<ExtentEquation>) -> Option<String> {
        found.map(|need| format!("{} = {}", need.of, need.is))
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
    fn what_broadcasts_is_what_it_must_be() {
        let (s, t) = (Extent::sym("s"), Extent::sym("t"));
        let Common::Is(both) = common_extent(&s, &t) else { panic!("open extents broadcast") };
        let need = equality_needs(&s, &both).expect("a need");
        assert_eq!((need.symbol(), need.of, need.is), (None, both, s));
    }

    #[test]
    fn extents_that_are_computed_are_open() {
        let (s, two) = (Extent::sym("s"), Extent::from(2));
        let even = &s.floor_div(&two) * &two;
        assert!(is_open(&even, &s) && is_open(&Extent::from(8), &even));
        assert!(!is_open(&even, &(&even + &two)) && !is_open(&(&s * &s), &two));
    }
}
