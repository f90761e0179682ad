//! `conformance`: cases that pass, differ, are refused and are left out.

use super::run;
use mlc_onnx::{RawDim, RawGraph, RawModel, RawNode, RawValueInfo, write_onnx};
use std::fs;
use std::path::Path;

/// A message of a tensor of f32 with one axis: the field numbers of ONNX's `TensorProto`.
fn tensor(v: &[f32]) -> Vec<u8> {
    let mut out = vec![0x08, v.len() as u8, 0x10, 1, 0x4a, 4 * v.len() as u8];
    v.iter().for_each(|x| out.extend(x.to_le_bytes()));
    out
}

fn case(folder: &Path, op: &str, domain: &str, output: &[f32]) {
    let value = |name: &str| RawValueInfo {
        name: name.into(),
        dtype: Some(mlc_dsl::ir::DType::F32),
        dims: Some(vec![RawDim::Known(2)]),
        ..RawValueInfo::default()
    };
    let node = RawNode {
        op_type: op.into(),
        domain: domain.into(),
        inputs: vec!["x".into()],
        outputs: vec!["y".into()],
        ..RawNode::default()
    };
    let graph = RawGraph {
        name: "case".into(),
        inputs: vec![value("x")],
        outputs: vec![value("y")],
        nodes: vec![node],
        ..RawGraph::default()
    };
    let opset_imports = [(String::new(), 20), ("my.ops".into(), 1)].into();
    let model = RawModel { ir_version: 9, opset_imports, graph, ..RawModel::default() };
    let data = folder.join("test_data_set_0");
    fs::create_dir_all(&data).expect("a folder");
    write_onnx(&model, folder.join("model.onnx")).expect("written");
    fs::write(data.join("input_0.pb"), tensor(&[-1.0, 2.0])).expect("written");
    fs::write(data.join("output_0.pb"), tensor(output)).expect("written");
}

#[test]
fn cases_are_run_and_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join("suite").join(name);
    case(&at("right"), "Relu", "", &[0.0, 2.0]);
    case(&at("wrong"), "Relu", "", &[0.0, 2.5]);
    case(&at("near"), "Relu", "", &[0.0, 2.5]);
    fs::write(at("near").join("tolerance.txt"), "0.25 0\n").expect("written");
    case(&at("other"), "Fancy", "", &[0.0, 2.0]);
    case(&at("left_out"), "Fancy", "my.ops", &[0.0, 2.0]);
    let skip = "[domains]\n\"my.ops\" = \"one's own\"\n";
    fs::write(dir.path().join("skip.toml"), skip).expect("written");
    for backend in ["reference", "cpu"] {
        for plain in [&["--no-optimize"][..], &[]] {
            let args = ["conformance", "suite", "--skip", "skip.toml", "--backend", backend];
            let args = [&args, plain].concat();
            let (code, out, said) = run(dir.path(), &args, b"");
            let out = String::from_utf8(out).expect("text");
            assert_eq!(code, Some(1), "{said}");
            assert!(out.contains("5 cases: 2 passed, 1 failed, 1 refused, 1 skipped"), "{out}");
            assert!(
                out.contains(
                    "failed wrong: data set 0, output `y`: element 1: expected 2.5, found 2"
                ),
                "{out}"
            );
            assert!(
                out.contains("refused other:") && out.contains("`Fancy` is not known"),
                "{out}"
            );
        }
    }
    let (code, out, said) =
        run(dir.path(), &["conformance", "suite", "--only", "right", "--json", "-"], b"");
    assert_eq!(code, Some(0), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!((&report["passed"], &report["cases"][0]["operator"]), (&1.into(), &"Relu".into()));
}

#[test]
fn folders_without_cases_are_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    for (args, message) in [
        (["conformance", "."], "no test case is found"),
        (["conformance", "nowhere"], "cannot be searched"),
    ] {
        let (code, _, said) = run(dir.path(), &args, b"");
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(message), "{said}");
    }
}

/// A stub is a declaration that parses and types: with it the node is read, and `check` says what it lacks.
#[test]
fn what_is_not_understood_is_listed_with_a_declaration_to_start_from() {
    let dir = tempfile::tempdir().expect("a folder");
    case(&dir.path().join("own"), "FancyOp", "my.ops", &[0.0, 2.0]);
    case(&dir.path().join("known"), "Relu", "", &[0.0, 2.0]);
    let show = |args: &[&str]| {
        let (code, out, said) = run(dir.path(), &[&["show", "--coverage"], args].concat(), b"");
        assert_eq!(code, Some(0), "{said}");
        String::from_utf8(out).expect("text")
    };
    assert_eq!(show(&["known/model.onnx"]), "1 of 1 nodes are understood\n");
    let out = show(&["own/model.onnx"]);
    assert!(out.starts_with("0 of 1 nodes are understood\n\nmy.ops.FancyOp: "), "{out}");
    let stub = &out[out.find("///").expect("a stub")..];
    fs::write(dir.path().join("own.rules"), stub).expect("written");
    let with = show(&["own/model.onnx", "--rules", "own.rules"]);
    assert_eq!(with, "1 of 1 nodes are understood\n");
    let (code, out, said) = run(dir.path(), &["check", "own.rules"], b"");
    assert_eq!(code, Some(1), "{said}");
    let out = String::from_utf8(out).expect("text");
    assert!(out.contains("`fancy_op` has no meaning"), "{out}");
    let (_, out, _) =
        run(dir.path(), &["show", "--coverage", "own/model.onnx", "--json", "-"], b"");
    let json: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(json["missing"][0]["nodes"], 1);
    assert_eq!(json["missing"][0]["stub"], stub);
    case(&dir.path().join("decided"), "NonZero", "", &[0.0, 2.0]);
    let out = show(&["decided/model.onnx"]);
    let told = "0 of 1 nodes are understood, 1 more by `run`, once it has computed what decides them\n\nNonZero: ";
    assert!(out.starts_with(told), "{out}");
    let (_, out, _) =
        run(dir.path(), &["show", "--coverage", "decided/model.onnx", "--json", "-"], b"");
    let json: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(
        (json["missing"][0].is_null(), &json["decided_by_data"][0]["nodes"]),
        (true, &1.into())
    );
}
