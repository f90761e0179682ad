//! Spellings of activations: one input, one pointwise kernel.

use super::build::{Build, Value, float};
use super::gates::{gelu_by_tanh, gelu_erf, mish, quick_gelu, silu, smooth, softplus};
use super::{Family, HALF, PLAIN, SYMBOLIC, Setup};

const SETUPS: &[Setup] = &[PLAIN, SYMBOLIC];
const WITH_HALF: &[Setup] = &[PLAIN, SYMBOLIC, HALF];
const SETS: &[i64] = &[17, 13, 18, 20, 22];

macro_rules! activation {
    ($name:literal, $expect:literal, $setups:ident, $sets:expr, $body:ident) => {
        Family {
            name: $name,
            expect: &[$expect],
            setups: $setups,
            opsets: $sets,
            build: |g| wrapped(g, $body),
        }
    };
}

/// Spellings of activations, by layer.
pub const FAMILIES: &[Family] = &[
    activation!("relu", "pointwise(relu)", WITH_HALF, SETS, relu),
    activation!("relu6", "pointwise(clip)", SETUPS, SETS, relu6),
    activation!("leaky_relu", "pointwise(leaky_relu)", SETUPS, SETS, leaky_relu),
    activation!("elu", "pointwise(elu)", SETUPS, SETS, elu),
    activation!("selu", "pointwise(selu)", SETUPS, SETS, selu),
    activation!("celu", "pointwise(celu)", SETUPS, SETS, celu),
    activation!("gelu_erf", "pointwise(gelu)", WITH_HALF, SETS, gelu_erf),
    activation!("gelu_tanh", "pointwise(gelu_tanh)", WITH_HALF, SETS, gelu_by_tanh),
    activation!("gelu_sigmoid", "pointwise(gelu_sigmoid)", SETUPS, SETS, quick_gelu),
    activation!("silu", "pointwise(silu)", WITH_HALF, SETS, silu),
    activation!("mish", "pointwise(mish)", SETUPS, &[18, 13, 17, 22], mish),
    activation!("softplus", "pointwise(softplus)", SETUPS, SETS, softplus),
    activation!("hard_sigmoid", "pointwise(hardsigmoid)", SETUPS, SETS, hard_sigmoid),
    activation!("hard_swish", "pointwise(hardswish)", SETUPS, &[17, 14, 13, 20, 22], hard_swish),
    Family {
        name: "prelu",
        expect: &["pointwise(prelu)"],
        setups: SETUPS,
        opsets: SETS,
        build: prelu,
    },
    activation!("softsign", "pointwise(softsign)", SETUPS, SETS, softsign),
    activation!("tanh", "pointwise(tanh)", SETUPS, SETS, tanh),
    activation!("sigmoid", "pointwise(sigmoid)", SETUPS, SETS, sigmoid),
    activation!("log_sigmoid", "pointwise(log_sigmoid)", SETUPS, SETS, log_sigmoid),
    activation!("tanhshrink", "pointwise(tanhshrink)", SETUPS, SETS, tanhshrink),
];

const SHAPE: [i64; 3] = [2, 16, 64];

/// The layer between movement that cancels.
fn wrapped(g: &mut Build, layer: fn(&mut Build, Value) -> Value) -> Vec<Value> {
    let x = g.input(&SHAPE);
    let x = g.noise(x);
    let y = match g.pick(10) {
        8 => {
            let t = g.transpose(x, &[0, 2, 1]);
            let y = layer(g, t);
            g.transpose(y, &[0, 2, 1])
        }
        9 => {
            let r = g.reshape(x, &[-1, 64]);
            let y = layer(g, r);
            let to = g.open(&SHAPE);
            g.reshape(y, &to)
        }
        _ => layer(g, x),
    };
    vec![g.noise(y)]
}

fn relu(g: &mut Build, x: Value) -> Value {
    match g.pick(5) {
        3 => {
            g.unstable();
            let a = g.op("Abs", [x]);
            let s = g.add(x, a);
            g.scale(s, 0.5)
        }
        4 => {
            let n = g.neg(x);
            let z = g.scalar(0.0);
            let m = g.op("Min", [n, z]);
            g.neg(m)
        }
        _ => g.rectified(x),
    }
}

/// `x` between two numbers.
fn between(g: &mut Build, x: Value, low: f64, high: f64) -> Value {
    match g.pick(5) {
        0 | 1 => {
            let (a, b) = (g.scalar_plain(low), g.scalar_plain(high));
            g.node("Clip", &[x, a, b], &[])
        }
        2 => {
            let a = g.scalar(low);
            let m = g.op("Max", [x, a]);
            let b = g.scalar(high);
            g.op("Min", [m, b])
        }
        3 => {
            let b = g.scalar(high);
            let m = g.op("Min", [b, x]);
            let a = g.scalar(low);
            g.op("Max", [a, m])
        }
        _ => {
            let a = g.scalar_plain(low);
            let m = g.op("Clip", [x, a]);
            let b = g.scalar(high);
            g.op("Min", [m, b])
        }
    }
}

