//! Classifies operators by the structure of their meaning.

use crate::expr::{BinaryOp, Elem, Expr, ExprKind, Meaning, Monoid, Read};
use crate::library::{CallKind, Callable, Dim, OpClass};

/// What the meaning of `c` shows.
pub fn classify(c: &Callable) -> OpClass {
    let CallKind::Op(meanings) = &c.kind else { return OpClass::Other };
    let [m] = meanings.as_slice() else { return OpClass::Other };
    if c.recurrence.is_some() {
        return OpClass::Other;
    }
    let same = reads(&m.value).iter().all(|r| same_index(m, r));
    if super::super::elaborate::is_pointwise(c) && same && !knows_its_place(&m.value) {
        return OpClass::Pointwise;
    }
    match &m.value.kind {
        ExprKind::Read(Read { otherwise: None, index, .. })
            if !index.iter().any(|i| i.expr().reads()) =>
        {
            if c.inputs.len() == 1 {
                OpClass::View
            } else {
                OpClass::Movement
            }
        }
        ExprKind::Reduce(r) => match &r.body.kind {
            ExprKind::Binary(BinaryOp::Mul, a, b)
                if r.monoid == Monoid::Sum && is_read(a) && is_read(b) =>
            {
                OpClass::Contraction
            }
            _ if is_read(&r.body) => OpClass::Reduction,
            _ => OpClass::Other,
        },
        _ if moves(&m.value, c) => OpClass::Movement,
        _ => OpClass::Other,
    }
}

/// The indices of all element accesses in `e`.
fn reads(e: &Expr) -> Vec<&[Elem]> {
    let mut out = Vec::new();
    e.walk(&mut |e| {
        if let ExprKind::Read(r) = &e.kind {
            out.push(r.index.as_slice());
        }
    });
    out
}

fn same_index(m: &Meaning, read: &[Elem]) -> bool {
    m.index.len() == read.len()
        && m.index.iter().zip(read).all(|(v, e)| {
            matches!(e, Elem::Splice(_)) == v.segment && e.expr().kind == ExprKind::Index(v.id)
        })
}

/// True if a value depends on its position or on extents besides the elements that it is computed from.
fn knows_its_place(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Read(Read { otherwise, .. }) => otherwise.as_deref().is_some_and(knows_its_place),
        ExprKind::Index(_) | ExprKind::Size(_) => true,
        _ => e.parts().into_iter().any(knows_its_place),
    }
}

fn is_read(e: &Expr) -> bool {
    matches!(e.kind, ExprKind::Read(_))
}

/// True if elements are only chosen, never computed with.
fn moves(e: &Expr, c: &Callable) -> bool {
    match &e.kind {
        ExprKind::Read(r) => r.otherwise.as_ref().is_none_or(|o| moves(o, c)),
        ExprKind::If { cond, then, otherwise } => {
            !cond.reads() && moves(then, c) && moves(otherwise, c)
        }
        ExprKind::Call(..) => {
            // Filled from the index alone.
            !e.reads()
                && c.inputs.iter().all(|i| !matches!(i.ty.dims.as_deref(), Some([Dim::Seg(_)])))
        }
        ExprKind::Lowest | ExprKind::Int(_) | ExprKind::Float(_) => true,
        _ => false,
    }
}
