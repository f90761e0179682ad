//! Laws that are found rather than written (after Ruler, Nandi et al. 2021, and Enumo, Pal et al. 2023).
//!
//! Terms over the operators that are named are enumerated and grouped by their values; pairs of a group are candidates;
//! the verifier decides which of them hold; what others derive is left out. Knows no operator by name. Never says that a
//! law holds: the verifier does.

mod compare;
mod establish;
mod exprs;
mod minimise;
mod operators;
mod plan;
mod printing;
mod statement;
mod terms;
mod values;
mod worlds;

pub use compare::{Compared, Comparison, compare};
pub use operators::Unusable;
pub use printing::FoundLaw;

use crate::stdlib;
use establish::{Asking, Established, establish};
use minimise::Known;
use mlc_dsl::ir::DType;
use mlc_dsl::library::Library;
use mlc_verify::CheckOptions;
use operators::Operator;
use serde::Serialize;
use statement::Candidate;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};
use terms::Bank;

/// What is looked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Operators that terms are made of.
    pub ops: Vec<String>,
    /// Types of variables.
    pub types: Vec<DType>,
    /// Largest size of a term.
    pub size: usize,
    /// Variables of a type.
    pub variables: usize,
    /// When to stop: what is found depends on it only if it is reached.
    pub time: Duration,
    /// Of samples.
    pub seed: u64,
    /// Samples of each law.
    pub samples: usize,
    /// Results do not depend on it unless time runs out.
    pub threads: usize,
    /// What the shipped laws derive is left out, too.
    pub beyond: bool,
}

/// How much was looked at.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Terms that were evaluated.
    pub terms: usize,
    /// Pairs of terms with equal values that may be laws.
    pub candidates: usize,
    /// Those that the laws found before them derive.
    pub derived: usize,
    /// Those that the verifier refused.
    pub refused: usize,
    /// Those that were found to hold, and later derived by others.
    pub redundant: usize,
    /// Those that no time was left for.
    pub left: usize,
    /// Seconds of the whole.
    pub seconds: f64,
    /// Seconds in which candidates were derived.
    pub derive_seconds: f64,
    /// Seconds in which the verifier was asked.
    pub verify_seconds: f64,
    /// Whether the time ran out.
    pub timed_out: bool,
}

/// What was found.
pub struct Inferred {
    /// A `.rules` text.
    pub text: String,
    /// Its laws.
    pub laws: Vec<FoundLaw>,
    /// How much was looked at.
    pub counts: Counts,
}

/// Candidates that are looked at together.
const WINDOW: usize = 72;

/// Candidates that the verifier is asked about at a time: those of few operators stand for the rest.
const ASKED: usize = 24;

/// Finds laws of operators of the shipped texts and these.
///
/// # Errors
/// An operator is unknown, or its operands or attributes cannot be enumerated.
pub fn infer(
    texts: &[(String, String)],
    options: &Options,
    hears: &dyn Fn(&str),
) -> Result<Inferred, Unusable> {
    let started = Instant::now();
    let (library, _) = stdlib::operators_with(texts);
    let ops = operators::named(&library, &options.ops, &options.types)?;
    let mut search = Search {
        texts,
        options,
        library: &library,
        until: started + options.time,
        banks: vec![],
        seen: HashSet::new(),
        found: vec![],
        counts: Counts::default(),
        hears,
    };
    for stage in plan::stages(options) {
        if search.is_over() {
            break;
        }
        search.stage(&ops, stage);
    }
    search.drop_redundant(0);
    let mut inferred = search.printed();
    inferred.counts.seconds = started.elapsed().as_secs_f64();
    Ok(inferred)
}

