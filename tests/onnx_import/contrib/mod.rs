//! Operators of ONNX Runtime's domain, against the formulas of its documentation.

mod composed;
mod experts;
mod fused;
mod grouped_states;
mod quantized;
mod recurrent;

use super::support::*;
use mlc_onnx::named;
use std::collections::BTreeSet;

/// Numbers in -1..1, repeatable; no two tensors of one model begin alike.
pub fn drawn(seed: usize, shape: &[usize]) -> Tensor {
    let value = |i: usize| ((i * 7919 + seed * 104729 + 13) % 1009) as f64 / 504.5 - 1.0;
    floats(shape, &(0..shape.iter().product()).map(value).collect::<Vec<_>>())
}

pub fn numbers(t: &Tensor) -> Vec<f64> {
    t.to_f64()
}

pub fn whole(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(DType::I32, shape.to_vec(), v)
}

/// One operator of the domain; checked as read, and as written and read again.
#[track_caller]
pub fn contrib(op: &str, args: &[Arg], attrs: &[(&str, RawAttr)], expected: &[Tensor]) {
    contrib_at(18, op, args, attrs, expected);
}

/// The same beside operators of ONNX at this operator set.
#[track_caller]
pub fn contrib_at(
    opset: i64,
    op: &str,
    args: &[Arg],
    attrs: &[(&str, RawAttr)],
    expected: &[Tensor],
) {
    let (mut raw, feeds) = single(opset, op, args, attrs, expected.len());
    raw.graph.nodes[0].domain = "com.microsoft".into();
    raw.opset_imports.insert("com.microsoft".into(), 1);
    check_at(&[opset], raw, &feeds, expected);
}

fn text(v: &str) -> RawAttr {
    RawAttr::Str(bytes::Bytes::copy_from_slice(v.as_bytes()))
}

pub fn float(v: f32) -> RawAttr {
    RawAttr::Float(v)
}

pub const B: usize = 2;
pub const H: usize = 2;
pub const D: usize = 4;
pub const E: usize = H * D;

/// Queries, keys and values with an axis of heads, and extents: queries, keys, elements of a value.
pub struct Heads {
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    pub s: usize,
    pub t: usize,
    pub e: usize,
}

/// From `[B, n, H * d]` to `[B, H, n, d]`.
pub fn heads(x: &[f64], n: usize, d: usize) -> Vec<f64> {
    let mut out = vec![0.0; x.len()];
    for (i, v) in x.iter().enumerate() {
        let (b, at, h, c) = (i / (n * H * d), i / (H * d) % n, i / d % H, i % d);
        out[((b * H + h) * n + at) * d + c] = *v;
    }
    out
}

/// Attention with a number added to each score; the result has its heads in the last axis.
pub fn attend(x: &Heads, scale: f64, added: impl Fn(usize, usize, usize, usize) -> f64) -> Tensor {
    let mut out = vec![0.0; B * x.s * H * x.e];
    for (b, h, s) in (0..B * H * x.s).map(|i| (i / (H * x.s), i / x.s % H, i % x.s)) {
        let q = &x.q[((b * H + h) * x.s + s) * D..][..D];
        let score = |t: usize| {
            let k = &x.k[((b * H + h) * x.t + t) * D..][..D];
            scale * q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>() + added(b, h, s, t)
        };
        let scores: Vec<f64> = (0..x.t).map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares: Vec<f64> = scores.iter().map(|v| (v - top).exp()).collect();
        let total: f64 = shares.iter().sum();
        for c in 0..x.e {
            let value = |t: usize| x.v[((b * H + h) * x.t + t) * x.e + c];
            let sum: f64 = (0..x.t).map(|t| shares[t] * value(t)).sum();
            out[(b * x.s + s) * H * x.e + h * x.e + c] = sum / total;
        }
    }
    floats(&[B, x.s, H * x.e], &out)
}

const NONE: fn(usize, usize, usize, usize) -> f64 = |_, _, _, _| 0.0;

