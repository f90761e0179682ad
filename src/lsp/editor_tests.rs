//! The folder for VS Code says what the language and the server say.

use crate::completion::CLAUSES;
use mlc_dsl::check::library;
use mlc_dsl::syntax::{parse, reserved_words};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vscode").join(file)
}

fn json(file: &str) -> Value {
    let text = std::fs::read_to_string(path(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The words between the first brackets of a pattern such as `\b(a|b)\b`.
fn alternatives(pattern: &Value) -> BTreeSet<String> {
    let pattern = pattern.as_str().expect("a pattern");
    let inside = pattern.split(['(', ')']).nth(1).expect("brackets");
    inside.split('|').map(str::to_string).collect()
}

#[test]
fn the_grammar_colours_the_words_that_are_reserved() {
    let grammar = json("syntaxes/rules.tmLanguage.json");
    let words = grammar["repository"]["words"]["patterns"].as_array().expect("patterns");
    let of = |name: &str| -> BTreeSet<String> {
        words.iter().filter(|p| p["name"] == name).flat_map(|p| alternatives(&p["match"])).collect()
    };
    let mut coloured = of("keyword.declaration.rules");
    coloured.extend(of("keyword.control.rules"));
    coloured.extend(of("keyword.operator.word.rules"));
    coloured.extend(
        of("constant.language.rules")
            .into_iter()
            .filter(|w| ["true", "false"].contains(&w.as_str())),
    );
    let reserved: BTreeSet<String> = reserved_words().map(str::to_string).collect();
    assert_eq!(coloured, reserved);
    // The parser's grammar has a token for each word; those of expressions are written in other rules.
    let pest = include_str!("../../dsl/src/syntax/grammar.pest");
    let tokens = pest.lines().filter_map(|l| l.strip_prefix("kw_")?.split('"').nth(1));
    let tokens: BTreeSet<String> = tokens.map(str::to_string).collect();
    let in_expressions = ["and", "or", "true", "false"].map(str::to_string);
    assert_eq!(tokens.union(&in_expressions.into()).cloned().collect::<BTreeSet<_>>(), reserved);
    let items = alternatives(&grammar["repository"]["items"]["patterns"][0]["match"]);
    assert_eq!(items, CLAUSES.iter().map(|c| c.0.to_string()).collect());
}

#[test]
fn clauses_are_completed_where_the_grammar_has_them() {
    for (item, clauses) in CLAUSES {
        for clause in *clauses {
            assert!(reserved_words().any(|w| w == *clause), "{item}: {clause}");
        }
    }
}

/// A snippet with its choices taken.
fn filled(body: &Value) -> String {
    let lines: Vec<&str> =
        body.as_array().expect("lines").iter().filter_map(Value::as_str).collect();
    let (text, mut out) = (lines.join("\n"), String::new());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        match after.strip_prefix('{') {
            Some(choice) => {
                let (choice, left) = choice.split_once('}').expect("closed");
                let value = choice.trim_start_matches(|c: char| c.is_ascii_digit());
                let value = value.trim_start_matches([':', '|']).trim_end_matches('|');
                out.push_str(
                    value
                        .split(",exact")
                        .next()
                        .and_then(|v| v.split(",reorder").next())
                        .unwrap_or(value),
                );
                rest = left;
            }
            None => {
                out.push_str("It.");
                rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            }
        }
    }
    out + rest
}

#[test]
fn snippets_are_texts_of_the_language() {
    let snippets = json("snippets/rules.json");
    for (name, snippet) in snippets.as_object().expect("an object") {
        let text = filled(&snippet["body"]);
        let (file, diags) = parse(&text);
        assert!(diags.is_empty() && file.items.len() == 1, "{name}: {text}\n{diags:?}");
    }
    // An operator needs nothing else.
    let (_, diags) = library(&[("a.rules", filled(&snippets["operator"]["body"]).as_str())]);
    assert!(diags.is_empty(), "{diags:?}");
}

#[test]
fn what_the_manifest_names_is_there() {
    let manifest = json("package.json");
    let named = |pointer: &str| {
        manifest.pointer(pointer).and_then(Value::as_str).expect("named").to_string()
    };
    for pointer in [
        "/main",
        "/contributes/languages/0/configuration",
        "/contributes/grammars/0/path",
        "/contributes/snippets/0/path",
    ] {
        assert!(path(&named(pointer)).is_file(), "{pointer}");
    }
    let code = std::fs::read_to_string(path("extension.js")).expect("a text");
    let settings =
        manifest["contributes"]["configuration"]["properties"].as_object().expect("settings");
    for setting in settings.keys() {
        let name = setting.strip_prefix("mlc-rewrite.").expect("of the extension");
        assert!(code.contains(&format!("settings.get(\"{name}\")")), "{setting} is not read");
    }
    assert_eq!(named("/version"), env!("CARGO_PKG_VERSION"));
}
