//! Loops, sequences, and what only a run decides.

mod branches;
mod decided;
mod optimised_runs;
mod runs_in_parts;
mod scans;

use super::support::*;
use mlc_onnx::import_with_values;
use mlc_onnx::{
    Container, ImportStage, KnownValues, PartialImport, import_and_cut, import_with_opaque_nodes,
};
use mlc_rewrite::{Model, Optimizer};

fn named(name: &str, dtype: DType) -> RawValueInfo {
    RawValueInfo { name: name.into(), dtype: Some(dtype), ..RawValueInfo::default() }
}

fn body(inputs: &[&str], nodes: Vec<RawNode>, outputs: &[&str]) -> RawAttr {
    let value = |n: &&str| RawValueInfo { name: n.to_string(), ..RawValueInfo::default() };
    RawAttr::Graph(Box::new(RawGraph {
        inputs: inputs.iter().map(value).collect(),
        outputs: outputs.iter().map(value).collect(),
        nodes,
        ..RawGraph::default()
    }))
}

/// `s` is doubled each time, and each state is an element of the second result.
fn doubling(inputs: &[&str], go_on: RawNode) -> RawNode {
    let nodes = vec![go_on, node("Add", &["s", "s"], &["t"], &[])];
    let graph = body(&["i", "go", "s"], nodes, &["go_on", "t", "s"]);
    node("Loop", inputs, &["last", "all"], &[("body", graph)])
}

fn always() -> RawNode {
    node("Identity", &["go"], &["go_on"], &[])
}

fn imported(raw: &RawModel) -> Program {
    import(raw.clone(), library()).expect("it is imported").program
}

#[test]
fn a_loop_is_its_body_as_often_as_it_runs() {
    let x = || In(floats(&[2], &[1.0, 3.0]));
    for (trips, last, all) in [(2, [4.0, 12.0], vec![1.0, 3.0, 2.0, 6.0]), (0, [1.0, 3.0], vec![])]
    {
        let args = [x(), Const(ints(&[], &[trips]))];
        let nodes = vec![doubling(&["x1", "", "x0"], always())];
        let (raw, feeds) = model(17, &args, nodes, &["last", "all"]);
        let found = run(&imported(&raw), &feeds);
        same(&found[0], &floats(&[2], &last), "state");
        same(&found[1], &floats(&[trips as usize, 2], &all), "all states");
    }
    // A condition that follows from the number of the repetition ends it.
    let args =
        [x(), Const(ints(&[], &[i64::MAX])), Const(bools(&[], &[1])), Const(ints(&[], &[2]))];
    let nodes = vec![doubling(&["x1", "x2", "x0"], node("Less", &["i", "x3"], &["go_on"], &[]))];
    let (raw, feeds) = model(17, &args, nodes, &["last", "all"]);
    same(&run(&imported(&raw), &feeds)[0], &floats(&[2], &[8.0, 24.0]), "ended");
}

#[test]
fn a_loop_without_end_is_kept_or_refused() {
    for inputs in [["x1", "", "x0"], ["x1", "x2", "x0"]] {
        let args =
            [In(floats(&[2], &[1.0, 3.0])), Const(ints(&[], &[1 << 60])), Const(bools(&[], &[1]))];
        let (raw, _) = model(17, &args, vec![doubling(&inputs, always())], &["last", "all"]);
        let error = import(raw.clone(), library()).expect_err("too many nodes").to_string();
        assert!(error.contains("Loop") && error.contains("more than 16384 nodes"), "{error}");
        let kept =
            import_with_opaque_nodes(raw, library(), &Default::default(), Default::default())
                .expect("it is kept");
        assert_eq!(kept.model.opaque.nodes.len(), 1);
    }
}

