//! What is written is valid at the operator set it is written at: element types are those that the version has,
//! and what has no elements is a constant.

use super::super::support::*;

fn bits(v: &[bool]) -> Tensor {
    bools(&[v.len()], &v.iter().map(|&b| i64::from(b)).collect::<Vec<_>>())
}

/// Reads at one version, writes at others; yields the operators of each.
#[track_caller]
fn written(
    opset: i64,
    op: &str,
    args: &[Arg],
    attrs: &[(&str, RawAttr)],
    expected: &Tensor,
) -> Vec<String> {
    let (raw, feeds) = single(opset, op, args, attrs, 1);
    let Imported { program, model, .. } = import(raw.clone(), library()).expect("is read");
    check_at(&[opset], raw, &feeds, std::slice::from_ref(expected));
    let raw = export(&program, library(), &model, opset).expect("is written");
    raw.graph.nodes.iter().map(|n| n.op_type.clone()).collect()
}

#[test]
fn floats_are_not_compared_before_they_may_be() {
    let inf = f64::INFINITY;
    let x = || In(floats(&[5], &[-inf, -1.0, 0.0, inf, f64::NAN]));
    for (negative, positive, expected) in [
        (1, 1, [true, false, false, true, false]),
        (1, 0, [true, false, false, false, false]),
        (0, 1, [false, false, false, true, false]),
    ] {
        let attrs = [("detect_negative", int(negative)), ("detect_positive", int(positive))];
        for opset in [10, 13, 20] {
            let ops = written(opset, "IsInf", &[x()], &attrs, &bits(&expected));
            assert_eq!(ops, ["IsInf"], "at {opset}");
        }
    }
    let rows = || In(floats(&[2, 3], &[1.0, 3.0, 3.0, f64::NAN, 0.0, -1.0]));
    for opset in [7, 8, 9, 10, 11, 13] {
        for (op, places) in [("ArgMax", [1, 0]), ("ArgMin", [0, 0])] {
            let attrs = [("axis", int(1)), ("keepdims", int(0))];
            let ops = written(opset, op, &[rows()], &attrs, &ints(&[2], &places));
            assert_eq!(ops.contains(&"Equal".to_string()), opset >= 11, "{op} at {opset}: {ops:?}");
            assert_eq!(ops.contains(&"Where".to_string()), opset >= 9, "{op} at {opset}: {ops:?}");
        }
    }
}

/// The attributes of the nodes of a name, as they are written.
fn attrs_written(opset: i64, op: &str, args: &[Arg], attrs: &[(&str, RawAttr)]) -> RawNode {
    let (raw, _) = single(opset, op, args, attrs, 1);
    let Imported { program, model, .. } = import(raw, library()).expect("is read");
    let raw = export(&program, library(), &model, opset).expect("is written");
    raw.graph.nodes.into_iter().find(|n| n.op_type == op).expect("is kept")
}

#[test]
fn attributes_are_those_that_the_version_has() {
    let x = || In(count(&[1, 1, 4]));
    let window = [("kernel_shape", list(&[2]))];
    let mean = floats(&[1, 1, 3], &[0.5, 1.5, 2.5]);
    for opset in [1, 6, 7, 10, 19] {
        let ops = written(opset, "AveragePool", &[x()], &window, &mean);
        assert_eq!(ops, ["AveragePool"], "at {opset}");
        let node = attrs_written(opset, "AveragePool", &[x()], &window);
        assert!(opset >= 7 || !node.attrs.contains_key("count_include_pad"), "{node:?}");
    }
    let padded = [("kernel_shape", list(&[2])), ("pads", list(&[1, 0]))];
    let of_what_is_there = floats(&[1, 1, 4], &[0.0, 0.5, 1.5, 2.5]);
    for opset in [1, 6, 7] {
        written(opset, "AveragePool", &[x()], &padded, &of_what_is_there);
    }
}

/// A result that is larger than the sum of all windows has padding of the result, not of the input.
#[test]
fn padding_is_not_negative() {
    let args = || [In(count(&[1, 1, 2])), In(floats(&[1, 1, 2], &[1.0, 2.0]))];
    let attrs = [("output_shape", list(&[6])), ("strides", list(&[3]))];
    let wanted = floats(&[1, 1, 6], &[0.0, 0.0, 0.0, 1.0, 2.0, 0.0]);
    written(22, "ConvTranspose", &args(), &attrs, &wanted);
    let node = attrs_written(22, "ConvTranspose", &args(), &attrs);
    assert_eq!(node.attrs.get("output_padding"), Some(&list(&[1])), "{node:?}");
    assert!(node.attrs.get("pads").is_none_or(|p| *p == list(&[0, 0])), "{node:?}");
}

