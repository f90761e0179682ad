//! Operators that ONNX has no node for are written by their meaning: recurrences as `Scan`, others as operators on whole tensors.

use super::super::support::*;
use mlc_rewrite::{AnyArray, Model, Optimizer};

/// A model as a text, its inputs, and what it is written as.
struct Case {
    text: &'static str,
    inputs: &'static [(&'static str, &'static [usize])],
    has: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        text: "op damped_export(x: F[t, n], w: F[n, m], h0: F[n]) -> h: F[t, n], last: F[n]
  if |m| == |n|
  h[t, n] = tanh(x[t, n] + sum(m) w[n, m] * (h[t - 1, m] else h0[m]))
    + 0.5 * (h[t - 1, n] else h0[n])
  last[n] = h[|t| - 1, n] else h0[n]
def model(x: f32[t, 3], w: f32[3, 3], h0: f32[3]) -> y: f32[t, 3], z: f32[3]
  let (h, last) = damped_export(relu(x), w, h0)
  = (h * h, last)",
        inputs: &[("x", &[4, 3]), ("w", &[3, 3]), ("h0", &[3])],
        has: &["Relu", "Scan"],
    },
    Case {
        text: "op selective_export(u: F[b, t, d], dt: F[b, t, d], a: F[d, n], q: F[b, t, n])
  -> h: F[b, t, d, n], y: F[b, t, d]
  h[b, t, d, n] = exp(dt[b, t, d] * a[d, n]) * (h[b, t - 1, d, n] else 0) + dt[b, t, d] * u[b, t, d]
  y[b, t, d] = sum(n) q[b, t, n] * h[b, t, d, n]
def model(u: f32[b, t, 3], dt: f32[b, t, 3], a: f32[3, 2], q: f32[b, t, 2]) -> f32[b, t, 3]
  let (h, y) = selective_export(u, dt, -exp(a), q)
  = y + u",
        inputs: &[("u", &[2, 4, 3]), ("dt", &[2, 4, 3]), ("a", &[3, 2]), ("q", &[2, 4, 2])],
        has: &["Scan"],
    },
    Case {
        text: "op back_export(x: F[b, t, n], g: F[n]) -> h: F[b, t, n]
  h[b, t, n] = x[b, t, n] * float(t) + g[n] * (h[b, t + 1, n] else 1)
def model(x: f32[2, t, 3], g: f32[3]) -> f32[2, t, 3]
  = back_export(x, g)",
        inputs: &[("x", &[2, 4, 3]), ("g", &[3])],
        has: &["Scan"],
    },
    Case {
        text: "op two_export(x: F[t]) -> c: F[t], d: F[t]
  c[t] = (c[t - 1] else 1) + (d[t - 1] else 0.5) * x[t]
  d[t] = 0.5 * c[t] - (d[t - 1] else 0.5)
def model(x: f32[t]) -> c: f32[t], d: f32[t]
  = two_export(x)",
        inputs: &[("x", &[6])],
        has: &["Scan"],
    },
    Case {
        text: "def model(
  x: f32[t, 2, 3], w: f32[1, 8, 3], r: f32[1, 8, 2], bias: f32[1, 16], h0: f32[1, 2, 2],
  c0: f32[1, 2, 2], p: f32[1, 6]
) -> y: f32[t, 1, 2, 2], h: f32[1, 2, 2], c: f32[1, 2, 2]
  = lstm_peephole(x, w, r, bias, h0, c0, p, direction=\"reverse\")",
        inputs: &[
            ("x", &[3, 2, 3]),
            ("w", &[1, 8, 3]),
            ("r", &[1, 8, 2]),
            ("bias", &[1, 16]),
            ("h0", &[1, 2, 2]),
            ("c0", &[1, 2, 2]),
            ("p", &[1, 6]),
        ],
        has: &["Scan"],
    },
    Case {
        text: "op roll_export(x: T[..b, n], by: int in 0..5) -> y: T[..b, n]
  if by >= 0
  y[..b, n] = x[..b, (n + |n| * by - by) % |n|]
op diff_export(x: F[..b, n]) -> y: F[..b, n]
  y[..b, n] = x[..b, n] - (x[..b, n - 1] else 0)
op pairs_export(x: F[..b, n]) -> y: F[..b, m]
  where m = |n| / 2
  if |n| % 2 == 0
  y[..b, m] = x[..b, 2 * m] + x[..b, 2 * m + 1]
def model(x: f32[k, 8]) -> a: f32[k, 8], b: f32[k, 8], c: f32[k, 4]
  = (roll_export(x, by=3), diff_export(x), pairs_export(x))",
        inputs: &[("x", &[3, 8])],
        has: &["Gather"],
    },
];

