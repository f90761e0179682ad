//! Two models: equal by the laws, or the place where they differ.

use indexmap::IndexMap;
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::*;
use mlc_rewrite::{Answer, Comparison, Error, Model, Optimizer};

/// A node: operator, inputs, output.
type Line<'a> = (&'a str, &'a [&'a str], &'a str);

fn value(name: &str, dims: &[i64]) -> RawValueInfo {
    let dims = dims.iter().map(|&d| match d {
        ..0 => RawDim::Symbol(format!("n{}", -d)),
        d => RawDim::Known(d.unsigned_abs()),
    });
    RawValueInfo {
        name: name.into(),
        dtype: Some(DType::F32),
        dims: Some(dims.collect()),
        ..RawValueInfo::default()
    }
}

/// A model of one input `x` and one output `y` of the same extents.
fn model(dims: &[i64], lines: &[Line<'_>], constants: &[(&str, Tensor)]) -> RawModel {
    let node = |(op, inputs, out): &Line<'_>| RawNode {
        name: format!("node_{out}"),
        op_type: (*op).into(),
        inputs: inputs.iter().map(|i| i.to_string()).collect(),
        outputs: vec![(*out).into()],
        ..RawNode::default()
    };
    let initializers: IndexMap<String, Tensor> =
        constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
    let graph = RawGraph {
        name: "net".into(),
        inputs: vec![value("x", dims)],
        outputs: vec![RawValueInfo { dims: None, ..value("y", dims) }],
        nodes: lines.iter().map(node).collect(),
        initializers,
        ..RawGraph::default()
    };
    let opset_imports = [(String::new(), 20)].into();
    RawModel { ir_version: 9, opset_imports, graph, ..RawModel::default() }
}

fn compared(a: &RawModel, b: &RawModel) -> Result<Comparison, Error> {
    let read = |m: &RawModel| Model::from_bytes(to_bytes(m).expect("it is written"));
    Optimizer::new().threads(1).compare(&read(a)?, &read(b)?)
}

fn number(v: f32) -> Tensor {
    Tensor::from_f32(vec![], vec![v])
}

/// Numbers of either sign, no two alike.
fn spread(shape: &[usize]) -> Tensor {
    let n = shape.iter().product();
    let values = (0..n).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_f32(shape.to_vec(), values)
}

#[test]
fn spellings_of_a_layer_are_equal_by_the_laws() {
    let written_out = model(
        &[-1, 8],
        &[
            ("Div", &["x", "root"], "a"),
            ("Erf", &["a"], "b"),
            ("Add", &["b", "one"], "c"),
            ("Mul", &["x", "c"], "d"),
            ("Mul", &["d", "half"], "y"),
        ],
        &[("root", number(2f32.sqrt())), ("one", number(1.0)), ("half", number(0.5))],
    );
    // The second calls its symbol otherwise.
    let layer = model(&[-2, 8], &[("Gelu", &["x"], "y")], &[]);
    let found = compared(&written_out, &layer).expect("they are compared");
    assert_eq!(found.answer, Answer::Equal, "{}", found.human(true));
    assert!(found.regions.is_empty() && !found.laws.is_empty());
    assert!(found.human(false).starts_with("equal by the laws\n"));
}

