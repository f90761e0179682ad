//! Spellings of layers as exporters of 2024 and later leave them: gated units, normalisations of images and of half
//! precision, squeeze and excitation, and movement that has operators of its own.

use super::build::{Build, Value, float, int, ints, word};
use super::gates::{gelu_by_tanh, gelu_erf};
use super::{Family, HALF, PLAIN, SYMBOLIC, Setup};

const SETUPS: &[Setup] = &[PLAIN, SYMBOLIC];
const ONE: &[Setup] = &[PLAIN];
const SETS: &[i64] = &[17, 13, 18, 20];

/// Spellings of recent layers, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "geglu",
        expect: &["pointwise(geglu)"],
        setups: SETUPS,
        opsets: SETS,
        build: geglu,
    },
    Family {
        name: "geglu_tanh",
        expect: &["pointwise(gelu_tanh mul)"],
        setups: SETUPS,
        opsets: SETS,
        build: geglu_tanh,
    },
    Family {
        name: "reglu",
        expect: &["pointwise(mul relu)"],
        setups: SETUPS,
        opsets: SETS,
        build: reglu,
    },
    Family { name: "glu", expect: &["pointwise(glu)"], setups: SETUPS, opsets: SETS, build: glu },
    Family {
        name: "rms_norm_cast",
        expect: &["reduce(add cast mul mul rsqrt sum), pointwise(cast cast mul mul)"],
        setups: &[HALF],
        opsets: &[17, 13, 18, 20],
        build: rms_norm_cast,
    },
    Family {
        name: "layer_norm_channels",
        expect: &["norm(layernorm), view()"],
        setups: SETUPS,
        opsets: &[17, 18, 20],
        build: layer_norm_channels,
    },
    Family {
        name: "squeeze_excite",
        expect: &["reduce(sum), gemm(add matmul relu), gemm(add matmul sigmoid), pointwise(mul)"],
        setups: ONE,
        opsets: SETS,
        build: squeeze_excite,
    },
    Family {
        name: "channel_shuffle",
        expect: &["view()"],
        setups: ONE,
        opsets: SETS,
        build: channel_shuffle,
    },
    Family {
        name: "pixel_shuffle",
        expect: &["view()"],
        setups: ONE,
        opsets: SETS,
        build: pixel_shuffle,
    },
    Family {
        name: "space_to_depth",
        expect: &["view()"],
        setups: ONE,
        opsets: SETS,
        build: space_to_depth,
    },
];

/// The halves of the last axis of one input.
fn halves(g: &mut Build) -> [Value; 2] {
    let x = g.input(&[2, 16, 128]);
    let x = g.noise(x);
    let p = g.parts(x, 2, &[64, 64]);
    [p[0], p[1]]
}

fn geglu(g: &mut Build) -> Vec<Value> {
    let [x, gate] = halves(g);
    let a = gelu_erf(g, gate);
    vec![g.mul(a, x)]
}

fn geglu_tanh(g: &mut Build) -> Vec<Value> {
    let [x, gate] = halves(g);
    let a = gelu_by_tanh(g, gate);
    vec![g.mul(a, x)]
}

fn reglu(g: &mut Build) -> Vec<Value> {
    let [x, gate] = halves(g);
    let a = g.rectified(gate);
    let y = g.mul(a, x);
    vec![g.noise(y)]
}

fn glu(g: &mut Build) -> Vec<Value> {
    let [x, gate] = halves(g);
    let a = g.logistic(gate);
    vec![g.mul(x, a)]
}

/// Llama: statistics in single precision, the scale in half.
fn rms_norm_cast(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, 64]);
    let w = g.weight_in(&[64], 0.5, 1.5);
    let single = |g: &mut Build, v: f64| {
        g.constant(mlc_dsl::ir::Tensor::from_f64(mlc_dsl::ir::DType::F32, vec![], &[v]))
    };
    let c = g.node("Cast", &[x], &[("to", int(1))]);
    let q = if g.flip() {
        let two = single(g, 2.0);
        g.op("Pow", [c, two])
    } else {
        g.op("Mul", [c, c])
    };
    let m = g.reduce("ReduceMean", q, &[2], 3);
    let e = single(g, 1e-5);
    let e = g.add(m, e);
    let y = match g.pick(4) {
        1 => {
            let h = single(g, -0.5);
            let r = g.op("Pow", [e, h]);
            g.mul(c, r)
        }
        2 => {
            let r = g.op("Sqrt", [e]);
            g.op("Div", [c, r])
        }
        3 => {
            let r = g.op("Sqrt", [e]);
            let one = single(g, 1.0);
            let r = g.op("Div", [one, r]);
            g.mul(c, r)
        }
        _ => {
            let r = g.op("Sqrt", [e]);
            let r = g.op("Reciprocal", [r]);
            g.mul(c, r)
        }
    };
    let y = g.node("Cast", &[y], &[("to", int(10))]);
    vec![g.mul(w, y)]
}

