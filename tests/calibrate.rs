//! Times of kernels and their store, profiles as TOML, and plans chosen by measuring.

use mlc_dsl::library::Library;
use mlc_extract::Work;
use mlc_extract::cost::fit::{FEATURES, N};
use mlc_rewrite::calibrate::store::{Store, TimingRecord};
use mlc_rewrite::calibrate::timing::Times;
use mlc_rewrite::calibrate::{Calibration, fits, layers, machine, planned};
use mlc_rewrite::{Device, pipeline, profile};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

fn library() -> Arc<Library> {
    Arc::new(layers::library(&[]).expect("the shipped texts are sound"))
}

fn entry(kernel: &str, signature: &str, seconds: f64) -> TimingRecord {
    let times = Times { lower: seconds, median: seconds, upper: seconds, least: seconds, runs: 5 };
    let work = Work { flops: 1e9 * seconds, launches: 1.0, ..Work::default() };
    let (kernel, signature) = (kernel.to_string(), signature.to_string());
    TimingRecord { kernel, signature, work, warm: times, cold: Some(times) }
}

#[test]
fn what_is_stored_is_read_again_by_hardware() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new/times.rows");
    let all = [entry("gemm", "a", 1.0), entry("gemm", "b", 2.5), entry("pool", "a", 1e-6)];
    {
        let store = Store::create(&path).expect("a new store");
        for e in &all {
            assert!(!store.has("here", &e.kernel, &e.signature));
            store.add("here", e).expect("writes");
            assert!(store.has("here", &e.kernel, &e.signature));
        }
        store.add("here and there", &entry("gemm", "a", 9.0)).expect("writes");
    }
    let store = Store::open(&path).expect("the store is there");
    assert_eq!(store.entries("here").expect("reads"), all);
    assert_eq!(store.entries("here and there").expect("reads").len(), 1);
    assert_eq!(store.entries("elsewhere").expect("reads"), []);
}

#[track_caller]
fn refused(path: &Path, wanted: &[&str]) {
    let Err(e) = Store::open(path).and_then(|s| s.entries("here").map(|_| ())) else {
        panic!("{} is taken for a store", path.display());
    };
    let text = format!("{e:#}");
    for w in wanted.iter().chain(&["help: "]) {
        assert!(text.contains(w), "`{w}` is missing in: {text}");
    }
}

#[test]
fn damaged_foreign_and_missing_stores_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("times.rows");
    refused(&path, &["there are no times in", "times.rows", "calibrate"]);
    std::fs::write(&path, "no database").expect("writes");
    refused(&path, &["times.rows", "damaged", "--store"]);
    std::fs::remove_file(&path).expect("removes");
    Store::create(&path).expect("a store").add("here", &entry("gemm", "a", 1.0)).expect("writes");
    let mut bytes = std::fs::read(&path).expect("reads");
    let keep = bytes.len() / 3;
    bytes.truncate(keep);
    std::fs::write(&path, &bytes).expect("writes");
    refused(&path, &["times.rows", "damaged"]);
}

/// Whatever bit of a store changes, wherever it ends and whatever follows it, it is said to be damaged.
#[test]
fn no_damage_is_taken_for_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("times.rows");
    let store = Store::create(&path).expect("a store");
    for kernel in ["gemm", "pool"] {
        store.add("here", &entry(kernel, "a", 1.0)).expect("writes");
    }
    let whole = std::fs::read(&path).expect("reads");
    let damaged = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("writes");
        refused(&path, &["times.rows", "damaged"]);
        assert!(Store::create(&path).is_err(), "nothing is added to what is damaged");
    };
    for at in 0..whole.len() {
        let mut other = whole.clone();
        other[at] ^= 1 << (at % 8);
        damaged(&other);
    }
    for end in (0..whole.len()).step_by(7) {
        damaged(&whole[..end]);
    }
    damaged(&[whole.as_slice(), b"\n"].concat());
    damaged(&[0xff; 5000]);
    // A store of the database that was used before.
    damaged(b"redb\x1a\x0a\xa9\x0d\x0a");
}

