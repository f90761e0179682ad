//! Spellings of convolutions with what follows them: one convolution, its bias and its activation.

use super::build::{Build, Value, int, ints};
use super::norm::batch_norm_of;
use super::{Family, PLAIN, SYMBOLIC, Setup};

const SETUPS: &[Setup] = &[PLAIN, SYMBOLIC];
const SETS: &[i64] = &[17, 13, 18, 21];

/// Spellings of convolutions, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "conv_affine",
        expect: &["conv(add conv)"],
        setups: SETUPS,
        opsets: SETS,
        build: conv_affine,
    },
    Family {
        name: "conv_affine_relu",
        expect: &["conv(add conv relu)"],
        setups: SETUPS,
        opsets: SETS,
        build: conv_affine_relu,
    },
    Family {
        name: "conv_depthwise",
        expect: &["conv(add clip conv)"],
        setups: SETUPS,
        opsets: SETS,
        build: conv_depthwise,
    },
    Family {
        name: "conv_padded",
        expect: &["conv(add conv)"],
        setups: SETUPS,
        opsets: SETS,
        build: conv_padded,
    },
    Family {
        name: "affine_conv",
        expect: &["conv(add conv)"],
        setups: SETUPS,
        opsets: SETS,
        build: affine_conv,
    },
];

const C: usize = 8;
const O: usize = 16;

/// A 3x3 convolution, padded by itself, with or without a bias.
fn conv(g: &mut Build, x: Value, biased: bool, from: usize, group: i64) -> Value {
    let w = g.weight(&[O, from / group as usize, 3, 3]);
    let mut attrs = vec![("kernel_shape", ints(&[3, 3]))];
    attrs.push(match g.pick(3) {
        2 => ("auto_pad", super::build::word("SAME_UPPER")),
        _ => ("pads", ints(&[1, 1, 1, 1])),
    });
    if group != 1 || g.flip() {
        attrs.push(("group", int(group)));
        attrs.push(("strides", ints(&[1, 1])));
        attrs.push(("dilations", ints(&[1, 1])));
    }
    if biased {
        let z = g.weight(&[O]);
        return g.node("Conv", &[x, w, z], &attrs);
    }
    g.node("Conv", &[x, w], &attrs)
}

/// A scale and a bias of every channel, in any spelling.
fn affine(g: &mut Build, x: Value, c: usize) -> Value {
    match g.pick(5) {
        0 => {
            let s = channel(g, c);
            let y = g.mul(x, s);
            let z = channel(g, c);
            g.add(y, z)
        }
        1 => {
            let z = channel(g, c);
            let y = g.add(x, z);
            let s = channel(g, c);
            g.mul(y, s)
        }
        2 => {
            let m = channel(g, c);
            let y = g.sub(x, m);
            let s = channel(g, c);
            let y = g.div(y, s);
            let s = channel(g, c);
            let y = g.mul(y, s);
            let z = channel(g, c);
            g.add(y, z)
        }
        _ => batch_norm_of(g, x, c),
    }
}

/// Weights per channel, spread over NCHW.
fn channel(g: &mut Build, c: usize) -> Value {
    match g.pick(4) {
        1 => g.weight_in(&[1, c, 1, 1], 0.5, 1.5),
        2 => {
            let v = g.weight_in(&[c], 0.5, 1.5);
            g.reshape(v, &[-1, 1, 1])
        }
        3 => {
            let v = g.weight_in(&[c], 0.5, 1.5);
            g.unsqueeze(v, &[1, 2])
        }
        _ => g.weight_in(&[c, 1, 1], 0.5, 1.5),
    }
}

/// A convolution with a bias: at once, added after, or made of an affine.
fn biased(g: &mut Build, x: Value, from: usize, group: i64) -> Value {
    match g.pick(5) {
        0 => conv(g, x, true, from, group),
        1 => {
            let y = conv(g, x, false, from, group);
            let z = channel(g, O);
            g.add(y, z)
        }
        2 => {
            let y = conv(g, x, false, from, group);
            affine(g, y, O)
        }
        _ => {
            let y = conv(g, x, true, from, group);
            affine(g, y, O)
        }
    }
}

fn conv_affine(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, C as i64, 12, 12]);
    let y = biased(g, x, C, 1);
    vec![g.noise(y)]
}

fn conv_affine_relu(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, C as i64, 12, 12]);
    let y = biased(g, x, C, 1);
    vec![g.rectified(y)]
}

fn conv_depthwise(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, O as i64, 12, 12]);
    let y = biased(g, x, O, O as i64);
    let (a, b) = (g.scalar_plain(0.0), g.scalar_plain(6.0));
    let y = match g.pick(3) {
        2 => {
            let r = g.rectified(y);
            let k = g.scalar(6.0);
            g.op("Min", [r, k])
        }
        _ => g.op("Clip", [y, a, b]),
    };
    vec![y]
}

fn conv_padded(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, C as i64, 12, 12]);
    if g.pick(3) == 0 {
        return vec![conv(g, x, true, C, 1)];
    }
    let pads = g.integers(&[0, 0, 1, 1, 0, 0, 1, 1]);
    let x = if g.flip() {
        let zero = g.scalar_plain(0.0);
        g.op("Pad", [x, pads, zero])
    } else {
        g.op("Pad", [x, pads])
    };
    let (w, z) = (g.weight(&[O, C, 3, 3]), g.weight(&[O]));
    let y = match g.pick(3) {
        0 => g.node("Conv", &[x, w, z], &[("kernel_shape", ints(&[3, 3]))]),
        1 => g.node("Conv", &[x, w, z], &[("pads", ints(&[0, 0, 0, 0]))]),
        _ => {
            let y = g.node("Conv", &[x, w], &[("auto_pad", super::build::word("VALID"))]);
            affine(g, y, O)
        }
    };
    vec![y]
}

/// An affine before a convolution that pads nothing.
fn affine_conv(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, C as i64, 12, 12]);
    let x = if g.pick(3) == 0 { x } else { affine(g, x, C) };
    let (w, z) = (g.weight(&[O, C, 3, 3]), g.weight(&[O]));
    vec![g.node("Conv", &[x, w, z], &[("kernel_shape", ints(&[3, 3]))])]
}
