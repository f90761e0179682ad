//! Which operators can be exported at an operator set version.

use super::rules::Rules;
use mlc_dsl::library::{CallId, CallKind, Library, TargetKernel};
use std::collections::{BTreeMap, HashSet};

/// Primitives, the definitions that one node of the operator set writes, and those that the target
/// covers, but for kernels whose name is an operator that comes with a later set.
pub fn printable(library: &Library, opset: i64, target: &str) -> HashSet<CallId> {
    let versions = opsets(library, opset, target);
    let primitive = |c: &CallId| !matches!(library.call(*c).kind, CallKind::Def(_));
    let all = (0..library.calls.len() as u32).map(CallId);
    let mut out: HashSet<CallId> = all.filter(primitive).collect();
    let there = kernels(library, target).filter(|k| !is_later(library, &versions, &k.name));
    out.extend(there.flat_map(|k| k.covers.iter().copied()));
    out.extend(Rules::of(library, &versions).single());
    out
}

/// True for the name of an operator, with its domain, or of several, where every version of one is newer than the
/// operator sets.
fn is_later(library: &Library, opsets: &BTreeMap<String, i64>, kernel: &str) -> bool {
    kernel.split(", ").any(|name| {
        let (domain, name) = name.rsplit_once('.').unwrap_or(("", name));
        let newest = opsets.get(domain).copied().unwrap_or(0);
        let items = || library.onnx.iter().filter(|i| i.decl.domain == domain && &*i.name == name);
        items().next().is_some() && items().all(|i| i64::from(i.decl.since) > newest)
    })
}

/// The operators that a name refers to: the one of that name, or those that a kernel of the target or an ONNX node of
/// that name computes. Empty if it is no such name.
pub fn named(library: &Library, opset: i64, target: &str, name: &str) -> Vec<CallId> {
    if let Some(call) = library.find(name) {
        return vec![call];
    }
    let of_name = kernels(library, target).filter(|k| k.name == name);
    let covered: Vec<CallId> = of_name.flat_map(|k| k.covers.iter().copied()).collect();
    if !covered.is_empty() {
        return covered;
    }
    Rules::of(library, &opsets(library, opset, target)).written_by(name)
}

/// The domains besides the standard one whose operators the target runs, each at its first version. A kernel's
/// name says so: `com.microsoft.FastGelu` is of `com.microsoft`.
pub fn domains(library: &Library, target: &str) -> BTreeMap<String, i64> {
    let domain = |k: &TargetKernel| Some((k.name.rsplit_once('.')?.0.to_string(), 1));
    kernels(library, target).filter_map(domain).collect()
}

/// The kernels of a target; none of one that is not declared.
fn kernels<'l>(library: &'l Library, target: &str) -> impl Iterator<Item = &'l TargetKernel> {
    library.target(target).into_iter().flat_map(|t| &t.kernels)
}

/// The version of every domain that the target runs, the standard one's as given.
fn opsets(library: &Library, opset: i64, target: &str) -> BTreeMap<String, i64> {
    let mut out = domains(library, target);
    out.insert(String::new(), opset);
    out
}
