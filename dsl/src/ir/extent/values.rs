//! Extents of a program that are evaluated many times: equal ones are one in memory, and each has its number found once.
//!
//! Never outlives what its symbols stand for: other numbers need other [`ExtentValues`].

use super::{Extent, Repr};
use crate::ir::{Attr, NodeKind, Program, Type};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::sync::Arc;

/// Extents that programs share.
#[derive(Default)]
pub struct SharedExtents(FxHashSet<Extent>);

impl SharedExtents {
    /// Makes equal polynomials of the program's types and attributes one in memory.
    pub fn share(&mut self, program: &mut Program) {
        for node in &mut program.nodes {
            node.types.iter_mut().for_each(|t| self.share_type(t));
            if let NodeKind::Apply(_, attrs) = &mut node.kind {
                for e in attrs.iter_mut().flat_map(Attr::extents_mut) {
                    self.share_one(e);
                }
            }
        }
        program.inputs.iter_mut().for_each(|(_, t)| self.share_type(t));
    }

    fn share_type(&mut self, ty: &mut Type) {
        ty.shape.iter_mut().for_each(|e| self.share_one(e));
    }

    fn share_one(&mut self, e: &mut Extent) {
        if !matches!(e.0, Repr::Poly(..)) {
            return;
        }
        match self.0.get(e) {
            Some(known) => *e = known.clone(),
            None => drop(self.0.insert(e.clone())),
        }
    }
}

/// The numbers of extents under one binding of symbols, by where their polynomials are in memory.
#[derive(Debug, Default)]
pub struct ExtentValues {
    /// Each with the extent, so that its memory is nobody else's.
    known: RefCell<FxHashMap<usize, (Extent, Option<i64>)>>,
}

impl ExtentValues {
    /// What [`Extent::eval`] says; the symbols must have the same numbers at each call.
    pub fn eval(&self, e: &Extent, symbol: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        let Repr::Poly(terms, _) = &e.0 else { return e.as_const() };
        let at = Arc::as_ptr(terms) as usize;
        if let Some((_, value)) = self.known.borrow().get(&at) {
            return *value;
        }
        let value = e.eval(symbol);
        self.known.borrow_mut().insert(at, (e.clone(), value));
        value
    }

    /// What [`Extent::bound`] says.
    pub fn bound(&self, e: &Extent, symbol: &dyn Fn(&str) -> Option<i64>) -> Extent {
        self.eval(e, symbol).map_or_else(|| e.clone(), Extent::from)
    }

    /// Forgets all numbers: symbols have others now.
    pub fn clear(&mut self) {
        self.known.get_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;

    #[test]
    fn equal_extents_are_one_and_evaluated_once() {
        let extent = || &Extent::sym("n") + &Extent::from(1);
        let mut program = Program::default();
        for name in ["a", "b"] {
            program.inputs.push((name.into(), Type::new(DType::F32, vec![extent()])));
        }
        let at = |e: &Extent| match &e.0 {
            Repr::Poly(terms, _) => Arc::as_ptr(terms) as usize,
            Repr::Known(_) | Repr::TooLarge => unreachable!("`n + 1` is no number"),
        };
        let places =
            |p: &Program| p.inputs.iter().map(|(_, t)| at(&t.shape[0])).collect::<Vec<_>>();
        assert_ne!(places(&program)[0], places(&program)[1]);
        SharedExtents::default().share(&mut program);
        assert_eq!(places(&program)[0], places(&program)[1]);
        let (mut values, asked) = (ExtentValues::default(), RefCell::new(0));
        let symbol = |_: &str| {
            *asked.borrow_mut() += 1;
            Some(6)
        };
        for (_, ty) in &program.inputs {
            assert_eq!(values.eval(&ty.shape[0], &symbol), Some(7));
        }
        assert_eq!(*asked.borrow(), 1);
        values.clear();
        assert_eq!(values.eval(&program.inputs[0].1.shape[0], &|_| None), None);
        assert_eq!(values.eval(&Extent::from(3), &|_| None), Some(3));
    }
}
