//! Spellings of attention: where the scale stands, how masks are written, how heads are split and shared.

use super::build::{Build, Value, float, int, word};
use super::{Family, PLAIN, SYMBOLIC, Setup};
use mlc_dsl::ir::{DType, Tensor};

const SETUPS: &[Setup] = &[PLAIN, SYMBOLIC];
const ONE: &[Setup] = &[PLAIN];
const SETS: &[i64] = &[17, 13, 18, 20];

/// Spellings of attention, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "attention",
        expect: &["attention(attention)"],
        setups: SETUPS,
        opsets: &[17, 13, 18, 23],
        build: plain,
    },
    Family {
        name: "attention_masked",
        expect: &["attention(attention_masked)"],
        setups: ONE,
        opsets: SETS,
        build: masked,
    },
    Family {
        name: "attention_where",
        expect: &["attention(attention_select)"],
        setups: ONE,
        opsets: SETS,
        build: chosen,
    },
    Family {
        name: "attention_causal",
        expect: &["attention(attention_masked)"],
        setups: ONE,
        opsets: SETS,
        build: causal,
    },
    // The queries of a group are rows of one head: nothing is repeated for them.
    Family {
        name: "attention_grouped",
        expect: &["attention(attention), view()"],
        setups: ONE,
        opsets: SETS,
        build: grouped,
    },
    Family {
        name: "attention_heads",
        expect: &["attention(attention), view()"],
        setups: ONE,
        opsets: SETS,
        build: heads,
    },
    Family {
        name: "attention_packed",
        expect: &["gemm(add matmul), attention(attention), view()"],
        setups: ONE,
        opsets: SETS,
        build: packed,
    },
    Family {
        name: "rope",
        expect: &["pointwise(add mul mul)"],
        setups: SETUPS,
        opsets: SETS,
        build: rope,
    },
];

const B: i64 = 2;
const H: i64 = 4;
const S: i64 = 16;
const D: i64 = 64;

/// `x` with its last two axes exchanged.
fn turned(g: &mut Build, x: Value) -> Value {
    g.transpose(x, &[0, 1, 3, 2])
}

/// Scaled scores of queries against keys, `[b, h, s, d]` both.
pub fn scores(g: &mut Build, q: Value, k: Value) -> Value {
    let scale = 1.0 / (D as f64).sqrt();
    match g.pick(7) {
        1 => {
            let q = g.scale(q, scale);
            product(g, q, k)
        }
        2 => {
            let k = g.scale(k, scale);
            product(g, q, k)
        }
        3 => {
            let (q, k) = (g.scale(q, scale.sqrt()), g.scale(k, scale.sqrt()));
            product(g, q, k)
        }
        4 => {
            let y = product(g, q, k);
            let d = g.scalar_plain(D as f64);
            let r = g.sqrt(d);
            g.div(y, r)
        }
        5 => {
            // The scale as a power, as PyTorch's tracing leaves it.
            let y = product(g, q, k);
            let d = g.scalar_plain(D as f64);
            let e = g.scalar_plain(-0.5);
            let r = g.op("Pow", [d, e]);
            g.mul(y, r)
        }
        6 => {
            let d = g.scalar_plain(D as f64);
            let r = g.sqrt(d);
            let q = g.div(q, r);
            product(g, q, k)
        }
        _ => {
            let y = product(g, q, k);
            g.scale(y, scale)
        }
    }
}

/// Scores of queries against keys.
pub(super) fn product(g: &mut Build, q: Value, k: Value) -> Value {
    match g.pick(5) {
        3 => g.node("Einsum", &[q, k], &[("equation", word("bhsd,bhtd->bhst"))]),
        4 => {
            let p = turned(g, q);
            let y = g.op("MatMul", [k, p]);
            turned(g, y)
        }
        _ => {
            let k = turned(g, k);
            g.op("MatMul", [q, k])
        }
    }
}

