//! Verification of laws: the shipped ones hold, false ones are refuted, true ones are not.

use mlc_dsl::library::Library;
use mlc_verify::{CheckOptions, Outcome, check_law, check_library};
use std::path::Path;

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn texts(folder: &Path, out: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for p in entries {
        if p.is_dir() {
            texts(&p, out);
        } else if p.extension().is_some_and(|e| e == "rules") {
            let name = p.strip_prefix(ROOT).unwrap().display().to_string();
            out.push((name, std::fs::read_to_string(&p).unwrap()));
        }
    }
}

/// The folders of `rules/` and one more text.
fn library(folders: &[&str], extra: &str) -> Library {
    let mut all = Vec::new();
    for f in folders {
        texts(&Path::new(ROOT).join("rules").join(f), &mut all);
    }
    let known = all.len();
    if !extra.is_empty() {
        all.push(("extra.rules".to_string(), extra.to_string()));
    }
    let (library, diags) = mlc_dsl::check::library(&all);
    for d in &diags {
        let s = &library.sources[d.source as usize];
        let one = std::slice::from_ref(&d.diag);
        eprintln!("{}", mlc_dsl::diagnostics::render(one, &s.name, &s.text, false));
    }
    assert!(diags.iter().all(|d| (d.source as usize) < known), "the test's own text is unsound");
    library
}

/// Every law of the text, which may speak of what these folders declare, has the expected verdict.
#[track_caller]
fn check(folders: &[&str], text: &str, expected: &str) {
    let library = library(folders, text);
    let own = library.sources.len() as u32 - 1;
    let options = CheckOptions::default();
    let own: Vec<_> = library.laws.iter().filter(|l| l.source.file == own).collect();
    let mut wrong = Vec::new();
    for law in own {
        let verdict = check_law(&library, law, &options);
        let (is, shown) = match &verdict.outcome {
            Outcome::Holds(_) => ("holds", String::new()),
            Outcome::Fails(c) => ("fails", c.human()),
            Outcome::NoSample { reason } => ("no sample", reason.clone()),
        };
        eprintln!("{} {is}\n{shown}{}", law.name, verdict.warnings.join("\n"));
        wrong.extend((is != expected).then(|| format!("{} {is}", law.name)));
    }
    assert!(wrong.is_empty(), "expected {expected}: {wrong:?}");
}

// `LAWS=name,name` checks these alone; `SEED` and `SAMPLES` look elsewhere and longer. A part of the samples of `mlc-rewrite check`.
#[test]
fn shipped_laws_hold() {
    let library = library(&["ops", "extern", "layers", "laws", "fuse", "targets"], "");
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let default = CheckOptions::default();
    let options = CheckOptions {
        seed: number("SEED").unwrap_or(default.seed),
        samples: number("SAMPLES").map_or(default.samples / 4, |n| n as usize),
        // Verdicts must not depend on how busy the machine is.
        time_ms: 600_000,
        ..default
    };
    let only: Option<Vec<String>> =
        std::env::var("LAWS").ok().map(|v| v.split(',').map(str::to_string).collect());
    let report = check_library(&library, only.as_deref(), &options, &|_, _| {});
    eprintln!("{}", report.human(false));
    assert!(report.sound());
    let suspicious: Vec<_> =
        report.laws.iter().filter(|l| !l.verdict.warnings.is_empty()).collect();
    assert!(suspicious.is_empty(), "{} laws are suspicious", suspicious.len());
}

#[test]
fn verdicts_do_not_depend_on_threads() {
    let library = library(&["ops"], include_str!("../../../tests/laws/true.rules"));
    let verdicts = |threads: usize| {
        let options = CheckOptions { threads, samples: 20, ..CheckOptions::default() };
        let report = check_library(&library, None, &options, &|_, _| {});
        format!("{:?}", report.laws)
    };
    assert_eq!(verdicts(1), verdicts(3));
}

#[test]
fn false_laws_are_refuted() {
    check(&["ops"], include_str!("../../../tests/laws/false.rules"), "fails");
}

#[test]
fn true_laws_hold() {
    check(&["ops"], include_str!("../../../tests/laws/true.rules"), "holds");
}

#[test]
fn false_identities_are_refuted() {
    check(
        &["ops", "extern", "layers"],
        include_str!("../../../tests/laws/false_identities.rules"),
        "fails",
    );
    check(
        &["ops", "extern", "layers"],
        include_str!("../../../tests/laws/more_false_identities.rules"),
        "fails",
    );
}

#[test]
fn true_identities_hold() {
    check(
        &["ops", "extern", "layers"],
        include_str!("../../../tests/laws/true_identities.rules"),
        "holds",
    );
}

/// The conditions that the text states beside its laws, by law.
fn stated(text: &str) -> Vec<(String, Option<String>)> {
    let mut out = Vec::new();
    let mut condition = None;
    for line in text.lines() {
        if let Some(c) = line.strip_prefix("// when ") {
            condition = Some(c.to_string());
        } else if let Some(name) = line.strip_prefix("rule ") {
            out.push((name.to_string(), condition.take()));
        }
    }
    out
}

