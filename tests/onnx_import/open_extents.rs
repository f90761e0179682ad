//! Models with open extents at several sets of extents, 0 and 1 among them: what is read, run and written against the same model with
//! numbers in their place.

use super::support::*;
use mlc_backends::arrays::AnyArray;
use mlc_onnx::{parse_onnx, to_bytes};
use mlc_rewrite::{Model, Optimizer};
use std::collections::BTreeMap;

/// The extents of one run by symbol.
type Extents = &'static [(&'static str, u64)];

struct Case {
    name: &'static str,
    opset: i64,
    /// Name, element type and axes.
    inputs: &'static [(&'static str, DType, &'static [&'static str])],
    constants: Vec<(&'static str, Tensor)>,
    nodes: Vec<RawNode>,
    sets: &'static [Extents],
}

const F: DType = DType::F32;

impl Case {
    fn of(
        name: &'static str,
        inputs: &'static [(&'static str, DType, &'static [&'static str])],
        nodes: Vec<RawNode>,
        sets: &'static [Extents],
    ) -> Case {
        Case { name, opset: 17, inputs, constants: vec![], nodes, sets }
    }

    fn with(mut self, name: &'static str, t: Tensor) -> Case {
        self.constants.push((name, t));
        self
    }

    fn at(self, opset: i64) -> Case {
        Case { opset, ..self }
    }

    /// What comes of the last node is `y`.
    fn raw(&self) -> RawModel {
        let (mut raw, _) = model(self.opset, &[], self.nodes.clone(), &["y"]);
        for (name, dtype, axes) in self.inputs {
            let dim = |a: &&str| match a.parse() {
                Ok(n) => RawDim::Known(n),
                Err(_) => RawDim::Symbol(a.to_string()),
            };
            raw.graph.inputs.push(RawValueInfo {
                name: name.to_string(),
                dtype: Some(*dtype),
                dims: Some(axes.iter().map(dim).collect()),
                ..RawValueInfo::default()
            });
        }
        let constants = self.constants.iter().map(|(n, t)| (n.to_string(), t.clone()));
        raw.graph.initializers.extend(constants);
        raw
    }

    fn feeds(&self, extents: Extents) -> Vec<(String, Tensor)> {
        let sizes: BTreeMap<&str, u64> = extents.iter().copied().collect();
        let extent = |a: &&str| a.parse().unwrap_or_else(|_| sizes[a]) as usize;
        let feed = |(i, (name, dtype, axes)): (usize, &(&str, DType, &[&str]))| {
            let shape: Vec<usize> = axes.iter().map(extent).collect();
            let element = |k: usize| match dtype.is_float() {
                true => ((k * 7 + i * 3) % 11) as f64 * 0.25 - 1.0,
                false => ((k * 7 + i * 3) % 5) as f64,
            };
            let v: Vec<f64> = (0..shape.iter().product()).map(element).collect();
            (name.to_string(), Tensor::from_f64(*dtype, shape, &v))
        };
        self.inputs.iter().enumerate().map(feed).collect()
    }
}

/// The outputs of a model whose inputs have the extents of these tensors.
fn fixed(mut raw: RawModel, feeds: &[(String, Tensor)]) -> Result<Vec<Tensor>, String> {
    for input in &mut raw.graph.inputs {
        let given = feeds.iter().find(|(name, _)| *name == input.name);
        let (_, t) = given.ok_or_else(|| format!("`{}` is not given", input.name))?;
        input.dims = Some(t.shape().iter().map(|&d| RawDim::Known(d as u64)).collect());
    }
    raw.graph.value_infos.clear();
    let imported = import(raw, library()).map_err(|e| e.to_string())?;
    let find = |(name, _): &(String, _)| {
        feeds.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone()).expect("given")
    };
    let inputs: Vec<Tensor> = imported.program.inputs.iter().map(find).collect();
    let found = run_values(&imported.program, library(), &inputs).map_err(|e| e.to_string())?;
    Ok(found.iter().map(|a| a.to_tensor()).collect())
}