/// Softmax of scores.
pub fn weights(g: &mut Build, x: Value) -> Value {
    let y = match g.pick(5) {
        4 => {
            let m = g.reduce("ReduceMax", x, &[3], 4);
            let c = g.sub(x, m);
            let e = g.op("Exp", [c]);
            let s = g.reduce("ReduceSum", e, &[3], 4);
            g.div(e, s)
        }
        a => g.node("Softmax", &[x], &[("axis", int(if a % 2 == 0 { -1 } else { 3 }))]),
    };
    g.noise(y)
}

/// Values weighed.
pub fn values(g: &mut Build, w: Value, v: Value) -> Value {
    if g.pick(4) == 3 {
        return g.node("Einsum", &[w, v], &[("equation", word("bhst,bhtd->bhsd"))]);
    }
    g.op("MatMul", [w, v])
}

fn inputs(g: &mut Build) -> [Value; 3] {
    [g.input(&[B, H, S, D]), g.input(&[B, H, S, D]), g.input(&[B, H, S, D])]
}

fn plain(g: &mut Build) -> Vec<Value> {
    let [q, k, v] = inputs(g);
    if g.opset >= 23 && g.flip() {
        return vec![g.node("Attention", &[q, k, v], &[])];
    }
    let s = scores(g, q, k);
    let w = weights(g, s);
    vec![values(g, w, v)]
}

fn masked(g: &mut Build) -> Vec<Value> {
    let [q, k, v] = inputs(g);
    let m = g.input(&[B, 1, S, S]);
    let s = match g.pick(6) {
        4 => {
            // The scale after the mask, which was scaled against it before.
            let y = product(g, q, k);
            let up = g.scale(m, (D as f64).sqrt());
            let a = g.add(y, up);
            g.scale(a, 1.0 / (D as f64).sqrt())
        }
        5 => {
            let n = g.neg(m);
            let y = scores(g, q, k);
            g.sub(y, n)
        }
        _ => {
            let y = scores(g, q, k);
            g.add(y, m)
        }
    };
    let w = weights(g, s);
    vec![values(g, w, v)]
}

fn chosen(g: &mut Build) -> Vec<Value> {
    let [q, k, v] = inputs(g);
    let keep = g.input_of(DType::Bool, &[B, 1, S, S]);
    let s = scores(g, q, k);
    let low = g.scalar_plain(-10000.0);
    let s = match g.pick(4) {
        2 => {
            let not = g.op("Not", [keep]);
            g.op("Where", [not, low, s])
        }
        3 => {
            let to = g.integers(&[B, H, S, S]);
            let c = g.op("Expand", [keep, to]);
            g.op("Where", [c, s, low])
        }
        _ => g.op("Where", [keep, s, low]),
    };
    let w = weights(g, s);
    vec![values(g, w, v)]
}

/// Which keys a query may see: those up to its own place.
fn triangle() -> Vec<f64> {
    (0..S * S).map(|i| f64::from(i % S <= i / S)).collect()
}

fn causal(g: &mut Build) -> Vec<Value> {
    let [q, k, v] = inputs(g);
    let n = S as usize;
    let y = scores(g, q, k);
    let low = -10000.0;
    let keep = triangle();
    let mask: Vec<f64> = keep.iter().map(|k| if *k > 0.0 { 0.0 } else { low }).collect();
    let s = match g.pick(5) {
        1 => {
            let m = g.tensor(&[1, 1, n, n], &mask);
            g.add(y, m)
        }
        2 => {
            // A mask of ones and zeros, made additive inside of the graph.
            let ones = g.tensor(&[1, 1, n, n], &keep);
            let one = g.scalar_plain(1.0);
            let off = g.sub(one, ones);
            let m = g.scale(off, low);
            g.add(y, m)
        }
        3 if g.opset >= 14 => {
            let full = g.tensor(&[n, n], &vec![low; n * n]);
            let one = g.integers(&[1]);
            let one = g.squeeze(one, &[0]);
            let m = g.node("Trilu", &[full, one], &[("upper", int(1))]);
            g.add(y, m)
        }
        4 => {
            let c = g.constant(Tensor::from_f64(DType::Bool, vec![n, n], &keep));
            let (z, l) = (g.scalar_plain(0.0), g.scalar_plain(low));
            let m = g.op("Where", [c, z, l]);
            g.add(y, m)
        }
        _ => {
            let m = g.tensor(&[n, n], &mask);
            g.add(y, m)
        }
    };
    let w = weights(g, s);
    vec![values(g, w, v)]
}

