//! What the parts of the checker share to report errors. Knows none of them.

pub(super) use crate::diagnostics::suggestions::did_you_mean as suggest;

use crate::diagnostics::span::Span;
use crate::diagnostics::{Code, Diag};
use crate::eval::functions::FUNCTIONS;
use crate::expr::Predicate;
use crate::library::Name;

/// A shared name.
pub(super) fn name(s: &str) -> Name {
    Name::from(s)
}

/// An error with a help line, if `help` is not empty.
pub(super) fn error(code: &'static str, span: Span, message: String, help: &str) -> Diag {
    let mut d = Diag::error(Code(code), message, span);
    if !help.is_empty() {
        d.help = Some(help.to_string());
    }
    d
}

/// What may have been meant by the name of a function on attributes.
pub(super) fn near_function(n: &str) -> String {
    let functions = FUNCTIONS.iter().map(|f| f.0);
    suggest(n, functions.chain(Predicate::ALL.iter().map(|p| p.1)))
        .unwrap_or_else(|| "the manual lists the functions in its chapter on attributes".into())
}
