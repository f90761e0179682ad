//! Reading messages made by hand: what each part means, and how each mistake is told.
//!
//! Round trips, files and mutations are tested from outside, in `tests/onnx_raw.rs`.

use crate::proto::attribute_proto::AttributeType;
use crate::proto::tensor_proto::DataType;
use crate::proto::*;
use crate::*;
use bytes::Bytes;
use mlc_dsl::ir::DType;
use prost::Message;

fn parse(model: &ModelProto) -> Result<RawModel, OnnxError> {
    parse_onnx(Bytes::from(model.encode_to_vec()), None)
}

fn opset(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(domain.into()), version: Some(version) }
}

/// `Add(x, y) -> z; Relu(z) -> r`, as text.
fn node(text: &str) -> NodeProto {
    let (call, outputs) = text.split_once(" -> ").expect("an arrow");
    let (op, inputs) = call.strip_suffix(')').and_then(|c| c.split_once('(')).expect("a call");
    let (domain, op) = op.split_once("::").unwrap_or(("", op));
    let names = |s: &str| s.split(',').map(|n| n.trim().into()).collect::<Vec<String>>();
    NodeProto {
        op_type: Some(op.into()),
        domain: Some(domain.into()),
        input: if inputs.is_empty() { vec![] } else { names(inputs) },
        output: names(outputs),
        ..NodeProto::default()
    }
}

fn nodes(text: &str) -> Vec<NodeProto> {
    text.split(';').map(str::trim).filter(|s| !s.is_empty()).map(node).collect()
}

fn value(name: &str, elem_type: DataType, dims: &[i64]) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dim = |&d: &i64| Dimension { value: Some(Value::DimValue(d)), denotation: None };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let t = type_proto::Tensor { elem_type: Some(elem_type as i32), shape };
    let t = TypeProto { value: Some(type_proto::Value::TensorType(t)), denotation: None };
    ValueInfoProto { name: Some(name.into()), r#type: Some(t), ..ValueInfoProto::default() }
}

fn graph(inputs: &str, body: &str, outputs: &str) -> GraphProto {
    let values = |names: &str| {
        names.split_whitespace().map(|n| value(n, DataType::Float, &[2])).collect::<Vec<_>>()
    };
    GraphProto {
        name: Some("g".into()),
        input: values(inputs),
        output: values(outputs),
        node: nodes(body),
        ..GraphProto::default()
    }
}

fn model(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![opset("", 17)],
        graph: Some(graph),
        ..ModelProto::default()
    }
}

fn tensor(name: &str, data_type: DataType, dims: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        data_type: Some(data_type as i32),
        dims: dims.to_vec(),
        ..TensorProto::default()
    }
}

fn int_attr(name: &str, i: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        i: Some(i),
        r#type: Some(AttributeType::Int as i32),
        ..AttributeProto::default()
    }
}

fn graph_attr(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        g: Some(Box::new(g)),
        r#type: Some(AttributeType::Graph as i32),
        ..AttributeProto::default()
    }
}

/// The message of the error that reading gives; there is always a help.
#[track_caller]
fn refused(model: &ModelProto, message: &str) {
    let e = parse(model).expect_err("an error");
    assert!(e.to_string().contains(message), "`{e}` does not say `{message}`");
    assert!(e.help().is_some(), "{e}");
}

#[track_caller]
fn refused_tensor(t: TensorProto, message: &str) {
    let mut g = graph("", "", "");
    g.initializer.push(t);
    refused(&model(g), message);
}

/// `Add(a,b) -> c` for each node.
fn text(g: &RawGraph) -> Vec<String> {
    let line =
        |n: &RawNode| format!("{}({}) -> {}", n.op_type, n.inputs.join(","), n.outputs.join(","));
    g.nodes.iter().map(line).collect()
}

