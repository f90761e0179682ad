//! Verbs that print information: `list`, `inspect`, `diff`, completions, manual pages; suggestions for misspelt names; colours, shapes, times.

use super::{TEXT, model, run};
use mlc_dsl::ir::Tensor;
use mlc_onnx::graphdiff::compare;
use mlc_onnx::*;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a command that succeeds; its standard output.
#[track_caller]
pub(super) fn told(folder: &Path, args: &[&str]) -> String {
    let (code, out, said) = run(folder, args, b"");
    assert_eq!(code, Some(0), "{args:?}: {said}");
    String::from_utf8(out).expect("text")
}

#[track_caller]
pub(super) fn json(folder: &Path, args: &[&str]) -> serde_json::Value {
    let text = told(folder, &[args, &["--json", "-"]].concat());
    serde_json::from_str(&text).expect("nothing but JSON")
}

/// A folder with a model, a text of open extents, and a model with an operator that nobody knows.
pub(super) fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("f.rules"), TEXT).expect("written");
    fs::write(at("open.rules"), "def f(x: f32[n, 3]) -> f32[n, 3]\n  = maximum(x, 0.0)\n")
        .expect("written");
    fs::write(at("bad.rules"), "rule wrong\n  x + x => x\n  given x: F[..s]\n  error exact\n")
        .expect("written");
    write_onnx(&model(1.0), at("m.onnx")).expect("written");
    let mut unknown = model(1.0);
    unknown.graph.nodes[26].op_type = "Reul".into();
    write_onnx(&unknown, at("unknown.onnx")).expect("written");
    let mut open = model(1.0);
    open.graph.nodes = vec![RawNode {
        op_type: "Relu".into(),
        inputs: vec!["x".into()],
        outputs: vec!["y".into()],
        ..RawNode::default()
    }];
    open.graph.initializers.clear();
    for v in open.graph.inputs.iter_mut().chain(&mut open.graph.outputs) {
        v.dims = Some(vec![RawDim::Symbol("batch".into()), RawDim::Known(4)]);
    }
    write_onnx(&open, at("open.onnx")).expect("written");
    dir
}

#[test]
fn names_that_are_nearly_right_are_proposed() {
    let dir = folder();
    for (args, proposed) in [
        (&["optmize"][..], "'optimize'"),
        (&["explain", "gleu"], "did you mean `gelu`"),
        (&["explain", "layer"], "did you mean `layernorm`"),
        (&["explain", "f.rules", "--target", "openvno"], "did you mean `openvino`"),
        (&["check", "f.rules", "--target", "standrd"], "did you mean `standard`"),
        (&["run", "f.rules", "--without", "add_zerp"], "did you mean `add_zero`"),
        (&["fuzz", "--cases", "1", "--without", "add_zerp"], "did you mean `add_zero`"),
        (&["list", "layers", "gleu"], "did you mean `gelu`"),
        (&["list", "lawz"], "'laws'"),
        (&["man", "optimise"], "did you mean `optimize`"),
        (&["run", "open.rules", "--shape", "m=2"], "`n`"),
        (&["run", "open.onnx", "--shape", "bach=2"], "did you mean `batch`"),
        (&["run", "unknown.onnx"], "did you mean `Relu`"),
    ] {
        let (code, _, said) = run(dir.path(), args, b"");
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains(proposed), "{args:?}: {said}\nlacks {proposed}");
    }
}

#[test]
fn a_missing_device_is_one_sentence_and_help() {
    let dir = folder();
    for verb in [
        &["run", "f.rules"][..],
        &["run", "f.rules", "--device", "1"],
        &["bench", "f.rules", "--kernels"],
        &["fuzz", "--cases", "1"],
        &["calibrate", "--store", "times.rows"],
        &["calibrate", "--store", "times.rows", "--show"],
    ] {
        // A driver without visible devices is as good as none.
        let out = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
            .args(verb)
            .args(["--backend", "cuda"])
            .env("CUDA_VISIBLE_DEVICES", "")
            .current_dir(dir.path())
            .output()
            .expect("ends");
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{verb:?}: {said}");
        assert!(out.stdout.is_empty());
        let message = if cfg!(feature = "cuda") {
            "no NVIDIA device can be used: "
        } else {
            "this build has no CUDA backend"
        };
        let lines: Vec<&str> = said.lines().filter(|l| !l.starts_with("note: ")).collect();
        let [error, help] = lines[..] else { panic!("{verb:?}: two lines:\n{said}") };
        assert!(error.strip_prefix("error: ").is_some_and(|e| e.starts_with(message)), "{said}");
        assert!(help.starts_with("help: ") && help.contains("--backend cpu"), "{said}");
    }
    assert!(!dir.path().join("times.rows").exists(), "nothing is stored");
    let (code, _, said) = run(dir.path(), &["run", "f.rules", "--device", "0"], b"");
    assert!(code == Some(2) && said.contains("add `--backend cuda`"), "{said}");
}

