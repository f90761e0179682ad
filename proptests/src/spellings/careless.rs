//! Needlessly complicated spellings, as left by manual export, tracing and decomposition: redundant bounds, halves and
//! complements of a layer, sums in place of means, products in place of sums.

use super::build::{Build, Value, int, ints, word};
use super::{Family, PLAIN, SYMBOLIC, Setup};

const SETUPS: &[Setup] = &[PLAIN, SYMBOLIC];
const ONE: &[Setup] = &[PLAIN];
const SETS: &[i64] = &[17, 13, 18, 20];

/// Spellings of graphs with needless operators, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "careless_elu",
        expect: &["pointwise(elu)"],
        setups: SETUPS,
        opsets: SETS,
        build: elu,
    },
    Family {
        name: "careless_selu",
        expect: &["pointwise(selu)"],
        setups: SETUPS,
        opsets: SETS,
        build: selu,
    },
    Family {
        name: "careless_leaky_relu",
        expect: &["pointwise(leaky_relu)"],
        setups: SETUPS,
        opsets: SETS,
        build: leaky_relu,
    },
    Family {
        name: "careless_prelu",
        expect: &["pointwise(prelu)"],
        setups: SETUPS,
        opsets: SETS,
        build: prelu,
    },
    Family {
        name: "careless_hard_sigmoid",
        expect: &["pointwise(hardsigmoid)"],
        setups: SETUPS,
        opsets: SETS,
        build: hard_sigmoid,
    },
    Family {
        name: "careless_softplus",
        expect: &["pointwise(softplus)"],
        setups: SETUPS,
        opsets: SETS,
        build: softplus,
    },
    Family {
        name: "careless_mish",
        expect: &["pointwise(mish)"],
        setups: SETUPS,
        opsets: SETS,
        build: mish,
    },
    Family {
        name: "careless_softmax",
        expect: &["softmax(softmax)"],
        setups: SETUPS,
        opsets: SETS,
        build: softmax,
    },
    Family {
        name: "careless_layer_norm",
        expect: &["norm(layernorm)"],
        setups: SETUPS,
        opsets: SETS,
        build: layer_norm,
    },
    Family {
        name: "careless_rms_norm",
        expect: &["norm(rmsnorm)"],
        setups: SETUPS,
        opsets: SETS,
        build: rms_norm,
    },
    Family {
        name: "careless_l2_norm",
        expect: &["reduce(maximum mul rsqrt sum), pointwise(mul)"],
        setups: SETUPS,
        opsets: SETS,
        build: l2_norm,
    },
    Family {
        name: "careless_conv_affine",
        expect: &["conv(add conv)"],
        setups: ONE,
        opsets: SETS,
        build: conv_affine,
    },
    Family {
        name: "careless_rope",
        expect: &["pointwise(add mul mul)"],
        setups: SETUPS,
        opsets: SETS,
        build: rope,
    },
];

const B: i64 = 2;
const S: i64 = 16;
const N: i64 = 64;
const EPS: f64 = 1e-5;

fn input(g: &mut Build) -> Value {
    let x = g.input(&[B, S, N]);
    g.noise(x)
}

/// `yes` where `x` is above zero, `no` below.
fn by_sign(g: &mut Build, x: Value, yes: Value, no: Value) -> Value {
    let zero = g.scalar(0.0);
    let (op, first, second) = match g.pick(4) {
        0 => ("Greater", yes, no),
        1 => ("GreaterOrEqual", yes, no),
        2 => ("Less", no, yes),
        _ => ("LessOrEqual", no, yes),
    };
    let c = g.op(op, [x, zero]);
    g.op("Where", [c, first, second])
}

/// `minimum(x, 0)`, also by a choice.
fn negative(g: &mut Build, x: Value) -> Value {
    let zero = g.scalar(0.0);
    match g.pick(4) {
        0 => g.op("Min", [x, zero]),
        1 => {
            let c = g.op("Greater", [x, zero]);
            g.op("Where", [c, zero, x])
        }
        2 => {
            g.unstable();
            let a = g.op("Abs", [x]);
            let d = g.sub(x, a);
            g.scale(d, 0.5)
        }
        _ => {
            let n = g.neg(x);
            let r = g.rectified(n);
            g.neg(r)
        }
    }
}

