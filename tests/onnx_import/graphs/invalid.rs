//! Invalid models are rejected with a location and a help text, and names from a file are escaped and shortened
//! in messages.

use super::super::support::*;
use mlc_dsl::plan::Fault;
use mlc_files::npz;
use mlc_onnx::{ExportError, NEWEST_OPSET, OnnxError, parse_onnx, write_onnx};

/// Refuses, with this reason.
#[track_caller]
fn refused(raw: RawModel, reason: &str) {
    let e = import(raw, library()).expect_err(reason);
    assert!(e.to_string().contains(reason), "{e}\nexpected: {reason}");
    clean(&e.to_string());
    assert!(e.help().is_some_and(|h| !h.is_empty()), "{e}: no help");
}

/// What every message holds to.
#[track_caller]
fn clean(message: &str) {
    let bad = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!message.contains(bad), "control characters: {message:?}");
    assert!(message.len() < 4_000, "{} bytes of message", message.len());
}

fn x() -> Arg {
    In(count(&[2, 3]))
}

fn typed(raw: &mut RawModel, dtype: DType, dims: &[u64]) {
    raw.graph.outputs[0].dtype = Some(dtype);
    raw.graph.outputs[0].dims = Some(dims.iter().map(|&d| RawDim::Known(d)).collect());
}

#[test]
fn declarations_are_held() {
    let (mut raw, _) = single(18, "Relu", &[x()], &[], 1);
    typed(&mut raw, DType::I64, &[2, 3]);
    refused(raw, "output `y0`: it is declared as i64[2, 3], and is computed as f32[2, 3]");
    let (mut raw, _) = single(18, "Relu", &[x()], &[], 1);
    typed(&mut raw, DType::F32, &[3, 3]);
    let notes = import(raw, library()).expect("is read").notes;
    assert_eq!(notes, ["output `y0`: it is declared as f32[3, 3], and is computed as f32[2, 3]"]);
    let (mut raw, _) = single(18, "Relu", &[x()], &[], 1);
    raw.graph.inputs[0].dtype = None;
    refused(raw, "input `x0`: it has no supported element type");
    let (mut raw, _) = single(18, "Relu", &[x()], &[], 1);
    raw.graph.inputs[0].dims = None;
    refused(raw, "input `x0`: its number of axes is unknown");
    let (mut raw, _) = single(18, "Relu", &[x()], &[], 1);
    raw.graph.outputs[0].name = "nobody".into();
    refused(raw, "output `nobody`: nothing defines it");
}

#[test]
fn versions_are_known() {
    for opset in [NEWEST_OPSET + 1, 999, i64::MAX] {
        let (raw, _) = single(opset, "Relu", &[x()], &[], 1);
        refused(raw, &format!("the model: it is of operator set {opset}; versions up to"));
        let (raw, _) = single(18, "Relu", &[x()], &[], 1);
        let Imported { program, model, .. } = import(raw, library()).expect("is read");
        let e = export(&program, library(), &model, opset).expect_err("is not written");
        assert!(e.to_string().contains("is not known") && e.help().is_some(), "{e}");
    }
    let (raw, _) = single(NEWEST_OPSET, "Relu", &[x()], &[], 1);
    assert!(import(raw, library()).is_ok());
}

#[test]
fn branches_are_complete() {
    let graph = |outputs: &[&str]| {
        let mut g = RawGraph { name: "branch".into(), ..RawGraph::default() };
        g.nodes = vec![node("Relu", &["x1"], &["inner"], &[])];
        g.outputs = outputs
            .iter()
            .map(|o| RawValueInfo { name: o.to_string(), ..RawValueInfo::default() })
            .collect();
        RawAttr::Graph(Box::new(g))
    };
    let branch = |attrs: &[(&str, RawAttr)]| {
        let nodes = vec![node("If", &["x0"], &["y0"], attrs)];
        model(18, &[Const(bools(&[], &[1])), x()], nodes, &["y0"]).0
    };
    let (then, other) = (("then_branch", graph(&["inner"])), ("else_branch", graph(&["inner"])));
    assert!(import(branch(&[then.clone(), other.clone()]), library()).is_ok());
    refused(branch(std::slice::from_ref(&then)), "it has no `else_branch`");
    refused(branch(std::slice::from_ref(&other)), "it has no `then_branch`");
    refused(branch(&[then, ("else_branch", graph(&[]))]), "a branch has 0 outputs, the node 1");
    refused(branch(&[("then_branch", int(1)), other]), "it has no `then_branch`");
}