#[test]
fn a_scan_goes_along_any_axis_in_either_direction() {
    let nodes = vec![node("Add", &["s", "e"], &["t"], &[])];
    let graph = body(&["s", "e"], nodes, &["t", "t"]);
    let attrs = [
        ("body", graph),
        ("num_scan_inputs", int(1)),
        ("scan_input_axes", list(&[-1])),
        ("scan_input_directions", list(&[1])),
        ("scan_output_axes", list(&[1])),
        ("scan_output_directions", list(&[1])),
    ];
    let scan = node("Scan", &["x0", "x1"], &["last", "all"], &attrs);
    let args = [In(floats(&[2], &[0.0, 0.0])), In(count(&[2, 3]))];
    let (raw, feeds) = model(17, &args, vec![scan], &["last", "all"]);
    let found = run(&imported(&raw), &feeds);
    same(&found[0], &floats(&[2], &[3.0, 12.0]), "state");
    same(&found[1], &floats(&[2, 3], &[3.0, 3.0, 2.0, 12.0, 9.0, 5.0]), "all states");
}

#[test]
fn the_sequences_of_a_batch_end_where_their_lengths_say() {
    let nodes = vec![node("Add", &["s", "e"], &["t"], &[])];
    let graph = body(&["s", "e"], nodes, &["t", "t"]);
    let run_over = |lengths: &[i64], directions: i64| {
        let attrs = [
            ("body", graph.clone()),
            ("num_scan_inputs", int(1)),
            ("directions", list(&[directions])),
        ];
        let scan = node("Scan", &["x0", "x1", "x2"], &["last", "all"], &attrs);
        let args = [Const(ints(&[2], lengths)), In(floats(&[2], &[0.0, 10.0])), In(count(&[2, 3]))];
        let (raw, feeds) = model(8, &args, vec![scan], &["last", "all"]);
        import(raw, library()).map(|i| run(&i.program, &feeds)).map_err(|e| e.to_string())
    };
    for (lengths, directions, last, all) in [
        ([2, 3], 0, [1.0, 22.0], [0.0, 1.0, 0.0, 13.0, 17.0, 22.0]),
        ([2, 0], 1, [1.0, 10.0], [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
    ] {
        let found = run_over(&lengths, directions).expect("it is read");
        same(&found[0], &floats(&[2], &last), "state");
        same(&found[1], &floats(&[2, 3], &all), "all states");
    }
    let e = run_over(&[4, 1], 0).expect_err("too long");
    assert!(e.contains("its lengths are longer than its sequences"), "{e}");
}

#[test]
fn sequences_are_the_tensors_that_they_hold() {
    let nodes = vec![
        node("SplitToSequence", &["x0", "x1"], &["parts"], &[]),
        node("SequenceAt", &["parts", "x2"], &["part"], &[]),
        node("SequenceInsert", &["parts", "part"], &["more"], &[]),
        node("SequenceErase", &["more", "x2"], &["fewer"], &[]),
        node("SequenceLength", &["more"], &["n"], &[]),
        node("ConcatFromSequence", &["fewer"], &["y"], &[("axis", int(0))]),
    ];
    let args = [In(count(&[5])), Const(ints(&[], &[2])), Const(ints(&[], &[-2]))];
    let (raw, feeds) = model(17, &args, nodes, &["y", "n", "more"]);
    let program = imported(&raw);
    let names: Vec<&str> = program.outputs.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["y", "n", "more[0]", "more[1]", "more[2]", "more[3]"]);
    let found = run(&program, &feeds);
    same(&found[0], &floats(&[6], &[0.0, 1.0, 2.0, 3.0, 2.0, 3.0]), "joined");
    same(&found[1], &ints(&[], &[4]), "length");
}

#[test]
fn what_makes_and_reads_sequences_of_unknown_length_is_kept() {
    let nodes = vec![
        node("Relu", &["x0"], &["r"], &[]),
        node("Relu", &["r"], &["rr"], &[]),
        node("SequenceConstruct", &["rr"], &["own"], &[]),
        node("SequenceAt", &["own", "x1"], &["first"], &[]),
        node("SequenceInsert", &["given", "first"], &["out"], &[]),
    ];
    let args = [In(count(&[2])), Const(ints(&[], &[0]))];
    let (mut raw, _) = model(17, &args, nodes, &["out", "own"]);
    let in_list = |name: &str| RawValueInfo {
        containers: vec![Container::Sequence],
        ..named(name, DType::F32)
    };
    raw.graph.inputs.insert(0, in_list("given"));
    raw.graph.outputs = vec![in_list("out"), in_list("own")];
    let bytes = mlc_onnx::to_bytes(&raw).expect("written");
    let model = Model::from_bytes(bytes).expect("it loads");
    let one = |v: f64| mlc_rewrite::AnyArray::from(floats(&[2], &[v, -v]));
    let session = model.session().expect("runs decide the rest");
    let outputs = session.run([("given[0]", one(5.0)), ("x0", one(1.0))]).expect("it runs");
    let names: Vec<&str> = outputs.names().collect();
    assert_eq!(names, ["out[0]", "out[1]", "own[0]"]);
    assert_eq!(outputs["out[1]"].tensor().to_f64(), [1.0, 0.0]);
    let result = Optimizer::new().target("standard").optimize(&model).expect("it is optimised");
    let bytes = result.to_bytes().expect("written");
    let out = mlc_onnx::parse_onnx(bytes.into(), None).expect("it reads back");
    let operators: Vec<&str> = out.graph.nodes.iter().map(|n| n.op_type.as_str()).collect();
    assert_eq!(operators, ["Relu", "SequenceConstruct", "SequenceInsert"]);
    let names: Vec<&str> = out.graph.inputs.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names, ["given", "x0"]);
    assert_eq!(out.graph.inputs[0].containers, [Container::Sequence]);
    assert_eq!(out.graph.outputs[1].containers, [Container::Sequence]);
}

