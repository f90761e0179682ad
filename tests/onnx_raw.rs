//! ONNX files from outside: round trips, shared memory, data files, and corruption of every kind.

use bytes::Bytes;
use indexmap::IndexMap;
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::*;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

fn value(name: &str, dims: &[u64]) -> RawValueInfo {
    let dims = Some(dims.iter().map(|&d| RawDim::Known(d)).collect());
    RawValueInfo { name: name.into(), dtype: Some(DType::F32), dims, ..RawValueInfo::default() }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> RawNode {
    let names = |s: &[&str]| s.iter().map(|n| n.to_string()).collect();
    let (inputs, outputs) = (names(inputs), names(outputs));
    RawNode { op_type: op.into(), inputs, outputs, ..RawNode::default() }
}

/// A network of two layers with a branch, an attribute of each kind, and some weights over 1 KiB.
fn small() -> RawModel {
    let ramp = |n: usize| Tensor::from_f32(vec![n / 8, 8], (0..n).map(|i| i as f32).collect());
    let mut graph = RawGraph { name: "net".into(), ..RawGraph::default() };
    let batch = RawDim::Symbol("batch".into());
    let dims = Some(vec![batch, RawDim::Unknown, RawDim::Known(64)]);
    graph.inputs = vec![RawValueInfo {
        name: "x".into(),
        dtype: Some(DType::F32),
        dims,
        ..RawValueInfo::default()
    }];
    graph.outputs = vec![value("y", &[1, 8])];
    graph.value_infos = vec![RawValueInfo { name: "h".into(), ..RawValueInfo::default() }];
    graph.initializers.insert("w1".into(), ramp(512));
    graph.initializers.insert("w2".into(), ramp(1024));
    graph.initializers.insert("axes".into(), Tensor::from_i64(DType::I64, vec![1], &[-1]));
    let branch = |name: &str| RawGraph {
        name: name.into(),
        outputs: vec![RawValueInfo { name: name.into(), ..RawValueInfo::default() }],
        nodes: vec![node("Add", &["h", &format!("{name}_w")], &[name])],
        initializers: IndexMap::from([(format!("{name}_w"), ramp(256))]),
        ..RawGraph::default()
    };
    let mut mixed = node("Custom", &["h", "", "axes"], &["m", "", "n"]);
    mixed.domain = "com.example".into();
    mixed.name = "everything".into();
    mixed.attrs = IndexMap::from([
        ("i".into(), RawAttr::Int(-7)),
        ("f".into(), RawAttr::Float(0.1)),
        ("s".into(), RawAttr::from("reflect")),
        ("b".into(), RawAttr::Str(Bytes::from_static(&[0xff, 0]))),
        ("is".into(), RawAttr::Ints(vec![])),
        ("fs".into(), RawAttr::Floats(vec![1.0, -2.0])),
        ("ss".into(), RawAttr::Strs(vec![Bytes::from_static(b"a"), Bytes::new()])),
        ("t".into(), RawAttr::Tensor(Tensor::from_i64(DType::Bool, vec![2], &[0, 1]))),
        ("ts".into(), RawAttr::Tensors(vec![ramp(8)])),
        ("gs".into(), RawAttr::Graphs(vec![branch("p"), branch("q")])),
        ("ty".into(), RawAttr::Type(RawType { dtype: Some(DType::F16), ..RawType::default() })),
    ]);
    let mut branches = node("If", &["m"], &["y"]);
    branches.attrs.insert("then_branch".into(), RawAttr::Graph(Box::new(branch("t"))));
    branches.attrs.insert("else_branch".into(), RawAttr::Graph(Box::new(branch("e"))));
    graph.nodes = vec![node("MatMul", &["x", "w1"], &["h"]), mixed, branches];
    RawModel {
        ir_version: 8,
        opset_imports: [(String::new(), 17), ("com.example".into(), 1)].into(),
        producer_name: "test".into(),
        metadata_props: [("key".into(), "value".into())].into(),
        graph,
        ..RawModel::default()
    }
}

/// The message of an error; there is always a help.
#[track_caller]
fn message<T: std::fmt::Debug>(result: Result<T, OnnxError>) -> String {
    let e = result.expect_err("an error");
    assert!(e.help().is_some(), "{e}");
    e.to_string()
}

/// The model of a file, but for what its initialisers are declared to be as inputs: before version 4 all of them have to be inputs.
fn back(path: &Path) -> RawModel {
    let mut model = read_onnx(path).expect("read");
    if model.ir_version < 4 {
        model.graph.defaults.clear();
    }
    model
}

#[test]
fn models_come_back_as_they_went() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("m.onnx");
    for ir_version in [3, 8, 14] {
        let model = RawModel { ir_version, ..small() };
        for external in [ExternalData::Never, ExternalData::Always, ExternalData::Above(9000)] {
            write_onnx_with(&model, &path, external).expect("written");
            assert_eq!(back(&path), model);
            let bytes = fs::read(&path).expect("a file");
            let data = fs::read(dir.path().join("m.onnx.data")).unwrap_or_default();
            write_onnx_with(&model, &path, external).expect("written");
            assert_eq!(bytes, fs::read(&path).expect("a file"), "equal models make equal bytes");
            assert_eq!(data, fs::read(dir.path().join("m.onnx.data")).unwrap_or_default());
        }
    }
    let left: Vec<_> = fs::read_dir(dir.path()).expect("a folder").collect();
    assert_eq!(left.len(), 2, "no temporary file stays");
}

