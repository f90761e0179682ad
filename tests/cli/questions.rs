//! Questions to `explain`: `--node`, `--why-not-fused`, `--numerics`, `--would-gain`, `--kernels`. What `--why-not-fused` answers is shown
//! in `docs/why-not-fused.md`, and held there.

use super::run;
use super::verbs::{json, told};
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::*;
use mlc_rewrite::{Model, Optimizer};
use std::path::Path;
use tempfile::TempDir;

/// A model with nodes that reading removes: `same`, `folded`, `dead`, `shape`.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let value = |name: &str| RawValueInfo {
        name: name.into(),
        dtype: Some(DType::F32),
        dims: Some(vec![RawDim::Known(4), RawDim::Known(8)]),
        ..RawValueInfo::default()
    };
    let node = |op: &str, inputs: &[&str], out: &str| RawNode {
        op_type: op.into(),
        name: out.into(),
        inputs: inputs.iter().map(|i| i.to_string()).collect(),
        outputs: vec![format!("{out}_value")],
        ..RawNode::default()
    };
    let nodes = vec![
        node("Identity", &["x"], "same"),
        node("Relu", &["same_value"], "relu"),
        node("Add", &["a", "b"], "folded"),
        node("Mul", &["relu_value", "folded_value"], "scaled"),
        node("Neg", &["relu_value"], "dead"),
        node("Shape", &["x"], "shape"),
        node("Reshape", &["scaled_value", "shape_value"], "shaped"),
        node("Softmax", &["shaped_value"], "soft"),
    ];
    let number = |n: f32| Tensor::from_f32(vec![8], (0..8).map(|k| n + k as f32).collect());
    let initializers = [("a".to_string(), number(0.5)), ("b".to_string(), number(-3.25))];
    let (inputs, outputs) = (vec![value("x")], vec![value("soft_value")]);
    let initializers = initializers.into_iter().collect();
    let graph = RawGraph { inputs, outputs, nodes, initializers, ..RawGraph::default() };
    let opset_imports = [(String::new(), 17)].into();
    let raw = RawModel { ir_version: 8, opset_imports, graph, ..RawModel::default() };
    write_onnx(&raw, dir.path().join("m.onnx")).expect("written");
    dir
}

/// A model of `docs/why-not-fused.md`.
fn example(name: &str) -> String {
    format!("{}/examples/fusions/{name}.onnx", env!("CARGO_MANIFEST_DIR"))
}

#[track_caller]
fn refused(folder: &Path, args: &[&str], said: &str) {
    let (code, out, error) = run(folder, args, b"");
    assert_eq!((code, out.len()), (Some(2), 0), "{error}");
    assert!(error.contains(said), "{error}");
}

#[test]
fn a_node_that_reading_removed_is_told_with_the_step_that_did() {
    let dir = folder();
    let read = Model::read(dir.path().join("m.onnx")).expect("read");
    let optimized = Optimizer::new().target("standard").optimize(&read).expect("optimised");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (node, step, is) in [
        ("same", "(what changes nothing is left out)", "the input `x` itself"),
        ("folded", "", "`folded`: its value is known before a run"),
        ("dead", "(what no output needs is not read)", "no part of what the outputs"),
        ("shape", "(shapes are computed when the file is read)", "extents"),
        ("shaped", "(what changes nothing is left out)", "what `scaled` computes"),
        ("x", "", "`x` is an input of the model, read by `same`, `shape`"),
        ("a", "", "`a` is a constant of the file, f32[8], read by `folded`"),
    ] {
        let text = told(dir.path(), &["explain", "m.onnx", "--node", node]).replace("\n    ", " ");
        assert!(text.contains(step) && text.contains(is), "{node}: {text}");
        // The library says the same, also of two nodes.
        let found = optimized.node(node).expect("an answer").human(false);
        assert_eq!(words(&found), words(&text), "{node}");
        let text = told(dir.path(), &["explain", "m.onnx", "--why-not-fused", node, "soft"]);
        let found = optimized.why_not_fused(node, "soft").expect("an answer").human();
        assert_eq!(words(&found), words(&text), "{node}");
    }
    let unknown = optimized.node("softt").expect_err("there is none").to_string();
    assert!(unknown.contains("the model has no node `softt`"), "{unknown}");
    refused(dir.path(), &["explain", "m.onnx", "--node", "softt"], "did you mean `soft`");
    refused(dir.path(), &["explain", "m.onnx", "--node", "dead_valu"], "`dead_value`");
}

