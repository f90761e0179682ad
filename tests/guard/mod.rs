//! Wrong laws that change values on some inputs: the guard turns each off and reports it, for every caller.

mod by_nodes;

use mlc_backends::Backend;
use mlc_backends::reference::run_values;
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_files::npz::{read_npz, write_npz};
use mlc_onnx::{ModelInfo, export, import, read_onnx, write_onnx};
use mlc_rewrite::model::rules_model;
use mlc_rewrite::pipeline::selfcheck;
use mlc_rewrite::pipeline::{Optimized, Options, optimize};
use mlc_rewrite::stdlib;
use mlc_verify::random_inputs::{self, Style};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The planted laws, and the inputs that show each to be wrong.
const CASES: [(&str, Style); 12] = [
    ("softmax", Style::Large),
    ("variance", Style::Offset),
    ("log_exp", Style::Large),
    ("quotient", Style::Zeros),
    ("transposition", Style::Ordinary),
    ("sign", Style::Ordinary),
    ("small_term", Style::Ordinary),
    ("negative", Style::Ordinary),
    ("large", Style::Large),
    ("zero", Style::Zeros),
    ("nan", Style::Ordinary),
    ("integer", Style::Integers),
];

/// A case, ready to run.
struct Case {
    name: &'static str,
    law: String,
    style: Style,
    rules: PathBuf,
    library: Arc<Library>,
    program: Program,
    /// The inputs that show the law to be wrong, and the reference interpreter's outputs.
    inputs: Vec<Tensor>,
    reference: Vec<Vec<f64>>,
}

fn case(name: &'static str, style: Style) -> Case {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/guard/{name}.rules"));
    let text = stdlib::read_text(&rules).expect("a text");
    let library = stdlib::sound(&[(name, &*text)], false).expect("sound");
    let program = rules_model::program(&library, "model").expect("a model");
    let symbols = random_inputs::symbols(&program, &library);
    let inputs = random_inputs::styled(&program, &library, style, 0, &symbols).expect("inputs");
    let reference =
        run_values(&program, &library, &inputs).expect("the reference interpreter runs it");
    let reference = reference.iter().map(|a| a.to_f64()).collect();
    let law = format!("planted_{name}");
    Case { name, law, style, rules, library, program, inputs, reference }
}

impl Case {
    /// Outputs have the reference interpreter's values.
    fn agrees(&self, outputs: &[Tensor], who: &str) {
        for (t, y) in self.reference.iter().zip(outputs) {
            let scale = t.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
            for (i, (&t, y)) in t.iter().zip(y.to_f64()).enumerate() {
                let same = t == y || t.is_nan() && y.is_nan();
                let near = (t - y).abs() <= 1e-3 * t.abs() + 1e-6 * scale + 1e-37;
                // Overflow of the working type is the model's own.
                let overflow = t.abs() > f64::from(f32::MAX) && !y.is_finite();
                assert!(same || near || overflow, "{}, {who}, element {i}: {y} for {t}", self.name);
            }
        }
    }

    /// A report names the law, the input set, and the error or the values.
    fn is_reported(&self, report: &Value, who: &str) {
        let off = report["laws_turned_off"].as_array().expect("a list");
        let found = off.iter().find(|l| l["law"] == self.law.as_str());
        let l = found.unwrap_or_else(|| panic!("{}, {who}: not turned off: {off:?}", self.name));
        assert_eq!(l["input_set"], self.style.name(), "{}, {who}: {l}", self.name);
        assert_eq!(l["output"], "y", "{}, {who}", self.name);
        assert_ne!(l["source"], l["result"], "{}, {who}", self.name);
        assert_eq!(
            l["reference"],
            l["reference"].as_str().expect("the reference interpreter ran"),
            "{}",
            self.name
        );
        let error = l["error"].as_f64();
        let is_kind = ["NaN", "inf"].iter().any(|k| {
            [&l["source"], &l["result"]].iter().any(|v| v.as_str().is_some_and(|v| v.contains(k)))
        });
        assert!(is_kind || error.is_some_and(|e| e > 1e-6), "{}, {who}: {l}", self.name);
        assert!(report["kept_as_read"].is_null(), "{}, {who}", self.name);
        assert!(report["self_check_error"].as_f64().is_some(), "{}, {who}", self.name);
    }

