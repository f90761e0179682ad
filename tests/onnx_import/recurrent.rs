//! Recurrent layers with lengths of sequences, activations of choice, clipping and coupled gates: against the usual form where
//! they agree, else against hand-computed values. Sums of products of many operands.

use super::support::*;

fn word(v: &str) -> RawAttr {
    RawAttr::Str(v.as_bytes().to_vec().into())
}

fn words(v: &[&str]) -> RawAttr {
    RawAttr::Strs(v.iter().map(|w| w.as_bytes().to_vec().into()).collect())
}

/// An activation and the function that it is.
type Activation = (&'static str, fn(f64) -> f64);

/// Numbers without a pattern.
fn some(shape: &[usize], seed: usize) -> Tensor {
    let n = shape.iter().product::<usize>();
    let v: Vec<f64> = (0..n).map(|i| ((i * 37 + seed * 11 + 5) % 23) as f64 / 11.0 - 1.0).collect();
    floats(shape, &v)
}

fn results(op: &str, args: &[Arg], attrs: &[(&str, RawAttr)], outputs: usize) -> Vec<Tensor> {
    let (raw, feeds) = single(14, op, args, attrs, outputs);
    let imported = import(raw, library()).unwrap_or_else(|e| panic!("{op}: {e}"));
    run(&imported.program, &feeds)
}

/// Gates and results of each layer.
const LAYERS: [(&str, usize, usize); 3] = [("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 2)];

/// Weights of a layer: inputs of 3, states of 2.
fn weights(gates: usize, d: usize) -> [Tensor; 3] {
    [some(&[d, 2 * gates, 3], 1), some(&[d, 2 * gates, 2], 2), some(&[d, 4 * gates], 3)]
}

fn part(t: &Tensor, axis: usize, at: usize, size: usize) -> Vec<f64> {
    let inner: usize = t.shape()[axis + 1..].iter().product();
    let rows = t.shape()[axis] * inner;
    t.to_f64().chunks(rows).flat_map(|c| c[at * inner..(at + size) * inner].to_vec()).collect()
}

#[test]
fn sequences_of_a_batch_end_where_their_lengths_say() {
    let x = some(&[4, 2, 3], 7);
    for (op, gates, outputs) in LAYERS {
        for (direction, d) in [("forward", 1), ("reverse", 1), ("bidirectional", 2)] {
            let [w, r, b] = weights(gates, d);
            let attrs = [("direction", word(direction)), ("hidden_size", int(2))];
            let h0 = some(&[d, 2, 2], 5);
            let lengths = Tensor::from_i64(DType::I32, vec![2], &[2, 4]);
            let given = |x: &Tensor, lengths: Arg, h0: &Tensor| {
                [
                    In(x.clone()),
                    Const(w.clone()),
                    Const(r.clone()),
                    Const(b.clone()),
                    lengths,
                    In(h0.clone()),
                ]
            };
            let all = results(op, &given(&x, In(lengths), &h0), &attrs, outputs);
            for (batch, steps) in [(0, 2), (1, 4)] {
                let own = floats(&[4, 1, 3], &part(&x, 1, batch, 1));
                let own = floats(&[steps, 1, 3], &part(&own, 0, 0, steps));
                let h = floats(&[d, 1, 2], &part(&h0, 1, batch, 1));
                let alone = results(op, &given(&own, Absent, &h), &attrs, outputs);
                let what = format!("{op} {direction}, sequence {batch}");
                let mut y = alone[0].to_f64();
                y.resize(4 * d * 2, 0.0);
                let found = floats(&[4, d, 1, 2], &part(&all[0], 2, batch, 1));
                same(&found, &floats(&[4, d, 1, 2], &y), &what);
                for (all, alone) in all[1..].iter().zip(&alone[1..]) {
                    same(&floats(&[d, 1, 2], &part(all, 1, batch, 1)), alone, &what);
                }
            }
        }
    }
}

#[test]
fn a_bound_that_nothing_reaches_changes_nothing() {
    let x = some(&[3, 2, 3], 7);
    for (op, gates, outputs) in LAYERS {
        for before in [0, 1] {
            let [w, r, b] = weights(gates, 2);
            let mut attrs = vec![("direction", word("bidirectional")), ("hidden_size", int(2))];
            if op == "GRU" {
                attrs.push(("linear_before_reset", int(before)));
            }
            let args = || [In(x.clone()), In(w.clone()), In(r.clone()), In(b.clone())];
            let plain = results(op, &args(), &attrs, outputs);
            attrs.push(("clip", RawAttr::Float(1e6)));
            let bounded = results(op, &args(), &attrs, outputs);
            plain.iter().zip(&bounded).for_each(|(a, b)| same(b, a, op));
        }
    }
}

#[test]
fn every_activation_is_its_function() {
    let x = [-2.0, -0.5, 0.0, 0.5, 2.0];
    let rows: &[Activation] = &[
        ("Relu", |v| v.max(0.0)),
        ("Tanh", f64::tanh),
        ("Sigmoid", |v| 1.0 / (1.0 + (-v).exp())),
        ("Affine", |v| v),
        ("LeakyRelu", |v| if v < 0.0 { 0.01 * v } else { v }),
        ("ThresholdedRelu", |v| if v >= 1.0 { v } else { 0.0 }),
        ("ScaledTanh", f64::tanh),
        ("HardSigmoid", |v| (0.2 * v + 0.5).clamp(0.0, 1.0)),
        ("Elu", |v| if v < 0.0 { v.exp_m1() } else { v }),
        ("Softsign", |v| v / (1.0 + v.abs())),
        ("Softplus", |v| v.exp().ln_1p()),
    ];
    let one = |w: f64| In(floats(&[1, 1, 1], &[w]));
    let apply = |attrs: &[(&str, RawAttr)]| {
        let args = [In(floats(&[5, 1, 1], &x)), one(1.0), one(0.0)];
        results("RNN", &args, &[attrs, &[("hidden_size", int(1))]].concat(), 1)[0].to_f64()
    };
    for (name, f) in rows {
        let found = apply(&[("activations", words(&[name]))]);
        let wanted = x.map(f);
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{name}: {found:?}");
        let found = apply(&[("activations", words(&[name])), ("clip", RawAttr::Float(0.5))]);
        let wanted = x.map(|v| f(v.clamp(-0.5, 0.5)));
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{name}: {found:?}");
    }
    let list = |v: f32| RawAttr::Floats(vec![v]);
    let affine = [
        ("activation_alpha", list(2.0)),
        ("activation_beta", list(1.0)),
        ("activations", words(&["Affine"])),
    ];
    assert_eq!(apply(&affine), x.map(|v| 2.0 * v + 1.0));
    let args = || [In(floats(&[1, 1, 1], &[1.0])), one(1.0), one(0.0)];
    for (names, reason) in [
        (&["Odd"][..], "an activation is unknown"),
        (&["Tanh", "Tanh"], "the number of activations is not 1 for each direction"),
    ] {
        let attrs = [("activations", words(names)), ("hidden_size", int(1))];
        refuse(14, "RNN", &args(), &attrs, &format!("the RNN node that defines `y0`: {reason}"));
    }
}

/// A forget gate whose weights are those of the input gate negated keeps what is not taken in.
#[test]
fn coupled_gates_keep_what_is_not_taken_in() {
    let x = some(&[3, 2, 3], 7);
    let [w, r, b] = weights(4, 1);
    let opposed = |t: &Tensor| {
        let mut v = t.to_f64();
        let each = v.len() / 4;
        (0..each).for_each(|i| v[2 * each + i] = -v[i]);
        floats(t.shape(), &v)
    };
    let biases = {
        let v = b.to_f64();
        let halves: Vec<f64> =
            v.chunks(8).flat_map(|h| opposed(&floats(&[8], h)).to_f64()).collect();
        floats(b.shape(), &halves)
    };
    let size = ("hidden_size", int(2));
    let plain = [In(x.clone()), In(opposed(&w)), In(opposed(&r)), In(biases)];
    let plain = results("LSTM", &plain, std::slice::from_ref(&size), 3);
    let coupled =
        results("LSTM", &[In(x), In(w), In(r), In(b)], &[size, ("input_forget", int(1))], 3);
    plain.iter().zip(&coupled).for_each(|(a, b)| same(b, a, "coupled"));
}

#[test]
fn sums_of_products_of_many_operands() {
    let [a, b, c] = [some(&[2, 3], 1), some(&[3, 2], 2), some(&[2, 2], 3)];
    let args = || [In(a.clone()), In(b.clone()), In(c.clone())];
    let product = |a: &[f64], b: &[f64], (m, k, n): (usize, usize, usize)| -> Vec<f64> {
        let at = |i: usize| (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum();
        (0..m * n).map(at).collect()
    };
    let ab = product(&a.to_f64(), &b.to_f64(), (2, 3, 2));
    let abc = product(&ab, &c.to_f64(), (2, 2, 2));
    let trace = abc[0] + abc[3];
    for (equation, wanted) in [
        ("ij,jk,kl->il", floats(&[2, 2], &abc)),
        ("ij,jk,kl", floats(&[2, 2], &abc)),
        ("ij, jk, kl -> li", floats(&[2, 2], &[abc[0], abc[2], abc[1], abc[3]])),
        ("...j,jk,kl->...l", floats(&[2, 2], &abc)),
        ("ij,jk,ki->", floats(&[], &[trace])),
    ] {
        check("Einsum", &args(), &[("equation", word(equation))], &[wanted]);
    }
    refuse(
        18,
        "Einsum",
        &args(),
        &[("equation", word("ij,jk->ik"))],
        "the Einsum node that defines `y0`: its equation has another number of operands than it has inputs",
    );
}
