//! A table of the laws that commute each pointwise operator with each movement operator, and the reason where there is none.

use mlc_dsl::check::operator_properties;
use mlc_dsl::expr::{ExprKind, Monoid};
use mlc_dsl::library::{CallId, CallKind, Callable, Law, LawSide, Library};
use mlc_dsl::term::TermKind;
use std::collections::BTreeSet;
use std::fmt::Write;

/// How a pointwise operator commutes with a movement operator.
enum Cell {
    /// The laws, by the names of their declarations.
    Laws(BTreeSet<String>),
    /// Why there is none.
    Reason(&'static str),
    /// Nobody knows.
    Hole,
}

/// The matrix as a table of Markdown: a row for each pointwise operator of the texts from this one on; nothing if there is none.
pub fn table(library: &Library, from: u32) -> String {
    let mut rows = operators(library);
    rows.retain(|(_, c)| c.source.file >= from);
    if rows.is_empty() {
        return String::new();
    }
    let columns = movements(library);
    let mut out = String::from("\n| operator |");
    for c in &columns {
        let _ = write!(out, " {} |", library.call(*c).name);
    }
    let _ = write!(out, "\n|---|{}", "---|".repeat(columns.len()));
    for (id, c) in rows {
        let _ = write!(out, "\n| `{}` |", c.name);
        for &column in &columns {
            let cell = match cell(library, id, column) {
                Cell::Laws(names) => {
                    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
                }
                Cell::Reason(why) => why.to_string(),
                Cell::Hole => "?".to_string(),
            };
            let _ = write!(out, " {cell} |");
        }
    }
    out.push('\n');
    out
}

/// Operators and movements with neither a law nor a reason.
pub fn holes(library: &Library) -> Vec<String> {
    let columns = movements(library);
    let all = operators(library).into_iter().flat_map(|(id, c)| {
        let open = columns.iter().filter(move |m| matches!(cell(library, id, **m), Cell::Hole));
        open.map(move |m| format!("{} {}", c.name, library.call(*m).name))
    });
    all.collect()
}

fn operators(library: &Library) -> Vec<(CallId, &Callable)> {
    let all = (0..library.calls.len() as u32).map(|i| (CallId(i), library.call(CallId(i))));
    let fused = |id: &CallId| library.fuses.iter().any(|f| f.call == *id);
    all.filter(|(id, c)| operator_properties::pointwise(library, c) && !fused(id)).collect()
}

/// The operators that some schema moves pointwise operators through, or takes them out of.
fn movements(library: &Library) -> Vec<CallId> {
    let pointwise = |c: CallId| operator_properties::pointwise(library, library.call(c));
    let mut out = BTreeSet::new();
    for law in library.laws.iter().filter(|l| l.schema.is_some()) {
        if let ([l], [r]) = (law.left.as_slice(), law.right.as_slice())
            && let (Some(l), Some(r)) = (applied(law, l), applied(law, r))
            && pointwise(l) != pointwise(r)
        {
            out.insert(if pointwise(l) { r } else { l });
        }
    }
    out.into_iter()
        .filter(|m| {
            operators(library).iter().any(|(id, _)| library.laws.iter().any(|l| moves(l, *id, *m)))
        })
        .collect()
}

fn cell(library: &Library, id: CallId, movement: CallId) -> Cell {
    let laws = library.laws.iter().filter(|l| moves(l, id, movement));
    let names: BTreeSet<String> = laws.map(|l| l.declared_name().to_string()).collect();
    if !names.is_empty() {
        return Cell::Laws(names);
    }
    let (c, m) = (library.call(id), library.call(movement));
    match joined_by(m) {
        _ if matches!(c.kind, CallKind::Def(_)) => Cell::Reason("its body does"),
        Some(_) if operator_properties::joins(c, m) => {
            Cell::Reason("two reductions cost more than one")
        }
        Some(Monoid::Max | Monoid::Min) if c.inputs.len() > 1 => {
            Cell::Reason("the largest of pairs is no pair of the largest")
        }
        Some(Monoid::Max | Monoid::Min) if !operator_properties::increasing(c) => {
            Cell::Reason("may fall, or be NaN")
        }
        Some(Monoid::Sum) if !operator_properties::linear(c) => Cell::Reason("no sum of multiples"),
        Some(Monoid::Sum) => Cell::Reason("two reductions cost more than one"),
        Some(Monoid::Prod) => Cell::Reason("no product of powers"),
        None if puts_zeros(m) && !operator_properties::keeps_zero(c) => {
            Cell::Reason("not zero where its operands are")
        }
        _ => Cell::Hole,
    }
}

/// What elements are joined by, over axes or over windows.
fn joined_by(movement: &Callable) -> Option<Monoid> {
    match &operator_properties::only_meaning(movement)?.kind {
        ExprKind::Reduce(reduce) => Some(reduce.monoid),
        _ => None,
    }
}

/// True if zeros take the place of some elements.
fn puts_zeros(movement: &Callable) -> bool {
    operator_properties::only_meaning(movement).is_some_and(|e| match &e.kind {
        ExprKind::If { otherwise, .. } => matches!(otherwise.kind, ExprKind::Int(0)),
        _ => false,
    })
}

fn applied(law: &Law, side: &LawSide) -> Option<CallId> {
    match &law.terms.get(side.root).kind {
        TermKind::Apply(c, _) => Some(*c),
        _ => None,
    }
}

/// True of a law that applies the operator inside of the movement on one side and around it on the other.
fn moves(law: &Law, id: CallId, movement: CallId) -> bool {
    let ([l], [r]) = (law.left.as_slice(), law.right.as_slice()) else { return false };
    let ends = (applied(law, l), applied(law, r));
    let (own, moved) = (Some(id), Some(movement));
    let inner = |side: &LawSide, wanted: Option<CallId>| {
        let mut stack = law.terms.get(side.root).args.clone();
        while let Some(t) = stack.pop() {
            let term = law.terms.get(t);
            if matches!(&term.kind, TermKind::Apply(c, _) if Some(*c) == wanted) {
                return true;
            }
            stack.extend(&term.args);
        }
        false
    };
    ends == (own, moved) && inner(l, moved) && inner(r, own)
        || ends == (moved, own) && inner(l, own) && inner(r, moved)
}