    /// Runs the tool; its report and what it says.
    fn tool(&self, dir: &Path, verb: &str, args: &[&str]) -> (Value, String, String) {
        let json = dir.join("report.json");
        // What this machine's kernels were timed at must not decide which laws fire.
        let done = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
            .env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-times"))
            .arg(verb)
            .args(args)
            .arg("--json")
            .arg(&json)
            .output()
            .expect("runs");
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let (out, err) = (text(&done.stdout), text(&done.stderr));
        assert!(done.status.success(), "{}, {verb}: {err}", self.name);
        let report = std::fs::read(json).expect("a report");
        (serde_json::from_slice(&report).expect("json"), out, err)
    }
}

fn options() -> Options {
    Options::default()
}

#[test]
fn the_library_turns_planted_laws_off() {
    for (name, style) in CASES {
        let c = case(name, style);
        let run = |o: &Optimized| {
            let plan = Cpu::new(1).compile(&o.plan, c.library.clone()).expect("compiles");
            plan.run(&c.inputs).expect("runs")
        };
        let o = optimize(c.program.clone(), &c.library, &options()).expect("optimises");
        c.is_reported(&serde_json::to_value(&o.report).expect("json"), "library");
        let guarded = run(&o);
        c.agrees(&guarded, "library");
        assert!(!o.report.proof.contains_key(&c.law), "{name}");
        // Without the guard the values change.
        let unguarded = Options { self_check: false, ..options() };
        let o = optimize(c.program.clone(), &c.library, &unguarded).expect("optimises");
        let differs = guarded.iter().zip(run(&o)).any(|(a, b)| a.bytes() != b.bytes());
        assert!(differs, "{name}: the law changes nothing");
    }
}

/// A text without its figures: which digits cancel depends on how wide the vectors of this machine are.
fn words(text: &str) -> String {
    let figure = |w: &str| w.trim_end_matches([',', ':']).parse().is_ok_and(f64::is_finite);
    let words = text.split_whitespace().map(|w| if figure(w) { "#" } else { w });
    itertools::join(words, " ")
}

#[test]
fn run_and_bench_turn_planted_laws_off_and_the_manual_has_what_they_say() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guard.md");
    let manual = words(&std::fs::read_to_string(manual).expect("the manual"));
    let dir = tempfile::tempdir().expect("a folder");
    let (given, out) = (dir.path().join("in.npz"), dir.path().join("out.npz"));
    let text = |p: &Path| p.display().to_string();
    for (name, style) in CASES {
        let c = case(name, style);
        let rules = text(&c.rules);
        let (report, _, told) = c.tool(dir.path(), "run", &[&rules]);
        c.is_reported(&report, "run");
        assert!(told.contains(&format!("turned off  law `{}`", c.law)), "{name}: {told}");
        let told: Vec<&str> = told.lines().filter(|l| !l.starts_with("note")).collect();
        let told = told.join("\n");
        assert!(manual.contains(&words(&told)), "{name}: docs/guard.md lacks\n{told}");
        assert!(report["seconds"]["self-check"].as_f64().is_some(), "{name}");
        let names = c.program.inputs.iter().map(|(n, _)| n.clone());
        let named: Vec<(String, Tensor)> = names.zip(c.inputs.clone()).collect();
        write_npz(&given, &named).expect("written");
        c.tool(dir.path(), "run", &[&rules, "--inputs", &text(&given), "--outputs", &text(&out)]);
        let outputs: Vec<Tensor> = read_npz(&out).expect("read").into_values().collect();
        c.agrees(&outputs, "run");
        let (report, _, _) = c.tool(dir.path(), "bench", &[&rules, "--iterations", "1"]);
        c.is_reported(&report, "bench");
    }
}

