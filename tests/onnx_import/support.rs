//! Models of one node, and the comparison of their results with expectations.

pub use mlc_backends::reference::run_values;
pub use mlc_dsl::ir::{DType, NodeKind, Program, Tensor};
pub use mlc_dsl::library::Library;
pub use mlc_onnx::{
    ImportError, Imported, RawAttr, RawDim, RawGraph, RawModel, RawNode, RawValueInfo, export,
    import,
};
use mlc_rewrite::stdlib;
use std::sync::{Arc, LazyLock};

pub fn library() -> &'static Arc<Library> {
    static LIBRARY: LazyLock<Arc<Library>> = LazyLock::new(stdlib::shipped);
    &LIBRARY
}

pub fn floats(shape: &[usize], v: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F32, shape.to_vec(), v)
}

pub fn ints(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(DType::I64, shape.to_vec(), v)
}

pub fn bools(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(DType::Bool, shape.to_vec(), v)
}

/// 0, 1, 2, … in a shape.
pub fn count(shape: &[usize]) -> Tensor {
    let v: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| i as f64).collect();
    floats(shape, &v)
}

/// An input of a node: `In` is given at run time, `Const` lies in the model.
#[derive(Clone)]
pub enum Arg {
    In(Tensor),
    /// With symbolic extents of these names (`""` for a number).
    Sym(Tensor, &'static [&'static str]),
    Const(Tensor),
    Absent,
}
pub use Arg::{Absent, Const, In, Sym};

pub fn int(v: i64) -> RawAttr {
    RawAttr::Int(v)
}

pub fn list(v: &[i64]) -> RawAttr {
    RawAttr::Ints(v.to_vec())
}

pub fn node(op: &str, inputs: &[&str], outputs: &[&str], attrs: &[(&str, RawAttr)]) -> RawNode {
    RawNode {
        op_type: op.into(),
        inputs: inputs.iter().map(|s| s.to_string()).collect(),
        outputs: outputs.iter().map(|s| s.to_string()).collect(),
        attrs: attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
        ..RawNode::default()
    }
}

/// A model of these inputs, nodes and outputs.
pub fn model(
    opset: i64,
    args: &[Arg],
    nodes: Vec<RawNode>,
    outputs: &[&str],
) -> (RawModel, Vec<Tensor>) {
    let mut graph = RawGraph { name: "test".into(), nodes, ..RawGraph::default() };
    let mut feeds = Vec::new();
    for (i, arg) in args.iter().enumerate() {
        let name = format!("x{i}");
        let (t, symbols): (&Tensor, &[&str]) = match arg {
            Const(t) => {
                graph.initializers.insert(name, t.clone());
                continue;
            }
            Absent => continue,
            In(t) => (t, &[]),
            Sym(t, symbols) => (t, symbols),
        };
        let dim = |(i, &d): (usize, &usize)| match symbols.get(i) {
            Some(s) if !s.is_empty() => RawDim::Symbol(s.to_string()),
            _ => RawDim::Known(d as u64),
        };
        let dims = Some(t.shape().iter().enumerate().map(dim).collect());
        graph.inputs.push(RawValueInfo {
            name,
            dtype: Some(t.dtype()),
            dims,
            ..RawValueInfo::default()
        });
        feeds.push(t.clone());
    }
    graph.outputs = outputs
        .iter()
        .map(|o| RawValueInfo { name: o.to_string(), ..RawValueInfo::default() })
        .collect();
    let opset_imports = [(String::new(), opset)].into_iter().collect();
    (RawModel { ir_version: 8, opset_imports, graph, ..RawModel::default() }, feeds)
}

/// One operator with outputs `y0`, `y1`, …
pub fn single(
    opset: i64,
    op: &str,
    args: &[Arg],
    attrs: &[(&str, RawAttr)],
    outputs: usize,
) -> (RawModel, Vec<Tensor>) {
    let name = |(i, a): (usize, &Arg)| if let Absent = a { String::new() } else { format!("x{i}") };
    let inputs: Vec<String> = args.iter().enumerate().map(name).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let names: Vec<String> = (0..outputs).map(|i| format!("y{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    model(opset, args, vec![node(op, &inputs, &names, attrs)], &names)
}

pub fn run(program: &Program, feeds: &[Tensor]) -> Vec<Tensor> {
    let values = run_values(program, library(), feeds).expect("the program runs");
    values.iter().map(|v| v.to_tensor()).collect()
}

#[track_caller]
pub fn same(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.dtype(), expected.dtype(), "{what}: element type");
    assert_eq!(found.shape(), expected.shape(), "{what}: shape");
    for (a, b) in found.to_f64().iter().zip(expected.to_f64()) {
        let near = (a - b).abs() <= 1e-5 * (1.0 + b.abs()) || a.is_nan() && b.is_nan() || *a == b;
        assert!(near, "{what}: {found:?}, expected {expected:?}");
    }
}

/// Imports, compares with the expectation, exports at these operator sets, and compares again.
#[track_caller]
pub fn check_at(opsets: &[i64], raw: RawModel, feeds: &[Tensor], expected: &[Tensor]) {
    let what = raw.graph.nodes.iter().map(|n| n.op_type.as_str()).collect::<Vec<_>>().join(", ");
    let Imported { program, model, .. } =
        import(raw, library()).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (found, expected) in run(&program, feeds).iter().zip(expected) {
        same(found, expected, &what);
    }
    for &opset in opsets {
        let raw = export(&program, library(), &model, opset)
            .unwrap_or_else(|e| panic!("{what}, written at {opset}: {e}"));
        let again = import(raw, library())
            .unwrap_or_else(|e| panic!("{what}, written at {opset} and read back: {e}"));
        for (found, expected) in run(&again.program, feeds).iter().zip(expected) {
            same(found, expected, &format!("{what}, written at {opset} and read back"));
        }
    }
}

#[track_caller]
pub fn check(op: &str, args: &[Arg], attrs: &[(&str, RawAttr)], expected: &[Tensor]) {
    let (raw, feeds) = single(18, op, args, attrs, expected.len());
    check_at(&[13, 18, 23], raw, &feeds, expected);
}

#[track_caller]
pub fn refuse(opset: i64, op: &str, args: &[Arg], attrs: &[(&str, RawAttr)], expected: &str) {
    let (raw, _) = single(opset, op, args, attrs, 1);
    let e = import(raw, library()).expect_err("the model is refused");
    assert_eq!(e.to_string(), expected);
}