#[test]
fn large_weights_go_to_one_aligned_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("m.onnx");
    let mut model = small();
    let shared = model.graph.initializers["w2"].clone();
    model.graph.initializers.insert("again".into(), shared);
    write_onnx_with(&model, &path, ExternalData::Always).expect("written");
    let data = fs::read(dir.path().join("m.onnx.data")).expect("a data file");
    // Six tensors of 1 KiB and more, each at a multiple of 4 KiB; the shared one is there once.
    assert_eq!(data.len(), 5 * 4096 + 1024);
    let back = read_onnx(&path).expect("read");
    assert_eq!(back, model);
    let [a, b] = ["w2", "again"].map(|n| back.graph.initializers[n].bytes().as_ptr());
    assert_eq!(a, b, "shared weights stay shared");
    write_onnx(&model, &path).expect("written");
    assert!(fs::metadata(&path).expect("a file").len() > 9000, "one file below 1 GiB");
}

#[test]
fn weights_are_not_copied() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("m.onnx");
    write_onnx_with(&small(), &path, ExternalData::Never).expect("written");
    let bytes = Bytes::from(fs::read(&path).expect("a file"));
    let model = parse_onnx(bytes.clone(), None).expect("a model");
    let range = bytes.as_ptr_range();
    for (name, t) in &model.graph.initializers {
        assert!(range.contains(&t.bytes().as_ptr()), "`{name}` was copied");
    }
    write_onnx_with(&small(), &path, ExternalData::Always).expect("written");
    let model = read_onnx(&path).expect("a model");
    let at = |n: &str| model.graph.initializers[n].bytes().as_ptr() as usize;
    assert_eq!(at("w2") - at("w1"), 4096, "both lie in one map");
}

#[test]
fn a_model_may_replace_the_file_it_is_mapped_from() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("m.onnx");
    for external in [ExternalData::Never, ExternalData::Always] {
        write_onnx_with(&small(), &path, external).expect("written");
        let mut model = read_onnx(&path).expect("read");
        model.graph.initializers.reverse();
        write_onnx_with(&model, &path, external).expect("written over itself");
        assert_eq!(model, small(), "the old map still holds");
        assert_eq!(read_onnx(&path).expect("read"), model);
    }
}

#[test]
fn targets_that_cannot_be_written_are_told() {
    let dir = tempfile::tempdir().expect("a folder");
    message(write_onnx(&small(), dir.path().join("none/m.onnx")));
    let e = write_onnx(&small(), dir.path()).expect_err("a folder is no file");
    assert!(e.to_string().contains("not a regular file"), "{e}");
    let mut model = small();
    model.graph.nodes.swap(0, 1);
    let m = message(write_onnx(&model, dir.path().join("m.onnx")));
    assert!(m.contains("`everything` (Custom) reads `h`"), "{m}");
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0, "nothing is left");
    assert!(message(read_onnx(dir.path())).contains("not a regular file"));
    assert!(message(read_onnx(dir.path().join("none"))).contains("cannot open"));
}

