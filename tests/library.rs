//! The library's entry point: right and wrong uses, values, files, threads.

use mlc_dsl::ir::{Attr, DType, Tensor};
use mlc_onnx::{RawDim, RawGraph, RawModel, RawNode, RawValueInfo, write_onnx};
use mlc_rewrite::ndarray::{Array2, ArrayD, array};
use mlc_rewrite::{
    AnyArray, Device, Error, ErrorKind, ExternalData, Fp, Model, Objective, OptimizedModel,
    Optimizer, Outputs, Reader, Session, Solver,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Two layers whose product may be regrouped, and an activation written out.
const NET: &str = "def net(x: f32[n, 4], w: f32[4, 3], b: f32[3]) -> y: f32[n, 3]\n  \
    = maximum(x @ w * 2.0 * 0.5 + b, 0.0)\n";

/// Two outputs, integers and truth values.
const PARTS: &str = "def parts(x: f32[n, 2], rows: i64[k]) -> picked: f32[k, 2], large: bool[n, 2]\n  \
    = (gather(x, rows, axis=0), less(2.0, x))\n";

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// `y = relu(x * w + b)`, with an open number of rows, as ONNX.
fn dense() -> RawModel {
    let value = |name: &str, columns: u64| RawValueInfo {
        name: name.into(),
        dtype: Some(DType::F32),
        dims: Some(vec![RawDim::Symbol("batch".into()), RawDim::Known(columns)]),
        ..RawValueInfo::default()
    };
    let node = |op: &str, inputs: &[&str], out: &str| RawNode {
        op_type: op.into(),
        inputs: inputs.iter().map(|i| i.to_string()).collect(),
        outputs: vec![out.into()],
        ..RawNode::default()
    };
    let tensor = |shape: &[usize], from: f32| {
        let n = shape.iter().product::<usize>();
        Tensor::from_f32(shape.to_vec(), (0..n).map(|i| (i as f32 * 0.7 + from).sin()).collect())
    };
    let graph = RawGraph {
        name: "dense".into(),
        inputs: vec![value("x", 4)],
        outputs: vec![value("y", 3)],
        initializers: [
            ("w".to_string(), tensor(&[4, 3], 0.3)),
            ("b".to_string(), tensor(&[3], 1.0)),
            ("zero".to_string(), Tensor::from_f32(vec![], vec![0.0])),
        ]
        .into_iter()
        .collect(),
        nodes: vec![
            node("MatMul", &["x", "w"], "h"),
            node("Add", &["h", "b"], "s"),
            node("Add", &["s", "zero"], "t"),
            node("Relu", &["t"], "y"),
        ],
        ..RawGraph::default()
    };
    let opset_imports = [(String::new(), 17)].into();
    RawModel { ir_version: 8, opset_imports, graph, ..RawModel::default() }
}

/// A folder with that model as `dense.onnx`.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    write_onnx(&dense(), dir.path().join("dense.onnx")).expect("written");
    dir
}

fn rows(n: usize) -> Array2<f32> {
    Array2::from_shape_fn((n, 4), |(i, j)| (i as f32 * 1.3 - j as f32 * 0.9).cos() * 2.0)
}

/// The largest difference of two outputs, all of f32.
fn distance(a: &Outputs, b: &Outputs) -> f32 {
    assert!(a.names().eq(b.names()));
    let mut most = 0f32;
    for name in a.names() {
        let (x, y) = (a.array::<f32>(name).expect("f32"), b.array::<f32>(name).expect("f32"));
        assert_eq!(x.shape(), y.shape());
        x.iter().zip(y.iter()).for_each(|(x, y)| most = most.max((x - y).abs()));
    }
    most
}

fn model(text: &str) -> Model {
    Model::from_rules(text).unwrap_or_else(|e| panic!("{e}"))
}

/// The inputs of [`NET`].
fn net_inputs() -> Vec<(&'static str, ArrayD<f32>)> {
    let w = Array2::from_shape_fn((4, 3), |(i, j)| (i * 3 + j) as f32 * 0.1 - 0.4);
    vec![
        ("x", rows(2).into_dyn()),
        ("w", w.into_dyn()),
        ("b", array![0.5f32, -0.5, 0.0].into_dyn()),
    ]
}