#[test]
fn several_may_read_and_write_one_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("times.rows");
    let stores = [(); 2].map(|()| Store::create(&path).expect("a store"));
    std::thread::scope(|s| {
        for (i, store) in stores.iter().enumerate() {
            s.spawn(move || {
                for k in 0..10 {
                    let entry = entry("gemm", &format!("{i} {k}"), 1.0);
                    store.add("here", &entry).expect("writes");
                }
            });
        }
    });
    let read = Store::open(&path).expect("opens");
    assert_eq!(read.entries("here").expect("reads").len(), 20);
    assert!(read.add("here", &entry("gemm", "c", 1.0)).is_err(), "it was opened for reading");
    std::fs::remove_file(&path).expect("removes");
    stores[0].add("here", &entry("gemm", "d", 1.0)).expect("begins another");
    assert_eq!(Store::open(&path).expect("opens").entries("here").expect("reads").len(), 1);
}

#[test]
fn the_plan_covers_every_kernel_and_is_the_same_every_time() {
    let library = library();
    let cpu = pipeline::target(&library, "cpu").expect("the target");
    let names = |seed| -> Vec<(String, String)> {
        planned(&library, &cpu, seed).into_iter().map(|p| (p.kernel, p.signature)).collect()
    };
    let all = names(0);
    assert_eq!(all, names(0));
    assert_ne!(all, names(1));
    let kernels = cpu.kernels.iter().map(|k| k.name.as_str()).chain(["pointwise", "view"]);
    for k in kernels {
        let count = all.iter().filter(|(name, _)| name == k).count();
        assert!(count >= 8, "{k} has {count} programs");
    }
    let firsts: std::collections::BTreeSet<&str> =
        all.iter().take(60).map(|(k, _)| k.as_str()).collect();
    assert!(firsts.len() >= 10, "a short budget covers only {firsts:?}");
}

#[test]
fn a_calibration_goes_on_where_it_was_stopped() {
    let library = library();
    let cpu = pipeline::target(&library, "cpu").expect("the target");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("times.rows");
    let device = Device::cpu().threads(1);
    let run = |most: usize| {
        let store = Store::create(&path).expect("a store");
        let budget = Duration::MAX;
        Calibration { library: &library, target: &cpu, device: &device, budget, most, seed: 0 }
            .run(&store, &|_, _| {})
            .expect("times kernels")
    };
    let first = run(3);
    assert!(first.timed == 3 && first.left > 0, "{first:?}");
    let second = run(2);
    assert_eq!((second.known, second.timed), (3, 2));
    let nothing = run(0);
    assert_eq!((nothing.timed, nothing.known), (0, 5));
    let entries = Store::open(&path).expect("opens").entries(&machine::key(1)).expect("reads");
    assert_eq!(entries.len(), nothing.known);
    assert!(entries.iter().all(|e| e.warm.least > 0.0 && e.warm.least <= e.warm.upper));
}

const PROFILE: &str = r#"
name = "server"
launch = 1e-6
[operations.any]
quick = 2e11
slow = 1e10
[operations.f16]
quick = 4e11
slow = 1e10
[[memory]]
bytes = 2e6
bandwidth = 2e11
[[memory]]
bandwidth = 2e10
"#;

#[test]
fn a_profile_is_read_with_all_its_figures() {
    let costing = profile::parse(PROFILE, "server.toml").expect("a sound profile");
    let p = costing.profile.expect("figures");
    assert_eq!((p.name.as_str(), p.launch_s, p.rate.flops_per_s), ("server", 1e-6, 2e11));
    assert_eq!(p.dtypes.len(), 1);
    assert_eq!(p.levels.iter().map(|l| l.bytes_per_s).collect::<Vec<_>>(), [2e11, 2e10]);
    assert!(costing.fits.is_none());
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/server.toml");
    assert!(profile::read(&example).is_ok());
}