/// The model imported for these inputs, and the number of values that were computed first.
fn staged(raw: &RawModel, feeds: &[Tensor]) -> (Program, usize) {
    let mut answers = KnownValues::default();
    for stages in 0..100 {
        match import_with_values(raw, library(), &answers).expect("it is imported") {
            ImportStage::Done(imported) => return (imported.program, stages),
            ImportStage::NeedsValues(asked) => {
                answers.add(&asked.requests, run(&asked.program, feeds));
            }
        }
    }
    panic!("it never ends")
}

#[test]
fn a_run_decides_how_many_elements_there_are() {
    let nodes = vec![
        node("Mul", &["x0", "x1"], &["product"], &[]),
        node("NonZero", &["product"], &["places"], &[]),
        node("Gather", &["x0", "places"], &["y"], &[]),
    ];
    let args =
        [In(floats(&[4], &[5.0, 6.0, 7.0, 8.0])), In(floats(&[4], &[1.0, 0.0, f64::NAN, -1.0]))];
    let (raw, feeds) = model(17, &args, nodes, &["places", "y"]);
    let (program, stages) = staged(&raw, &feeds);
    let found = run(&program, &feeds);
    same(&found[0], &ints(&[1, 3], &[0, 2, 3]), "places");
    same(&found[1], &floats(&[1, 3], &[5.0, 7.0, 8.0]), "elements");
    assert_eq!(stages, 1);
    let kept =
        import_with_opaque_nodes(raw.clone(), library(), &Default::default(), Default::default())
            .expect("it loads");
    assert_eq!(kept.model.opaque.nodes[0].0.op_type, "NonZero");
    let error = import(raw, library()).expect_err("it is not known");
    assert!(matches!(error, ImportError::Undecided { .. }), "{error}");
}

