//! `run` of models whose extents and repetitions the data decide, and of sequences.

use super::run;
use mlc_dsl::ir::{DType, Tensor};
use mlc_files::npz::{read_npz, write_npz};
use mlc_onnx::*;
use std::path::Path;

fn value(name: &str, dtype: DType, dims: Option<&[u64]>) -> RawValueInfo {
    let dims = dims.map(|dims| dims.iter().map(|&d| RawDim::Known(d)).collect());
    RawValueInfo { name: name.into(), dtype: Some(dtype), dims, ..RawValueInfo::default() }
}

fn node(op: &str, inputs: &[&str], output: &str) -> RawNode {
    RawNode {
        op_type: op.into(),
        inputs: inputs.iter().map(|i| i.to_string()).collect(),
        outputs: vec![output.into()],
        ..RawNode::default()
    }
}

fn written(folder: &Path, graph: RawGraph) {
    let opset_imports = [(String::new(), 17)].into();
    let model = RawModel { ir_version: 8, opset_imports, graph, ..RawModel::default() };
    write_onnx(&model, folder.join("m.onnx")).expect("written");
}

/// The rows of `x * w` whose sum is not zero, and `x` doubled as often as there are such rows.
fn rows() -> RawGraph {
    let open = |name: &str| RawValueInfo { name: name.into(), ..RawValueInfo::default() };
    let body = RawGraph {
        inputs: vec![open("i"), open("go"), open("s")],
        outputs: vec![open("go_on"), open("t")],
        nodes: vec![node("Identity", &["go"], "go_on"), node("Add", &["s", "s"], "t")],
        ..RawGraph::default()
    };
    let mut looped = node("Loop", &["count", "", "x"], "doubled");
    looped.attrs.insert("body".into(), RawAttr::Graph(Box::new(body)));
    let mut size = node("Shape", &["rows"], "count_list");
    size.attrs.insert("start".into(), RawAttr::Int(0));
    size.attrs.insert("end".into(), RawAttr::Int(1));
    RawGraph {
        name: "rows".into(),
        inputs: vec![value("x", DType::F32, Some(&[3, 2])), value("w", DType::F32, Some(&[2, 1]))],
        outputs: vec![value("rows", DType::F32, None), value("doubled", DType::F32, None)],
        initializers: [
            ("flat".to_string(), Tensor::from_i64(DType::I64, vec![1], &[-1])),
            ("none".to_string(), Tensor::from_i64(DType::I64, vec![0], &[])),
        ]
        .into_iter()
        .collect(),
        nodes: vec![
            node("MatMul", &["x", "w"], "product"),
            node("Reshape", &["product", "flat"], "sums"),
            node("NonZero", &["sums"], "places"),
            node("Reshape", &["places", "flat"], "place_list"),
            node("Gather", &["x", "place_list"], "rows"),
            size,
            node("Reshape", &["count_list", "none"], "count"),
            looped,
        ],
        ..RawGraph::default()
    }
}

/// Writes the graph as `m.onnx`, and inputs of it as `in.npz`.
fn rows_and_inputs(folder: &Path) {
    written(folder, rows());
    let inputs = [
        ("x".to_string(), Tensor::from_f32(vec![3, 2], vec![1.0, 2.0, 3.0, 3.0, 5.0, 6.0])),
        ("w".to_string(), Tensor::from_f32(vec![2, 1], vec![1.0, -1.0])),
    ];
    write_npz(folder.join("in.npz"), &inputs).expect("written");
}

#[test]
fn data_decide_extents_and_repetitions() {
    let dir = tempfile::tempdir().expect("a folder");
    rows_and_inputs(dir.path());
    for more in [&["--no-optimize"][..], &[], &["--backend", "reference"]] {
        let args = ["run", "m.onnx", "--inputs", "in.npz", "--outputs", "out.npz"];
        let (code, _, said) = run(dir.path(), &[&args, more].concat(), b"");
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("read for these inputs"), "{said}");
        let out = read_npz(dir.path().join("out.npz")).expect("written");
        let of = |name: &str| &out[name];
        assert_eq!(of("rows").shape(), [2, 2]);
        assert_eq!(of("rows").to_f64(), [1.0, 2.0, 5.0, 6.0]);
        assert_eq!(of("doubled").to_f64(), [4.0, 8.0, 12.0, 12.0, 20.0, 24.0]);
    }
    let (code, _, said) = run(dir.path(), &["run", "m.onnx"], b"");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("give the inputs of the run"), "{said}");
    let bench = ["bench", "m.onnx", "--iterations", "2"];
    let (code, _, said) = run(dir.path(), &bench, b"");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("`--inputs FILE.npz`"), "{said}");
    let (code, _, said) = run(dir.path(), &[&bench[..], &["--kernels"]].concat(), b"");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("leave `--kernels` out"), "{said}");
    let args = [&bench[..], &["--inputs", "in.npz"]].concat();
    let (code, said, _) = run(dir.path(), &args, b"");
    let said = String::from_utf8_lossy(&said);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("whole sessions are timed"), "{said}");
    let turns = ["bench", "m.onnx", "--inputs", "in.npz", "--turns"];
    let (code, said, _) = run(dir.path(), &turns, b"as read\noptimised\t2\n");
    let said = String::from_utf8_lossy(&said);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.lines().count() == 3 && said.contains(r#""estimate":null"#), "{said}");
    let (code, _, said) = run(dir.path(), &["optimize", "m.onnx", "-o", "out.onnx"], b"");
    assert_eq!(code, Some(0), "{said}");
    let out = read_onnx(dir.path().join("out.onnx")).expect("it reads back");
    let has = |op: &str| out.graph.nodes.iter().any(|n| n.op_type == op);
    assert!(has("NonZero") && has("Loop"), "{:?}", out.graph.nodes);
}

