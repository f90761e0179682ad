//! The command line: files and faults, streams, names, reports.
#![cfg(unix)]

use indexmap::IndexMap;
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::*;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

mod completions;
mod conformance;
mod files;
mod infer;
mod inputs;
mod kernels;
mod page;
mod questions;
mod small_faults;
mod staged;
mod turns;
mod two_models;
mod verbs;

/// `y = relu(x + w)` with many weights, each of which is written on its own.
pub fn model(first: f32) -> RawModel {
    let value = |name: &str| RawValueInfo {
        name: name.into(),
        dtype: Some(DType::F32),
        dims: Some(vec![RawDim::Known(64), RawDim::Known(256)]),
        ..RawValueInfo::default()
    };
    let node = |op: &str, inputs: &[&str], out: &str| RawNode {
        op_type: op.into(),
        inputs: inputs.iter().map(|i| i.to_string()).collect(),
        outputs: vec![out.into()],
        ..RawNode::default()
    };
    let mut nodes = Vec::new();
    let mut initializers = IndexMap::new();
    let mut last = "x".to_string();
    for i in 0..26 {
        let numbers = (0..64 * 256).map(|k| first + (i * k) as f32).collect();
        initializers.insert(format!("w{i}"), Tensor::from_f32(vec![64, 256], numbers));
        nodes.push(node("Add", &[&last, &format!("w{i}")], &format!("h{i}")));
        last = format!("h{i}");
    }
    nodes.push(node("Relu", &[&last], "y"));
    let (inputs, outputs) = (vec![value("x")], vec![value("y")]);
    let name = "net".into();
    let graph = RawGraph { name, inputs, outputs, nodes, initializers, ..RawGraph::default() };
    let opset_imports = [(String::new(), 17)].into();
    RawModel { ir_version: 8, opset_imports, graph, ..RawModel::default() }
}

/// The command in a folder: exit code, standard output, standard error.
pub fn run(folder: &Path, args: &[&str], input: &[u8]) -> (Option<i32>, Vec<u8>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // It may not read what it is given.
    let _ = child.stdin.take().expect("piped").write_all(input);
    let out = child.wait_with_output().expect("ends");
    (out.status.code(), out.stdout, String::from_utf8_lossy(&out.stderr).into_owned())
}

/// A model as a text.
pub const TEXT: &str = "def f(x: f32[2, 3]) -> f32[2, 3]\n  = maximum(x, 0.0)\n";

/// An e-graph of one node.
pub const EGRAPH: &str = r#"{"nodes": {"a": {"op": "x", "eclass": "A"}}, "root_eclasses": ["A"]}"#;
