//! Spellings of normalisations.

use super::build::{Build, Value, float, int};
use super::{Family, HALF, PLAIN, SYMBOLIC, Setup};

const ROWS: &[Setup] = &[PLAIN, SYMBOLIC];
const ROWS_HALF: &[Setup] = &[PLAIN, SYMBOLIC, HALF];
const IMAGES: &[Setup] = &[PLAIN, SYMBOLIC];
const SETS: &[i64] = &[17, 13, 16, 18, 21];
const N: i64 = 64;

/// Spellings of normalisations, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "layer_norm",
        expect: &["norm(layernorm)"],
        setups: ROWS_HALF,
        opsets: SETS,
        build: layer_norm,
    },
    Family {
        name: "layer_norm_plain",
        expect: &["norm(layernorm)"],
        setups: ROWS,
        opsets: SETS,
        build: layer_norm_plain,
    },
    Family {
        name: "layer_norm_skip",
        expect: &["pointwise(add), norm(layernorm)"],
        setups: ROWS,
        opsets: SETS,
        build: layer_norm_skip,
    },
    Family {
        name: "rms_norm",
        expect: &["norm(rmsnorm)"],
        setups: ROWS_HALF,
        opsets: &[17, 13, 18, 23],
        build: rms_norm,
    },
    Family {
        name: "batch_norm",
        expect: &["pointwise(add mul)"],
        setups: IMAGES,
        opsets: SETS,
        build: batch_norm,
    },
    Family {
        name: "instance_norm",
        expect: &["norm(layernorm), pointwise(add mul), view()"],
        setups: IMAGES,
        opsets: SETS,
        build: instance_norm,
    },
    Family {
        name: "group_norm",
        expect: &["norm(layernorm), pointwise(add mul)"],
        setups: IMAGES,
        opsets: &[21, 13, 17],
        build: group_norm,
    },
    Family {
        name: "l2_norm",
        expect: &["reduce(maximum mul sqrt sum), pointwise(div)"],
        setups: ROWS,
        opsets: SETS,
        build: l2_norm,
    },
];

/// `x - mean(x)`, as a difference or the other way round where only its square is used.
fn centred(g: &mut Build, x: Value, axes: &[i64], rank: i64, count: i64) -> Value {
    let m = g.mean(x, axes, rank, count);
    g.sub(x, m)
}

/// The variance of `x`, whose centred values are `c`.
fn variance(g: &mut Build, x: Value, c: Value, axes: &[i64], rank: i64, count: i64) -> Value {
    match g.pick(8) {
        5 => {
            // Centred once more, as tf2onnx writes a squared difference.
            let m = g.mean(x, axes, rank, count);
            let d = if g.flip() { g.op("Sub", [m, x]) } else { g.sub(x, m) };
            let s = g.square(d);
            g.mean(s, axes, rank, count)
        }
        6 => {
            g.unstable();
            let s = g.square(x);
            let m = g.mean(s, axes, rank, count);
            let a = g.mean(x, axes, rank, count);
            let a = g.square(a);
            g.sub(m, a)
        }
        7 => {
            let s = g.reduce("ReduceSumSquare", c, axes, rank);
            g.scale(s, 1.0 / count as f64)
        }
        _ => {
            let s = g.square(c);
            g.mean(s, axes, rank, count)
        }
    }
}

/// `c / sqrt(v + eps)`.
fn over_deviation(g: &mut Build, c: Value, v: Value, eps: f64) -> Value {
    let e = g.shift(v, eps);
    if g.flip() {
        let r = g.rsqrt(e);
        return g.mul(c, r);
    }
    let s = g.sqrt(e);
    g.div(c, s)
}

/// A vector of `n` over the last axis, perhaps with unit axes in front of it.
fn vector(g: &mut Build, n: usize) -> Value {
    let shape: &[usize] = match g.pick(5) {
        3 => &[1, n],
        4 => &[1, 1, n],
        _ => &[n],
    };
    g.weight_in(shape, 0.5, 1.5)
}