fn close(found: &Tensor, wanted: &Tensor) -> Result<(), String> {
    if (found.dtype(), found.shape()) != (wanted.dtype(), wanted.shape()) {
        let of = |t: &Tensor| format!("{}{:?}", t.dtype(), t.shape());
        return Err(format!("{} for {}", of(found), of(wanted)));
    }
    let differ = |(a, b): (f64, f64)| {
        !(a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * (1.0 + b.abs()))
    };
    let pairs = found.to_f64().into_iter().zip(wanted.to_f64());
    pairs.clone().find(|p| differ(*p)).map_or(Ok(()), |(a, b)| Err(format!("{a} for {b}")))
}

fn check(case: &Case) -> Result<(), String> {
    let raw = case.raw();
    let bytes = to_bytes(&raw).map_err(|e| e.to_string())?;
    let model = Model::from_bytes(bytes).map_err(|e| format!("read: {e}"))?;
    let session = model.session().map_err(|e| format!("session: {e}"))?;
    let mut written = vec![];
    for target in ["standard", "onnxruntime"] {
        let optimized = Optimizer::new().check(false).target(target).optimize(&model);
        let bytes = optimized.and_then(|o| o.to_bytes()).map_err(|e| format!("{target}: {e}"))?;
        let file = parse_onnx(bytes.into(), None).map_err(|e| format!("{target}: {e}"))?;
        let dims = |raw: &RawModel| -> BTreeMap<String, Option<Vec<RawDim>>> {
            raw.graph.inputs.iter().map(|i| (i.name.clone(), i.dims.clone())).collect()
        };
        if dims(&file) != dims(&raw) {
            return Err(format!("{target}: the inputs are {:?}", file.graph.inputs));
        }
        written.push((target, file));
    }
    for extents in case.sets {
        let feeds = case.feeds(extents);
        let wanted = fixed(raw.clone(), &feeds).map_err(|e| format!("{extents:?}: {e}"))?;
        let of = |what: &str, found: Result<Tensor, String>| {
            found
                .and_then(|t| close(&t, &wanted[0]))
                .map_err(|e| format!("{what} at {extents:?}: {e}"))
        };
        let given = feeds.iter().map(|(n, t)| (n.as_str(), AnyArray::from(t.clone())));
        let ran = session.run(given).map_err(|e| e.to_string());
        let y = ran.map(|out| out.get("y").expect("an output").clone().into_tensor());
        of("run", y)?;
        for (target, file) in &written {
            of(target, fixed(file.clone(), &feeds).map(|mut all| all.remove(0)))?;
        }
    }
    Ok(())
}

fn checked(cases: Vec<Case>) {
    let wrong = |case: &Case| check(case).err().map(|e| format!("{}: {e}\n", case.name));
    let wrong: String = cases.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{wrong}");
}

fn y(op: &str, inputs: &[&str], attrs: &[(&str, RawAttr)]) -> Vec<RawNode> {
    vec![node(op, inputs, &["y"], attrs)]
}

const NC: &[(&str, DType, &[&str])] = &[("x", F, &["n", "c"])];
const TO_SIX: &[Extents] =
    &[&[("n", 2), ("c", 6)], &[("n", 1), ("c", 1)], &[("n", 0), ("c", 1)], &[("n", 3), ("c", 1)]];
const TWO: &[(&str, DType, &[&str])] = &[("x", F, &["n", "3"]), ("z", F, &["m", "3"])];
const PAIRS: &[Extents] = &[
    &[("n", 4), ("m", 4)],
    &[("n", 1), ("m", 5)],
    &[("n", 5), ("m", 1)],
    &[("n", 0), ("m", 1)],
    &[("n", 1), ("m", 1)],
    &[("n", 0), ("m", 0)],
];
const SLOPES: &[Extents] =
    &[&[("n", 4), ("m", 4)], &[("n", 5), ("m", 1)], &[("n", 0), ("m", 1)], &[("n", 1), ("m", 1)]];

