//! The ways to meet a law's conditions, where they leave a choice.

use mlc_dsl::expr::{BinaryOp, Expr, ExprKind};

/// So many ways to meet a law's conditions are sampled each by itself.
const MAX_WAYS: usize = 8;

/// The ways to meet all conditions: of each `or` one side. A law must hold in each; drawn together, the one that is easily met would
/// hide the others.
pub(crate) fn ways(conditions: &[Expr]) -> Vec<Vec<Expr>> {
    let mut out: Vec<Vec<Expr>> = vec![vec![]];
    for c in conditions {
        let sides = sides(c);
        // What would be too many ways stays one.
        let sides = if out.len() * sides.len() > MAX_WAYS { vec![vec![c.clone()]] } else { sides };
        let with = |way: &Vec<Expr>| -> Vec<Vec<Expr>> {
            sides.iter().map(|s| way.iter().chain(s).cloned().collect()).collect()
        };
        out = out.iter().flat_map(with).collect();
    }
    out
}

/// The ways to meet one condition.
fn sides(e: &Expr) -> Vec<Vec<Expr>> {
    match &e.kind {
        ExprKind::Binary(BinaryOp::Or, a, b) => [sides(a), sides(b)].concat(),
        ExprKind::Binary(BinaryOp::And, a, b) => ways(&[(**a).clone(), (**b).clone()]),
        _ => vec![vec![e.clone()]],
    }
}