#[test]
fn lists_name_what_there_is() {
    let dir = folder();
    for (kind, name) in [
        ("operators", "matmul"),
        ("layers", "gelu"),
        ("laws", "add_zero"),
        ("targets", "onnxruntime"),
        ("targets", "cuda_h200"),
        ("onnx", "Conv"),
    ] {
        let list = json(dir.path(), &["list", kind]);
        let list = list["items"].as_array().expect("a list");
        assert!(list.iter().any(|e| e["name"] == name), "{kind} lacks {name}");
        assert!(list.is_sorted_by_key(|e| e["name"].to_string()), "{kind}");
    }
    let some = told(dir.path(), &["list", "layers", "gelu"]);
    let about = |l: &str| l.to_lowercase().contains("gelu");
    assert!(some.lines().count() >= 2 && some.lines().all(about), "{some}");
    // By what is said of them, over all its lines; each with its first sentence.
    let list = json(dir.path(), &["list", "laws", "adding zero"]);
    let list = list["items"].as_array().expect("a list");
    assert!(!list.is_empty());
    let sentences = json(dir.path(), &["list", "laws"]);
    for item in sentences["items"].as_array().expect("a list") {
        let doc = item["doc"].as_str().expect("a text");
        assert!(doc.ends_with(['.', ':', ')', '`']), "{item}");
    }
}

#[test]
fn a_model_is_inspected() {
    let dir = folder();
    let m = json(dir.path(), &["inspect", "m.onnx"]);
    assert_eq!(m["operators"], serde_json::json!({ "Add": 26, "Relu": 1 }));
    assert_eq!(m["inputs"][0]["shape"], serde_json::json!(["64", "256"]));
    assert_eq!(m["parameters"]["elements"], 26 * 64 * 256);
    assert_eq!(m["bytes"]["f32"], 26 * 64 * 256 * 4);
    assert_eq!(m["flops"], 27.0 * 64.0 * 256.0);
    let unknown = json(dir.path(), &["inspect", "unknown.onnx"]);
    assert_eq!(unknown["unknown"], serde_json::json!({ "Reul": 1 }));
    assert!(unknown["refused"].as_str().expect("a reason").contains("`Reul`"));
    let open = json(dir.path(), &["inspect", "open.onnx", "--shape", "batch=2"]);
    assert_eq!(open["outputs"][0]["shape"], serde_json::json!(["2", "4"]));
    let text = told(dir.path(), &["inspect", "open.rules"]);
    assert!(text.contains("x: f32[n, 3]") && text.contains("at n=32"), "{text}");
}

#[test]
fn shapes_are_those_asked_for() {
    let dir = folder();
    let shape = |args: &[&str]| json(dir.path(), args)["outputs"]["y"]["shape"].to_string();
    let run_it = |model, given| shape(&["run", model, "--shape", given, "--no-check", "-q"]);
    assert_eq!(run_it("open.rules", "n=5"), "[5,3]");
    assert_eq!(run_it("open.rules", "x=6,3"), "[6,3]");
    assert_eq!(run_it("open.onnx", "batch=7"), "[7,4]");
    assert_eq!(run_it("open.onnx", "x=2,9"), "[2,9]");
    told(
        dir.path(),
        &["optimize", "open.onnx", "-o", "fixed.onnx", "--shape", "batch=3", "--no-check", "-q"],
    );
    let fixed = read_onnx(dir.path().join("fixed.onnx")).expect("a model");
    for v in fixed.graph.inputs.iter().chain(&fixed.graph.outputs) {
        assert_eq!(v.dims, Some(vec![RawDim::Known(3), RawDim::Known(4)]));
    }
    for (args, reason) in [
        (["run", "open.onnx", "--shape", "x=2"], "has 2 axes, not 1"),
        (["run", "open.onnx", "--shape", "batch"], "write NAME=EXTENTS"),
        (["run", "open.onnx", "--shape", "batch=-1"], "`-1` is no extent"),
        (["run", "open.rules", "--shape", "x=2,4"], "does not fit"),
    ] {
        let (code, _, said) = run(dir.path(), &args, b"");
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains(reason), "{args:?}: {said}\nlacks {reason}");
    }
}

