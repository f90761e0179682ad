//! What only the data of a run decide, in the middle of a model: `optimize` keeps the node, and optimises what is before it,
//! behind it and in its bodies.

use super::super::support::*;
use mlc_rewrite::{AnyArray, Model, Optimizer};

fn value(name: &str, dtype: DType) -> RawValueInfo {
    RawValueInfo { name: name.into(), dtype: Some(dtype), ..RawValueInfo::default() }
}

/// Two transpositions that cancel and two rectifiers that are one: what is optimised is `Relu`.
fn detour(x: &str, y: &str) -> Vec<RawNode> {
    let perm = || [("perm", list(&[1, 0]))];
    let at = |s: &str| format!("{y}_{s}");
    vec![
        node("Transpose", &[x], &[&at("a")], &perm()),
        node("Transpose", &[&at("a")], &[&at("b")], &perm()),
        node("Relu", &[&at("b")], &[&at("c")], &[]),
        node("Relu", &[&at("c")], &[y], &[]),
    ]
}

fn graph(inputs: Vec<RawValueInfo>, nodes: Vec<RawNode>, outputs: Vec<RawValueInfo>) -> RawAttr {
    RawAttr::Graph(Box::new(RawGraph { inputs, nodes, outputs, ..RawGraph::default() }))
}

fn operators(graph: &RawGraph) -> Vec<String> {
    let one = |n: &RawNode| {
        let bodies = n.attrs.values().flat_map(RawAttr::graphs);
        let bodies: Vec<String> = bodies.map(|g| format!("[{}]", operators(g).join(" "))).collect();
        format!("{}{}", n.op_type, bodies.join(""))
    };
    graph.nodes.iter().map(one).collect()
}

/// Optimises, compares the operators with what is expected, and the results of runs with those of the model.
#[track_caller]
fn optimizes(raw: &RawModel, inputs: &[Vec<Tensor>], expected: &str) -> RawModel {
    let out = optimized(raw, inputs);
    assert_eq!(operators(&out.graph).join(" "), expected);
    out
}

/// Optimises, and compares the results of runs with those of the model.
#[track_caller]
pub fn optimized(raw: &RawModel, inputs: &[Vec<Tensor>]) -> RawModel {
    optimized_for("standard", raw, inputs)
}

#[track_caller]
fn optimized_for(target: &str, raw: &RawModel, inputs: &[Vec<Tensor>]) -> RawModel {
    let read = |raw: &RawModel| {
        let bytes = mlc_onnx::to_bytes(raw).expect("written");
        Model::from_bytes(bytes).expect("it loads")
    };
    let model = read(raw);
    let result = Optimizer::new().target(target).optimize(&model).expect("it is optimised");
    let bytes = result.to_bytes().expect("written");
    let out = mlc_onnx::parse_onnx(bytes.into(), None).expect("it reads back");
    let sessions = [raw, &out].map(|raw| read(raw).session().expect("it runs"));
    for given in inputs {
        let names = raw.graph.inputs.iter().map(|i| i.name.clone());
        let named: Vec<(String, AnyArray)> =
            names.zip(given.iter().cloned().map(AnyArray::from)).collect();
        let [a, b] = sessions.each_ref().map(|s| s.run(named.clone()).expect("it runs"));
        for name in a.names() {
            same(b[name].tensor(), a[name].tensor(), name);
        }
    }
    out
}

fn rows(n: usize) -> Tensor {
    let v: Vec<f64> = (0..n * 3).map(|i| ((i * 7 + 3) % 11) as f64 - 5.0).collect();
    floats(&[n, 3], &v)
}

