//! List literals as patterns: names in their entries are bound by matching a list.
//!
//! `[..p, n, 2 * k, ..rest]` is matched entry by entry. At most one spliced name may be unbound; it takes the
//! remaining entries. Everything else is computed and compared.

use crate::eval::{Env, eval};
use crate::expr::{Elem, Expr, ExprKind};
use crate::ir::{Attr, Extent};
use crate::library::Name;

/// How a list met its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFit {
    /// Every entry agrees, and every open name is bound.
    Yes,
    /// An entry or the length differs.
    No,
    /// Something is not known yet; what could be bound is.
    Later,
}

/// The names that an entry of a pattern may bind: whether it is spliced, and the name.
pub fn names(e: &Expr) -> Vec<(bool, &Name)> {
    fn name(i: &Elem) -> Option<(bool, &Name)> {
        i.expr().as_name().map(|n| (matches!(i, Elem::Splice(_)), n))
    }
    let ExprKind::List(items) = &e.kind else { return vec![] };
    items.iter().filter_map(name).collect()
}

/// Matches a list; `open` tells which names are the law's own. Bindings of a failed match stay: roll them back.
pub fn fit(e: &Expr, found: &Attr, env: &mut Env, open: &dyn Fn(&str) -> bool) -> ListFit {
    let (ExprKind::List(items), Attr::Ints(found)) = (&e.kind, found) else {
        return ListFit::Later;
    };
    let Some(lengths) = lengths(items, found.len(), env, open) else { return ListFit::Later };
    let Some(lengths) = lengths else { return ListFit::No };
    let (mut at, mut waits) = (0, false);
    for (item, n) in items.iter().zip(lengths) {
        let part = &found[at..at + n];
        at += n;
        let value = match item {
            Elem::One(_) => Attr::Int(part[0].clone()),
            Elem::Splice(_) => Attr::Ints(part.to_vec()),
        };
        if let Some(n) = open_name(item, env, open) {
            env.bind_attr(n, value);
            continue;
        }
        match eval(item.expr(), env) {
            Ok(v) if v == value => {}
            Ok(_) => return ListFit::No,
            Err(_) => waits = true,
        }
    }
    if waits { ListFit::Later } else { ListFit::Yes }
}

fn open_name<'e>(item: &'e Elem, env: &Env, open: &dyn Fn(&str) -> bool) -> Option<&'e Name> {
    match &item.expr().kind {
        ExprKind::Name(n) if env.attr(n).is_none() && open(n) => Some(n),
        _ => None,
    }
}

/// How many entries each item takes: `None` if that is not known yet, `Some(None)` if it cannot be.
#[allow(clippy::option_option)]
fn lengths(
    items: &[Elem],
    found: usize,
    env: &Env,
    open: &dyn Fn(&str) -> bool,
) -> Option<Option<Vec<usize>>> {
    let mut out = Vec::with_capacity(items.len());
    let mut rest = None;
    for (i, item) in items.iter().enumerate() {
        out.push(match item {
            Elem::One(_) => 1,
            Elem::Splice(_) if open_name(item, env, open).is_some() => {
                if rest.replace(i).is_some() {
                    return None;
                }
                0
            }
            Elem::Splice(e) => eval(e, env).ok()?.as_extents().map(<[Extent]>::len)?,
        });
    }
    let taken: usize = out.iter().sum();
    match rest {
        Some(i) if taken <= found => out[i] = found - taken,
        None if taken == found => {}
        _ => return Some(None),
    }
    Some(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::BinaryOp;

    fn expr(kind: ExprKind) -> Expr {
        Expr::new(kind)
    }

    fn name(n: &str) -> Expr {
        expr(ExprKind::Name(n.into()))
    }

    fn list(items: Vec<Elem>) -> Expr {
        expr(ExprKind::List(items))
    }

    fn fits(pattern: &Expr, found: &[i64], env: &mut Env) -> ListFit {
        fit(pattern, &Attr::ints(found.to_vec()), env, &|_| true)
    }

    #[test]
    fn names_are_bound_entry_by_entry() {
        let pattern = list(vec![
            Elem::Splice(name("p")),
            Elem::One(name("g")),
            Elem::One(expr(ExprKind::Int(4))),
        ]);
        let mut env = Env::default();
        assert_eq!(fits(&pattern, &[2, 3, 8, 4], &mut env), ListFit::Yes);
        assert_eq!(env.attr("p"), Some(&Attr::ints(vec![2, 3])));
        assert_eq!(env.attr("g"), Some(&Attr::int(8)));
        assert_eq!(fits(&pattern, &[2, 3, 8, 4], &mut env), ListFit::Yes);
        assert_eq!(fits(&pattern, &[2, 3, 9, 4], &mut env), ListFit::No);
        assert_eq!(fits(&pattern, &[8, 4], &mut env), ListFit::No);
        assert_eq!(fits(&pattern, &[4], &mut Env::default()), ListFit::No);
        assert_eq!(fits(&pattern, &[1, 5], &mut Env::default()), ListFit::No);
    }

    #[test]
    fn a_name_that_occurs_twice_is_compared() {
        let pattern = list(vec![Elem::One(name("g")), Elem::One(name("g"))]);
        assert_eq!(fits(&pattern, &[3, 3], &mut Env::default()), ListFit::Yes);
        assert_eq!(fits(&pattern, &[3, 4], &mut Env::default()), ListFit::No);
    }

    #[test]
    fn two_open_splices_wait() {
        let pattern = list(vec![Elem::Splice(name("p")), Elem::Splice(name("q"))]);
        let mut env = Env::default();
        assert_eq!(fits(&pattern, &[3, 3], &mut env), ListFit::Later);
        env.bind_attr(&Name::from("q"), Attr::ints(vec![3]));
        assert_eq!(fits(&pattern, &[2, 3], &mut env), ListFit::Yes);
        assert_eq!(env.attr("p"), Some(&Attr::ints(vec![2])));
    }

    #[test]
    fn computed_entries_are_compared_once_they_are_known() {
        let double = expr(ExprKind::Binary(
            BinaryOp::Mul,
            Box::new(expr(ExprKind::Int(2))),
            Box::new(expr(ExprKind::Size("k".into()))),
        ));
        let pattern = list(vec![Elem::One(name("g")), Elem::One(double)]);
        let mut env = Env::default();
        assert_eq!(fits(&pattern, &[3, 8], &mut env), ListFit::Later);
        env.bind_axis(&Name::from("k"), Extent::from(4));
        assert_eq!(fits(&pattern, &[3, 8], &mut env), ListFit::Yes);
        assert_eq!(fits(&pattern, &[3, 6], &mut env), ListFit::No);
    }
}