#[test]
fn a_run_decides_how_often_a_loop_runs() {
    // The number is the sum of the first input, and the condition ends it where the state is large.
    let nodes = vec![
        node("Add", &["s", "s"], &["t"], &[]),
        node("ReduceMax", &["t"], &["top"], &[("keepdims", int(0))]),
        node("Less", &["top", "x2"], &["go_on"], &[]),
    ];
    let graph = body(&["i", "go", "s"], nodes, &["go_on", "t"]);
    let looped = |inputs: &[&str]| node("Loop", inputs, &["last"], &[("body", graph.clone())]);
    let args = [
        In(floats(&[2], &[1.0, 2.0])),
        In(floats(&[2], &[1.0, 3.0])),
        Const(floats(&[], &[20.0])),
        Const(bools(&[], &[1])),
    ];
    let count_nodes = || {
        vec![
            node("ReduceSum", &["x0"], &["sum"], &[("keepdims", int(0))]),
            node("Cast", &["sum"], &["trips"], &[("to", int(7))]),
        ]
    };
    let mut nodes = count_nodes();
    nodes.push(looped(&["trips", "", "x1"]));
    let (raw, feeds) = model(17, &args, nodes, &["last"]);
    let (program, stages) = staged(&raw, &feeds);
    same(&run(&program, &feeds)[0], &floats(&[2], &[8.0, 24.0]), "counted");
    assert_eq!(stages, 1);
    let error = import(raw, library()).expect_err("it is not known").to_string();
    assert!(error.contains("`trips` decides it"), "{error}");
    let (raw, feeds) = model(17, &args, vec![looped(&["", "x3", "x1"])], &["last"]);
    let (program, stages) = staged(&raw, &feeds);
    same(&run(&program, &feeds)[0], &floats(&[2], &[8.0, 24.0]), "while");
    assert_eq!(stages, 3);
}

#[test]
fn a_session_follows_the_data_of_each_run() {
    let nodes = vec![
        node("Mul", &["x0", "x0"], &["square"], &[]),
        node("NonZero", &["square"], &["places"], &[]),
    ];
    let (mut raw, _) = model(17, &[Sym(count(&[3]), &["n"])], nodes, &["places"]);
    raw.graph.outputs[0].dtype = Some(DType::I64);
    let model = Model::from_bytes(mlc_onnx::to_bytes(&raw).expect("written")).expect("it loads");
    let session = model.session().expect("runs decide the rest");
    let runs: [(&[f64], &[i64]); 4] = [
        (&[0.0, 1.0, 2.0], &[1, 2]),
        (&[1.0, 0.0, 0.0], &[0]),
        (&[3.0, 0.0, 5.0], &[0, 2]),
        (&[0.0, 0.0, 0.0, 7.0], &[3]),
    ];
    for (x, places) in runs.into_iter().chain(runs) {
        let outputs = session.run([("x0", floats(&[x.len()], x))]).expect("it runs");
        same(outputs["places"].tensor(), &ints(&[1, places.len()], places), "places");
    }
    let error = session.run([("x0", ints(&[1], &[1]))]).expect_err("another element type");
    assert!(error.to_string().contains("expected f32"), "{error}");
    session.run::<&str, Tensor>([]).expect_err("an input is missing");
}