#[test]
fn symbols_are_bound() {
    let dir = folder();
    let bound = |model: &'static str, given| {
        let args = ["run", model, "--bind", given, "--no-check", "-q"];
        json(dir.path(), &args)["outputs"]["y"]["shape"].to_string()
    };
    assert_eq!(bound("open.rules", "n=5"), "[5,3]");
    assert_eq!(bound("open.onnx", "batch=7"), "[7,4]");
    let fixed = ["optimize", "open.onnx", "-o", "bound.onnx", "--bind", "batch=3"];
    told(dir.path(), &[&fixed[..], &["--no-check", "-q"]].concat());
    let fixed = read_onnx(dir.path().join("bound.onnx")).expect("a model");
    for v in fixed.graph.inputs.iter().chain(&fixed.graph.outputs) {
        assert_eq!(v.dims, Some(vec![RawDim::Known(3), RawDim::Known(4)]));
    }
    assert!(told(dir.path(), &["show", "open.onnx", "--bind", "batch=2"]).contains("f32[2, 4]"));
    for verb in ["bench", "inspect", "explain"] {
        told(dir.path(), &[verb, "open.onnx", "--bind", "batch=2"]);
    }
    for (args, reason) in [
        (&["run", "open.onnx", "--bind", "bach=2"][..], "help: the only symbol is `batch`"),
        (&["run", "open.onnx", "--bind", "x=2"], "symbol `x`: no input of the model has an axis"),
        (&["run", "open.rules", "--bind", "m=2"], "help: the only symbol is `n`"),
        (&["run", "bound.onnx", "--bind", "batch=3"], "the model has no symbols"),
        (&["run", "open.onnx", "--bind", "batch"], "write NAME=EXTENT"),
        (&["run", "open.onnx", "--bind", "batch=0"], "`0` is no positive extent"),
        (&["run", "open.onnx", "--bind", "batch=-1"], "`-1` is no positive extent"),
        (&["run", "open.onnx", "--bind", "batch=1", "--bind", "batch=2"], "`batch` is 1 and 2"),
        (&["run", "open.rules", "--bind", "n=1", "--bind", "n=2"], "`n` is 1 and 2"),
        (&["run", "open.onnx", "--bind", "batch=1", "--shape", "x=2,4"], "`batch` is 1 and 2"),
        (&["run", "open.rules", "--bind", "n=1", "--shape", "x=2,3"], "does not fit"),
    ] {
        let (code, _, said) = run(dir.path(), args, b"");
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains(reason), "{args:?}: {said}\nlacks {reason}");
    }
}

#[test]
fn times_have_percentiles() {
    let dir = folder();
    let args = ["bench", "open.rules", "--shape", "n=2", "--iterations", "7", "--warmup", "0"];
    let report = json(dir.path(), &[&args[..], &["--no-check"]].concat());
    assert_eq!(report["runs"], 7);
    for which in ["percentiles", "percentiles_unoptimized"] {
        let [a, b, c] = ["p50", "p90", "p99"].map(|p| report[which][p].as_f64().expect("seconds"));
        assert!(0.0 < a && a <= b && b <= c, "{which}");
    }
}