#[test]
fn typed_fields_are_decoded_for_every_type() {
    let ints = |d, v: &[i32]| TensorProto { int32_data: v.to_vec(), ..tensor("t", d, &[2]) };
    let unsigned = |d| TensorProto { uint64_data: vec![1, 7], ..tensor("t", d, &[2]) };
    let cases = [
        (
            TensorProto { float_data: vec![1., 7.], ..tensor("t", DataType::Float, &[2]) },
            DType::F32,
        ),
        (
            TensorProto { double_data: vec![1., 7.], ..tensor("t", DataType::Double, &[2]) },
            DType::F64,
        ),
        (TensorProto { int64_data: vec![1, 7], ..tensor("t", DataType::Int64, &[2]) }, DType::I64),
        (unsigned(DataType::Uint32), DType::U32),
        (unsigned(DataType::Uint64), DType::U64),
        (ints(DataType::Int32, &[1, 7]), DType::I32),
        (ints(DataType::Int16, &[1, 7]), DType::I16),
        (ints(DataType::Int8, &[1, 7]), DType::I8),
        (ints(DataType::Uint16, &[1, 7]), DType::U16),
        (ints(DataType::Uint8, &[1, 7]), DType::U8),
        (ints(DataType::Float16, &[0x3c00, 0x4700]), DType::F16),
        (ints(DataType::Bfloat16, &[0x3f80, 0x40e0]), DType::BF16),
        (ints(DataType::Float8e4m3fn, &[0x38, 0x4e]), DType::F8E4M3FN),
        (ints(DataType::Float8e4m3fnuz, &[0x40, 0x56]), DType::F8E4M3FNUZ),
        (ints(DataType::Float8e5m2, &[0x3c, 0x47]), DType::F8E5M2),
        (ints(DataType::Float8e5m2fnuz, &[0x40, 0x4b]), DType::F8E5M2FNUZ),
        (ints(DataType::Float6e2m3, &[0x08, 0x1e]), DType::F6E2M3),
        (ints(DataType::Float6e3m2, &[0x0c, 0x17]), DType::F6E3M2),
        (ints(DataType::Int4, &[0x71]), DType::I4),
        (ints(DataType::Uint4, &[0x71]), DType::U4),
    ];
    for (t, dtype) in cases {
        let mut g = graph("", "", "");
        g.initializer.push(t);
        let m = parse(&model(g)).expect("a model");
        let t = &m.graph.initializers["t"];
        assert_eq!((t.dtype(), t.to_f64()), (dtype, vec![1.0, 7.0]));
    }
    let packed = [
        (DataType::Float4e2m1, DType::F4E2M1, 0x52, vec![1.0, 3.0]),
        (DataType::Int2, DType::I2, 0b1001, vec![1.0, -2.0]),
        (DataType::Uint2, DType::U2, 0b1101, vec![1.0, 3.0]),
        (DataType::Float8e8m0, DType::F8E8M0, 0x80, vec![2.0]),
    ];
    for (stored, dtype, byte, values) in packed {
        let extent = [values.len() as i64];
        let mut g = graph("", "", "");
        g.initializer.push(TensorProto { int32_data: vec![byte], ..tensor("t", stored, &extent) });
        g.initializer.push(TensorProto {
            raw_data: Some(vec![byte as u8].into()),
            ..tensor("raw", stored, &extent)
        });
        let m = parse(&model(g)).expect("a model");
        for t in m.graph.initializers.values() {
            assert_eq!((t.dtype(), t.to_f64()), (dtype, values.clone()));
        }
    }
    let mut g = graph("", "", "");
    g.initializer.push(ints(DataType::Bool, &[1, 0]));
    g.initializer.push(TensorProto {
        raw_data: Some(Bytes::from_static(&[7, 0])),
        ..tensor("raw", DataType::Bool, &[2])
    });
    let m = parse(&model(g)).expect("a model");
    assert!(m.graph.initializers.values().all(|t| t.bytes()[..] == [1, 0]));
}

