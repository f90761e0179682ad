//! The book as a reader follows it: every link has a target, every declaration a place, and the same input gives the same book.

use mlc_rewrite::book::{Evidence, Page, Sources, Uses, pages};
use mlc_rewrite::stdlib;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

fn book(evidence: &Evidence, uses: &Uses) -> Vec<Page> {
    let library = stdlib::shipped();
    pages(&Sources { texts: stdlib::texts(), library: &library, evidence, uses })
}

/// A page without its blocks of code.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The id that mdBook gives to a heading: what is written in `{#…}`, or its letters, digits, `_` and `-`, blanks as `-`.
fn id(heading: &str) -> String {
    if let Some(id) = heading.split("{#").nth(1) {
        return id.trim_end_matches('}').to_string();
    }
    let plain = heading.trim().to_lowercase();
    let kept = plain.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The ids of a page; one that is there twice is an error.
fn ids(page: &Page) -> BTreeSet<String> {
    let prose = prose(&page.text);
    let headings = prose
        .lines()
        .filter_map(|l| l.trim_start_matches('#').strip_prefix(' ').filter(|_| l.starts_with('#')));
    let mut out = BTreeSet::new();
    for heading in headings {
        assert!(
            out.insert(id(heading)),
            "{}: `{heading}` has the id of another heading",
            page.path
        );
    }
    out
}

/// The targets of the links of a page.
fn links(text: &str) -> Vec<String> {
    // A span of code has no links.
    let plain: String = prose(text);
    let targets = plain.split("](").skip(1).filter_map(|t| t.split(')').next());
    targets.map(str::to_string).collect()
}

/// `page` as the path `link` leads to from it.
fn resolved(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

fn dead_links(book: &[Page]) -> Vec<String> {
    let ids: BTreeMap<&str, BTreeSet<String>> = book
        .iter()
        .filter(|p| p.path.ends_with(".md"))
        .map(|p| (p.path.as_str(), ids(p)))
        .collect();
    let mut dead = Vec::new();
    for page in book.iter().filter(|p| p.path.ends_with(".md")) {
        for link in links(&page.text) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if path.is_empty() { page.path.clone() } else { resolved(&page.path, path) };
            let found = ids.get(target.as_str());
            if !found.is_some_and(|ids| anchor.is_empty() || ids.contains(anchor)) {
                dead.push(format!("{}: {link}", page.path));
            }
        }
    }
    dead
}

#[test]
fn no_link_of_the_book_is_dead() {
    let book = book(&Evidence::default(), &Uses::default());
    let dead = dead_links(&book);
    assert!(dead.is_empty(), "{} dead links:\n{}", dead.len(), dead.join("\n"));
    let count: usize = book.iter().map(|p| links(&p.text).len()).sum();
    assert!(count > 3000, "{count} links");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let page = |path: &str, text: &str| Page { path: path.into(), text: text.into() };
    let book = [
        page(
            "src/a/b.md",
            "# Title\n\n[x](../c.md#one) [y](../c.md#two) [z](d.md) [t](#title)\n\n```rules\na[b](c)\n```\n",
        ),
        page("src/c.md", "# One\n"),
    ];
    assert_eq!(dead_links(&book), ["src/a/b.md: ../c.md#two", "src/a/b.md: d.md"]);
}

#[test]
fn every_declaration_has_its_place_with_what_is_known_of_it() {
    let report = r#"{"laws": [{"law": "add_zero", "file": "FILE", "line": LINE, "class": "reorder", "verdict": {"outcome":
        {"is": "holds", "samples": 250, "damage": [{"dtype": "f32", "left": 1e-8, "right": 2e-7, "growth": 4.0}], "needed": [],
        "exactness": {"is": "everywhere"}}}}]}"#;
    let library = stdlib::shipped();
    let law = library.laws.iter().find(|l| &*l.name == "add_zero").expect("shipped");
    let source = &library.sources[law.source.file as usize];
    let line = source.text[..law.source.span.start as usize].matches('\n').count() + 1;
    let report = report.replace("FILE", &source.name).replace("LINE", &line.to_string());
    let mut uses = Uses::default();
    uses.add("squeezenet", r#"{"proof": {"add_zero": 26}}"#).expect("a report");
    let book = book(&Evidence::read(&report).expect("a report"), &uses);
    let texts: String = book.iter().map(|p| p.text.as_str()).collect();
    for call in &library.calls {
        let place = |word: &str| texts.contains(&format!("{{#{word}-{}}}", call.name));
        assert!(["op", "def", "extern", "fuse"].into_iter().any(place), "{}", call.name);
    }
    for target in &library.targets {
        assert!(texts.contains(&format!("{{#target-{}}}", target.name)), "{}", target.name);
    }
    for law in &library.laws {
        let place = |word: &str| texts.contains(&format!("{{#{word}-{}}}", law.declared_name()));
        assert!(["rule", "def", "fuse"].into_iter().any(place), "{}", law.declared_name());
    }
    let start = texts.find("{#rule-add_zero}").expect("there");
    let part = &texts[start..start + texts[start..].find("\n## ").expect("another law follows")];
    for said in [
        "law · error class `reorder`",
        "a proof for every rank and size",
        "1.0e-8 and 2.0e-7 in `f32`",
        "squeezenet (26)",
        "uses [`add`](../ops/elementwise.md#op-add)",
    ] {
        assert!(part.contains(said), "{part}\nlacks {said}");
    }
    assert!(texts.contains("example that picks it: "));
    let contents = book.iter().find(|p| p.path == "src/SUMMARY.md").expect("contents");
    for page in
        book.iter().filter_map(|p| p.path.strip_prefix("src/")).filter(|p| *p != "SUMMARY.md")
    {
        assert!(contents.text.contains(&format!("({page})")), "the contents lack {page}");
    }
}

#[test]
fn a_book_is_written_with_texts_of_ones_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
            .args(args)
            .current_dir(folder.path())
            .output()
            .expect("runs");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let text =
        "//! Mine.\n\n/// Twice a rectifier.\ndef my_layer(x: F[..s]) -> F[..s]\n  = relu(x) * 2\n";
    std::fs::write(folder.path().join("my.rules"), text).expect("written");
    assert_eq!(run(&["book", "out", "--rules", "my.rules"]), (Some(0), String::new()));
    let read = |path: &str| std::fs::read_to_string(folder.path().join(path)).expect("written");
    assert!(read("out/src/own/my.md").contains("uses [`relu`](../layers/activation.md#def-relu)"));
    assert!(read("out/src/layers/activation.md").contains("](../own/my.md#def-my_layer)"));
    assert!(read("out/book.toml").contains("[book]"));
    // The same book once more, and a report that is none.
    let first = read("out/src/laws/algebra.md");
    assert_eq!(run(&["book", "out", "--rules", "my.rules"]).0, Some(0));
    assert_eq!(read("out/src/laws/algebra.md"), first);
    let (code, said) = run(&["book", "out", "--checked", "my.rules"]);
    assert!(code == Some(2) && said.contains("my.rules is no report of `check`"), "{said}");
    assert!(Path::new(&folder.path().join("out/src/SUMMARY.md")).is_file());
}