/// Keys or values of two heads, each serving two query heads.
fn shared(g: &mut Build, x: Value) -> Value {
    match g.pick(4) {
        1 => {
            let u = g.reshape(x, &[B, 2, 1, S, D]);
            let to = g.integers(&[B, 2, 2, S, D]);
            let e = g.op("Expand", [u, to]);
            g.reshape(e, &[B, H, S, D])
        }
        2 => {
            let u = g.unsqueeze(x, &[2]);
            let n = g.integers(&[1, 1, 2, 1, 1]);
            let t = g.op("Tile", [u, n]);
            g.reshape(t, &[0, H, S, D])
        }
        3 => {
            let u = g.unsqueeze(x, &[2]);
            let c = g.node("Concat", &[u, u], &[("axis", int(2))]);
            g.reshape(c, &[B, H, S, D])
        }
        _ => {
            let u = g.unsqueeze(x, &[2]);
            let to = g.integers(&[1, 1, 2, 1, 1]);
            let e = g.op("Expand", [u, to]);
            g.reshape(e, &[B, H, -1, D])
        }
    }
}

fn grouped(g: &mut Build) -> Vec<Value> {
    let q = g.input(&[B, H, S, D]);
    let (k, v) = (g.input(&[B, 2, S, D]), g.input(&[B, 2, S, D]));
    let (k, v) = (shared(g, k), shared(g, v));
    let s = scores(g, q, k);
    let w = weights(g, s);
    vec![values(g, w, v)]
}

/// `[b, s, h*d]` as `[b, h, s, d]`.
fn split_heads(g: &mut Build, x: Value) -> Value {
    let shape = g.any(&[[B, S, H, D], [0, 0, H, D], [B, -1, H, D], [0, S, -1, D]]);
    let r = g.reshape(x, &shape);
    g.transpose(r, &[0, 2, 1, 3])
}

fn join_heads(g: &mut Build, x: Value) -> Value {
    let t = g.transpose(x, &[0, 2, 1, 3]);
    let shape = g.any(&[[B, S, H * D], [0, 0, H * D], [0, 0, -1]]);
    g.reshape(t, &shape)
}

fn heads(g: &mut Build) -> Vec<Value> {
    let shape = [B, S, H * D];
    let (q, k, v) = (g.input(&shape), g.input(&shape), g.input(&shape));
    let (q, v) = (split_heads(g, q), split_heads(g, v));
    let scale = 1.0 / (D as f64).sqrt();
    let s = if g.flip() {
        // Keys go from rows to columns in one transpose.
        let r = g.reshape(k, &[B, S, H, D]);
        let k = g.transpose(r, &[0, 2, 3, 1]);
        if g.flip() {
            let q = g.scale(q, scale);
            g.op("MatMul", [q, k])
        } else {
            let y = g.op("MatMul", [q, k]);
            g.scale(y, scale)
        }
    } else {
        let k = split_heads(g, k);
        scores(g, q, k)
    };
    let w = weights(g, s);
    let y = values(g, w, v);
    vec![join_heads(g, y)]
}