/// `k * (exp(x) - 1)` below zero, and what is above it does not matter.
fn tail(g: &mut Build, x: Value, k: f64) -> Value {
    let x = if g.flip() { negative(g, x) } else { x };
    let e = g.op("Exp", [x]);
    let e = g.shift(e, -1.0);
    g.scale(e, k)
}

fn elu(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    if g.flip() {
        // As papers write it: the larger part and the smaller part.
        let e = g.op("Exp", [x]);
        let e = g.shift(e, -1.0);
        let e = g.scale(e, 1.5);
        let zero = g.scalar(0.0);
        let (a, b) = (g.rectified(x), g.op("Min", [e, zero]));
        return vec![g.add(a, b)];
    }
    let t = tail(g, x, 1.5);
    vec![by_sign(g, x, x, t)]
}

fn selu(g: &mut Build) -> Vec<Value> {
    let (alpha, gamma) = (1.673_263_242_354_377, 1.050_700_987_355_480_5);
    let x = input(g);
    if g.flip() {
        let t = tail(g, x, alpha);
        let y = by_sign(g, x, x, t);
        return vec![g.scale(y, gamma)];
    }
    let (a, t) = (g.scale(x, gamma), tail(g, x, alpha * gamma));
    vec![by_sign(g, x, a, t)]
}

fn leaky_relu(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    let y = match g.pick(4) {
        0 => {
            let (a, r) = (g.scale(x, 0.125), g.rectified(x));
            let b = g.scale(r, 0.875);
            g.add(a, b)
        }
        1 => {
            let (a, v) = (g.scale(x, 0.5625), g.op("Abs", [x]));
            let b = g.scale(v, 0.4375);
            g.add(a, b)
        }
        2 => {
            let m = negative(g, x);
            let b = g.scale(m, 0.875);
            g.sub(x, b)
        }
        _ => {
            let (one, slope) = (g.tensor(&[1, 1, 1], &[1.0]), g.scalar(0.125));
            let k = by_sign(g, x, one, slope);
            g.mul(x, k)
        }
    };
    vec![y]
}

fn prelu(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    let slope = g.weight_in(&[N as usize], 0.1, 0.9);
    let (a, m) = (g.rectified(x), negative(g, x));
    let b = g.mul(m, slope);
    vec![g.add(a, b)]
}

fn hard_sigmoid(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    let bounds = |g: &mut Build, x: Value, low: f64, high: f64| {
        let (l, h) = (g.scalar_plain(low), g.scalar_plain(high));
        if g.flip() {
            let m = g.op("Max", [x, l]);
            return g.op("Min", [m, h]);
        }
        g.node("Clip", &[x, l, h], &[])
    };
    let y = match g.pick(5) {
        0 => {
            let a = g.scale(x, 0.25);
            let c = bounds(g, a, -0.5, 0.5);
            g.shift(c, 0.5)
        }
        1 => {
            let c = bounds(g, x, -2.0, 2.0);
            let a = g.scale(c, 0.25);
            g.shift(a, 0.5)
        }
        2 => {
            let a = g.scale(x, -0.25);
            let a = g.shift(a, 0.5);
            let (c, one) = (bounds(g, a, 0.0, 1.0), g.scalar(1.0));
            g.sub(one, c)
        }
        3 => {
            g.unstable();
            let a = g.scale(x, 0.25);
            let (t, u) = (g.shift(a, 0.5), g.shift(a, -0.5));
            let (t, u) = (g.rectified(t), g.rectified(u));
            g.sub(t, u)
        }
        _ => {
            let a = g.scale(x, 0.25);
            let t = g.shift(a, 0.5);
            let (zero, one) = (g.scalar(0.0), g.scalar(1.0));
            let c = g.op("Greater", [t, one]);
            let u = g.op("Where", [c, one, t]);
            let c = g.op("Less", [t, zero]);
            g.op("Where", [c, zero, u])
        }
    };
    vec![y]
}

