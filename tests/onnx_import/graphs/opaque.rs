//! Nodes that nothing declares are kept as they are, whatever is around them is optimised, and inputs that decide
//! shapes are read for a value. Operators that are written as what they were read as.

use super::super::support::*;
use mlc_onnx::{export, import_with_opaque_nodes};
use mlc_rewrite::{AnyArray, ErrorKind, Model, Optimizer, Reader};

/// What stands around unknown nodes: two transpositions that cancel, before and after.
fn around(unknown: RawNode, declared: bool) -> RawModel {
    let perm = |to: [i64; 2]| ("perm", RawAttr::Ints(to.to_vec()));
    let nodes = vec![
        node("Transpose", &["x0"], &["a"], &[perm([1, 0])]),
        node("Transpose", &["a"], &["b"], &[perm([1, 0])]),
        node("Relu", &["b"], &["c"], &[]),
        unknown,
        node("Transpose", &["u"], &["d"], &[perm([1, 0])]),
        node("Transpose", &["d"], &["y"], &[perm([1, 0])]),
    ];
    let (mut raw, _) =
        model(20, &[In(count(&[2, 3])), Const(floats(&[2], &[1.0, 2.0]))], nodes, &["y"]);
    raw.opset_imports.insert("my.ops".into(), 1);
    raw.graph.outputs[0].dtype = Some(DType::F32);
    raw.graph.outputs[0].dims = Some(vec![RawDim::Known(2), RawDim::Known(3)]);
    if declared {
        raw.graph.value_infos = vec![RawValueInfo {
            name: "u".into(),
            dtype: Some(DType::F32),
            dims: Some(vec![RawDim::Known(2), RawDim::Known(3)]),
            ..RawValueInfo::default()
        }];
    }
    raw
}

fn fancy() -> RawNode {
    let mut fancy = node("Fancy", &["c", "x1"], &["u", ""], &[("alpha", RawAttr::Float(0.5))]);
    fancy.domain = "my.ops".into();
    fancy
}

fn operators(raw: &RawModel) -> Vec<&str> {
    raw.graph.nodes.iter().map(|n| n.op_type.as_str()).collect()
}

fn optimized(raw: &RawModel) -> RawModel {
    optimized_for(raw, "cpu")
}

fn optimized_for(raw: &RawModel, target: &str) -> RawModel {
    let bytes = mlc_onnx::to_bytes(raw).expect("written");
    let model = Model::from_bytes(bytes).expect("it loads");
    let result = Optimizer::new().target(target).optimize(&model).expect("it is optimised");
    mlc_onnx::parse_onnx(result.to_bytes().expect("written").into(), None).expect("it reads back")
}

#[test]
fn an_unknown_node_is_kept_and_its_surroundings_are_optimised() {
    let raw = around(fancy(), true);
    let out = optimized(&raw);
    assert_eq!(operators(&out), ["Relu", "Fancy", "Identity"]);
    let kept = &out.graph.nodes[1];
    let before = &raw.graph.nodes[3];
    assert_eq!(
        (&kept.domain, &kept.attrs, &kept.inputs),
        (&before.domain, &before.attrs, &before.inputs)
    );
    assert_eq!(out.graph.initializers["x1"].to_f64(), [1.0, 2.0]);
    assert_eq!(out.opset_imports["my.ops"], 1);
    let names = |values: &[RawValueInfo]| values.iter().map(|v| v.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&out.graph.inputs), ["x0"]);
    assert_eq!(names(&out.graph.outputs), ["y"]);
}