#[test]
fn behind_a_result_of_unknown_extent_all_is_optimised() {
    let of = |middle: Vec<RawNode>, more: Vec<Arg>, behind: &str| {
        let nodes = detour("x0", "h").into_iter().chain(middle).chain(detour(behind, "y"));
        let args: Vec<Arg> = [Sym(rows(4), &["n", ""])].into_iter().chain(more).collect();
        let (mut raw, _) = model(20, &args, nodes.collect(), &["y"]);
        raw.graph.outputs[0] = RawValueInfo {
            dims: Some(vec![RawDim::Symbol("found".into()), RawDim::Known(3)]),
            ..value("y", DType::F32)
        };
        raw
    };
    let column = || Const(ints(&[1], &[0]));
    let sum = || node("ReduceSum", &["h", "x1"], &["s"], &[("keepdims", int(0))]);
    let axis = || [("axis", int(0))];
    let cases: Vec<(RawModel, &str)> = vec![
        (
            of(
                vec![
                    sum(),
                    node("NonZero", &["s"], &["at"], &[]),
                    node("Squeeze", &["at", "x2"], &["i"], &[]),
                    node("Gather", &["h", "i"], &["u"], &axis()),
                ],
                vec![Const(ints(&[1], &[1])), column()],
                "u",
            ),
            "Relu ReduceSum NonZero Reshape Gather",
        ),
        (
            // Two results whose extents are one number.
            of(
                vec![
                    node("Compress", &["h", "x1"], &["p"], &axis()),
                    node("Compress", &["x0", "x1"], &["q"], &axis()),
                    node("Add", &["p", "q"], &["u"], &[]),
                ],
                vec![Sym(bools(&[4], &[1, 0, 1, 1]), &["n"])],
                "u",
            ),
            "Relu Compress Compress Add Relu",
        ),
        (
            of(
                vec![
                    node("Range", &["x1", "x2", "x3"], &["i"], &[]),
                    node("Gather", &["h", "i"], &["u"], &axis()),
                ],
                vec![Const(ints(&[], &[1])), In(ints(&[], &[3])), Const(ints(&[], &[1]))],
                "u",
            ),
            "Relu Range Gather",
        ),
        (
            of(
                vec![node("Slice", &["h", "x1", "x2"], &["u"], &[])],
                vec![In(ints(&[1], &[-3])), In(ints(&[1], &[i64::MAX]))],
                "u",
            ),
            "Relu Slice Relu",
        ),
    ];
    for (raw, expected) in cases {
        let more = |i: &RawValueInfo| match (i.dtype, i.name.as_str()) {
            (Some(DType::Bool), _) => bools(&[4], &[0, 1, 1, 0]),
            (_, "x1") => ints(&[1], &[-3]),
            (_, "x2") if i.dims == Some(vec![]) => ints(&[], &[4]),
            _ => ints(&[1], &[i64::MAX]),
        };
        let given = raw.graph.inputs.iter().skip(1).map(more);
        let given: Vec<Tensor> = [rows(4)].into_iter().chain(given).collect();
        let out = optimizes(&raw, &[given], expected);
        // Extents keep the model's names.
        assert_eq!(out.graph.outputs[0].dims, raw.graph.outputs[0].dims);
    }
}

/// Extents that only a run knows are not taken for equal, nor for numbers; a model that needs them to be is kept.
#[test]
fn extents_of_runs_that_need_not_be_equal_stay_apart() {
    let axis = [("axis", int(0))];
    let nodes = vec![
        node("Compress", &["x0", "x1"], &["p"], &axis),
        node("Compress", &["x0", "x2"], &["q"], &axis),
        node("Add", &["p", "q"], &["u"], &[]),
        node("Relu", &["u"], &["v"], &[]),
        node("Add", &["p", "x3"], &["w"], &[]),
    ];
    let conditions = || In(bools(&[4], &[1, 0, 1, 1]));
    let args = [In(rows(4)), conditions(), conditions(), Const(count(&[2, 3]))];
    let (raw, _) = model(20, &args, nodes, &["v", "w"]);
    let two = || bools(&[4], &[1, 0, 0, 1]);
    let runs = [vec![rows(4), two(), two()], vec![rows(4), two(), bools(&[4], &[0, 1, 0, 0])]];
    optimizes(&raw, &runs, "Compress Add Compress Add Relu");
}