#[test]
fn bad_tensors_are_refused() {
    let float = |dims: &[i64]| tensor("w", DataType::Float, dims);
    refused_tensor(float(&[-2]), "initializer `w`: extent -2 is negative");
    refused_tensor(float(&[1 << 40, 1 << 40]), "more elements than can be addressed");
    refused_tensor(float(&[0, i64::MAX, i64::MAX]), "more elements than can be addressed");
    refused_tensor(float(&[3]), "needs 12 bytes, 0 given");
    refused_tensor(float(&[1 << 40]), "bytes, 0 given");
    refused_tensor(
        TensorProto { float_data: vec![1.0], ..float(&[3]) },
        "3 elements, float_data has 1",
    );
    refused_tensor(
        TensorProto { int64_data: vec![1], ..float(&[1]) },
        "do not belong in int64_data",
    );
    let both = TensorProto {
        raw_data: Some(Bytes::from_static(&[0; 4])),
        float_data: vec![1.0],
        ..float(&[1])
    };
    refused_tensor(both, "several places: raw_data, float_data");
    let byte = TensorProto { int32_data: vec![300], ..tensor("w", DataType::Uint8, &[1]) };
    refused_tensor(byte, "element 300 is not within 0..=255");
    let eight = TensorProto { int32_data: vec![256], ..tensor("w", DataType::Float8e5m2, &[1]) };
    refused_tensor(eight, "element 256 is not within 0..=255");
    let packed = |n: usize| TensorProto {
        raw_data: Some(vec![0; n].into()),
        ..tensor("w", DataType::Int4, &[3])
    };
    refused_tensor(packed(1), "3 elements of i4 are in 2 bytes, 1 given");
    refused_tensor(packed(3), "3 elements of i4 are in 2 bytes, 3 given");
    refused_tensor(tensor("w", DataType::Undefined, &[1]), "no element type");
    refused_tensor(tensor("w", DataType::String, &[1]), "1 elements, string_data has 0");
    for (d, name) in [(DataType::Complex64, "complex64"), (DataType::Complex128, "complex128")] {
        let message = format!("initializer `w`: element type {name} is not supported");
        refused_tensor(tensor("w", d, &[1]), &message);
    }
    refused_tensor(TensorProto { data_type: Some(77), ..float(&[1]) }, "number 77");
    let segment = Some(tensor_proto::Segment { begin: Some(0), end: Some(1) });
    refused_tensor(TensorProto { segment, ..float(&[1]) }, "a tensor in segments");
    refused_tensor(TensorProto { name: None, ..float(&[0]) }, "no name");
    let external = |entries: &[(&str, &str)]| TensorProto {
        data_location: Some(tensor_proto::DataLocation::External as i32),
        external_data: entries
            .iter()
            .map(|(k, v)| StringStringEntryProto {
                key: Some(k.to_string()),
                value: Some(v.to_string()),
            })
            .collect(),
        ..float(&[1])
    };
    refused_tensor(external(&[]), "no location");
    refused_tensor(external(&[("location", "x")]), "read from memory");
    refused_tensor(external(&[("location", "x"), ("offset", "-1")]), "offset `-1` is not");
}

#[test]
fn names_are_resolved() {
    let case = |inputs, body, outputs| model(graph(inputs, body, outputs));
    refused(&case("x", "Relu(y) -> z", "z"), "reads `y`, which nothing defines");
    refused(&case("x", "Relu(x) -> z", "w"), "an output of the graph reads `w`");
    refused(&case("x", "Relu(x) -> z; Abs(x) -> z", "z"), "`z` is defined twice: the Abs node");
    refused(&case("x x", "", "x"), "`x` is defined twice: an input");
    refused(&case("x", "Relu(x) -> x", "x"), "`x` is defined twice");
    refused(&case("x", "Relu(y) -> y", "y"), "in a cycle");
    let three = case("x", "Add(x,c) -> a; Relu(a) -> b; Abs(b) -> c", "c");
    refused(&three, "defines `a` -> the Relu node that defines `b` -> the Abs node");
    let mut twice = graph("", "", "");
    twice.initializer = vec![tensor("w", DataType::Float, &[0]); 2];
    refused(&model(twice), "`w` is defined twice");
    let mut negative = graph("", "", "");
    negative.input.push(value("x", DataType::Float, &[-3]));
    refused(&model(negative), "`x`, input of the graph: extent -3 is negative");
    let mut open = graph("", "", "");
    open.input.push(value("x", DataType::Float, &[-1, 2]));
    let dims = parse(&model(open)).expect("a model").graph.inputs[0].dims.clone();
    assert_eq!(dims, Some(vec![RawDim::Unknown, RawDim::Known(2)]), "-1 is an unknown extent");
    let mut absurd = graph("", "", "");
    absurd.value_info.push(value("x", DataType::Float, &[1 << 40, 1 << 40]));
    refused(&model(absurd), "`x`, value of the graph");
    let mut complex = graph("", "", "");
    complex.input.push(value("x", DataType::Complex64, &[3]));
    refused(&model(complex), "element type complex64");
}

