//! Identities of other systems (`tests/filetests/identities`): the shipped laws find their sides equal, and those that are false are refuted.
//!
//! A part of them, every so many of each text; `mlc-rewrite check --derive` goes through all.

use mlc_dsl::diagnostics::Severity;
use mlc_dsl::library::{Law, LawOrigin, Library};
use mlc_proptests::sampled;
use mlc_rewrite::{derivation, stdlib};
use mlc_verify::{CheckOptions, Outcome, check_law};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of so many identities one is taken.
const EVERY: usize = 20;

/// How many of a hundred are derived at least: of all it is 92, and a part of ninety strays from that by up to ten.
const DERIVED: usize = 82;

/// The files of identities: of true ones, or of false ones.
fn files(are_false: bool) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/filetests/identities");
    let entries = std::fs::read_dir(&folder).expect("the folder of identities");
    let mut out: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    out.retain(|p| p.to_string_lossy().contains("_false") == are_false);
    out.sort();
    out
}

/// The shipped texts and one of identities.
fn library(file: &Path) -> Arc<Library> {
    let text = std::fs::read_to_string(file).expect("a text");
    let (library, diags) = stdlib::with(&[(file.display().to_string(), text)]);
    let errors: Vec<_> = diags.iter().filter(|d| d.diag.severity == Severity::Error).collect();
    assert!(errors.is_empty(), "{}: {errors:?}", file.display());
    Arc::new(library)
}

/// The identities of a text that are taken.
fn taken(library: &Library) -> Vec<&Law> {
    let first = stdlib::SHIPPED_TEXTS as u32;
    let own = library.laws.iter().filter(|l| l.source.file >= first && l.origin == LawOrigin::Rule);
    own.step_by((EVERY / sampled(1)).max(1)).collect()
}

#[test]
fn identities_are_derived() {
    let (mut all, mut missed) = (0, Vec::new());
    for file in files(false) {
        let library = library(&file);
        for law in taken(&library) {
            all += 1;
            let found = derivation::derive(&library, law, stdlib::SHIPPED_TEXTS as u32, 0);
            if !found.is_derived() {
                missed.push(found.human());
            }
        }
    }
    assert!(all > 50, "{all} identities");
    let derived = all - missed.len();
    assert!(derived * 100 >= all * DERIVED, "{derived} of {all}: {}", missed.concat());
}

#[test]
fn false_identities_are_refuted() {
    let options = CheckOptions { explain: false, ..CheckOptions::default() };
    let mut holding = Vec::new();
    for file in files(true) {
        let library = library(&file);
        for law in taken(&library) {
            match check_law(&library, law, &options).outcome {
                Outcome::Fails(_) => {}
                Outcome::Holds(_) | Outcome::NoSample { .. } => holding.push(law.name.to_string()),
            }
        }
    }
    assert!(holding.is_empty(), "{holding:?}");
}
