//! What axes have in common that broadcast: each has one element, or as many as the others.
//!
//! Which of the two holds may be open until a run. The common extent is an expression then, which says what it is in either case.

use super::extent::{Atom, Extent};

/// The common extent of two axes that broadcast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Common {
    /// It is known, perhaps as an expression.
    Is(Extent),
    /// Neither axis can have one element: both extents must be equal.
    IfEqual,
    /// There is none, whatever the symbols are.
    Apart,
}

/// The common extent of two axes that broadcast, as NumPy aligns them.
pub fn common_extent(a: &Extent, b: &Extent) -> Common {
    let one = Extent::from(1);
    if a == b || b.is(1) {
        return Common::Is(a.clone());
    }
    match (may_equal(a, &one), may_equal(b, &one), may_equal(a, b)) {
        (true, false, _) => Common::Is(b.clone()),
        (false, true, _) => Common::Is(a.clone()),
        (true, true, _) => Common::Is(Extent::common(vec![a.clone(), b.clone()])),
        (false, false, true) => Common::IfEqual,
        (false, false, false) => Common::Apart,
    }
}

impl Extent {
    /// What extents have in common that broadcast: those of which one is not 1 for any values of its symbols are it.
    pub fn common(all: Vec<Extent>) -> Extent {
        let mut open: Vec<Extent> = all.iter().flat_map(parts).filter(|e| !e.is(1)).collect();
        open.sort_unstable();
        open.dedup();
        let one = Extent::from(1);
        if let Some(known) = open.iter().position(|e| !may_equal(e, &one)) {
            return open.swap_remove(known);
        }
        match open.len() {
            0 => one,
            1 => open.swap_remove(0),
            _ if open.iter().any(Extent::is_too_large) => Extent::too_large(),
            _ => Extent::atom(Atom::Common(open)),
        }
    }
}

/// The extents that one is what they have in common; the extent itself if it is not.
pub fn parts(e: &Extent) -> Vec<Extent> {
    match e.terms().as_slice() {
        [(m, 1)] => match m.as_slice() {
            [(Atom::Common(all), 1)] => all.clone(),
            _ => vec![e.clone()],
        },
        _ => vec![e.clone()],
    }
}

/// False if two extents differ for all values of their symbols, as far as that is seen.
pub fn may_equal(a: &Extent, b: &Extent) -> bool {
    let difference = a - b;
    match difference.sign() {
        Some(0) => true,
        Some(_) => false,
        None => may_vanish(&difference),
    }
}

/// False if an extent is linear in its one symbol, and zero for no whole number from 0 on.
fn may_vanish(e: &Extent) -> bool {
    e.linear().is_none_or(|line| line.root().is_some_and(|n| n >= 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_element_or_as_many() {
        let (n, m) = (Extent::sym("n"), Extent::sym("m"));
        let number = |v: i64| Extent::from(v);
        let plus = |e: &Extent, v: i64| e + &number(v);
        assert_eq!(common_extent(&n, &number(6)), Common::Is(number(6)));
        assert_eq!(common_extent(&number(0), &n), Common::Is(number(0)));
        assert_eq!(common_extent(&plus(&n, 1), &number(5)), Common::Is(number(5)));
        assert_eq!(common_extent(&plus(&n, 2), &m), Common::Is(plus(&n, 2)));
        assert_eq!(common_extent(&plus(&n, 2), &number(5)), Common::IfEqual);
        assert_eq!(common_extent(&(&number(49) * &n), &number(49)), Common::IfEqual);
        assert_eq!(common_extent(&(&number(2) * &n), &number(5)), Common::Apart);
        assert_eq!(common_extent(&number(3), &number(4)), Common::Apart);
    }

    #[test]
    fn the_common_extent_of_open_ones_holds_for_all_values() {
        let (n, m) = (Extent::sym("n"), Extent::sym("m"));
        let Common::Is(both) = common_extent(&n, &m) else { panic!("open extents broadcast") };
        for (a, b, c) in
            [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1), (1, 7, 7), (5, 1, 5), (4, 4, 4)]
        {
            let value = both.eval(&|s| Some(if s == "n" { a } else { b }));
            assert_eq!(value, Some(c), "{a} and {b}");
        }
        assert_eq!(common_extent(&both, &n), Common::Is(both.clone()));
        assert_eq!(common_extent(&m, &both), Common::Is(both.clone()));
        assert_eq!(common_extent(&both, &Extent::from(3)), Common::Is(Extent::from(3)));
        let k = Extent::sym("k");
        let Common::Is(three) = common_extent(&both, &k) else { panic!("open extents broadcast") };
        assert_eq!(common_extent(&k, &both), Common::Is(three.clone()));
        assert_eq!(parts(&three).len(), 3);
        assert!(both.at_least(0));
    }
}