fn soft(g: &mut Build, x: Value) -> Value {
    match g.pick(4) {
        0 => {
            g.unstable();
            let n = g.neg(x);
            let s = g.op("Softplus", [n]);
            g.add(x, s)
        }
        1 => {
            g.unstable();
            let s = g.op("Sigmoid", [x]);
            let l = g.op("Log", [s]);
            g.sub(x, l)
        }
        2 => {
            let n = g.neg(x);
            let m = g.op("Min", [x, n]);
            let e = g.op("Exp", [m]);
            let s = g.shift(e, 1.0);
            let l = g.op("Log", [s]);
            let r = g.rectified(x);
            g.add(r, l)
        }
        _ => {
            g.unstable();
            let n = g.neg(x);
            let e = g.op("Exp", [n]);
            let s = g.shift(e, 1.0);
            let l = g.op("Log", [s]);
            g.add(x, l)
        }
    }
}

fn softplus(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    vec![soft(g, x)]
}

fn mish(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    let (above, below) = match g.pick(3) {
        0 => {
            let s = soft(g, x);
            let t = g.op("Tanh", [s]);
            return vec![g.mul(x, t)];
        }
        1 => {
            g.unstable();
            let e = g.op("Exp", [x]);
            let d = g.shift(e, 2.0);
            let n = g.mul(e, d);
            (n, g.shift(n, 2.0))
        }
        _ => {
            g.unstable();
            let e = g.op("Exp", [x]);
            let d = g.shift(e, 1.0);
            let n = g.square(d);
            (g.shift(n, -1.0), g.shift(n, 1.0))
        }
    };
    let t = g.div(above, below);
    vec![g.mul(x, t)]
}

fn softmax(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    if g.flip() {
        let a = g.shift(x, 3.0);
        return vec![g.node("Softmax", &[a], &[("axis", int(2))])];
    }
    let m = g.reduce("ReduceMax", x, &[2], 3);
    let c = g.sub(x, m);
    let e = g.op("Exp", [c]);
    let s = g.reduce("ReduceL1", e, &[2], 3);
    vec![g.div(e, s)]
}

/// The reciprocal of the root of `v`, also as the root of the reciprocal.
fn inverse_root(g: &mut Build, v: Value) -> Value {
    if g.flip() {
        let r = g.recip(v);
        return g.sqrt(r);
    }
    g.rsqrt(v)
}

fn layer_norm(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    let (w, z) = (g.weight_in(&[N as usize], 0.5, 1.5), g.weight(&[N as usize]));
    let m = g.reduce_with("ReduceMean", x, &[2], 3, true);
    let c = g.sub(x, m);
    let y = match g.pick(3) {
        0 => {
            // The variance by the mean of squares, kept from falling below zero.
            g.unstable();
            let (q, mm) = (g.square(x), g.square(m));
            let q = g.reduce_with("ReduceMean", q, &[2], 3, true);
            let (v, zero) = (g.sub(q, mm), g.scalar(0.0));
            let v = g.op("Max", [v, zero]);
            let v = g.shift(v, EPS);
            let i = inverse_root(g, v);
            g.mul(c, i)
        }
        1 => {
            // The sum of squares, and the root of their number outside.
            let q = g.square(c);
            let q = g.reduce("ReduceSum", q, &[2], 3);
            let q = g.shift(q, EPS * N as f64);
            let (c, r) = (g.scale(c, (N as f64).sqrt()), g.sqrt(q));
            g.div(c, r)
        }
        _ => {
            let q = g.square(c);
            let v = g.reduce_with("ReduceMean", q, &[2], 3, true);
            let v = g.shift(v, EPS);
            let i = inverse_root(g, v);
            g.mul(c, i)
        }
    };
    let y = g.mul(y, w);
    vec![g.add(y, z)]
}