#[test]
fn what_is_wrong_with_a_profile_is_said() {
    for (from, to, wanted) in [
        ("quick = 2e11", "quick = -1", "`operations.any.quick` is -1"),
        ("quick = 2e11", "quick = nan", "not a positive number"),
        ("quick = 2e11", "fast = 2e11", "unknown field `fast`"),
        ("[operations.any]", "[operations.i64]", "`operations.any` is missing"),
        ("operations.f16", "operations.f17", "`operations.f17`"),
        ("bytes = 2e6", "", "level 1 of `memory` has no `bytes`"),
        ("bandwidth = 2e10", "bandwidth = 2e10\nbytes = 1e9", "the last level"),
        ("launch = 1e-6", "launch = inf", "`launch` is inf"),
        ("launch = 1e-6", "launch = 1e-6\nfetched = 0", "`fetched` is 0"),
        ("launch = 1e-6", "launch = \"soon\"", "line 3"),
        ("name = \"server\"", "name = ", "line 2"),
    ] {
        assert!(PROFILE.contains(from), "{from}");
        let Err(e) = profile::parse(&PROFILE.replacen(from, to, 1), "server.toml") else {
            panic!("`{to}` is taken");
        };
        let text = format!("{e:#}");
        for w in ["server.toml", wanted, "help: "] {
            assert!(text.contains(w), "`{w}` is missing for `{to}`: {text}");
        }
    }
}

#[test]
fn fits_are_the_same_after_a_profile() {
    let entries: Vec<TimingRecord> =
        (1..40).map(|i| entry("gemm", &i.to_string(), 1e-5 * f64::from(i * i))).collect();
    let library = library();
    let cpu = pipeline::target(&library, "cpu").expect("the target");
    let found = fits(&entries, machine::caches(2));
    assert_eq!(found.kernels.len(), 1);
    let text = profile::written(&found, &cpu, "mine").expect("TOML");
    let again = profile::parse(&text, "mine.toml").expect("what was written is sound");
    assert_eq!(again.fits, Some(found));
}

fn tool(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlc-rewrite")).args(args).output().expect("the tool runs")
}

fn model() -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("examples/squeezenet1_1.onnx")
        .display()
        .to_string()
}

#[test]
fn bad_figures_end_with_two_and_a_help() {
    let folder = tempfile::tempdir().expect("a folder");
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, PROFILE.replace("2e11", "0")).expect("writes");
    let (bad, none) = (bad.display().to_string(), folder.path().join("none").display().to_string());
    let model = model();
    for (args, wanted) in [
        (vec!["explain", &model, "--profile", &bad], "not a positive number"),
        (vec!["explain", &model, "--store", &none, "--target", "cpu"], "there are no times in"),
        (vec!["explain", &model, "--store", &none, "--target", "standard"], "--target cpu"),
        (vec!["calibrate", "--show", "--store", &none], "there are no times in"),
        (vec!["calibrate", "--time=-1"], "--time"),
    ] {
        let out = tool(&args);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(wanted), "{args:?}: {text}");
    }
}