#[test]
fn nodes_have_what_they_need() {
    type Case = (&'static str, Vec<Arg>, Vec<(&'static str, RawAttr)>, &'static str);
    let table: Vec<Case> = vec![
        ("Concat", vec![x(), x()], vec![], "`axis` is not"),
        ("Relu", vec![], vec![], "its input `x` is missing"),
        ("Relu", vec![x(), x()], vec![], "it has 2 inputs, more than"),
        ("Add", vec![x()], vec![], "its input `b` is missing"),
        ("Add", vec![x(), In(ints(&[3], &[1, 2, 3]))], vec![], ""),
        ("MatMul", vec![x(), x()], vec![], ""),
        ("Softmax", vec![x()], vec![("axis", list(&[1]))], "its attribute `axis` is no int"),
        (
            "Softmax",
            vec![x()],
            vec![("axis", RawAttr::Float(1.0))],
            "its attribute `axis` is no int",
        ),
        ("ReduceSum", vec![x()], vec![("keepdims", int(7))], ""),
        ("ReduceMax", vec![x()], vec![("keepdims", int(-1))], ""),
        ("Softmax", vec![x()], vec![("axis", int(2))], ""),
        ("Softmax", vec![x()], vec![("axis", int(i64::MIN))], ""),
        ("Relu", vec![x()], vec![("alpha", int(1))], "its attribute `alpha` is not supported"),
        ("Cast", vec![x()], vec![], "`to` is not"),
        ("Cast", vec![x()], vec![("to", int(99))], "its attribute `to` is no dtype"),
        ("Transpose", vec![x()], vec![("perm", list(&[0, 0]))], ""),
        ("Transpose", vec![x()], vec![("perm", list(&[0]))], ""),
        ("Transpose", vec![x()], vec![("perm", list(&[0, -9]))], ""),
        ("Reshape", vec![x(), Const(ints(&[1], &[7]))], vec![], ""),
        ("Reshape", vec![x(), Const(ints(&[2], &[-1, -1]))], vec![], ""),
        ("Reshape", vec![x(), Const(ints(&[2], &[-2, 3]))], vec![], ""),
        ("Reshape", vec![x(), Const(floats(&[1], &[6.5]))], vec![], "its input `to` is no ints"),
        ("Expand", vec![x(), Const(ints(&[2], &[2, 4]))], vec![], ""),
        ("Tile", vec![x(), Const(ints(&[2], &[-1, 1]))], vec![], ""),
        ("Pad", vec![x(), Const(ints(&[4], &[-3, 0, 0, 0]))], vec![], ""),
        ("Gather", vec![x(), In(floats(&[1], &[0.0]))], vec![], ""),
        ("NobodysOperator", vec![x()], vec![], "the operator `NobodysOperator` is not known"),
        ("Conv", vec![In(count(&[1, 2, 4, 4])), Const(count(&[3, 5, 3, 3]))], vec![], ""),
        ("MaxPool", vec![In(count(&[1, 2, 4, 4]))], vec![("kernel_shape", list(&[0, 2]))], ""),
        (
            "MaxPool",
            vec![In(count(&[1, 2, 4, 4]))],
            vec![("kernel_shape", list(&[2, 2])), ("strides", list(&[0, 1]))],
            "",
        ),
        ("Split", vec![x()], vec![("axis", int(0)), ("num_outputs", int(0))], ""),
        ("Einsum", vec![x(), x()], vec![("equation", RawAttr::from("ij,jk,k->i"))], ""),
    ];
    for (op, args, attrs, reason) in table {
        let (raw, _) = single(18, op, &args, &attrs, 1);
        refused(raw, reason);
    }
}

