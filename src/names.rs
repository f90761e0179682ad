//! Looks up names of declarations, and suggests known names for unknown ones.

pub use mlc_dsl::diagnostics::suggestions::nearest;
use mlc_dsl::library::{LawOrigin, Library};
use mlc_explore::Reason;
use std::collections::BTreeSet;

/// Names of everything that `explain` tells of, as people wrote it: operators, layers and laws.
pub fn declared(library: &Library) -> BTreeSet<&str> {
    let calls = library.calls.iter().map(|c| &*c.name);
    let laws = library.laws.iter().filter(|l| l.origin != LawOrigin::Reverse);
    calls.chain(laws.map(|l| l.declared_name())).collect()
}

/// `did you mean …?` for a name that is none of `known`, else the help given, if that is not empty.
pub fn did_you_mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a (impl AsRef<str> + ?Sized + 'a)>,
    otherwise: &str,
) -> Option<String> {
    mlc_dsl::diagnostics::suggestions::did_you_mean(name, known.into_iter().map(AsRef::as_ref))
        .or_else(|| (!otherwise.is_empty()).then(|| otherwise.to_string()))
}

/// The same as a line `help: …` after a line break.
pub fn hint<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a (impl AsRef<str> + ?Sized + 'a)>,
    otherwise: &str,
) -> String {
    did_you_mean(name, known, otherwise).map(|help| format!("\nhelp: {help}")).unwrap_or_default()
}

/// The name of a reason: a law's, or what the tool does by itself.
pub fn reason(library: &Library, reason: Reason) -> String {
    match reason {
        Reason::Law(i) => library.laws[i as usize].name.to_string(),
        Reason::ConstantFolding => "(constant folding)".into(),
        Reason::UniformConstant => "(uniform constant)".into(),
        Reason::SameElements => "(same elements)".into(),
        Reason::SameOperands => "(same operands)".into(),
        Reason::Definition => "(definition)".into(),
    }
}
