//! Spellings of smooth gates: gelu in its three forms, silu, mish, softplus.

use super::build::{Build, Value, float, word};
use std::f64::consts::{PI, SQRT_2};

/// `x * (1 + inner) / 2`, the halves and ones wherever they may stand.
pub fn half_gate(g: &mut Build, x: Value, inner: Value) -> Value {
    match g.pick(5) {
        0 => {
            let s = g.shift(inner, 1.0);
            let m = g.mul(x, s);
            g.scale(m, 0.5)
        }
        1 => {
            let h = g.scale(x, 0.5);
            let s = g.shift(inner, 1.0);
            g.mul(h, s)
        }
        2 => {
            let s = g.shift(inner, 1.0);
            let h = g.scale(s, 0.5);
            g.mul(x, h)
        }
        3 => {
            let h = g.scale(inner, 0.5);
            let s = g.shift(h, 0.5);
            g.mul(x, s)
        }
        _ => {
            let h = g.scale(x, 0.5);
            let m = g.mul(h, inner);
            g.add(h, m)
        }
    }
}

/// Gaussian error linear unit by the error function.
pub fn gelu_erf(g: &mut Build, x: Value) -> Value {
    if g.opset >= 20 && g.flip() {
        return g.node("Gelu", &[x], &[("approximate", word("none"))]);
    }
    if g.pick(12) == 11 {
        return g.contrib("Gelu", &[x], &[]);
    }
    let inner = match g.pick(3) {
        0 => {
            let k = g.scalar(SQRT_2);
            g.op("Div", [x, k])
        }
        1 => {
            let k = g.scalar(2.0);
            let k = g.sqrt(k);
            g.div(x, k)
        }
        _ => g.scale(x, SQRT_2 / 2.0),
    };
    let e = g.op("Erf", [inner]);
    half_gate(g, x, e)
}

/// Gaussian error linear unit by the hyperbolic tangent.
pub fn gelu_by_tanh(g: &mut Build, x: Value) -> Value {
    if g.opset >= 20 && g.flip() {
        return g.node("Gelu", &[x], &[("approximate", word("tanh"))]);
    }
    let root = (2.0 / PI).sqrt();
    let inner = match g.pick(4) {
        0 | 1 => {
            let c = g.cube(x);
            let s = g.scale(c, 0.044715);
            let a = g.add(x, s);
            g.scale(a, root)
        }
        2 => {
            let q = g.square(x);
            let s = g.scale(q, 0.044715);
            let one = g.shift(s, 1.0);
            if g.flip() {
                let u = g.scale(x, root);
                g.mul(u, one)
            } else {
                let u = g.mul(x, one);
                g.scale(u, root)
            }
        }
        _ => {
            let c = g.cube(x);
            let s = g.scale(c, 0.044715 * root);
            let u = g.scale(x, root);
            g.add(u, s)
        }
    };
    if g.pick(4) == 3 {
        g.unstable();
        let d = g.scale(inner, 2.0);
        let s = g.logistic(d);
        return g.mul(x, s);
    }
    let t = g.op("Tanh", [inner]);
    half_gate(g, x, t)
}

/// Gaussian error linear unit by the logistic function.
pub fn quick_gelu(g: &mut Build, x: Value) -> Value {
    if g.pick(8) == 7 {
        return g.contrib("QuickGelu", &[x], &[("alpha", float(1.702))]);
    }
    let s = g.scale(x, 1.702);
    gated(g, x, s)
}

/// `x` gated by the logistic function of `inner`.
pub fn gated(g: &mut Build, x: Value, inner: Value) -> Value {
    match g.pick(4) {
        2 => {
            let n = g.neg(inner);
            let e = g.op("Exp", [n]);
            let d = g.shift(e, 1.0);
            g.div(x, d)
        }
        3 => {
            let h = g.scale(inner, 0.5);
            let t = g.op("Tanh", [h]);
            half_gate(g, x, t)
        }
        _ => {
            let s = g.logistic(inner);
            g.mul(x, s)
        }
    }
}

/// Sigmoid linear unit.
pub fn silu(g: &mut Build, x: Value) -> Value {
    gated(g, x, x)
}

/// The logarithm of one plus the exponential.
pub fn smooth(g: &mut Build, x: Value) -> Value {
    match g.pick(5) {
        3 => {
            g.unstable();
            let e = g.op("Exp", [x]);
            let s = g.shift(e, 1.0);
            g.op("Log", [s])
        }
        4 => {
            let a = g.op("Abs", [x]);
            let n = g.neg(a);
            let e = g.op("Exp", [n]);
            let s = g.shift(e, 1.0);
            let l = g.op("Log", [s]);
            let r = g.rectified(x);
            g.add(r, l)
        }
        2 => {
            g.unstable();
            let n = g.neg(x);
            let s = g.logistic(n);
            let l = g.op("Log", [s]);
            g.neg(l)
        }
        _ => g.op("Softplus", [x]),
    }
}

/// Smooth rectifier.
pub fn softplus(g: &mut Build, x: Value) -> Value {
    smooth(g, x)
}

/// Self-regularised smooth activation.
pub fn mish(g: &mut Build, x: Value) -> Value {
    if g.opset >= 18 && !g.flip() {
        return g.op("Mish", [x]);
    }
    let s = smooth(g, x);
    let t = g.op("Tanh", [s]);
    g.mul(x, t)
}
