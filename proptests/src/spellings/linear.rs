//! Spellings of products with weights: biases, activations after them, several products of one input.

use super::attention::project;
use super::build::{Build, Value, float, int};
use super::gates::{gelu_erf, silu};
use super::{Family, PLAIN, SYMBOLIC, Setup};

const SETUPS: &[Setup] = &[PLAIN, SYMBOLIC];
const ONE: &[Setup] = &[PLAIN];
const SETS: &[i64] = &[17, 13, 18, 20];

/// Spellings of linear layers, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "linear",
        expect: &["gemm(add matmul)"],
        setups: SETUPS,
        opsets: SETS,
        build: linear,
    },
    Family {
        name: "linear_gelu",
        expect: &["gemm(add gelu matmul)"],
        setups: ONE,
        opsets: SETS,
        build: linear_gelu,
    },
    Family {
        name: "linear_scaled",
        expect: &["gemm(add matmul)"],
        setups: SETUPS,
        opsets: SETS,
        build: linear_scaled,
    },
    Family {
        name: "linear_norm",
        expect: &["gemm(add matmul)"],
        setups: ONE,
        opsets: SETS,
        build: linear_norm,
    },
    Family {
        name: "swiglu",
        expect: &["pointwise(swiglu)"],
        setups: SETUPS,
        opsets: SETS,
        build: swiglu,
    },
    Family {
        name: "swiglu_mlp",
        expect: &["gemm(matmul), gemm(matmul swiglu), gemm(matmul)"],
        setups: ONE,
        opsets: SETS,
        build: swiglu_mlp,
    },
    Family {
        name: "qkv",
        expect: &["gemm(matmul), view(), view(), view()"],
        setups: ONE,
        opsets: SETS,
        build: qkv,
    },
    Family {
        name: "qkv_bias",
        expect: &["gemm(add matmul), view(), view(), view()"],
        setups: ONE,
        opsets: SETS,
        build: qkv_bias,
    },
];

const K: usize = 64;

fn linear(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[32, K as i64]);
    let x = g.noise(x);
    let y = match g.pick(6) {
        1 => {
            let (w, z) = (g.weight(&[K, 96]), g.weight(&[96]));
            g.op("Gemm", [x, w, z])
        }
        2 => {
            let (w, z) = (g.weight(&[96, K]), g.weight(&[96]));
            g.node(
                "Gemm",
                &[x, w, z],
                &[("transB", int(1)), ("alpha", float(1.0)), ("beta", float(1.0))],
            )
        }
        3 => {
            let (w, z) = (g.weight(&[96, K]), g.weight(&[1, 96]));
            let w = g.transpose(w, &[1, 0]);
            let y = g.op("MatMul", [x, w]);
            g.add(y, z)
        }
        4 => {
            let t = g.transpose(x, &[1, 0]);
            let (w, z) = (g.weight(&[96, K]), g.weight(&[96]));
            let attrs = [("transA", int(1)), ("transB", int(1))];
            g.node("Gemm", &[t, w, z], &attrs)
        }
        5 => {
            let (w, z) = (g.weight(&[96, K]), g.weight(&[96, 1]));
            let t = g.transpose(x, &[1, 0]);
            let y = g.op("MatMul", [w, t]);
            let y = g.add(y, z);
            g.transpose(y, &[1, 0])
        }
        _ => {
            let (w, z) = (g.weight(&[K, 96]), g.weight(&[96]));
            let y = g.op("MatMul", [x, w]);
            g.add(y, z)
        }
    };
    vec![g.noise(y)]
}

fn linear_gelu(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, K as i64]);
    let y = project(g, x, K, 96);
    vec![gelu_erf(g, y)]
}

/// A biased product whose columns are scaled and moved: one product, one bias.
fn linear_scaled(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[32, K as i64]);
    let (w, z) = (g.weight(&[K, 96]), g.weight(&[96]));
    let y = match g.pick(5) {
        1 => {
            let y = g.op("MatMul", [x, w]);
            let y = g.add(y, z);
            let s = g.weight_in(&[96], 0.5, 1.5);
            let y = g.mul(y, s);
            let t = g.weight(&[96]);
            g.add(y, t)
        }
        2 => {
            let s = g.weight_in(&[K], 0.5, 1.5);
            let x = g.mul(x, s);
            let y = g.op("MatMul", [x, w]);
            g.add(y, z)
        }
        3 => {
            let y = g.node("Gemm", &[x, w, z], &[("alpha", float(0.5)), ("beta", float(2.0))]);
            g.scale(y, 0.125)
        }
        4 => {
            let x = g.scale(x, 0.125);
            let x = g.shift(x, -1.0);
            let y = g.op("MatMul", [x, w]);
            g.add(y, z)
        }
        _ => {
            let y = g.op("MatMul", [x, w]);
            g.add(y, z)
        }
    };
    vec![y]
}

/// Inference batch normalisation after a product.
fn linear_norm(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[32, K as i64]);
    let (w, z) = (g.weight(&[K, 96]), g.weight(&[96]));
    if g.pick(4) == 0 {
        let y = g.op("MatMul", [x, w]);
        return vec![g.add(y, z)];
    }
    let y = if g.flip() { g.op("Gemm", [x, w, z]) } else { g.op("MatMul", [x, w]) };
    vec![super::norm::batch_norm_rows(g, y, 96)]
}

fn swiglu(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, 128]);
    let p = g.parts(x, 2, &[64, 64]);
    let a = silu(g, p[0]);
    vec![g.mul(a, p[1])]
}

fn swiglu_mlp(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, K as i64]);
    let (a, b) = match g.pick(3) {
        0 => {
            let w = g.weight(&[K, 192]);
            let y = g.op("MatMul", [x, w]);
            let p = g.parts(y, 2, &[96, 96]);
            (p[0], p[1])
        }
        _ => (bare(g, x, 96), bare(g, x, 96)),
    };
    let s = silu(g, a);
    let m = g.mul(s, b);
    let w = g.weight(&[96, K]);
    vec![g.op("MatMul", [m, w])]
}

/// A product with a weight, transposed or not.
fn bare(g: &mut Build, x: Value, to: usize) -> Value {
    let w = if g.flip() {
        let w = g.weight(&[to, K]);
        g.transpose(w, &[1, 0])
    } else {
        g.weight(&[K, to])
    };
    g.op("MatMul", [x, w])
}

fn qkv(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, K as i64]);
    if g.pick(3) == 0 {
        let w = g.weight(&[K, 192]);
        let y = g.op("MatMul", [x, w]);
        return g.parts(y, 2, &[64, 64, 64]);
    }
    (0..3).map(|_| bare(g, x, 64)).collect()
}

fn qkv_bias(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[2, 16, K as i64]);
    if g.pick(3) == 0 {
        let (w, z) = (g.weight(&[K, 192]), g.weight(&[192]));
        let y = g.op("MatMul", [x, w]);
        let y = g.add(y, z);
        return g.parts(y, 2, &[64, 64, 64]);
    }
    (0..3).map(|_| project(g, x, K, 64)).collect()
}