#[test]
fn models_must_be_complete() {
    let good = model(graph("x", "Relu(x) -> y", "y"));
    parse(&good).expect("a model");
    refused(&ModelProto { graph: None, ..good.clone() }, "no graph");
    refused(&ModelProto { ir_version: None, ..good.clone() }, "IR version 0");
    refused(&ModelProto { ir_version: Some(15), ..good.clone() }, "IR version 15");
    refused(&ModelProto { opset_import: vec![], ..good.clone() }, "imports no operator set");
    refused(&ModelProto { opset_import: vec![opset("", 0)], ..good.clone() }, "version 0");
    let twice = vec![opset("", 17), opset("ai.onnx", 18)];
    refused(&ModelProto { opset_import: twice, ..good.clone() }, "another import");
    refused(&model(graph("x", "(x) -> y", "y")), "no operator");
    let mut twice = good;
    let g = twice.graph.as_mut().expect("a graph");
    g.node[0].attribute = vec![int_attr("a", 1), int_attr("a", 2)];
    refused(&twice, "`a` is defined twice");
}

#[test]
fn nodes_are_sorted_only_as_far_as_needed() {
    let m = parse(&model(graph("x", "Abs(b) -> c; Neg(x) -> d; Relu(x) -> b", "c d"))).expect("ok");
    assert_eq!(text(&m.graph), ["Neg(x) -> d", "Relu(x) -> b", "Abs(b) -> c"]);
    let m = parse(&model(graph("x", "Neg(x) -> d; Relu(x) -> b; Abs(d) -> c", "c b"))).expect("ok");
    assert_eq!(text(&m.graph), ["Neg(x) -> d", "Relu(x) -> b", "Abs(d) -> c"]);
}

#[test]
fn subgraphs_see_the_values_around_them() {
    let branch = graph("", "Neg(late) -> y", "y");
    let mut g = graph("x", "If(x) -> y; Relu(x) -> late", "y");
    g.node[0].attribute = vec![graph_attr("then_branch", branch)];
    let m = parse(&model(g.clone())).expect("a name of a branch may be used after it");
    assert_eq!(text(&m.graph), ["Relu(x) -> late", "If(x) -> y"]);
    let shadow = graph("", "Neg(x) -> late", "late");
    g.node[0].attribute = vec![graph_attr("then_branch", shadow)];
    g.node.swap(0, 1);
    refused(&model(g), "`late` is defined twice");
}

#[test]
fn deep_subgraphs_are_refused() {
    let mut g = graph("", "Neg(x) -> y", "y");
    for _ in 0..40 {
        let mut outer = graph("", "If(x) -> y", "y");
        outer.node[0].attribute = vec![graph_attr("b", g)];
        g = outer;
    }
    g.input = graph("x", "", "").input;
    refused(&model(g), "nested more than");
}

#[test]
fn initialisers_among_the_inputs_are_no_inputs() {
    let mut g = graph("x w", "Add(x,w) -> y", "y");
    g.initializer
        .push(TensorProto { float_data: vec![1., 2.], ..tensor("w", DataType::Float, &[2]) });
    let m = parse(&ModelProto { ir_version: Some(3), ..model(g) }).expect("a model");
    let names: Vec<&str> = m.graph.inputs.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["x"]);
    assert_eq!(m.graph.initializers.len(), 1);
}

/// `Add(x, c)` with this attribute of the constant `c`.
fn constant(key: &str, a: AttributeProto) -> ModelProto {
    let mut g = graph("x", "Constant() -> c; Add(x,c) -> y", "y");
    g.node[0].attribute = vec![AttributeProto { name: Some(key.into()), ..a }];
    model(g)
}

