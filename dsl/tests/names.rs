//! The index of names, on every shipped text: each name stands where it is said to stand, and what is used is declared.

use mlc_dsl::check::parsed;
use mlc_dsl::syntax::names::{Names, Space};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn texts(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => texts(&path, out),
            false if path.extension().is_some_and(|e| e == "rules") => out.push(path),
            false => {}
        }
    }
}

/// Shipped texts with their names.
fn shipped() -> Vec<(String, Names)> {
    let mut paths = Vec::new();
    texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../rules"), &mut paths);
    paths.sort();
    let read = |p: &PathBuf| std::fs::read_to_string(p).expect("a text");
    let texts: Vec<String> = paths.iter().map(read).collect();
    let named: Vec<(&str, &str)> = texts.iter().map(|t| ("a.rules", t.as_str())).collect();
    let names: Vec<Names> = parsed(&named).iter().map(|t| t.names()).collect();
    texts.into_iter().zip(names).collect()
}

#[test]
fn names_stand_where_they_are_said_to_stand() {
    let mut count = 0;
    for (text, names) in shipped() {
        for o in &names.occurrences {
            assert_eq!(&text[o.span.range()], o.name, "{o:?}");
            assert!(o.item < names.items.len());
            let at = names.at(o.span.start).expect("a name");
            assert_eq!(at, o);
        }
        let starts: Vec<u32> = names.occurrences.iter().map(|o| o.span.start).collect();
        assert!(starts.is_sorted());
        count += starts.len();
    }
    assert!(count > 30_000, "{count} names");
}

#[test]
fn parameters_that_are_passed_by_name_are_declared() {
    let all = shipped();
    let occurrences = || all.iter().flat_map(|(_, names)| &names.occurrences);
    let declared: BTreeSet<(&Space, &str)> =
        occurrences().filter(|o| o.declares).map(|o| (&o.space, o.name.as_str())).collect();
    let operators: BTreeSet<&str> =
        declared.iter().filter(|d| *d.0 == Space::Operator).map(|d| d.1).collect();
    assert!(operators.len() > 250);
    let mut missed = BTreeSet::new();
    for o in occurrences().filter(|o| !o.declares) {
        let Space::Parameter(of) = &o.space else { continue };
        if operators.contains(of.as_str()) && !declared.contains(&(&o.space, o.name.as_str())) {
            missed.insert(format!("{of}: {}", o.name));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
