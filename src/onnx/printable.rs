//! Which operators a standard graph can have at an operator set version.

use mlc_dsl::library::{CallId, CallKind, Library};
use mlc_dsl::syntax::ast::{Expr, ExprKind, Onnx};
use std::collections::HashSet;

/// Primitives, the definitions that an `onnx` item valid at `opset` reads as or prints, and those that
/// the target covers: compositions that print as one node.
pub fn printable(library: &Library, opset: i64, target: &str) -> HashSet<CallId> {
    let primitive = |c: &CallId| !matches!(library.call(*c).kind, CallKind::Def(_));
    let all = (0..library.calls.len() as u32).map(CallId);
    let mut out: HashSet<CallId> = all.filter(primitive).collect();
    let kernels = library.target(target).into_iter().flat_map(|t| &t.kernels);
    out.extend(kernels.flat_map(|k| k.covers.iter().copied()));
    for item in &library.onnx {
        let Onnx { since, until, domain, reads, prints, .. } = &item.decl;
        let standard = domain.is_empty();
        let valid = i64::from(*since) <= opset && until.is_none_or(|u| opset <= i64::from(u));
        if !standard || !valid {
            continue;
        }
        let roots = reads.iter().map(|a| &a.value).chain(prints.iter().map(|p| &p.pattern));
        out.extend(roots.filter_map(|e| called(library, e)));
    }
    out
}

fn called(library: &Library, e: &Expr) -> Option<CallId> {
    match &e.kind {
        ExprKind::Call { callee, .. } => library.find(&callee.text),
        _ => None,
    }
}