/// Two tensors of `[B, H, n, d]` one after the other along `n`.
fn joined(a: &[f64], b: &[f64], n: usize, m: usize, d: usize) -> Vec<f64> {
    a.chunks(n * d).zip(b.chunks(m * d)).flat_map(|(a, b)| [a, b].concat()).collect()
}

/// Operators that only ONNX Runtime has and that are written: it has code for each of them on processors.
const WRITTEN: [&str; 8] = [
    "BiasGelu",
    "FastGelu",
    "FusedConv",
    "FusedMatMul",
    "MultiHeadAttention",
    "QuickGelu",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
];

#[test]
fn operators_of_the_runtime_are_written_where_processors_have_code_for_them() {
    let library = library();
    let of_domain = |domain: &str| -> BTreeSet<&str> {
        library.onnx.iter().filter(|i| i.decl.domain == domain).map(|i| &*i.name).collect()
    };
    let own = &of_domain("com.microsoft") - &of_domain("");
    let is_written = |name: &&&str| !named(library, 19, "onnxruntime", name).is_empty();
    let written: BTreeSet<&str> = own.iter().filter(is_written).copied().collect();
    assert_eq!(written, BTreeSet::from(WRITTEN));
}

#[test]
fn products_and_convolutions_with_an_activation() {
    let (a, b, c) = (drawn(1, &[2, 3]), drawn(2, &[4, 3]), drawn(3, &[4]));
    let (x, w, z) = (numbers(&a), numbers(&b), numbers(&c));
    let sum = |i: usize| {
        let dot: f64 = (0..3).map(|k| x[i / 4 * 3 + k] * w[i % 4 * 3 + k]).sum();
        0.5 * dot + 2.0 * z[i % 4]
    };
    type Case = (&'static str, Vec<(&'static str, RawAttr)>, fn(f64) -> f64);
    let table: Vec<Case> =
        vec![
            ("Relu", vec![], |v| v.max(0.0)),
            ("Tanh", vec![], f64::tanh),
            ("Sigmoid", vec![], |v| 1.0 / (1.0 + (-v).exp())),
            ("LeakyRelu", vec![("activation_alpha", float(0.25))], |v| {
                if v < 0.0 { 0.25 * v } else { v }
            }),
            (
                "HardSigmoid",
                vec![("activation_alpha", float(0.25)), ("activation_beta", float(0.5))],
                |v| (0.25 * v + 0.5).clamp(0.0, 1.0),
            ),
            ("Elu", vec![("activation_alpha", float(1.5))], |v| {
                if v < 0.0 { 1.5 * v.exp_m1() } else { v }
            }),
            ("Softplus", vec![], |v| v.exp().ln_1p()),
            ("Softsign", vec![], |v| v / (1.0 + v.abs())),
            ("ThresholdedRelu", vec![("activation_alpha", float(0.5))], |v| {
                if v > 0.5 { v } else { 0.0 }
            }),
        ];
    for (name, more, f) in table {
        let mut attrs = vec![
            ("activation", text(name)),
            ("transB", int(1)),
            ("alpha", float(0.5)),
            ("beta", float(2.0)),
        ];
        attrs.extend(more);
        let y = floats(&[2, 4], &(0..8).map(|i| f(sum(i))).collect::<Vec<_>>());
        contrib("FusedGemm", &[In(a.clone()), Const(b.clone()), Const(c.clone())], &attrs, &[y]);
    }
    // A window of one element: a product of channels.
    let (x, w) = (drawn(4, &[1, 2, 1, 3]), drawn(5, &[2, 2, 1, 1]));
    let (bias, more) = (drawn(6, &[2]), drawn(7, &[1, 2, 1, 3]));
    let (xs, ws, zs, ms) = (numbers(&x), numbers(&w), numbers(&bias), numbers(&more));
    let sum = |i: usize| {
        let (o, at) = (i / 3, i % 3);
        ws[2 * o] * xs[at] + ws[2 * o + 1] * xs[3 + at] + zs[o] + ms[i]
    };
    let table: Vec<Case> = vec![
        ("Relu", vec![], |v| v.max(0.0)),
        ("Clip", vec![("activation_params", RawAttr::Floats(vec![-0.25, 0.5]))], |v| {
            v.clamp(-0.25, 0.5)
        }),
        ("HardSigmoid", vec![("activation_params", RawAttr::Floats(vec![0.25, 0.5]))], |v| {
            (0.25 * v + 0.5).clamp(0.0, 1.0)
        }),
    ];
    for (name, more_attrs, f) in table {
        let mut attrs = vec![("activation", text(name))];
        attrs.extend(more_attrs);
        let args = [In(x.clone()), Const(w.clone()), Const(bias.clone()), In(more.clone())];
        let y = floats(&[1, 2, 1, 3], &(0..6).map(|i| f(sum(i))).collect::<Vec<_>>());
        contrib("FusedConv", &args, &attrs, &[y]);
    }
}