/// The dot product of every row with itself, as a product of matrices.
fn dots(g: &mut Build, x: Value) -> Value {
    if g.flip() {
        let d = g.node("Einsum", &[x, x], &[("equation", word("bsd,bsd->bs"))]);
        return g.unsqueeze(d, &[2]);
    }
    let (row, column) = (g.unsqueeze(x, &[2]), g.unsqueeze(x, &[3]));
    let d = g.op("MatMul", [row, column]);
    g.squeeze(d, &[3])
}

fn rms_norm(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    let w = g.weight_in(&[N as usize], 0.5, 1.5);
    let y = match g.pick(3) {
        0 => {
            let d = dots(g, x);
            let v = g.scale(d, 1.0 / N as f64);
            let v = g.shift(v, EPS);
            let r = g.op("Sqrt", [v]);
            g.div(x, r)
        }
        1 => {
            // The sum of squares, and the root of their number outside.
            let d = g.reduce("ReduceSumSquare", x, &[2], 3);
            let d = g.shift(d, EPS * N as f64);
            let (x, r) = (g.scale(x, (N as f64).sqrt()), g.op("Sqrt", [d]));
            g.div(x, r)
        }
        _ => {
            let q = g.square(x);
            let v = g.reduce_with("ReduceMean", q, &[2], 3, true);
            let v = g.shift(v, EPS);
            let i = inverse_root(g, v);
            g.mul(x, i)
        }
    };
    vec![g.mul(y, w)]
}

fn l2_norm(g: &mut Build) -> Vec<Value> {
    let x = input(g);
    let d = if g.flip() { dots(g, x) } else { g.reduce("ReduceSumSquare", x, &[2], 3) };
    let low = g.scalar(1e-8);
    let d = g.op("Max", [d, low]);
    let r = g.sqrt(d);
    vec![g.div(x, r)]
}

fn conv_affine(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 3, 16, 16]);
    let x = g.noise(x);
    let (w, z) = (g.weight(&[8, 3, 3, 3]), g.weight(&[8]));
    let y = g.node("Conv", &[x, w, z], &[("pads", ints(&[1, 1, 1, 1]))]);
    // Scale and shift as a convolution of single elements.
    let (s, t) = (g.weight_in(&[8, 1, 1, 1], 0.5, 1.5), g.weight(&[8]));
    let group = [("group", int(8))];
    if g.flip() {
        return vec![g.node("Conv", &[y, s, t], &group)];
    }
    let y = g.node("Conv", &[y, s], &group);
    let t = g.reshape(t, &[1, 8, 1, 1]);
    vec![g.add(y, t)]
}

fn rope(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 4, 16, 32]);
    let x = g.noise(x);
    let (c, s) = (g.numbers(256, -1.0, 1.0), g.numbers(256, -1.0, 1.0));
    let p = g.parts(x, 3, &[16, 16]);
    let (a, b) = (p[0], p[1]);
    if g.flip() {
        // The other sign of the turned half.
        let twice = |v: &[f64]| v.chunks(16).flat_map(|r| [r, r].concat()).collect::<Vec<f64>>();
        let (c, s) = (g.tensor(&[16, 32], &twice(&c)), g.tensor(&[16, 32], &twice(&s)));
        let n = g.neg(a);
        let t = g.node("Concat", &[b, n], &[("axis", int(3))]);
        let (u, v) = (g.mul(x, c), g.mul(t, s));
        return vec![g.sub(u, v)];
    }
    // The halves, stacked and joined.
    let (c, s) = (g.tensor(&[16, 16], &c), g.tensor(&[16, 16], &s));
    let (ac, bs, bc, az) = (g.mul(a, c), g.mul(b, s), g.mul(b, c), g.mul(a, s));
    let (u, v) = (g.sub(ac, bs), g.add(bc, az));
    let (u, v) = (g.unsqueeze(u, &[3]), g.unsqueeze(v, &[3]));
    let y = g.node("Concat", &[u, v], &[("axis", int(3))]);
    vec![g.reshape(y, &[-1, 4, 16, 32])]
}
