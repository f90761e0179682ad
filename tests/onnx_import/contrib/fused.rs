//! Operators of ONNX Runtime's domain that stand for a few of ONNX's, against the formulas of its documentation.

use super::super::support::*;
use super::{contrib, drawn, float, numbers};

fn bytes(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(DType::U8, shape.to_vec(), v)
}

fn zip(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()
}

/// Images of four channels, which are last, in two groups, normalised and activated.
fn normalised(x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    for (image, out) in x.chunks(12).zip(y.chunks_mut(12)) {
        for group in 0..2 {
            let of = || (0..12).filter(|i| i % 4 / 2 == group);
            let mean = of().map(|i| image[i]).sum::<f64>() / 6.0;
            let spread = of().map(|i| (image[i] - mean).powi(2)).sum::<f64>() / 6.0;
            for i in of() {
                let v = (image[i] - mean) / (spread + 1e-5).sqrt() * gamma[i % 4] + beta[i % 4];
                out[i] = v / (1.0 + (-v).exp());
            }
        }
    }
    y
}

#[test]
fn groups_of_channels_that_are_last() {
    let (x, skip) = (drawn(1, &[2, 3, 1, 4]), drawn(2, &[2, 4]));
    let [gamma, beta, bias] = [3, 4, 5].map(|seed| drawn(seed, &[4]));
    let attrs = [("groups", int(2)), ("activation", int(1))];
    let y = normalised(&numbers(&x), &numbers(&gamma), &numbers(&beta));
    let given = |x: &Tensor| vec![In(x.clone()), Const(gamma.clone()), Const(beta.clone())];
    contrib("GroupNorm", &given(&x), &attrs, &[floats(&[2, 3, 1, 4], &y)]);
    let (s, z) = (numbers(&skip), numbers(&bias));
    let sum: Vec<f64> =
        (0..24).map(|i| numbers(&x)[i] + s[i / 12 * 4 + i % 4] + z[i % 4]).collect();
    let y = normalised(&sum, &numbers(&gamma), &numbers(&beta));
    let args = [given(&x), vec![In(skip), Const(bias)]].concat();
    let results = [y, sum].map(|v| floats(&[2, 3, 1, 4], &v));
    contrib("SkipGroupNorm", &args, &attrs, &results);
}

#[test]
fn sums_with_a_bias() {
    let (x, bias, skip) = (drawn(1, &[2, 4]), drawn(2, &[4]), drawn(3, &[2, 4]));
    let both = [numbers(&bias), numbers(&bias)].concat();
    let sum = zip(&numbers(&x), &both, |a, b| a + b);
    let all = floats(&[2, 4], &zip(&sum, &numbers(&skip), |a, b| a + b));
    let args = [In(x.clone()), Const(bias.clone()), In(skip)];
    contrib("BiasAdd", &args, &[], std::slice::from_ref(&all));
    contrib("BiasDropout", &args, &[], &[all, bools(&[2, 4], &[1; 8])]);
    let rows = |f: &dyn Fn(&[f64]) -> Vec<f64>| sum.chunks(4).flat_map(f).collect::<Vec<_>>();
    let shares = rows(&|r| {
        let whole: f64 = r.iter().map(|v| v.exp()).sum();
        r.iter().map(|v| v.exp() / whole).collect()
    });
    let softmax = [("axis", int(1)), ("is_inner_broadcast", int(0))];
    contrib("BiasSoftmax", &args[..2], &softmax, &[floats(&[2, 4], &shares)]);
    // The error function by its series.
    let erf = |v: f64| {
        let mut term = v;
        let mut sum = v;
        for n in 1..40 {
            term *= -v * v / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    };
    let gelu = |v: f64| 0.5 * v * (1.0 + erf(v / 2f64.sqrt()));
    let halves = rows(&|r| vec![r[0] * gelu(r[2]), r[1] * gelu(r[3])]);
    contrib("BiasSplitGelu", &args[..2], &[], &[floats(&[2, 2], &halves)]);
}

#[test]
fn few_operators_in_one() {
    let x = drawn(1, &[2, 3]);
    let silu = |v: f64| v / (1.0 + (-v).exp());
    let values = numbers(&x);
    let scaled =
        |by: f64| floats(&[2, 3], &values.iter().map(|v| silu(by * v)).collect::<Vec<_>>());
    contrib("ScaledSiLU", &[In(x.clone())], &[("alpha", float(1.5))], &[scaled(1.5)]);
    let by = Const(floats(&[], &[0.5]));
    contrib("ScaledSiLU", &[In(x.clone()), by], &[], &[scaled(0.5)]);
    let rows = Const(ints(&[2], &[1, 0]));
    let turned = [&numbers(&x)[3..], &numbers(&x)[..3]].concat();
    contrib("TorchEmbedding", &[In(x), rows], &[], &[floats(&[2, 3], &turned)]);
    // Angles of a half turn change the signs of what they turn.
    let angles = floats(&[1, 1, 2], &[0.0, std::f64::consts::PI]);
    let states = [1, 2, 3, 4].map(|seed| drawn(seed, &[1, 2, 1, 2]));
    let half = |v: &Tensor| zip(&numbers(v), &[1.0, -1.0, 1.0, -1.0], |a, b| a * b);
    let results = [0, 2].map(|i| floats(&[1, 2, 1, 2], &half(&states[i])));
    let args: Vec<Arg> = [angles].into_iter().chain(states).map(In).collect();
    contrib("GemmaRotaryEmbedding", &args, &[], &results);
}

#[test]
fn quantised_numbers_without_products() {
    let a = bytes(&[2, 2], &[0, 10, 130, 255]);
    let zero = |v: i64| Const(bytes(&[], &[v]));
    let args = [In(a.clone()), zero(5), In(bytes(&[2], &[2, 3])), Absent];
    let y = Tensor::from_i64(DType::I32, vec![2, 2], &[-10, 15, 250, 750]);
    contrib("MulInteger", &args, &[], &[y]);
    let by_row = [("axes", list(&[1])), ("keepdims", int(0))];
    let y = Tensor::from_i64(DType::U32, vec![2], &[10, 385]);
    contrib("ReduceSumInteger", &[In(a.clone())], &by_row, &[y]);
    let scale = |v: f64| Const(floats(&[], &[v]));
    // Means of 0 and 93.75.
    let args = [In(a), scale(0.5), zero(5), scale(1.0), zero(3)];
    let y = bytes(&[2, 1], &[3, 97]);
    contrib("QLinearReduceMean", &args, &[("axes", list(&[1])), ("keepdims", int(1))], &[y]);
}

#[test]
fn inverses() {
    let x = floats(&[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 2.0, 0.0, 0.0, 0.5]);
    let y = floats(&[2, 2, 2], &[-2.0, 1.0, 1.5, -0.5, 0.5, 0.0, 0.0, 2.0]);
    contrib("Inverse", &[In(x)], &[], &[y]);
    let x = floats(&[3, 3], &[0.0, 2.0, 0.0, 0.0, 0.0, 4.0, 1.0, 0.0, 1.0]);
    let y = floats(&[3, 3], &[0.0, -0.25, 1.0, 0.5, 0.0, 0.0, 0.0, 0.25, 0.0]);
    contrib("Inverse", &[In(x)], &[], &[y]);
    contrib("Inverse", &[In(floats(&[1, 1], &[4.0]))], &[], &[floats(&[1, 1], &[0.25])]);
}
