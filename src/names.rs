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

/// The first sentence of a documentation, over as many lines as it has.
pub fn sentence(doc: &[String]) -> String {
    let text = doc.iter().take_while(|l| !l.trim().is_empty()).map(|l| l.trim());
    let text = text.collect::<Vec<_>>().join(" ");
    // Initials, numbers and `e.g.` end no sentence, nor does what goes on in small letters.
    let ends = |&(at, _): &(usize, &str)| {
        let word = text[..at].rsplit([' ', '.', '(']).next().unwrap_or_default();
        let next = text[at + 1..].trim_start().chars().next();
        word.chars().count() > 1 && next.is_none_or(|c| !c.is_lowercase())
    };
    let end = text.match_indices(". ").find(ends);
    end.map_or(text.clone(), |(at, _)| text[..=at].to_string())
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

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn sentences_end_where_they_end() {
        for (lines, wanted) in [
            (&["One over", "two lines. Another."][..], "One over two lines."),
            (&["A norm, e.g. of rows, by B. Mean. More."], "A norm, e.g. of rows, by B. Mean."),
            (&["Version 1.5 of it"], "Version 1.5 of it"),
            (&["First.", "", "Second paragraph."], "First."),
            (&[], ""),
        ] {
            let lines: Vec<String> = lines.iter().map(|l| l.to_string()).collect();
            assert_eq!(sentence(&lines), wanted);
        }
    }
}