/// A count of results that is computed of another one is written before the node that yields as many.
#[test]
fn a_node_is_not_asked_for_the_extent_that_it_needs() {
    let axis = [("axis", int(0))];
    let shape = [("start", int(0)), ("end", int(1))];
    let nodes = vec![
        node("Compress", &["x0", "x1"], &["p"], &axis),
        node("ReduceSum", &["p", "x2"], &["s"], &[("keepdims", int(0))]),
        node("Shape", &["s"], &["found"], &shape),
        node("Min", &["found", "x3"], &["k"], &[]),
        node("TopK", &["s", "k"], &["best", "at"], &[]),
        node("Gather", &["p", "at"], &["u"], &axis),
        node("Relu", &["u"], &["y"], &[]),
    ];
    let conditions = In(bools(&[4], &[1, 0, 1, 1]));
    let args = [In(rows(4)), conditions, Const(ints(&[1], &[1])), Const(ints(&[1], &[2]))];
    let (raw, _) = model(20, &args, nodes, &["y"]);
    let runs = [vec![1, 0, 1, 1], vec![0, 1, 0, 0], vec![0; 4]];
    let runs = runs.map(|c| vec![rows(4), bools(&[4], &c)]);
    optimizes(&raw, &runs, "Compress Shape Min ReduceSum TopK Gather Relu");
}

fn repeated(nodes: Vec<RawNode>, states: &[(&str, &str)], made: &[&str]) -> RawAttr {
    let mut inputs = vec![value("i", DType::I64), value("go", DType::Bool)];
    inputs.extend(states.iter().map(|(s, _)| value(s, DType::F32)));
    let mut outputs = vec![value("go_on", DType::Bool)];
    outputs.extend(states.iter().map(|(_, s)| s).chain(made).map(|s| value(s, DType::F32)));
    let go_on = node("Identity", &["go"], &["go_on"], &[]);
    graph(inputs, [vec![go_on], nodes].concat(), outputs)
}

#[test]
fn the_body_of_a_loop_is_optimised_and_what_does_not_change_moves_out_of_it() {
    let inside = [
        detour("c", "k"),
        detour("s", "r"),
        vec![node("Mul", &["r", "k"], &["t"], &[]), node("Add", &["t", "k"], &["made"], &[])],
    ]
    .concat();
    let body = repeated(inside, &[("s", "t")], &["made"]);
    let nodes = [
        vec![node("Neg", &["x0"], &["c"], &[])],
        vec![node("Loop", &["x1", "", "x0"], &["last", "all"], &[("body", body)])],
        detour("last", "y"),
        vec![node("ReduceSum", &["all", "x2"], &["z"], &[])],
    ]
    .concat();
    let args = [Sym(rows(4), &["n", ""]), In(ints(&[], &[2])), Const(ints(&[1], &[0]))];
    let (raw, _) = model(17, &args, nodes, &["y", "z"]);
    let runs = [2, 0, 1].map(|n| vec![rows(4), ints(&[], &[n])]);
    let out = optimizes(&raw, &runs, "Neg Relu Loop[Identity Relu Mul Add] Relu ReduceSum");
    let looped = out.graph.nodes.iter().find(|n| n.op_type == "Loop").expect("it is kept");
    let body = looped.attrs["body"].graphs();
    assert_eq!(body[0].outputs[1].name, "t");
}

#[test]
fn a_state_that_grows_has_an_open_extent() {
    let inside =
        [vec![node("Concat", &["s", "x0"], &["j"], &[("axis", int(0))])], detour("j", "t")];
    let body = repeated(inside.concat(), &[("s", "t")], &[]);
    let looped = vec![node("Loop", &["x1", "", "x0"], &["last"], &[("body", body)])];
    let nodes = [looped, detour("last", "y")].concat();
    let (raw, _) = model(17, &[Sym(rows(4), &["n", ""]), In(ints(&[], &[2]))], nodes, &["y"]);
    let runs = [2, 0].map(|n| vec![rows(4), ints(&[], &[n])]);
    optimizes(&raw, &runs, "Loop[Identity Concat Relu] Relu");
}

