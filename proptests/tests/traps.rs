//! Graphs that are nearly something else keep their values.

use mlc_proptests::traps::{FAMILIES, Trap, run, trap_options};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Workers; each has a file of its own.
const WORKERS: usize = 4;

#[test]
fn no_trap_springs() {
    let traps: Vec<&Trap> = FAMILIES.iter().flat_map(|f| f.traps).collect();
    assert!(traps.len() >= 100, "{} traps", traps.len());
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let compared = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (traps, next, wrong, compared) = (&traps, &next, &wrong, &compared);
            scope.spawn(move || {
                let name = format!("trap-test-{}-{worker}.onnx", std::process::id());
                let scratch = std::env::temp_dir().join(name);
                while let Some(t) = traps.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let o = run::run(t, &scratch, &trap_options());
                    compared.fetch_add(o.compared, Ordering::Relaxed);
                    if !o.wrong.is_empty() {
                        let text = format!(
                            "{}: {}\n{}\n{}",
                            t.name,
                            t.why,
                            o.wrong.join("\n"),
                            o.programs
                        );
                        wrong.lock().expect("no worker panics").push(text);
                    }
                }
                // A leftover of a run in the temporary folder harms nobody.
                let _ = std::fs::remove_file(&scratch);
            });
        }
    });
    let mut wrong = wrong.into_inner().expect("no worker panics");
    wrong.sort();
    assert!(wrong.is_empty(), "{} traps are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let compared = compared.into_inner();
    assert!(compared >= 10 * traps.len(), "only {compared} results were compared");
}

#[test]
fn traps_have_names_of_their_own_and_reasons() {
    let mut seen = BTreeSet::new();
    for t in FAMILIES.iter().flat_map(|f| f.traps) {
        assert!(seen.insert(t.name), "two traps are called {}", t.name);
        assert!(t.why.len() >= 5, "{} says not what sets it apart", t.name);
    }
}
