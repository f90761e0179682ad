//! A visitor of the affine forms in accelerated code.

use crate::reference::code::{Affine, Int, Read, Real, Slot, Truth};

/// Code whose index variables can be visited.
pub trait AffineVisitor {
    /// Calls `f` on every affine form that evaluation reads.
    fn affines(&self, f: &mut dyn FnMut(&Affine));

    /// True if the value depends on the index variable.
    fn reads(&self, slot: Slot) -> bool {
        let mut found = false;
        self.affines(&mut |a| found |= a.factor(slot) != 0);
        found
    }
}

impl<E: AffineVisitor> AffineVisitor for Read<E> {
    fn affines(&self, f: &mut dyn FnMut(&Affine)) {
        match &self.fast {
            Some(fast) => {
                f(&fast.offset);
                fast.checked.iter().for_each(|(a, ..)| f(a));
            }
            None => self.index.iter().for_each(|i| i.affines(f)),
        }
        if let Some(e) = &self.otherwise {
            e.affines(f);
        }
    }
}

impl AffineVisitor for Real {
    fn affines(&self, f: &mut dyn FnMut(&Affine)) {
        match self {
            Real::Const(_) => {}
            Real::Unary(_, a) | Real::Neg(a) | Real::Round(_, a) => a.affines(f),
            Real::Binary(_, a, b) => {
                a.affines(f);
                b.affines(f);
            }
            Real::Read(r) => r.affines(f),
            Real::If(c, a, b) => {
                c.affines(f);
                a.affines(f);
                b.affines(f);
            }
            Real::Reduce(r) => r.body.affines(f),
            Real::FromInt(_, a) => a.affines(f),
        }
    }
}

impl AffineVisitor for Int {
    fn affines(&self, f: &mut dyn FnMut(&Affine)) {
        match self {
            Int::Const(_) => {}
            Int::Slot(s) => f(&Affine { constant: 0, terms: vec![(*s, 1)] }),
            Int::Affine(a) => f(a),
            Int::Neg(a) | Int::Abs(a) | Int::Signum(_, a) | Int::Wrap(_, a) => a.affines(f),
            Int::Binary(_, a, b) | Int::Exact(a, b) => {
                a.affines(f);
                b.affines(f);
            }
            Int::At(list, at) => {
                list.iter().for_each(|v| v.affines(f));
                at.affines(f);
            }
            Int::Read(r) => r.affines(f),
            Int::If(c, a, b) => {
                c.affines(f);
                a.affines(f);
                b.affines(f);
            }
            Int::Reduce(r) => r.body.affines(f),
            Int::FromReal(_, a) => a.affines(f),
            Int::FromTruth(a) => a.affines(f),
        }
    }
}

impl AffineVisitor for Truth {
    fn affines(&self, f: &mut dyn FnMut(&Affine)) {
        match self {
            Truth::Const(_) => {}
            Truth::Real(_, a, b) => {
                a.affines(f);
                b.affines(f);
            }
            Truth::Int(_, _, a, b) => {
                a.affines(f);
                b.affines(f);
            }
            Truth::And(a, b) | Truth::Or(a, b) => {
                a.affines(f);
                b.affines(f);
            }
            Truth::Not(a) | Truth::Quantified(_, _, a) => a.affines(f),
            Truth::NonZero(a) => a.affines(f),
            Truth::If(c, a, b) => {
                c.affines(f);
                a.affines(f);
                b.affines(f);
            }
        }
    }
}
