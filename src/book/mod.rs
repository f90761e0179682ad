//! The book: every declaration of the rule texts with its text, documentation, class, proof and uses, and the language, as
//! sources of mdBook that refer to each other.
//!
//! A page is a text of `rules/`, so that the book has the texts' own order. Computes no proof: what is known of laws is read
//! from the report of `check`, and which models use what from those of `optimize`. The same input gives the same bytes.

mod declarations;
mod documents;
mod evidence;

pub use evidence::{Evidence, Uses};

use crate::names;
use declarations::Declarations;
use mlc_dsl::check::Text;
use mlc_dsl::library::{CallKind, Library};
use mlc_dsl::syntax::signature_of;
use std::fmt::Write;

/// A file of the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// From the book's folder.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// What the pages are made of.
pub struct Sources<'s> {
    /// The texts, in reading order.
    pub texts: &'s [Text],
    /// What comes of them.
    pub library: &'s Library,
    /// What `check` found.
    pub evidence: &'s Evidence,
    /// What `optimize` used.
    pub uses: &'s Uses,
}

/// The parts of the book that are made of texts, by the folder of `rules/` that they are from.
const PARTS: &[(&str, &str)] = &[
    ("ops", "Operators"),
    ("extern", "Procedures"),
    ("layers", "Layers"),
    ("laws", "Laws"),
    ("fuse", "Fused compositions"),
    ("targets", "Targets"),
    ("models", "Architectures"),
    ("onnx", "Operators of ONNX"),
    (OWN, "Texts of your own"),
];

/// The part of texts that are not shipped.
const OWN: &str = "own";

const CONFIGURATION: &str = "[book]\ntitle = \"mlc-rewrite\"\ndescription = \"Operators, layers, laws and targets, and the language they are written in.\"\n\
                             language = \"en\"\nsrc = \"src\"\n\n[output.html]\nno-section-label = true\n";

/// All files of the book.
pub fn pages(sources: &Sources<'_>) -> Vec<Page> {
    let declarations = Declarations::of(sources);
    let mut out = vec![
        Page { path: "book.toml".into(), text: CONFIGURATION.into() },
        Page { path: "src/introduction.md".into(), text: introduction(sources) },
        Page { path: "src/signatures.md".into(), text: signatures(sources, &declarations) },
    ];
    out.extend(documents::pages());
    let texts = (0..sources.texts.len()).map(|i| declarations.page(sources, i));
    let texts: Vec<Page> = texts.collect();
    out.push(Page { path: "src/SUMMARY.md".into(), text: summary(sources, &texts) });
    out.extend(texts);
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out
}

/// Where the page of a text is, from `src/`: by its folder in `rules/`, or among those that are not shipped.
fn place(name: &str) -> (String, String) {
    let stem = |file: &str| file.strip_suffix(".rules").unwrap_or(file).to_string();
    let known = |part: &&str| PARTS.iter().any(|p| p.0 == *part && p.0 != OWN);
    match name.strip_prefix("rules/").and_then(|n| n.split_once('/')) {
        Some((part, file)) if known(&part) => (part.to_string(), stem(file)),
        _ => {
            let plain = stem(name.rsplit('/').next().unwrap_or(name));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            (OWN.into(), plain.chars().map(|c| if is_plain(c) { c } else { '_' }).collect())
        }
    }
}

/// The contents, which mdBook shows beside every page.
fn summary(sources: &Sources<'_>, texts: &[Page]) -> String {
    let mut out =
        String::from("# Summary\n\n[Introduction](introduction.md)\n\n# The language\n\n");
    for (path, title) in documents::CONTENTS {
        let _ = writeln!(out, "- [{title}]({path})");
    }
    out.push_str("- [Operators and signatures](signatures.md)\n");
    for (part, title) in PARTS {
        let own: Vec<_> = sources
            .texts
            .iter()
            .zip(texts)
            .filter(|(t, _)| place(&t.source().name).0 == *part)
            .collect();
        if own.is_empty() {
            continue;
        }
        let _ = write!(out, "\n# {title}\n\n");
        for (text, page) in own {
            let path = page.path.strip_prefix("src/").unwrap_or(&page.path);
            let _ = writeln!(out, "- [{}]({path})", place(&text.source().name).1.replace('_', " "));
        }
    }
    out
}

fn introduction(sources: &Sources<'_>) -> String {
    let library = sources.library;
    let layers = library.calls.iter().filter(|c| matches!(c.kind, CallKind::Def(_))).count();
    let mut out = String::from("# mlc-rewrite\n\nThis book shows what `mlc-rewrite` knows: ");
    let _ = write!(
        out,
        "{} operators, {layers} layers, {} laws and {} targets, each with its text as it is shipped. \
         The [language](language.md) explains the form, the [cookbook](cookbook.md) how to write one's own, and \
         [the list of signatures](signatures.md) leads to every operator.\n\n",
        library.calls.len() - layers,
        library.laws.len(),
        library.targets.len(),
    );
    out.push_str(match sources.evidence.is_empty() {
        true => "What is known of each law is left out here: `mlc-rewrite check --json FILE` finds it, and \
                 `mlc-rewrite book FOLDER --checked FILE` tells it beside the law.\n",
        false => "Beside each law stands what is known of it: a proof for every rank and size, one for the ranks and sizes \
                  that were tried, or samples; and the largest rounding error that was seen.\n",
    });
    out
}

/// Every operator and layer with its signature, in the order of their names.
fn signatures(sources: &Sources<'_>, declarations: &Declarations) -> String {
    let mut out = String::from(
        "# Operators and signatures\n\nTensors come first, then attributes; one with `=` may be left out.\n",
    );
    let mut calls: Vec<_> = sources.library.calls.iter().collect();
    calls.sort_by(|a, b| a.name.cmp(&b.name));
    for call in calls {
        let Some(link) = declarations.link_to_operator(&call.name, "signatures.md") else {
            continue;
        };
        let about = names::sentence(&call.doc);
        let _ = write!(
            out,
            "\n{link}: {}\n\n```rules,syntax\n{}\n```\n",
            escaped(&about),
            signature_of(call)
        );
    }
    out
}

/// Text that Markdown shows as it is.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut code = false;
    for c in text.chars() {
        code ^= c == '`';
        match c {
            '<' if !code => out.push_str("&lt;"),
            '[' | ']' | '*' | '_' | '|' if !code => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}