#[test]
fn a_model_tells_what_it_takes_and_yields() {
    let dir = folder();
    let onnx = Model::read(dir.path().join("dense.onnx")).expect("reads");
    let infos: Vec<String> =
        onnx.inputs().iter().chain(&onnx.outputs()).map(ToString::to_string).collect();
    assert_eq!(infos, ["x: f32[batch, 4]", "y: f32[batch, 3]"]);
    assert_eq!(onnx.inputs()[0].shape(), [None, Some(4)]);
    assert_eq!((onnx.inputs()[0].name(), onnx.inputs()[0].dtype()), ("x", DType::F32));
    let bytes = std::fs::read(dir.path().join("dense.onnx")).expect("read");
    let same = Model::from_bytes(bytes).expect("reads");
    assert_eq!((same.inputs(), same.text()), (onnx.inputs(), onnx.text()));
    let fixed = Reader::new().shape("batch", &[5]).read(dir.path().join("dense.onnx"));
    assert_eq!(fixed.expect("reads").outputs()[0].shape(), [Some(5), Some(3)]);
    // The number of axes of a segment follows from the shape that is given.
    let text = "def f(x: F[..s, n]) -> F[..s]\n  = sum(n) x\n";
    let of = Reader::new().shape("x", &[2, 3, 4]).from_rules(text).expect("reads");
    assert_eq!(of.outputs()[0].to_string(), "y: f32[2, 3]");
    let y = of.session().expect("a session").run([("x", ArrayD::<f32>::ones(vec![2, 3, 4]))]);
    assert_eq!(
        y.expect("runs").array::<f32>("y").expect("f32"),
        ArrayD::from_elem(vec![2, 3], 4f32)
    );
}

#[test]
fn sessions_yield_what_the_reference_says() {
    let net = model(NET);
    let reference = net.session_on(&Device::reference()).expect("a session");
    let reference = reference.run(net_inputs()).expect("runs");
    let fast = Optimizer::new().optimize(&net).expect("optimises");
    let slow = Optimizer::new().target("reference").optimize(&net).expect("optimises");
    let file = Optimizer::new().target("standard").optimize(&net).expect("optimises");
    for session in [
        net.session(),
        net.session_on(&Device::cpu().threads(2).memory(1 << 30)),
        fast.session(),
        slow.session(),
        file.session(),
        file.session_on(&Device::reference()),
    ] {
        let session = session.expect("a session");
        assert!(distance(&session.run(net_inputs()).expect("runs"), &reference) < 1e-5);
        // Any order, any collection, shared or converted arrays.
        let map: BTreeMap<String, AnyArray> =
            net_inputs().into_iter().rev().map(|(n, a)| (n.to_string(), a.into())).collect();
        let again = session.run(&map).expect("runs");
        assert_eq!(again, session.run(map).expect("runs"));
        let kept = session.allocated();
        session.run(net_inputs()).expect("runs");
        assert_eq!(session.allocated(), kept, "buffers are kept");
    }
    assert!(fast.report().cost_after < fast.report().cost_before);
    assert!(!fast.is_as_read() && fast.report().self_check.is_some());
    assert!(fast.explain().expect("a reason").human(true).contains("saves"));
    assert!(!fast.text().contains("0.5"), "{}", fast.text());
}

#[test]
fn outputs_of_all_element_types_are_told_apart() {
    let session = model(PARTS).session().expect("a session");
    let x = array![[1f32, 2.0], [3.0, 4.0]];
    let inputs: [(&str, AnyArray); 2] = [("rows", array![1i64, 1, 0].into()), ("x", x.into())];
    let outputs = session.run(inputs).expect("runs");
    let picked = array![[3f32, 4.0], [3.0, 4.0], [1.0, 2.0]].into_dyn();
    assert_eq!(outputs.array::<f32>("picked").expect("f32"), picked);
    let large: ArrayD<bool> = outputs["large"].clone().try_into().expect("bool");
    assert_eq!(large, array![[false, false], [true, true]].into_dyn());
    assert_eq!(outputs.names().collect::<Vec<_>>(), ["picked", "large"]);
    assert_eq!(outputs.len(), outputs.iter().count());
    assert_eq!(
        outputs.into_iter().map(|(_, a)| a.dtype()).collect::<Vec<_>>(),
        [DType::F32, DType::Bool]
    );
}