#[test]
fn rectifiers_of_integers_are_what_runtimes_have() {
    for (dtype, expected) in [(DType::I32, "Relu"), (DType::I64, "Max")] {
        let of = |v: &[f64]| Tensor::from_f64(dtype, vec![3], v);
        let found = written(17, "Relu", &[In(of(&[-2.0, 0.0, 3.0]))], &[], &of(&[0.0, 0.0, 3.0]));
        assert_eq!(found, [expected]);
    }
}

#[test]
fn scales_of_half_precision_are_multiplied_as_they_are_written_out() {
    let half = |v: f64| Const(Tensor::from_f64(DType::F16, vec![], &[v]));
    let bytes = |shape: &[usize], v: &[f64]| Tensor::from_f64(DType::U8, shape.to_vec(), v);
    let byte = |v: f64| Const(bytes(&[], &[v]));
    let (a, b) = (In(bytes(&[1, 2], &[3.0, 5.0])), In(bytes(&[2, 1], &[2.0, 6.0])));
    let args = [a, half(0.5), byte(1.0), b, half(0.25), byte(1.0), half(1.0), byte(7.0)];
    let (raw, feeds) = single(21, "QLinearMatMul", &args, &[], 1);
    // (2 * 1 + 4 * 5) / 8 + 7, rounded.
    check_at(&[21], raw, &feeds, &[bytes(&[1, 1], &[10.0])]);
}

#[test]
fn what_has_no_elements_is_a_constant() {
    let empty = |shape: &[usize]| floats(shape, &[]);
    type Case = (&'static str, i64, Vec<Arg>, Vec<(&'static str, RawAttr)>, Tensor);
    let table: Vec<Case> = vec![
        ("Flatten", 9, vec![In(empty(&[2, 0, 3]))], vec![], empty(&[2, 0])),
        ("Unsqueeze", 11, vec![In(empty(&[2, 0]))], vec![("axes", list(&[0]))], empty(&[1, 2, 0])),
        ("Squeeze", 11, vec![In(empty(&[1, 0]))], vec![("axes", list(&[0]))], empty(&[0])),
        ("Tile", 13, vec![In(empty(&[2, 0])), Const(ints(&[2], &[2, 2]))], vec![], empty(&[4, 0])),
        (
            "DepthToSpace",
            9,
            vec![In(empty(&[1, 4, 0, 3]))],
            vec![("blocksize", int(2))],
            empty(&[1, 1, 0, 6]),
        ),
        (
            "SpaceToDepth",
            9,
            vec![In(empty(&[1, 1, 0, 2]))],
            vec![("blocksize", int(2))],
            empty(&[1, 4, 0, 1]),
        ),
        (
            "Einsum",
            12,
            vec![In(empty(&[2, 0]))],
            vec![("equation", RawAttr::from("ij->ji"))],
            empty(&[0, 2]),
        ),
        (
            "MeanVarianceNormalization",
            9,
            vec![In(empty(&[1, 2, 0, 3]))],
            vec![],
            empty(&[1, 2, 0, 3]),
        ),
        ("Hardmax", 13, vec![In(empty(&[0, 3]))], vec![], empty(&[0, 3])),
        (
            "GatherND",
            12,
            vec![In(empty(&[4, 3, 0])), In(ints(&[1, 2], &[1, 2]))],
            vec![],
            empty(&[1, 0]),
        ),
        ("LogSoftmax", 13, vec![In(empty(&[3, 0]))], vec![], empty(&[3, 0])),
    ];
    for (op, opset, args, attrs, expected) in table {
        let ops = written(opset, op, &args, &attrs, &expected);
        assert_eq!(ops, ["Identity"], "{op} at {opset}");
    }
}

