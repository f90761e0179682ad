//! The steps of recurrent layers on small arguments, computed by hand.

use super::*;
use std::f64::consts::LN_2;

fn i64s(shape: &[usize], values: &[i64]) -> Array {
    let values: Vec<f64> = values.iter().map(|v| *v as f64).collect();
    array(DType::I64, shape, &values)
}

/// Steps that read the step before.
#[test]
fn recurrences() {
    let word = |name, w: &str| (name, Attr::Str(w.into()));
    let x = || f32s(&[2, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
    let both = [word("direction", "bidirectional")];
    check("in_time", &both, &[x()], &[2, 2, 1, 1], &[1.0, 4.0, 3.0, 2.0]);
    check("last_step", &[], &[x(), f32s(&[2, 1, 1], &[5.0, 6.0])], &[2, 1, 1], &[3.0, 4.0]);
    let w = || f32s(&[2, 1, 1], &[1.0, 10.0]);
    let args = [f32s(&[2, 1, 1], &[1.0, 2.0]), w()];
    check("input_gates", &both, &args, &[2, 2, 1, 1], &[1.0, 20.0, 2.0, 10.0]);
    let none = f32s(&[0, 2, 1, 1], &[]);
    check("last_step", &[], &[none, w()], &[2, 1, 1], &[1.0, 10.0]);
    let relu = [word("activation", "relu")];
    let one = |v: f64| f32s(&[1, 1, 1], &[v]);
    let args =
        [f32s(&[2, 1, 1, 1], &[1.0, -9.0]), one(2.0), f32s(&[1, 2], &[0.25, 0.25]), one(3.0)];
    check("rnn_steps", &relu, &args, &[2, 1, 1, 1], &[7.5, 6.5]);
}

/// Gates that are wide open or shut: the state is the cell, the cell adds up what is new.
#[test]
fn recurrences_of_gated_layers() {
    let one = |v: f64| f32s(&[1, 1, 1], &[v]);
    let gates = |n: usize, v: &[f64]| f32s(&[1, 1, 1, n], v);
    let r = |n: usize| f32s(&[1, n, 1], &vec![1.0; n]);
    let bias = |n: usize| f32s(&[1, 2 * n], &vec![0.0; 2 * n]);
    let x = [0.5, 0.25, -0.5, 0.125];
    let z = x.map(|v| v + 1.0);
    let args = [gates(4, &x), r(4), bias(4), one(1.0), one(2.0)];
    check("lstm_steps", &[], &args, &[1, 1, 1, 4], &z);
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    let cell = 2.0 * sigmoid(z[2]) + z[3].tanh() * sigmoid(z[0]);
    let results = apply(Engine::Fast, "lstm_steps", &[], &args).expect("three results");
    close("cell", &results[1].to_f64(), &[cell], 1e-14);
    close("state", &results[2].to_f64(), &[cell.tanh() * sigmoid(z[1])], 1e-14);
    let [x, r4, bias4, h, c] = args;
    let args = [x, r4, bias4, h, c, f32s(&[1, 3], &[0.0, 1.0, 0.0])];
    let results = apply(Engine::Plain, "lstm_peephole_steps", &[], &args).expect("three results");
    close("cell", &results[1].to_f64(), &[cell], 1e-14);
    close("state", &results[2].to_f64(), &[cell.tanh() * sigmoid(z[1] + cell)], 1e-14);
    let args = [gates(3, &[0.5, 0.25, -0.5]), r(3), bias(3), one(2.0)];
    for (after, inner) in [(0, sigmoid(2.25) * 2.0), (1, sigmoid(2.25) * 2.0)] {
        let attrs = [("linear_before_reset", Attr::int(after))];
        let results = apply(Engine::Fast, "gru_steps", &attrs, &args).expect("five results");
        let new = (inner - 0.5).tanh();
        close("new", &results[2].to_f64(), &[new], 1e-14);
        close("state", &results[4].to_f64(), &[new + (2.0 - new) * sigmoid(2.5)], 1e-14);
    }
}

/// The state is as many parts of 255 as its byte says; a weight of two halves is one, so the layer is the plain one.
#[test]
fn recurrences_with_quantized_weights() {
    let one = |v: f64| f32s(&[1, 1, 1], &[v]);
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    let x = [0.5, 0.25, -0.5, 0.125];
    for (h0, point, most) in [(1.0, 0.0, 100.0f64), (-1.0, 255.0, 100.0), (1.0, 0.0, 0.75)] {
        let r = array(DType::I32, &[1, 1, 4], &[2.0; 4]);
        let args = [
            f32s(&[1, 1, 1, 4], &x),
            r,
            f32s(&[1, 4], &[0.5; 4]),
            f32s(&[1, 8], &[0.0; 8]),
            one(h0),
            one(2.0),
            f32s(&[1, 3], &[0.0; 3]),
            i64s(&[1], &[1]),
        ];
        let attrs = [("most", Attr::float(most))];
        let results = apply(Engine::Plain, "lstm_steps_quantized", &attrs, &args).expect("nine");
        let z = x.map(|v| v + h0);
        close("width", &results[1].to_f64(), &[1.0], 1e-14);
        close("zero point", &results[3].to_f64(), &[point], 1e-14);
        close("gates", &results[5].to_f64(), &z, 1e-7);
        let z = z.map(|v| v.clamp(-most, most));
        let cell = 2.0 * sigmoid(z[2]) + z[3].tanh() * sigmoid(z[0]);
        close("cell", &results[6].to_f64(), &[cell], 1e-7);
        close("state", &results[8].to_f64(), &[cell.tanh() * sigmoid(z[1])], 1e-7);
    }
}

/// Sequences of two and of one step, and those of none.
#[test]
fn sequences_of_different_lengths() {
    let x = || f32s(&[2, 1, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
    let lengths = || i64s(&[2], &[2, 1]);
    let back = [("direction", Attr::Str("reverse".into()))];
    check("in_time_of", &back, &[x(), lengths()], &[2, 1, 2, 1], &[3.0, 2.0, 1.0, 4.0]);
    let h0 = || f32s(&[1, 2, 1], &[5.0, 6.0]);
    check("last_step_of", &[], &[x(), h0(), lengths()], &[1, 2, 1], &[3.0, 2.0]);
    check("last_step_of", &[], &[x(), h0(), i64s(&[2], &[0, 2])], &[1, 2, 1], &[5.0, 4.0]);
}

/// Activations by their numbers, clipped: with those of the plain layers, and without a bound, the states are those of the plain layers.
#[test]
fn recurrences_with_activations_of_choice() {
    let one = |v: f64| f32s(&[1, 1, 1], &[v]);
    let gates = |n: usize, v: &[f64]| f32s(&[1, 1, 1, n], v);
    let r = |n: usize| f32s(&[1, n, 1], &vec![1.0; n]);
    let bias = |n: usize| f32s(&[1, 2 * n], &vec![0.0; 2 * n]);
    let kinds = |v: &[i64]| {
        let zeros = f32s(&[1, v.len()], &vec![0.0; v.len()]);
        [i64s(&[1, v.len()], v), zeros.clone(), zeros]
    };
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    let x = [0.5, 0.25, -0.5, 0.125];
    let z = x.map(|v| v + 1.0);
    for (most, coupled) in [(100.0f64, false), (0.75, false), (100.0, true)] {
        let clipped = z.map(|v: f64| v.clamp(-most, most));
        let forget = if coupled { 1.0 - sigmoid(clipped[0]) } else { sigmoid(clipped[2]) };
        let cell = 2.0 * forget + clipped[3].tanh() * sigmoid(clipped[0]);
        let plain = [gates(4, &x), r(4), bias(4), one(1.0), one(2.0), f32s(&[1, 3], &[0.0; 3])];
        let args: Vec<Array> =
            plain.into_iter().chain(kinds(&[2, 1, 1])).chain([i64s(&[1], &[1])]).collect();
        let attrs = [("most", Attr::float(most)), ("coupled", Attr::Bool(coupled))];
        let results = apply(Engine::Fast, "lstm_steps_of", &attrs, &args).expect("seven results");
        close("cell", &results[3].to_f64(), &[cell], 1e-14);
        close("state", &results[6].to_f64(), &[cell.tanh() * sigmoid(clipped[1])], 1e-14);
    }
    let plain = [gates(3, &[0.5, 0.25, -0.5]), r(3), bias(3), one(2.0)];
    let args: Vec<Array> =
        plain.into_iter().chain(kinds(&[2, 1])).chain([i64s(&[1], &[1])]).collect();
    for after in [0, 1] {
        let attrs = [("most", Attr::float(100.0)), ("linear_before_reset", Attr::int(after))];
        let results = apply(Engine::Plain, "gru_steps_of", &attrs, &args).expect("seven results");
        let new = (sigmoid(2.25) * 2.0 - 0.5).tanh();
        close("new", &results[5].to_f64(), &[new], 1e-14);
        close("state", &results[6].to_f64(), &[new + (2.0 - new) * sigmoid(2.5)], 1e-14);
    }
    // A rectifier, and a line with a slope of two, of what is clipped to three.
    for (kind, expected) in [(0, 3.0), (3, 7.0)] {
        let plain = [f32s(&[1, 1, 1, 1], &[5.0]), one(1.0), f32s(&[1, 2], &[0.0; 2]), one(2.0)];
        let chosen = [i64s(&[1, 1], &[kind]), f32s(&[1, 1], &[2.0]), f32s(&[1, 1], &[1.0])];
        // And of a sequence that has ended.
        for (length, expected) in [(1, expected), (0, 0.0)] {
            let length = i64s(&[1], &[length]);
            let args = plain.iter().chain(&chosen).chain([&length]).cloned();
            let args: Vec<Array> = args.collect();
            let attrs = [("most", Attr::float(3.0))];
            let results = apply(Engine::Fast, "rnn_steps_of", &attrs, &args).expect("two results");
            close("state", &results[1].to_f64(), &[expected], 1e-14);
        }
    }
}

/// Two steps of a running sum, the second with half of what was there.
#[test]
fn recurrences_of_linear_attention() {
    let row = |v: &[f64]| f32s(&[1, 1, 2, 1], v);
    let args = [
        row(&[1.0, 2.0]),
        row(&[1.0, 1.0]),
        row(&[4.0, 6.0]),
        f32s(&[1, 1, 1, 1], &[2.0]),
        row(&[0.0, -LN_2]),
        f32s(&[1, 1, 2], &[1.0, 1.0]),
    ];
    let attrs = [("scale", Attr::float(1.0)), ("delta", Attr::Bool(false))];
    let results = apply(Engine::Fast, "linear_attention_steps", &attrs, &args).expect("four");
    let expected: [&[f64]; 4] = [&[4.0, 6.0], &[6.0, 9.0], &[6.0, 18.0], &[9.0]];
    for (result, expect) in results.iter().zip(expected) {
        close("linear_attention_steps", &result.to_f64(), expect, 1e-7);
    }
}