fn packed(g: &mut Build) -> Vec<Value> {
    let n = (H * D) as usize;
    let x = g.input(&[B, S, H * D]);
    let [q, k, v] = match g.pick(4) {
        0 => {
            let w = g.weight(&[n, 3 * n]);
            let y = g.op("MatMul", [x, w]);
            let z = g.weight(&[3 * n]);
            let y = g.add(y, z);
            let p = g.parts(y, 2, &[n as i64; 3]);
            [split_heads(g, p[0]), split_heads(g, p[1]), split_heads(g, p[2])]
        }
        1 => {
            let w = g.weight(&[n, 3 * n]);
            let y = g.op("MatMul", [x, w]);
            let z = g.weight(&[3 * n]);
            let y = g.add(y, z);
            let r = g.reshape(y, &[B, S, 3, H, D]);
            let t = g.transpose(r, &[2, 0, 3, 1, 4]);
            let mut part = |i: i64| {
                if g.flip() {
                    let s = g.slice(t, 0, i, i + 1);
                    return g.squeeze(s, &[0]);
                }
                let i = g.constant(Tensor::from_i64(DType::I64, vec![], &[i]));
                g.node("Gather", &[t, i], &[("axis", int(0))])
            };
            [part(0), part(1), part(2)]
        }
        _ => {
            let mut one = || {
                let y = project(g, x, n, n);
                split_heads(g, y)
            };
            [one(), one(), one()]
        }
    };
    let s = scores(g, q, k);
    let w = weights(g, s);
    let y = values(g, w, v);
    vec![join_heads(g, y)]
}

/// A biased product with a weight, transposed or not.
pub fn project(g: &mut Build, x: Value, from: usize, to: usize) -> Value {
    let y = match g.pick(4) {
        2 => {
            let w = g.weight(&[to, from]);
            let w = g.transpose(w, &[1, 0]);
            g.op("MatMul", [x, w])
        }
        3 => {
            let r = g.reshape(x, &[-1, from as i64]);
            let (w, z) = (g.weight(&[to, from]), g.weight(&[to]));
            let y = g.node("Gemm", &[r, w, z], &[("transB", int(1)), ("alpha", float(1.0))]);
            let shape = g.any(&[[B, S, to as i64], [B, -1, to as i64], [-1, S, to as i64]]);
            return g.reshape(y, &shape);
        }
        _ => {
            let w = g.weight(&[from, to]);
            g.op("MatMul", [x, w])
        }
    };
    let z = g.weight(&[to]);
    g.add(y, z)
}

fn rope(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[B, H, S, D]);
    let half = D / 2;
    let (n, m) = (S as usize, half as usize);
    let (c, s) = (g.numbers(n * m, -1.0, 1.0), g.numbers(n * m, -1.0, 1.0));
    let doubled = |t: &[f64]| -> Vec<f64> {
        t.chunks(m).flat_map(|r| r.iter().chain(r).copied().collect::<Vec<_>>()).collect()
    };
    match g.pick(4) {
        3 => {
            // By halves, the tables half as wide.
            let (c, s) = (g.tensor(&[1, 1, n, m], &c), g.tensor(&[1, 1, n, m], &s));
            let p = g.parts(x, 3, &[half, half]);
            let (ac, bs) = (g.mul(p[0], c), g.mul(p[1], s));
            let (bc, a_s) = (g.mul(p[1], c), g.mul(p[0], s));
            let (lo, hi) = (g.sub(ac, bs), g.add(bc, a_s));
            vec![g.node("Concat", &[lo, hi], &[("axis", int(-1))])]
        }
        way => {
            let shape: &[usize] = if g.flip() { &[1, 1, n, 2 * m] } else { &[n, 2 * m] };
            let (c, s) = (g.tensor(shape, &doubled(&c)), g.tensor(shape, &doubled(&s)));
            let p = g.parts(x, 3, &[half, half]);
            let r = match way {
                2 => {
                    let k = g.node("Concat", &[p[1], p[0]], &[("axis", int(3))]);
                    let mut signs = vec![-1.0; m];
                    signs.extend(vec![1.0; m]);
                    let f = g.tensor(&[2 * m], &signs);
                    g.mul(k, f)
                }
                _ => {
                    let n = g.neg(p[1]);
                    let axis = if g.flip() { -1 } else { 3 };
                    g.node("Concat", &[n, p[0]], &[("axis", int(axis))])
                }
            };
            let (xc, rs) = (g.mul(x, c), g.mul(r, s));
            vec![g.add(xc, rs)]
        }
    }
}