#[test]
fn a_session_runs_in_several_threads_at_once() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<(Session, Model, Optimizer, OptimizedModel, Outputs, AnyArray, Error)>();
    let dir = folder();
    let model = Model::read(dir.path().join("dense.onnx")).expect("reads");
    let session = Optimizer::new().threads(2).optimize(&model).and_then(|o| o.session());
    let session = session.expect("a session");
    let alone: Vec<Outputs> =
        (1..5).map(|n| session.run([("x", rows(n))]).expect("runs")).collect();
    std::thread::scope(|scope| {
        for shift in 0..2 {
            let (session, alone) = (&session, &alone);
            scope.spawn(move || {
                for i in 0..20 {
                    let n = (i + shift) % 4;
                    assert_eq!(session.run([("x", rows(n + 1))]).expect("runs"), alone[n]);
                }
            });
        }
    });
}

#[test]
fn what_is_written_is_what_was_optimised() {
    let dir = folder();
    let path = dir.path().join("dense.onnx");
    let read = Model::read(&path).expect("reads");
    let reference = read.session_on(&Device::reference()).expect("a session");
    let reference = reference.run([("x", rows(3))]).expect("runs");
    for (target, opset) in [("standard", None), ("cpu", None), ("onnxruntime", Some(21))] {
        let mut optimizer = Optimizer::new().target(target).seed(3);
        optimizer = opset.map_or(optimizer.clone(), |v| optimizer.opset(v));
        let optimized = optimizer.optimize(&read).expect("optimises");
        let out = dir.path().join(format!("{target}.onnx"));
        optimized.write(&out).expect("written");
        let again = Model::read(&out).expect("reads again");
        assert_eq!((again.inputs(), again.outputs()), (read.inputs(), read.outputs()));
        assert_eq!(again.info().map(|i| i.opset()), Some(opset.unwrap_or(17)), "{target}");
        let y = again.session().expect("a session").run([("x", rows(3))]).expect("runs");
        assert!(distance(&y, &reference) < 1e-5, "{target}");
        let same = optimized.session().expect("a session").run([("x", rows(3))]).expect("runs");
        assert!(distance(&same, &reference) < 1e-5, "{target}");
    }
    // A text becomes a file, too; a model may be optimised in place, with its weights beside it.
    let optimized = Optimizer::new().target("standard").optimize(&model(NET)).expect("optimises");
    let net = dir.path().join("net.onnx");
    optimized.write(&net).expect("written");
    let session = Model::read(&net).expect("reads").session().expect("a session");
    let plain = model(NET).session().expect("a session").run(net_inputs()).expect("runs");
    assert!(distance(&session.run(net_inputs()).expect("runs"), &plain) < 1e-5);
    let optimized = Optimizer::new().target("standard").optimize(&read).expect("optimises");
    optimized.write_with(&path, ExternalData::Always).expect("written");
    let again = Model::read(&path).expect("reads").session().expect("a session");
    assert!(distance(&again.run([("x", rows(3))]).expect("runs"), &reference) < 1e-5);
}

