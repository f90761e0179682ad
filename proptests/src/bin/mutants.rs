//! Mutation test of the shipped laws: how many mutants the verifier refutes, and which it accepts.
//!
//! `mutants [LAW] [--every N] [--threads N]`; LAW is a prefix of names, one of every N mutants is tested.
//! Prints Markdown; missed mutants are printed at once. The exit code is 1 if fewer than 99 % of the wrong ones are refuted.

use mlc_proptests::mutants::{Fate, fate_of, mutants};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Samples with which a mutant that passes is looked at again.
const AGAIN: usize = 1500;

fn main() -> ExitCode {
    let (mut law, mut every, mut threads) = (String::new(), 1usize, 2usize);
    let mut words = std::env::args().skip(1);
    while let Some(w) = words.next() {
        let mut number = || words.next().and_then(|v| v.parse::<usize>().ok()).filter(|n| *n > 0);
        let known = match w.as_str() {
            "--every" => number().map(|n| every = n),
            "--threads" => number().map(|n| threads = n),
            _ if w.starts_with('-') => None,
            _ => {
                law.clone_from(&w);
                Some(())
            }
        };
        if known.is_none() {
            eprintln!("`{w}` is not understood\nusage: mutants [LAW] [--every N] [--threads N]");
            return ExitCode::from(2);
        }
    }
    let (all, library) = mutants(|m| m.of.starts_with(&law));
    let chosen: Vec<_> = all.iter().step_by(every).collect();
    let next = AtomicUsize::new(0);
    let fates = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((i, m)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    chosen.get(i).map(|m| (i, *m))
                } {
                    let fate = fate_of(&library, m, AGAIN);
                    if let Fate::Missed(why) = &fate {
                        eprintln!("{i} of {}: missed {} ({}): {why}", chosen.len(), m.of, m.change);
                    }
                    if let Ok(mut fates) = fates.lock() {
                        fates.push((i, fate));
                    }
                }
            });
        }
    });
    let mut fates = fates.into_inner().unwrap_or_default();
    fates.sort_by_key(|(i, _)| *i);
    let count = |f: &dyn Fn(&Fate) -> bool| fates.iter().filter(|(_, fate)| f(fate)).count();
    let killed = count(&|f| *f == Fate::Killed);
    let missed = count(&|f| matches!(f, Fate::Missed(_)));
    let equivalent = count(&|f| matches!(f, Fate::Equivalent(_)));
    let void = count(&|f| *f == Fate::Void);
    let share = killed as f64 / (killed + missed).max(1) as f64;
    println!(
        "{} of {} mutants: {killed} refuted, {missed} missed, {equivalent} equivalent, {void} never match.",
        chosen.len(),
        all.len()
    );
    println!("Of those that are wrong, {:.2} % are refuted.\n", 100.0 * share);
    println!("| law | change | fate |\n|---|---|---|");
    for (i, fate) in &fates {
        let m = chosen[*i];
        let fate = match fate {
            Fate::Missed(why) => format!("**missed**: {why}"),
            Fate::Equivalent(why) => format!("equivalent: {why}"),
            Fate::Killed | Fate::Void => continue,
        };
        println!("| `{}` | {} | {fate} |", m.of, m.change.replace('|', "\\|").replace('\n', " "));
    }
    if share >= 0.99 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
