//! Recurrent layers of ONNX Runtime's domain, against the formulas of its documentation.

use super::super::support::*;
use super::{drawn, numbers};

fn unsigned(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(DType::U8, shape.to_vec(), v)
}

/// The sum of products with weights that are numbers of a byte, of a row quantised by the extremes of all rows.
fn by_extremes(
    rows: &[Vec<f64>],
    weights: &dyn Fn(usize, usize) -> f64,
    columns: usize,
) -> Vec<Vec<f64>> {
    let all = || rows.iter().flatten().map(|v| *v as f32);
    let (low, top) = (all().fold(0.0, f32::min), all().fold(0.0, f32::max));
    let by = if top == low { 1.0 } else { (top - low) / 255.0 };
    let middle = (-low / by).clamp(0.0, 255.0).round_ties_even();
    let byte = |v: f64| ((v as f32 / by).round_ties_even() + middle).clamp(0.0, 255.0) - middle;
    let row = |r: &Vec<f64>| {
        let sum = |g| (0..r.len()).map(|i| f64::from(byte(r[i])) * weights(i, g)).sum::<f64>();
        (0..columns).map(|g| sum(g) * f64::from(by)).collect()
    };
    rows.iter().map(row).collect()
}

#[test]
fn a_recurrence_quantises_its_states_at_each_step() {
    let (steps, batch, inputs, states) = (4, 2, 3, 2);
    let gates = 4 * states;
    let byte = |i: usize, seed: usize| ((i * 37 + seed * 11) % 120) as i64;
    let weights =
        |rows: usize, seed| -> Vec<i64> { (0..rows * gates).map(|i| byte(i, seed)).collect() };
    let (w, r) = (weights(inputs, 1), weights(states, 2));
    let scales: Vec<f64> = (0..gates).map(|g| f64::from(0.01f32 + 0.001f32 * g as f32)).collect();
    let zeros = [60i64, 50];
    let (x, h0, c0) = (
        drawn(1, &[steps, batch, inputs]),
        drawn(2, &[1, batch, states]),
        drawn(3, &[1, batch, states]),
    );
    let bias = drawn(4, &[1, 2 * gates]);
    let lengths = [4usize, 2];
    let at = |v: &[f64], row: usize, of: usize| v[row * of..][..of].to_vec();
    let rows: Vec<_> = (0..steps * batch).map(|k| at(&numbers(&x), k, inputs)).collect();
    let of_inputs =
        by_extremes(&rows, &|i, g| (w[i * gates + g] - zeros[0]) as f64 * 0.0125, gates);
    let mut h: Vec<_> = (0..batch).map(|k| at(&numbers(&h0), k, states)).collect();
    let mut c: Vec<_> = (0..batch).map(|k| at(&numbers(&c0), k, states)).collect();
    let (mut y, mut last) = (vec![], h.clone());
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    let both = numbers(&bias);
    for t in 0..steps {
        let of_states =
            by_extremes(&h, &|i, g| (r[i * gates + g] - zeros[1]) as f64 * scales[g], gates);
        for k in 0..batch {
            let z = |g: usize| {
                of_inputs[t * batch + k][g] + of_states[k][g] + both[g] + both[gates + g]
            };
            let goes_on = t < lengths[k];
            for s in 0..states {
                let cell =
                    sigmoid(z(2 * states + s)) * c[k][s] + sigmoid(z(s)) * z(3 * states + s).tanh();
                let state = sigmoid(z(states + s)) * cell.tanh();
                // A sequence that has ended does not widen the range.
                h[k][s] = if goes_on { state } else { 0.0 };
                if goes_on {
                    (c[k][s], last[k][s]) = (cell, state);
                }
                y.push(h[k][s]);
            }
        }
    }
    let bytes = |shape: &[usize], v: &[i64]| Const(unsigned(shape, v));
    let args = [
        In(x),
        bytes(&[1, inputs, gates], &w),
        bytes(&[1, states, gates], &r),
        Const(bias),
        Const(Tensor::from_i64(DType::I32, vec![batch], &lengths.map(|n| n as i64))),
        In(h0),
        In(c0),
        Absent,
        Const(floats(&[1], &[0.0125])),
        bytes(&[1], &zeros[..1]),
        Const(floats(&[1, gates], &scales)),
        bytes(&[1, gates], &vec![zeros[1]; gates]),
    ];
    let flat = |v: Vec<Vec<f64>>| floats(&[1, batch, states], &v.concat());
    let results = [floats(&[steps, 1, batch, states], &y), flat(last), flat(c)];
    let attrs = [("hidden_size", int(states as i64))];
    let (mut raw, feeds) = single(18, "DynamicQuantizeLSTM", &args, &attrs, 3);
    raw.graph.nodes[0].domain = "com.microsoft".into();
    raw.opset_imports.insert("com.microsoft".into(), 1);
    check_at(&[], raw, &feeds, &results);
}