#[test]
fn no_node_has_the_name_of_a_kept_one() {
    let mut raw = around(RawNode { name: "node".into(), ..fancy() }, true);
    raw.graph.nodes[2].name = "node".into();
    let out = optimized(&raw);
    let names: std::collections::BTreeSet<_> = out.graph.nodes.iter().map(|n| &n.name).collect();
    assert_eq!(operators(&out), ["Relu", "Fancy", "Identity"]);
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn what_a_file_tells_of_results_holds_for_the_extents_of_its_symbols() {
    let mut raw = around(fancy(), true);
    let graph = &mut raw.graph;
    for v in graph.inputs.iter_mut().chain(&mut graph.value_infos).chain(&mut graph.outputs) {
        v.dims = Some(vec![RawDim::Symbol("n".into()), RawDim::Known(3)]);
    }
    let bytes = mlc_onnx::to_bytes(&raw).expect("written");
    for reader in [Reader::new().bind("n", 2), Reader::new().shape("x0", &[2, 3])] {
        let model = reader.from_bytes(bytes.clone()).expect("it loads");
        let result = Optimizer::new().target("cpu").optimize(&model).expect("it is optimised");
        let bytes = result.to_bytes().expect("written");
        let out = mlc_onnx::parse_onnx(bytes.into(), None).expect("it reads back");
        assert_eq!(operators(&out), ["Relu", "Fancy", "Identity"]);
    }
    // Of another number of columns it tells nothing.
    let model = Reader::new().shape("x0", &[2, 4]).from_bytes(bytes).expect("it loads");
    let result = Optimizer::new().target("cpu").optimize(&model).expect("it is optimised");
    let out = mlc_onnx::parse_onnx(result.to_bytes().expect("written").into(), None);
    let out = out.expect("it reads back");
    assert_eq!(operators(&out), ["Relu", "Fancy", "Transpose", "Transpose"]);
}

#[test]
fn what_reads_a_value_of_unknown_type_is_kept_too() {
    let out = optimized(&around(fancy(), false));
    assert_eq!(operators(&out), ["Relu", "Fancy", "Transpose", "Transpose"]);
}

#[test]
fn what_a_body_of_a_kept_node_reads_is_still_there() {
    let value = |name: &str, dtype| RawValueInfo {
        name: name.into(),
        dtype: Some(dtype),
        ..RawValueInfo::default()
    };
    let body = RawGraph {
        inputs: vec![value("i", DType::I64), value("go", DType::Bool), value("s", DType::F32)],
        outputs: vec![value("go_on", DType::Bool), value("t", DType::F32)],
        nodes: vec![
            node("Identity", &["go"], &["go_on"], &[]),
            node("Add", &["s", "c"], &["t"], &[]),
        ],
        ..RawGraph::default()
    };
    let looped =
        node("Loop", &["x1", "", "b"], &["u"], &[("body", RawAttr::Graph(Box::new(body)))]);
    let mut raw = around(looped, true);
    raw.graph.initializers.clear();
    raw.graph.inputs.push(RawValueInfo { dims: Some(vec![]), ..value("x1", DType::I64) });
    let out = optimized(&raw);
    assert_eq!(operators(&out), ["Relu", "Loop", "Identity"]);
    // The initial state is the graph's input.
    mlc_onnx::import(out, library()).expect_err("a loop is not understood");
}

#[test]
fn a_model_of_nothing_known_stays_as_it_is() {
    let (mut raw, _) = single(20, "Fancy", &[In(count(&[2]))], &[], 1);
    raw.graph.outputs[0].dtype = Some(DType::F32);
    assert_eq!(operators(&optimized(&raw)), ["Fancy"]);
}

#[test]
fn running_names_the_node_and_writing_keeps_the_operator_set() {
    let raw = around(fancy(), true);
    let model = Model::from_bytes(mlc_onnx::to_bytes(&raw).expect("written")).expect("it loads");
    assert!(model.notes().iter().any(|n| n.contains("Fancy") && n.contains("kept")));
    let error = model.session().expect_err("nothing computes the node");
    assert!(error.to_string().contains("`Fancy` of the domain `my.ops`"), "{error}");
    let error = Optimizer::new()
        .target("standard")
        .opset(21)
        .optimize(&model)
        .expect_err("it means version 20");
    assert_eq!(error.kind(), ErrorKind::Export, "{error}");
    let imported =
        import_with_opaque_nodes(raw.clone(), library(), &Default::default(), Default::default())
            .expect("it loads");
    let again = export(&imported.program, library(), &imported.model, 20).expect("it is written");
    assert_eq!(again.graph.nodes.len(), raw.graph.nodes.len());
    assert!(import(raw, library()).is_err());
}

#[test]
fn what_runs_and_cannot_be_written_is_kept_in_files() {
    let count_of = Const(ints(&[1], &[2]));
    let (raw, _) = single(18, "TopK", &[In(floats(&[3], &[1.0, 3.0, 2.0])), count_of], &[], 2);
    let mut raw = raw;
    for (o, dtype) in raw.graph.outputs.iter_mut().zip([DType::F32, DType::I64]) {
        (o.dtype, o.dims) = (Some(dtype), Some(vec![RawDim::Known(2)]));
    }
    assert_eq!(operators(&optimized_for(&raw, "standard")), ["TopK"]);
    let model = Model::from_bytes(mlc_onnx::to_bytes(&raw).expect("written")).expect("it loads");
    let result = Optimizer::new().optimize(&model).expect("it is optimised");
    let x = AnyArray::from(floats(&[3], &[1.0, 3.0, 2.0]));
    let outputs = result.session().expect("it runs").run([("x0", x)]).expect("it runs");
    let of = |name: &str| outputs.get(name).expect("an output").tensor().to_f64();
    assert_eq!((of("y0"), of("y1")), (vec![3.0, 2.0], vec![1.0, 2.0]));
}

/// A sum over the axes that an input tells.
fn reduced() -> Vec<u8> {
    let axes = In(ints(&[1], &[1]));
    let (raw, _) = single(18, "ReduceSum", &[In(count(&[2, 3])), axes], &[], 1);
    mlc_onnx::to_bytes(&raw).expect("written")
}

#[test]
fn an_input_that_decides_a_shape_is_read_for_its_value() {
    let bytes = reduced();
    let open = Model::from_bytes(bytes.clone()).expect("it loads");
    let optimised = Optimizer::new().optimize(&open).expect("it is optimised");
    let sessions = [open.session(), optimised.session()];
    let sessions = sessions.map(|s| s.expect("runs decide the axes"));
    for (axis, expected) in [(0i64, vec![3.0, 5.0, 7.0]), (1, vec![3.0, 12.0])] {
        let value = AnyArray::from_vec(&[1], vec![axis]).expect("one axis");
        let inputs = [("x0", AnyArray::from(count(&[2, 3]))), ("x1", value.clone())];
        for session in &sessions {
            let outputs = session.run(inputs.clone()).expect("it runs");
            assert_eq!(outputs.iter().next().expect("a sum").1.tensor().to_f64(), expected);
        }
        for reader in
            [Reader::new().value("x1", value), Reader::new().numbers("x1", &[axis as f64])]
        {
            let model = reader.from_bytes(bytes.clone()).expect("it loads");
            assert_eq!(model.decided_inputs(), ["x1"]);
            let session = model.session().expect("it runs");
            let outputs = session.run([("x0", AnyArray::from(count(&[2, 3])))]).expect("it runs");
            assert_eq!(outputs.iter().next().expect("a sum").1.tensor().to_f64(), expected);
        }
    }
}

#[test]
fn values_that_do_not_fit_are_refused() {
    for (name, numbers, what) in [
        ("axes", &[1.0][..], "no input of this name"),
        ("x1", &[1.5], "a number is no i64"),
        ("x1", &[0.0, 1.0], "2 numbers"),
    ] {
        let error = Reader::new().numbers(name, numbers).from_bytes(reduced()).expect_err(what);
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(error.kind(), ErrorKind::Setting);
    }
}

/// Two convolutions between numbers of eight bits, with one bias: runtimes find them among the nodes around them.
fn quantised() -> RawModel {
    let pair = |x: &str, q: &str, y: &str| {
        [
            node("QuantizeLinear", &[x, "x1", "x2"], &[q], &[]),
            node("DequantizeLinear", &[q, "x1", "x2"], &[y], &[]),
        ]
    };
    let conv = |x: &str, y: &str| node("Conv", &[x, "w", "b"], &[y], &[]);
    let mut nodes = pair("x0", "xq", "xd").to_vec();
    nodes.push(node("DequantizeLinear", &["x3", "x1", "x2"], &["w"], &[]));
    nodes.push(node("DequantizeLinear", &["x4", "x1"], &["b"], &[]));
    nodes.push(conv("xd", "c"));
    nodes.push(node("Relu", &["c"], &["r"], &[]));
    nodes.extend(pair("r", "rq", "rd"));
    nodes.push(conv("rd", "y"));
    let bytes = |dtype, shape: &[usize], v: &[f64]| Tensor::from_f64(dtype, shape.to_vec(), v);
    let args = [
        In(count(&[1, 2, 3, 3])),
        Const(floats(&[], &[0.5])),
        Const(bytes(DType::I8, &[], &[1.0])),
        Const(bytes(DType::I8, &[2, 2, 1, 1], &[3.0, -2.0, 5.0, 1.0])),
        Const(bytes(DType::I32, &[2], &[4.0, -6.0])),
    ];
    model(20, &args, nodes, &["y"]).0
}

#[test]
fn quantised_models_stay_so_in_files_and_run_by_their_meaning() {
    let raw = quantised();
    let counts = |raw: &RawModel| {
        let of = |op: &str| operators(raw).iter().filter(|o| **o == op).count();
        ["QuantizeLinear", "DequantizeLinear", "Conv", "Add", "Cast"].map(of)
    };
    let out = optimized_for(&raw, "standard");
    assert_eq!(counts(&out), [2, 4, 2, 0, 0], "{:?}", operators(&out));
    let computed = |raw: RawModel| {
        let imported = mlc_onnx::import(raw, library()).expect("it is read");
        run(&imported.program, &[count(&[1, 2, 3, 3])])
    };
    same(&computed(out)[0], &computed(raw.clone())[0], "the file");
    let read = Model::from_bytes(mlc_onnx::to_bytes(&raw).expect("written")).expect("it loads");
    let session = Optimizer::new().optimize(&read).and_then(|o| o.session()).expect("it is ready");
    drop(session);
}

/// A model of `x0` with `n` rows of 6 and `x1` with `m` rows of 6, what these nodes make `u` of them, and two rectifiers.
fn shaped(constants: Vec<Arg>, nodes: Vec<RawNode>) -> RawModel {
    let rows = |n: usize, symbol: &'static [&'static str]| Sym(count(&[n, 6]), symbol);
    let args: Vec<Arg> = [rows(4, &["n"]), rows(3, &["m"])].into_iter().chain(constants).collect();
    let ends = [node("Relu", &["u"], &["v"], &[]), node("Relu", &["v"], &["y"], &[])];
    let nodes = nodes.into_iter().chain(ends).collect();
    let (mut raw, _) = model(20, &args, nodes, &["y"]);
    raw.graph.outputs[0].dims = Some(vec![RawDim::Unknown; 2]);
    let dims = ["rows", "columns"].map(|s| RawDim::Symbol(s.into())).to_vec();
    let u = RawValueInfo { name: "u".into(), dtype: Some(DType::F32), ..RawValueInfo::default() };
    raw.graph.value_infos = vec![RawValueInfo { dims: Some(dims), ..u }];
    raw
}