#[test]
fn constants_become_initialisers() {
    let none = AttributeProto::default;
    let t = TensorProto { float_data: vec![4.0], ..tensor("", DataType::Float, &[1]) };
    let word = || Bytes::from_static(b"hi");
    let cases = [
        ("value_string", AttributeProto { s: Some(word()), ..none() }, "str[][\"hi\"]"),
        ("value_strings", AttributeProto { strings: vec![word()], ..none() }, "str[1][\"hi\"]"),
        ("value", AttributeProto { t: Some(Box::new(t)), ..none() }, "f32[1][4.0]"),
        ("value_int", AttributeProto { i: Some(5), ..none() }, "i64[][5]"),
        ("value_ints", AttributeProto { ints: vec![5, 6], ..none() }, "i64[2][5, 6]"),
        ("value_float", AttributeProto { f: Some(0.5), ..none() }, "f32[][0.5]"),
        ("value_floats", AttributeProto { floats: vec![0.5], ..none() }, "f32[1][0.5]"),
    ];
    for (key, a, expect) in cases {
        let m = parse(&constant(key, a)).expect("a model");
        assert_eq!(format!("{:?}", m.graph.initializers["c"]), expect);
        assert_eq!(text(&m.graph), ["Add(x,c) -> y"]);
    }
    refused(&constant("value_float", none()), "it has no value");
    let kind = Some(AttributeType::SparseTensor as i32);
    refused(&constant("sparse_value", AttributeProto { r#type: kind, ..none() }), "sparse");
}

/// A sparse tensor of 2 × 3 with these places and values.
fn sparse(places: &[i64], shape: &[i64], values: &[f32]) -> SparseTensorProto {
    let count = [values.len() as i64];
    let data = values.to_vec();
    SparseTensorProto {
        values: Some(TensorProto { float_data: data, ..tensor("w", DataType::Float, &count) }),
        indices: Some(TensorProto {
            int64_data: places.to_vec(),
            ..tensor("", DataType::Int64, shape)
        }),
        dims: vec![2, 3],
    }
}

#[test]
fn sparse_constants_are_written_out() {
    let with = |t: &SparseTensorProto| {
        let mut g = graph("x", "Add(x,w) -> y", "y");
        g.sparse_initializer.push(t.clone());
        model(g)
    };
    for t in [sparse(&[1, 5], &[2], &[7.0, 8.0]), sparse(&[0, 1, 1, 2], &[2, 2], &[7.0, 8.0])] {
        let m = parse(&with(&t)).expect("a model");
        assert_eq!(m.graph.initializers["w"].to_f64(), [0.0, 7.0, 0.0, 0.0, 0.0, 8.0]);
        let a = AttributeProto { sparse_tensor: Some(Box::new(t)), ..AttributeProto::default() };
        let m = parse(&constant("sparse_value", a)).expect("a model");
        assert_eq!(m.graph.initializers["c"].to_f64(), [0.0, 7.0, 0.0, 0.0, 0.0, 8.0]);
    }
    refused(&with(&sparse(&[1, 6], &[2], &[7.0, 8.0])), "outside of its extents");
    refused(&with(&sparse(&[5, 1], &[2], &[7.0, 8.0])), "not in order");
    refused(&with(&sparse(&[0, 3], &[1, 2], &[7.0])), "outside of its extents");
    refused(&with(&sparse(&[1, 2, 3], &[3], &[7.0, 8.0])), "not one index for each value");
    let huge = SparseTensorProto { dims: vec![1 << 20, 1 << 20], ..sparse(&[1], &[1], &[7.0]) };
    refused(&with(&huge), "exceeds the limit of 256 MiB");
    let bare = SparseTensorProto { values: None, ..sparse(&[1], &[1], &[7.0]) };
    refused(&with(&bare), "it has no values");
}

fn function(name: &str, inputs: &str, body: &str, outputs: &str) -> FunctionProto {
    let names = |s: &str| s.split_whitespace().map(String::from).collect::<Vec<_>>();
    FunctionProto {
        name: Some(name.into()),
        domain: Some("f".into()),
        input: names(inputs),
        output: names(outputs),
        node: nodes(body),
        opset_import: vec![opset("", 17), opset("f", 1)],
        ..FunctionProto::default()
    }
}

fn with(functions: Vec<FunctionProto>, g: GraphProto) -> ModelProto {
    ModelProto { opset_import: vec![opset("", 17), opset("f", 1)], functions, ..model(g) }
}

#[test]
fn functions_are_inlined() {
    let inner = function("inner", "a b", "Add(a,b) -> t; Neg(t) -> c", "c");
    let outer = function("outer", "a", "f::inner(a,a) -> t; f::inner(t,) -> c", "c a");
    let g = graph("x", "f::outer(x) -> y,w; f::outer(y) -> z", "z w");
    let m = parse(&with(vec![outer, inner], g)).expect("a model");
    let expect = [
        "Add(x,x) -> inner/t",
        "Neg(inner/t) -> outer/t",
        "Add(outer/t,) -> inner.1/t",
        "Neg(inner.1/t) -> y",
        "Identity(x) -> w",
    ];
    let got = text(&m.graph);
    assert_eq!(got.len(), 9, "{got:?}");
    for (got, expect) in got.iter().zip(expect) {
        let ops = |s: &str| s.split('(').next().map(String::from);
        assert_eq!(ops(got), ops(expect), "{got}");
    }
    let outputs: std::collections::HashSet<_> =
        m.graph.nodes.iter().map(|n| &n.outputs[0]).collect();
    assert_eq!(outputs.len(), 9, "names are unique: {got:?}");
    assert_eq!(m.opset_imports.keys().collect::<Vec<_>>(), [""]);
}

#[test]
fn attribute_references_are_substituted() {
    let reference = |name: &str, to: &str| AttributeProto {
        name: Some(name.into()),
        ref_attr_name: Some(to.into()),
        r#type: Some(AttributeType::Int as i32),
        ..AttributeProto::default()
    };
    let mut f = function("f", "a", "Softmax(a) -> t; If(t) -> b", "b");
    f.attribute = vec!["axis".into(), "missing".into()];
    f.attribute_proto = vec![int_attr("keep", 1)];
    f.node[0].attribute =
        vec![reference("axis", "axis"), reference("k", "keep"), reference("m", "missing")];
    let mut branch = graph("", "Gather(t) -> u", "u");
    branch.node[0].attribute = vec![reference("axis", "axis")];
    f.node[1].attribute = vec![graph_attr("then_branch", branch)];
    let mut g = graph("x", "f::f(x) -> y", "y");
    g.node[0].attribute = vec![int_attr("axis", -1)];
    let m = parse(&with(vec![f], g)).expect("a model");
    let attrs = &m.graph.nodes[0].attrs;
    assert_eq!(attrs.len(), 2);
    assert_eq!((attrs["axis"].as_int(), attrs["k"].as_int()), (Some(-1), Some(1)));
    let inner = &m.graph.nodes[1].attrs["then_branch"].graphs()[0];
    assert_eq!(inner.nodes[0].attrs["axis"].as_int(), Some(-1));
    assert_eq!(inner.nodes[0].inputs, m.graph.nodes[0].outputs);
    let mut outside = graph("x", "Relu(x) -> y", "y");
    outside.node[0].attribute = vec![reference("axis", "axis")];
    refused(&model(outside), "outside a function");
}

#[test]
fn bad_functions_are_refused() {
    let g = || graph("x", "f::a(x) -> y", "y");
    let again = function("a", "p", "f::b(p) -> q", "q");
    let back = function("b", "p", "f::a(p) -> q", "q");
    refused(&with(vec![again.clone(), back], g()), "without end: a -> b -> a");
    refused(&with(vec![again.clone(), again], g()), "`a` is defined twice");
    let capture = function("a", "p", "Add(p,x) -> q", "q");
    refused(&with(vec![capture], g()), "reads `x`");
    let many = function("a", "", "", "q");
    refused(&with(vec![many], g()), "it has 1 inputs, the function `a` knows 0");
    let mut old = function("a", "p", "Relu(p) -> q", "q");
    old.opset_import = vec![opset("", 9)];
    refused(&with(vec![old], g()), "version 9 of the operators ``");
    // Thirty functions, each of which calls the next twice.
    let mut chain: Vec<FunctionProto> = (0..30)
        .map(|i| {
            let body = format!("f::f{0}(p) -> t; f::f{0}(t) -> q", i + 1);
            function(&format!("f{i}"), "p", &body, "q")
        })
        .collect();
    chain.push(function("f30", "p", "Relu(p) -> q", "q"));
    refused(&with(chain, graph("x", "f::f0(x) -> y", "y")), "all function calls inlined exceeds");
    let mut deep: Vec<FunctionProto> = (0..100)
        .map(|i| function(&format!("f{i}"), "p", &format!("f::f{}(p) -> q", i + 1), "q"))
        .collect();
    deep.push(function("f100", "p", "Relu(p) -> q", "q"));
    refused(&with(deep, graph("x", "f::f0(x) -> y", "y")), "nested more than");
}