/// Draws of attributes within which a false law is refuted and mended: the most of them take a second.
const AT_ONCE: usize = 10_000;

#[test]
fn known_false_laws_are_refuted_at_once_with_what_they_overlook() {
    let text = include_str!("../../../tests/laws/known_false.rules");
    let library = library(&["ops"], text);
    let laws = stated(text);
    assert!(laws.len() >= 35, "{} laws", laws.len());
    let mut wrong = Vec::new();
    for (name, condition) in laws {
        let law = library.laws.iter().find(|l| *l.name == *name).expect("a law");
        let verdict = check_law(&library, law, &CheckOptions::default());
        let work = verdict.work;
        let Outcome::Fails(c) = verdict.outcome else { panic!("{name} is not refuted") };
        eprintln!("{name}, work {work}\n{}", c.human());
        let found = c.holds_when.as_ref().map(|p| p.condition.clone());
        if found != condition {
            wrong.push(format!("{name}: {found:?} instead of {condition:?}"));
        }
        if let Some(p) = &c.holds_when {
            assert!(p.passing > 0 && p.failing > 0, "{name}");
        }
        assert!(work < AT_ONCE, "{name} took {work} draws");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn proposed_conditions_do_not_depend_on_the_seed() {
    let text = include_str!("../../../tests/laws/known_false.rules");
    let library = library(&["ops"], text);
    let mut wrong = Vec::new();
    for (name, condition) in stated(text) {
        let law = library.laws.iter().find(|l| *l.name == *name).expect("a law");
        for seed in 1..6 {
            let options = CheckOptions { seed, ..CheckOptions::default() };
            let Outcome::Fails(c) = check_law(&library, law, &options).outcome else {
                panic!("{name} is not refuted with seed {seed}")
            };
            let found = c.holds_when.map(|p| p.condition);
            if found != condition {
                wrong.push(format!("{name}: {found:?} instead of {condition:?} with seed {seed}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What each law of a text is said to break by: words of its verdict.
fn damages(text: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut words = String::new();
    for line in text.lines() {
        if let Some(w) = line.strip_prefix("// breaks by") {
            words = w.trim().to_string();
        } else if let Some(name) = line.strip_prefix("rule ") {
            out.push((name.to_string(), std::mem::take(&mut words)));
        }
    }
    out
}

/// The folders of `rules/` on which laws of layers stand, and one more text.
fn layered(text: &str) -> Library {
    library(&["ops", "layers"], text)
}

#[test]
fn laws_of_adversaries_are_told_apart() {
    let text = include_str!("../../../tests/laws/adversary_false.rules");
    check(&["ops", "extern", "layers"], text, "fails");
    let text = include_str!("../../../tests/laws/adversary_true.rules");
    check(&["ops", "extern", "layers"], text, "holds");
}

#[test]
fn unsafe_identities_are_refused_with_the_damage_and_a_way_out() {
    let text = include_str!("../../../tests/laws/unsafe.rules");
    let library = layered(text);
    let laws = damages(text);
    assert!(laws.len() >= 50, "{} laws", laws.len());
    let mut wrong = Vec::new();
    let options = CheckOptions::default();
    for (name, words) in &laws {
        let law = library.laws.iter().find(|l| *l.name == **name).expect("a law");
        let Outcome::Fails(c) = check_law(&library, law, &options).outcome else {
            wrong.push(format!("{name} is admitted"));
            continue;
        };
        let shown = c.human();
        let kinds =
            ["overflow inside", "underflow inside", "error grows", "infinit", "became", "NaN"];
        let named = kinds.iter().any(|k| c.broken.contains(k)) || c.in_f64;
        if !named || !c.broken.contains(words.as_str()) || c.inputs.is_empty() {
            wrong.push(format!("{name}: not `{words}`: {shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_identities_are_admitted_where_a_condition_makes_them_safe() {
    let text = include_str!("../../../tests/laws/ranges.rules");
    let known = damages(include_str!("../../../tests/laws/unsafe.rules"));
    for (name, _) in damages(text) {
        assert!(known.iter().any(|(k, _)| *k == name), "{name} is not known to be unsafe");
    }
    holds(text, 15);
}

#[test]
fn what_every_optimiser_does_is_admitted() {
    holds(include_str!("../../../tests/laws/deployed.rules"), 20);
}

/// Every law of the text, at least so many, holds.
#[track_caller]
fn holds(text: &str, least: usize) {
    let library = layered(text);
    let own = library.sources.len() as u32 - 1;
    let laws: Vec<_> = library.laws.iter().filter(|l| l.source.file == own).collect();
    assert!(laws.len() >= least, "{} laws", laws.len());
    let mut wrong = Vec::new();
    for law in laws {
        match check_law(&library, law, &CheckOptions::default()).outcome {
            Outcome::Holds(_) => {}
            Outcome::Fails(c) => wrong.push(format!("{}: {}", law.name, c.human())),
            Outcome::NoSample { reason } => wrong.push(format!("{}: {reason}", law.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
