//! Sizes: numbers for the symbols of a program, at which its work is counted.

use mlc_dsl::ir::{Extent, Program, Type};
use std::collections::BTreeMap;
use std::fmt;

/// Numbers for symbols: those of some, and one for all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    symbols: BTreeMap<String, i64>,
    others: i64,
}

impl Size {
    /// One number for all symbols.
    pub fn all(extent: i64) -> Size {
        Size { symbols: BTreeMap::new(), others: extent }
    }

    /// The same, but for these symbols.
    #[must_use]
    pub fn with<S: Into<String>>(mut self, symbols: impl IntoIterator<Item = (S, i64)>) -> Size {
        self.symbols.extend(symbols.into_iter().map(|(name, extent)| (name.into(), extent)));
        self
    }

    /// What programs are priced at where nobody says which extents come: many, some, one. Which of two programs is faster may differ
    /// between them, and a guess of one size is wrong for the others.
    pub fn usual() -> Vec<Size> {
        [64, 8, 1].map(Size::all).to_vec()
    }

    /// Those that differ in a program: the first alone where no extent is open.
    pub fn of_program<'s>(sizes: &'s [Size], program: &Program) -> &'s [Size] {
        let is_open = |t: &Type| t.shape.iter().any(|e| e.as_const().is_none());
        match program.nodes.iter().flat_map(|n| &n.types).any(is_open) {
            true => sizes,
            false => &sizes[..sizes.len().min(1)],
        }
    }

    /// The number of an extent; 0 where it is negative.
    pub fn extent(&self, e: &Extent) -> f64 {
        let number = |symbol: &str| Some(self.symbols.get(symbol).copied().unwrap_or(self.others));
        e.eval(&number).unwrap_or(1).max(0) as f64
    }

    /// The product of extents.
    pub fn product(&self, extents: &[Extent]) -> f64 {
        extents.iter().map(|e| self.extent(e)).product()
    }

    /// Elements of a value of a type.
    pub fn elements(&self, ty: &Type) -> f64 {
        self.product(&ty.shape)
    }

    /// Bytes of a value of a type.
    pub fn bytes(&self, ty: &Type) -> f64 {
        self.elements(ty) * ty.dtype.size() as f64
    }
}

impl Default for Size {
    fn default() -> Size {
        Size::all(64)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> =
            self.symbols.iter().map(|(name, extent)| format!("{name}={extent}")).collect();
        parts.push(format!("{}={}", if parts.is_empty() { "all" } else { "others" }, self.others));
        f.write_str(&parts.join(", "))
    }
}
