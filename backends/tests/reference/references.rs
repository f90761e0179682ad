//! The Rust references against results of ONNX Runtime in single precision.

use super::*;

fn eighths(shape: &[usize], values: &[i32]) -> Array {
    f32s(shape, &values.iter().map(|&v| f64::from(v) / 8.0).collect::<Vec<_>>())
}

/// The first `rows` rows of every direction of `values[2, all, width]`.
fn rows(values: &[i32], all: usize, rows: usize, width: usize) -> Vec<i32> {
    values.chunks(all * width).flat_map(|d| d[..rows * width].to_vec()).collect()
}

const X: [i32; 12] = [6, 0, -2, -3, -1, 0, 4, 7, -7, 7, 1, -2];
const W: [i32; 32] = [
    3, 1, -4, -3, 4, 2, 0, -3, 4, -2, -3, 7, -4, -5, 4, 2, -8, -7, -2, 6, -2, 5, -3, -4, 5, 6, -7,
    -8, 3, -3, 1, -6,
];
const R: [i32; 32] = [
    6, -1, 7, 5, 3, -5, 5, -8, 1, -2, 8, -5, 8, -7, 2, 1, 7, -3, 7, 3, 7, -5, 4, 8, -8, -2, 2, -7,
    0, 2, 4, 7,
];
const BIAS: [i32; 32] = [
    -2, -1, 0, 8, -5, 0, -8, -1, 8, 2, -3, 8, 2, 8, -8, -1, 6, 4, -2, 0, -1, 0, -5, 5, -7, -1, -4,
    4, 4, 4, 7, 7,
];
const H0: [i32; 8] = [-5, -7, -6, 4, 8, 7, 3, 8];
const C0: [i32; 8] = [6, -8, -6, 6, -7, 8, 6, 8];

const LSTM_Y: [f64; 24] = [
    -0.13904694,
    -0.54827017,
    -0.14901149,
    0.03601537,
    0.01742444,
    0.53213578,
    0.10320362,
    0.66930604,
    -0.28360015,
    -0.557567,
    -0.38816196,
    0.08596576,
    -0.01818959,
    0.64800858,
    0.15120877,
    0.4829933,
    -0.2676433,
    -0.61321223,
    -0.2792176,
    -0.07801456,
    -0.22252084,
    0.74765939,
    0.11781088,
    0.70162094,
];
const LSTM_YH: [f64; 8] = [
    -0.2676433,
    -0.61321223,
    -0.2792176,
    -0.07801456,
    0.01742444,
    0.53213578,
    0.10320362,
    0.66930604,
];
const LSTM_YC: [f64; 8] = [
    -0.77195215,
    -0.85174716,
    -1.03290594,
    -0.09162271,
    0.08541344,
    0.99112624,
    0.43633419,
    1.23696446,
];
const GRU0_Y: [f64; 24] = [
    -0.49933636,
    0.35522413,
    -0.81211096,
    0.30544463,
    -0.19762364,
    0.44476745,
    -0.16071504,
    0.6091643,
    -0.77166182,
    0.46002489,
    -0.79720116,
    0.62691873,
    -0.06724307,
    0.73748362,
    0.19296089,
    0.60528785,
    -0.92457163,
    0.74297166,
    -0.77316427,
    0.26910692,
    0.42672685,
    0.83823925,
    -0.14192645,
    0.83218795,
];
const GRU0_YH: [f64; 8] = [
    -0.92457163,
    0.74297166,
    -0.77316427,
    0.26910692,
    -0.19762364,
    0.44476745,
    -0.16071504,
    0.6091643,
];
const GRU1_Y: [f64; 24] = [
    -0.4630037,
    0.26037586,
    -0.75303978,
    0.05495608,
    0.18011482,
    0.43765432,
    0.14462711,
    0.60722768,
    -0.71776915,
    0.2774387,
    -0.74608934,
    0.50288397,
    0.09049794,
    0.72867417,
    0.47891206,
    0.61414999,
    -0.89731574,
    0.62645245,
    -0.70140433,
    -0.00290416,
    0.46703506,
    0.83612251,
    0.02139691,
    0.82126093,
];
const GRU1_YH: [f64; 8] = [
    -0.89731574,
    0.62645245,
    -0.70140433,
    -0.00290416,
    0.18011482,
    0.43765432,
    0.14462711,
    0.60722768,
];