#[test]
fn an_open_extent_broadcasts_against_a_number() {
    let mut cases = vec![];
    for op in ["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Less", "Equal"] {
        for order in [&["x", "w"], &["w", "x"]] {
            if op != "PRelu" || order[0] == "x" {
                cases.push(Case::of(op, NC, y(op, order, &[]), TO_SIX).with("w", count(&[6])));
            }
        }
    }
    let mean = node("Sub", &["x", "w"], &["y"], &[]);
    let image: &[(&str, DType, &[&str])] = &[("x", F, &["b", "c", "h", "v"])];
    let sets: &[Extents] = &[
        &[("b", 2), ("c", 3), ("h", 4), ("v", 5)],
        &[("b", 1), ("c", 1), ("h", 2), ("v", 1)],
        &[("b", 0), ("c", 3), ("h", 2), ("v", 2)],
    ];
    cases.push(Case::of("mean", image, vec![mean], sets).with("w", count(&[1, 3, 1, 1])));
    let expand = y("Expand", &["x", "s"], &[]);
    cases.push(Case::of("Expand", NC, expand, TO_SIX).with("s", ints(&[3], &[2, 1, 6])));
    let choose = y("Where", &["k", "x", "w"], &[]);
    let choose = Case::of("Where", NC, choose, TO_SIX).with("w", count(&[4, 1, 6]));
    cases.push(choose.with("k", bools(&[6], &[0, 1, 1, 0, 1, 0])));
    checked(cases);
}

#[test]
fn two_open_extents_broadcast() {
    let mut cases = vec![];
    for op in ["Add", "Mul", "Greater"] {
        cases.push(Case::of(op, TWO, y(op, &["x", "z"], &[]), PAIRS));
    }
    let chain = vec![
        node("Add", &["x", "z"], &["a"], &[]),
        node("Relu", &["a"], &["r"], &[]),
        node("Mul", &["r", "x"], &["p"], &[]),
        node("Shape", &["p"], &["s"], &[]),
        node("Expand", &["z", "s"], &["e"], &[]),
        node("Sub", &["p", "e"], &["y"], &[]),
    ];
    cases.push(Case::of("chain", TWO, chain, PAIRS));
    let masked: &[(&str, DType, &[&str])] =
        &[("q", F, &["s", "4"]), ("v", F, &["s", "2"]), ("mask", F, &["1", "t"])];
    let attention = vec![
        node("Transpose", &["q"], &["k"], &[]),
        node("MatMul", &["q", "k"], &["p"], &[]),
        node("Add", &["p", "mask"], &["m"], &[]),
        node("Softmax", &["m"], &["w"], &[("axis", int(-1))]),
        node("MatMul", &["w", "v"], &["y"], &[]),
    ];
    let sets: &[Extents] = &[&[("s", 3), ("t", 3)], &[("s", 3), ("t", 1)], &[("s", 1), ("t", 1)]];
    cases.push(Case::of("mask", masked, attention, sets));
    let batches: &[(&str, DType, &[&str])] =
        &[("x", F, &["n", "2", "4"]), ("z", F, &["m", "4", "3"])];
    cases.push(Case::of("batches", batches, y("MatMul", &["x", "z"], &[]), PAIRS));
    // Before operator set 12 integers have no maximum.
    for opset in [8, 11] {
        let nodes = vec![node("Add", &["x", "z"], &["s"], &[]), node("Relu", &["s"], &["y"], &[])];
        cases.push(Case::of("Add before", TWO, nodes, PAIRS).at(opset));
        cases.push(Case::of("PRelu before", TWO, y("PRelu", &["x", "z"], &[]), SLOPES).at(opset));
    }
    checked(cases);
}

#[test]
fn extents_that_must_be_equal_leave_the_inputs_open() {
    let sizes: &[Extents] = &[&[("n", 6), ("c", 2)], &[("n", 6), ("c", 0)]];
    let split =
        vec![node("Split", &["x", "s"], &["a", "b"], &[]), node("Relu", &["b"], &["y"], &[])];
    let halves = vec![
        node("Split", &["x"], &["a", "b"], &[]),
        node("Sigmoid", &["a"], &["g"], &[]),
        node("Mul", &["g", "b"], &["y"], &[]),
    ];
    let even: &[Extents] = &[&[("n", 6), ("c", 2)], &[("n", 0), ("c", 1)], &[("n", 2), ("c", 1)]];
    let joined: &[(&str, DType, &[&str])] = &[("x", F, &["n", "c"]), ("z", F, &["m", "d"])];
    let equal: &[Extents] =
        &[&[("n", 2), ("c", 3), ("m", 0), ("d", 3)], &[("n", 1), ("c", 0), ("m", 2), ("d", 0)]];
    let rows: &[Extents] = &[&[("n", 2), ("c", 3)], &[("n", 0), ("c", 3)]];
    let new_axis = [("axis", int(-1)), ("new_axis", int(1))];
    let stacked = vec![
        node("SequenceConstruct", &["x", "z"], &["parts"], &[]),
        node("ConcatFromSequence", &["parts"], &["y"], &new_axis),
    ];
    let same: &[Extents] =
        &[&[("n", 2), ("c", 3), ("m", 2), ("d", 3)], &[("n", 0), ("c", 1), ("m", 0), ("d", 1)]];
    checked(vec![
        Case::of("stacked", joined, stacked, same),
        Case::of("split", NC, split, sizes).with("s", ints(&[2], &[2, 4])),
        Case::of("halves", NC, halves, even),
        Case::of("concat", joined, y("Concat", &["x", "z"], &[("axis", int(0))]), equal),
        Case::of("product", NC, y("MatMul", &["x", "w"], &[]), rows).with("w", count(&[3, 2])),
        Case::of("norm", NC, y("LayerNormalization", &["x", "w"], &[]), rows)
            .with("w", count(&[3])),
    ]);
}