#[test]
fn products_with_transposed_batches() {
    // Rows stand in front of the batch on the left: [m, batch, k].
    let (a, b) = (drawn(1, &[3, 2, 4]), drawn(2, &[2, 5, 4]));
    let (x, w) = (numbers(&a), numbers(&b));
    let element = |i: usize| {
        let (batch, m, n) = (i / 15, i / 5 % 3, i % 5);
        2.0 * (0..4).map(|k| x[(m * 2 + batch) * 4 + k] * w[(batch * 5 + n) * 4 + k]).sum::<f64>()
    };
    let y = floats(&[2, 3, 5], &(0..30).map(element).collect::<Vec<_>>());
    let attrs = [("transBatchA", int(1)), ("transB", int(1)), ("alpha", float(2.0))];
    contrib("FusedMatMul", &[In(a), In(b)], &attrs, &[y]);
}

#[test]
fn normalised_sums_have_statistics() {
    let (x, skip, g, z) = (drawn(1, &[1, 2, 4]), drawn(2, &[2, 4]), drawn(3, &[4]), drawn(4, &[4]));
    let total: Vec<f64> = numbers(&x).iter().zip(numbers(&skip)).map(|(a, b)| a + b).collect();
    let mean = |r: &[f64]| r.iter().sum::<f64>() / 4.0;
    let means: Vec<f64> = total.chunks(4).map(mean).collect();
    let inverse = |r: &[f64], m: f64| {
        1.0 / (r.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / 4.0 + 0.25).sqrt()
    };
    let by: Vec<f64> = total.chunks(4).zip(&means).map(|(r, &m)| inverse(r, m)).collect();
    let roots: Vec<f64> = total.chunks(4).map(|r| inverse(r, 0.0)).collect();
    let (gs, zs) = (numbers(&g), numbers(&z));
    let y = |i: usize| (total[i] - means[i / 4]) * by[i / 4] * gs[i % 4] + zs[i % 4];
    let n = |i: usize| total[i] * roots[i / 4] * gs[i % 4];
    let all = |f: &dyn Fn(usize) -> f64| floats(&[1, 2, 4], &(0..8).map(f).collect::<Vec<_>>());
    let (sum, row) = (floats(&[1, 2, 4], &total), |v: &[f64]| floats(&[1, 2, 1], v));
    let attrs = [("epsilon", float(0.25))];
    contrib(
        "SkipLayerNormalization",
        &[In(x.clone()), In(skip.clone()), Const(g.clone()), Const(z)],
        &attrs,
        &[all(&y), row(&means), row(&by), sum.clone()],
    );
    let expected = [all(&n), row(&roots), row(&roots), sum];
    contrib("SkipSimplifiedLayerNormalization", &[In(x), In(skip), Const(g)], &attrs, &expected);
}