fn relu6(g: &mut Build, x: Value) -> Value {
    match g.pick(4) {
        1 => {
            let r = g.rectified(x);
            let b = g.scalar(6.0);
            g.op("Min", [r, b])
        }
        2 => {
            let r = g.rectified(x);
            between(g, r, 0.0, 6.0)
        }
        3 => {
            let s = g.scale(x, 1.0 / 3.0);
            let c = between(g, s, 0.0, 2.0);
            g.scale(c, 3.0)
        }
        _ => between(g, x, 0.0, 6.0),
    }
}

fn leaky_relu(g: &mut Build, x: Value) -> Value {
    let alpha = 0.1;
    match g.pick(6) {
        1 => {
            let s = g.scale(x, alpha);
            g.op("Max", [x, s])
        }
        2 => {
            let z = g.scalar(0.0);
            let c = g.op("Less", [x, z]);
            let s = g.scale(x, alpha);
            g.op("Where", [c, s, x])
        }
        3 => {
            let z = g.scalar(0.0);
            let name = if g.flip() { "GreaterOrEqual" } else { "Greater" };
            let c = g.op(name, [x, z]);
            let s = g.scale(x, alpha);
            g.op("Where", [c, x, s])
        }
        4 => {
            let r = g.rectified(x);
            let n = g.neg(x);
            let m = g.rectified(n);
            let s = g.scale(m, alpha);
            g.sub(r, s)
        }
        5 => {
            let slope = g.scalar(alpha);
            g.op("PRelu", [x, slope])
        }
        _ => g.node("LeakyRelu", &[x], &[("alpha", float(alpha))]),
    }
}

/// `k * (exp(x) - 1)`.
fn expm1(g: &mut Build, x: Value, k: f64) -> Value {
    let e = g.op("Exp", [x]);
    if k != 1.0 && g.flip() {
        let s = g.scale(e, k);
        return g.shift(s, -k);
    }
    let s = g.shift(e, -1.0);
    if k == 1.0 { s } else { g.scale(s, k) }
}

fn elu_like(g: &mut Build, x: Value, alpha: f64) -> Value {
    match g.pick(4) {
        0 => {
            let z = g.scalar(0.0);
            let c = g.op("Greater", [x, z]);
            let e = expm1(g, x, alpha);
            g.op("Where", [c, x, e])
        }
        1 => {
            let z = g.scalar(0.0);
            let c = g.op("Less", [x, z]);
            let e = expm1(g, x, alpha);
            g.op("Where", [c, e, x])
        }
        2 => {
            let z = g.scalar(0.0);
            let m = g.op("Min", [x, z]);
            let e = expm1(g, m, alpha);
            let r = g.rectified(x);
            g.add(r, e)
        }
        _ => {
            let z = g.scalar(0.0);
            let c = g.op("LessOrEqual", [x, z]);
            let e = expm1(g, x, alpha);
            g.op("Where", [c, e, x])
        }
    }
}

fn elu(g: &mut Build, x: Value) -> Value {
    match g.pick(3) {
        0 => g.node("Elu", &[x], &[("alpha", float(1.0))]),
        _ => elu_like(g, x, 1.0),
    }
}

fn selu(g: &mut Build, x: Value) -> Value {
    let (alpha, gamma) = (1.673_263_2, 1.050_701);
    match g.pick(4) {
        0 => g.node("Selu", &[x], &[("alpha", float(alpha)), ("gamma", float(gamma))]),
        1 => {
            let y = g.node("Elu", &[x], &[("alpha", float(alpha))]);
            g.scale(y, gamma)
        }
        2 => {
            let r = g.rectified(x);
            let s = g.scale(r, gamma);
            let z = g.scalar(0.0);
            let m = g.op("Min", [x, z]);
            let e = expm1(g, m, alpha * gamma);
            g.add(s, e)
        }
        _ => {
            let y = elu_like(g, x, alpha);
            g.scale(y, gamma)
        }
    }
}

fn celu(g: &mut Build, x: Value) -> Value {
    let alpha = 1.5;
    match g.pick(4) {
        0 => g.node("Celu", &[x], &[("alpha", float(alpha))]),
        1 => {
            let s = g.scale(x, 1.0 / alpha);
            let e = expm1(g, s, alpha);
            let z = g.scalar(0.0);
            let m = g.op("Min", [e, z]);
            let r = g.rectified(x);
            g.add(r, m)
        }
        2 => {
            let s = g.scale(x, 1.0 / alpha);
            let y = g.node("Elu", &[s], &[("alpha", float(1.0))]);
            g.scale(y, alpha)
        }
        _ => {
            let s = g.scale(x, 1.0 / alpha);
            let y = elu_like(g, s, 1.0);
            g.scale(y, alpha)
        }
    }
}