/// A file whose only tensor lies at `location`, made by renaming in the bytes of a good one.
fn pointing_to(dir: &Path, location: &str) -> Result<RawModel, OnnxError> {
    let name = "x".repeat(location.len() - 5);
    let path = dir.join(&name);
    let mut model = small();
    model.graph.nodes.clear();
    model.graph.outputs = model.graph.inputs.clone();
    model.graph.initializers.retain(|k, _| k == "w1");
    write_onnx_with(&model, &path, ExternalData::Always).expect("written");
    let mut bytes = fs::read(&path).expect("a file");
    let old = format!("{name}.data");
    let at = bytes.windows(old.len()).position(|w| w == old.as_bytes()).expect("the location");
    bytes[at..at + old.len()].copy_from_slice(location.as_bytes());
    fs::write(&path, bytes).expect("written");
    read_onnx(&path)
}

#[test]
fn data_files_lie_in_the_models_folder() {
    let dir = tempfile::tempdir().expect("a folder");
    let inside = dir.path().join("inside");
    fs::create_dir(&inside).expect("a folder");
    let secret = dir.path().join("secret.bin");
    fs::write(&secret, vec![1; 2048]).expect("written");
    fs::write(inside.join("weights.bin"), vec![1; 2048]).expect("written");
    pointing_to(&inside, "weights.bin").expect("a file beside the model");
    pointing_to(&inside, "./weights.bin").expect("a file beside the model");
    for location in ["../secret.bin", "inner/../../secret.bin", &secret.to_string_lossy()] {
        let m = message(pointing_to(&inside, location));
        assert!(m.contains("initializer `w1`") && m.contains(location), "{m}");
        assert!(m.contains("into the model's folder"), "{m}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, inside.join("link.bin")).expect("a link");
        std::os::unix::fs::symlink(dir.path(), inside.join("up")).expect("a link");
        for location in ["link.bin", "up/secret.bin"] {
            assert!(message(pointing_to(&inside, location)).contains("symbolic link"));
        }
    }
    fs::write(inside.join("short.bin"), vec![1; 2047]).expect("written");
    let m = message(pointing_to(&inside, "short.bin"));
    assert!(m.contains("2048 bytes at offset 0 are asked for, the file has 2047"), "{m}");
    message(pointing_to(&inside, "nothing.bin"));
    fs::create_dir(inside.join("folder")).expect("a folder");
    assert!(message(pointing_to(&inside, "folder")).contains("not a regular file"));
}

/// A small generator of good repute, for mutations that are the same on each run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }
}

#[test]
fn damage_never_panics() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("m.onnx");
    let mut good = Vec::new();
    for external in [ExternalData::Never, ExternalData::Always] {
        write_onnx_with(&small(), &path, external).expect("written");
        good.push(fs::read(&path).expect("a file"));
    }
    // Most bytes of the first are weights; the structure is what damage should hit.
    let structure = good[1].len();
    let mut random = Random(7);
    let mut accepted = 0;
    for round in 0..3000 {
        let mut bytes = good[round % 2].clone();
        for _ in 0..=random.next(3) {
            let at = random.next(bytes.len().min(2 * structure));
            match random.next(5) {
                0 => bytes[at] ^= 1 << random.next(8),
                1 => bytes.truncate(at),
                2 => bytes.insert(at, random.next(256) as u8),
                3 => bytes[at] = bytes[at].wrapping_add(1 + random.next(4) as u8),
                _ => {
                    bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x7f]);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        match parse_onnx(Bytes::from(bytes), Some(dir.path())) {
            Ok(model) => {
                accepted += 1;
                // What is accepted can be written and read again.
                let copy = dir.path().join("copy.onnx");
                if write_onnx_with(&model, &copy, ExternalData::Never).is_ok() {
                    let back = read_onnx(&copy).expect("what was written");
                    assert_eq!(back.graph.nodes.len(), model.graph.nodes.len());
                }
            }
            Err(e) => assert!(!e.to_string().is_empty() && e.help().is_some(), "{e}"),
        }
    }
    assert!(accepted > 0, "some damage is harmless");
    for n in 0..good[1].len() {
        // A model cut short is refused, or is a smaller model where the cut falls between fields.
        let _ = parse_onnx(Bytes::copy_from_slice(&good[1][..n]), Some(dir.path()));
    }
}

