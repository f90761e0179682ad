//! Mixtures of experts of ONNX Runtime's domain, and products with a table of few bits, against the formulas of its documentation.

use super::super::support::*;
use super::{contrib, drawn, float, numbers};

const ROWS: usize = 3;
const EXPERTS: usize = 3;
const WIDTH: usize = 4;
const INNER: usize = 2;

fn text(v: &str) -> RawAttr {
    RawAttr::Str(bytes::Bytes::copy_from_slice(v.as_bytes()))
}

/// The two experts of each row with the highest scores, by their shares of one, make of each row what `inner` makes of its first
/// product, times their second matrix.
fn mixture(
    x: &Tensor,
    router: &Tensor,
    [w1, b1, w2, b2]: [&[f64]; 4],
    inner: &dyn Fn(&[f64]) -> Vec<f64>,
) -> Tensor {
    let (x, router) = (numbers(x), numbers(router));
    let first = b1.len() / EXPERTS;
    let product = |w: &[f64], b: &[f64], v: &[f64], e: usize, size: usize| -> Vec<f64> {
        let row = |o: usize| &w[(e * size + o) * v.len()..][..v.len()];
        let sum = |o: usize| row(o).iter().zip(v).map(|(w, v)| w * v).sum::<f64>();
        (0..size).map(|o| b[e * size + o] + sum(o)).collect()
    };
    let mut y = vec![0.0; ROWS * WIDTH];
    for r in 0..ROWS {
        let shares: Vec<f64> = router[r * EXPERTS..][..EXPERTS].iter().map(|v| v.exp()).collect();
        let least = (0..EXPERTS).min_by(|a, b| shares[*a].total_cmp(&shares[*b])).expect("some");
        let whole: f64 = (0..EXPERTS).filter(|e| *e != least).map(|e| shares[e]).sum();
        for e in (0..EXPERTS).filter(|e| *e != least) {
            let hidden = inner(&product(w1, b1, &x[r * WIDTH..][..WIDTH], e, first));
            for (o, v) in product(w2, b2, &hidden, e, WIDTH).into_iter().enumerate() {
                y[r * WIDTH + o] += shares[e] / whole * v;
            }
        }
    }
    floats(&[ROWS, WIDTH], &y)
}

fn gated(v: &[f64]) -> Vec<f64> {
    let gate = |p: &[f64]| {
        let (g, l) = (p[0].min(0.5), p[1].clamp(-0.5, 0.5));
        g / (1.0 + (-1.5 * g).exp()) * (l + 1.0)
    };
    v.chunks(2).map(gate).collect()
}

#[test]
fn experts_are_chosen_by_shares() {
    let (x, router) = (drawn(1, &[ROWS, WIDTH]), drawn(2, &[ROWS, EXPERTS]));
    let both = [("k", int(2)), ("normalize_routing_weights", int(1))];
    for (first, activation) in [(INNER, "relu"), (2 * INNER, "swiglu")] {
        let (w1, b1) = (drawn(3, &[EXPERTS, first, WIDTH]), drawn(4, &[EXPERTS, first]));
        let (w2, b2) = (drawn(5, &[EXPERTS, WIDTH, INNER]), drawn(6, &[EXPERTS, WIDTH]));
        let mut attrs = [("activation_type", text(activation))].to_vec();
        attrs.extend(both.clone());
        if activation == "swiglu" {
            let gate = [("activation_alpha", float(1.5)), ("activation_beta", float(1.0))];
            attrs.extend(gate);
            attrs.extend([("swiglu_fusion", int(1)), ("swiglu_limit", float(0.5))]);
        }
        let relu = |v: &[f64]| v.iter().map(|v| v.max(0.0)).collect::<Vec<_>>();
        let inner: &dyn Fn(&[f64]) -> Vec<f64> = if activation == "relu" { &relu } else { &gated };
        let weights = [&w1, &b1, &w2, &b2].map(numbers);
        let y = mixture(&x, &router, weights.each_ref().map(Vec::as_slice), inner);
        let args = [In(x.clone()), In(router.clone()), Const(w1), Const(b1), Const(w2), Const(b2)];
        contrib("MoE", &args, &attrs, &[y]);
    }
}

