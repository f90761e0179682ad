//! Graphs that are nearly something else keep their values.

use mlc_proptests::traps::{Trap, families, run, trap_options};
use rayon::prelude::*;
use std::collections::BTreeSet;

#[test]
fn no_trap_springs() {
    let families = families();
    let traps: Vec<&Trap> = families.iter().flat_map(|f| &f.traps).collect();
    assert!(traps.len() >= 100, "{} traps", traps.len());
    let scratch = tempfile::tempdir().expect("a folder");
    let outcomes: Vec<_> = traps
        .par_iter()
        .enumerate()
        .map(|(i, t)| run::run(t, &scratch.path().join(format!("{i}.onnx")), &trap_options()))
        .collect();
    let told = |(t, o): (&&Trap, &run::Outcome)| {
        let wrong = (!o.wrong.is_empty()).then(|| o.wrong.join("\n"))?;
        Some(format!("{}: {}\n{wrong}\n{}", t.name, t.why, o.programs))
    };
    let wrong: Vec<String> = traps.iter().zip(&outcomes).filter_map(told).collect();
    assert!(wrong.is_empty(), "{} traps are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let compared: usize = outcomes.iter().map(|o| o.compared).sum();
    assert!(compared >= 10 * traps.len(), "only {compared} results were compared");
}

#[test]
fn traps_have_names_of_their_own_and_reasons() {
    let mut seen = BTreeSet::new();
    for t in families().iter().flat_map(|f| &f.traps) {
        assert!(seen.insert(t.name.clone()), "two traps are called {}", t.name);
        assert!(t.why.len() >= 5, "{} says not what sets it apart", t.name);
    }
}