#[test]
fn a_run_decides_which_axes_are_squeezed() {
    let all: &[(&str, DType, &[&str])] = &[("x", F, &["n", "1", "k"])];
    let sets: &[Extents] = &[
        &[("n", 2), ("k", 3)],
        &[("n", 1), ("k", 3)],
        &[("n", 1), ("k", 1)],
        &[("n", 0), ("k", 1)],
    ];
    let nodes = || vec![node("Squeeze", &["x"], &["s"], &[]), node("Relu", &["s"], &["y"], &[])];
    checked(vec![
        Case::of("squeeze", all, nodes(), sets),
        Case::of("squeeze 11", all, nodes(), sets).at(11),
    ]);
}

#[test]
fn what_is_empty_is_padded_along_its_other_axes() {
    let sets: &[Extents] = &[&[("n", 0)], &[("n", 1)], &[("n", 3)]];
    let x: &[(&str, DType, &[&str])] = &[("x", F, &["n", "4"])];
    let pad = |mode: &'static str| {
        let nodes = y("Pad", &["x", "p"], &[("mode", RawAttr::from(mode))]);
        Case::of(mode, x, nodes, sets).with("p", ints(&[4], &[0, 2, 0, 1]))
    };
    checked(vec![pad("edge"), pad("reflect"), pad("wrap").at(19)]);
}

#[test]
fn windows_do_not_begin_behind_an_open_axis() {
    let line: &[(&str, DType, &[&str])] = &[("x", F, &["1", "2", "n"])];
    let sets: &[Extents] = &[
        &[("n", 1)],
        &[("n", 2)],
        &[("n", 3)],
        &[("n", 4)],
        &[("n", 5)],
        &[("n", 7)],
        &[("n", 12)],
    ];
    let mut cases = vec![];
    for op in ["MaxPool", "AveragePool"] {
        for (window, stride, pad) in [(3, 3, 1), (3, 2, 1), (2, 2, 1), (5, 3, 2), (4, 3, 1)] {
            let attrs = [
                ("ceil_mode", int(1)),
                ("kernel_shape", list(&[window])),
                ("strides", list(&[stride])),
                ("pads", list(&[pad, pad])),
            ];
            let nodes = vec![node(op, &["x"], &["p"], &attrs), node("Relu", &["p"], &["y"], &[])];
            cases.push(Case::of(op, line, nodes, sets).at(19));
        }
    }
    checked(cases);
}

#[test]
fn einsum_broadcasts_one_element() {
    let ab: &[(&str, DType, &[&str])] = &[("x", F, &["a", "b"])];
    let sets: &[Extents] = &[
        &[("a", 2), ("b", 3)],
        &[("a", 1), ("b", 1)],
        &[("a", 0), ("b", 2)],
        &[("a", 2), ("b", 0)],
    ];
    let both: &[(&str, DType, &[&str])] = &[("x", F, &["n", "2", "3"]), ("z", F, &["m", "3", "2"])];
    let of = |equation: &str| [("equation", RawAttr::Str(equation.to_string().into()))];
    checked(vec![
        Case::of("unit", ab, y("Einsum", &["x", "w"], &of("ab,cb->ac")), sets)
            .with("w", count(&[2, 1])),
        Case::of("batches", both, y("Einsum", &["x", "z"], &of("bij,bjk->bik")), PAIRS),
    ]);
}