fn given(case: &Case) -> Vec<(String, AnyArray)> {
    let value = |i: usize| ((i * 5 + 2) % 7) as f64 / 4.0 - 0.75;
    let tensor = |(name, shape): &(&str, &[usize])| {
        let v: Vec<f64> = (0..shape.iter().product()).map(value).collect();
        (name.to_string(), AnyArray::from(floats(shape, &v)))
    };
    case.inputs.iter().map(tensor).collect()
}

fn written(model: &Model) -> RawModel {
    let result = Optimizer::new().target("standard").optimize(model).expect("it is optimised");
    let bytes = result.to_bytes().expect("written");
    mlc_onnx::parse_onnx(bytes.into(), None).expect("it reads back")
}

#[track_caller]
fn agree(a: &Model, b: &RawModel, inputs: &[(String, AnyArray)]) {
    let b = Model::from_bytes(mlc_onnx::to_bytes(b).expect("written")).expect("it loads");
    let [a, b] = [a, &b].map(|m| m.session().expect("it runs").run(inputs.to_vec()));
    let (a, b) = (a.expect("it runs"), b.expect("it runs"));
    for name in a.names() {
        same(b[name].tensor(), a[name].tensor(), name);
    }
}

#[test]
fn recurrences_are_written_as_scans_and_other_meanings_as_whole_tensors() {
    for case in CASES {
        let model = Model::from_rules(case.text).unwrap_or_else(|e| panic!("{}: {e}", case.text));
        let out = written(&model);
        for op in case.has {
            let found = out.graph.nodes.iter().any(|n| n.op_type == *op);
            assert!(found, "{op} in {:?}", out.graph.nodes);
        }
        agree(&model, &out, &given(case));
    }
}

/// A node that has no form stays what it is at its own operator set, and is written by its meaning at another one.
#[test]
fn a_node_without_a_form_is_spelled_out_at_another_operator_set() {
    let nodes = vec![
        node("Relu", &["x0"], &["a"], &[]),
        node(
            "RNN",
            &["a", "x1", "x2"],
            &["u", "v"],
            &[("hidden_size", int(2)), ("activations", RawAttr::Strs(vec!["Relu".into()]))],
        ),
        node("Neg", &["u"], &["y"], &[]),
    ];
    let weights = |shape: &[usize]| Const(floats(shape, &[0.5, -0.25, 0.75, 1.0]));
    let args =
        [Sym(count(&[3, 1, 2]), &["steps", "", ""]), weights(&[1, 2, 2]), weights(&[1, 2, 2])];
    let (mut raw, _) = model(17, &args, nodes, &["y", "v"]);
    raw.graph.outputs[0].dtype = Some(DType::F32);
    let bytes = mlc_onnx::to_bytes(&raw).expect("written");
    let model = Model::from_bytes(bytes).expect("it loads");
    for (opset, operator) in [(17, "RNN"), (18, "Scan")] {
        let result = Optimizer::new().target("standard").opset(opset).optimize(&model);
        let bytes = result.expect("it is optimised").to_bytes().expect("written");
        let out = mlc_onnx::parse_onnx(bytes.into(), None).expect("it reads back");
        let of_other = if opset == 17 { "Scan" } else { "RNN" };
        let has = |op: &str| out.graph.nodes.iter().any(|n| n.op_type == op);
        assert!(has(operator) && !has(of_other), "{:?}", out.graph.nodes);
        for n in [3, 1] {
            agree(&model, &out, &[("x0".into(), AnyArray::from(count(&[n, 1, 2])))]);
        }
    }
}
