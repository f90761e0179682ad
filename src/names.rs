//! Names that are looked up: what is declared, and what a name that is not may have meant.

use mlc_dsl::library::{LawOrigin, Library};
use mlc_dsl::names::meant;
pub use mlc_dsl::names::nearest;
use std::collections::BTreeSet;

/// Names of everything that `explain` tells of, as people wrote it: operators, layers and laws.
pub fn declared(library: &Library) -> BTreeSet<&str> {
    let calls = library.calls.iter().map(|c| &*c.name);
    let laws = library.laws.iter().filter(|l| l.origin != LawOrigin::Reverse);
    calls.chain(laws.map(|l| &*l.name)).collect()
}

/// The line `help: did you mean …?` for a name that is none of `known`, else the help given, each after a line break.
pub fn hint<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a (impl AsRef<str> + ?Sized + 'a)>,
    otherwise: &str,
) -> String {
    match (meant(name, known.into_iter().map(AsRef::as_ref)), otherwise) {
        (Some(meant), _) => format!("\nhelp: {meant}"),
        (None, "") => String::new(),
        (None, help) => format!("\nhelp: {help}"),
    }
}
