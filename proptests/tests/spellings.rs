//! A fixed sample of every family's spellings becomes the family's own plan.

use mlc_proptests::spellings::{families, run};
use mlc_proptests::{checked_options, sampled};

/// Spellings of each family and setting, the reference among them.
const SAMPLE: usize = 5;

#[test]
fn every_spelling_becomes_its_layer() {
    let scratch = std::env::temp_dir().join(format!("spelling-test-{}.onnx", std::process::id()));
    let options = checked_options();
    let mut short = Vec::new();
    let all = families();
    assert!(all.len() >= 24, "{} families", all.len());
    for f in &all {
        let o = run::run(f, sampled(SAMPLE), &scratch, &options);
        assert!(o.spellings >= f.setups.len(), "{} has no spellings", f.name);
        short.extend(
            o.failures.iter().map(|x| format!("{}\n{}became\n{}\n", x.which, x.source, x.became)),
        );
    }
    // A leftover of a run in the temporary folder harms nobody.
    let _ = std::fs::remove_file(&scratch);
    assert!(short.is_empty(), "expected other plans:\n{}", short.join("\n"));
}

#[test]
fn families_have_many_different_spellings() {
    for f in families() {
        let n: usize = f.setups.iter().map(|s| run::graphs(&f, s, 50)).sum();
        assert!(n >= 50, "{} has only {n} different graphs", f.name);
    }
}
