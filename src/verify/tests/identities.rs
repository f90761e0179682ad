//! Identities that other optimisers use, restated with what they are: each is told apart, quickly, and what is proposed for a false one
//! holds when it is checked again.

use mlc_dsl::library::{Law, Library};
use mlc_verify::{CheckOptions, Outcome, check_law};
use std::path::Path;

/// Seconds that a law may take of a processor in a build for debugging.
const SECONDS: f64 = 5.0;

fn texts(folder: &Path, out: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    entries.sort();
    for p in entries.iter().filter(|p| p.extension().is_some_and(|e| e == "rules")) {
        out.push((p.display().to_string(), std::fs::read_to_string(p).expect("a text")));
    }
}

/// The operators and layers, and one more text.
fn library(text: &str) -> Library {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules");
    let mut all = Vec::new();
    ["ops", "extern", "layers"].iter().for_each(|f| texts(&root.join(f), &mut all));
    let known = all.len() as u32;
    all.push(("own.rules".into(), text.into()));
    let (library, diags) = mlc_dsl::check::library(&all);
    let own: Vec<_> = diags.iter().filter(|d| d.source >= known).collect();
    assert!(own.is_empty(), "{own:?}");
    library
}

fn own(library: &Library) -> Vec<&Law> {
    let last = library.sources.len() as u32 - 1;
    library.laws.iter().filter(|l| l.source.file == last).collect()
}

/// The rules of a text: its name, its text, and whether it must be refused.
fn rules(text: &str) -> Vec<(String, String, bool)> {
    let mut out: Vec<(String, String, bool)> = Vec::new();
    let mut refused = false;
    for line in text.lines() {
        if line.starts_with("// refused") {
            refused = true;
        } else if let Some(name) = line.strip_prefix("rule ") {
            out.push((name.to_string(), String::new(), std::mem::take(&mut refused)));
        }
        if let Some((_, rule, _)) = out.last_mut().filter(|_| !line.starts_with('/')) {
            *rule += line;
            rule.push('\n');
        }
    }
    out
}

/// The rule with one more condition.
fn with_condition(rule: &str, condition: &str) -> String {
    let (before, error) = rule.split_once("  error ").expect("a class");
    match before.split_once("\n  if ") {
        Some((head, own)) => format!("{head}\n  if {condition}, {own}  error {error}"),
        None => format!("{before}  if {condition}\n  error {error}"),
    }
}

/// Time that this thread has had of a processor; none where the system does not tell.
fn busy() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = told.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    nanoseconds.unwrap_or(0) as f64 / 1e9
}

/// Checks every identity of a text; how many there are, and how many are refused.
#[track_caller]
fn told_apart(text: &str) -> (usize, usize) {
    let (rules, library) = (rules(text), library(text));
    let laws = own(&library);
    assert_eq!(rules.len(), laws.len());
    let mut wrong = Vec::new();
    for ((name, rule, refused), law) in rules.iter().zip(laws) {
        let began = busy();
        let verdict = check_law(&library, law, &CheckOptions::default());
        let took = busy() - began;
        if took > SECONDS {
            wrong.push(format!("{name} takes {took:.1} s"));
        }
        match verdict.outcome {
            Outcome::Holds(_) if !refused => {}
            Outcome::Fails(c) if *refused => {
                let Some(p) = &c.holds_when else { continue };
                let again = self::library(&with_condition(rule, &p.condition));
                let verdict = check_law(&again, own(&again)[0], &CheckOptions::default());
                if !matches!(verdict.outcome, Outcome::Holds(_)) {
                    wrong.push(format!("{name} does not hold if {}", p.condition));
                }
            }
            Outcome::Holds(_) => wrong.push(format!("{name} is admitted")),
            Outcome::Fails(c) => wrong.push(format!("{name}: {}", c.human())),
            Outcome::NoSample { reason } => wrong.push(format!("{name} never matches: {reason}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    (rules.len(), rules.iter().filter(|r| r.2).count())
}

const TEXTS: [&str; 4] = [
    include_str!("../../../tests/laws/identities/elementwise.rules"),
    include_str!("../../../tests/laws/identities/integers.rules"),
    include_str!("../../../tests/laws/identities/movement.rules"),
    include_str!("../../../tests/laws/identities/reductions.rules"),
];

#[test]
fn identities_of_elements() {
    told_apart(TEXTS[0]);
}

#[test]
fn identities_of_integers_and_conversions() {
    told_apart(TEXTS[1]);
}

#[test]
fn identities_of_movement() {
    told_apart(TEXTS[2]);
}

#[test]
fn identities_of_reductions_and_products() {
    told_apart(TEXTS[3]);
}

#[test]
fn there_are_two_hundred_identities() {
    let all: Vec<_> = TEXTS.iter().flat_map(|t| rules(t)).collect();
    let refused = all.iter().filter(|r| r.2).count();
    assert!(all.len() >= 200 && refused >= 40, "{} identities, {refused} refused", all.len());
}

#[test]
fn what_is_false_is_found_for_every_seed() {
    let library = library(TEXTS[3]);
    for name in [
        "largest_of_any_repetition",
        "conv_of_image_scaled_by_any",
        "products_regrouped_without_first",
        "products_regrouped_without_second",
        "sum_of_reversed_in_bits",
    ] {
        let law = library.laws.iter().find(|l| *l.name == *name).expect("a law");
        for seed in 0..8 {
            let options = CheckOptions { seed, explain: false, ..CheckOptions::default() };
            let outcome = check_law(&library, law, &options).outcome;
            assert!(matches!(outcome, Outcome::Fails(_)), "{name} with seed {seed}");
        }
    }
}