/// ONNX Runtime writes it into models of any operator set.
#[test]
fn layers_are_normalised_before_the_standard_has_it() {
    let x = floats(&[2, 2], &[1.0, 3.0, 5.0, 1.0]);
    let (g, z) = (floats(&[2], &[1.0, 2.0]), floats(&[2], &[0.5, 0.0]));
    let y = floats(&[2, 2], &[-0.5, 2.0, 1.5, -2.0]);
    let column = |v: &[f64]| floats(&[2, 1], v);
    for opset in [9, 11, 16] {
        let args = [In(x.clone()), Const(g.clone()), Const(z.clone())];
        let expected = [y.clone(), column(&[2.0, 3.0]), column(&[1.0, 0.5])];
        let (raw, feeds) =
            single(opset, "LayerNormalization", &args, &[("epsilon", float(0.0))], 3);
        check_at(&[], raw, &feeds, &expected);
    }
}

#[test]
fn attention_of_one_input_with_every_mask() {
    let (s, past) = (3, 2);
    let (x, w, z) = (drawn(1, &[B, s, 5]), drawn(2, &[5, 3 * E]), drawn(3, &[3 * E]));
    let (xs, ws, zs) = (numbers(&x), numbers(&w), numbers(&z));
    let rows = |part: usize| -> Vec<f64> {
        let element = |i: usize| {
            let (row, c) = (i / E, part * E + i % E);
            zs[c] + (0..5).map(|k| xs[row * 5 + k] * ws[k * 3 * E + c]).sum::<f64>()
        };
        heads(&(0..B * s * E).map(element).collect::<Vec<_>>(), s, D)
    };
    let plain = Heads { q: rows(0), k: rows(1), v: rows(2), s, t: s, e: D };
    let args = || vec![In(x.clone()), Const(w.clone()), Const(z.clone())];
    let one = |scale: f64,
               mask: Option<Tensor>,
               added: &dyn Fn(usize, usize, usize, usize) -> f64,
               uni| {
        let mut args = args();
        args.extend(mask.map(In));
        let attrs = [
            ("num_heads", int(H as i64)),
            ("unidirectional", int(uni)),
            ("scale", float(scale as f32)),
        ];
        contrib("Attention", &args, &attrs, &[attend(&plain, scale, added)]);
    };
    let low = -10000.0;
    one(0.5, None, &NONE, 0);
    one(0.5, None, &|_, _, s, t| if t > s { f64::NEG_INFINITY } else { 0.0 }, 1);
    let ends = [2usize, 3];
    one(0.25, Some(whole(&[2], &[2, 3])), &|b, _, _, t| if t < ends[b] { 0.0 } else { low }, 0);
    let kept = |b: usize, t: usize| if b == 0 { (1..3).contains(&t) } else { t < 2 };
    let spans = whole(&[4], &[3, 2, 1, 0]);
    one(0.25, Some(spans), &|b, _, _, t| if kept(b, t) { 0.0 } else { low }, 0);
    let columns = whole(&[2, 3], &[1, 0, 1, 1, 1, 1]);
    one(0.25, Some(columns), &|b, _, _, t| if b == 0 && t == 1 { low } else { 0.0 }, 0);
    let square: Vec<i64> = (0..B * s * s).map(|i| (i % 4 != 1) as i64).collect();
    let seen = square.clone();
    let added = move |b: usize, _: usize, r: usize, t: usize| {
        if seen[(b * s + r) * s + t] == 1 { 0.0 } else { low }
    };
    one(0.25, Some(whole(&[B, s, s], &square)), &added, 0);

    let state = drawn(4, &[2, B, H, past, D]);
    let states = numbers(&state);
    let (old_k, old_v) = states.split_at(states.len() / 2);
    let t = s + past;
    let k = joined(old_k, &plain.k, past, s, D);
    let v = joined(old_v, &plain.v, past, s, D);
    let stored = floats(&[2, B, H, t, D], &[k.clone(), v.clone()].concat());
    let longer = Heads { q: plain.q.clone(), k, v, s, t, e: D };
    let y = attend(&longer, 0.5, |_, _, s, t| if t > s + past { f64::NEG_INFINITY } else { 0.0 });
    let mut all = args();
    all.extend([Absent, In(state)]);
    let attrs = [("num_heads", int(H as i64)), ("unidirectional", int(1))];
    contrib("Attention", &all, &attrs, &[y, stored]);
}

