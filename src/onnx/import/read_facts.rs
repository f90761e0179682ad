//! What reading a model finds out that decides how a result may be written. Nothing is computed from it.

use mlc_dsl::ir::{Atom, DType, Extent};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is known of a model besides what it computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadFacts {
    /// The domain and name of every operator of the model, with the element types of first inputs.
    operators: BTreeSet<(String, String, Option<DType>)>,
    /// A runtime has no code for some node of the model.
    lacks_kernels: bool,
    /// What is not 0 wherever the model runs.
    pub(crate) positive: Positive,
}

impl ReadFacts {
    /// The model has such a node: whatever runs the model runs others like it.
    pub(crate) fn add_operator(&mut self, domain: &str, name: &str, first: Option<DType>) {
        self.operators.insert((domain.to_string(), name.to_string(), first));
    }

    /// What is 0 at values of symbols where the model cannot run: a symbol, or an extent that is computed of them.
    pub fn empty(&self, value: &dyn Fn(&str) -> Option<i64>) -> Option<String> {
        let own = self.positive.symbols.iter().find(|s| value(s) == Some(0)).map(|s| s.to_string());
        let is_empty = |e: &&Extent| e.eval(value).is_some_and(|n| n <= 0);
        own.or_else(|| self.positive.computed.iter().find(is_empty).map(Extent::to_string))
    }

    /// A node was read for which a runtime has no code.
    pub(crate) fn add_without_kernel(&mut self) {
        self.lacks_kernels = true;
    }

    /// True if a runtime has code for every node of the model that was understood.
    pub fn has_kernels(&self) -> bool {
        !self.lacks_kernels
    }

    /// True if the model has a node of that operator whose first input has that element type.
    pub(crate) fn has_operator(&self, domain: &str, name: &str, first: Option<DType>) -> bool {
        self.operators.contains(&(domain.to_string(), name.to_string(), first))
    }
}

/// Extents that are not 0 wherever a model runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Positive {
    symbols: BTreeSet<Arc<str>>,
    /// Extents that are computed of symbols, as the axes behind a convolution.
    computed: BTreeSet<Extent>,
}

impl Positive {
    /// An extent is not 0: if it is a product, nor is a factor.
    pub fn add(&mut self, extent: &Extent) {
        if let [(monomial, _)] = extent.terms().as_slice() {
            let symbol = |(atom, _): &(Atom, u32)| match atom {
                Atom::Sym(s) => Some(s.clone()),
                Atom::Div(..) | Atom::Mod(..) | Atom::Positive(_) | Atom::Common(_) => None,
            };
            self.symbols.extend(monomial.iter().filter_map(symbol));
        }
        if !self.holds(extent) {
            self.computed.insert(extent.clone());
        }
    }

    /// True if an extent is known not to be 0.
    pub fn holds(&self, extent: &Extent) -> bool {
        let is_known = |(atom, _): &(Atom, u32)| match atom {
            Atom::Sym(s) => self.symbols.contains(s),
            Atom::Div(..) | Atom::Mod(..) | Atom::Positive(_) | Atom::Common(_) => false,
        };
        let known = match extent.terms().as_slice() {
            [(monomial, factor)] => *factor != 0 && monomial.iter().all(is_known),
            _ => extent.at_least(1),
        };
        known || self.computed.contains(extent)
    }
}
