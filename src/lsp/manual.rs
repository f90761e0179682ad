//! What the language reference says of words: keywords by its table, the rest by the lists that the language itself is made of.

use mlc_dsl::eval::functions::FUNCTIONS;
use mlc_dsl::expr::{AttrKind, Mark, Monoid, Predicate};
use mlc_dsl::syntax::is_reserved;
use std::collections::BTreeMap;
use std::sync::LazyLock;

const REFERENCE: &str = include_str!("../../docs/language.md");

static WORDS: LazyLock<BTreeMap<&'static str, &'static str>> = LazyLock::new(|| {
    let table = REFERENCE.split("Reserved words:").nth(1).unwrap_or_default();
    let rows = table.lines().skip_while(|l| !l.starts_with("| `")).map_while(|row| {
        let (word, about) = row.strip_prefix("| `")?.split_once("` | ")?;
        Some((word, about.strip_suffix(" |")?))
    });
    rows.collect()
});

/// The reserved words that the reference describes, each with its line.
pub fn words() -> impl Iterator<Item = (&'static str, &'static str)> {
    WORDS.iter().map(|(word, about)| (*word, *about))
}

/// What the reference says of a word of the language; nothing of other words.
pub fn describes(word: &str) -> Option<String> {
    if is_reserved(word) {
        return WORDS.get(word).map(|about| format!("`{word}`: {about}"));
    }
    if let Some((name, params, does)) = FUNCTIONS.iter().find(|f| f.0 == word) {
        return Some(format!("`{name}({params})`: {does}"));
    }
    let kind =
        |known: Option<&str>, what: &str| known.map(|does| format!("{what} `{word}`: {does}"));
    let of = |all: &[(&'static str, &'static str)]| all.iter().find(|w| w.0 == word).map(|w| w.1);
    let predicates: Vec<_> = Predicate::ALL.iter().map(|w| (w.1, w.2)).collect();
    let monoids: Vec<_> = Monoid::ALL.iter().map(|w| (w.1, w.2)).collect();
    let marks: Vec<_> = Mark::ALL.iter().map(|w| (w.1, w.2)).collect();
    let kinds: Vec<_> = AttrKind::ALL.iter().map(|w| (w.1, w.2)).collect();
    kind(of(&predicates), "predicate")
        .or_else(|| kind(of(&monoids), "reduction"))
        .or_else(|| kind(of(&marks), "mark of a law"))
        .or_else(|| kind(of(&kinds), "attribute"))
        .or_else(|| kind(of(CLASSES), "error class"))
        .or_else(|| kind(variable(word), "element type"))
}

/// The error classes.
pub const CLASSES: &[(&str, &str)] = &[
    ("exact", "the same bits, including NaN and signed zeros"),
    ("reorder", "the same real function, rounded differently"),
    ("approx", "another function, within the bounds `abs` and `rel`"),
];

/// What a variable of element types ranges over.
fn variable(word: &str) -> Option<&'static str> {
    let (letter, digits) = word.split_at_checked(1)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match letter {
        "F" => Some("any float"),
        "I" => Some("any integer"),
        "N" => Some("any number: all but `bool`"),
        "B" => Some("`bool`"),
        "T" => Some("any element type"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlc_dsl::syntax::reserved_words;

    #[test]
    fn every_reserved_word_has_its_line() {
        let described: Vec<&str> = words().map(|w| w.0).collect();
        let mut reserved: Vec<&str> = reserved_words().collect();
        reserved.sort_unstable();
        assert_eq!(described, reserved);
    }

    #[test]
    fn words_of_the_language_are_described() {
        for word in ["rule", "permute", "const", "mean", "normal", "axis", "reorder", "F", "T2"] {
            assert!(describes(word).is_some(), "{word}");
        }
        for word in ["", "relu", "F0x", "Fa", "ü"] {
            assert_eq!(describes(word), None, "{word}");
        }
    }
}