#[test]
fn sequences_are_given_by_their_elements() {
    let dir = tempfile::tempdir().expect("a folder");
    let list =
        RawValueInfo { containers: vec![Container::Sequence], ..value("given", DType::F32, None) };
    let mut joined = node("ConcatFromSequence", &["given"], "y");
    joined.attrs.insert("axis".into(), RawAttr::Int(0));
    let graph = RawGraph {
        name: "list".into(),
        inputs: vec![list],
        outputs: vec![value("y", DType::F32, None)],
        nodes: vec![joined],
        ..RawGraph::default()
    };
    written(dir.path(), graph);
    let inputs = [
        ("given[0]".to_string(), Tensor::from_f32(vec![1], vec![1.0])),
        ("given[1]".to_string(), Tensor::from_f32(vec![2], vec![2.0, 3.0])),
    ];
    write_npz(dir.path().join("in.npz"), &inputs).expect("written");
    let args = ["run", "m.onnx", "--inputs", "in.npz", "--outputs", "out.npz"];
    let (code, _, said) = run(dir.path(), &args, b"");
    assert_eq!(code, Some(0), "{said}");
    let out = read_npz(dir.path().join("out.npz")).expect("written");
    assert_eq!(out["y"].to_f64(), [1.0, 2.0, 3.0]);
}

fn sum(x: Option<&[u64]>, b: &str) -> RawGraph {
    let open = |name: &str, symbol: &str| RawValueInfo {
        dims: Some(vec![RawDim::Symbol(symbol.into())]),
        ..value(name, DType::F32, None)
    };
    RawGraph {
        name: "sum".into(),
        inputs: vec![value("x", DType::F32, x), open("b", b)],
        outputs: vec![value("y", DType::F32, None)],
        nodes: vec![node("Add", &["x", "b"], "y")],
        ..RawGraph::default()
    }
}

/// What `run` yields of `y` for these numbers.
#[track_caller]
fn computed(folder: &Path, inputs: &[(&str, &[f32])]) -> Vec<f64> {
    let tensor = |v: &[f32]| Tensor::from_f32(vec![v.len()], v.to_vec());
    let inputs: Vec<(String, Tensor)> =
        inputs.iter().map(|(n, v)| (n.to_string(), tensor(v))).collect();
    write_npz(folder.join("in.npz"), &inputs).expect("written");
    let args = ["run", "m.onnx", "--inputs", "in.npz", "--outputs", "out.npz"];
    let (code, _, said) = run(folder, &args, b"");
    assert_eq!(code, Some(0), "{said}");
    read_npz(folder.join("out.npz")).expect("written")["y"].to_f64()
}

#[test]
fn a_run_may_give_another_value_than_the_default() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut graph = sum(Some(&[2]), "n");
    graph.initializers.insert("b".into(), Tensor::from_f32(vec![2], vec![1.0, 2.0]));
    graph.defaults = graph.inputs.split_off(1);
    graph.defaults[0].dims = Some(vec![RawDim::Known(2)]);
    written(dir.path(), graph);
    assert_eq!(computed(dir.path(), &[("x", &[1.0, 1.0])]), [2.0, 3.0]);
    assert_eq!(computed(dir.path(), &[("x", &[1.0, 1.0]), ("b", &[5.0, 6.0])]), [6.0, 7.0]);
}

#[test]
fn a_run_decides_what_a_model_leaves_open() {
    let dir = tempfile::tempdir().expect("a folder");
    // How many axes there are, and that one of two extents repeats.
    for x in [None, Some(&[3][..])] {
        written(dir.path(), sum(x, "n"));
        let inputs: [(&str, &[f32]); 2] = [("x", &[1.0, 2.0, 3.0]), ("b", &[1.0])];
        assert_eq!(computed(dir.path(), &inputs), [2.0, 3.0, 4.0]);
    }
    let mut graph = sum(Some(&[3]), "n");
    graph.inputs[0].dims = Some(vec![RawDim::Symbol("m".into())]);
    graph.outputs.push(graph.outputs[0].clone());
    written(dir.path(), graph);
    let inputs: [(&str, &[f32]); 2] = [("x", &[1.0, 2.0, 3.0]), ("b", &[1.0])];
    assert_eq!(computed(dir.path(), &inputs), [2.0, 3.0, 4.0], "an output that is listed twice");
}

#[test]
fn inputs_of_a_model_with_kept_nodes_are_no_mistake() {
    let dir = tempfile::tempdir().expect("a folder");
    rows_and_inputs(dir.path());
    let args = ["optimize", "m.onnx", "-o", "out.onnx", "--inputs", "in.npz"];
    let (code, _, said) = run(dir.path(), &args, b"");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the result is not compared on in.npz"), "{said}");
}
