//! Selects the laws that can fire in a program: those whose operators occur in it, or in results of laws that can fire.
//!
//! So a law about an operator that neither the program nor another law contains costs nothing.

use crate::graph::Graph;
use crate::graph::language::Head;
use mlc_dsl::expr::{Expr, ExprKind};
use mlc_dsl::library::{CallId, Law, Library};
use mlc_dsl::pattern::is_normal;
use mlc_dsl::term::{TermId, TermKind};
use std::collections::{BTreeSet, HashSet};

/// The laws, out of these, that can fire, and the others.
pub fn split_applicable(graph: &Graph, laws: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let library = &graph.library;
    let law = |i: u32| &library.laws[i as usize];
    let normal = laws.iter().map(|&i| law(i)).filter(|l| is_normal(l));
    let rewritten: BTreeSet<CallId> = normal.filter_map(|l| head(l, l.left[0].root)).collect();
    let needs: Vec<(u32, BTreeSet<CallId>)> =
        laws.iter().map(|&i| (i, needs(library, law(i), &rewritten))).collect();
    let mut known = present(graph);
    let mut waiting = needs;
    let mut out = Vec::new();
    loop {
        let (fire, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(_, needs)| needs.is_subset(&known));
        waiting = rest;
        if fire.is_empty() {
            break;
        }
        for (i, _) in fire {
            let made = law(i).terms.iter().filter_map(|(t, _)| head(law(i), t));
            known.extend(made);
            out.push(i);
        }
    }
    out.sort_unstable();
    (out, waiting.into_iter().map(|(i, _)| i).collect())
}

/// The operators of the program, and those that are put in without a law.
fn present(graph: &Graph) -> BTreeSet<CallId> {
    let nodes = graph.egg.classes().flat_map(|c| &c.nodes);
    let used = nodes.filter_map(|n| match n.head {
        Head::Apply(c, _) => Some(c),
        _ => None,
    });
    let s = &graph.structural;
    let moves = [s.broadcast, s.reshape, s.transpose, s.slice, s.cast, s.extents];
    used.chain(moves.into_iter().chain(s.arithmetic).flatten()).collect()
}

fn head(law: &Law, t: TermId) -> Option<CallId> {
    match &law.terms.get(t).kind {
        TermKind::Apply(c, _) | TermKind::EachFold(c, _) => Some(*c),
        TermKind::Var(_) | TermKind::Scalar(_) | TermKind::Output(_) | TermKind::EachPart(_) => {
            None
        }
    }
}

/// Operators that every match of a law has an application of. What normalising laws rewrite, what is computed of numbers
/// alone, and sums and products with a number, of which one may be left out, do not count.
fn needs(library: &Library, law: &Law, rewritten: &BTreeSet<CallId>) -> BTreeSet<CallId> {
    let broadcast = library.find("broadcast");
    let is_number = |t: TermId| {
        let mut t = t;
        while head(law, t).is_some() && head(law, t) == broadcast {
            t = law.terms.get(t).args[0];
        }
        matches!(law.terms.get(t).kind, TermKind::Scalar(_))
    };
    let tables = mlc_dsl::pattern::tables(library, law);
    let (mut seen, mut out) = (HashSet::new(), BTreeSet::new());
    let mut stack: Vec<TermId> = law.left.iter().map(|s| s.root).collect();
    while let Some(t) = stack.pop() {
        // Tables stand in programs as constants.
        if !seen.insert(t) || tables.contains(&t) {
            continue;
        }
        let term = law.terms.get(t);
        stack.extend(&term.args);
        let TermKind::Apply(call, attrs) = &term.kind else { continue };
        let numbers = term.args.iter().filter(|a| is_number(**a)).count();
        let implied = Some(*call) == broadcast
            && matches!(attrs.first(), Some(Some(Expr { kind: ExprKind::List(_), .. })));
        let computed = !term.args.is_empty() && numbers == term.args.len();
        let spared = library.call(*call).arithmetic().is_some() && numbers > 0;
        if !implied && !computed && !spared && !rewritten.contains(call) {
            out.insert(*call);
        }
    }
    out
}