/// Layer normalisation of rows of `n`: scale and bias, or the normalisation itself as a scale and a bias per row.
pub fn layer_norm_of(g: &mut Build, x: Value, n: usize) -> Value {
    let (axes, eps) = (&[2], 1e-5);
    if g.opset >= 17 && g.pick(4) == 0 {
        let (s, z) = (g.weight_in(&[n], 0.5, 1.5), g.weight(&[n]));
        let axis = if g.flip() { 2 } else { -1 };
        return g.node(
            "LayerNormalization",
            &[x, s, z],
            &[("axis", int(axis)), ("epsilon", float(eps))],
        );
    }
    let c = centred(g, x, axes, 3, n as i64);
    let v = variance(g, x, c, axes, 3, n as i64);
    match g.pick(5) {
        3 => {
            // Keras: x * inv + (beta - mean * inv).
            let e = g.shift(v, eps);
            let r = g.rsqrt(e);
            let s = vector(g, n);
            let inv = g.mul(r, s);
            let m = g.mean(x, axes, 3, n as i64);
            let mi = g.mul(m, inv);
            let z = vector(g, n);
            let b = g.sub(z, mi);
            let xi = g.mul(x, inv);
            g.add(xi, b)
        }
        4 => {
            let e = g.shift(v, eps);
            let r = g.rsqrt(e);
            let s = vector(g, n);
            let inv = g.mul(r, s);
            let y = g.mul(c, inv);
            let z = vector(g, n);
            g.add(y, z)
        }
        _ => {
            let y = over_deviation(g, c, v, eps);
            let s = vector(g, n);
            let y = g.mul(y, s);
            let z = vector(g, n);
            g.add(y, z)
        }
    }
}

fn layer_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, N]);
    let x = g.noise(x);
    let y = layer_norm_of(g, x, N as usize);
    vec![g.noise(y)]
}

fn layer_norm_skip(g: &mut Build) -> Vec<Value> {
    let (a, b) = (g.input(&[2, 16, N]), g.input(&[2, 16, N]));
    let x = g.add(a, b);
    vec![layer_norm_of(g, x, N as usize)]
}

fn layer_norm_plain(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, N]);
    let y = match g.pick(5) {
        3 if g.opset >= 17 => {
            let (s, z) = (g.tensor(&[64], &[1.0; 64]), g.tensor(&[64], &[0.0; 64]));
            g.node("LayerNormalization", &[x, s, z], &[("axis", int(-1)), ("epsilon", float(1e-5))])
        }
        4 if g.opset >= 17 => {
            let s = g.tensor(&[64], &[1.0; 64]);
            g.node("LayerNormalization", &[x, s], &[("axis", int(-1)), ("epsilon", float(1e-5))])
        }
        _ => {
            let c = centred(g, x, &[2], 3, N);
            let v = variance(g, x, c, &[2], 3, N);
            over_deviation(g, c, v, 1e-5)
        }
    };
    vec![y]
}

fn rms_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, N]);
    let x = g.noise(x);
    if g.opset >= 23 && !g.flip() {
        let s = g.weight_in(&[64], 0.5, 1.5);
        let attrs = [("axis", int(-1)), ("epsilon", float(1e-5))];
        return vec![g.node("RMSNormalization", &[x, s], &attrs)];
    }
    let y = rms_norm_of(g, x, N as usize);
    vec![g.noise(y)]
}

/// Normalisation of rows of `n` by the root of their mean square.
pub fn rms_norm_of(g: &mut Build, x: Value, n: usize) -> Value {
    let (count, eps) = (n as i64, 1e-5);
    let m = match g.pick(5) {
        3 => {
            let s = g.reduce("ReduceSumSquare", x, &[2], 3);
            g.scale(s, 1.0 / n as f64)
        }
        4 => {
            let l = g.reduce("ReduceL2", x, &[2], 3);
            let s = g.square(l);
            g.scale(s, 1.0 / n as f64)
        }
        _ => {
            let s = g.square(x);
            g.mean(s, &[2], 3, count)
        }
    };
    match g.pick(4) {
        3 => {
            let e = g.shift(m, eps);
            let r = g.rsqrt(e);
            let s = vector(g, n);
            let f = g.mul(r, s);
            g.mul(x, f)
        }
        2 => {
            let e = g.shift(m, eps);
            let s = vector(g, n);
            let xs = g.mul(x, s);
            let r = g.sqrt(e);
            g.div(xs, r)
        }
        _ => {
            let y = over_deviation(g, x, m, eps);
            let s = vector(g, n);
            g.mul(y, s)
        }
    }
}

