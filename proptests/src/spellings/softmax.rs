//! Spellings of softmax and its kin.

use super::build::{Build, Value, int};
use super::{Family, HALF, PLAIN, SYMBOLIC, Setup};

const SETUPS: &[Setup] = &[PLAIN, SYMBOLIC];
const WITH_HALF: &[Setup] = &[PLAIN, SYMBOLIC, HALF];
const SETS: &[i64] = &[17, 13, 18, 11, 22];

/// Spellings of softmax, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "softmax",
        expect: &["softmax(softmax)"],
        setups: WITH_HALF,
        opsets: SETS,
        build: softmax,
    },
    Family {
        name: "softmax_middle",
        expect: &["softmax(softmax)"],
        setups: SETUPS,
        opsets: &[17, 13, 18],
        build: softmax_middle,
    },
    Family {
        name: "log_softmax",
        expect: &["softmax(log_softmax)"],
        setups: SETUPS,
        opsets: SETS,
        build: log_softmax,
    },
    Family {
        name: "log_sum_exp",
        expect: &["reduce(abs equal max select), reduce(add exp log sub sum), view()"],
        setups: SETUPS,
        opsets: SETS,
        build: log_sum_exp,
    },
    Family {
        name: "shifted_log_sum_exp",
        expect: &["reduce(max), reduce(add exp log sub sum), view()"],
        setups: SETUPS,
        opsets: SETS,
        build: shifted_log_sum_exp,
    },
];

/// `x` less its largest element.
fn shifted(g: &mut Build, x: Value, axis: i64) -> Value {
    let m = g.reduce("ReduceMax", x, &[axis], 3);
    g.sub(x, m)
}

fn softmax_of(g: &mut Build, x: Value, axis: i64) -> Value {
    match g.pick(6) {
        2 => {
            let c = shifted(g, x, axis);
            let e = g.op("Exp", [c]);
            let s = g.reduce("ReduceSum", e, &[axis], 3);
            g.div(e, s)
        }
        3 => {
            let l = log_softmax_of(g, x, axis);
            g.op("Exp", [l])
        }
        4 => {
            let c = shifted(g, x, axis);
            fused(g, "Softmax", c, axis)
        }
        5 => {
            let n = g.neg(x);
            let m = g.reduce("ReduceMin", n, &[axis], 3);
            let c = g.sub(m, n);
            let e = g.op("Exp", [c]);
            let s = g.reduce("ReduceSum", e, &[axis], 3);
            g.div(e, s)
        }
        _ => fused(g, "Softmax", x, axis),
    }
}

fn fused(g: &mut Build, op: &str, x: Value, axis: i64) -> Value {
    let a = if g.flip() { axis - 3 } else { axis };
    g.node(op, &[x], &[("axis", int(a))])
}

fn log_softmax_of(g: &mut Build, x: Value, axis: i64) -> Value {
    match g.pick(6) {
        2 => {
            let c = shifted(g, x, axis);
            let e = g.op("Exp", [c]);
            let s = g.reduce("ReduceSum", e, &[axis], 3);
            let l = g.op("Log", [s]);
            g.sub(c, l)
        }
        3 => {
            g.unstable();
            let s = fused(g, "Softmax", x, axis);
            g.op("Log", [s])
        }
        4 => {
            g.unstable();
            let l = g.reduce("ReduceLogSumExp", x, &[axis], 3);
            g.sub(x, l)
        }
        5 => {
            g.unstable();
            let l = g.reduce("ReduceLogSumExp", x, &[axis], 3);
            let n = g.neg(l);
            g.add(x, n)
        }
        _ => fused(g, "LogSoftmax", x, axis),
    }
}

fn softmax(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, 64]);
    let x = g.noise(x);
    let y = softmax_of(g, x, 2);
    vec![g.noise(y)]
}

fn softmax_middle(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, 64]);
    let y = if g.pick(3) == 2 {
        let t = g.transpose(x, &[0, 2, 1]);
        let y = softmax_of(g, t, 2);
        g.transpose(y, &[0, 2, 1])
    } else {
        softmax_of(g, x, 1)
    };
    vec![g.noise(y)]
}

fn log_softmax(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, 64]);
    let x = g.noise(x);
    let y = log_softmax_of(g, x, 2);
    vec![g.noise(y)]
}

fn log_sum_exp(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, 64]);
    let x = g.noise(x);
    let y = match g.pick(3) {
        0 => g.reduce("ReduceLogSumExp", x, &[2], 3),
        form => {
            let m = g.reduce("ReduceMax", x, &[2], 3);
            let top = finite(g, m, form);
            shifted_by(g, x, top)
        }
    };
    vec![y]
}

/// The elements of `m` with 0 in place of those that are infinite.
fn finite(g: &mut Build, m: Value, form: usize) -> Value {
    let zero = g.scalar(0.0);
    let is_infinite = if form == 1 {
        g.op("IsInf", [m])
    } else {
        let (size, infinity) = (g.op("Abs", [m]), g.scalar(f64::INFINITY));
        g.op("Equal", [size, infinity])
    };
    g.op("Where", [is_infinite, zero, m])
}

/// The logarithm of the sum of exponentials of what is left of `x`, and what was taken from it.
fn shifted_by(g: &mut Build, x: Value, m: Value) -> Value {
    let c = g.sub(x, m);
    let e = g.op("Exp", [c]);
    if g.flip() {
        let s = g.reduce("ReduceSum", e, &[2], 3);
        let l = g.op("Log", [s]);
        return g.add(m, l);
    }
    let s = g.reduce_with("ReduceSum", e, &[2], 3, false);
    let l = g.op("Log", [s]);
    let q = g.squeeze(m, &[2]);
    let y = g.add(l, q);
    g.unsqueeze(y, &[2])
}

/// Where the largest element is infinite these are no numbers.
fn shifted_log_sum_exp(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, 64]);
    let x = g.noise(x);
    let m = g.reduce("ReduceMax", x, &[2], 3);
    let y = if g.pick(3) == 2 {
        let c = g.sub(x, m);
        let l = g.reduce("ReduceLogSumExp", c, &[2], 3);
        g.add(m, l)
    } else {
        shifted_by(g, x, m)
    };
    vec![y]
}
