//! Campaigns of `fuzz` that are aimed at given laws: wrong ones of many kinds are found within a few programs, right ones are not accused,
//! and what never fired is told with its reason.

use rayon::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs of a campaign.
const CASES: &str = "18";

/// What a campaign of some options with a text says as JSON, and its exit code.
fn campaign(rules: &Path, options: &[&str]) -> (Option<i32>, Value) {
    let out = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
        .args(["fuzz", "--json", "-", "--quiet", "--cases", CASES, "--rules"])
        .arg(rules)
        .args(options)
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let told = serde_json::from_str(&text);
    let told = told.unwrap_or_else(|e| {
        panic!("{}: {e}: {text}{}", rules.display(), String::from_utf8_lossy(&out.stderr))
    });
    (out.status.code(), told)
}

/// The texts of a folder, each of which has one law of its own name.
fn texts(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/aimed").join(folder);
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut out: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    out.sort();
    out
}

fn name(rules: &Path) -> &str {
    rules.file_stem().and_then(|s| s.to_str()).expect("a name")
}

#[test]
fn wrong_laws_are_found() {
    let texts = texts("wrong");
    assert!(texts.len() >= 12);
    texts.par_iter().for_each(|rules| {
        let (code, told) = campaign(rules, &["--failures", "1"]);
        let law = name(rules);
        assert_eq!(code, Some(1), "{law} is not found: {told:#}");
        let failure = &told["failures"][0];
        assert_eq!(failure["laws"], serde_json::json!([law]), "{failure:#}");
        assert_eq!(failure["proof"], serde_json::json!([law]), "{failure:#}");
        assert!(failure["program"].as_str().is_some_and(|p| p.contains("def case")), "{law}");
    });
}

#[test]
fn right_laws_are_not_accused() {
    let texts = texts("right");
    assert!(texts.len() >= 10);
    texts.par_iter().for_each(|rules| {
        let (code, told) = campaign(rules, &[]);
        let law = name(rules);
        assert_eq!(code, Some(0), "{law}: {:#}", told["failures"]);
        let tally = &told["laws"][0];
        assert_eq!(tally["law"], law);
        for (count, least) in [("built", 9), ("near", 1), ("fired", 4)] {
            assert!(tally[count].as_u64() >= Some(least), "{count}: {tally:#}");
        }
        assert!(tally.get("why").is_none(), "{tally:#}");
    });
}

#[test]
fn what_never_fires_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("silent.rules");
    let text = "
/// Another function, which the default does not admit.
rule near_enough
  tanh(x) => x
  given x: F[..s]
  error approx(abs=9)

/// No axis is so long.
rule too_long
  sum(n) x => sum(n) (-x)
  given x: F[..b, n]
  if |n| == 100000
  error reorder
";
    std::fs::write(&rules, text).expect("written");
    let (code, told) = campaign(&rules, &[]);
    assert_eq!(code, Some(0), "{told:#}");
    let why = |i: usize| told["laws"][i]["why"].as_str().unwrap_or_default();
    assert!(why(0).contains("`--fp approx`"), "{told:#}");
    assert!(why(1).contains("100000"), "{told:#}");
    assert_eq!(told["laws"][1]["fired"], 0);
}