fn a_tensor() -> impl Strategy<Value = Tensor> {
    let dtype = prop::sample::select(DType::ALL.to_vec());
    (dtype, prop::collection::vec(0usize..5, 0..4), any::<u64>()).prop_map(|(d, shape, seed)| {
        let n: usize = shape.iter().product::<usize>() * d.size();
        let mut random = Random(seed);
        let top = if d == DType::Bool { 2 } else { 256 };
        let data: Vec<u8> = (0..n).map(|_| random.next(top) as u8).collect();
        Tensor::new(d, shape, Bytes::from(data)).expect("as long as its shape")
    })
}

fn an_attr() -> impl Strategy<Value = RawAttr> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..6).prop_map(Bytes::from);
    let dim = prop_oneof![
        (0u64..9).prop_map(RawDim::Known),
        "[a-z]{1,3}".prop_map(RawDim::Symbol),
        Just(RawDim::Unknown)
    ];
    let dims = prop::option::of(prop::collection::vec(dim, 0..4));
    let dtype = prop::option::of(prop::sample::select(DType::ALL.to_vec()));
    prop_oneof![
        any::<i64>().prop_map(RawAttr::Int),
        any::<i32>().prop_map(|v| RawAttr::Float(v as f32)),
        bytes().prop_map(RawAttr::Str),
        a_tensor().prop_map(RawAttr::Tensor),
        prop::collection::vec(any::<i64>(), 0..4).prop_map(RawAttr::Ints),
        prop::collection::vec(-1e9f32..1e9, 0..4).prop_map(RawAttr::Floats),
        prop::collection::vec(bytes(), 0..4).prop_map(RawAttr::Strs),
        prop::collection::vec(a_tensor(), 0..3).prop_map(RawAttr::Tensors),
        (dtype, dims)
            .prop_filter("a type says something", |(t, d)| t.is_some() || d.is_some())
            .prop_map(|(dtype, dims)| RawAttr::Type(RawType { dtype, dims, ..RawType::default() })),
    ]
}

/// A graph of `names`-prefixed values: each node reads some of what stands before it.
fn a_graph(prefix: &'static str) -> impl Strategy<Value = RawGraph> {
    let op = prop::sample::select(vec!["Relu", "Add", "MatMul", "x.y::Odd"]);
    let attrs = prop::collection::btree_map("[a-zé]{1,4}", an_attr(), 0..3);
    let one =
        (op, prop::collection::vec(any::<prop::sample::Index>(), 0..3), attrs, "[a-z /]{0,3}");
    let tensors = prop::collection::vec(a_tensor(), 1..4);
    (tensors, prop::collection::vec(one, 0..6)).prop_map(move |(tensors, nodes)| {
        let mut g = RawGraph { name: prefix.into(), ..RawGraph::default() };
        let mut known = vec![String::new()];
        for (i, t) in tensors.into_iter().enumerate() {
            known.push(format!("{prefix}w{i}"));
            g.initializers.insert(format!("{prefix}w{i}"), t);
        }
        for (i, (op, inputs, attrs, name)) in nodes.into_iter().enumerate() {
            let (domain, op) = op.split_once("::").unwrap_or(("", op));
            let out = format!("{prefix}n{i}");
            g.nodes.push(RawNode {
                op_type: op.into(),
                domain: domain.into(),
                name,
                inputs: inputs.iter().map(|at| at.get(&known).clone()).collect(),
                outputs: vec![out.clone()],
                attrs: attrs.into_iter().collect(),
            });
            known.push(out);
        }
        let last = known.pop().unwrap_or_default();
        g.outputs = vec![RawValueInfo { name: last, ..RawValueInfo::default() }];
        g
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_model_comes_back(mut graph in a_graph("a"), inner in a_graph("b"), always: bool, ir in 1i64..=14) {
        if let Some(n) = graph.nodes.last_mut() {
            n.attrs.insert("body".into(), RawAttr::Graph(Box::new(inner)));
        }
        let model = RawModel {
            ir_version: ir,
            opset_imports: [(String::new(), 17), ("x.y".into(), 2)].into(),
            graph,
            ..RawModel::default()
        };
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("m.onnx");
        let external = if always { ExternalData::Always } else { ExternalData::Never };
        write_onnx_with(&model, &path, external).expect("written");
        prop_assert_eq!(back(&path), model);
    }
}
