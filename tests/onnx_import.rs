//! ONNX in and out: what operators read as, computed by the reference; that what is written reads back
//! to the same; and how faults are reported.
//!
//! Models are built here, operator by operator; expectations follow ONNX's own documentation.

use mlc_backends::reference::run_values;
use mlc_dsl::ir::{DType, NodeKind, Program, Tensor};
use mlc_dsl::library::Library;
use mlc_rewrite::onnx::{
    ImportError, Imported, RawAttr, RawDim, RawGraph, RawModel, RawNode, RawValueInfo, export,
    import,
};
use mlc_rewrite::stdlib::load_sound;
use std::sync::OnceLock;

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| load_sound(&[]).expect("the shipped texts are sound"))
}

fn floats(shape: &[usize], v: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F32, shape.to_vec(), v)
}

fn ints(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(DType::I64, shape.to_vec(), v)
}

fn bools(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(DType::Bool, shape.to_vec(), v)
}

/// 0, 1, 2, … in a shape.
fn count(shape: &[usize]) -> Tensor {
    let v: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| i as f64).collect();
    floats(shape, &v)
}

/// An input of a node: `In` is given at run time, `Const` lies in the model.
enum Arg {
    In(Tensor),
    /// With symbolic extents of these names (`""` for a number).
    Sym(Tensor, &'static [&'static str]),
    Const(Tensor),
    Absent,
}
use Arg::{Absent, Const, In, Sym};

fn int(v: i64) -> RawAttr {
    RawAttr::Int(v)
}

fn list(v: &[i64]) -> RawAttr {
    RawAttr::Ints(v.to_vec())
}

fn node(op: &str, inputs: &[&str], outputs: &[&str], attrs: &[(&str, RawAttr)]) -> RawNode {
    RawNode {
        op_type: op.into(),
        inputs: inputs.iter().map(|s| s.to_string()).collect(),
        outputs: outputs.iter().map(|s| s.to_string()).collect(),
        attrs: attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
        ..RawNode::default()
    }
}

