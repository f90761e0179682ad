//! Slices of an open axis at extents around their bounds: as read, optimised, and written and read again.

use mlc_backends::arrays::AnyArray;
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::{RawAttr, RawDim, RawGraph, RawModel, RawNode, RawValueInfo, to_bytes};
use mlc_rewrite::{Device, Model, Optimizer, Session};

const END: i64 = i64::MAX;
const FRONT: i64 = i64::MIN;

/// `x[start:end:step]`, one after the other.
const CASES: &[&[(i64, i64, i64)]] = &[
    &[(-5, END, 1)],
    &[(2, 5, 1)],
    &[(0, -3, 1)],
    &[(3, FRONT, -2)],
    &[(-1, FRONT, -1)],
    &[(4, 2, 1)],
    &[(-2, -4, 1)],
    &[(-4, 3, 1)],
    &[(1, END, 3)],
    &[(-1, -4, -1)],
    &[(0, -1, 1), (-2, END, 1)],
    &[(2, END, 1), (0, 3, 1)],
    &[(-1, FRONT, -1), (3, END, 1)],
    &[(-1, FRONT, -1), (-1, FRONT, -1)],
    &[(1, END, 2), (1, -1, 1), (-2, END, 1)],
];

fn list(v: Vec<i64>) -> Tensor {
    Tensor::from_i64(DType::I64, vec![v.len()], &v)
}

fn node(op: &str, inputs: &[String], output: &str) -> RawNode {
    RawNode {
        op_type: op.into(),
        inputs: inputs.to_vec(),
        outputs: vec![output.into()],
        ..RawNode::default()
    }
}

/// `y`, a relu of the slices of `x[n, 2]`, and its shape; before operator set 10 bounds are attributes.
fn model(slices: &[(i64, i64, i64)], opset: i64) -> RawModel {
    let info = |name: &str, dtype, dims| RawValueInfo {
        name: name.into(),
        dtype: Some(dtype),
        dims,
        ..RawValueInfo::default()
    };
    let mut g = RawGraph { name: "slices".into(), ..RawGraph::default() };
    let dims = vec![RawDim::Symbol("n".into()), RawDim::Known(2)];
    g.inputs.push(info("x", DType::F32, Some(dims)));
    let mut x = "x".to_string();
    for (i, &(start, end, step)) in slices.iter().enumerate() {
        let y = format!("part_{i}");
        let lists = [("starts", start), ("ends", end), ("axes", 0), ("steps", step)];
        let mut slice = node("Slice", &[x], &y);
        for (name, v) in lists {
            if opset >= 10 {
                let constant = format!("{name}_{i}");
                g.initializers.insert(constant.clone(), list(vec![v]));
                slice.inputs.push(constant);
            } else if name != "steps" {
                slice.attrs.insert(name.into(), RawAttr::Ints(vec![v]));
            }
        }
        g.nodes.push(slice);
        x = y;
    }
    g.nodes.push(node("Relu", std::slice::from_ref(&x), "y"));
    g.nodes.push(node("Shape", &[x], "shape"));
    g.outputs = vec![info("y", DType::F32, None), info("shape", DType::I64, None)];
    let mut model = RawModel { graph: g, ir_version: 8, ..RawModel::default() };
    model.opset_imports.insert(String::new(), opset);
    model
}

/// The rows that are left of `n`, as the standard says.
fn rows(n: i64, slices: &[(i64, i64, i64)]) -> Vec<i64> {
    let mut rows: Vec<i64> = (0..n).collect();
    for &(start, end, step) in slices {
        let n = rows.len() as i64;
        let front = |b: i64| if b < 0 { b.saturating_add(n) } else { b };
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let (mut at, end) = (front(start).max(0).min(high), front(end).max(low).min(high));
        let mut left = vec![];
        while (if step > 0 { at < end } else { at > end }) && n > 0 {
            left.push(rows[at as usize]);
            at += step;
        }
        rows = left;
    }
    rows
}

#[track_caller]
fn check(session: &Session, n: i64, slices: &[(i64, i64, i64)], way: &str) {
    let x: Vec<f32> = (0..2 * n).map(|i| i as f32).collect();
    let x = AnyArray::from_vec(&[n as usize, 2], x).expect("as many as the shape says");
    let told = format!("{way} of {slices:?} where n is {n}");
    let outputs = session.run([("x", x)]).unwrap_or_else(|e| panic!("{told}: {e}"));
    let y = outputs.array::<f32>("y").expect("f32");
    let wanted = rows(n, slices);
    assert_eq!(y.shape(), [wanted.len(), 2], "{told}");
    let first: Vec<i64> = y.iter().step_by(2).map(|v| *v as i64 / 2).collect();
    assert_eq!(first, wanted, "{told}");
    let shape = outputs.array::<i64>("shape").expect("i64");
    assert_eq!(shape.iter().copied().collect::<Vec<i64>>(), [wanted.len() as i64, 2], "{told}");
}

#[test]
fn slices_of_open_axes_hold_for_every_extent() {
    // Each at the newest operator set and at one before, by turns: what bounds are read from differs, not what is done with them.
    let versions = CASES.iter().zip([9, 10, 9, 13].into_iter().cycle());
    for (slices, opset) in versions.flat_map(|(s, before)| [before, 18].map(|o| (*s, o))) {
        // Its attributes have no steps.
        let opset = if slices.iter().any(|s| s.2 != 1) { opset.max(10) } else { opset };
        let read = |bytes: Vec<u8>| Model::from_bytes(bytes).expect("a model");
        let source = read(to_bytes(&model(slices, opset)).expect("written"));
        let optimised = Optimizer::new().target("standard").optimize(&source).expect("optimised");
        let written = read(optimised.to_bytes().expect("written"));
        let ways = [
            ("the reference", source.session_on(&Device::reference())),
            ("the run", Optimizer::new().optimize(&source).expect("optimised").session()),
            ("the file", written.session()),
        ];
        for (way, session) in ways {
            let session = session.expect("a session");
            (0..8).for_each(|n| check(&session, n, slices, way));
        }
    }
}
