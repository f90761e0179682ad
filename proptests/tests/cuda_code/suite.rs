//! ONNX's conformance suite as generated CUDA code, on the emulator: the cases of the folder that `MLC_CUDA_SUITE` says, which
//! `fuzz/onnx_suite.py` writes, but those that `fuzz/onnx_suite.toml` leaves out. `MLC_CUDA_CASE` is a part of the names of those that run.

use mlc_cuda::Cuda;
use mlc_onnx::read_onnx;
use mlc_proptests::emulated::Emulated;
use mlc_rewrite::Reader;
use mlc_rewrite::conformance::{Runner, Skipped, cases_in};
use mlc_rewrite::pipeline::Options;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the cases are.
const SUITE: &str = "MLC_CUDA_SUITE";
/// Cases that run side by side.
const THREADS: usize = 2;

/// What differs, or why the case is not computed.
fn outcome(folder: &Path) -> Result<Option<String>, String> {
    let emulated = Arc::new(Emulated::default());
    let options = Options { target: "cuda".into(), threads: 1, ..Options::default() };
    let backend = &Cuda::new(emulated.clone());
    let halves: Option<fn(_) -> _> = Some(mlc_cuda::tolerance);
    let runner = Runner { reader: Reader::new(), backend, options, as_read: false, halves };
    let raw = read_onnx(folder.join("model.onnx")).map_err(|e| e.to_string())?;
    let outcome = runner.difference(folder, &raw).map_err(|e| format!("{e:#}"));
    assert_eq!(emulated.left(), 0, "memory or modules are left on the device");
    outcome
}

#[test]
fn generated_code_passes_the_suite() {
    let Some(suite) = std::env::var_os(SUITE) else {
        return println!("skipped: {SUITE} names no folder of cases");
    };
    let mut folders = cases_in(Path::new(&suite)).expect("a folder");
    let only = std::env::var("MLC_CUDA_CASE").unwrap_or_default();
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/onnx_suite.toml");
    let skipped = Skipped::read(Path::new(table)).expect("a table");
    folders.retain(|f| name(f).contains(&only) && skipped.by_name(&name(f)).is_none());
    folders.sort();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = vec![];
        while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.push((name(folder), outcome(folder)));
        }
        found
    };
    let all: BTreeMap<String, _> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..THREADS).map(|_| s.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().expect("no panic")).collect()
    });
    let (mut wrong, mut refused) = (vec![], BTreeMap::new());
    for (name, outcome) in &all {
        match outcome {
            Ok(None) => {}
            Ok(Some(difference)) => wrong.push(format!("{name}: {difference}")),
            Err(why) => {
                let why = why.lines().next().unwrap_or_default();
                refused.entry(why).or_insert_with(Vec::new).push(name.as_str());
            }
        }
    }
    for (why, names) in &refused {
        println!("{} not computed: {why} ({}, …)", names.len(), names[0]);
    }
    let count = refused.values().map(Vec::len).sum::<usize>() + wrong.len();
    println!("{} cases computed as the suite says, of {}", all.len() - count, all.len());
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