/// Before a node that asks, a model is cut: tensors pass, what makes a sequence stays with the rest.
#[test]
fn what_comes_before_a_question_is_computed_once() {
    let nodes = vec![
        node("Mul", &["x0", "x1"], &["product"], &[]),
        node("Relu", &["product"], &["early"], &[]),
        node("SequenceConstruct", &["product", "x0"], &["list"], &[]),
        node("Shape", &["product"], &["shape"], &[]),
        node("NonZero", &["product"], &["places"], &[]),
        node("Shape", &["places"], &["found"], &[]),
        node("Slice", &["found", "x3", "x4"], &["row"], &[]),
        node("ReduceMax", &["row"], &["which"], &[("keepdims", int(0))]),
        node("Sub", &["which", "x2"], &["one"], &[]),
        node("SequenceAt", &["list", "one"], &["at"], &[]),
        node("Expand", &["at", "shape"], &["wide"], &[]),
        node("NonZero", &["wide"], &["more"], &[]),
    ];
    let (x, y) = (floats(&[4], &[5.0, 6.0, 0.0, 8.0]), floats(&[4], &[1.0, 0.0, 3.0, -1.0]));
    let args = [
        In(x.clone()),
        In(y.clone()),
        Const(ints(&[], &[1])),
        Const(ints(&[1], &[1])),
        Const(ints(&[1], &[2])),
    ];
    let (raw, _) = model(17, &args, nodes, &["early", "places", "more"]);
    let PartialImport::Cut(cut) =
        import_and_cut(&raw, library(), &KnownValues::default()).expect("it is read")
    else {
        panic!("`NonZero` asks")
    };
    let passed: Vec<&str> = cut.program.outputs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((&passed[..cut.passed], passed.len()), (&["early", "product"][..], 3));
    let rest: Vec<&str> = cut.rest.graph.nodes.iter().map(|n| n.op_type.as_str()).collect();
    assert_eq!((rest[0], rest[1], rest.len()), ("SequenceConstruct", "NonZero", 9));
    let read: Vec<&str> = cut.rest.graph.inputs.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(read, ["x0", "early", "product"]);
    let known: Vec<&String> = cut.rest.graph.initializers.keys().collect();
    assert_eq!(known, ["x2", "x3", "x4", "shape"]);
    let loaded = Model::from_bytes(mlc_onnx::to_bytes(&raw).expect("written")).expect("it loads");
    let optimised = Optimizer::new().optimize(&loaded).expect("it is optimised");
    for session in [loaded.session(), optimised.session()] {
        let session = session.expect("runs decide the rest");
        for _ in 0..2 {
            let given = [("x0", x.clone()), ("x1", y.clone())];
            let outputs = session.run(given.clone()).expect("it runs");
            same(outputs["early"].tensor(), &floats(&[4], &[5.0, 0.0, 0.0, 0.0]), "early");
            same(outputs["places"].tensor(), &ints(&[1, 2], &[0, 3]), "places");
            same(outputs["more"].tensor(), &ints(&[1, 3], &[0, 1, 3]), "more");
            let unknown = given.into_iter().chain([("x9", x.clone())]);
            let error = session.run(unknown).expect_err("there is no such input");
            assert!(error.to_string().contains("`x9`"), "{error}");
        }
        let error = session.run([("x0", x.clone())]).expect_err("an input is missing");
        assert!(error.to_string().contains("`x1`"), "{error}");
    }
}

#[test]
fn distinct_elements_and_chosen_boxes() {
    let x = In(floats(&[6], &[2.0, 1.0, 1.0, f64::NAN, 4.0, f64::NAN]));
    let (raw, feeds) = single(17, "Unique", &[x], &[("sorted", int(0))], 4);
    let found = run(&staged(&raw, &feeds).0, &feeds);
    same(&found[0], &floats(&[4], &[2.0, 1.0, f64::NAN, 4.0]), "elements");
    same(&found[1], &ints(&[4], &[0, 1, 3, 4]), "places");
    same(&found[2], &ints(&[6], &[0, 1, 1, 2, 3, 2]), "kinds");
    same(&found[3], &ints(&[4], &[1, 2, 2, 1]), "counts");
    let boxes =
        In(floats(&[1, 3, 4], &[0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.1, 5.0, 5.0, 6.0, 6.0]));
    let scores = In(floats(&[1, 2, 3], &[0.5, 0.9, 0.1, 0.5, 0.5, 0.7]));
    let args = [
        boxes,
        scores,
        Const(ints(&[1], &[2])),
        Const(floats(&[1], &[0.5])),
        Const(floats(&[1], &[0.2])),
    ];
    let (raw, feeds) = single(17, "NonMaxSuppression", &args, &[], 1);
    let found = run(&staged(&raw, &feeds).0, &feeds);
    same(&found[0], &ints(&[3, 3], &[0, 0, 1, 0, 1, 2, 0, 1, 0]), "chosen");
}