/// A Python without the runtime, none at all, and a model that no other runtime reads.
#[test]
fn a_runtime_that_is_missing_is_named() {
    let dir = folder();
    for (model, python, reason) in [
        ("m.onnx", "no-such-python", "help: set MLC_PYTHON to a Python with `onnxruntime`"),
        ("m.onnx", "/bin/false", "onnxruntime ended without an answer"),
        ("open.rules", "no-such-python", "another runtime reads ONNX files only"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"));
        let shape = if model == "open.rules" { &["--shape", "n=2"][..] } else { &[] };
        let done = command
            .args(["bench", model, "--iterations", "1", "--against", "onnxruntime", "--no-check"])
            .args(shape)
            .env("MLC_PYTHON", python)
            .current_dir(dir.path())
            .output()
            .expect("a binary");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{model} {python}: {said}");
        assert!(said.contains(reason), "{model} {python}: {said}\nlacks {reason}");
    }
}

#[test]
fn differences_are_told() {
    let dir = folder();
    let library = mlc_rewrite::stdlib::shipped();
    let compare = |a: &RawModel, b: &RawModel| compare(a, b, &library);
    let base = model(1.0);
    let mut renamed = base.clone();
    for n in &mut renamed.graph.nodes {
        for v in n.inputs.iter_mut().chain(&mut n.outputs).filter(|v| v.starts_with('h')) {
            v.insert(0, '_');
        }
    }
    assert!(compare(&base, &renamed).is_none());
    let mut other = base.clone();
    other.graph.nodes[26].op_type = "Abs".into();
    let d = compare(&base, &other);
    assert_eq!((d.same, d.operators.len(), d.interface.len()), (26, 2, 0));
    assert_eq!(d.operators["Relu"].removed, ["y"]);
    assert_eq!(d.operators["Abs"].added, ["y"]);
    let mut weight = base.clone();
    weight.graph.initializers.insert("w25".into(), Tensor::from_f32(vec![256], vec![0.0; 256]));
    let d = compare(&base, &weight);
    assert_eq!((d.same, d.kept, d.constants[0].count, d.constants[1].bytes), (25, 1, 1, 1024));
    assert_eq!(d.operators["Add"].changed.len(), 1);
    let mut attribute = base.clone();
    attribute.graph.nodes[3].attrs.insert("axis".into(), RawAttr::Int(1));
    attribute.graph.nodes[3].name = "other".into();
    let d = compare(&base, &attribute);
    assert_eq!((d.same, d.kept), (3, 23));
    assert_eq!(d.operators["Add"].changed, [("h3".into(), "attribute axis".into())]);
    let mut swapped = base.clone();
    swapped.graph.outputs.push(RawValueInfo { name: "h2".into(), ..RawValueInfo::default() });
    let mut other_output = swapped.clone();
    for (m, wanted) in [(&mut swapped, "h2"), (&mut other_output, "h3")] {
        m.graph.nodes[26].outputs = vec!["z".into()];
        m.graph.nodes.push(RawNode {
            op_type: "Identity".into(),
            inputs: vec![wanted.into()],
            outputs: vec!["y".into()],
            ..RawNode::default()
        });
    }
    assert!(!compare(&swapped, &other_output).is_none());
    let mut typed = base.clone();
    typed.graph.outputs[0].dims = None;
    typed.opset_imports.insert(String::new(), 18);
    assert_eq!(compare(&base, &typed).interface.len(), 2);
    write_onnx(&other, dir.path().join("other.onnx")).expect("written");
    let (code, out, _) = run(dir.path(), &["diff", "m.onnx", "other.onnx"], b"");
    let out = String::from_utf8_lossy(&out);
    assert_eq!(code, Some(1));
    assert!(out.contains("Relu  1 -> 0\n  - y") && out.contains("Abs  0 -> 1\n  + y"), "{out}");
    let same = told(dir.path(), &["diff", "m.onnx", "m.onnx"]);
    assert_eq!(same, "the graphs are the same: 27 nodes\n");
    let (code, out, said) = run(dir.path(), &["diff", "-q", "m.onnx", "other.onnx"], b"");
    assert_eq!((code, out.len(), said.as_str()), (Some(1), 0, ""));
}

#[test]
fn defaults_are_no_differences() {
    let library = mlc_rewrite::stdlib::shipped();
    let ints = |v: &[i64]| RawAttr::Ints(v.to_vec());
    for (op, opset, attribute, value, same) in [
        ("Conv", 13, "strides", ints(&[1, 1]), true),
        ("Conv", 13, "strides", ints(&[1, 2]), false),
        ("Conv", 13, "dilations", ints(&[1]), true),
        ("Conv", 13, "pads", ints(&[0, 0, 0, 0]), true),
        ("Conv", 13, "pads", ints(&[0, 0, 0, 1]), false),
        ("Conv", 13, "group", RawAttr::Int(1), true),
        ("Conv", 13, "group", RawAttr::Int(2), false),
        ("Conv", 13, "auto_pad", RawAttr::from("NOTSET"), true),
        ("Conv", 13, "auto_pad", RawAttr::from("SAME_UPPER"), false),
        ("Transpose", 13, "perm", ints(&[2, 1, 0]), true),
        ("Transpose", 13, "perm", ints(&[0, 2, 1]), false),
        ("Softmax", 13, "axis", RawAttr::Int(-1), true),
        ("Softmax", 13, "axis", RawAttr::Int(1), false),
        ("Softmax", 12, "axis", RawAttr::Int(1), true),
        ("Selu", 13, "gamma", RawAttr::Float(1.050_701), true),
        ("LeakyRelu", 13, "alpha", RawAttr::Float(0.02), false),
        ("Nobody", 13, "alpha", RawAttr::Float(0.02), false),
    ] {
        let one = |attrs: &[(&str, RawAttr)]| {
            let named = |name: &str| RawValueInfo { name: name.into(), ..RawValueInfo::default() };
            let attrs = attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
            let (op_type, inputs, outputs) = (op.into(), vec!["x".into()], vec!["y".into()]);
            let node = RawNode { op_type, inputs, outputs, attrs, ..RawNode::default() };
            let (inputs, outputs) = (vec![named("x")], vec![named("y")]);
            let graph = RawGraph { inputs, outputs, nodes: vec![node], ..RawGraph::default() };
            let opset_imports = [(String::new(), opset)].into();
            RawModel { ir_version: 8, opset_imports, graph, ..RawModel::default() }
        };
        let d = compare(&one(&[]), &one(&[(attribute, value.clone())]), &library);
        assert_eq!(d.is_none(), same, "{op} at {opset}: {attribute} {value:?}");
    }
}

#[test]
fn colours_are_where_they_are_wanted() {
    let dir = folder();
    for (args, variables, wanted) in [
        (&["--color", "always"][..], &[][..], true),
        (&["--color", "always"], &["NO_COLOR"], true),
        (&["--color", "never"], &["CLICOLOR_FORCE"], false),
        (&[], &["CLICOLOR_FORCE"], true),
        (&[], &["CLICOLOR_FORCE", "NO_COLOR"], false),
        (&[], &[], false),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"));
        command.args(["diff", "m.onnx", "unknown.onnx"]).args(args);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command.envs(variables.iter().map(|v| (*v, "1"))).current_dir(dir.path());
        let out = command.output().expect("runs");
        assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(out.stdout.contains(&0x1b), wanted, "{args:?} {variables:?}");
    }
    let (code, out, said) = run(dir.path(), &["check", "bad.rules", "-q", "--samples", "4"], b"");
    assert_eq!((code, out.len(), said.as_str()), (Some(1), 0, ""));
}

#[test]
fn reports_have_no_field_that_is_not_documented() {
    let dir = folder();
    fs::write(dir.path().join("e.json"), super::EGRAPH).expect("written");
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");
    let manual = fs::read_to_string(manual).expect("a manual");
    for args in [
        &["optimize", "open.onnx", "-o", "x.onnx"][..],
        &["run", "f.rules"],
        &["bench", "f.rules", "--iterations", "1", "--kernels"],
        &["explain", "f.rules"],
        &["explain", "gelu"],
        &["explain", "f.rules", "--node", "maximum#1"],
        &["explain", "f.rules", "--why-not-fused", "maximum#1", "maximum#1"],
        &["explain", "f.rules", "--would-gain", "approx"],
        &["explain", "f.rules", "--numerics"],
        &["explain", "f.rules", "--kernels"],
        &["check", "f.rules", "--samples", "1"],
        &["calibrate", "--time", "0", "--store", "times.rows"],
        &["fuzz", "--cases", "1"],
        &["extract", "e.json"],
        &["infer", "--ops", "neg", "--types", "i32", "--size", "3", "--compare"],
        &["inspect", "m.onnx"],
        &["diff", "m.onnx", "m.onnx"],
        &["book", "pages"],
        &["show", "f.rules"],
        &["show", "--cuda", "f.rules"],
    ] {
        let report = json(dir.path(), args);
        for field in report.as_object().expect("an object").keys() {
            let plain = field.strip_suffix("_unoptimized").unwrap_or(field);
            assert!(manual.contains(&format!("`{plain}`")), "{args:?}: {field}");
        }
    }
}

/// Sizes that no number of 64 bits counts are an error, and so are loops over so many elements.
#[test]
fn what_is_too_large_for_cuda_code_is_an_error() {
    let dir = folder();
    let value =
        "def model(x: f32[4294967296, 4294967296]) -> f32[4294967296, 4294967296]\n  = exp(x)\n";
    let (n, ones) = ("[1099511627776, 1099511627776]", "[1, 1]");
    let loops = format!(
        "def model(x: f32[1, 1, 4, 4]) -> f32[1, 1, 5, 5]\n  = sumpool(x, window={n}, stride={ones}, low={n}, high=[0, 0], dilation={ones})\n"
    );
    for (text, told) in
        [(value, "more elements than 2^59"), (&loops, "loops over more than 2^63 elements")]
    {
        fs::write(dir.path().join("large.rules"), text).expect("written");
        for options in [&["--no-optimize"][..], &[]] {
            let args = [&["show", "--cuda", "large.rules"][..], options].concat();
            let (code, out, said) = run(dir.path(), &args, b"");
            assert_eq!((code, out.len()), (Some(2), 0), "{said}");
            assert!(said.contains(told), "{said}");
        }
    }
}

/// Below the first line of a function stands what it came from.
#[test]
fn cuda_code_names_the_nodes_and_laws_that_it_came_from() {
    let dir = folder();
    let text = "def model(x: f32[64, 64], w: f32[64, 64]) -> f32[64, 64]
  let y = x @ w
  = y * 0.5 * (1.0 + erf(y / 1.4142135)) + 0.0
";
    fs::write(dir.path().join("spelled.rules"), text).expect("written");
    let optimized = told(dir.path(), &["show", "--cuda", "spelled.rules"]);
    let head: Vec<&str> = optimized.lines().take(3).collect();
    let expected = [
        "// Kernel `gemm` of matmul, gelu: f32[64, 64], a tile of a product for each block.",
        "// Of the model's matmul#1, mul#2.",
        "// By the laws add_zero, gelu.",
    ];
    assert_eq!(head, expected);
    let plain = told(dir.path(), &["show", "--cuda", "--no-optimize", "spelled.rules"]);
    assert!(!plain.contains("// By the laws"), "{plain}");
}

/// The document of the CUDA backend shows code that the command really prints.
#[test]
fn the_document_shows_the_code_that_is_printed() {
    let dir = folder();
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cuda.md");
    let document = fs::read_to_string(document).expect("a document");
    let blocks = |of: &str| -> Vec<String> {
        let begin = format!("```{of}\n");
        let parts = document.split(&begin).skip(1);
        parts.filter_map(|p| Some(p.split_once("```")?.0.to_string())).collect()
    };
    fs::write(dir.path().join("ffn.rules"), &blocks("rules")[0]).expect("written");
    let printed = told(dir.path(), &["show", "--cuda", "ffn.rules"]);
    let shown = blocks("cuda");
    assert_eq!(shown.len(), 2);
    for code in shown {
        assert!(printed.contains(&code), "{code}\nis not what is printed:\n{printed}");
    }
}

#[test]
fn names_in_files_give_no_orders_to_a_terminal() {
    let dir = tempfile::tempdir().expect("a folder");
    let wild = |name: &str| format!("{name}\x1b[31m\u{202e}\r");
    let named = |op: &str| {
        let mut m = model(1.0);
        m.producer_name = wild("p");
        m.graph.nodes = vec![
            RawNode { name: wild("r"), ..m.graph.nodes[26].clone() },
            RawNode { name: wild("s"), op_type: op.into(), ..m.graph.nodes[26].clone() },
        ];
        m.graph.initializers.clear();
        let values = [(0, "x", "h"), (1, "h", "y")];
        for (i, from, to) in values {
            m.graph.nodes[i].inputs = vec![wild(from)];
            m.graph.nodes[i].outputs = vec![wild(to)];
        }
        m.graph.inputs[0].name = wild("x");
        m.graph.inputs[0].dims = Some(vec![RawDim::Symbol(wild("n")), RawDim::Known(4)]);
        m.graph.outputs[0] = RawValueInfo { name: wild("y"), ..m.graph.inputs[0].clone() };
        m
    };
    write_onnx(&named("Tanh"), dir.path().join("a.onnx")).expect("written");
    write_onnx(&named(&wild("Own")), dir.path().join("b.onnx")).expect("written");
    for args in [
        &["inspect", "a.onnx"][..],
        &["inspect", "b.onnx"],
        &["diff", "a.onnx", "b.onnx"],
        &["explain", "a.onnx"],
        &["explain", "a.onnx", "--why-not", "gelu"],
        &["show", "a.onnx"],
        &["show", "--coverage", "b.onnx"],
        &["show", "--cuda", "a.onnx"],
        &["optimize", "b.onnx", "-o", "o.onnx", "-v"],
        &["run", "a.onnx", "--no-optimize"],
        &["run", "b.onnx"],
        &["bench", "a.onnx", "--kernels", "--iterations", "1"],
    ] {
        let (_, out, said) = run(dir.path(), args, b"");
        let out = String::from_utf8(out).expect("text");
        let obeyed = |c: char| c != '\n' && mlc_dsl::diagnostics::message_text::is_wild(c);
        assert!(!out.contains(obeyed) && !said.contains(obeyed), "{args:?}: {out:?} {said:?}");
    }
}

/// The texts of the examples whose last `def` is a model: it has no attribute without a value.
fn examples() -> Vec<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let texts = |folder: &Path| {
        let all = fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path());
        let mut all: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "rules")).collect();
        all.sort();
        all
    };
    let mut all = [texts(&root), texts(&root.join("layers"))].concat();
    all.retain(|p| p.file_stem().is_some_and(|n| n != "my_layer"));
    let runs = all
        .iter()
        .filter(|p| fs::read_to_string(p).expect("a text").lines().any(|l| l.starts_with("def ")));
    let told = runs.map(|p| {
        let mut args = vec![p.display().to_string()];
        if p.file_stem().is_some_and(|n| n == "my_layer_use") {
            args.extend(["--rules".into(), root.join("my_layer.rules").display().to_string()]);
        }
        args
    });
    told.collect()
}