#[test]
fn lstm_in_both_directions() {
    let args = [
        eighths(&[3, 2, 2], &X),
        eighths(&[2, 8, 2], &W),
        eighths(&[2, 8, 2], &R),
        eighths(&[2, 16], &BIAS),
        eighths(&[2, 2, 2], &H0),
        eighths(&[2, 2, 2], &C0),
    ];
    let attrs = [("direction", Attr::Str("bidirectional".into()))];
    let results = apply(Engine::Fast, "lstm", &attrs, &args).expect("three results");
    for (result, expect) in results.iter().zip([&LSTM_Y[..], &LSTM_YH, &LSTM_YC]) {
        close("lstm", &result.to_f64(), expect, 1e-6);
    }
    assert_eq!(results[0].shape(), [3, 2, 2, 2]);
    // The reverse direction alone is the second of both.
    let second = |a: &Array| {
        let shape = [&[1], &a.shape()[1..]].concat();
        f32s(&shape, &a.to_f64()[a.len() / 2..])
    };
    let mut args = args;
    args[1..].iter_mut().for_each(|a| *a = second(a));
    let attrs = [("direction", Attr::Str("reverse".into()))];
    let alone = apply(Engine::Fast, "lstm", &attrs, &args).expect("three results");
    assert_eq!(alone[1].to_f64(), results[1].to_f64()[4..]);
    let both = [("direction", Attr::Str("bidirectional".into()))];
    fails("lstm", &both, &args[..5], "takes 6 tensors");
    fails("lstm", &both, &args, "which does not hold");
    fails("lstm", &[("direction", Attr::Str("up".into()))], &args, "which does not hold");
    args[3] = eighths(&[1, 15], &[0; 15]);
    fails("lstm", &attrs, &args, "`lstm` needs");
}

#[test]
fn gru_in_both_directions() {
    let args = [
        eighths(&[3, 2, 2], &X),
        eighths(&[2, 6, 2], &rows(&W, 8, 6, 2)),
        eighths(&[2, 6, 2], &rows(&R, 8, 6, 2)),
        eighths(&[2, 12], &rows(&BIAS, 16, 12, 1)),
        eighths(&[2, 2, 2], &H0),
    ];
    for (after, y, yh) in [(0, GRU0_Y, GRU0_YH), (1, GRU1_Y, GRU1_YH)] {
        let attrs = [
            ("direction", Attr::Str("bidirectional".into())),
            ("linear_before_reset", Attr::int(after)),
        ];
        let results = apply(Engine::Fast, "gru", &attrs, &args).expect("two results");
        close("gru", &results[0].to_f64(), &y, 1e-6);
        close("gru", &results[1].to_f64(), &yh, 1e-6);
    }
}

/// Two places with weights of one half: the second state is that of the first place and the second input.
#[test]
fn rnn_runs_either_activation_in_either_direction() {
    let args = [
        f32s(&[2, 1, 1], &[1.0, -3.0]),
        f32s(&[1, 1, 1], &[0.5]),
        f32s(&[1, 1, 1], &[0.5]),
        f32s(&[1, 2], &[0.25, 0.25]),
        f32s(&[1, 1, 1], &[2.0]),
    ];
    let run = |direction: &str, activation: &str| {
        let attrs = [
            ("direction", Attr::Str(direction.into())),
            ("activation", Attr::Str(activation.into())),
        ];
        let results = apply(Engine::Fast, "rnn", &attrs, &args).expect("two results");
        (results[0].to_f64(), results[1].to_f64())
    };
    assert_eq!(run("forward", "relu"), (vec![2.0, 0.0], vec![0.0]));
    assert_eq!(run("reverse", "relu"), (vec![1.0, 0.0], vec![1.0]));
    let first = 2f64.tanh();
    close("rnn", &run("forward", "tanh").0, &[first, (0.5 * first - 1.0).tanh()], 1e-6);
}

/// One head of state that two heads of queries read; the second key repeats the first.
#[test]
fn linear_attention_replaces_what_the_state_says_of_a_key() {
    let args = [
        f32s(&[1, 2, 2, 1], &[1.0, 1.0, 2.0, 2.0]),
        f32s(&[1, 1, 2, 1], &[1.0, 1.0]),
        f32s(&[1, 1, 2, 1], &[4.0, 6.0]),
        f32s(&[1, 1, 1, 1], &[2.0]),
        f32s(&[1, 1, 2, 1], &[0.0, 0.5f64.ln()]),
        f32s(&[1, 1, 2], &[1.0, 0.5]),
    ];
    let run = |delta: bool| {
        let attrs = [("scale", Attr::float(0.5)), ("delta", Attr::Bool(delta))];
        let results = apply(Engine::Fast, "linear_attention", &attrs, &args).expect("two results");
        (results[0].to_f64(), results[1].to_f64())
    };
    let (y, last) = run(false);
    close("sum", &y, &[3.0, 3.0, 6.0, 6.0], 1e-6);
    close("sum", &last, &[6.0], 1e-6);
    let (y, last) = run(true);
    close("delta", &y, &[2.0, 2.0, 4.0, 4.0], 1e-6);
    close("delta", &last, &[4.0], 1e-6);
}

