//! Spellings written by hand, as people and older exporters leave them; each family counts them as its first decision.
//!
//! Unlike the generated families, no decision here mixes one way with another: every spelling stands as it was met.

use super::build::{Build, Value, float, int, ints, word};
use super::{Family, PLAIN, SYMBOLIC, Setup};
use std::f64::consts::SQRT_2;

const SETUPS: &[Setup] = &[PLAIN, SYMBOLIC];
const ONE: &[Setup] = &[PLAIN];
const SETS: &[i64] = &[17, 13, 18, 20];

/// Spellings of hand-written layers, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "hand_layer_norm",
        expect: &["norm(layernorm)"],
        setups: SETUPS,
        opsets: &[17, 18, 20],
        build: layer_norm,
    },
    Family {
        name: "hand_rms_norm",
        expect: &["norm(rmsnorm)"],
        setups: SETUPS,
        opsets: SETS,
        build: rms_norm,
    },
    Family {
        name: "hand_gelu_erf",
        expect: &["pointwise(gelu)"],
        setups: SETUPS,
        opsets: SETS,
        build: gelu,
    },
    Family {
        name: "hand_hard_swish",
        expect: &["pointwise(hardswish)"],
        setups: SETUPS,
        opsets: &[17, 14, 18, 20],
        build: hard_swish,
    },
    Family {
        name: "hand_softmax",
        expect: &["softmax(softmax)"],
        setups: SETUPS,
        opsets: SETS,
        build: softmax,
    },
    Family {
        name: "hand_linear",
        expect: &["gemm(add matmul)"],
        setups: ONE,
        opsets: SETS,
        build: linear,
    },
    Family {
        name: "hand_conv_affine",
        expect: &["conv(add conv)"],
        setups: ONE,
        opsets: SETS,
        build: conv,
    },
    Family {
        name: "hand_group_norm",
        expect: &["norm(layernorm), pointwise(add mul)"],
        setups: ONE,
        opsets: &[21, 17, 18, 20],
        build: group_norm,
    },
];

const B: i64 = 2;
const S: i64 = 16;
const N: i64 = 64;
const EPS: f64 = 1e-5;

/// `x` averaged over the last axis.
fn mean(g: &mut Build, x: Value) -> Value {
    g.reduce_with("ReduceMean", x, &[2], 3, true)
}

fn root(g: &mut Build, v: Value) -> Value {
    let e = g.scalar(EPS);
    let v = g.op("Add", [v, e]);
    g.op("Sqrt", [v])
}

fn layer_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[B, S, N]);
    let (w, z) = (g.weight_in(&[N as usize], 0.5, 1.5), g.weight(&[N as usize]));
    let way = g.pick(8);
    if way == 0 {
        return vec![g.node("LayerNormalization", &[x, w, z], &[("epsilon", float(EPS))])];
    }
    let m = mean(g, x);
    let c = g.op("Sub", [x, m]);
    let y = match way {
        1 => {
            // The variance by the mean of squares.
            g.unstable();
            let q = g.op("Mul", [x, x]);
            let (q, mm) = (mean(g, q), g.op("Mul", [m, m]));
            let v = g.op("Sub", [q, mm]);
            let r = root(g, v);
            let n = g.op("Div", [c, r]);
            let n = g.op("Mul", [n, w]);
            g.op("Add", [n, z])
        }
        2 => {
            // TensorFlow: scale and shift worked out apart, then applied to the input.
            let d = g.op("Mul", [c, c]);
            let v = mean(g, d);
            let r = root(g, v);
            let i = g.op("Reciprocal", [r]);
            let s = g.op("Mul", [i, w]);
            let (xs, ms) = (g.op("Mul", [x, s]), g.op("Mul", [m, s]));
            let t = g.op("Sub", [z, ms]);
            g.op("Add", [xs, t])
        }
        3 => {
            // PyTorch before the operator was there: a cast that does nothing, a power.
            let c = g.node("Cast", &[c], &[("to", int(1))]);
            let two = g.scalar(2.0);
            let p = g.op("Pow", [c, two]);
            let v = mean(g, p);
            let r = root(g, v);
            let n = g.op("Div", [c, r]);
            let n = g.op("Mul", [w, n]);
            g.op("Add", [z, n])
        }
        4 => {
            // By a norm: the deviation is the length over the root of the count.
            let s = g.reduce_with("ReduceSumSquare", c, &[2], 3, true);
            let k = g.scalar(1.0 / N as f64);
            let v = g.op("Mul", [s, k]);
            let r = root(g, v);
            let n = g.op("Div", [c, r]);
            let n = g.op("Mul", [n, w]);
            g.op("Add", [n, z])
        }
        5 => {
            // The statistics without their axis, put back one by one.
            let d = g.op("Mul", [c, c]);
            let v = g.reduce_with("ReduceMean", d, &[2], 3, false);
            let v = g.unsqueeze(v, &[-1]);
            let e = g.scalar(EPS);
            let v = g.op("Add", [e, v]);
            let h = g.scalar(-0.5);
            let i = g.op("Pow", [v, h]);
            let n = g.op("Mul", [i, c]);
            let n = g.op("Mul", [n, w]);
            g.op("Add", [n, z])
        }
        6 => {
            // Scale and shift in the last axis of a tensor of the whole rank.
            let (w, z) = (g.unsqueeze(w, &[0, 1]), g.unsqueeze(z, &[0, 1]));
            let d = g.op("Mul", [c, c]);
            let v = mean(g, d);
            let r = root(g, v);
            let n = g.op("Div", [c, r]);
            let n = g.op("Mul", [n, w]);
            g.op("Add", [n, z])
        }
        _ => {
            // The operator without a shift, which follows.
            let n = g.node("LayerNormalization", &[x, w], &[("epsilon", float(EPS))]);
            let n = g.op("Dropout", [n]);
            g.op("Add", [n, z])
        }
    };
    vec![y]
}