/// Values per channel, spread over NCHW by reshape, by unit axes or as stored.
fn channels(g: &mut Build, values: &[f64]) -> Value {
    let n = values.len();
    match g.pick(4) {
        0 => g.tensor(&[n, 1, 1], values),
        1 => g.tensor(&[1, n, 1, 1], values),
        2 => {
            let v = g.tensor(&[n], values);
            g.reshape(v, &[1, -1, 1, 1])
        }
        _ => {
            let v = g.tensor(&[n], values);
            g.unsqueeze(v, &[1, 2])
        }
    }
}

/// Inference batch normalisation of `c` channels.
pub fn batch_norm_of(g: &mut Build, x: Value, c: usize) -> Value {
    let (scale, bias) = (g.numbers(c, 0.5, 1.5), g.numbers(c, -1.0, 1.0));
    let (mean, var) = (g.numbers(c, -0.5, 0.5), g.numbers(c, 0.5, 2.0));
    let eps = 1e-5;
    match g.pick(5) {
        0 | 1 => {
            let all: Vec<Value> =
                [&scale, &bias, &mean, &var].iter().map(|v| g.tensor(&[c], v)).collect();
            g.node(
                "BatchNormalization",
                &[x, all[0], all[1], all[2], all[3]],
                &[("epsilon", float(eps))],
            )
        }
        2 => {
            let m = channels(g, &mean);
            let d = g.sub(x, m);
            let v = channels(g, &var);
            let y = over_deviation(g, d, v, eps);
            let s = channels(g, &scale);
            let y = g.mul(y, s);
            let z = channels(g, &bias);
            g.add(y, z)
        }
        3 => {
            let f: Vec<f64> = scale.iter().zip(&var).map(|(s, v)| s / (v + eps).sqrt()).collect();
            let h: Vec<f64> = bias.iter().zip(&mean).zip(&f).map(|((z, m), f)| z - m * f).collect();
            let f = channels(g, &f);
            let y = g.mul(x, f);
            let h = channels(g, &h);
            g.add(y, h)
        }
        _ => {
            let v = channels(g, &var);
            let e = g.shift(v, eps);
            let r = g.rsqrt(e);
            let s = channels(g, &scale);
            let f = g.mul(r, s);
            let m = channels(g, &mean);
            let mf = g.mul(m, f);
            let z = channels(g, &bias);
            let h = g.sub(z, mf);
            let y = g.mul(x, f);
            g.add(y, h)
        }
    }
}

fn batch_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 8, 12, 12]);
    let x = g.noise(x);
    let y = batch_norm_of(g, x, 8);
    vec![g.noise(y)]
}

fn instance_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 8, 12, 12]);
    let (scale, bias) = (g.numbers(8, 0.5, 1.5), g.numbers(8, -1.0, 1.0));
    let eps = 1e-5;
    let y = match g.pick(4) {
        0 => {
            let (s, z) = (g.tensor(&[8], &scale), g.tensor(&[8], &bias));
            g.node("InstanceNormalization", &[x, s, z], &[("epsilon", float(eps))])
        }
        3 => {
            let r = g.reshape(x, &[0, 8, -1]);
            let (s, z) = (g.tensor(&[8], &scale), g.tensor(&[8], &bias));
            let y = g.node("InstanceNormalization", &[r, s, z], &[("epsilon", float(eps))]);
            let to = g.open(&[2, 8, 12, 12]);
            g.reshape(y, &to)
        }
        _ => {
            let c = centred(g, x, &[2, 3], 4, 144);
            let v = variance(g, x, c, &[2, 3], 4, 144);
            let y = over_deviation(g, c, v, eps);
            let s = channels(g, &scale);
            let y = g.mul(y, s);
            let z = channels(g, &bias);
            g.add(y, z)
        }
    };
    vec![y]
}