#[test]
fn experts_have_weights_of_few_bits() {
    let (x, router) = (drawn(1, &[ROWS, WIDTH]), drawn(2, &[ROWS, EXPERTS]));
    for bits in [4, 8] {
        let (per, middle) = (8 / bits, (1 << (bits - 1)) as f64);
        // Scales of one for each row; the first number of a byte is in its lowest bits.
        let weights = |rows: usize, columns: usize, seed: usize| {
            let bytes: Vec<i64> = (0..EXPERTS * rows * columns / per)
                .map(|i| ((i * 73 + seed * 29) % 256) as i64)
                .collect();
            let number = |i: usize| bytes[i / per] >> (i % per * bits) & ((1 << bits) - 1);
            let scale = |row: usize| 0.01 * (row + 1) as f64;
            let real = |i: usize| (number(i) as f64 - middle) * scale(i / columns);
            let real: Vec<f64> = (0..EXPERTS * rows * columns).map(real).collect();
            let scales: Vec<f64> = (0..EXPERTS * rows).map(scale).collect();
            let shape = vec![EXPERTS, rows, columns / per];
            let codes = Const(Tensor::from_i64(DType::U8, shape, &bytes));
            (codes, Const(floats(&[EXPERTS, rows], &scales)), real)
        };
        let ((w1, s1, v1), (w2, s2, v2)) = (weights(INNER, WIDTH, 1), weights(WIDTH, INNER, 2));
        let relu = |v: &[f64]| v.iter().map(|v| v.max(0.0)).collect::<Vec<_>>();
        let none = vec![0.0; EXPERTS * WIDTH];
        let parts: [&[f64]; 4] = [&v1, &none[..EXPERTS * INNER], &v2, &none];
        let y = mixture(&x, &router, parts, &relu);
        let args = [In(x.clone()), In(router.clone()), w1, s1, Absent, w2, s2];
        let attrs = [
            ("k", int(2)),
            ("normalize_routing_weights", int(1)),
            ("expert_weight_bits", int(bits as i64)),
        ];
        contrib("QMoE", &args, &attrs, &[y]);
    }
}

#[test]
fn numbers_of_four_bits_are_places_in_a_table() {
    // The first of the two numbers of a byte, its higher bits, counts three times.
    let a: Vec<f64> = (0..16).map(|i| if i == 0 { 3.0 } else { 1.0 }).collect();
    let a = floats(&[1, 16], &a);
    let bytes: Vec<i64> = (0..16).map(|i| if i < 8 { i * 34 + 1 } else { 0x7f }).collect();
    let b = || Const(Tensor::from_i64(DType::U8, vec![16], &bytes));
    let scales = || Const(floats(&[2], &[1.0, 2.0]));
    let attrs = |kind: i64| {
        let sizes = [("K", int(16)), ("N", int(2)), ("block_size", int(16))];
        [sizes.as_slice(), &[("quant_type", int(kind))]].concat()
    };
    // Numbers 0 and 1, 2 and 3, … 14 and 15, all of them, then eight times 7 and 15.
    let y = floats(&[1, 2], &[0.0, 2.0 * 2.0 * 0.25]);
    contrib("MatMulBnb4", &[In(a.clone()), b(), scales()], &attrs(0), &[y]);
    let normal: f64 = -3.0 - 0.6961928 - 0.5250731 - 0.3949175 - 0.2844414 - 0.1847734 - 0.0910500
        + 0.0795803
        + 0.1609302
        + 0.2461123
        + 0.3379152
        + 0.4407098
        + 0.5626170
        + 0.7229568
        + 1.0;
    let y = floats(&[1, 2], &[normal, 16.0]);
    contrib("MatMulBnb4", &[In(a), b(), scales()], &attrs(1), &[y]);
}
