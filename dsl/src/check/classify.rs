//! The structure of an operator, read off its meaning.

use crate::library::{CallKind, Callable, Dim, OpClass};
use crate::syntax::ast::{BinaryOp, Elem, Expr, ExprKind, Meaning};

/// What the meaning of `c` shows.
pub fn classify(c: &Callable) -> OpClass {
    let CallKind::Op(meanings) = &c.kind else { return OpClass::Other };
    let [m] = meanings.as_slice() else { return OpClass::Other };
    let same = reads(&m.value).iter().all(|r| same_index(m, r));
    if super::elaborate::is_pointwise(c) && same && !knows_its_place(m, &m.value) {
        return OpClass::Pointwise;
    }
    match &m.value.kind {
        ExprKind::Index { otherwise: None, index, .. } if !reads_inside(index) => {
            if c.inputs.len() == 1 { OpClass::View } else { OpClass::Movement }
        }
        ExprKind::Reduce { monoid, body, .. } => match &body.kind {
            ExprKind::Binary(BinaryOp::Mul, a, b)
                if monoid.text == "sum" && is_read(a) && is_read(b) =>
            {
                OpClass::Contraction
            }
            _ if is_read(body) => OpClass::Reduction,
            _ => OpClass::Other,
        },
        _ if moves(&m.value, c) => OpClass::Movement,
        _ => OpClass::Other,
    }
}

/// All element accesses in `e`.
fn reads(e: &Expr) -> Vec<&[Elem]> {
    let mut out = Vec::new();
    collect(e, &mut out);
    out
}

fn collect<'e>(e: &'e Expr, out: &mut Vec<&'e [Elem]>) {
    match &e.kind {
        ExprKind::Index { index, otherwise, .. } => {
            out.push(index);
            for Elem::One(e) | Elem::Splice(e) in index {
                collect(e, out);
            }
            if let Some(o) = otherwise {
                collect(o, out);
            }
        }
        ExprKind::Unary(_, a) => collect(a, out),
        ExprKind::Binary(_, a, b) => {
            collect(a, out);
            collect(b, out);
        }
        ExprKind::Call { args, .. } => args.iter().for_each(|a| collect(&a.value, out)),
        ExprKind::Reduce { body, .. } => collect(body, out),
        ExprKind::If { cond, then, otherwise } => {
            collect(cond, out);
            collect(then, out);
            collect(otherwise, out);
        }
        _ => {}
    }
}

fn same_index(m: &Meaning, read: &[Elem]) -> bool {
    m.index.len() == read.len()
        && m.index.iter().zip(read).all(|(a, b)| match (a, b) {
            (Elem::One(a), Elem::One(b)) | (Elem::Splice(a), Elem::Splice(b)) => {
                matches!((&a.kind, &b.kind), (ExprKind::Name(a), ExprKind::Name(b)) if a == b)
            }
            _ => false,
        })
}

/// True if a value hangs on where it stands, or on how many there are, besides the elements that it is computed from.
fn knows_its_place(m: &Meaning, e: &Expr) -> bool {
    let is_index =
        |n: &str| m.index.iter().any(|i| matches!(&i.expr().kind, ExprKind::Name(own) if own == n));
    match &e.kind {
        ExprKind::Index { otherwise, .. } => {
            otherwise.as_deref().is_some_and(|o| knows_its_place(m, o))
        }
        ExprKind::Size(_) => true,
        ExprKind::Name(n) => is_index(n),
        _ => super::parts(e).into_iter().any(|e| knows_its_place(m, e)),
    }
}

fn reads_inside(index: &[Elem]) -> bool {
    index.iter().any(|(Elem::One(e) | Elem::Splice(e))| !reads(e).is_empty())
}

fn is_read(e: &Expr) -> bool {
    matches!(e.kind, ExprKind::Index { .. })
}

/// True if elements are only chosen, never computed with.
fn moves(e: &Expr, c: &Callable) -> bool {
    let constant = |e: &Expr| matches!(e.kind, ExprKind::Int(_) | ExprKind::Float(_));
    match &e.kind {
        ExprKind::Index { otherwise, .. } => otherwise.as_ref().is_none_or(|o| moves(o, c)),
        ExprKind::If { cond, then, otherwise } => {
            let by_element = !reads(cond).is_empty();
            !by_element && moves(then, c) && moves(otherwise, c)
        }
        ExprKind::Name(n) => matches!(n.as_str(), "lowest" | "highest" | "inf" | "nan"),
        ExprKind::Call { .. } => {
            // Filled from the index alone.
            reads(e).is_empty()
                && c.inputs.iter().all(|i| !matches!(i.ty.dims.as_deref(), Some([Dim::Seg(_)])))
        }
        _ => constant(e),
    }
}
