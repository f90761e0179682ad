//! Bindings of a program's symbols to the extents of a run.

use crate::BackendError;
use mlc_dsl::ir::{Attr, DType, Extent, ExtentValues, Tensor, Type};
use mlc_dsl::layout::PerAxis;
use std::sync::Arc;

/// Element type and extents of an input.
pub type Found<'a> = (DType, &'a [usize]);

/// Which input has an extent, if one does.
fn first_with<'a>(
    types: &[(String, Type)],
    inputs: impl Iterator<Item = Found<'a>>,
    e: &Extent,
    value: i64,
) -> String {
    let has = |((_, ty), (_, shape)): &(&(String, Type), Found<'_>)| {
        ty.shape.iter().zip(*shape).any(|(own, &d)| own == e && d as i64 == value)
    };
    let found = types.iter().zip(inputs).find(has);
    found.map_or_else(String::new, |((name, _), _)| format!(" in input `{name}`"))
}

/// The value of each symbol, by name: there are few, and looking through them takes least.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolBindings(Vec<(Arc<str>, i64)>);

impl SymbolBindings {
    /// The symbols that fit the inputs' shapes, or why there are none.
    pub fn bind(
        types: &[(String, Type)],
        inputs: &[Tensor],
    ) -> Result<SymbolBindings, BackendError> {
        SymbolBindings::of_shapes(types, inputs.iter().map(|t| (t.dtype(), t.shape())))
    }

    /// The same of inputs of which only type and shape are known.
    pub fn of_shapes<'a>(
        types: &[(String, Type)],
        inputs: impl ExactSizeIterator<Item = Found<'a>> + Clone,
    ) -> Result<SymbolBindings, BackendError> {
        let bad = |name: &str, reason: String| {
            Err(BackendError::Input { name: name.to_string(), reason })
        };
        if types.len() != inputs.len() {
            let reason =
                format!("the program takes {} inputs, {} given", types.len(), inputs.len());
            return bad("", reason);
        }
        let mut out = SymbolBindings::default();
        for ((name, ty), (dtype, shape)) in types.iter().zip(inputs.clone()) {
            if ty.dtype != dtype {
                return bad(name, format!("expected {}, found {dtype}", ty.dtype));
            }
            if ty.rank() != shape.len() {
                return bad(name, format!("expected {ty}, found shape {shape:?}"));
            }
            for (e, &d) in ty.shape.iter().zip(shape) {
                out.learn(e, d as i64);
            }
        }
        for ((name, ty), (_, shape)) in types.iter().zip(inputs.clone()) {
            for (axis, (e, &d)) in ty.shape.iter().zip(shape).enumerate() {
                let Some(known) = out.eval(e).filter(|v| *v != d as i64) else { continue };
                let extents = format!("expected {ty}, found shape {shape:?}");
                let two = if e.as_const().is_some() {
                    String::new()
                } else {
                    let other = first_with(types, inputs.clone(), e, known);
                    format!(": `{e}` is {known}{other} and {d} in axis {axis}")
                };
                return bad(name, format!("{extents}{two}"));
            }
        }
        Ok(out)
    }

    /// Binds the one open symbol of `e` if `e` is linear in it.
    pub fn learn(&mut self, e: &Extent, value: i64) {
        if e.as_const().is_some() {
            return;
        }
        if let Some(symbol) = e.as_symbol() {
            if self.get(symbol).is_none() && value >= 0 {
                self.set(symbol, value);
            }
            return;
        }
        let rest = e.substitute(&|s| self.get(s).map(Extent::from));
        let symbols = rest.symbols();
        let [symbol] = symbols.as_slice() else { return };
        let at = |v: i64| rest.eval(&|_| Some(v));
        let (Some(zero), Some(one)) = (at(0), at(1)) else { return };
        let slope = one.wrapping_sub(zero);
        if slope != 0 && value.wrapping_sub(zero) % slope == 0 {
            let v = value.wrapping_sub(zero) / slope;
            if at(v) == Some(value) && v >= 0 {
                self.set(symbol, v);
            }
        }
    }

    /// The value of a symbol.
    pub fn get(&self, symbol: &str) -> Option<i64> {
        self.0.iter().find(|(s, _)| **s == *symbol).map(|(_, n)| *n)
    }

    fn set(&mut self, symbol: &Arc<str>, value: i64) {
        match self.0.binary_search_by(|(s, _)| s.cmp(symbol)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (symbol.clone(), value)),
        }
    }

    /// These values, but for those that `others` has.
    pub fn with(&self, others: &SymbolBindings) -> SymbolBindings {
        let mut all = self.clone();
        others.0.iter().for_each(|(s, n)| all.set(s, *n));
        all
    }

    /// The value of an extent, if all its symbols are bound.
    pub fn eval(&self, e: &Extent) -> Option<i64> {
        e.as_const().or_else(|| e.eval(&|s| self.get(s)))
    }

    /// Other values of the same symbols.
    pub fn map(&self, value: impl Fn(i64) -> i64) -> SymbolBindings {
        SymbolBindings(self.0.iter().map(|(s, n)| (s.clone(), value(*n))).collect())
    }
}

/// The extents of a program where symbols have certain numbers, each found once.
pub struct BoundExtents {
    symbols: SymbolBindings,
    values: ExtentValues,
}

impl From<SymbolBindings> for BoundExtents {
    fn from(symbols: SymbolBindings) -> BoundExtents {
        BoundExtents { symbols, values: ExtentValues::default() }
    }
}

impl BoundExtents {
    /// What symbols are bound to.
    pub fn symbols(&self) -> &SymbolBindings {
        &self.symbols
    }

    /// The same.
    pub fn into_symbols(self) -> SymbolBindings {
        self.symbols
    }

    /// Binds a symbol as [`SymbolBindings::learn`] does.
    pub fn learn(&mut self, e: &Extent, value: i64) {
        self.symbols.learn(e, value);
        self.values.clear();
    }

    /// The value of an extent, if all its symbols are bound.
    pub fn eval(&self, e: &Extent) -> Option<i64> {
        self.values.eval(e, &|s| self.symbols.get(s))
    }

    /// A shape with known extents.
    pub fn shape(&self, ty: &Type) -> Option<(DType, PerAxis<usize>)> {
        let shape = ty.shape.iter().map(|e| usize::try_from(self.eval(e)?).ok());
        Some((ty.dtype, shape.collect::<Option<_>>()?))
    }

    /// An attribute with known extents; unbound ones stay.
    pub fn attr(&self, a: &Attr) -> Attr {
        a.with_extents(|e| self.values.bound(e, &|s| self.symbols.get(s)))
    }
}