#[test]
fn settings_reach_the_pipeline() {
    let net = model(NET);
    let done = |o: Optimizer| o.optimize(&net).unwrap_or_else(|e| panic!("{e}"));
    let quick = Optimizer::new().check(false);
    assert!(done(quick.clone()).report().self_check.is_none());
    assert_eq!(done(quick.clone().rounds(1)).report().egraph.rounds.len(), 1);
    let few = done(quick.clone().nodes(30).effort(100).time_limit(Duration::from_secs(60)));
    assert!(few.report().egraph.nodes <= 30);
    let solved = quick.clone().solver(Solver::Greedy).deadline(Duration::from_secs(1));
    assert!(done(solved).report().cost_after > 0.0);
    assert_eq!(done(quick.clone().objective(Objective::Size)).report().objective, "size");
    let exact = done(quick.clone().fp(Fp::Exact));
    let usual = done(quick.clone());
    let law = usual.report().proof.keys().find(|l| !l.starts_with('(')).expect("a law");
    let without = done(quick.clone().without(law.as_str()));
    assert!(!without.report().proof.contains_key(law), "{law}");
    assert!(exact.report().cost_after >= usual.report().cost_after);
    for fixed in [quick.clone().shape("n", &[7]), quick.clone().bind("n", 7)] {
        assert_eq!(done(fixed).outputs()[0].to_string(), "y: f32[7, 3]");
    }
    // Inputs of one's own are among those that the result is held against.
    let checked = done(Optimizer::new().check_on(net_inputs()).tolerance(1e-4));
    let sets = format!("{:?}", checked.report().self_check);
    assert!(sets.contains("yours") || sets.contains("given") || sets.contains("user"), "{sets}");
    let profiled = done(quick.clone().profile(root("examples/server.toml")));
    assert_ne!(profiled.report().cost_after, usual.report().cost_after);
}

#[test]
fn rules_of_ones_own_are_laws_and_layers() {
    let rules = root("examples/my_layer.rules");
    let text = std::fs::read_to_string(root("examples/my_layer_decomposed.rules")).expect("a text");
    let decomposed = model(&text);
    let named = Reader::new().rules(&rules).read(root("examples/my_layer_use.rules"));
    let named = named.expect("reads");
    // Figures at which memory decides: where a processor is slower, the layer's quotient may be dearer than a product.
    let figures = tempfile::NamedTempFile::new().expect("a file");
    let text = "name = \"memory decides\"\nlaunch = 2e-6\n[operations.any]\nquick = 2e11\nslow = 2e10\n[[memory]]\nbandwidth = 2e10\n";
    std::fs::write(figures.path(), text).expect("written");
    let at_figures = Optimizer::new().profile(figures.path());
    let found = at_figures.rules(&rules).optimize(&decomposed).expect("optimises");
    assert!(found.text().contains("snake"), "{}", found.text());
    let inputs = |m: &Model| -> Vec<(String, ArrayD<f32>)> {
        let value = |i: usize| (i as f32 * 0.37).sin() * 0.5;
        m.inputs()
            .iter()
            .map(|info| {
                let shape: Vec<usize> = info.shape().into_iter().flatten().collect();
                let n = shape.iter().product();
                let array = ArrayD::from_shape_vec(shape, (0..n).map(value).collect());
                (info.name().to_string(), array.expect("as many"))
            })
            .collect()
    };
    let reference = named.session_on(&Device::reference()).expect("a session");
    let reference = reference.run(inputs(&named)).expect("runs");
    let y = found.session().expect("a session").run(inputs(&decomposed)).expect("runs");
    assert!(distance(&y, &reference) < 1e-3);
    // A target of one's own, from a file.
    let dir = tempfile::tempdir().expect("a folder");
    let target = dir.path().join("mine.rules");
    std::fs::write(&target, "target mine extends standard\n  launch = 1e-6\n").expect("written");
    let mine = Optimizer::new().target_file(&target).check(false).optimize(&decomposed);
    assert_eq!(mine.unwrap_or_else(|e| panic!("{e}")).report().target, "mine");
}

/// What an error must tell: kind, code, and a part of place, message and help each.
type Told = (ErrorKind, Option<&'static str>, &'static str, &'static str, &'static str);

#[track_caller]
fn told<T>(result: Result<T, Error>, (kind, code, place, message, help): Told) {
    let Err(e) = result else { panic!("it is taken, where `{message}` is expected") };
    assert_eq!((e.kind(), e.code()), (kind, code), "{e}");
    let text = e.to_string();
    for (wanted, found) in [(place, e.place()), (message, Some(e.message())), (help, e.help())] {
        let found = found.unwrap_or_default();
        assert!(!wanted.is_empty() && found.contains(wanted), "`{wanted}`: `{found}` of\n{text}");
    }
    assert!(text.contains(e.message()) && text.contains("help"), "{text}");
}