#[test]
fn a_profile_changes_estimates_and_measuring_keeps_the_fastest() {
    let folder = tempfile::tempdir().expect("a folder");
    let slow = folder.path().join("slow.toml");
    let text = PROFILE.replace("2e11", "2e5").replace("2e10", "2e4");
    std::fs::write(&slow, text).expect("writes");
    let onnx = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/squeezenet1_1.onnx");
    let onnx = onnx.display().to_string();
    let report = |more: &[&str]| -> serde_json::Value {
        let json = folder.path().join("report.json").display().to_string();
        let out = folder.path().join("out.onnx").display().to_string();
        let mut args = vec!["optimize", &onnx, "-o", &out, "--json", &json];
        args.extend(more);
        let done = tool(&args);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON")
    };
    let plain = report(&[]);
    let other = report(&["--profile", &slow.display().to_string(), "--measure", "3"]);
    let cost = |r: &serde_json::Value| r["cost_before"].as_f64().expect("a cost");
    assert!(cost(&other) > 1e3 * cost(&plain), "{} and {}", cost(&other), cost(&plain));
    assert_eq!(plain["cost_model"], "the figures of target `standard`");
    assert_eq!(other["cost_model"], "profile `server`");
    assert_eq!(plain["measured"], serde_json::json!([]));
    let measured = other["measured"].as_array().expect("a list");
    let least = |m: &serde_json::Value| m["least"].as_f64().expect("seconds");
    let read = measured.iter().find(|m| m["point"] == "as read").expect("the plan as read");
    assert!(measured.len() >= 2, "{measured:?}");
    assert!(least(&measured[0]) <= least(read), "{measured:?}");
}

/// A product that is cheaper from the right: the optimised plan is another than the plan as read.
const CHAIN: &str = "//! Three factors, the last of them a column.

/// Their product, from the left.
def model(x: f32[256, 256], w: f32[256, 256], v: f32[256, 1]) -> f32[256, 1]
  = (x @ w) @ v
";

#[test]
fn where_kernels_were_timed_the_clock_chooses_and_its_verdict_is_remembered() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("chain.rules"), CHAIN).expect("writes");
    let report = |verb: &str, more: &[&str]| -> serde_json::Value {
        let (model, json) = (at("chain.rules"), at("report.json"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"));
        command.env("XDG_DATA_HOME", folder.path());
        command.args([verb, "--threads", "1", "--json", &json]).args(more);
        if verb == "run" {
            command.arg(&model);
        }
        let done = command.output().expect("the tool runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON")
    };
    assert_eq!(report("run", &[])["measured"], serde_json::json!([]), "nothing was timed yet");
    report("calibrate", &["--time", "1"]);
    let first = report("run", &[])["measured"].clone();
    let points: Vec<&str> =
        first.as_array().expect("a list").iter().filter_map(|m| m["point"].as_str()).collect();
    assert!(points == ["as read", "optimised"] || points == ["optimised", "as read"], "{first}");
    assert_eq!(report("run", &[])["measured"], first, "the verdict is remembered");
    assert_eq!(report("run", &["--no-calibration"])["measured"], serde_json::json!([]));
}

#[test]
fn plans_that_differ_by_less_than_costs_are_off_stay_as_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("chain.rules");
    std::fs::write(&text, CHAIN).expect("writes");
    let model = mlc_rewrite::Model::read(&text).expect("a sound text");
    let entries: Vec<TimingRecord> =
        (1..40).map(|i| entry("gemm", &i.to_string(), 1e-6 * f64::from(i))).collect();
    let products = FEATURES.iter().position(|f| *f == "products").expect("a feature");
    let kept = |error: f64| {
        let mut found = fits(&entries, machine::caches(1));
        let fit = found.kernels.get_mut("gemm").expect("fitted");
        // A nanosecond for each operation.
        fit.coefficients[products] = 1e-9;
        (fit.error, fit.most, fit.classes) = (error, [f64::MAX; N], Default::default());
        let costing =
            mlc_rewrite::pipeline::costing::Costing { fits: Some(found), ..Default::default() };
        let options = options(costing);
        let done = pipeline::optimize(model.program().clone(), model.library(), &options);
        let done = done.expect("optimises");
        done.report.cost_after == done.report.cost_before
    };
    assert!(!kept(0.0), "the estimate is trusted");
    assert!(kept(10.0), "the estimate says nothing");
}

fn options(costing: mlc_rewrite::pipeline::costing::Costing) -> pipeline::Options {
    pipeline::Options {
        fp: pipeline::Fp::Reorder,
        solver: Default::default(),
        self_check: false,
        costing,
        ..pipeline::Options::default()
    }
}