#[test]
fn both_branches_and_what_follows_are_optimised() {
    let branch = |nodes, result: &str| graph(vec![], nodes, vec![value(result, DType::F32)]);
    let other = [vec![node("Neg", &["x0"], &["n"], &[])], detour("n", "b")].concat();
    let attrs =
        [("then_branch", branch(detour("x0", "a"), "a")), ("else_branch", branch(other, "b"))];
    let nodes = [vec![node("If", &["x1"], &["u"], &attrs)], detour("u", "y")].concat();
    let (raw, _) = model(17, &[Sym(rows(4), &["n", ""]), In(bools(&[], &[1]))], nodes, &["y"]);
    let runs = [1, 0].map(|n| vec![rows(4), bools(&[], &[n])]);
    optimizes(&raw, &runs, "If[Relu][Neg Relu] Relu");
}

/// A scan over `x0` from `x1` on, whose steps rectify a sum, and a detour behind it.
fn rectified_sums() -> Vec<RawNode> {
    let inside = [
        vec![node("Add", &["s", "e"], &["j"], &[]), node("Relu", &["j"], &["j2"], &[])],
        vec![node("Relu", &["j2"], &["t"], &[]), node("Identity", &["t"], &["made"], &[])],
    ];
    let inputs = vec![value("s", DType::F32), value("e", DType::F32)];
    let outputs = vec![value("t", DType::F32), value("made", DType::F32)];
    let attrs = [("body", graph(inputs, inside.concat(), outputs)), ("num_scan_inputs", int(1))];
    [vec![node("Scan", &["x1", "x0"], &["last", "all"], &attrs)], detour("all", "y")].concat()
}

#[test]
fn a_scan_over_a_sequence_of_any_length_is_typed_and_optimised() {
    let args = [Sym(rows(4), &["n", ""]), In(floats(&[3], &[0.5, -1.0, 2.0]))];
    let (raw, _) = model(17, &args, rectified_sums(), &["y", "last"]);
    let start = || floats(&[3], &[0.5, -1.0, 2.0]);
    let runs = [4, 2].map(|n| vec![rows(n), start()]);
    optimizes(&raw, &runs, "Scan[Add Relu Identity] Relu");
}

#[test]
fn a_body_of_a_runtimes_own_operators_is_of_its_domain_and_has_typed_results() {
    let perm = [("perm", list(&[1, 0]))];
    let inside = vec![
        node("Transpose", &["s"], &["a"], &perm),
        node("MatMul", &["a", "e"], &["b"], &[]),
        node("Mul", &["b", "half"], &["t"], &[]),
        node("Identity", &["t"], &["made"], &[]),
    ];
    let untyped = |n: &&str| RawValueInfo { name: (*n).into(), ..RawValueInfo::default() };
    let initializers = [("half".to_string(), floats(&[], &[0.5]))].into_iter().collect();
    let body = RawAttr::Graph(Box::new(RawGraph {
        inputs: ["s", "e"].iter().map(untyped).collect(),
        outputs: ["t", "made"].iter().map(untyped).collect(),
        nodes: inside,
        initializers,
        ..RawGraph::default()
    }));
    let attrs = [("body", body), ("num_scan_inputs", int(1))];
    let nodes = vec![node("Scan", &["x1", "x0"], &["last", "all"], &attrs)];
    let start = || floats(&[3, 3], &[0.5, -1.0, 2.0, 1.0, 0.0, 1.5, -0.5, 1.0, 1.0]);
    let sequence = |n: usize| floats(&[n, 3, 3], &rows(3 * n).to_f64());
    let args = [Sym(sequence(2), &["n", "", ""]), In(start())];
    let (raw, _) = model(17, &args, nodes, &["all", "last"]);
    let runs = [2, 3].map(|n| vec![sequence(n), start()]);
    let out = optimized_for("onnxruntime", &raw, &runs);
    let graphs = out.graph.nodes.iter().flat_map(|n| n.attrs.values()).flat_map(RawAttr::graphs);
    let graphs: Vec<&RawGraph> = graphs.collect();
    let domains = graphs.iter().flat_map(|g| &g.nodes).map(|n| n.domain.as_str());
    assert!(domains.clone().any(|d| d == "com.microsoft"), "{:?}", operators(&out.graph));
    assert!(domains.clone().all(|d| out.opset_imports.contains_key(d)), "{:?}", out.opset_imports);
    let outputs: Vec<_> = graphs.iter().flat_map(|g| &g.outputs).map(|o| o.dtype).collect();
    assert_eq!(outputs, [Some(DType::F32); 2]);
}

