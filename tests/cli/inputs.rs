//! What a run is given: samples of an archive, extents that a model leaves open.

use super::run;
use mlc_dsl::ir::{DType, Tensor};
use mlc_files::npz::{read_npz, write_npz};
use mlc_onnx::*;
use std::fs;
use std::path::Path;

fn arrays(folder: &Path, file: &str, arrays: &[(&str, &[f32])]) {
    let named =
        |(n, v): &(&str, &[f32])| (n.to_string(), Tensor::from_f32(vec![v.len()], v.to_vec()));
    write_npz(folder.join(file), &arrays.iter().map(named).collect::<Vec<_>>()).expect("written");
}

/// The result of a run, and what it says on standard error.
#[track_caller]
fn result(folder: &Path, args: &[&str]) -> (Vec<f64>, String) {
    let args = [&["run"], args, &["--no-check", "--outputs", "out.npz"]].concat();
    let (code, _, said) = run(folder, &args, b"");
    assert_eq!(code, Some(0), "{args:?}: {said}");
    let all = read_npz(folder.join("out.npz")).expect("read");
    let values: Vec<f64> = all.values().flat_map(|t| t.to_f64().to_vec()).collect();
    (values, said)
}

#[test]
fn one_sample_of_an_archive_is_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    fs::write(at.join("f.rules"), "def f(x: f32[2], y: f32[2]) -> f32[2]\n  = x + y\n")
        .expect("written");
    arrays(at, "one.npz", &[("x", &[1.0, 2.0]), ("y", &[10.0, 20.0])]);
    arrays(
        at,
        "two.npz",
        &[("a/x", &[1.0, 2.0]), ("a/y", &[10.0, 20.0]), ("b/x", &[3.0, 4.0]), ("b/y", &[1.0, 1.0])],
    );
    arrays(at, "short.npz", &[("a/x", &[1.0, 2.0])]);
    let (found, said) = result(at, &["f.rules", "--inputs", "one.npz"]);
    assert_eq!((found, said.contains("sample")), (vec![11.0, 22.0], false), "{said}");
    let (found, said) = result(at, &["f.rules", "--inputs", "two.npz"]);
    assert_eq!(found, [11.0, 22.0]);
    assert!(said.contains("two.npz has 2 samples: `a` is run; `--sample K`"), "{said}");
    assert_eq!(result(at, &["f.rules", "--inputs", "two.npz", "--sample", "b"]).0, [4.0, 5.0]);
    for (args, reason) in [
        (&["two.npz", "--sample", "c"][..], "has no sample `c`"),
        (&["two.npz", "--sample", "c"], "help: its samples are `a`, `b`"),
        (&["one.npz", "--sample", "a"], "leave `--sample` out"),
        (&["short.npz"], "input `y` is missing"),
    ] {
        let args = [&["run", "f.rules", "--inputs"], args].concat();
        let (code, _, said) = run(at, &args, b"");
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains(reason), "{args:?}: {said}\nlacks {reason}");
    }
}

/// `y = op(x, w)` of `x: f32[EXTENTS]` and a weight of three rows.
fn open(op: &str, dims: &[RawDim]) -> RawModel {
    let value = |name: &str, dims: Option<Vec<RawDim>>| RawValueInfo {
        name: name.into(),
        dtype: Some(DType::F32),
        dims,
        ..RawValueInfo::default()
    };
    let weight = Tensor::from_f32(vec![3, 2], (0..6).map(|i| i as f32).collect());
    let node = RawNode {
        op_type: op.into(),
        inputs: vec!["x".into(), "w".into()],
        outputs: vec!["y".into()],
        ..RawNode::default()
    };
    let graph = RawGraph {
        name: "net".into(),
        inputs: vec![value("x", Some(dims.to_vec()))],
        outputs: vec![value("y", None)],
        nodes: vec![node],
        initializers: [("w".to_string(), weight)].into_iter().collect(),
        ..RawGraph::default()
    };
    RawModel {
        ir_version: 8,
        opset_imports: [(String::new(), 17)].into(),
        graph,
        ..RawModel::default()
    }
}

#[test]
fn an_extent_that_a_model_keeps_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let s = || RawDim::Symbol("s".into());
    write_onnx(&open("Add", &[s(), RawDim::Known(2)]), dir.path().join("m.onnx")).expect("written");
    write_onnx(&open("Add", &[RawDim::Unknown, RawDim::Known(2)]), dir.path().join("u.onnx"))
        .expect("written");
    write_onnx(&open("Add", &[RawDim::Known(5), RawDim::Known(2)]), dir.path().join("w.onnx"))
        .expect("written");
    let refused = |args: &[&str]| {
        let (code, _, said) = run(dir.path(), args, b"");
        assert_eq!(code, Some(2), "{args:?}: {said}");
        said
    };
    // An open extent may be 1 or the number: a run decides.
    for (verb, model) in
        [("run", "m.onnx"), ("show", "m.onnx"), ("explain", "m.onnx"), ("run", "u.onnx")]
    {
        let (code, _, said) = run(dir.path(), &[verb, model], b"");
        assert_eq!(code, Some(0), "{verb} {model}: {said}");
    }
    assert!(!refused(&["run", "w.onnx"]).contains("--bind"), "no symbol is concerned");
    let bound = ["optimize", "m.onnx", "-o", "o.onnx", "--bind", "s=3", "--no-check", "-q"];
    assert_eq!(run(dir.path(), &bound, b"").0, Some(0));
}

#[test]
fn an_index_out_of_range_is_told_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = "def f(x: f32[3, 2], i: i64[1]) -> f32[1, 2]\n  = gather(x, i, axis=0)\n";
    fs::write(dir.path().join("f.rules"), text).expect("written");
    let named = [
        ("x".to_string(), Tensor::from_f32(vec![3, 2], vec![0.0; 6])),
        ("i".to_string(), Tensor::from_i64(DType::I64, vec![1], &[7])),
    ];
    write_npz(dir.path().join("in.npz"), &named).expect("written");
    let (code, _, said) =
        run(dir.path(), &["run", "f.rules", "--inputs", "in.npz", "--no-check"], b"");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("help: check the values of the inputs"), "{said}");
}
