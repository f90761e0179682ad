//! Checks that both sides have equal types under symbolic extents, which a search on dynamic shapes relies on.

use crate::law::facts::LawFacts;
use crate::law::instance::build_symbolic;
use crate::sample::draft::SampleDraft;

/// A warning if both sides are typed symbolically, but not alike.
pub(crate) fn check(facts: &LawFacts, draft: &SampleDraft) -> Option<String> {
    if facts.each {
        return None;
    }
    let types = build_symbolic(facts, draft)?;
    let (left, right) = types.into_iter().find(|(l, r)| l != r)?;
    Some(format!(
        "with symbolic extents the left side is {left} and the right side {right}: the law will not fire there"
    ))
}
