//! Where an index can lie.

use crate::expr::{BinaryOp, Expr, ExprKind};

/// The least and the largest value of an index; `None` if they are not known. `bounds` has those of variables and numbers.
pub(super) fn range(e: &Expr, bounds: &dyn Fn(&Expr) -> Option<(i64, i64)>) -> Option<(i64, i64)> {
    if let Some(known) = bounds(e) {
        return Some(known);
    }
    let ExprKind::Binary(op, a, b) = &e.kind else { return None };
    let ((a0, a1), (b0, b1)) = (range(a, bounds)?, range(b, bounds)?);
    match op {
        BinaryOp::Add => Some((a0.checked_add(b0)?, a1.checked_add(b1)?)),
        BinaryOp::Sub => Some((a0.checked_sub(b1)?, a1.checked_sub(b0)?)),
        BinaryOp::Mul if a0 >= 0 && b0 >= 0 => Some((a0.checked_mul(b0)?, a1.checked_mul(b1)?)),
        BinaryOp::Div if a0 >= 0 && b0 > 0 => Some((a0 / b1, a1 / b0)),
        BinaryOp::Mod if b0 > 0 => Some((0, b1 - 1)),
        _ => None,
    }
}