#[test]
fn names_do_not_get_out_of_hand() {
    let wild = format!("a\u{1b}[31m\r\n\u{202e}{}", "n".repeat(1 << 20));
    let rename = |text: &str| if text == "x0" { text.to_string() } else { wild.clone() };
    // Every place of a model that has a name, one after the other.
    for place in 0..8 {
        let (mut raw, _) = single(18, "Concat", &[x(), x()], &[], 1);
        raw.graph.inputs[1].dims = Some(vec![RawDim::Symbol("s".into()), RawDim::Known(3)]);
        match place {
            0 => raw.graph.nodes[0].name = rename(""),
            1 => raw.graph.nodes[0].op_type = rename(""),
            2 => raw.graph.nodes[0].domain = rename(""),
            3 => drop(raw.graph.nodes[0].attrs.insert(rename(""), int(1))),
            4 => raw.graph.nodes[0].inputs[0] = rename(""),
            5 => {
                raw.graph.nodes[0].outputs[0] = rename("");
            }
            6 => raw.graph.outputs[0].name = rename(""),
            _ => {
                raw.graph.inputs[1].dims = Some(vec![RawDim::Symbol(rename("")), RawDim::Known(4)]);
                raw.graph.nodes[0].attrs.insert("axis".into(), int(0));
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("case.onnx");
        let read = write_onnx(&raw, &path).and_then(|()| {
            parse_onnx(std::fs::read(&path).expect("is read").into(), Some(folder.path()))
        });
        match read {
            Err(e) => {
                clean(&e.to_string());
                assert!(e.help().is_some(), "{place}");
            }
            Ok(again) => refused(again, ""),
        }
        refused(raw, "");
    }
}

#[test]
fn every_error_is_clean_and_helps() {
    let wild = || format!("a\u{1b}[31m\r\n\u{202e}{}", "n".repeat(1 << 20));
    let path = || std::path::PathBuf::from(wild());
    let io =
        |kind| OnnxError::Io { action: "open", path: path(), source: std::io::Error::from(kind) };
    let all = vec![
        io(std::io::ErrorKind::NotFound),
        io(std::io::ErrorKind::PermissionDenied),
        io(std::io::ErrorKind::StorageFull),
        io(std::io::ErrorKind::Interrupted),
        OnnxError::Malformed { reason: wild() },
        OnnxError::Invalid { place: wild(), reason: wild() },
        OnnxError::TooLarge { what: wild(), limit: 1, help: "less" },
        OnnxError::TooDeep { place: wild(), limit: 1 },
        OnnxError::UnsupportedType { place: wild(), type_name: wild() },
        OnnxError::Unsupported { place: wild(), feature: wild() },
        OnnxError::BadTensor { tensor: wild(), reason: wild() },
        OnnxError::ExternalData { tensor: wild(), location: wild(), reason: wild() },
        OnnxError::Duplicate { name: wild(), place: wild() },
        OnnxError::Undefined { name: wild(), place: wild() },
        OnnxError::Cycle { nodes: vec![wild(), wild()] },
        OnnxError::RecursiveFunction { functions: vec![wild(), wild()] },
    ];
    for e in all {
        assert!(e.help().is_some_and(|h| !h.is_empty()), "{e}");
        clean(&e.to_string());
        let e = OnnxError::InFile { path: path(), source: Box::new(e) };
        assert!(e.help().is_some_and(|h| !h.is_empty()), "{e}");
        clean(&e.to_string());
    }
    let help = || "do this".to_string();
    for e in [
        ImportError::UnknownOperator { node: wild(), operator: wild(), opset: 1, help: help() },
        ImportError::Node { node: wild(), reason: wild(), help: help() },
        ImportError::Graph { place: wild(), reason: wild(), help: help() },
    ] {
        assert!(e.help().is_some());
        clean(&e.to_string());
    }
    for e in [
        ExportError::Operator { op: "add".into(), origin: wild(), opset: 7 },
        ExportError::Kernel { fault: Fault { kernel: Some((3, wild())), what: wild() } },
        ExportError::OperatorSet { opset: 999 },
        ExportError::Extent { extent: wild(), symbol: wild() },
        ExportError::Body { op: "gelu".into(), reason: wild() },
    ] {
        assert!(e.help().is_some_and(|h| !h.is_empty()), "{e}");
        clean(&e.to_string());
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in [
        ("none.npz", None),
        ("empty.npz", Some(&b""[..])),
        ("cut.npy", Some(&b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4'"[..])),
        ("wild.npy", Some(&b"\x93NUMPY\x01\x00\x14\x00{'descr': '\x1b[31m\r\n'}"[..])),
    ] {
        let path = folder.path().join(name);
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).expect("writes");
        }
        let e = match name.ends_with("npz") {
            true => npz::read_npz(&path).expect_err(name),
            false => npz::read_npy(&path).expect_err(name),
        };
        assert!(e.to_string().contains(name), "{e} names the file");
        assert!(e.help().is_some_and(|h| !h.is_empty()), "{e}");
        clean(&e.to_string());
    }
}