struct Search<'a> {
    texts: &'a [(String, String)],
    options: &'a Options,
    library: &'a Library,
    until: Instant,
    banks: Vec<Bank>,
    seen: HashSet<String>,
    found: Vec<Established>,
    counts: Counts,
    hears: &'a dyn Fn(&str),
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Enumerates the terms of a stage, and finds the laws among them.
    fn stage(&mut self, ops: &[Operator], stage: plan::Stage) {
        let began = Instant::now();
        let grown = plan::banks(self.library, ops, self.options, stage, self.until);
        let mut candidates: Vec<Candidate> = Vec::new();
        for bank in grown {
            self.counts.terms += bank.evaluated;
            self.banks.push(bank);
            let found = self.candidates(self.banks.len() - 1, stage);
            if found.is_empty() {
                self.banks.pop();
            }
            candidates.extend(found);
        }
        self.counts.candidates += candidates.len();
        candidates.sort_by(|a, b| a.rank.cmp(&b.rank));
        (self.hears)(&format!(
            "{stage:?}: {} candidates in {:.1} s",
            candidates.len(),
            began.elapsed().as_secs_f64()
        ));
        let left = self.until.saturating_duration_since(began);
        self.sift(candidates, began + left.mul_f64(stage.share));
        (self.hears)(&format!(
            "{} laws, {:?}, {:.1} s",
            self.found.len(),
            self.counts,
            began.elapsed().as_secs_f64()
        ));
    }

    /// The candidates of a bank that were not seen before and have all operators of the stage.
    fn candidates(&mut self, bank: usize, stage: plan::Stage) -> Vec<Candidate> {
        let b = &self.banks[bank];
        let all = (1u64 << b.ops.len()) - 1;
        let full = |p: &&terms::Pair| {
            stage.together.is_none() || b.term(p.term).ops | b.term(p.other).ops == all
        };
        let pairs = b.pairs.iter().filter(full);
        let found: Vec<Candidate> =
            pairs.filter_map(|p| Candidate::of(&self.banks, bank, *p)).collect();
        let banks = &self.banks;
        found.into_iter().filter(|c| self.seen.insert(c.key(banks))).collect()
    }

    /// Of candidates in their order, keeps what holds and is not derived. What is left then is left out.
    fn sift(&mut self, candidates: Vec<Candidate>, until: Instant) {
        let mut waiting: VecDeque<Candidate> = candidates.into();
        let mut window: Vec<Candidate> = Vec::new();
        let mut known = self.known();
        let mut fresh = 0;
        loop {
            let from = window.len();
            let more = (WINDOW - from).min(waiting.len());
            window.extend(waiting.drain(..more));
            if window.is_empty() {
                return;
            }
            if Instant::now() >= until {
                self.counts.left += window.len() + waiting.len();
                self.counts.timed_out = true;
                return;
            }
            // What no new law may have derived is not tried again.
            let tried = if fresh > 0 { 0 } else { from };
            let began = Instant::now();
            let derived = known.derives(&self.banks, &window[tried..], self.options.threads);
            self.counts.derived += derived.iter().filter(|d| **d).count();
            let mut derived = std::iter::repeat_n(false, tried).chain(derived);
            window.retain(|_| !derived.next().unwrap_or(false));
            self.counts.derive_seconds += began.elapsed().as_secs_f64();
            let asked: Vec<Candidate> = window.drain(..window.len().min(ASKED)).collect();
            let began = Instant::now();
            let holds: Vec<Established> = self.ask(&asked);
            self.counts.verify_seconds += began.elapsed().as_secs_f64();
            self.counts.refused += asked.len().saturating_sub(holds.len());
            fresh = holds.len();
            if fresh > 0 {
                let from = self.found.len();
                self.found.extend(holds);
                self.drop_redundant(from);
                known = self.known();
            }
        }
    }

    fn ask(&self, candidates: &[Candidate]) -> Vec<Established> {
        let options = CheckOptions {
            seed: self.options.seed,
            samples: self.options.samples,
            threads: 1,
            explain: false,
            ..CheckOptions::default()
        };
        let asking = Asking {
            texts: self.texts,
            library: self.library,
            options: &options,
            threads: self.options.threads,
            until: self.until,
        };
        let mut texts = HashSet::new();
        let holds = establish(&asking, &self.banks, candidates).into_iter().flatten();
        // Of two types one law is found twice.
        holds.filter(|e| texts.insert(printing::rule(&self.banks, e, ""))).collect()
    }

    fn known(&self) -> Known {
        let laws = printing::laws_by_number(&self.banks, &self.found);
        Known::new(self.texts, laws, &self.options.ops, self.options.beyond)
    }

    /// Leaves out laws from this number on that the others derive, the largest first.
    fn drop_redundant(&mut self, from: usize) {
        self.found[from..].sort_by(|a, b| a.candidate.rank.cmp(&b.candidate.rank));
        let known = self.known();
        let mut out: Vec<String> = Vec::new();
        let mut keep = vec![true; self.found.len()];
        for i in (from..self.found.len()).rev() {
            let own = printing::number(i);
            out.push(own);
            if known.derives_without(&self.banks, &self.found[i], &out) {
                keep[i] = false;
                self.counts.redundant += 1;
            } else {
                out.pop();
            }
        }
        let mut keep = keep.into_iter();
        self.found.retain(|_| keep.next() == Some(true));
    }

    /// The laws under their names, without those that the checker does not accept.
    fn printed(mut self) -> Inferred {
        loop {
            let (text, laws) =
                printing::text(self.library, &self.banks, &self.found, self.options, &self.counts);
            let refused = printing::refused(self.texts, &text, self.options);
            if refused.is_empty() {
                return Inferred { text, laws, counts: self.counts };
            }
            let kept = laws.iter().map(|l| !refused.contains(&l.name));
            let mut kept = kept.collect::<Vec<_>>().into_iter();
            self.counts.refused += refused.len();
            self.found.retain(|_| kept.next() == Some(true));
        }
    }
}
