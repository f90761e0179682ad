//! The guard: a result that fails the self-check is never returned.
//!
//! The law of the first equation in its proof that does not hold on the failing inputs is turned off,
//! and the pipeline runs again. If no law can be blamed, the original program is kept. The report says so,
//! for every caller: `optimize`, `run`, `bench` and the library all use it.

use crate::error::Error;
use crate::pipeline::options::{Fp, Options};
use crate::pipeline::planning::CPU;
use crate::pipeline::report::{Clock, peak_process_bytes};
use crate::pipeline::result::{Optimized, keep_as_read};
use crate::pipeline::selfcheck::{Blamed, Check, Failure, TurnedOff, blame};
use mlc_dsl::ir::Program;
use mlc_dsl::library::Library;
use mlc_verify::random_inputs::Style;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often a run is repeated.
const REPEATS: usize = 12;

/// Runs `once` until its result passes the self-check, each time without the laws that were to blame.
pub(crate) fn retry_until_verified(
    source: &Program,
    library: &Arc<Library>,
    options: &Options,
    once: &dyn Fn(&Options) -> Result<Optimized, Error>,
) -> Result<Optimized, Error> {
    let mut options = options.clone();
    let (mut off, mut seconds) = (Vec::new(), BTreeMap::new());
    let (mut last, mut notes) = (None, Vec::new());
    for _ in 0..=REPEATS {
        let mut o = once(&options)?;
        if !options.self_check || source.consts.unread() > 0 {
            return Ok(o);
        }
        let mut clock = Clock::default();
        let mut styles = Style::ALL.to_vec();
        // At a pole laws of the other classes may yield infinity for NaN.
        if options.fp == Fp::Exact {
            styles.push(Style::NotFinite);
        }
        mlc_explore::progress::report("checking the result", None);
        let check = Check {
            library,
            guard: &options.guard,
            fp: options.fp,
            styles: &styles,
            seed: options.seed,
            threads: options.threads,
        };
        let checked = check.run(
            source,
            &o,
            options.operators.is_none() && library.is_kind_of(&options.target, CPU),
        )?;
        // A proof that cannot be replayed blames nobody.
        let blamed = |f: &Failure| (f.clone(), blame(&o, &check, f).unwrap_or_default());
        let found = checked.failure.as_ref().map(blamed);
        clock.stage("self-check");
        for (stage, s) in o.report.seconds.iter().chain(&clock.stages) {
            *seconds.entry(stage.clone()).or_insert(0.0) += s;
        }
        o.report.seconds = seconds.clone();
        o.report.self_check_error = checked.report.error;
        o.report.self_check = Some(checked.report);
        o.report.peak_process_bytes = peak_process_bytes();
        let Some((failure, blamed)) = found else {
            o.report.laws_turned_off = off;
            o.report.notes.extend(notes);
            return Ok(o);
        };
        last = Some((o, failure.message.clone()));
        match blamed {
            Some(blamed) => {
                options.without.extend(both_ways(library, &blamed.law));
                off.push(turned_off(blamed, &failure));
            }
            // Of a block that stands for its copies the proof does not see the values inside.
            None if options.share_blocks => {
                options.share_blocks = false;
                notes.push(format!(
                    "every copy of a repeated block was explored, as no law could be blamed for {}",
                    failure.message
                ));
            }
            None => break,
        }
    }
    let Some((o, message)) = last else { return Err(Error::unexpected("nothing was tried")) };
    let mut o = keep_as_read(o, library, &options)?;
    o.report.laws_turned_off = off;
    o.report.kept_as_read = Some(message);
    Ok(o)
}

/// The names of a law in both directions.
pub(crate) fn both_ways(library: &Library, law: &str) -> Vec<String> {
    let base = |name: &str| name.strip_suffix(".rev").unwrap_or(name).to_string();
    let same = library.laws.iter().filter(|l| base(&l.name) == base(law));
    same.map(|l| l.name.to_string()).collect()
}

fn turned_off(blamed: Blamed, failure: &Failure) -> TurnedOff {
    let finding = failure.finding.as_ref();
    let number = |v: f64| format!("{v:?}");
    let Blamed { law, left, right } = blamed;
    TurnedOff {
        law,
        within: None,
        output: failure.output.clone(),
        input_set: failure.set.name.clone(),
        element: finding.map(|f| f.at),
        source: finding.map_or(String::new(), |f| number(f.source)),
        result: finding.map_or_else(|| failure.message.clone(), |f| number(f.result)),
        reference: finding.and_then(|f| f.truth).map(number),
        error: finding.map(|f| f.error).filter(|e| e.is_finite()),
        left,
        right,
    }
}
