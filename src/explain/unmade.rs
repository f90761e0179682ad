//! Operators of the user's texts in a law's pattern that a model can never come to have: no node has them, and no law yields them.

use crate::stdlib;
use mlc_dsl::ir::{NodeKind, Program};
use mlc_dsl::library::{CallId, CallKind, Law, LawOrigin, LawSide, Library};
use mlc_dsl::term::TermKind;
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};

/// An operator that nothing becomes.
#[derive(Clone, Debug, Serialize)]
pub struct Unmade {
    /// Its name.
    pub operator: String,
    /// Whether it reads its own results: a loop of a model may be proven to be it.
    pub recurrence: bool,
}

/// The user's primitive operators of a law's left side that neither a program nor the right side of a law has.
pub(super) fn unmade(source: &Program, library: &Library, law: &Law) -> Vec<Unmade> {
    let has = |c: CallId| {
        source.nodes.iter().any(|n| matches!(n.kind, NodeKind::Apply(own, _) if own == c))
    };
    let is_own = |c: &CallId| {
        let call = library.call(*c);
        let is_primitive = !matches!(call.kind, CallKind::Def(_));
        is_primitive && call.source.file as usize >= stdlib::SHIPPED_TEXTS
    };
    let yields = |l: &Law, c: CallId| {
        l.origin != LawOrigin::Unfold
            && calls(l, &l.right).contains(&c)
            && !calls(l, &l.left).contains(&c)
    };
    let wanted = calls(law, &law.left).into_iter().filter(is_own).filter(|&c| !has(c));
    let alone = wanted.filter(|&c| !library.laws.iter().any(|l| yields(l, c)));
    let told = alone.map(|c| {
        let call = library.call(c);
        Unmade { operator: call.name.to_string(), recurrence: call.recurrence.is_some() }
    });
    told.collect()
}

/// The recurrences that definitions of operators consist of and a program has.
pub(super) fn recurrences(program: &Program, library: &Library, of: &[CallId]) -> Vec<String> {
    let unfolds = |l: &&Law| {
        l.origin == LawOrigin::Unfold && calls(l, &l.left).iter().any(|c| of.contains(c))
    };
    let own = library.laws.iter().filter(unfolds).flat_map(|l| calls(l, &l.right));
    let own: BTreeSet<CallId> = own.filter(|&c| library.call(c).recurrence.is_some()).collect();
    let has = |c: &CallId| {
        program.nodes.iter().any(|n| matches!(n.kind, NodeKind::Apply(own, _) if own == *c))
    };
    own.into_iter().filter(has).map(|c| library.call(c).name.to_string()).collect()
}

/// The operators of some sides of a law.
pub(super) fn calls(law: &Law, sides: &[LawSide]) -> BTreeSet<CallId> {
    let mut open: Vec<_> = sides.iter().map(|s| s.root).collect();
    let (mut found, mut seen) = (BTreeSet::new(), HashSet::new());
    while let Some(id) = open.pop() {
        // Terms are shared: as trees they may be exponentially larger.
        if !seen.insert(id) {
            continue;
        }
        let term = law.terms.get(id);
        if let TermKind::Apply(call, _) | TermKind::EachFold(call, _) = &term.kind {
            found.insert(*call);
        }
        open.extend(&term.args);
    }
    found
}

impl Unmade {
    /// For people.
    pub(super) fn human(&self) -> String {
        let name = &self.operator;
        match self.recurrence {
            true => format!(
                "`{name}` is a recurrence, and no `Scan` of the model is proven to be its steps"
            ),
            false => format!(
                "no law yields `{name}`, and the model does not have it: a law may say how graphs spell it"
            ),
        }
    }
}
