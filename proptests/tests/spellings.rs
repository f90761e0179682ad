//! A fixed sample of every family's spellings becomes the family's own plan.

use mlc_proptests::spellings::{Family, families, run};
use mlc_proptests::{checked_options, sampled};
use rayon::prelude::*;

/// Spellings of each family and setting, the reference among them.
const SAMPLE: usize = 5;

#[test]
fn every_spelling_becomes_its_layer() {
    let scratch = tempfile::tempdir().expect("a folder");
    let options = checked_options();
    let all = families();
    assert!(all.len() >= 24, "{} families", all.len());
    let of_family = |f: &Family| {
        let file = scratch.path().join(format!("{}.onnx", f.name));
        let o = run::run(f, sampled(SAMPLE), &file, &options);
        assert!(o.spellings >= f.setups.len(), "{} has no spellings", f.name);
        o.failures
    };
    let failures: Vec<_> = all.par_iter().flat_map_iter(of_family).collect();
    let told = |x: &run::Failure| format!("{}\n{}became\n{}\n", x.which, x.source, x.became);
    let short: Vec<String> = failures.iter().map(told).collect();
    assert!(short.is_empty(), "expected other plans:\n{}", short.join("\n"));
}

#[test]
fn families_have_many_different_spellings() {
    for f in families() {
        let n: usize = f.setups.iter().map(|s| run::graphs(&f, s, 50)).sum();
        assert!(n >= 50, "{} has only {n} different graphs", f.name);
    }
}