/// A linear resize of `from` to the extents of `x1`.
fn resized(from: &str, to: &str) -> Vec<RawNode> {
    let linear = [("mode", RawAttr::from("linear"))];
    vec![
        node("Shape", &["x1"], &["sizes"], &[]),
        node("Resize", &[from, "", "", "sizes"], &[to], &linear),
    ]
}

#[test]
fn a_resize_to_extents_of_symbols_is_kept_and_all_around_it_is_optimised() {
    let nodes = detour("x0", "h").into_iter().chain(resized("h", "r")).chain(detour("r", "y"));
    let args = [Sym(rows(4), &["n", ""]), Sym(count(&[6, 5]), &["m", "k"])];
    let (mut raw, _) = model(18, &args, nodes.collect(), &["y"]);
    let symbols = ["m", "k"].map(|s| RawDim::Symbol(s.into()));
    raw.graph.value_infos =
        vec![RawValueInfo { dims: Some(symbols.to_vec()), ..value("r", DType::F32) }];
    let given = [vec![rows(4), count(&[6, 5])], vec![rows(2), count(&[2, 3])]];
    let mut left = operators(&optimized(&raw, &given).graph);
    left.sort();
    left.retain(|op| matches!(op.as_str(), "Relu" | "Resize" | "Transpose"));
    assert_eq!(left, ["Relu", "Relu", "Resize"]);
}

#[test]
fn a_resize_leaves_axes_of_symbols_as_they_are() {
    // Exporters write the size of the whole result, the batch included.
    let nodes = vec![
        node("Shape", &["x0"], &["shape"], &[]),
        node("Slice", &["shape", "x1", "x2"], &["batch"], &[]),
        node("Concat", &["batch", "x3"], &["sizes"], &[("axis", int(0))]),
        node("Resize", &["x0", "", "", "sizes"], &["y"], &[("mode", RawAttr::from("linear"))]),
    ];
    let args = [
        Sym(count(&[2, 3]), &["batch", ""]),
        Const(ints(&[1], &[0])),
        Const(ints(&[1], &[1])),
        Const(ints(&[1], &[6])),
    ];
    let (raw, feeds) = model(13, &args, nodes, &["y"]);
    let rows = [[0.0, 0.25, 0.75, 1.25, 1.75, 2.0], [3.0, 3.25, 3.75, 4.25, 4.75, 5.0]];
    check_at(&[], raw, &feeds, &[floats(&[2, 6], &rows.concat())]);
}

#[test]
fn a_loop_of_known_length_stays_one_where_it_would_be_many_nodes() {
    let start = || floats(&[3], &[0.5, -1.0, 2.0]);
    let (raw, _) = model(17, &[In(rows(20)), In(start())], rectified_sums(), &["y", "last"]);
    optimizes(&raw, &[vec![rows(20), start()]], "Scan[Add Relu Identity] Relu");
}