#[test]
fn constants_that_were_computed_elsewhere_may_be_rounded() {
    let (w, scale) = (spread(&[8, 8]), spread(&[8]));
    let (weights, factors) = (w.to_f32().into_owned(), scale.to_f32().into_owned());
    let scaled = (0..64).map(|i| weights[i] * factors[i % 8] * (1.0 + 1e-7)).collect();
    let lines: &[Line<'_>] =
        &[("MatMul", &["x", "w"], "a"), ("Mul", &["a", "s"], "b"), ("Relu", &["b"], "y")];
    let a = model(&[4, 8], lines, &[("w", w), ("s", scale)]);
    let lines: &[Line<'_>] = &[("MatMul", &["x", "ws"], "b"), ("Relu", &["b"], "y")];
    let b = model(&[4, 8], lines, &[("ws", Tensor::from_f32(vec![8, 8], scaled))]);
    let found = compared(&a, &b).expect("they are compared");
    assert_eq!(found.answer, Answer::Equal, "{}", found.human(true));
    assert_eq!(found.rounded.len(), 1, "{}", found.human(true));
    let rounded = &found.rounded[0];
    assert!(rounded.constant == "ws" && rounded.difference > 0.0 && rounded.difference < 1e-6);
}

const LOG: &[Line<'_>] = &[
    ("MatMul", &["x", "w"], "a"),
    ("Relu", &["a"], "b"),
    ("Add", &["b", "tiny"], "c"),
    ("Log", &["c"], "d"),
    ("Tanh", &["d"], "e"),
    ("MatMul", &["e", "v"], "y"),
];

fn logarithm(lines: &[Line<'_>], change: impl FnOnce(&mut RawModel)) -> RawModel {
    let constants = [("w", spread(&[8, 8])), ("v", spread(&[8, 8])), ("tiny", number(1e-10))];
    let mut model = model(&[4, 8], lines, &constants);
    change(&mut model);
    model
}

#[test]
fn a_summand_that_is_lost_matters_where_the_rest_is_zero() {
    let mut lines = LOG.to_vec();
    lines.remove(2);
    lines[2].1 = &["b"];
    let found = compared(&logarithm(LOG, |_| ()), &logarithm(&lines, |_| ())).expect("compared");
    assert_eq!(found.answer, Answer::Differ, "{}", found.human(true));
    let [region] = &found.regions[..] else { panic!("{}", found.human(true)) };
    assert_eq!(region.a.nodes, ["node_c", "node_d"], "{}", found.human(true));
    assert_eq!(region.b.nodes, ["node_d"]);
    assert_eq!(region.from, ["node_b"]);
    let difference = region.difference.as_ref().expect("numbers");
    assert!(difference.a.is_finite() && difference.b == f64::NEG_INFINITY, "{difference:?}");
}

#[test]
fn what_is_changed_is_placed() {
    let right = logarithm(LOG, |_| ());
    let operator = logarithm(LOG, |m| m.graph.nodes[4].op_type = "Sigmoid".into());
    let moved = |name: &str| {
        let name = name.to_string();
        move |m: &mut RawModel| {
            let t = &m.graph.initializers[&name];
            let mut values = t.to_f32().into_owned();
            values[5] += 0.25;
            let changed = Tensor::from_f32(t.shape().to_vec(), values);
            m.graph.initializers.insert(name, changed);
        }
    };
    for (wrong, at) in [
        (operator, "node_e"),
        (logarithm(LOG, moved("w")), "node_a"),
        (logarithm(LOG, moved("v")), "node_y"),
    ] {
        let found = compared(&right, &wrong).expect("they are compared");
        let [region] = &found.regions[..] else { panic!("{at}: {}", found.human(true)) };
        assert_eq!(region.a.nodes, [at], "{}", found.human(true));
        assert_eq!(region.b.nodes, [at]);
        assert_eq!(found.answer, Answer::Differ);
        assert_eq!(region.constants.len(), usize::from(at != "node_e"));
        assert!(region.constants.iter().all(|c| (c.element, c.elements) == (5, 1)));
        let difference = region.difference.as_ref().expect("numbers");
        assert!(difference.units.is_some_and(|u| u > 100.0), "{difference:?}");
    }
    // Two places at once are two.
    let both = logarithm(LOG, |m| {
        m.graph.nodes[4].op_type = "Sigmoid".into();
        moved("w")(m);
    });
    let found = compared(&right, &both).expect("they are compared");
    let places: Vec<&str> = found.regions.iter().map(|r| r.b.value.as_str()).collect();
    assert_eq!(places, ["node_a", "node_e"], "{}", found.human(true));
}

#[test]
fn other_interfaces_are_refused() {
    let a = model(&[4, 8], &[("Relu", &["x"], "y")], &[]);
    let other = |change: &dyn Fn(&mut RawModel)| {
        let mut b = a.clone();
        change(&mut b);
        compared(&a, &b).expect_err("they differ").to_string()
    };
    let renamed = other(&|b| {
        b.graph.inputs[0].name = "z".into();
        b.graph.nodes[0].inputs[0] = "z".into();
    });
    assert!(renamed.contains("`x`") && renamed.contains("`z`"), "{renamed}");
    let wider = other(&|b| b.graph.inputs[0].dims = value("x", &[4, 9]).dims);
    assert!(wider.contains("f32[4, 8]") && wider.contains("f32[4, 9]"), "{wider}");
    let output = other(&|b| {
        b.graph.outputs[0].name = "z".into();
        b.graph.nodes[0].outputs[0] = "z".into();
    });
    assert!(output.contains("outputs"), "{output}");
    let open = model(&[-1, 8], &[("Relu", &["x"], "y")], &[]);
    let found = compared(&a, &open).expect("an open extent is taken to be the number");
    assert_eq!(found.answer, Answer::Equal);
    let text = Model::from_rules("def f(x: f32[4, 8]) -> f32[4, 8]\n  = abs(x)\n").expect("read");
    let refused = Optimizer::new().compare(&text, &text).expect_err("texts").to_string();
    assert!(refused.contains("text"), "{refused}");
}

/// The data of the page of two models.
fn page(a: &RawModel, b: &RawModel) -> serde_json::Value {
    let page = compared(a, b).and_then(|c| c.html()).expect("a page");
    let (_, rest) =
        page.split_once("<script id=\"data\" type=\"application/json\">").expect("data");
    let (data, _) = rest.split_once("</script>").expect("it ends");
    serde_json::from_str(data).expect("JSON")
}

/// Of every node of a side its name, what it is to the other model, and its partners' names.
fn told(data: &serde_json::Value, side: usize) -> Vec<(String, String, Vec<String>)> {
    let items = |s: usize| data["sides"][s]["items"].as_array().expect("a list");
    let text = |v: &serde_json::Value| v.as_str().expect("a text").to_string();
    let partner = |j: &serde_json::Value| {
        text(&items(1 - side)[j.as_u64().expect("a number") as usize]["name"])
    };
    let told = |i: &serde_json::Value| {
        let partners = i["partners"].as_array().expect("a list").iter().map(partner);
        (text(&i["name"]), text(&i["state"]), partners.collect())
    };
    items(side).iter().map(told).collect()
}

#[test]
fn a_page_links_what_is_equal_and_marks_what_differs() {
    let a = logarithm(LOG, |_| ());
    let mut lines = LOG.to_vec();
    lines.remove(2);
    lines[2].1 = &["b"];
    let data = page(&a, &logarithm(&lines, |_| ()));
    let row = |name: &str, state: &str, partners: &[&str]| {
        (name.to_string(), state.to_string(), partners.iter().map(|p| p.to_string()).collect())
    };
    let first: Vec<(String, String, Vec<String>)> = vec![
        row("x", "input", &["x"]),
        row("node_a", "same", &["node_a"]),
        row("node_b", "same", &["node_b"]),
        row("node_c", "differs", &[]),
        row("node_d", "differs", &["node_d"]),
        row("node_e", "behind", &["node_e"]),
        row("node_y", "behind", &["node_y"]),
        row("y", "output", &["y"]),
    ];
    assert_eq!(told(&data, 0), first);
    let second: Vec<_> = first.into_iter().filter(|row| row.0 != "node_c").collect();
    assert_eq!(told(&data, 1), second);
    assert_eq!(data["places"], serde_json::json!([[[3, 4], [3]]]));
    assert_eq!(data["found"]["regions"][0]["difference"]["b"], "-inf");
    let inputs = data["found"]["regions"][0]["difference"]["inputs"].clone();
    let samples = data["samples"].as_array().expect("a list");
    assert!(samples.iter().any(|s| s["name"] == inputs && s["inputs"][0]["name"] == "x"));
}

#[test]
fn a_page_has_the_proofs() {
    let written_out =
        model(&[4, 8], &[("Neg", &["x"], "a"), ("Neg", &["a"], "b"), ("Relu", &["b"], "y")], &[]);
    let layer = model(&[4, 8], &[("Relu", &["x"], "y")], &[]);
    let data = page(&layer, &written_out);
    assert_eq!(data["found"]["answer"], "equal");
    let states: Vec<String> = told(&data, 1).into_iter().map(|row| row.1).collect();
    assert_eq!(states, ["input", "alone", "proved", "same", "output"]);
    let proof = &data["proofs"][0];
    assert_eq!(proof["items"], serde_json::json!([0, 2]), "an input is what two nodes compute");
    let step = &data["steps"][proof["steps"][0].as_u64().expect("a step") as usize];
    assert!(step["drawing"].is_number());
    let law = &data["laws"][step["law"].as_u64().expect("a law") as usize];
    assert!(law["text"].as_str().is_some_and(|t| t.contains("neg")), "{law}");
    assert!(data["places"].as_array().is_some_and(Vec::is_empty));
}