fn rms_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[B, S, N]);
    let w = g.weight_in(&[N as usize], 0.5, 1.5);
    let q = g.square(x);
    let y = match g.pick(7) {
        0 => {
            let v = mean(g, q);
            let r = root(g, v);
            g.op("Div", [x, r])
        }
        1 => {
            let v = mean(g, q);
            let r = root(g, v);
            let i = g.op("Reciprocal", [r]);
            g.op("Mul", [i, x])
        }
        2 => {
            let v = mean(g, q);
            let e = g.scalar(EPS);
            let v = g.op("Add", [v, e]);
            let h = g.scalar(-0.5);
            let i = g.op("Pow", [v, h]);
            g.op("Mul", [x, i])
        }
        3 => {
            // T5 by a sum of squares.
            let s = g.reduce_with("ReduceSumSquare", x, &[2], 3, true);
            let n = g.scalar(N as f64);
            let v = g.op("Div", [s, n]);
            let r = root(g, v);
            let one = g.scalar(1.0);
            let i = g.op("Div", [one, r]);
            g.op("Mul", [x, i])
        }
        4 => {
            // The power of a half, then a quotient.
            let v = mean(g, q);
            let e = g.scalar(EPS);
            let v = g.op("Add", [v, e]);
            let h = g.scalar(0.5);
            let r = g.op("Pow", [v, h]);
            g.op("Div", [x, r])
        }
        5 => {
            // A length over the root of the count, squared again.
            let l = g.reduce_with("ReduceL2", x, &[2], 3, true);
            let k = g.scalar((N as f64).sqrt());
            let l = g.op("Div", [l, k]);
            let v = g.op("Mul", [l, l]);
            let r = root(g, v);
            g.op("Div", [x, r])
        }
        _ => {
            // The scale before the quotient.
            let v = mean(g, q);
            let r = root(g, v);
            let xw = g.op("Mul", [x, w]);
            return vec![g.op("Div", [xw, r])];
        }
    };
    vec![g.op("Mul", [w, y])]
}

