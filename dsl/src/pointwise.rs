//! Decides which operators are pointwise; definitions by their bodies.

use crate::library::{Body, CallKind, Callable, Library, OpClass};
use crate::term::TermKind;

/// True if the body applies nothing but pointwise operators and repeats nothing but numbers.
fn is_pointwise_body(library: &Library, body: &Body) -> bool {
    body.roots.len() == 1
        && body.terms.iter().all(|(_, t)| match &t.kind {
            TermKind::Var(_) | TermKind::Scalar(_) => true,
            TermKind::Apply(call, _) => {
                let callee = library.call(*call);
                let of_number =
                    t.args.iter().all(|a| matches!(body.terms.get(*a).kind, TermKind::Scalar(_)));
                (callee.class == OpClass::View && of_number) || is_pointwise(library, callee)
            }
            TermKind::Output(_) | TermKind::EachFold(..) | TermKind::EachPart(_) => false,
        })
}

/// True if the callable works element by element, by itself or by its body.
pub fn is_pointwise(library: &Library, call: &Callable) -> bool {
    match &call.kind {
        CallKind::Op(_) => call.class == OpClass::Pointwise,
        CallKind::Def(body) => is_pointwise_body(library, body),
        CallKind::Extern(_) => false,
    }
}