#[test]
fn determinants_of_matrices() {
    let x = f32s(&[3, 2, 2], &[0.0, 1.0, 1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 2.0, 4.0]);
    let results = apply(Engine::Fast, "det", &[], &[x]).expect("one result");
    close("det", &results[0].to_f64(), &[-1.0, -2.0, 0.0], 1e-6);
    let empty = apply(Engine::Fast, "det", &[], &[f32s(&[1, 0, 0], &[])]).expect("one result");
    assert_eq!(empty[0].to_f64(), [1.0]);
}

#[test]
fn an_unknown_reference_is_reported() {
    fails(
        "nothing",
        &[],
        &[f32s(&[1], &[0.0])],
        "there is no reference `nothing`; there are det, scatter",
    );
}

/// Numbers that are as wide, and back.
#[test]
fn bits_of_numbers() {
    let to = |t| [("to", Attr::DType(t))];
    let x = f32s(&[3], &[1.0, -0.0, f64::INFINITY]);
    let bits = [1_065_353_216.0, -2_147_483_648.0, 2_139_095_040.0];
    check("bit_cast", &to(I32), std::slice::from_ref(&x), &[3], &bits);
    check("bit_cast", &to(F32), &[array(I32, &[3], &bits)], &[3], &[1.0, -0.0, f64::INFINITY]);
    let x = array(DType::U16, &[2], &[15360.0, 48128.0]);
    check("bit_cast", &to(DType::F16), std::slice::from_ref(&x), &[2], &[1.0, -1.0]);
    check("bit_cast", &to(DType::BF16), &[x], &[2], &[0.0078125, -0.0078125]);
    fails("bit_cast", &to(DType::F64), &[f32s(&[1], &[1.0])], "bytes");
}

/// Regions of an image whose elements grow along both axes; those outside have no weight.
#[test]
fn regions() {
    let x: Vec<f64> = (0..16).map(f64::from).collect();
    let x = f32s(&[1, 1, 4, 4], &x);
    let rois = f32s(&[2, 4], &[0.0, 0.0, 2.0, 2.0, 8.0, 8.0, 9.0, 9.0]);
    let args = [x, rois, array(DType::I64, &[2], &[0.0, 0.0])];
    let attrs = |ratio, half, max| {
        let sizes = [("rows", 1), ("columns", 2), ("ratio", ratio)];
        let flags = [("half", half), ("max", max)].map(|(n, v)| (n, Attr::Bool(v)));
        let sizes = sizes.map(|(n, v)| (n, Attr::int(v)));
        [&sizes[..], &flags[..], &[("scale", Attr::float(1.0))]].concat()
    };
    let shape = [2, 1, 1, 2];
    check("roi_align", &attrs(1, false, false), &args, &shape, &[4.5, 5.5, 0.0, 0.0]);
    check("roi_align", &attrs(1, true, false), &args, &shape, &[2.0, 3.0, 0.0, 0.0]);
    check("roi_align", &attrs(0, false, false), &args, &shape, &[4.5, 5.5, 0.0, 0.0]);
    check("roi_align", &attrs(1, false, true), &args, &shape, &[2.5, 3.0, 0.0, 0.0]);
}

/// Two trees: one compares with a number, one looks for members and is true for NaN.
#[test]
fn trees() {
    let x = f32s(&[3, 2], &[1.0, 7.0, 3.0, 8.0, 2.0, f64::NAN]);
    let splits = f32s(&[2], &[2.0, 0.0]);
    let members = f32s(&[3], &[5.0, 7.0, f64::NAN]);
    let modes = array(DType::U8, &[2], &[0.0, 6.0]);
    let args = [x, splits, modes, members, f32s(&[4], &[1.0, 2.0, 4.0, 8.0])];
    let attrs = |aggregate| {
        let lists: [(&str, &[i64]); 8] = [
            ("features", &[0, 1]),
            ("true_nodes", &[0, 2]),
            ("true_leaves", &[1, 1]),
            ("false_nodes", &[1, 3]),
            ("false_leaves", &[1, 1]),
            ("missing", &[0, 1]),
            ("roots", &[0, 1]),
            ("leaf_targets", &[0, 1, 0, 1]),
        ];
        let lists = lists.map(|(name, l)| (name, ints(l)));
        [&lists[..], &[("targets", Attr::int(2)), ("aggregate", Attr::int(aggregate))]].concat()
    };
    check("tree_ensemble", &attrs(1), &args, &[3, 2], &[5.0, 0.0, 0.0, 10.0, 5.0, 0.0]);
    check("tree_ensemble", &attrs(0), &args, &[3, 2], &[2.5, 0.0, 0.0, 5.0, 2.5, 0.0]);
    let (low, high) = (-f64::from(f32::MAX), f64::from(f32::MAX));
    check("tree_ensemble", &attrs(2), &args, &[3, 2], &[1.0, high, high, 2.0, 1.0, high]);
    check("tree_ensemble", &attrs(3), &args, &[3, 2], &[4.0, low, low, 8.0, 4.0, low]);
}
