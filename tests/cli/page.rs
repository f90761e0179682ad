//! `explain --html`: the page stands alone, holds no weights, and is the same for the same model. `scripts/html-check` opens pages in
//! a browser.

use super::{model, run};
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::*;
use std::fs;
use std::path::Path;

/// What ends a script, and what begins an element.
const HOSTILE: &str = "</script><b onclick=alert(1)>&\u{202e}{{data}}";

/// A value that is in the weights alone.
const WEIGHT: f32 = 0.271_828_17;

/// Layers that are alike, of which the names are none of a page's own.
fn network() -> RawModel {
    let value = |name: &str| RawValueInfo {
        name: name.into(),
        dtype: Some(DType::F32),
        dims: Some(vec![RawDim::Known(4), RawDim::Known(8)]),
        ..RawValueInfo::default()
    };
    let mut raw = model(1.0);
    let graph = &mut raw.graph;
    (graph.nodes, graph.inputs, graph.outputs) = (vec![], vec![value("x")], vec![value("y")]);
    graph.initializers.clear();
    let mut last = "x".to_string();
    let mut push = |op: &str, inputs: &[&str], out: &str| {
        graph.nodes.push(RawNode {
            op_type: op.into(),
            name: format!("{HOSTILE}{out}"),
            inputs: inputs.iter().map(|i| i.to_string()).collect(),
            outputs: vec![out.into()],
            ..RawNode::default()
        });
    };
    for i in 0..8 {
        let names = ["w", "b", "m", "a", "r"].map(|n| format!("{n}{i}"));
        let [w, b, m, a, r] = &names;
        push("MatMul", &[&last, w], m);
        push("Add", &[m, b], a);
        push("Relu", &[a], r);
        last = r.clone();
    }
    push("Identity", &[&last], "y");
    for i in 0..8 {
        // Of both signs: of nonnegative weights layer upon layer would be one.
        let number = |k: usize| (WEIGHT + k as f32) * if k.is_multiple_of(2) { 1.0 } else { -1.0 };
        let numbers = |n: usize| (0..n).map(|k| number(i * n + k)).collect();
        let (w, b) =
            (Tensor::from_f32(vec![8, 8], numbers(64)), Tensor::from_f32(vec![8], numbers(8)));
        graph.initializers.extend([(format!("w{i}"), w), (format!("b{i}"), b)]);
    }
    raw
}

fn page(folder: &Path) -> String {
    let (code, _, said) = run(folder, &["explain", "m.onnx", "--html", "r.html"], b"");
    assert_eq!(code, Some(0), "{said}");
    fs::read_to_string(folder.join("r.html")).expect("written")
}

/// The data of a page.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) =
        page.split_once("<script id=\"data\" type=\"application/json\">").expect("data");
    let (data, _) = rest.split_once("</script>").expect("it ends");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn a_page_stands_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    write_onnx(&network(), dir.path().join("m.onnx")).expect("written");
    let written = page(dir.path());
    assert_eq!(written, page(dir.path()), "deterministic");
    assert!(written.len() < 400_000, "{} bytes", written.len());
    // The one address is the name of a namespace.
    let loads = ["https://", "src=", "href=", "url(", "@import", "fetch(", "XMLHttpRequest"];
    assert!(loads.iter().all(|l| !written.contains(l)));
    assert_eq!(written.matches("http://").count(), 1);
    assert!(!written.contains("0.2718") && !written.contains("2.2718"), "no weights");
    // No name leaves the data.
    assert_eq!(written.matches("</script>").count(), 2);
    assert!(!written.contains("<b onclick"));
    assert_eq!(data(&written)["model"]["items"][1]["name"], format!("{HOSTILE}m0"));
}