#[test]
fn a_node_is_told_with_its_neighbours_and_what_became_of_it() {
    let dir = folder();
    let text = told(dir.path(), &["explain", "m.onnx", "--target", "cpu", "--node", "scaled"]);
    for part in
        ["`scaled`: a kernel of the result", "reads    folded, relu", "read by  soft", "cost "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let value =
        told(dir.path(), &["explain", "m.onnx", "--target", "cpu", "--node", "scaled_value"]);
    assert_eq!(value, format!("`scaled_value` is a result of `scaled`\n{text}"));
    let model = example("conv_bn_leaky");
    let report = json(dir.path(), &["explain", &model, "--target", "cpu", "--node", "conv"]);
    assert_eq!((&report["state"], &report["readers"][0]), (&"gone".into(), &"norm".into()));
    let laws = report["laws"].as_array().expect("a list");
    assert!(laws.iter().any(|l| l["law"] == "batchnorm_conv"), "{report}");
    assert_eq!(report["after"].as_array().map(Vec::len), Some(1), "{report}");
}

#[test]
fn two_nodes_are_asked_about_in_either_order() {
    let dir = folder();
    let model = example("linear_norm_relu");
    let ask =
        |a, b| json(dir.path(), &["explain", &model, "--target", "cpu", "--why-not-fused", a, b]);
    let report = ask("linear", "relu");
    assert_eq!((&report["fused"], &report["nodes"][0]), (&false.into(), &"linear".into()));
    assert!(report["reasons"][0].as_str().is_some_and(|r| r.contains("`norm`")), "{report}");
    assert_eq!(ask("relu", "linear"), report);
    assert_eq!(ask("relu", "relu")["fused"], true);
    let named = ["explain", &model, "--why-not-fused", "linear", "rely"];
    refused(dir.path(), &named, "did you mean `relu`");
}

#[test]
fn another_plan_is_compared_with_this_one() {
    let dir = folder();
    let model = example("conv_bn_leaky");
    let gain = |what: &str| {
        json(dir.path(), &["explain", &model, "--target", "cpu", "--would-gain", what])
    };
    let without = gain("batchnorm_conv");
    assert_eq!(without["tried"], "without `batchnorm_conv`");
    assert!(without["then"]["seconds"].as_f64() >= without["now"]["seconds"].as_f64());
    assert!(without["lost_laws"].as_array().is_some_and(|l| !l.is_empty()), "{without}");
    assert_eq!(gain("approx")["tried"], "--fp approx");
    let memory = gain("memory");
    assert!(memory["then"]["peak_bytes"].as_u64() <= memory["now"]["peak_bytes"].as_u64());
    let text = told(dir.path(), &["explain", &model, "--target", "cpu", "--would-gain", "exact"]);
    for part in ["as planned", "estimated time", "what would change"] {
        assert!(text.contains(part), "{text}");
    }
    let ask = |what| ["explain", &model, "--target", "cpu", "--would-gain", what].map(String::from);
    for (what, said) in [
        ("reorder", "is how the model is planned already"),
        ("aprox", "did you mean `approx`"),
        ("batchnorm_cov", "did you mean `batchnorm_conv`"),
    ] {
        let args = ask(what);
        refused(dir.path(), &args.each_ref().map(String::as_str), said);
    }
}

#[test]
fn numbers_are_measured_step_by_step() {
    let dir = folder();
    let model = example("conv_bn_leaky");
    let args = ["explain", &model, "--target", "cpu", "--numerics"];
    let report = json(dir.path(), &args);
    assert_eq!(report, json(dir.path(), &args), "deterministic");
    let law = |name: &str| {
        let laws = report["laws"].as_array().expect("a list");
        laws.iter().find(|l| l["law"] == name).cloned().expect("a law of the proof")
    };
    let folded = law("batchnorm_conv");
    assert_eq!((&folded["class"], &folded["exact"]), (&"reorder".into(), &false.into()));
    let change = folded["change"].as_f64().expect("measured");
    assert!(change > 0.0 && change < 100.0, "{folded}");
    // What the step changes is the value of the node before an operator that does not amplify it.
    assert!(folded["moves"].as_f64().is_some_and(|m| m > 0.0 && m <= 2.0 * change), "{folded}");
    assert_eq!(law("(constant folding)")["change"], 0.0);
    assert_eq!(report["most"]["law"], "batchnorm_conv");
    assert_eq!(report["amplified"][0]["input"], "x");
    assert!(report["amplified"][0]["ulps"].as_f64().is_some_and(|u| u > 0.1 && u < 1e3));
    let text = told(dir.path(), &args);
    for part in
        ["moves result", "one ulp of every element of `x`", "against f64", "changes no bits"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn kernels_have_names_times_and_shares() {
    let dir = folder();
    let model = example("linear_norm_relu");
    let args = ["explain", &model, "--target", "cpu", "--kernels"];
    let report = json(dir.path(), &args);
    let kernels = report["kernels"].as_array().expect("a list");
    let shares: f64 = kernels.iter().filter_map(|k| k["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-9 && kernels.len() == 3, "{report}");
    assert!(kernels.iter().any(|k| k["nodes"][0] == "linear" && k["measured"].is_null()));
    let text = told(dir.path(), &args);
    assert!(text.contains("linear; limited by"), "{text}");
    let report = json(dir.path(), &[&args[..], &["--measure", "1"]].concat());
    assert_eq!(report["is_measured"], true);
    assert!(report["kernels"][0]["measured"].as_f64() > Some(0.0), "{report}");
    let elsewhere = told(dir.path(), &["explain", &model, "--kernels", "--measure", "1"]);
    assert!(elsewhere.contains("does not run here"), "{elsewhere}");
}

#[test]
fn one_question_is_asked_at_a_time_and_lines_are_wrapped() {
    let dir = folder();
    refused(dir.path(), &["explain", "m.onnx", "--numerics", "--kernels"], "cannot be used with");
    refused(
        dir.path(),
        &["explain", "m.onnx", "--numerics", "--why-not", "gelu"],
        "cannot be used with",
    );
    let model = example("two_norms");
    for question in [&["--all"][..], &["--node", "conv2"], &["--why-not-fused", "conv1", "norm2"]] {
        let args = [&["explain", &model, "--target", "cpu"], question].concat();
        for line in told(dir.path(), &args).lines() {
            let is_word = !line.trim().contains(' ');
            assert!(line.chars().count() <= 100 || is_word, "{line}");
        }
    }
}