#[test]
fn optimize_turns_planted_laws_off() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, out) = (dir.path().join("model.onnx"), dir.path().join("out.onnx"));
    let text = |p: &Path| p.display().to_string();
    for (name, style) in CASES {
        let c = case(name, style);
        let info = ModelInfo { opset_imports: [(String::new(), 18)].into(), ..Default::default() };
        write_onnx(&export(&c.program, &c.library, &info, 18).expect("exports"), &model)
            .expect("written");
        let (rules, model, out) = (text(&c.rules), text(&model), text(&out));
        let args = [&model, "-o", &out, "--rules", &rules, "--target", "cpu"];
        let (report, told, _) = c.tool(dir.path(), "optimize", &args.map(|a| a as &str));
        c.is_reported(&report, "optimize");
        assert!(told.contains(&format!("turned off  law `{}`", c.law)), "{name}: {told}");
        let again = import(read_onnx(&out).expect("reads"), &c.library).expect("imports").program;
        let outputs = selfcheck::run(&again, &c.library, &c.inputs, 1).expect("runs");
        c.agrees(&outputs, "optimize");
    }
}

/// Sums that are nearly equal change places when they are regrouped: no law is to blame, and the result is used.
#[test]
fn places_of_what_is_nearly_equal_are_no_error() {
    let text = "def ranked(x: f32[40000, 8]) -> places: i64[1, 4000]\n  \
                = sort_places(reshape(sum(0.3 * x, axes=[1]), shape=[1, 40000]), count=4000)\n";
    let library = stdlib::sound(&[("ranked.rules", text)], false).expect("sound");
    let program = rules_model::program(&library, "ranked").expect("a model");
    let o = optimize(program, &library, &options()).expect("optimises");
    assert_eq!(o.report.kept_as_read, None);
    assert!(o.report.laws_turned_off.is_empty(), "{:?}", o.report.laws_turned_off);
    assert!(o.report.proof.contains_key("sum_scaled"), "{:?}", o.report.proof);
    let sets = &o.report.self_check.as_ref().expect("it is checked").sets;
    assert!(sets.iter().any(|s| s.void > 0), "some places change: {sets:?}");
}

#[test]
fn integers_are_drawn_that_select_what_is_there() {
    for (body, results) in [
        ("gather(x, i + j, axis=0)", 4),
        ("gather(x, i - j, axis=0)", 4),
        ("gather(x, i * j, axis=0)", 4),
        ("gather(x, 2 * i + 1, axis=0)", 4),
        ("gather(x, 6 - i, axis=0)", 4),
        ("gather(x, i - 3, axis=0)", 4),
        ("gather(x, -i + 5, axis=0)", 4),
        ("gather(x, i + gather(i, j, axis=0), axis=0)", 4),
        ("gather(x, concat(i, 3 * j, axis=0), axis=0)", 8),
        ("gather(x, cast(cast(i, to=f32) * 3, to=i64), axis=0)", 4),
        ("gather(x, maximum(i, j), axis=0)", 4),
        ("gather(x, select(i < j, i, j + 4), axis=0)", 4),
        ("gather(x, sum(reshape(i, shape=[2, 2]), axes=[0]), axis=0)", 2),
    ] {
        let text =
            format!("def model(x: f32[7], i: i64[4], j: i64[4]) -> f32[{results}]\n  = {body}\n");
        let library = stdlib::sound(&[("text", &*text)], false);
        let library = library.unwrap_or_else(|e| panic!("{body}: {e}"));
        let program = rules_model::program(&library, "model").expect("a model");
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let inputs = random_inputs::inputs(&program, &library, seed).expect("inputs");
            run_values(&program, &library, &inputs).unwrap_or_else(|e| panic!("{body}: {e}"));
            seen.extend(inputs[1].to_f64().into_iter().map(|v| v as i64));
        }
        assert!(seen.len() > 1, "{body}: {seen:?}");
    }
}

#[test]
fn numbers_do_not_overflow_because_laws_multiply_them() {
    for body in [
        "4096 * (64 * x) + x",
        "4096 * (x * 64 + x)",
        "(x * 4096) * 64",
        "x * 4096 - 64 * x * 4096",
    ] {
        let text = format!("def model(x: f16[4, 8]) -> f16[4, 8]\n  = {body}\n");
        let library = stdlib::sound(&[("text", &*text)], false);
        let library = library.unwrap_or_else(|e| panic!("{body}: {e}"));
        let program = rules_model::program(&library, "model").expect("a model");
        for seed in 0..4 {
            let o = optimize(program.clone(), &library, &Options { seed, ..options() });
            let report = serde_json::to_value(&o.expect("optimises").report).expect("json");
            let off = report["laws_turned_off"].as_array().expect("a list");
            assert!(off.is_empty(), "{body}: {off:?}");
        }
    }
}
