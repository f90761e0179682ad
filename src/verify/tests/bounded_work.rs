//! Texts whose check would go on for minutes end after a bounded number of steps, with a verdict or with what is wrong.

use mlc_dsl::library::Library;
use mlc_verify::{CheckOptions, Exactness, Outcome, Verdict, check_law, declarations};
use std::path::Path;

/// Draws of attributes that the check of a law may take: a few seconds in a build for debugging.
const WORK: usize = 60_000;

/// The operators, and one more text; its number.
fn library(text: &str) -> (Library, u32) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules/ops");
    let mut all: Vec<(String, String)> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "rules"))
        .map(|p| (p.display().to_string(), std::fs::read_to_string(p).expect("a text")))
        .collect();
    all.sort();
    all.push(("own.rules".into(), text.into()));
    let (library, _) = mlc_dsl::check::library(&all);
    (library, all.len() as u32 - 1)
}

/// The verdicts of the text's laws.
fn verdicts(text: &str) -> Vec<(String, Verdict)> {
    let (library, own) = library(text);
    let laws = library.laws.iter().filter(|l| l.source.file == own);
    laws.map(|l| (l.name.to_string(), check_law(&library, l, &CheckOptions::default()))).collect()
}

const FAR: &str = "op far(x: F[n]) -> y: F[n]
  where j = 100000, k = 100000, l = 100000
  y[n] = sum(j, k, l) x[n] * (j + k + l)

rule far_of_negative
  far(-x) => -far(x)
  given x: F[n]
  error reorder
";

#[test]
fn an_operator_of_too_many_terms_is_named() {
    let (library, own) = library(FAR);
    let found = declarations(&library, own, 0);
    let [lint] = found.as_slice() else { panic!("{} findings", found.len()) };
    assert!(lint.code == "V010" && lint.message.contains("too many steps"), "{}", lint.message);
    let own = verdicts(FAR);
    let [(_, verdict)] = own.as_slice() else { panic!("{} laws", own.len()) };
    assert!(verdict.work < WORK, "{}", verdict.work);
    match &verdict.outcome {
        Outcome::NoSample { reason } => assert!(reason.contains("too many steps"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn definitions_that_double_hold_by_definition() {
    let mut text = String::new();
    for level in 1..=16 {
        let before = if level == 1 { "exp".into() } else { format!("level_{}", level - 1) };
        text += &format!(
            "def level_{level}(x: F[..s]) -> F[..s]\n  = {before}(x) * {before}(x + {level})\n\n"
        );
    }
    let own = verdicts(&text);
    assert!(own.len() >= 16, "{} laws", own.len());
    for (name, verdict) in own {
        assert!(verdict.work < WORK, "{name} takes {}", verdict.work);
        match &verdict.outcome {
            Outcome::Holds(e) => assert!(matches!(e.exactness, Exactness::Defined), "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn lists_that_are_the_extents_of_an_argument_are_found() {
    let text = "rule whole
  slice(slice(x, start=i, size=n, step=j), start=k, size=m, step=l) => x
  given x: T[..a]
  if all(i == 0), n == |a|, all(j == 1), all(k == 0), m == |a|, all(l == 1)
  error exact
";
    for (name, verdict) in verdicts(text) {
        assert!(matches!(verdict.outcome, Outcome::Holds(_)), "{name}: {:?}", verdict.outcome);
        assert!(verdict.work < WORK, "{name} takes {}", verdict.work);
    }
}