fn hard_sigmoid(g: &mut Build, x: Value) -> Value {
    let sixth = 1.0 / 6.0;
    match g.pick(5) {
        0 => g.node("HardSigmoid", &[x], &[("alpha", float(sixth)), ("beta", float(0.5))]),
        1 => {
            let s = g.shift(x, 3.0);
            let c = between(g, s, 0.0, 6.0);
            g.scale(c, sixth)
        }
        2 => {
            let s = g.shift(x, 3.0);
            let c = g.scale(s, sixth);
            between(g, c, 0.0, 1.0)
        }
        3 => {
            let s = g.shift(x, 3.0);
            let r = relu6(g, s);
            g.scale(r, sixth)
        }
        _ => {
            let s = g.scale(x, sixth);
            let t = g.shift(s, 0.5);
            between(g, t, 0.0, 1.0)
        }
    }
}

fn hard_swish(g: &mut Build, x: Value) -> Value {
    let sixth = 1.0 / 6.0;
    match g.pick(5) {
        0 if g.opset >= 14 => g.op("HardSwish", [x]),
        1 => {
            let s = g.shift(x, 3.0);
            let c = relu6(g, s);
            let m = g.mul(x, c);
            g.scale(m, sixth)
        }
        2 => {
            let s = g.shift(x, 3.0);
            let c = relu6(g, s);
            let h = g.scale(x, sixth);
            g.mul(h, c)
        }
        _ => {
            let h = hard_sigmoid(g, x);
            g.mul(x, h)
        }
    }
}

fn prelu(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 8, 12, 12]);
    let x = g.noise(x);
    let slope = g.weight_in(&[8, 1, 1], 0.05, 0.5);
    let y = match g.pick(4) {
        0 => g.op("PRelu", [x, slope]),
        1 => {
            let z = g.scalar(0.0);
            let c = g.op("Less", [x, z]);
            let s = g.mul(x, slope);
            g.op("Where", [c, s, x])
        }
        2 => {
            let r = g.rectified(x);
            let z = g.scalar(0.0);
            let m = g.op("Min", [x, z]);
            let s = g.mul(slope, m);
            g.add(r, s)
        }
        _ => {
            let r = g.rectified(x);
            let n = g.neg(x);
            let m = g.rectified(n);
            let s = g.mul(slope, m);
            g.sub(r, s)
        }
    };
    vec![g.noise(y)]
}

fn softsign(g: &mut Build, x: Value) -> Value {
    if g.pick(4) == 0 {
        return g.op("Softsign", [x]);
    }
    let a = if g.flip() {
        let n = g.neg(x);
        g.op("Max", [x, n])
    } else {
        g.op("Abs", [x])
    };
    let d = g.shift(a, 1.0);
    g.div(x, d)
}

fn tanh(g: &mut Build, x: Value) -> Value {
    match g.pick(5) {
        1 => {
            let d = g.scale(x, 2.0);
            let s = g.logistic(d);
            let s = g.scale(s, 2.0);
            g.shift(s, -1.0)
        }
        2 => {
            g.unstable();
            let p = g.op("Exp", [x]);
            let n = g.neg(x);
            let n = g.op("Exp", [n]);
            let a = g.sub(p, n);
            let b = g.add(p, n);
            g.div(a, b)
        }
        3 => {
            g.unstable();
            let d = g.scale(x, 2.0);
            let e = g.op("Exp", [d]);
            let a = g.shift(e, -1.0);
            let b = g.shift(e, 1.0);
            g.div(a, b)
        }
        4 => {
            let n = g.neg(x);
            let t = g.op("Tanh", [n]);
            g.neg(t)
        }
        _ => g.op("Tanh", [x]),
    }
}

fn sigmoid(g: &mut Build, x: Value) -> Value {
    match g.pick(4) {
        1 => {
            g.unstable();
            let e = g.op("Exp", [x]);
            let s = g.shift(e, 1.0);
            g.div(e, s)
        }
        2 => {
            let n = g.neg(x);
            let s = g.logistic(n);
            let one = g.scalar(1.0);
            g.sub(one, s)
        }
        _ => g.logistic(x),
    }
}

fn log_sigmoid(g: &mut Build, x: Value) -> Value {
    match g.pick(4) {
        1 => {
            g.unstable();
            let s = g.logistic(x);
            g.op("Log", [s])
        }
        2 => {
            let n = g.neg(x);
            let z = g.scalar(0.0);
            let m = g.op("Min", [x, z]);
            let a = g.op("Abs", [n]);
            let a = g.neg(a);
            let e = g.op("Exp", [a]);
            let s = g.shift(e, 1.0);
            let l = g.op("Log", [s]);
            g.sub(m, l)
        }
        _ => {
            let n = g.neg(x);
            let s = smooth(g, n);
            g.neg(s)
        }
    }
}

fn tanhshrink(g: &mut Build, x: Value) -> Value {
    let t = tanh(g, x);
    g.sub(x, t)
}