fn gelu(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[B, S, N]);
    let (half, one) = (g.scalar(0.5), g.scalar(1.0));
    let y = match g.pick(8) {
        0 => {
            let k = g.scalar(SQRT_2);
            let d = g.op("Div", [x, k]);
            let e = g.op("Erf", [d]);
            let s = g.op("Add", [e, one]);
            let m = g.op("Mul", [x, s]);
            g.op("Mul", [m, half])
        }
        1 => {
            // The number as single precision prints it.
            let k = g.scalar(f64::from(std::f32::consts::FRAC_1_SQRT_2));
            let d = g.op("Mul", [x, k]);
            let e = g.op("Erf", [d]);
            let s = g.op("Add", [one, e]);
            let h = g.op("Mul", [half, x]);
            g.op("Mul", [h, s])
        }
        2 => {
            // The odd half of the error function: one minus it, of the negated input.
            let k = g.scalar(-std::f64::consts::FRAC_1_SQRT_2);
            let d = g.op("Mul", [x, k]);
            let e = g.op("Erf", [d]);
            let s = g.op("Sub", [one, e]);
            let s = g.op("Mul", [s, half]);
            g.op("Mul", [s, x])
        }
        3 => {
            // TensorFlow: the distribution function first.
            let two = g.scalar(2.0);
            let k = g.op("Sqrt", [two]);
            let d = g.op("Div", [x, k]);
            let e = g.op("Erf", [d]);
            let s = g.op("Add", [one, e]);
            let s = g.op("Mul", [half, s]);
            g.op("Mul", [x, s])
        }
        4 => {
            // Both halves apart.
            let k = g.scalar(SQRT_2);
            let d = g.op("Div", [x, k]);
            let e = g.op("Erf", [d]);
            let h = g.op("Mul", [x, half]);
            let he = g.op("Mul", [h, e]);
            g.op("Add", [he, h])
        }
        5 => {
            // Half precision code kept in single: casts that do nothing.
            let c = g.node("Cast", &[x], &[("to", int(1))]);
            let k = g.scalar(SQRT_2);
            let d = g.op("Div", [c, k]);
            let e = g.op("Erf", [d]);
            let e = g.node("Cast", &[e], &[("to", int(1))]);
            let s = g.op("Add", [e, one]);
            let m = g.op("Mul", [c, s]);
            let two = g.scalar(2.0);
            g.op("Div", [m, two])
        }
        6 => {
            // In rows, as a flattened block does it.
            let r = g.reshape(x, &[-1, N]);
            let k = g.scalar(SQRT_2);
            let d = g.op("Div", [r, k]);
            let e = g.op("Erf", [d]);
            let s = g.op("Add", [e, one]);
            let m = g.op("Mul", [r, s]);
            let m = g.op("Mul", [m, half]);
            g.reshape(m, &[-1, S, N])
        }
        _ => {
            // The half of the sum is a sum of halves.
            let k = g.scalar(SQRT_2 / 2.0);
            let d = g.op("Mul", [x, k]);
            let e = g.op("Erf", [d]);
            let h = g.op("Mul", [e, half]);
            let s = g.op("Add", [half, h]);
            g.op("Mul", [x, s])
        }
    };
    vec![y]
}

fn hard_swish(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[B, S, N]);
    let (three, six) = (g.scalar(3.0), g.scalar(6.0));
    let (low, high) = (g.scalar_plain(0.0), g.scalar_plain(6.0));
    let y = match g.pick(6) {
        0 => g.op("HardSwish", [x]),
        1 => {
            let a = g.op("Add", [x, three]);
            let c = g.node("Clip", &[a, low, high], &[]);
            let d = g.op("Div", [c, six]);
            g.op("Mul", [x, d])
        }
        2 => {
            let a = g.op("Add", [three, x]);
            let c = g.node("Clip", &[a, low, high], &[]);
            let m = g.op("Mul", [x, c]);
            g.op("Div", [m, six])
        }
        3 => {
            let attrs = [("alpha", float(1.0 / 6.0)), ("beta", float(0.5))];
            let h = g.node("HardSigmoid", &[x], &attrs);
            g.op("Mul", [h, x])
        }
        4 => {
            let a = g.op("Add", [x, three]);
            let r = g.op("Relu", [a]);
            let m = g.op("Min", [r, six]);
            let k = g.scalar(1.0 / 6.0);
            let m = g.op("Mul", [m, k]);
            g.op("Mul", [m, x])
        }
        _ => {
            let d = g.op("Div", [x, six]);
            let h = g.scalar(0.5);
            let a = g.op("Add", [d, h]);
            let (low, high) = (g.scalar_plain(0.0), g.scalar_plain(1.0));
            let c = g.node("Clip", &[a, low, high], &[]);
            g.op("Mul", [x, c])
        }
    };
    vec![y]
}