#[test]
fn models_that_cannot_be_read_say_why() {
    use ErrorKind::{File, Model as Bad, Rules, Setting};
    let dir = folder();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("text.onnx"), "not a model").expect("written");
    std::fs::write(at("empty.onnx"), "").expect("written");
    std::fs::write(at("latin.rules"), b"// \xff\n").expect("written");
    let mut broken = dense();
    broken.graph.nodes[0].op_type = "MatMule".into();
    write_onnx(&broken, at("unknown.onnx")).expect("written");
    broken.graph.nodes[0].op_type = "MatMul".into();
    broken.graph.initializers["w"] = Tensor::from_f32(vec![5, 3], vec![0.0; 15]);
    write_onnx(&broken, at("shapes.onnx")).expect("written");
    for (name, wanted) in [
        ("none.onnx", (File, None, "none.onnx", "cannot open", "check the path")),
        ("none.rules", (File, None, "none.rules", "cannot read", "check the path")),
        ("", (File, None, "/", "not a regular file", "path of a file")),
        ("latin.rules", (File, None, "latin.rules", "UTF-8", "UTF-8")),
        ("text.onnx", (Bad, None, "text.onnx", "not a readable ONNX model", "truncated")),
        ("empty.onnx", (Bad, None, "empty.onnx", "no graph", "truncated")),
        ("unknown.onnx", (Bad, None, "unknown.onnx: ", "`MatMule`", "MatMul")),
        ("shapes.onnx", (Bad, None, "MatMul", "shapes.onnx", "onnx.checker")),
    ] {
        told(Model::read(at(name)).and_then(|m| m.session()), wanted);
    }
    let bytes = std::fs::read(at("dense.onnx")).expect("read");
    let half = Model::from_bytes(bytes[..bytes.len() / 2].to_vec()).expect_err("is refused");
    assert_eq!((half.kind(), half.place()), (Bad, None), "{half}");
    assert!(half.message().contains("not a readable ONNX model"), "{half}");
    for (text, wanted) in [
        (
            "def f(x: f32[2]) -> f32[2]\n  = x + y\n",
            (Rules, Some("R002"), "model.rules:2:9", "`y`", ""),
        ),
        ("def f(x: f32[2]", (Rules, Some("S002"), "model.rules:1:", "never closed", "")),
        (
            "/// Nothing.\nrule r\n  x + 0 => x\n  given x: F[..s]\n  error exact\n",
            (Rules, None, "model.rules", "no `def`", "the last `def`"),
        ),
        (
            "def f(x: F[..s]) -> F[..s]\n  = x\n",
            (Rules, Some("V011"), "model.rules:1:1", "no known number of axes", "give its shape"),
        ),
    ] {
        let e = Model::from_rules(text).expect_err("is refused");
        assert_eq!((e.kind(), e.code()), (wanted.0, wanted.1), "{e}");
        assert!(e.place().is_some_and(|p| p.contains(wanted.2)), "{:?}: {e}", e.place());
        assert!(e.message().contains(wanted.3), "{e}");
    }
    for (name, extents, wanted) in [
        ("bach", &[2][..], (Setting, None, "shape `bach`", "no input and no symbol", "`batch`")),
        ("batch", &[2, 3], (Setting, None, "shape `batch`", "one extent", "`batch=1`")),
        ("x", &[2], (Setting, None, "input `x`", "has 2 axes, not 1", "[batch, 4]")),
    ] {
        told(Reader::new().shape(name, extents).read(at("dense.onnx")), wanted);
    }
    for (name, extent, wanted) in [
        ("bach", 2, (Setting, None, "symbol `bach`", "no input of the model", "`batch`")),
        ("batch", 0, (Setting, None, "symbol `batch`", "0 is no extent", "positive")),
    ] {
        told(Reader::new().bind(name, extent).read(at("dense.onnx")), wanted);
    }
    let twice = Reader::new().bind("batch", 2).bind("batch", 3).read(at("dense.onnx"));
    told(twice, (Setting, None, "symbol `batch`", "2 and 3", "one extent everywhere"));
    let twice = Reader::new().shape("batch", &[2]).shape("x", &[3, 4]).read(at("dense.onnx"));
    told(twice, (Setting, None, "symbol `batch`", "2 and 3", "one extent everywhere"));
    told(
        Reader::new().shape("x", &[2, 3]).from_rules(NET),
        (Setting, None, "input `x`", "does not fit", "only named axes"),
    );
    told(
        Reader::new().rules(at("none.rules")).from_rules(NET),
        (File, None, "none.rules", "cannot read", "check the path"),
    );
}

