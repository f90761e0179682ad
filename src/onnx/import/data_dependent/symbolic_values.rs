//! Symbolic elements in place of values that only a run computes: they give the result types of passthrough nodes.
//!
//! Such a symbol never leaves the import: an extent that depends on one becomes a symbol of the result's own.

use mlc_dsl::ir::{DType, Extent, Type, Value};
use mlc_dsl::shape_values::{Known, KnownElement};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Values with more elements than this are data, and decide no shape.
const MOST: usize = 64;

/// The symbolic elements, and whether they are in use.
#[derive(Default)]
pub(crate) struct SymbolicValues {
    is_on: bool,
    /// By value, and the node that it is supposed for (0 if it is the same for all).
    elements: HashMap<(Value, usize), Rc<Known>>,
    symbols: HashSet<Arc<str>>,
}

impl SymbolicValues {
    pub fn turn(&mut self, on: bool) {
        self.is_on = on;
    }

    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Symbols for the elements of a value of this type; `None` if they are no integers, or too many.
    pub fn elements(&mut self, v: Value, ty: &Type, node: usize) -> Option<Rc<Known>> {
        if let Some(known) = self.elements.get(&(v, node)) {
            return Some(known.clone());
        }
        let shape = ty.known_shape().filter(|s| s.iter().product::<usize>() <= MOST)?;
        ty.dtype.int_range().filter(|_| ty.dtype != DType::Bool)?;
        let count = shape.iter().product::<usize>();
        let mut symbol = |i| {
            let name = format!("?{}.{}.{node}.{i}", v.node.0, v.output);
            self.symbols.insert(name.as_str().into());
            KnownElement::Int(Extent::sym(&name))
        };
        let elements = (0..count).map(&mut symbol).collect();
        let known = Rc::new(Known { dtype: ty.dtype, shape, elements });
        self.elements.insert((v, node), known.clone());
        Some(known)
    }

    /// True if an extent depends on what is supposed.
    pub fn mentions(&self, extent: &Extent) -> bool {
        !self.symbols.is_empty() && extent.symbols().iter().any(|s| self.symbols.contains(s))
    }
}
