//! Provenance: every term that was ever added, and every equation that was ever asserted.
//!
//! Independent of egg: a proof is found and checked from the log alone (see [`crate::proof`]).

use crate::graph::language::Head;
use std::collections::HashMap;

/// Index of a logged term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId(pub u32);

/// Why two terms are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The law of that index in the library.
    Law(u32),
    /// The term is fed by constants and was evaluated.
    ConstantFolding,
    /// A constant whose elements are equal is a scalar, broadcast.
    UniformConstant,
    /// Two chains of views that read the same elements in the same order.
    SameElements,
    /// One commutative, associative operator of the same operands, in another order or grouping.
    SameOperands,
    /// The definition of an operator, when the program was read.
    Definition,
}

/// One asserted equation.
#[derive(Clone, Copy, Debug)]
pub struct Equation {
    /// Why.
    pub reason: Reason,
    /// What was matched.
    pub left: LogId,
    /// What it equals.
    pub right: LogId,
    /// In which round; 0 while the program was read.
    pub round: u32,
}

#[derive(Clone, Debug, Default)]
pub struct ProofLog {
    terms: Vec<(Head, Box<[LogId]>)>,
    known: HashMap<(Head, Box<[LogId]>), LogId>,
    steps: Vec<Equation>,
}

impl ProofLog {
    /// The id of a term, new or known.
    pub fn term(&mut self, head: Head, args: Box<[LogId]>) -> LogId {
        if let Some(&id) = self.known.get(&(head, args.clone())) {
            return id;
        }
        let id = LogId(self.terms.len() as u32);
        self.known.insert((head, args.clone()), id);
        self.terms.push((head, args));
        id
    }

    /// Asserts an equation.
    pub fn assert(&mut self, step: Equation) {
        self.steps.push(step);
    }

    /// A logged term.
    pub fn get(&self, id: LogId) -> (Head, &[LogId]) {
        let (head, args) = &self.terms[id.0 as usize];
        (*head, args)
    }

    /// Number of logged terms.
    pub fn len(&self) -> usize {
        self.terms.len()
    }

    /// All equations, in the order they were asserted.
    pub fn steps(&self) -> &[Equation] {
        &self.steps
    }
}
