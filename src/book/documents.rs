//! The documents that the book has besides the texts: their links to what is not in the book lead to the repository.

use super::Page;

/// Where the repository's files are shown.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

/// The documents with their titles, in the book's order.
pub const CONTENTS: &[(&str, &str)] = &[
    ("language.md", "Language reference"),
    ("cookbook.md", "Cookbook"),
    ("lsp.md", "In the editor"),
];

const TEXTS: &[&str] = &[
    include_str!("../../docs/language.md"),
    include_str!("../../docs/cookbook.md"),
    include_str!("../../docs/lsp.md"),
];

/// Their pages.
pub fn pages() -> impl Iterator<Item = Page> {
    let page = |((path, _), text): (&(&str, &str), &&str)| Page {
        path: format!("src/{path}"),
        text: homed(text),
    };
    CONTENTS.iter().zip(TEXTS).map(page)
}

/// A document with links that are right in the book.
fn homed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        out.push_str(before);
        out.push_str("](");
        let end = after.find(')').unwrap_or(after.len());
        let target = &after[..end];
        let path = target.split('#').next().unwrap_or_default();
        let is_here = path.is_empty() || CONTENTS.iter().any(|c| c.0 == path);
        if is_here || target.contains("://") {
            out.push_str(target);
        } else if let Some(above) = target.strip_prefix("../") {
            out.push_str(REPOSITORY);
            out.push_str(above);
        } else {
            out.push_str(REPOSITORY);
            out.push_str("docs/");
            out.push_str(target);
        }
        rest = &after[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::homed;

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let text =
            "[a](#x), [b](cookbook.md#y), [c](cost.md#z), [d](../src/lib.rs), [e](https://x.org)";
        let homed = homed(text);
        let there = |p: &str| format!("({}/blob/main/{p})", env!("CARGO_PKG_REPOSITORY"));
        for part in [
            "(#x)",
            "(cookbook.md#y)",
            &there("docs/cost.md#z"),
            &there("src/lib.rs"),
            "(https://x.org)",
        ] {
            assert!(homed.contains(part), "{homed} lacks {part}");
        }
    }
}