fn softmax(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[B, S, N]);
    let x = g.noise(x);
    let y = match g.pick(6) {
        0 => g.node("Softmax", &[x], &[("axis", int(-1))]),
        1 => {
            let l = g.node("LogSoftmax", &[x], &[("axis", int(2))]);
            g.op("Exp", [l])
        }
        2 => {
            g.unstable();
            let l = g.reduce("ReduceLogSumExp", x, &[2], 3);
            let d = g.op("Sub", [x, l]);
            g.op("Exp", [d])
        }
        3 => {
            let t = g.transpose(x, &[0, 2, 1]);
            let s = g.node("Softmax", &[t], &[("axis", int(1))]);
            g.transpose(s, &[0, 2, 1])
        }
        4 => {
            let r = g.reshape(x, &[-1, N]);
            let s = g.node("Softmax", &[r], &[("axis", int(1))]);
            g.reshape(s, &[-1, S, N])
        }
        _ => {
            let m = g.reduce("ReduceMax", x, &[2], 3);
            let c = g.op("Sub", [x, m]);
            let e = g.op("Exp", [c]);
            let s = g.reduce("ReduceSum", e, &[2], 3);
            let i = g.op("Reciprocal", [s]);
            g.op("Mul", [e, i])
        }
    };
    vec![g.noise(y)]
}

fn linear(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[32, N]);
    let x = g.noise(x);
    let n = N as usize;
    let y = match g.pick(8) {
        0 => {
            let (w, z) = (g.weight(&[96, n]), g.weight(&[96]));
            g.node("Gemm", &[x, w, z], &[("transB", int(1))])
        }
        1 => {
            let (w, z) = (g.weight(&[96, n]), g.weight(&[96]));
            let y = g.node("Einsum", &[x, w], &[("equation", word("bi,oi->bo"))]);
            g.op("Add", [y, z])
        }
        2 => {
            // As a convolution with a window of one.
            let (w, z) = (g.weight(&[96, n, 1, 1]), g.weight(&[96]));
            let u = g.unsqueeze(x, &[2, 3]);
            let y = g.node("Conv", &[u, w, z], &[("kernel_shape", ints(&[1, 1]))]);
            g.squeeze(y, &[2, 3])
        }
        3 => {
            // Two products side by side, put together.
            let (a, b, z) = (g.weight(&[n, 48]), g.weight(&[n, 48]), g.weight(&[96]));
            let (a, b) = (g.op("MatMul", [x, a]), g.op("MatMul", [x, b]));
            let y = g.node("Concat", &[a, b], &[("axis", int(-1))]);
            g.op("Add", [y, z])
        }
        4 => {
            // A scale of the rows' entries before, one of the columns after.
            let (w, z) = (g.weight(&[n, 96]), g.weight(&[96]));
            let (s, t) = (g.weight_in(&[n], 0.5, 1.5), g.weight_in(&[96], 0.5, 1.5));
            let x = g.op("Mul", [x, s]);
            let y = g.op("MatMul", [x, w]);
            let y = g.op("Add", [y, z]);
            g.op("Mul", [y, t])
        }
        5 => {
            // One row at a time in a batch of its own.
            let (w, z) = (g.weight(&[n, 96]), g.weight(&[96]));
            let u = g.unsqueeze(x, &[1]);
            let y = g.op("MatMul", [u, w]);
            let y = g.op("Add", [y, z]);
            g.squeeze(y, &[1])
        }
        6 => {
            // The halves of the columns apart.
            let (a, b, z) = (g.weight(&[32, 96]), g.weight(&[32, 96]), g.weight(&[96]));
            let w = g.node("Concat", &[a, b], &[("axis", int(0))]);
            g.op("Gemm", [x, w, z])
        }
        _ => {
            let (w, z) = (g.weight(&[n, 96]), g.weight(&[1, 96]));
            let f = g.node("Flatten", &[x], &[("axis", int(1))]);
            g.node("Gemm", &[f, w, z], &[("alpha", float(0.5)), ("beta", float(2.0))])
        }
    };
    vec![g.noise(y)]
}

