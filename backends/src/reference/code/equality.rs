//! Structural equality and hashing of float expressions: numbers are compared by their bits, so that NaN equals itself
//! and 0 differs from -0.

use super::Real;
use std::hash::{Hash, Hasher};

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        match self {
            Real::Const(a) => matches!(other, Real::Const(b) if a.to_bits() == b.to_bits()),
            Real::Unary(f, a) => matches!(other, Real::Unary(g, b) if f == g && a == b),
            Real::Neg(a) => matches!(other, Real::Neg(b) if a == b),
            Real::Binary(f, a, b) => {
                matches!(other, Real::Binary(g, c, d) if f == g && a == c && b == d)
            }
            Real::Read(a) => matches!(other, Real::Read(b) if a == b),
            Real::If(p, a, b) => matches!(other, Real::If(q, c, d) if p == q && a == c && b == d),
            Real::Reduce(a) => matches!(other, Real::Reduce(b) if a == b),
            Real::FromInt(s, a) => matches!(other, Real::FromInt(t, b) if s == t && a == b),
            Real::Round(s, a) => matches!(other, Real::Round(t, b) if s == t && a == b),
        }
    }
}

impl Eq for Real {}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Real::Const(v) => v.to_bits().hash(state),
            Real::Unary(f, a) => (f, a).hash(state),
            Real::Neg(a) => a.hash(state),
            Real::Binary(f, a, b) => (f, a, b).hash(state),
            Real::Read(read) => read.hash(state),
            Real::If(condition, a, b) => (condition, a, b).hash(state),
            Real::Reduce(reduce) => reduce.hash(state),
            Real::FromInt(sign, a) => (sign, a).hash(state),
            Real::Round(dtype, a) => (dtype, a).hash(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::scalar::RealOp;

    #[test]
    fn numbers_are_equal_by_their_bits() {
        let sum = |v: f64| {
            Real::Binary(RealOp::Add, Box::new(Real::Const(v)), Box::new(Real::Const(1.0)))
        };
        assert_eq!(sum(f64::NAN), sum(f64::NAN));
        assert_ne!(sum(0.0), sum(-0.0));
        assert_ne!(sum(0.0), Real::Neg(Box::new(sum(0.0))));
        let hash = |r: &Real| {
            let mut hasher = std::hash::DefaultHasher::new();
            r.hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(&sum(f64::NAN)), hash(&sum(f64::NAN)));
    }
}
