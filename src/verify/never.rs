//! `never` clauses: graphs on which a law must not fire.
//!
//! Whether a law fires is the search's business, so this module only asks it.

use mlc_dsl::library::{Law, Library};
use mlc_dsl::syntax::ast::{RuleTest, Side};

/// Tells whether a law fires on a graph.
pub trait Matcher {
    /// True if `law` fires on the graph of these sides; `None` if the graph cannot be built.
    fn fires(&self, library: &Library, law: &Law, graph: &[Side]) -> Option<bool>;
}

/// What is wrong with the `never` clauses of a law.
pub(super) fn check(matcher: &dyn Matcher, library: &Library, law: &Law) -> Vec<String> {
    let mut out = Vec::new();
    for t in &law.tests {
        let RuleTest::Never { sides, reason } = t else { continue };
        match matcher.fires(library, law, sides) {
            Some(false) => {}
            Some(true) => out.push(format!("the law fires where it never must: {reason}")),
            None => out.push(format!("the graph of `never … \"{reason}\"` cannot be built")),
        }
    }
    out
}
