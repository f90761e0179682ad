//! Whole graphs: symbols, shapes, branches, faults, names.

mod invalid;
mod opaque;
mod reuse;
mod versions;
mod written;

use super::support::*;

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

/// An image is scaled to a given side: its other side is a quotient, cut to whole pixels.
#[test]
fn sizes_by_a_quotient_are_known() {
    let scalar = |v: f64| Const(floats(&[], &[v]));
    let to = |dtype: i64| [("to", int(dtype))];
    let nodes = vec![
        node("Shape", &["x0"], &["sides"], &[]),
        node("Cast", &["sides"], &["real"], &to(1)),
        node("ReduceMin", &["real"], &["least"], &[("keepdims", int(0))]),
        node("Reciprocal", &["least"], &["part"], &[]),
        node("Mul", &["part", "x1"], &["by"], &[]),
        node("Mul", &["real", "by"], &["scaled"], &[]),
        node("Floor", &["scaled"], &["cut"], &[]),
        node("Div", &["cut", "x2"], &["half"], &[]),
        node("Cast", &["half"], &["whole"], &to(7)),
        node("ConstantOfShape", &["whole"], &["y"], &[]),
    ];
    // 10 / 6 of 7 is 11.67, half of which is 5.5.
    let args = [In(count(&[6, 7])), scalar(10.0), scalar(2.0)];
    let (raw, _) = model(17, &args, nodes, &["y"]);
    let program = import(raw, library()).expect("it is imported").program;
    assert_eq!(program.ty(program.outputs[0].1).to_string(), "f32[5, 5]");
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
    let b = Sym(count(&[2, 2]), &["k", "n"]);
    let (raw, feeds) = single(17, "MatMul", &[a, b], &[], 1);
    let imported = import(raw.clone(), library()).expect("it is imported");
    assert_eq!(imported.assumed, [("k".to_string(), "m".to_string())]);
    check_at(&[17], raw, &feeds, &[floats(&[2, 2], &[2.0, 3.0, 6.0, 11.0])]);
}

#[test]
fn a_symbol_that_may_be_one_is_not_taken_for_a_sum() {
    // The mask of a cache: as long as the past and the present together, or one element for all.
    for (mask, y) in [(&[10.0, 20.0, 30.0][..], [10.0, 21.0, 30.0]), (&[10.0], [10.0, 11.0, 10.0])]
    {
        let args = [
            Sym(count(&[2]), &["past"]),
            Sym(count(&[1]), &["seq"]),
            Sym(floats(&[mask.len()], mask), &["total"]),
        ];
        for masked in [["keys", "x2"], ["x2", "keys"]] {
            let nodes = vec![
                node("Concat", &["x0", "x1"], &["keys"], &[("axis", int(0))]),
                node("Add", &masked, &["y"], &[]),
            ];
            let (raw, feeds) = model(17, &args, nodes, &["y"]);
            let imported = import(raw.clone(), library()).expect("it is imported");
            assert!(imported.assumed.is_empty(), "{:?}", imported.assumed);
            check_at(&[17], raw, &feeds, &[floats(&[3], &y)]);
        }
    }
}

#[test]
fn a_symbol_that_a_node_needs_to_be_a_number_is_it() {
    // Exporters leave the batch free and write shapes of the one batch that they traced.
    let reshaped = |shape: &[i64], then: [&str; 3]| {
        let shape = Const(ints(&[shape.len()], shape));
        let x = Sym(count(&[1, 6]), &["batch", ""]);
        let args = [x, shape, In(count(&[2, 3])), In(count(&[1, 6]))];
        let nodes = vec![
            node("Reshape", &["x0", "x1"], &["r"], &[]),
            node(then[0], &[then[1], then[2]], &["y"], &[]),
        ];
        model(17, &args, nodes, &["y"])
    };
    let cases = [
        ([1, -1].as_slice(), ["Add", "x3", "r"], floats(&[1, 6], &[0., 2., 4., 6., 8., 10.])),
        (&[3, -1], ["MatMul", "x2", "r"], floats(&[2, 2], &[10., 13., 28., 40.])),
    ];
    for (shape, then, expected) in cases {
        let (raw, feeds) = reshaped(shape, then);
        let imported = import(raw.clone(), library()).expect("it is imported");
        let is_one = [("batch".to_string(), "1".to_string())];
        assert_eq!(imported.assumed, if then[0] == "Add" { &is_one[..] } else { &[] });
        check_at(&[17], raw, &feeds, &[expected]);
    }
    let (raw, _) = reshaped(&[-1, 3], ["MatMul", "x2", "r"]);
    let imported = import(raw, library()).expect_err("three rows are no multiple of two");
    assert!(imported.to_string().contains("axis `k` is 3 and 2*batch"), "{imported}");
}

#[test]
fn one_node_writes_what_one_node_read() {
    let count_nodes = |raw: RawModel, opset: i64| {
        let Imported { program, model, .. } = import(raw, library()).expect("it is imported");
        let out = export(&program, library(), &model, opset).expect("it is exported").graph;
        out.nodes.iter().map(|n| n.op_type.clone()).collect::<Vec<_>>()
    };
    let bias = Const(floats(&[2], &[1.0, 2.0]));
    let weight = Const(count(&[2, 1, 2, 2]));
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
        "the Reshape node that defines `y0`: its input `to` has elements that are not known before the model runs",
    );
    refuse(
        17,
        "Reshape",
        &[x(), Const(ints(&[1], &[7]))],
        &[],
        "the Reshape node that defines `y0`: `reshape` needs `product(shape) == product(|a|)`, which does not hold here",
    );
    refuse(
        17,
        "Pad",
        &[x(), Const(ints(&[4], &[1, 1, 1, 1]))],
        &[("mode", RawAttr::from("other"))],
        "the Pad node that defines `y0`: padding of this `mode` is not supported",
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
        single(17, "AveragePool", &[In(count(&[1, 1, 4]))], &[("kernel_shape", list(&[2]))], 2);
    let e = import(raw, library()).expect_err("there is one result");
    assert_eq!(
        e.to_string(),
        "the AveragePool node that defines `y0`: its output 1 (`y1`) is not supported"
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

#[test]
fn one_bound_is_written_so_that_infinities_stay() {
    // ONNX Runtime takes the largest number for a bound of `Clip` that is left out.
    for (op, given) in [("Max", 1), ("Min", 2)] {
        let x = floats(&[3], &[f64::INFINITY, f64::NEG_INFINITY, 1.0]);
        let (raw, feeds) = single(17, op, &[Sym(x, &["n"]), Const(floats(&[], &[0.5]))], &[], 1);
        let Imported { program, model, .. } = import(raw.clone(), library()).expect("imported");
        let out = export(&program, library(), &model, 17).expect("exported").graph;
        let [n] = out.nodes.as_slice() else { panic!("{:?}", out.nodes) };
        assert_eq!((n.op_type.as_str(), n.inputs.len()), ("Clip", 3), "{:?}", n.inputs);
        let open = &out.initializers[&n.inputs[3 - given]];
        assert!(open.to_f64()[0].is_infinite(), "{open:?}");
        let low = [[f64::INFINITY, 0.5, 1.0], [0.5, f64::NEG_INFINITY, 0.5]][given - 1];
        check_at(&[11, 17, 23], raw, &feeds, &[floats(&[3], &low)]);
    }
}
