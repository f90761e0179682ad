//! Extents that are linear in the one symbol that they have, and where they are zero.

use super::{Atom, Extent};
use std::sync::Arc;

/// `factor * symbol + rest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    /// The one symbol.
    pub symbol: Arc<str>,
    factor: i64,
    rest: i64,
}

impl Linear {
    /// The whole number, of either sign, in place of the symbol that makes the extent zero.
    pub fn root(&self) -> Option<i64> {
        let negative = self.rest.checked_neg().filter(|r| r.checked_rem(self.factor) == Some(0))?;
        negative.checked_div(self.factor)
    }
}

impl Extent {
    /// The extent as a linear one of a symbol, if it has one symbol and is linear in it.
    pub fn linear(&self) -> Option<Linear> {
        let [symbol] = self.symbols().try_into().ok()?;
        let (mut factor, mut rest) = (0, 0);
        for (monomial, coefficient) in self.terms() {
            match monomial.as_slice() {
                [] => rest = coefficient,
                [(Atom::Sym(_), 1)] => factor = coefficient,
                _ => return None,
            }
        }
        Some(Linear { symbol, factor, rest })
    }
}
