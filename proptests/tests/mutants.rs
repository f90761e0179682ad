//! A fixed sample of the mutants of the shipped laws: the verifier refutes those that are wrong.

use mlc_proptests::mutants::{Fate, judge, mutants};

/// Of so many mutants one is taken; the whole campaign is the binary `mutants`.
const EVERY: usize = 41;

/// Samples with which a mutant that passes is looked at again.
const AGAIN: usize = 300;

#[test]
fn mutants_are_refuted() {
    let (all, library) = mutants();
    assert!(all.len() > 1000, "{} mutants", all.len());
    let (mut killed, mut missed) = (0, Vec::new());
    for m in all.iter().step_by(EVERY) {
        match judge(&library, m, AGAIN) {
            Fate::Killed => killed += 1,
            Fate::Missed(why) => missed.push(format!("{} ({}): {why}", m.of, m.change)),
            Fate::Equivalent(why) => eprintln!("{} ({}): {why}", m.of, m.change),
            Fate::Void => {}
        }
    }
    eprintln!("{killed} refuted, {} missed", missed.len());
    assert!(killed > 30, "{killed} refuted");
    assert!(missed.len() * 100 <= killed + missed.len(), "missed: {missed:#?}");
}