fn group_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 8, 12, 12]);
    let (scale, bias) = (g.numbers(8, 0.5, 1.5), g.numbers(8, -1.0, 1.0));
    let eps = 1e-5;
    if g.opset >= 21 && g.pick(3) == 0 {
        let (s, z) = (g.tensor(&[8], &scale), g.tensor(&[8], &bias));
        let attrs = [("epsilon", float(eps)), ("num_groups", int(4))];
        return vec![g.node("GroupNormalization", &[x, s, z], &attrs)];
    }
    let normal = match g.pick(3) {
        0 => {
            // As PyTorch exports it: every group is a channel.
            let r = g.reshape(x, &[0, 4, -1]);
            let (s, z) = (g.tensor(&[4], &[1.0; 4]), g.tensor(&[4], &[0.0; 4]));
            g.node("InstanceNormalization", &[r, s, z], &[("epsilon", float(eps))])
        }
        1 => {
            let r = g.reshape(x, &[0, 4, -1]);
            let c = centred(g, r, &[2], 3, 288);
            let v = variance(g, r, c, &[2], 3, 288);
            over_deviation(g, c, v, eps)
        }
        _ => {
            let to = g.open(&[2, 4, 2, 12, 12]);
            let r = g.reshape(x, &to);
            let c = centred(g, r, &[2, 3, 4], 5, 288);
            let v = variance(g, r, c, &[2, 3, 4], 5, 288);
            over_deviation(g, c, v, eps)
        }
    };
    let to = g.open(&[2, 8, 12, 12]);
    let y = g.reshape(normal, &to);
    let s = channels(g, &scale);
    let y = g.mul(y, s);
    let z = channels(g, &bias);
    vec![g.add(y, z)]
}

fn l2_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, N]);
    let x = g.noise(x);
    let length = match g.pick(4) {
        0 => g.reduce("ReduceL2", x, &[2], 3),
        1 => {
            let s = g.reduce("ReduceSumSquare", x, &[2], 3);
            g.sqrt(s)
        }
        2 => {
            let a = g.op("Abs", [x]);
            let s = g.square(a);
            let s = g.reduce("ReduceSum", s, &[2], 3);
            g.sqrt(s)
        }
        _ => {
            let s = g.square(x);
            let s = g.reduce("ReduceSum", s, &[2], 3);
            g.sqrt(s)
        }
    };
    let low = match g.pick(3) {
        0 => {
            let e = g.scalar_plain(1e-12);
            g.op("Clip", [length, e])
        }
        _ => {
            let e = g.scalar(1e-12);
            g.op("Max", [length, e])
        }
    };
    let y = if g.pick(3) == 2 {
        // PyTorch repeats the length before it divides.
        let to = g.integers(&[1, 1, N]);
        let e = g.op("Expand", [low, to]);
        g.div(x, e)
    } else {
        g.div(x, low)
    };
    vec![g.noise(y)]
}

/// Inference batch normalisation of the last axis of a matrix.
pub fn batch_norm_rows(g: &mut Build, x: Value, c: usize) -> Value {
    let (scale, bias) = (g.weight_in(&[c], 0.5, 1.5), g.weight(&[c]));
    let (mean, var) = (g.weight(&[c]), g.weight_in(&[c], 0.5, 2.0));
    if g.flip() {
        return g.node(
            "BatchNormalization",
            &[x, scale, bias, mean, var],
            &[("epsilon", float(1e-5))],
        );
    }
    let d = g.sub(x, mean);
    let e = g.scalar_plain(1e-5);
    let v = g.add(var, e);
    let r = g.op("Sqrt", [v]);
    let y = g.div(d, r);
    let y = g.mul(y, scale);
    g.add(y, bias)
}