fn conv(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 8, 12, 12]);
    let x = g.noise(x);
    let window = [("kernel_shape", ints(&[3, 3])), ("pads", ints(&[1, 1, 1, 1]))];
    let (w, z) = (g.weight(&[8, 8, 3, 3]), g.weight(&[8]));
    let y = match g.pick(7) {
        0 => g.node("Conv", &[x, w, z], &window),
        1 => {
            let y = g.node("Conv", &[x, w], &window);
            let z = g.unsqueeze(z, &[1, 2]);
            g.op("Add", [y, z])
        }
        2 => {
            // TensorFlow's layout around the operator.
            let t = g.transpose(x, &[0, 2, 3, 1]);
            let t = g.transpose(t, &[0, 3, 1, 2]);
            let y = g.node("Conv", &[t, w], &window);
            let t = g.transpose(y, &[0, 2, 3, 1]);
            let t = g.op("Add", [t, z]);
            g.transpose(t, &[0, 3, 1, 2])
        }
        3 => {
            let z4 = g.reshape(z, &[1, 8, 1, 1]);
            let y = g.node("Conv", &[x, w], &window);
            let n = g.op("Neg", [z4]);
            g.op("Sub", [y, n])
        }
        4 => {
            // The padding by an operator of its own.
            let pads = g.integers(&[0, 0, 1, 1, 0, 0, 1, 1]);
            let p = g.op("Pad", [x, pads]);
            g.node("Conv", &[p, w, z], &[("kernel_shape", ints(&[3, 3]))])
        }
        5 => g.node("Conv", &[x, w, z], &[("auto_pad", word("SAME_UPPER")), ("group", int(1))]),
        _ => {
            // A normalisation that is a scale and a shift.
            let y = g.node("Conv", &[x, w], &window);
            let s = g.weight_in(&[8, 1, 1], 0.5, 1.5);
            let t = g.weight(&[8, 1, 1]);
            let y = g.op("Mul", [y, s]);
            g.op("Add", [y, t])
        }
    };
    vec![g.noise(y)]
}

fn group_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 8, 6, 6]);
    let (w, z) = (g.weight_in(&[8], 0.5, 1.5), g.weight(&[8]));
    let way = g.pick(5);
    if g.opset >= 21 && way == 0 {
        let attrs = [("num_groups", int(4)), ("epsilon", float(EPS))];
        return vec![g.node("GroupNormalization", &[x, w, z], &attrs)];
    }
    let n = match way {
        1 => {
            // PyTorch: an instance normalisation of the groups.
            let r = g.reshape(x, &[0, 4, -1]);
            let (one, zero) = (g.tensor(&[4], &[1.0; 4]), g.tensor(&[4], &[0.0; 4]));
            let eps = [("epsilon", float(EPS))];
            let n = g.node("InstanceNormalization", &[r, one, zero], &eps);
            g.reshape(n, &[2, 8, 6, 6])
        }
        2 => {
            // Keras: the groups as an axis of their own.
            let r = g.reshape(x, &[2, 4, 2, 6, 6]);
            let m = g.reduce_with("ReduceMean", r, &[2, 3, 4], 5, true);
            let c = g.op("Sub", [r, m]);
            let q = g.op("Mul", [c, c]);
            let v = g.reduce_with("ReduceMean", q, &[2, 3, 4], 5, true);
            let d = root(g, v);
            let n = g.op("Div", [c, d]);
            g.reshape(n, &[2, 8, 6, 6])
        }
        3 => {
            // Rows of the operator for layers, its scale left to what follows.
            let r = g.reshape(x, &[8, -1]);
            let (one, zero) = (g.tensor(&[72], &[1.0; 72]), g.tensor(&[72], &[0.0; 72]));
            let attrs = [("axis", int(-1)), ("epsilon", float(EPS))];
            let n = match g.flip() {
                true => g.node("LayerNormalization", &[r, one], &attrs),
                false => g.node("LayerNormalization", &[r, one, zero], &attrs),
            };
            g.reshape(n, &[2, 8, 6, 6])
        }
        _ => {
            // JAX: mean of squares minus square of mean.
            g.unstable();
            let r = g.reshape(x, &[2, 4, 72]);
            let m = g.reduce_with("ReduceMean", r, &[2], 3, true);
            let q = g.op("Mul", [r, r]);
            let q = g.reduce_with("ReduceMean", q, &[2], 3, true);
            let mm = g.op("Mul", [m, m]);
            let v = g.op("Sub", [q, mm]);
            let e = g.scalar(EPS);
            let v = g.op("Add", [v, e]);
            let h = g.scalar(-0.5);
            let i = g.op("Pow", [v, h]);
            let c = g.op("Sub", [r, m]);
            let n = g.op("Mul", [c, i]);
            g.reshape(n, &[2, 8, 6, 6])
        }
    };
    let (w, z) = (g.unsqueeze(w, &[1, 2]), g.unsqueeze(z, &[1, 2]));
    let n = g.op("Mul", [n, w]);
    vec![g.op("Add", [n, z])]
}
