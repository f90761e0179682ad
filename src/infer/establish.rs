//! Asks the verifier about candidates: under which types, conditions and error class one holds, if at all.
//!
//! Only what it says holds is a law.

use super::statement::{Candidate, Variant};
use super::terms::Bank;
use crate::stdlib;
use crate::threads;
use mlc_dsl::library::{Law, Library};
use mlc_verify::{CheckOptions, Outcome, check_law};
use std::collections::HashMap;
use std::time::Instant;

/// Samples of a candidate; what is printed in the end is checked with all that are wanted.
const SAMPLES: usize = 60;

/// A candidate that holds.
#[derive(Clone, Debug)]
pub struct Established {
    /// The law.
    pub candidate: Candidate,
    /// How it holds.
    pub variant: Variant,
    /// It holds from right to left as well, and neither side is larger.
    pub both_ways: bool,
}

/// What is needed to ask.
pub struct Asking<'a> {
    /// The user's texts.
    pub texts: &'a [(String, String)],
    /// The operators.
    pub library: &'a Library,
    /// How thoroughly.
    pub options: &'a CheckOptions,
    /// At a time.
    pub threads: usize,
    /// Nothing more is asked then.
    pub until: Instant,
}

/// For each candidate how it holds: not at all, in one way, or under conditions and, with another error class, without them.
pub fn establish(
    asking: &Asking<'_>,
    banks: &[Bank],
    candidates: &[Candidate],
) -> Vec<Vec<Established>> {
    let variants: Vec<Vec<Vec<Variant>>> =
        candidates.iter().map(|c| c.variants(banks, asking.library)).collect();
    let mut text = String::new();
    for (i, (c, all)) in candidates.iter().zip(&variants).enumerate() {
        let each = all.iter().enumerate().flat_map(|(j, families)| {
            families.iter().enumerate().map(move |(k, v)| (format!("{i}_{j}_{k}"), v))
        });
        for (name, v) in each {
            text.push_str(&c.rule(banks, &format!("one_{name}"), v, "=>"));
            text.push_str("\n\n");
            if c.is_balanced(banks) {
                text.push_str(&c.rule(banks, &format!("both_{name}"), v, "<=>"));
                text.push_str("\n\n");
            }
        }
    }
    let mut texts = asking.texts.to_vec();
    texts.push(("candidates".into(), text));
    // What the checker refuses is no law of the language: it is left out of the library.
    let (library, _) = stdlib::operators_with(&texts);
    let laws: HashMap<&str, &Law> = library.laws.iter().map(|l| (&*l.name, l)).collect();
    let holds = |name: &str| {
        laws.get(name).is_some_and(|law| {
            let samples = SAMPLES.min(asking.options.samples);
            let options = CheckOptions { samples, ..*asking.options };
            matches!(check_law(&library, law, &options).outcome, Outcome::Holds(_))
        })
    };
    threads::map(asking.threads, candidates.len(), &|i| {
        let found = |j: &usize| Instant::now() < asking.until && holds(&format!("one_{i}_{j}_0"));
        let count = variants[i].len();
        let Some(first) = (0..count).find(found) else { return vec![] };
        let loose = |j: &usize| variants[i][*j][0].class.starts_with("approx");
        let conditional = !variants[i][first][0].conditions.is_empty() && !loose(&first);
        let second = (first + 1..count).filter(|_| conditional).filter(loose).find(found);
        let established = |j: usize| {
            let wider = (1..variants[i][j].len()).rev();
            let k = wider.into_iter().find(|k| holds(&format!("one_{i}_{j}_{k}"))).unwrap_or(0);
            Established {
                candidate: candidates[i].clone(),
                variant: variants[i][j][k].clone(),
                both_ways: holds(&format!("both_{i}_{j}_{k}.rev")),
            }
        };
        std::iter::once(first).chain(second).map(established).collect()
    })
}