#[test]
fn attention_of_packed_and_separate_operands() {
    let (s, t) = (3, 5);
    let attrs = [("num_heads", int(H as i64)), ("scale", float(0.25))];
    let (q, k, v) = (drawn(1, &[B, s, E]), drawn(2, &[B, t, E]), drawn(3, &[B, t, 6]));
    let bias = drawn(4, &[2 * E + 6]);
    let z = numbers(&bias);
    let with = |x: &Tensor, from: usize, n: usize| -> Vec<f64> {
        numbers(x).iter().enumerate().map(|(i, v)| v + z[from + i % n]).collect()
    };
    let biased = Heads {
        q: heads(&with(&q, 0, E), s, D),
        k: heads(&with(&k, E, E), t, D),
        v: heads(&with(&v, 2 * E, 6), t, 3),
        s,
        t,
        e: 3,
    };
    let args = || vec![In(q.clone()), In(k.clone()), In(v.clone()), Const(bias.clone())];
    contrib("MultiHeadAttention", &args(), &attrs, &[attend(&biased, 0.25, NONE)]);
    let mut masked = args();
    masked.push(In(whole(&[B], &[4, 2])));
    let mask = drawn(5, &[1, H, s, t]);
    let m = numbers(&mask);
    masked.push(In(mask));
    let added = |b: usize, h: usize, r: usize, c: usize| {
        m[(h * s + r) * t + c] + if c < [4, 2][b] { 0.0 } else { -10000.0 }
    };
    contrib("MultiHeadAttention", &masked, &attrs, &[attend(&biased, 0.25, added)]);

    // Keys and values of another sequence have an axis of heads, and take no bias.
    let (k4, v4) = (drawn(6, &[B, H, t, D]), drawn(7, &[B, H, t, D]));
    let apart =
        Heads { q: heads(&numbers(&q), s, D), k: numbers(&k4), v: numbers(&v4), s, t, e: D };
    let y = attend(&apart, 0.25, NONE);
    contrib("MultiHeadAttention", &[In(q.clone()), In(k4), In(v4)], &attrs, &[y]);

    // Queries, keys and values next to each other, head by head.
    let all = drawn(8, &[B, s, H, 3, D]);
    let x = numbers(&all);
    let part = |p: usize| -> Vec<f64> {
        let element = |i: usize| x[(i / D * 3 + p) * D + i % D];
        heads(&(0..B * s * E).map(element).collect::<Vec<_>>(), s, D)
    };
    let packed = Heads { q: part(0), k: part(1), v: part(2), s, t: s, e: D };
    contrib("MultiHeadAttention", &[In(all)], &attrs, &[attend(&packed, 0.25, NONE)]);
}

#[test]
fn grouped_attention_continues_a_sequence() {
    // One batch entry has four keys stored, the other two; both get one more.
    let (room, total) = (4, 5);
    let (q, k, v) = (drawn(1, &[B, 1, E]), drawn(2, &[B, 1, D]), drawn(3, &[B, 1, D]));
    let (pk, pv) = (drawn(4, &[B, 1, room, D]), drawn(5, &[B, 1, room, D]));
    let stored = [4, 2];
    let grown = |past: &Tensor, new: &Tensor| -> Vec<f64> {
        let (past, new) = (numbers(past), numbers(new));
        let element = |i: usize| {
            let (b, t, c) = (i / (total * D), i / D % total, i % D);
            let old = |t: usize| past[(b * room + t) * D + c];
            if t < stored[b] { old(t) } else { new[b * D + c] }
        };
        (0..B * total * D).map(element).collect()
    };
    let (keys, values) = (grown(&pk, &k), grown(&pv, &v));
    // Both query heads share the key head.
    let shared = |x: &[f64]| x.chunks(total * D).flat_map(|b| [b, b].concat()).collect();
    let x = Heads {
        q: heads(&numbers(&q), 1, D),
        k: shared(&keys),
        v: shared(&values),
        s: 1,
        t: total,
        e: D,
    };
    let window = 3;
    let seen = |b: usize, t: usize| t <= stored[b] && t + window > stored[b];
    let y = attend(&x, 0.5, |b, _, _, t| if seen(b, t) { 0.0 } else { f64::NEG_INFINITY });
    let args = [
        In(q),
        In(k),
        In(v),
        In(pk),
        In(pv),
        In(whole(&[B], &[4, 2])),
        Const(whole(&[1], &[total as i64])),
    ];
    let attrs = [
        ("num_heads", int(2)),
        ("kv_num_heads", int(1)),
        ("local_window_size", int(window as i64)),
    ];
    let state = |v: &[f64]| floats(&[B, 1, total, D], v);
    contrib("GroupQueryAttention", &args, &attrs, &[y, state(&keys), state(&values)]);
}

