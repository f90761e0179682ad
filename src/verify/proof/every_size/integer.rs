//! Integers of a law as polynomials over atoms: extents, indices, attributes and what is not computed further.

use super::list::{List, Space};
use mlc_dsl::library::Name;
use std::collections::BTreeMap;

/// What a polynomial is over. The entry of a list for some axis of a segment is written with the name of the segment, or of the
/// list: it stands for every axis at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Atom {
    /// The extent of an axis, or of some axis of a segment.
    Size(Name),
    /// An index variable, by its number.
    Index(u32),
    /// An attribute, or an entry of one.
    Attr(Name),
    /// How many axes there are.
    Length(Space),
    /// The position of some axis within its segment.
    Position(Name),
    /// An element of an integer tensor, by the number of its value.
    Element(u32),
    /// A function that is not computed further.
    Of(&'static str, Vec<Argument>),
}

/// An argument of such a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Argument {
    /// An integer.
    Int(Int),
    /// A list.
    List(List),
    /// The name of a list.
    Name(Name),
}

/// A polynomial with integer coefficients: each product of atoms, sorted, with its coefficient; none is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Int(pub BTreeMap<Vec<Atom>, i64>);

impl From<i64> for Int {
    fn from(v: i64) -> Int {
        Int(if v == 0 { BTreeMap::new() } else { BTreeMap::from([(vec![], v)]) })
    }
}

impl From<Atom> for Int {
    fn from(a: Atom) -> Int {
        Int(BTreeMap::from([(vec![a], 1)]))
    }
}

impl Int {
    /// The number, if it is one.
    pub(crate) fn number(&self) -> Option<i64> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&vec![]).copied(),
            _ => None,
        }
    }

    /// The atom, if it is one.
    pub(crate) fn atom(&self) -> Option<&Atom> {
        match self.0.iter().next() {
            Some((m, 1)) if self.0.len() == 1 && m.len() == 1 => m.first(),
            _ => None,
        }
    }

    /// `a + k * b`; nothing where a coefficient overflows.
    pub(crate) fn plus(&self, k: i64, b: &Int) -> Option<Int> {
        let mut out = self.0.clone();
        for (m, c) in &b.0 {
            let sum = out.get(m).copied().unwrap_or(0).checked_add(c.checked_mul(k)?)?;
            match sum {
                0 => drop(out.remove(m)),
                _ => drop(out.insert(m.clone(), sum)),
            }
        }
        Some(Int(out))
    }

    /// The product.
    pub(crate) fn times(&self, b: &Int) -> Option<Int> {
        let mut out = Int::default();
        for (m, c) in &self.0 {
            let scaled = b.0.iter().map(|(n, d)| {
                let mut atoms = [m.as_slice(), n.as_slice()].concat();
                atoms.sort();
                Some((atoms, c.checked_mul(*d)?))
            });
            // Products with one factor are products with different others.
            let scaled: Option<BTreeMap<Vec<Atom>, i64>> = scaled.collect();
            out = out.plus(1, &Int(scaled?))?;
        }
        Some(out)
    }

    /// The atoms, those within arguments included.
    pub(crate) fn each_atom(&self, f: &mut dyn FnMut(&Atom)) {
        for a in self.0.keys().flatten() {
            f(a);
            if let Atom::Of(_, args) = a {
                for arg in args {
                    match arg {
                        Argument::Int(i) => i.each_atom(f),
                        Argument::List(l) => l.each_int(&mut |i| i.each_atom(f)),
                        Argument::Name(_) => {}
                    }
                }
            }
        }
    }

    /// True if the atom occurs anywhere.
    pub(crate) fn mentions(&self, atom: &Atom) -> bool {
        let mut found = false;
        self.each_atom(&mut |a| found |= a == atom);
        found
    }

    /// With other integers in the place of atoms, wherever they occur.
    pub(crate) fn substituted(&self, f: &mut dyn FnMut(&Atom) -> Option<Int>) -> Option<Int> {
        let mut out = Int::default();
        for (m, c) in &self.0 {
            let mut product = Int::from(*c);
            for a in m {
                let value = match f(a) {
                    Some(v) => v,
                    None => match a {
                        Atom::Of(name, args) => {
                            let args = args.iter().map(|x| {
                                Some(match x {
                                    Argument::Int(i) => Argument::Int(i.substituted(f)?),
                                    Argument::List(l) => Argument::List(l.substituted(f)?),
                                    Argument::Name(n) => Argument::Name(n.clone()),
                                })
                            });
                            Int::from(Atom::Of(name, args.collect::<Option<_>>()?))
                        }
                        _ => Int::from(a.clone()),
                    },
                };
                product = product.times(&value)?;
            }
            out = out.plus(1, &product)?;
        }
        Some(out)
    }
}