#[test]
fn every_example_runs_on_extents_that_are_chosen_for_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let examples = examples();
    assert!(examples.len() > 20, "{examples:?}");
    for (i, text) in examples.iter().enumerate() {
        let of = |verb: &[&'static str]| {
            let text = text.iter().map(String::as_str);
            let args: Vec<&str> =
                verb[..1].iter().copied().chain(text).chain(verb[1..].iter().copied()).collect();
            let (code, _, said) = run(dir.path(), &args, b"");
            assert_eq!(code, Some(0), "{args:?}: {said}");
            assert!(!said.contains("is not checked"), "{args:?}: {said}");
        };
        of(&["run", "--no-optimize"]);
        // Extents are chosen before the verb: the other two take turns.
        match i % 2 {
            0 => of(&["bench", "--iterations", "1"]),
            _ => of(&["optimize", "-o", "out.onnx"]),
        }
    }
}

#[test]
fn extents_that_are_given_stay_and_others_follow_from_conditions() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        root.join(format!("examples/layers/{name}.rules")).display().to_string()
    };
    let shown = |name: &str, given: &str| told(dir.path(), &["show", &at(name), "--shape", given]);
    assert!(shown("mgu", "e=5").contains("uf: f32[5, 5]"), "{}", shown("mgu", "e=5"));
    let (code, _, said) =
        run(dir.path(), &["run", &at("mgu"), "--shape", "d=3", "--shape", "e=4"], b"");
    assert!(code == Some(2) && said.contains("|d| == |e|"), "{said}");
    let roots = "op roots(x: f32[n, k]) -> y: f32[n]\n  if |k| * |k| == 2 + |n| * 0\n  y[n] = sum(k) x[n, k]\n\n\
                 def f(x: f32[n, k]) -> f32[n]\n  = roots(x)\n";
    fs::write(dir.path().join("roots.rules"), roots).expect("written");
    let (code, _, said) = run(dir.path(), &["run", "roots.rules"], b"");
    assert!(
        code == Some(2) && said.contains("|k| * |k|") && said.contains("`--shape k=…`"),
        "{said}"
    );
}
