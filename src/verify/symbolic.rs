//! Types of both sides under symbolic extents: a search on dynamic shapes must see that they agree.

use super::draft::Draft;
use super::facts::Facts;
use super::instance::build_symbolic;

/// A warning if both sides are typed symbolically, but not alike.
pub(super) fn check(facts: &Facts, draft: &Draft) -> Option<String> {
    if facts.each {
        return None;
    }
    let types = build_symbolic(facts, draft)?;
    let (left, right) = types.into_iter().find(|(l, r)| l != r)?;
    Some(format!(
        "with symbolic extents the left side is {left} and the right side {right}: the law will not fire there"
    ))
}
