//! Files that are held against their own operators although a run computes what decides a node.

use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::{RawDim, RawGraph, RawModel, RawNode, RawValueInfo, to_bytes};
use mlc_rewrite::{Model, Optimizer};

/// Constants of integers by name: a list, or a scalar of 1.
type Constants = [(&'static str, &'static [i64])];

/// What is made of `x[n, 6]`, its extents `s`, and these constants: nodes as `y = Operator(operands)`.
const CASES: &[(&str, &Constants)] = &[
    ("y = Slice(x, zero, last, axis)", &[("last", &[3])]),
    ("n = Gather(s, first); y = Slice(x, zero, n, axis)", &[]),
    ("n = Gather(s, first); h = Div(n, two); y = Slice(x, h, n, zero)", &[]),
    ("t = Gather(s, turned); y = Reshape(x, t)", &[("turned", &[1, 0])]),
    ("t = Concat(two, s); y = Expand(x, t)", &[]),
    ("n = Gather(s, first); t = Concat(n, one); y = Tile(x, t)", &[]),
    ("n = Gather(s, first); t = Concat(zero, zero, n, one); y = Pad(x, t)", &[]),
    ("t = Mul(s, two); y = ConstantOfShape(t)", &[]),
    ("n = Size(x); z = Mul(n, none); y = Range(z, n, scale)", &[("none", &[]), ("scale", &[])]),
    ("n = NonZero(x); t = Shape(n); y = Expand(one, t)", &[]),
];

const CONSTANTS: &Constants =
    &[("zero", &[0]), ("one", &[1]), ("two", &[2]), ("first", &[0]), ("axis", &[1])];

fn info(name: &str, dims: Option<Vec<RawDim>>) -> RawValueInfo {
    let dtype = dims.as_ref().map(|_| DType::F32);
    RawValueInfo { name: name.into(), dtype, dims, ..RawValueInfo::default() }
}

fn node(text: &str) -> RawNode {
    let (result, call) = text.trim().split_once(" = ").expect("an assignment");
    let (op, operands) = call.split_once('(').expect("a call");
    let operands = operands.trim_end_matches(')').split(", ").map(str::to_string);
    let mut node = RawNode {
        op_type: op.into(),
        inputs: operands.collect(),
        outputs: vec![result.into()],
        ..RawNode::default()
    };
    if op == "Concat" {
        node.attrs.insert("axis".into(), mlc_onnx::RawAttr::Int(0));
    }
    node
}

fn model(text: &str, own: &Constants) -> RawModel {
    let mut g = RawGraph { name: "g".into(), ..RawGraph::default() };
    g.inputs.push(info("x", Some(vec![RawDim::Symbol("n".into()), RawDim::Known(6)])));
    for (name, values) in CONSTANTS.iter().chain(own) {
        let (shape, values) = match values {
            // A scalar of 1.
            [] => (vec![], &[1][..]),
            list => (vec![list.len()], *list),
        };
        g.initializers.insert((*name).into(), Tensor::from_i64(DType::I64, shape, values));
    }
    g.nodes.push(node("s = Shape(x)"));
    g.nodes.extend(text.split(';').map(node));
    g.outputs.push(info("y", None));
    let opset_imports = [(String::new(), 18)].into();
    RawModel { ir_version: 8, opset_imports, graph: g, ..RawModel::default() }
}

#[test]
fn what_a_run_computes_decides_a_node() {
    for (text, own) in CASES {
        let bytes = to_bytes(&model(text, own)).expect("a file");
        let model = Model::from_bytes(bytes).unwrap_or_else(|e| panic!("{text}: {e:#}"));
        let done = Optimizer::new().target("standard").optimize(&model);
        let done = done.unwrap_or_else(|e| panic!("{text}: {e:#}"));
        let check = done.report().self_check.as_ref().and_then(|c| c.by_nodes.clone());
        let check = check.unwrap_or_else(|| panic!("{text}: not checked"));
        assert_eq!(check.not_checked, None, "{text}");
        let unused: Vec<_> = check.sets.iter().filter_map(|s| s.unused.as_ref()).collect();
        assert!(unused.len() < check.sets.len(), "{text}: {unused:?}");
        assert!(matches!(check.written, Some(Ok(n)) if n > 0), "{text}: {:?}", check.written);
    }
}