#[test]
fn positions_turn_pairs() {
    let x = drawn(1, &[1, 2, 4]);
    let (c, s) = (drawn(2, &[5, 2]), drawn(3, &[5, 2]));
    let (xs, cs, ss) = (numbers(&x), numbers(&c), numbers(&s));
    for (pairs, places) in [(0, [[0, 2], [1, 3]]), (1, [[0, 1], [2, 3]])] {
        let mut y = vec![0.0; 8];
        for row in 0..2 {
            for (i, [a, b]) in places.into_iter().enumerate() {
                // Positions are counted from 3 on.
                let (cos, sin) = (cs[(3 + row) * 2 + i], ss[(3 + row) * 2 + i]);
                let (u, v) = (xs[row * 4 + a], xs[row * 4 + b]);
                y[row * 4 + a] = cos * u - sin * v;
                y[row * 4 + b] = sin * u + cos * v;
            }
        }
        let args = [In(x.clone()), In(ints(&[1], &[3])), Const(c.clone()), Const(s.clone())];
        contrib(
            "RotaryEmbedding",
            &args,
            &[("interleaved", int(pairs))],
            &[floats(&[1, 2, 4], &y)],
        );
    }
}

#[test]
fn embeddings_are_summed_and_normalised() {
    let (words, places) = (drawn(1, &[5, 4]), drawn(2, &[3, 4]));
    let (w, p) = (numbers(&words), numbers(&places));
    let ids = [4, 0, 2, 2, 1, 3];
    let total: Vec<f64> =
        (0..24).map(|i| w[ids[i / 4] as usize * 4 + i % 4] + p[i / 4 % 3 * 4 + i % 4]).collect();
    let normal = |r: &[f64]| -> Vec<f64> {
        let m = r.iter().sum::<f64>() / 4.0;
        let s = (r.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / 4.0 + 0.25).sqrt();
        r.iter().map(|v| (v - m) / s * 2.0 + 0.5).collect()
    };
    let y: Vec<f64> = total.chunks(4).flat_map(normal).collect();
    let (two, half) = (floats(&[4], &[2.0; 4]), floats(&[4], &[0.5; 4]));
    let args = [
        In(whole(&[2, 3], &ids)),
        Absent,
        Const(words),
        Const(places),
        Absent,
        Const(two),
        Const(half),
        In(whole(&[2, 3], &[1, 1, 0, 1, 1, 1])),
    ];
    let expected = [floats(&[2, 3, 4], &y), whole(&[2], &[2, 3]), floats(&[2, 3, 4], &total)];
    contrib("EmbedLayerNormalization", &args, &[("epsilon", float(0.25))], &expected);
}

#[test]
fn a_domain_without_an_import_has_its_newest_operators() {
    let x = drawn(1, &[2, 3]);
    let gelu = |v: &f64| 0.5 * v * (1.0 + (0.7978845608 * (v + 0.044715 * v.powi(3))).tanh());
    let y = floats(&[2, 3], &numbers(&x).iter().map(gelu).collect::<Vec<_>>());
    let (mut raw, feeds) = single(18, "FastGelu", &[In(x)], &[], 1);
    raw.graph.nodes[0].domain = "com.microsoft".into();
    check_at(&[18], raw, &feeds, &[y]);
}