#[test]
fn a_page_says_what_became_of_every_node() {
    let dir = tempfile::tempdir().expect("a folder");
    write_onnx(&network(), dir.path().join("m.onnx")).expect("written");
    let data = data(&page(dir.path()));
    let items = |side: &str| data[side]["items"].as_array().expect("a list").clone();
    let (model, planned) = (items("model"), items("planned"));
    // An input, the nodes that are read, an output; `Identity` is not read.
    assert_eq!(model.len(), 1 + 24 + 1);
    assert_eq!(data["left_out"].as_array().map(Vec::len), Some(1));
    assert_eq!(data["left_out"][0]["op"], "Identity");
    for item in &model[1..25] {
        let kernels = item["kernels"].as_array().expect("a list");
        assert_eq!(item["state"] == "kept", !kernels.is_empty(), "{item}");
        for k in kernels {
            let kernel = &planned[k.as_u64().expect("a number") as usize];
            assert!(kernel["nodes"].as_array().expect("a list").contains(&item["name"]));
        }
    }
    for side in ["model", "planned"] {
        let drawn = &data[side]["drawn"];
        assert_eq!(drawn["repeats"].as_array().map(Vec::len), Some(1), "{side}");
        let boxes = |view: &str| drawn[view]["boxes"].as_array().expect("a list").len();
        assert!(boxes("folded") < boxes("open"));
        assert_eq!(boxes("open"), data[side]["items"].as_array().expect("a list").len());
    }
    let laws = data["laws"].as_array().expect("a list");
    assert!(laws.iter().any(|l| l["text"].as_str().is_some_and(|t| t.contains("matmul"))));
    assert!(data["drawings"].as_array().is_some_and(|d| !d.is_empty()));
    assert!(data["searches"][0]["rounds"].as_array().is_some_and(|r| !r.is_empty()));
    assert!(data["summary"]["self_check_error"].is_number());
}

#[test]
fn a_page_may_go_to_standard_output() {
    let dir = tempfile::tempdir().expect("a folder");
    write_onnx(&network(), dir.path().join("m.onnx")).expect("written");
    let (code, out, said) = run(dir.path(), &["explain", "m.onnx", "--html", "-"], b"");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(String::from_utf8(out).expect("text"), page(dir.path()));
}

#[test]
fn bodies_are_on_the_page_of_their_node() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut raw = network();
    let value = |name: &str, dtype, dims: Vec<RawDim>| RawValueInfo {
        name: name.into(),
        dtype: Some(dtype),
        dims: Some(dims),
        ..RawValueInfo::default()
    };
    let branch = |op: &str, out: &str| RawGraph {
        name: out.into(),
        outputs: vec![value(out, DType::F32, vec![RawDim::Known(4), RawDim::Known(8)])],
        nodes: vec![RawNode {
            op_type: op.into(),
            inputs: vec!["r7".into()],
            outputs: vec![out.into()],
            ..RawNode::default()
        }],
        ..RawGraph::default()
    };
    let graph = |g: RawGraph| RawAttr::Graph(Box::new(g));
    let last = raw.graph.nodes.last_mut().expect("an identity");
    (last.op_type, last.name, last.inputs) = ("If".into(), "choose".into(), vec!["flag".into()]);
    last.attrs = [
        ("then_branch".to_string(), graph(branch("Exp", "e"))),
        ("else_branch".to_string(), graph(branch("Neg", "n"))),
    ]
    .into();
    raw.graph.inputs.push(value("flag", DType::Bool, vec![]));
    write_onnx(&raw, dir.path().join("m.onnx")).expect("written");
    let data = data(&page(dir.path()));
    let bodies = data["bodies"]["choose"].as_array().expect("a list");
    let told = |b: &serde_json::Value| (b["name"].clone(), b["nodes"].clone());
    assert_eq!(
        bodies.iter().map(told).collect::<Vec<_>>(),
        [("then_branch".into(), 1.into()), ("else_branch".into(), 1.into())]
    );
    let boxes = &bodies[0]["drawn"]["boxes"];
    assert_eq!(boxes[0], serde_json::json!(["r7", "from around", true]));
    assert_eq!((&boxes[1][0], &boxes[2][0]), (&"Exp".into(), &"output".into()));
}