#[test]
fn wrong_inputs_say_what_was_expected() {
    use ErrorKind::{Input, Output, Resources};
    let f32s = |shape: &[usize]| AnyArray::from(ArrayD::<f32>::zeros(shape));
    let x = || ("x", f32s(&[2, 2]));
    let ids = |v: Vec<i64>| ("rows", AnyArray::from_vec(&[v.len()], v).expect("one axis"));
    let session = model(PARTS).session().expect("a session");
    for (inputs, wanted) in [
        (vec![x()], (Input, None, "input `rows`", "is missing", "i64[k]")),
        (vec![], (Input, None, "input `x`", "is missing", "f32[n, 2]")),
        (
            vec![x(), ("row", f32s(&[1]))],
            (Input, None, "input `row`", "no input `row`", "did you mean `rows`"),
        ),
        (vec![x(), ids(vec![0]), x()], (Input, None, "input `x`", "given twice", "once")),
        (
            vec![("x", f32s(&[2, 3])), ids(vec![0])],
            (Input, None, "input `x`", "expected f32[n, 2], found f32[2, 3]", "named extent"),
        ),
        (
            vec![("x", f32s(&[2])), ids(vec![0])],
            (Input, None, "input `x`", "expected f32[n, 2], found f32[2]", "f32[n, 2]"),
        ),
        (
            vec![x(), ("rows", f32s(&[1]))],
            (Input, None, "input `rows`", "expected i64[k], found f32[1]", "i64[k]"),
        ),
        (vec![x(), ids(vec![7])], (ErrorKind::Run, None, "gather", "7", "indices")),
    ] {
        told(session.run(inputs), wanted);
    }
    let outputs = session.run([x(), ids(vec![0])]).expect("runs");
    told(outputs.array::<f32>("picke"), (Output, None, "output `picke`", "no output", "`picked`"));
    told(
        outputs.array::<f64>("picked"),
        (Output, None, "output `picked`", "are f32, not f64", "type f32"),
    );
    assert!(outputs.get("picke").is_none());
    // Two inputs that share a symbol.
    let both = model("def f(a: f32[n], b: f32[n]) -> f32[n]\n  = a + b\n").session();
    let both = both.expect("a session").run([("a", f32s(&[2])), ("b", f32s(&[3]))]);
    told(both, (Input, None, "input `b`", "found", "extent"));
    // What is too large is known before it is run, or before the session is made.
    let large = "def f(x: f32[n]) -> f32[n]\n  = x + 1.0\n";
    let device = Device::cpu().memory(1 << 20);
    let open = model(large).session_on(&device).expect("a session");
    told(open.run([("x", f32s(&[1 << 20]))]), (Resources, None, "takes", "a run needs", "memory"));
    let fixed = Reader::new().shape("n", &[1 << 20]).from_rules(large).expect("reads");
    told(fixed.session_on(&device), (Resources, None, "takes", "a run needs", "memory"));
}