/// A model of these inputs, nodes and outputs.
fn model(
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
        graph.inputs.push(RawValueInfo { name, dtype: Some(t.dtype()), dims });
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
fn single(
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

fn run(program: &Program, feeds: &[Tensor]) -> Vec<Tensor> {
    let values = run_values(program, library(), feeds).expect("the program runs");
    values.iter().map(|v| v.to_tensor()).collect()
}

#[track_caller]
fn same(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.dtype(), expected.dtype(), "{what}: element type");
    assert_eq!(found.shape(), expected.shape(), "{what}: shape");
    for (a, b) in found.to_f64().iter().zip(expected.to_f64()) {
        let near = (a - b).abs() <= 1e-5 * (1.0 + b.abs()) || a.is_nan() && b.is_nan() || *a == b;
        assert!(near, "{what}: {found:?}, expected {expected:?}");
    }
}

/// Imports, compares with the expectation, exports at these operator sets, and compares again.
#[track_caller]
fn check_at(opsets: &[i64], raw: RawModel, feeds: &[Tensor], expected: &[Tensor]) {
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
fn check(op: &str, args: &[Arg], attrs: &[(&str, RawAttr)], expected: &[Tensor]) {
    let (raw, feeds) = single(18, op, args, attrs, expected.len());
    check_at(&[13, 18, 23], raw, &feeds, expected);
}

#[track_caller]
fn refuse(opset: i64, op: &str, args: &[Arg], attrs: &[(&str, RawAttr)], expected: &str) {
    let (raw, _) = single(opset, op, args, attrs, 1);
    let e = import(raw, library()).expect_err("the model is refused");
    assert_eq!(e.to_string(), expected);
}

#[test]
fn pointwise_operators_compute() {
    let x = || In(floats(&[5], &[-2.0, -0.5, 0.0, 0.5, 2.0]));
    type Case = (&'static str, fn(f64) -> f64);
    let table: &[Case] = &[
        ("Neg", |x| -x),
        ("Abs", f64::abs),
        ("Exp", f64::exp),
        ("Tanh", f64::tanh),
        ("Sigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("Sin", f64::sin),
        ("Cos", f64::cos),
        ("Atan", f64::atan),
        ("Sinh", f64::sinh),
        ("Cosh", f64::cosh),
        ("Asinh", f64::asinh),
        ("Floor", f64::floor),
        ("Ceil", f64::ceil),
        ("Round", f64::round_ties_even),
        ("Reciprocal", f64::recip),
        ("Relu", |x| x.max(0.0)),
        ("LeakyRelu", |x| if x < 0.0 { 0.01 * x } else { x }),
        ("ThresholdedRelu", |x| if x > 1.0 { x } else { 0.0 }),
        ("Elu", |x| if x < 0.0 { x.exp() - 1.0 } else { x }),
        ("Softplus", |x| x.exp().ln_1p()),
        ("Softsign", |x| x / (1.0 + x.abs())),
        ("HardSigmoid", |x| (0.2 * x + 0.5).clamp(0.0, 1.0)),
        ("HardSwish", |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        ("Mish", |x| x * x.exp().ln_1p().tanh()),
        ("Shrink", |x| if x.abs() > 0.5 { x } else { 0.0 }),
    ];
    for (op, f) in table {
        let y: Vec<f64> = [-2.0, -0.5, 0.0, 0.5, 2.0].into_iter().map(f).collect();
        check(op, &[x()], &[], &[floats(&[5], &y)]);
    }
}

#[test]
fn operands_broadcast() {
    let a = || In(count(&[2, 3]));
    check(
        "Add",
        &[a(), In(floats(&[3], &[10.0, 20.0, 30.0]))],
        &[],
        &[floats(&[2, 3], &[10.0, 21.0, 32.0, 13.0, 24.0, 35.0])],
    );
    check(
        "Sub",
        &[In(count(&[2, 1])), In(count(&[3]))],
        &[],
        &[floats(&[2, 3], &[0.0, -1.0, -2.0, 1.0, 0.0, -1.0])],
    );
    check(
        "Mul",
        &[a(), Const(floats(&[1, 1, 1], &[2.0]))],
        &[],
        &[floats(&[1, 2, 3], &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0])],
    );
    check(
        "Div",
        &[In(ints(&[4], &[-7, 7, -7, 7])), Const(ints(&[], &[2]))],
        &[],
        &[ints(&[4], &[-3, 3, -3, 3])],
    );
    check(
        "Mod",
        &[In(ints(&[4], &[-7, 7, -7, 7])), Const(ints(&[4], &[3, 3, -3, -3]))],
        &[],
        &[ints(&[4], &[2, 1, -1, -2])],
    );
    check(
        "Mod",
        &[In(ints(&[4], &[-7, 7, -7, 7])), Const(ints(&[], &[3]))],
        &[("fmod", int(1))],
        &[ints(&[4], &[-1, 1, -1, 1])],
    );
    check(
        "Pow",
        &[In(count(&[3])), Const(ints(&[], &[2]))],
        &[],
        &[floats(&[3], &[0.0, 1.0, 4.0])],
    );
    check(
        "Where",
        &[In(bools(&[2, 1], &[1, 0])), a(), Const(floats(&[], &[-1.0]))],
        &[],
        &[floats(&[2, 3], &[0.0, 1.0, 2.0, -1.0, -1.0, -1.0])],
    );
    check(
        "GreaterOrEqual",
        &[a(), Const(floats(&[], &[2.0]))],
        &[],
        &[bools(&[2, 3], &[0, 0, 1, 1, 1, 1])],
    );
    check(
        "Mean",
        &[a(), In(count(&[3])), In(count(&[2, 1]))],
        &[],
        &[floats(&[2, 3], &[0.0, 2.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0, 2.0, 8.0 / 3.0])],
    );
    check(
        "Max",
        &[a(), Const(floats(&[3], &[4.0, 0.0, 3.0]))],
        &[],
        &[floats(&[2, 3], &[4.0, 1.0, 3.0, 4.0, 4.0, 5.0])],
    );
    check(
        "Clip",
        &[a(), Const(floats(&[], &[1.0])), Const(floats(&[], &[3.0]))],
        &[],
        &[floats(&[2, 3], &[1.0, 1.0, 2.0, 3.0, 3.0, 3.0])],
    );
    check(
        "Clip",
        &[a(), Absent, In(floats(&[], &[2.0]))],
        &[],
        &[floats(&[2, 3], &[0.0, 1.0, 2.0, 2.0, 2.0, 2.0])],
    );
    check(
        "Cast",
        &[In(floats(&[3], &[-1.5, 0.0, 2.7]))],
        &[("to", int(7))],
        &[ints(&[3], &[-1, 0, 2])],
    );
}

#[test]
fn elements_move() {
    let x = || In(count(&[2, 3]));
    check("Transpose", &[x()], &[], &[floats(&[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0])]);
    check("Reshape", &[x(), Const(ints(&[2], &[-1, 2]))], &[], &[count(&[3, 2])]);
    check("Flatten", &[In(count(&[2, 3, 2]))], &[("axis", int(2))], &[count(&[6, 2])]);
    check("Unsqueeze", &[x(), Const(ints(&[2], &[0, -1]))], &[], &[count(&[1, 2, 3, 1])]);
    check("Squeeze", &[In(count(&[1, 2, 1]))], &[], &[count(&[2])]);
    check(
        "Expand",
        &[In(count(&[2, 1])), Const(ints(&[3], &[1, 1, 2]))],
        &[],
        &[floats(&[1, 2, 2], &[0.0, 0.0, 1.0, 1.0])],
    );
    check(
        "Tile",
        &[In(count(&[1, 2])), Const(ints(&[2], &[2, 2]))],
        &[],
        &[floats(&[2, 4], &[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0])],
    );
    check(
        "Concat",
        &[x(), In(count(&[1, 3])), In(count(&[1, 3]))],
        &[("axis", int(0))],
        &[floats(&[4, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0])],
    );
    check(
        "Split",
        &[x(), Const(ints(&[2], &[1, 2]))],
        &[("axis", int(-1))],
        &[floats(&[2, 1], &[0.0, 3.0]), floats(&[2, 2], &[1.0, 2.0, 4.0, 5.0])],
    );
    check(
        "Slice",
        &[
            x(),
            Const(ints(&[1], &[-1])),
            Const(ints(&[1], &[i64::MIN + 1])),
            Const(ints(&[1], &[1])),
            Const(ints(&[1], &[-2])),
        ],
        &[],
        &[floats(&[2, 2], &[2.0, 0.0, 5.0, 3.0])],
    );
    check(
        "Pad",
        &[x(), Const(ints(&[4], &[0, 1, 0, 0])), Const(floats(&[], &[9.0]))],
        &[],
        &[floats(&[2, 4], &[9.0, 0.0, 1.0, 2.0, 9.0, 3.0, 4.0, 5.0])],
    );
    check(
        "DepthToSpace",
        &[In(count(&[1, 4, 1, 1]))],
        &[("blocksize", int(2))],
        &[count(&[1, 1, 2, 2])],
    );
    check(
        "Gather",
        &[x(), In(ints(&[2], &[-1, 0]))],
        &[("axis", int(1))],
        &[floats(&[2, 2], &[2.0, 0.0, 5.0, 3.0])],
    );
    check(
        "GatherElements",
        &[x(), In(ints(&[1, 3], &[1, 0, -1]))],
        &[],
        &[floats(&[1, 3], &[3.0, 1.0, 5.0])],
    );
    check("GatherND", &[x(), In(ints(&[2, 2], &[0, 1, -1, 2]))], &[], &[floats(&[2], &[1.0, 5.0])]);
    check("Shape", &[x()], &[("start", int(1))], &[ints(&[1], &[3])]);
    check(
        "Range",
        &[Const(ints(&[], &[7])), Const(ints(&[], &[1])), Const(ints(&[], &[-2]))],
        &[],
        &[ints(&[3], &[7, 5, 3])],
    );
    check(
        "OneHot",
        &[In(ints(&[2], &[1, -1])), Const(ints(&[], &[3])), Const(floats(&[2], &[0.0, 1.0]))],
        &[],
        &[floats(&[2, 3], &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0])],
    );
    check(
        "CumSum",
        &[x(), Const(ints(&[], &[1]))],
        &[("exclusive", int(1))],
        &[floats(&[2, 3], &[0.0, 0.0, 1.0, 0.0, 3.0, 7.0])],
    );
}

#[test]
fn reductions_and_products_compute() {
    let x = || In(count(&[2, 3]));
    let axis = |a: i64| Const(ints(&[1], &[a]));
    check("ReduceSum", &[x(), axis(1)], &[], &[floats(&[2, 1], &[3.0, 12.0])]);
    check(
        "ReduceMean",
        &[x(), axis(-2)],
        &[("keepdims", int(0))],
        &[floats(&[3], &[1.5, 2.5, 3.5])],
    );
    check("ReduceMax", &[x()], &[("keepdims", int(0))], &[floats(&[], &[5.0])]);
    check("ReduceL2", &[x(), axis(0)], &[], &[floats(&[1, 3], &[3.0, 17f64.sqrt(), 29f64.sqrt()])]);
    check(
        "ReduceLogSumExp",
        &[x(), axis(1)],
        &[("keepdims", int(0))],
        &[floats(&[2], &[2.407606, 5.407606])],
    );
    check("ArgMax", &[x()], &[("axis", int(1)), ("keepdims", int(0))], &[ints(&[2], &[2, 2])]);
    check(
        "Softmax",
        &[In(floats(&[1, 2], &[0.0, 3f64.ln()]))],
        &[],
        &[floats(&[1, 2], &[0.25, 0.75])],
    );
    check("MatMul", &[In(count(&[3])), In(count(&[3, 2]))], &[], &[floats(&[2], &[10.0, 13.0])]);
    check(
        "MatMul",
        &[In(count(&[2, 1, 2])), In(count(&[2, 2]))],
        &[],
        &[floats(&[2, 1, 2], &[2.0, 3.0, 6.0, 11.0])],
    );
    check(
        "Gemm",
        &[In(count(&[2, 2])), In(count(&[2, 2])), In(count(&[2]))],
        &[("transB", int(1)), ("alpha", RawAttr::Float(2.0))],
        &[floats(&[2, 2], &[2.0, 7.0, 6.0, 27.0])],
    );
    check(
        "Einsum",
        &[In(count(&[2, 2])), In(count(&[3, 2]))],
        &[("equation", RawAttr::from("ij,kj->ki"))],
        &[floats(&[3, 2], &[1.0, 3.0, 3.0, 13.0, 5.0, 23.0])],
    );
    check(
        "Conv",
        &[
            In(count(&[1, 1, 3, 3])),
            Const(floats(&[1, 1, 2, 2], &[1.0, 0.0, 0.0, 1.0])),
            Const(floats(&[1], &[10.0])),
        ],
        &[],
        &[floats(&[1, 1, 2, 2], &[14.0, 16.0, 20.0, 22.0])],
    );
    check(
        "ConvTranspose",
        &[In(count(&[1, 1, 2])), Const(floats(&[1, 1, 2], &[1.0, 3.0]))],
        &[("strides", list(&[2]))],
        &[floats(&[1, 1, 4], &[0.0, 0.0, 1.0, 3.0])],
    );
    check(
        "MaxPool",
        &[In(count(&[1, 1, 5]))],
        &[("kernel_shape", list(&[2])), ("strides", list(&[2])), ("ceil_mode", int(1))],
        &[floats(&[1, 1, 3], &[1.0, 3.0, 4.0])],
    );
    check(
        "AveragePool",
        &[In(count(&[1, 1, 4]))],
        &[("kernel_shape", list(&[3])), ("pads", list(&[1, 1]))],
        &[floats(&[1, 1, 4], &[0.5, 1.0, 2.0, 2.5])],
    );
    check(
        "GlobalAveragePool",
        &[In(count(&[1, 2, 2, 1]))],
        &[],
        &[floats(&[1, 2, 1, 1], &[0.5, 2.5])],
    );
}

#[test]
fn normalisations_and_recurrences_compute() {
    let ones = |n: usize| Const(floats(&[n], &vec![1.0; n]));
    let zeros = |n: usize| Const(floats(&[n], &vec![0.0; n]));
    check(
        "BatchNormalization",
        &[In(count(&[1, 2, 1])), ones(2), zeros(2), Const(floats(&[2], &[1.0, -1.0])), ones(2)],
        &[("epsilon", RawAttr::Float(0.0))],
        &[floats(&[1, 2, 1], &[-1.0, 2.0])],
    );
    check(
        "LayerNormalization",
        &[In(floats(&[1, 2], &[1.0, 3.0])), ones(2)],
        &[("epsilon", RawAttr::Float(0.0))],
        &[floats(&[1, 2], &[-1.0, 1.0])],
    );
    check(
        "InstanceNormalization",
        &[In(floats(&[1, 1, 2], &[1.0, 3.0])), ones(1), zeros(1)],
        &[("epsilon", RawAttr::Float(0.0))],
        &[floats(&[1, 1, 2], &[-1.0, 1.0])],
    );
    let (w, r) = (floats(&[1, 4, 1], &[0.0; 4]), floats(&[1, 4, 1], &[0.0; 4]));
    let bias = floats(&[1, 8], &[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    // Gates are one half and the candidate is tanh(1): c = t/2, h = tanh(t/2)/2.
    let h = 0.5 * (0.5 * 1f64.tanh()).tanh();
    check(
        "LSTM",
        &[In(count(&[1, 1, 1])), Const(w), Const(r), Const(bias)],
        &[("hidden_size", int(1))],
        &[floats(&[1, 1, 1, 1], &[h]), floats(&[1, 1, 1], &[h])],
    );
}

#[test]
fn symbolic_extents_are_kept() {
    let x = || Sym(count(&[2, 3, 4]), &["batch", "seq"]);
    check("Reshape", &[x(), Const(ints(&[4], &[0, 0, 2, 2]))], &[], &[count(&[2, 3, 2, 2])]);
    check("Reshape", &[x(), Const(ints(&[2], &[-1, 4]))], &[], &[count(&[6, 4])]);
    check("Unsqueeze", &[x(), Const(ints(&[1], &[1]))], &[], &[count(&[2, 1, 3, 4])]);
    check("Shape", &[x()], &[], &[ints(&[3], &[2, 3, 4])]);
    check("Size", &[x()], &[], &[ints(&[], &[24])]);
    check(
        "Slice",
        &[x(), Const(ints(&[1], &[1])), Const(ints(&[1], &[i64::MAX])), Const(ints(&[1], &[1]))],
        &[],
        &[floats(
            &[2, 2, 4],
            &[
                4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 16.0, 17.0, 18.0, 19.0, 20.0, 21.0, 22.0,
                23.0,
            ],
        )],
    );
    let (raw, _) = single(17, "Softmax", &[x()], &[], 1);
    let program = import(raw, library()).expect("it is imported").program;
    assert_eq!(program.ty(program.outputs[0].1).to_string(), "f32[batch, seq, 4]");
}

/// The shape computation that exporters write around a reshape.
fn shape_arithmetic() -> Vec<RawNode> {
    vec![
        node("Shape", &["x0"], &["shape"], &[]),
        node("Gather", &["shape", "x1"], &["batch"], &[]),
        node("Gather", &["shape", "x2"], &["seq"], &[]),
        node("Mul", &["batch", "seq"], &["rows"], &[]),
        node("Unsqueeze", &["rows", "x3"], &["rows1"], &[]),
        node("Concat", &["rows1", "x4"], &["target"], &[("axis", int(0))]),
        node("Equal", &["target", "x4"], &["is"], &[]),
        node("Where", &["is", "x4", "target"], &["chosen"], &[]),
        node("Reshape", &["x0", "chosen"], &["y"], &[]),
    ]
}

#[test]
fn shapes_are_computed_at_import() {
    let args = [
        Sym(count(&[2, 3, 4]), &["batch", "seq"]),
        Const(ints(&[], &[0])),
        Const(ints(&[], &[1])),
        Const(ints(&[1], &[0])),
        Const(ints(&[1], &[-1])),
    ];
    let (raw, feeds) = model(17, &args, shape_arithmetic(), &["y"]);
    let imported = import(raw.clone(), library()).expect("it is imported");
    assert_eq!(imported.model.nodes, 9);
    let nodes = &imported.program.nodes;
    let applied = nodes.iter().filter(|n| matches!(n.kind, NodeKind::Apply(..))).count();
    assert_eq!(applied, 1, "only the reshape is left");
    assert_eq!(imported.program.ty(imported.program.outputs[0].1).to_string(), "f32[batch*seq, 4]");
    check_at(&[13, 17], raw, &feeds, &[count(&[6, 4])]);
}

#[test]
fn known_conditions_take_a_branch() {
    let branch = |op: &str| {
        let out = format!("{op}_out");
        let graph = RawGraph {
            nodes: vec![node(op, &["x0"], &[&out], &[])],
            outputs: vec![RawValueInfo { name: out, ..RawValueInfo::default() }],
            ..RawGraph::default()
        };
        RawAttr::Graph(Box::new(graph))
    };
    let attrs = [("then_branch", branch("Neg")), ("else_branch", branch("Abs"))];
    let args = [In(floats(&[2], &[-1.0, 2.0])), Const(bools(&[], &[0]))];
    let (raw, feeds) = model(17, &args, vec![node("If", &["x1"], &["y"], &attrs)], &["y"]);
    check_at(&[17], raw, &feeds, &[floats(&[2], &[1.0, 2.0])]);
    let args = [In(floats(&[2], &[-1.0, 2.0])), In(bools(&[], &[0]))];
    let (raw, _) = model(17, &args, vec![node("If", &["x1"], &["y"], &attrs)], &["y"]);
    let e = import(raw, library()).expect_err("the condition is not known");
    assert_eq!(e.to_string(), "the If node that defines `y`: its condition depends on the inputs");
    assert!(e.help().is_some());
}

#[test]
fn symbols_that_must_be_equal_become_one() {
    let a = Sym(count(&[2, 2]), &["n", "m"]);
    let b = Sym(count(&[2, 2]), &["n", "k"]);
    let (raw, feeds) = single(17, "Add", &[a, b], &[], 1);
    let imported = import(raw.clone(), library()).expect("it is imported");
    assert_eq!(imported.assumed, [("k".to_string(), "m".to_string())]);
    check_at(&[17], raw, &feeds, &[floats(&[2, 2], &[0.0, 2.0, 4.0, 6.0])]);
}

#[test]
fn one_node_writes_what_one_node_read() {
    let count_nodes = |raw: RawModel, opset: i64| {
        let Imported { program, model, .. } = import(raw, library()).expect("it is imported");
        let out = export(&program, library(), &model, opset).expect("it is exported").graph;
        out.nodes.iter().map(|n| n.op_type.clone()).collect::<Vec<_>>()
    };
    let bias = Const(floats(&[1], &[1.0]));
    let weight = Const(count(&[1, 1, 2, 2]));
    let (raw, _) = single(17, "Conv", &[In(count(&[1, 1, 3, 3])), weight, bias], &[], 1);
    assert_eq!(count_nodes(raw, 17), ["Conv"]);
    let (raw, _) = single(17, "ReduceMean", &[In(count(&[2, 3]))], &[("axes", list(&[1]))], 1);
    assert_eq!(count_nodes(raw.clone(), 17), ["ReduceMean"]);
    assert_eq!(count_nodes(raw, 18), ["ReduceMean"]);
    let parts = [("axis", int(1))];
    let (raw, _) = single(17, "Split", &[In(count(&[2, 6]))], &parts, 3);
    assert_eq!(count_nodes(raw, 17), ["Split"]);
    let args = [In(count(&[2])), In(count(&[2])), In(count(&[2]))];
    let (raw, _) = single(17, "Concat", &args, &[("axis", int(0))], 1);
    assert_eq!(count_nodes(raw, 17), ["Concat"]);
    let (raw, _) =
        single(20, "Gelu", &[In(count(&[2]))], &[("approximate", RawAttr::from("tanh"))], 1);
    assert_eq!(count_nodes(raw.clone(), 20), ["Gelu"]);
    assert!(count_nodes(raw, 17).len() > 1, "older operator sets write its body");
}

#[test]
fn names_and_constants_survive() {
    let weight = count(&[3, 2]);
    let mut n = node("MatMul", &["x0", "x1"], &["y"], &[]);
    n.name = "layer/product".into();
    let (raw, _) = model(17, &[In(count(&[2, 3])), Const(weight.clone())], vec![n], &["y"]);
    let Imported { program, model, .. } = import(raw, library()).expect("it is imported");
    let out = export(&program, library(), &model, 17).expect("it is exported");
    assert_eq!(out.graph.nodes[0].name, "layer/product");
    assert_eq!(out.graph.nodes[0].outputs, ["y"]);
    assert!(out.graph.initializers["x1"].same_storage(&weight));
    assert_eq!(out.graph.name, "test");
}

#[test]
fn faults_name_the_node_and_the_reason() {
    let x = || In(count(&[2, 3]));
    refuse(
        17,
        "Frobnicate",
        &[x()],
        &[],
        "the Frobnicate node that defines `y0`: the operator `Frobnicate` is not known at operator set 17",
    );
    refuse(
        17,
        "Relu",
        &[x()],
        &[("slope", int(1))],
        "the Relu node that defines `y0`: its attribute `slope` is not supported",
    );
    refuse(17, "Add", &[x()], &[], "the Add node that defines `y0`: its input `b` is missing");
    refuse(
        17,
        "Relu",
        &[x(), x()],
        &[],
        "the Relu node that defines `y0`: it has 2 inputs, more than `Relu` takes",
    );
    refuse(
        17,
        "Add",
        &[x(), In(count(&[4]))],
        &[],
        "the Add node that defines `y0`: extents 3 and 4 do not broadcast",
    );
    refuse(
        17,
        "Reshape",
        &[x(), In(ints(&[1], &[6]))],
        &[],
        "the Reshape node that defines `y0`: its input `to` is computed from the model's inputs, which is not supported",
    );
    refuse(
        17,
        "Reshape",
        &[x(), Const(ints(&[1], &[7]))],
        &[],
        "the Reshape node that defines `y0`: `reshape` needs product(shape) == product(|a|)",
    );
    refuse(
        17,
        "Pad",
        &[x(), Const(ints(&[4], &[1, 1, 1, 1]))],
        &[("mode", RawAttr::from("reflect"))],
        "the Pad node that defines `y0`: padding that repeats elements (mode `reflect`, `edge` or `wrap`) is not supported",
    );
    refuse(
        17,
        "Concat",
        &[x()],
        &[("axis", RawAttr::Float(1.0))],
        "the Concat node that defines `y0`: its attribute `axis` is no int",
    );
    refuse(
        19,
        "Gelu",
        &[x()],
        &[],
        "the Gelu node that defines `y0`: the operator `Gelu` is not known at operator set 19",
    );
    let (raw, _) =
        single(17, "MaxPool", &[In(count(&[1, 1, 4]))], &[("kernel_shape", list(&[2]))], 2);
    let e = import(raw, library()).expect_err("indices are not supported");
    assert_eq!(
        e.to_string(),
        "the MaxPool node that defines `y0`: its output 1 (`y1`) is not supported"
    );
}

#[test]
fn inputs_without_a_type_are_refused() {
    let (mut raw, _) = single(17, "Relu", &[In(count(&[2]))], &[], 1);
    raw.graph.inputs[0].dims = None;
    let e = import(raw.clone(), library()).expect_err("the rank is unknown");
    assert_eq!(e.to_string(), "input `x0`: its number of axes is unknown");
    raw.graph.inputs[0].dims = Some(vec![RawDim::Unknown]);
    let program = import(raw.clone(), library()).expect("an unknown extent is a symbol").program;
    assert_eq!(program.inputs[0].1.to_string(), "f32[x0_dim0]");
    raw.graph.inputs[0].dtype = None;
    assert!(matches!(import(raw, library()), Err(ImportError::Graph { .. })));
}

#[test]
fn outputs_may_be_inputs_and_constants() {
    let (mut raw, feeds) = model(17, &[In(count(&[2])), Const(count(&[1]))], vec![], &["x0", "x1"]);
    raw.graph.outputs.truncate(2);
    let Imported { program, model, .. } = import(raw, library()).expect("it is imported");
    let out = export(&program, library(), &model, 17).expect("it is exported");
    let again = import(out, library()).expect("it reads back").program;
    let found = run(&again, &feeds);
    same(&found[0], &count(&[2]), "an input");
    same(&found[1], &count(&[1]), "a constant");
}