#[test]
fn what_only_the_extents_of_a_run_allow_is_kept() {
    let index = |v: i64| Const(ints(&[1], &[v]));
    let to = [("start", int(0)), ("end", int(1))];
    let divided = vec![
        node("Shape", &["x1"], &["rows"], &to),
        node("Concat", &["rows", "x2"], &["to"], &[("axis", int(0))]),
        node("Reshape", &["x0", "to"], &["u"], &[]),
    ];
    // The first row, if there is one.
    let spread = vec![
        node("Slice", &["x0", "x2", "x3", "x2"], &["first"], &[]),
        node("Shape", &["first"], &["to"], &[]),
        node("Expand", &["x1", "to"], &["u"], &[]),
    ];
    // Every second row twice is as many rows, if their number is even.
    let halved = vec![
        node("Slice", &["x0", "x2", "x3", "x4", "x5"], &["half"], &[]),
        node("Concat", &["half", "half"], &["twice"], &[("axis", int(0))]),
        node("Concat", &["x0", "twice"], &["u"], &[("axis", int(1))]),
    ];
    for (op, constants, nodes, shape) in [
        ("Concat", vec![index(0), index(100), index(0), index(2)], halved, [4, 12]),
        ("Reshape", vec![index(-1)], divided, [3, 8]),
        ("Expand", vec![index(0), index(1)], spread, [3, 6]),
    ] {
        let raw = shaped(constants, nodes);
        let bytes = mlc_onnx::to_bytes(&raw).expect("written");
        let out = optimized(&raw);
        let operators = operators(&out);
        let count = |op: &str| operators.iter().filter(|o| **o == op).count();
        assert!(count(op) > 0 && count("Relu") == 1, "{operators:?}");
        let bound = Reader::new().bind("n", 4).bind("m", 3).from_bytes(bytes).expect("it loads");
        assert_eq!(bound.outputs()[0].shape(), shape.map(Some), "{op}");
    }
}

#[test]
fn an_extreme_along_an_open_axis_is_written_as_itself() {
    for op in ["ArgMax", "ArgMin"] {
        let x = Sym(count(&[2, 3]), &["b", "n"]);
        let nodes = vec![node(op, &["x0"], &["y"], &[("axis", int(1)), ("keepdims", int(0))])];
        let (mut raw, _) = model(20, &[x], nodes, &["y"]);
        raw.graph.outputs[0].dtype = Some(DType::I64);
        raw.graph.outputs[0].dims = Some(vec![RawDim::Symbol("b".into())]);
        assert_eq!(operators(&optimized_for(&raw, "onnxruntime")), [op]);
    }
}