#[test]
fn what_older_versions_lack_is_written_with_what_they_have() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let truths = |v: &[i64]| bools(&[v.len()], v);
    let halves = [-inf, -2.5, -1.5, -0.75, -0.5, -0.25, -0.0, 0.25, 0.5, 0.75, 1.5, 2.5, inf, nan];
    let large = [0.49999997, -0.49999997, 8388607.5, -8388606.5, 16777216.0, 3e38, 1e-40];
    let rounded = |v: &[f64]| v.iter().map(|&x| f64::from((x as f32).round_ties_even())).collect();
    let round = |v: &[f64]| {
        let expected: Vec<f64> = rounded(v);
        let of = |v: &[f64]| floats(&[v.len()], v);
        ("Round", 11, vec![In(of(v))], vec![], of(&expected), vec![9, 10])
    };
    let x = || In(floats(&[2, 3], &[1.0, 3.0, 3.0, -1.0, -2.0, -3.0]));
    let wide = || In(floats(&[2, 1], &[1.0, 2.0]));
    type Case = (&'static str, i64, Vec<Arg>, Vec<(&'static str, RawAttr)>, Tensor, Vec<i64>);
    let table: Vec<Case> = vec![
        (
            "IsNaN",
            9,
            vec![In(floats(&[5], &[-inf, 0.0, 0.5, inf, nan]))],
            vec![],
            truths(&[0, 0, 0, 0, 1]),
            vec![7, 8, 9],
        ),
        round(&halves),
        round(&large),
        (
            "Hardmax",
            13,
            vec![x()],
            vec![],
            floats(&[2, 3], &[0., 1., 0., 1., 0., 0.]),
            vec![7, 10, 11, 12, 13],
        ),
        (
            "Hardmax",
            10,
            vec![x()],
            vec![("axis", int(0))],
            floats(&[2, 3], &[0., 1., 0., 0., 0., 0.]),
            vec![7, 12, 13],
        ),
        (
            "Expand",
            8,
            vec![wide(), Const(ints(&[3], &[2, 1, 3]))],
            vec![],
            floats(&[2, 2, 3], &[1., 1., 1., 2., 2., 2., 1., 1., 1., 2., 2., 2.]),
            vec![7, 8],
        ),
        (
            "Expand",
            8,
            vec![wide(), Const(ints(&[2], &[2, 3]))],
            vec![],
            floats(&[2, 3], &[1., 1., 1., 2., 2., 2.]),
            vec![7, 8],
        ),
        (
            "Tile",
            7,
            vec![wide(), Const(ints(&[2], &[2, 2]))],
            vec![],
            floats(&[4, 2], &[1., 1., 2., 2., 1., 1., 2., 2.]),
            vec![7, 8],
        ),
    ];
    for (op, opset, args, attrs, expected, opsets) in table {
        let (raw, feeds) = single(opset, op, &args, &attrs, 1);
        check_at(&opsets, raw.clone(), &feeds, std::slice::from_ref(&expected));
        let Imported { program, model, .. } = import(raw, library()).expect("is read");
        for opset in opsets {
            let raw = export(&program, library(), &model, opset).expect("is written");
            let again = import(raw, library()).expect("is read back").program;
            let bits = |t: &Tensor| t.to_f64().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&run(&again, &feeds)[0]),
                bits(&expected),
                "{op} at {opset}: signs of zeros"
            );
        }
    }
}