#[test]
fn wrong_settings_are_refused() {
    use ErrorKind::{File, Input, Setting};
    let dir = folder();
    let read = Model::read(dir.path().join("dense.onnx")).expect("reads");
    let plain = || Optimizer::new().check(false);
    for (optimizer, wanted) in [
        (plain().target("cpuu"), (Setting, None, "target `cpuu`", "no target", "`cpu`")),
        (plain().without("add_zeroo"), (Setting, None, "law `add_zeroo`", "no law", "`add_zero`")),
        (
            plain().target("standard").opset(99),
            (Setting, None, "operator set 99", "not known", "1 to"),
        ),
        (plain().tolerance(-1.0), (Setting, None, "tolerance", "no part", "1e-4")),
        (
            plain().profile(dir.path().join("none.toml")),
            (File, None, "none.toml", "cannot read", "path"),
        ),
        (
            plain().rules(dir.path().join("none.rules")),
            (File, None, "none.rules", "cannot read", "path"),
        ),
        (
            plain().target_file(root("examples/my_layer.rules")),
            (Setting, None, "my_layer.rules", "no target", "`target`"),
        ),
        (plain().shape("y", &[1, 2]), (Setting, None, "shape `y`", "no input", "batch, x")),
        (plain().check_on([("z", rows(1))]), (Input, None, "input `z`", "no input", "x")),
    ] {
        told(optimizer.optimize(&read), wanted);
    }
    let wrong =
        plain().rules_text("mine.rules", "rule r\n  x => y\n  given x: F[..s]\n  error exact\n");
    let e = wrong.optimize(&read).expect_err("is refused");
    assert_eq!((e.kind(), e.code()), (ErrorKind::Rules, Some("R002")), "{e}");
    assert_eq!(e.place(), Some("mine.rules:2:8"), "{e}");
    let cuda = plain().target("cuda").optimize(&read).expect("optimises");
    #[cfg(feature = "cuda")]
    let (device, message) = (mlc_cuda::Nvidia::new(0).is_ok(), "no NVIDIA device");
    #[cfg(not(feature = "cuda"))]
    let (device, message) = (false, "no CUDA backend");
    if !device {
        told(cuda.session(), (Setting, None, "cuda", message, "processor"));
    }
    let out = cuda.write(dir.path().join("no/such/folder/m.onnx"));
    told(out, (File, None, "m.onnx", "cannot write", "path"));
}

#[test]
fn constants_keep_their_names_in_the_file_that_is_written() {
    let mut raw = dense();
    let scale = (0..3).map(|i| 1.5 + i as f32).collect();
    raw.graph.initializers.insert("scale".into(), Tensor::from_f32(vec![3], scale));
    raw.graph.nodes[0].outputs = vec!["product".into()];
    let scaled = RawNode {
        op_type: "Mul".into(),
        inputs: vec!["product".into(), "scale".into()],
        outputs: vec!["scaled".into()],
        ..RawNode::default()
    };
    raw.graph.nodes[1].inputs[0] = "scaled".into();
    raw.graph.nodes.insert(1, scaled);
    let folder = tempfile::tempdir().expect("a folder");
    let (source, result) = (folder.path().join("source.onnx"), folder.path().join("result.onnx"));
    write_onnx(&raw, &source).expect("written");
    let model = Model::read(&source).expect("read");
    let optimized = Optimizer::new().target("onnxruntime").optimize(&model).expect("optimised");
    optimized.write(&result).expect("written");
    let written = mlc_onnx::read_onnx(&result).expect("read").graph.initializers;
    let named = |name: &str| written.get(name).map(Tensor::to_f64);
    let product = |i: usize| (i as f32 * 0.7 + 0.3).sin() as f64 * (1.5 + (i % 3) as f64);
    let folded = named("w_folded").expect("the scaled weights are named after the weights");
    assert!(folded.iter().enumerate().all(|(i, v)| (v - product(i)).abs() < 1e-6), "{folded:?}");
    assert_eq!(
        named("b"),
        Some(raw.graph.initializers["b"].to_f64()),
        "what is as it was keeps its name"
    );
    assert!(!written.contains_key("w") && !written.contains_key("scale"), "{:?}", written.keys());
}

