//! How extents are printed: as a person would write them, not as they are stored.

use super::{Atom, Extent};
use std::fmt;

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_too_large() {
            return f.write_str("a polynomial that is too large");
        }
        if let Some((whole, bound)) = self.as_minimum() {
            return write!(f, "min({whole}, {bound})");
        }
        let terms = self.terms();
        if terms.is_empty() {
            return f.write_str("0");
        }
        // Highest terms first; the constant, which sorts first, comes last.
        for (i, (m, c)) in terms.iter().rev().enumerate() {
            match (i, *c < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let c = c.unsigned_abs();
            if m.is_empty() || c != 1 {
                write!(f, "{c}{}", if m.is_empty() { "" } else { "*" })?;
            }
            for (j, (a, power)) in m.iter().enumerate() {
                for k in 0..*power {
                    write!(f, "{}{a}", if j > 0 || k > 0 { "*" } else { "" })?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Sym(s) => f.write_str(s),
            Atom::Div(a, b) => write!(f, "(({a})/({b}))"),
            Atom::Mod(a, b) => write!(f, "(({a})%({b}))"),
            Atom::Positive(e) => write!(f, "max({e}, 0)"),
            Atom::Common(all) => {
                let all: Vec<String> = all.iter().map(Extent::to_string).collect();
                write!(f, "common({})", all.join(", "))
            }
        }
    }
}