#[test]
fn operands_have_the_shapes_that_their_node_takes() {
    let wide = |shape: &[i64]| Const(ints(&[shape.len()], shape));
    let expanded = |op: &str, at: usize, args: Vec<Arg>| {
        let names: Vec<String> = (0..args.len() - 1).map(|i| format!("x{i}")).collect();
        let mut inputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let shape = format!("x{}", args.len() - 1);
        let expand = node("Expand", &[inputs[at], &shape], &["wide"], &[]);
        inputs[at] = "wide";
        model(23, &args, vec![expand, node(op, &inputs, &["y"], &[])], &["y"])
    };
    let kv = |shape: &[usize]| In(count(shape));
    let table = [
        // The slope goes to `x`, not `x` to the slope.
        (expanded("PRelu", 0, vec![kv(&[1, 3]), kv(&[4, 3]), wide(&[4, 3])]), "PRelu", false),
        (expanded("PRelu", 0, vec![kv(&[3]), kv(&[4, 1]), wide(&[4, 3])]), "PRelu", false),
        (expanded("PRelu", 1, vec![kv(&[4, 3]), kv(&[3]), wide(&[4, 3])]), "PRelu", true),
        // Keys and values have the batch of the queries, and one head or as many.
        (
            expanded(
                "Attention",
                0,
                vec![kv(&[1, 2, 3, 2]), kv(&[2, 2, 2, 2]), kv(&[2, 2, 2, 2]), wide(&[2, 2, 3, 2])],
            ),
            "Attention",
            false,
        ),
        (
            expanded(
                "Attention",
                1,
                vec![kv(&[2, 2, 3, 2]), kv(&[1, 2, 2, 2]), kv(&[2, 2, 2, 2]), wide(&[2, 2, 2, 2])],
            ),
            "Attention",
            false,
        ),
        (
            expanded(
                "Attention",
                1,
                vec![kv(&[2, 2, 3, 2]), kv(&[2, 1, 2, 2]), kv(&[2, 2, 2, 2]), wide(&[2, 2, 2, 2])],
            ),
            "Attention",
            false,
        ),
        (
            expanded(
                "Attention",
                3,
                vec![
                    kv(&[2, 2, 3, 2]),
                    kv(&[2, 2, 2, 2]),
                    kv(&[2, 2, 2, 2]),
                    kv(&[3, 2]),
                    wide(&[2, 2, 3, 2]),
                ],
            ),
            "Attention",
            true,
        ),
        (
            single(
                23,
                "Attention",
                &[kv(&[1, 4, 3, 2]), kv(&[1, 2, 2, 2]), kv(&[1, 2, 2, 2])],
                &[],
                1,
            ),
            "Attention",
            true,
        ),
        (
            single(
                23,
                "Attention",
                &[kv(&[2, 4, 3, 2]), kv(&[2, 1, 2, 2]), kv(&[2, 1, 2, 2])],
                &[],
                1,
            ),
            "Attention",
            true,
        ),
        (
            single(
                23,
                "Attention",
                &[kv(&[1, 4, 3, 2]), kv(&[1, 2, 2, 2]), kv(&[1, 2, 2, 2]), kv(&[3, 2])],
                &[],
                1,
            ),
            "Attention",
            true,
        ),
    ];
    for (i, ((raw, feeds), op, is_written)) in table.into_iter().enumerate() {
        let Imported { program, model, .. } = import(raw, library()).expect("is read");
        let expected = run(&program, &feeds);
        let raw = export(&program, library(), &model, 23).expect("is written");
        let ops: Vec<&str> = raw.graph.nodes.iter().map(|n| n.op_type.as_str()).collect();
        assert_eq!(ops.contains(&op), is_written, "case {i}: {ops:?}");
        let shapes = |n: &RawNode| n.inputs.iter().map(|v| rank(&raw, v)).collect::<Vec<_>>();
        for n in raw.graph.nodes.iter().filter(|n| n.op_type == "Attention") {
            assert_eq!(shapes(n)[..3], [4, 4, 4], "case {i}");
        }
        let again = import(raw.clone(), library()).expect("is read back").program;
        same(&run(&again, &feeds)[0], &expected[0], &format!("case {i}"));
    }
}

/// The number of axes of an input, or of what a `Reshape` of one yields.
fn rank(raw: &RawModel, name: &str) -> usize {
    let input = raw.graph.inputs.iter().find(|i| i.name == name);
    let from = raw.graph.nodes.iter().find(|n| n.outputs[0] == name && n.op_type == "Reshape");
    let to = from.and_then(|n| raw.graph.initializers.get(&n.inputs[1]));
    input.and_then(|i| i.dims.as_ref()).map_or(to.map_or(0, |t| t.len()), Vec::len)
}

#[test]
fn indices_may_name_a_part() {
    let x = || In(count(&[3, 4]));
    let i = || In(ints(&[2, 2], &[0, -1, 3, 1]));
    let expected = floats(&[2, 2], &[0.0, 3.0, 7.0, 5.0]);
    check("GatherElements", &[x(), i()], &[("axis", int(1))], &[expected]);
    let far = |v: &[i64]| Const(ints(&[v.len()], v));
    let args = [In(floats(&[5, 0], &[])), far(&[1 << 62]), far(&[-1 << 62]), far(&[1]), far(&[-1])];
    check("Slice", &args, &[], &[floats(&[5, 0], &[])]);
}