#[test]
fn a_model_in_memory_is_the_file_that_is_written() {
    let folder = folder();
    let model = Model::read(folder.path().join("dense.onnx")).expect("read");
    for target in ["standard", "cpu", "onnxruntime"] {
        let optimized = Optimizer::new().target(target).optimize(&model).expect("optimised");
        let path = folder.path().join("out.onnx");
        optimized.write(&path).expect("written");
        let bytes = optimized.to_bytes().expect("bytes");
        assert_eq!(bytes, std::fs::read(&path).expect("a file"), "{target}");
    }
}

/// Kernels of the processor, such as those for images with their channels last, are written as what they mean.
#[test]
fn a_plan_for_the_processor_is_written_as_standard_operators() {
    let model = Model::read(root("examples/squeezenet1_1.onnx")).expect("read");
    let optimized = Optimizer::new().target("cpu").optimize(&model).expect("optimised");
    let again = Model::from_bytes(optimized.to_bytes().expect("bytes")).expect("reads");
    let image = ArrayD::from_shape_fn(vec![1, 3, 224, 224], |i| {
        ((i[1] + i[2] * 3 + i[3]) as f32 * 0.1).sin()
    });
    let run = |session: Session| {
        let outputs = session.run([("input", image.clone())]).expect("runs");
        outputs.array::<f32>("logits").expect("floats").to_owned()
    };
    let (before, after) =
        (run(model.session().expect("a session")), run(again.session().expect("a session")));
    let largest = before.iter().fold(0f32, |m, v| m.max(v.abs()));
    assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 1e-4 * largest));
}

#[test]
fn what_was_not_chosen_is_explained() {
    let optimized = Optimizer::new().optimize(&model(NET)).expect("optimised");
    let told = optimized.why_not("gelu").expect("a layer");
    assert!(told.in_result == 0 && told.laws.iter().any(|l| l.law == "gelu"), "{}", told.human());
    let e = optimized.why_not("gelo").expect_err("no such layer");
    assert_eq!(e.kind(), ErrorKind::Setting);
    assert!(e.help().is_some_and(|h| h.contains("gelu")), "{e}");
}

#[test]
fn a_layer_is_a_model_by_itself() {
    let text = "def snake(x: F[..s], alpha: float in 0.5..2) -> F[..s]\n  = x + sin(alpha * x)^2 / alpha\n";
    let reader = Reader::new().rules_text("snake.rules", text);
    let x = [(DType::F32, vec![2])];
    let alpha = |v: f64| [("alpha".to_string(), Attr::float(v))];
    let model = reader.layer("snake", &x, &alpha(1.0)).expect("a model");
    let outputs = model.session().and_then(|s| s.run([("x", array![0.0f32, 0.0])])).expect("runs");
    assert_eq!(outputs["y"].shape(), [2]);
    let refused = |name: &str, arrays: &[(DType, Vec<usize>)], attributes: &[(String, Attr)]| {
        let error = reader.layer(name, arrays, attributes).expect_err("refused");
        assert!(error.help().is_some() && error.place().is_some(), "{error}");
        (error.kind(), error.message().to_string())
    };
    let (kind, message) = refused("snak", &x, &alpha(1.0));
    assert_eq!((kind, message.as_str()), (ErrorKind::Setting, "there is no layer `snak`"));
    assert_eq!(refused("snake", &[], &alpha(1.0)).0, ErrorKind::Input);
    assert_eq!(refused("snake", &[(DType::I64, vec![2])], &alpha(1.0)).0, ErrorKind::Input);
    assert_eq!(refused("snake", &x, &[]).0, ErrorKind::Setting);
    assert_eq!(refused("snake", &x, &[("beta".into(), Attr::int(1))]).0, ErrorKind::Setting);
    assert_eq!(refused("snake", &x, &[("alpha".into(), Attr::Bool(true))]).0, ErrorKind::Setting);
}

#[test]
fn graphs_are_compared() {
    let text = model("def f(x: f32[2]) -> f32[2]\n  = x\n");
    assert_eq!(text.difference(&text).err().map(|e| e.kind()), Some(ErrorKind::Model));
    let bytes = mlc_onnx::to_bytes(&dense()).expect("bytes");
    let dense = Model::from_bytes(bytes).expect("a model");
    assert!(dense.difference(&dense).expect("graphs").is_none());
}
