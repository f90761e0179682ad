//! Selects the laws that can be useful on a target: laws about compositions that only kernels of other targets compute are not.
//!
//! Never decides what is sound, and keeps every law that a program of this target's operators could need.

use mlc_dsl::ir::{NodeKind, Program};
use mlc_dsl::library::{CallId, CallKind, Law, Library, TargetItem};
use mlc_dsl::term::TermKind;
use std::collections::{BTreeSet, HashSet};

/// Operators that neither the target nor the program has any use for.
pub struct UnusableOperators(BTreeSet<CallId>);

impl UnusableOperators {
    /// The compositions and operators of several results that are offered as kernels, but not on this target, and that
    /// neither are `permitted` nor occur in the program.
    pub fn of(
        library: &Library,
        target: &TargetItem,
        permitted: Option<&HashSet<CallId>>,
        program: &Program,
    ) -> UnusableOperators {
        let covered = |t: &TargetItem, c: CallId| t.kernels.iter().any(|k| k.covers.contains(&c));
        let fused = library.fuses.iter().filter(|f| f.call == f.covers).map(|f| f.call);
        let several = (0..library.calls.len() as u32).map(CallId).filter(|&c| {
            matches!(library.call(c).kind, CallKind::Op(_))
                && library.call(c).outputs.len() > 1
                && library.targets.iter().any(|t| covered(t, c))
        });
        let used = |c: CallId| {
            program.nodes.iter().any(|n| matches!(n.kind, NodeKind::Apply(own, _) if own == c))
        };
        // Every primitive may be printed; what has several results is worth it only in one node.
        let printed = |c: CallId| {
            matches!(library.call(c).kind, CallKind::Def(_))
                && permitted.is_some_and(|p| p.contains(&c))
        };
        let idle = |c: &CallId| !covered(target, *c) && !printed(*c) && !used(*c);
        let mut out: BTreeSet<CallId> = fused.chain(several).filter(idle).collect();
        // What the body of a composition in use is made of is in use.
        loop {
            let parts: Vec<CallId> = library
                .fuses
                .iter()
                .filter(|f| !out.contains(&f.call))
                .filter_map(|f| match &library.call(f.call).kind {
                    CallKind::Def(body) => {
                        Some(body.terms.iter().filter_map(|(_, t)| applied(&t.kind)))
                    }
                    CallKind::Op(_) | CallKind::Extern(_) => None,
                })
                .flatten()
                .filter(|c| out.contains(c))
                .collect();
            if parts.is_empty() {
                return UnusableOperators(out);
            }
            out.retain(|c| !parts.contains(c));
        }
    }

    /// True if a law speaks of one of them.
    pub fn concerns(&self, law: &Law) -> bool {
        law.terms.iter().any(|(_, t)| applied(&t.kind).is_some_and(|c| self.0.contains(&c)))
    }
}

fn applied(kind: &TermKind) -> Option<CallId> {
    match kind {
        TermKind::Apply(c, _) | TermKind::EachFold(c, _) => Some(*c),
        TermKind::Var(_) | TermKind::Scalar(_) | TermKind::Output(_) | TermKind::EachPart(_) => {
            None
        }
    }
}