/// ConvNeXt: layer normalisation of the channels of an image.
fn layer_norm_channels(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 32, 7, 7]);
    let eps = 1e-6;
    if g.pick(3) == 0 {
        let t = g.transpose(x, &[0, 2, 3, 1]);
        let (w, z) = (g.weight_in(&[32], 0.5, 1.5), g.weight(&[32]));
        let attrs = [("axis", int(-1)), ("epsilon", float(eps))];
        let y = g.node("LayerNormalization", &[t, w, z], &attrs);
        return vec![g.transpose(y, &[0, 3, 1, 2])];
    }
    let m = g.mean(x, &[1], 4, 32);
    let c = g.sub(x, m);
    let q = g.square(c);
    let v = g.mean(q, &[1], 4, 32);
    let e = g.shift(v, eps);
    let y = if g.flip() {
        let r = g.rsqrt(e);
        g.mul(c, r)
    } else {
        let s = g.sqrt(e);
        g.div(c, s)
    };
    let channel = |g: &mut Build, low: f64, high: f64| match g.pick(3) {
        1 => g.weight_in(&[1, 32, 1, 1], low, high),
        2 => {
            let v = g.weight_in(&[32], low, high);
            g.unsqueeze(v, &[1, 2])
        }
        _ => g.weight_in(&[32, 1, 1], low, high),
    };
    let w = channel(g, 0.5, 1.5);
    let y = g.mul(w, y);
    let z = channel(g, -1.0, 1.0);
    vec![g.add(y, z)]
}

/// A gate per channel, worked out from the mean of each.
fn squeeze_excite(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, 8, 8]);
    let m = match g.pick(3) {
        0 => g.op("GlobalAveragePool", [x]),
        1 => g.reduce("ReduceMean", x, &[2, 3], 4),
        _ => {
            let attrs = [("kernel_shape", ints(&[8, 8]))];
            g.node("AveragePool", &[x], &attrs)
        }
    };
    let gate = if g.flip() {
        // As products of rows.
        let m = g.reshape(m, &[2, 16]);
        let (w, z) = (g.weight(&[4, 16]), g.weight(&[4]));
        let h = g.node("Gemm", &[m, w, z], &[("transB", int(1))]);
        let h = g.rectified(h);
        let (w, z) = (g.weight(&[16, 4]), g.weight(&[16]));
        let h = g.node("Gemm", &[h, w, z], &[("transB", int(1))]);
        g.reshape(h, &[2, 16, 1, 1])
    } else {
        let (w, z) = (g.weight(&[4, 16, 1, 1]), g.weight(&[4]));
        let h = g.node("Conv", &[m, w, z], &[("kernel_shape", ints(&[1, 1]))]);
        let h = g.rectified(h);
        let (w, z) = (g.weight(&[16, 4, 1, 1]), g.weight(&[16]));
        g.node("Conv", &[h, w, z], &[("kernel_shape", ints(&[1, 1]))])
    };
    let s = match g.pick(3) {
        0 => g.op("Sigmoid", [gate]),
        _ => g.logistic(gate),
    };
    vec![g.mul(x, s)]
}

/// Channels of all groups interleaved.
fn channel_shuffle(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 12, 6, 6]);
    let x = g.noise(x);
    let y = match g.pick(3) {
        1 => {
            let r = g.reshape(x, &[2, 3, 4, 36]);
            let t = g.transpose(r, &[0, 2, 1, 3]);
            g.reshape(t, &[0, 12, 6, 6])
        }
        2 => {
            // The batch and the image moved along, and one of the axes unsqueezed for it.
            let r = g.reshape(x, &[2, 3, 4, 6, 6]);
            let t = g.transpose(r, &[0, 2, 1, 4, 3]);
            let t = g.transpose(t, &[0, 1, 2, 4, 3]);
            g.reshape(t, &[2, -1, 6, 6])
        }
        _ => {
            let shape = g.any(&[[2, 3, 4, 6, 6], [0, 3, 4, 6, 6], [-1, 3, 4, 6, 6]]);
            let r = g.reshape(x, &shape);
            let t = g.transpose(r, &[0, 2, 1, 3, 4]);
            g.reshape(t, &[2, 12, 6, 6])
        }
    };
    vec![g.noise(y)]
}

/// PyTorch's order: a block of channels becomes a block of the image.
fn pixel_shuffle(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 12, 6, 6]);
    let x = g.noise(x);
    let y = match g.pick(3) {
        1 => {
            let r = g.reshape(x, &[2, 3, 2, 2, 6, 6]);
            let t = g.transpose(r, &[0, 1, 4, 2, 5, 3]);
            let shape = g.any(&[[2, 3, 12, 12], [-1, 3, 12, 12], [0, 3, -1, 12]]);
            g.reshape(t, &shape)
        }
        2 => {
            // In two steps, the rows first.
            let r = g.reshape(x, &[2, 3, 2, 2, 6, 6]);
            let t = g.transpose(r, &[0, 1, 4, 2, 3, 5]);
            let t = g.transpose(t, &[0, 1, 2, 3, 5, 4]);
            g.reshape(t, &[2, 3, 12, 12])
        }
        _ => {
            let attrs = [("blocksize", int(2)), ("mode", word("CRD"))];
            g.node("DepthToSpace", &[x], &attrs)
        }
    };
    vec![g.noise(y)]
}

fn space_to_depth(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 3, 12, 12]);
    let x = g.noise(x);
    let y = match g.pick(3) {
        1 => {
            let r = g.reshape(x, &[2, 3, 6, 2, 6, 2]);
            let t = g.transpose(r, &[0, 3, 5, 1, 2, 4]);
            let shape = g.any(&[[2, 12, 6, 6], [0, 12, 6, 6], [2, -1, 6, 6]]);
            g.reshape(t, &shape)
        }
        2 => {
            let r = g.reshape(x, &[6, 6, 2, 6, 2]);
            let r = g.reshape(r, &[2, 3, 6, 2, 6, 2]);
            let t = g.transpose(r, &[0, 5, 3, 1, 2, 4]);
            let t = g.transpose(t, &[0, 2, 1, 3, 4, 5]);
            g.reshape(t, &[2, 12, 6, 6])
        }
        _ => g.node("SpaceToDepth", &[x], &[("blocksize", int(2))]),
    };
    vec![g.noise(y)]
}
