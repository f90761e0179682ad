//! What instances of one schema share: if a schema has no conditions on its operators, one instance is verified for all operators
//! with the same parameters, and a condition is necessary if it is so in one instance.

use crate::{Outcome, Verdict};
use mlc_dsl::expr::ExprKind;
use mlc_dsl::library::{CallKind, Dim, Law, Library};
use std::collections::{BTreeMap, HashSet};

/// By law, the index of another one that shows it.
pub(crate) fn shown_by(library: &Library, laws: &[&Law]) -> Vec<Option<usize>> {
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    // What says most of any other operator is one that no field computes with.
    let mut order: Vec<usize> = (0..laws.len()).collect();
    order.sort_by_key(|&i| is_rational(library, laws[i]));
    let mut out = vec![None; laws.len()];
    for i in order {
        let Some(key) = key(laws[i]) else { continue };
        match first.get(&key) {
            Some(&by) => out[i] = Some(by),
            None => drop(first.insert(key, i)),
        }
    }
    out
}

/// A text that the laws of one schema share whose operators take the same parameters in the same places.
fn key(law: &Law) -> Option<String> {
    let schema = law.schema.as_ref().filter(|s| s.parametric)?;
    let vars = law.vars.iter().map(|v| {
        let dims = v.ty.dims.iter().flatten().map(dim_key);
        format!("{:?}{:?}{:?}", v.ty.dtype, dims.collect::<Vec<_>>(), v.domain.is_some())
    });
    let attrs = law.attrs.iter().map(|a| a.ty.kind.to_string());
    let parts: Vec<String> = vars.chain(attrs).collect();
    Some(format!("{} {:?} {}", schema.name, law.origin, parts.join(" ")))
}

fn dim_key(dim: &Dim) -> String {
    match dim {
        Dim::Axis(name) => name.to_string(),
        Dim::Seg(name) => format!("..{name}"),
        Dim::Value(e) => format!("={e}"),
        Dim::Splice(e) => format!("=..{e}"),
    }
}

/// True if sums, products and quotients alone make up the law's operators.
fn is_rational(library: &Library, law: &Law) -> bool {
    let operators = law.schema.iter().flat_map(|s| &s.operators);
    operators.into_iter().all(|c| match &library.call(*c).kind {
        CallKind::Op(meanings) => meanings.iter().all(|m| {
            !m.value.any(&mut |e| matches!(e.kind, ExprKind::Call(..) | ExprKind::If { .. }))
        }),
        CallKind::Def(_) | CallKind::Extern(_) => false,
    })
}

/// Drops the warning that a condition is idle where another law of the schema needs it.
pub(crate) fn needed_somewhere(verdicts: &mut Vec<(&Law, Verdict)>) {
    let mut needed: HashSet<(String, String)> = HashSet::new();
    for (law, v) in verdicts.iter() {
        if let (Some(s), Outcome::Holds(e)) = (&law.schema, &v.outcome) {
            needed.extend(e.needed.iter().map(|c| (s.name.to_string(), c.clone())));
        }
    }
    for (law, v) in verdicts {
        let Some(s) = &law.schema else { continue };
        let of = needed.iter().filter(|(name, _)| **name == *s.name);
        let texts: Vec<String> = of.map(|(_, c)| format!("condition `{c}` is idle")).collect();
        v.warnings.retain(|w| !texts.iter().any(|t| w.starts_with(t)));
    }
}
