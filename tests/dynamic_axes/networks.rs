//! Parts of networks as exporters write them with dynamic axes.

use super::twin::{Dim, Twin};
use mlc_dsl::ir::DType::{F32, I64};
use mlc_onnx::RawAttr;

/// Features of a token, of two heads.
const WIDTH: i64 = 16;
const HEAD: i64 = 8;

fn linear(g: &mut Twin, x: &str, from: i64, to: i64) -> String {
    let (w, b) = (g.weight(&[from as usize, to as usize]), g.weight(&[to as usize]));
    let y = g.op("MatMul", &[x, &w]);
    g.op("Add", &[&b, &y])
}

fn softmax(g: &mut Twin, x: &str) -> String {
    g.op_with("Softmax", &[x], &[("axis", RawAttr::Int(-1))])
}

/// `[batch, seq, WIDTH]` as heads.
fn heads(g: &mut Twin, x: &str) -> String {
    let (batch, seq) = (g.dim(x, 0, "batch"), g.dim(x, 1, "seq"));
    let r = g.reshape(x, &[batch, seq, Dim::Fixed(-1), HEAD.into()]);
    g.transpose(&r, &[0, 2, 1, 3])
}

/// Scaled products of queries and keys.
fn scores(g: &mut Twin, q: &str, k: &str) -> String {
    let k = g.transpose(k, &[0, 1, 3, 2]);
    let s = g.op("MatMul", &[q, &k]);
    let scale = g.scalar((HEAD as f32).sqrt());
    g.op("Div", &[&s, &scale])
}

/// Attention under a bias of the scores.
fn attend(g: &mut Twin, bias: impl Fn(&mut Twin, &str) -> Option<String>) -> String {
    let x = g.input("x", F32, &["batch", "seq", "16"]);
    let [q, k, v] = [(); 3].map(|()| {
        let y = linear(g, &x, WIDTH, WIDTH);
        heads(g, &y)
    });
    let mut s = scores(g, &q, &k);
    if let Some(b) = bias(g, &x) {
        s = g.op("Add", &[&s, &b]);
    }
    let p = softmax(g, &s);
    let o = g.op("MatMul", &[&p, &v]);
    let o = g.transpose(&o, &[0, 2, 1, 3]);
    let (batch, seq) = (g.dim(&x, 0, "batch"), g.dim(&x, 1, "seq"));
    let o = g.reshape(&o, &[batch, seq, WIDTH.into()]);
    linear(g, &o, WIDTH, WIDTH)
}

pub fn attention(g: &mut Twin) -> String {
    attend(g, |_, _| None)
}

/// Keys that are not later than the query, from comparisons of places.
pub fn causal_by_range(g: &mut Twin) -> String {
    attend(g, |g, x| {
        let seq = g.dim(x, 1, "seq");
        let places = g.range(&seq);
        let (rows, columns) = (g.unsqueeze(&places, &[1]), g.unsqueeze(&places, &[0]));
        let seen = g.op("LessOrEqual", &[&columns, &rows]);
        let (yes, no) = (g.scalar(0.0), g.scalar(-10000.0));
        let bias = g.op("Where", &[&seen, &yes, &no]);
        Some(g.unsqueeze(&bias, &[0, 1]))
    })
}

/// The same from a triangle of ones.
pub fn causal_by_triangle(g: &mut Twin) -> String {
    attend(g, |g, x| {
        let seq = g.dim(x, 1, "seq");
        let shape = g.list(&[seq.clone(), seq]);
        let low = g.scalar(-10000.0);
        let all = g.op("Expand", &[&low, &shape]);
        let one = g.integer(1);
        Some(g.op_with("Trilu", &[&all, &one], &[("upper", RawAttr::Int(1))]))
    })
}

/// Filled places of a batch, as a bias of all heads and queries.
pub fn padding_mask(g: &mut Twin) -> String {
    let mask = g.input("mask", I64, &["batch", "seq"]);
    attend(g, move |g, x| {
        let (batch, seq) = (g.dim(x, 0, "batch"), g.dim(x, 1, "seq"));
        let m = g.unsqueeze(&mask, &[1, 2]);
        let m = g.expand(&m, &[batch, 1.into(), seq.clone(), seq]);
        let m = g.op_with("Cast", &[&m], &[("to", RawAttr::Int(1))]);
        let (one, low) = (g.scalar(1.0), g.scalar(-10000.0));
        let m = g.op("Sub", &[&one, &m]);
        Some(g.op("Mul", &[&m, &low]))
    })
}

/// A row per token of a table, by places that are cut from a buffer.
pub fn position_embedding(g: &mut Twin) -> String {
    let ids = g.input("ids", I64, &["batch", "seq"]);
    let words = g.weight(&[10, 16]);
    let table = g.weight(&[40, 16]);
    let seq = g.dim(&ids, 1, "seq");
    let places: Vec<i64> = (0..40).collect();
    let places = g.ints(&places);
    let places = g.unsqueeze(&places, &[0]);
    let places = g.slice(&places, 1, &0.into(), &seq);
    let (a, b) = (g.op("Gather", &[&words, &ids]), g.op("Gather", &[&table, &places]));
    let sum = g.op("Add", &[&a, &b]);
    linear(g, &sum, 16, 8)
}

/// Keys of earlier steps before those of this one, and the rows and columns of a mask that they need.
pub fn kv_cache(g: &mut Twin) -> String {
    let q = g.input("q", F32, &["batch", "2", "seq", "8"]);
    let k = g.input("k", F32, &["batch", "2", "seq", "8"]);
    let past = g.input("past", F32, &["batch", "2", "past", "8"]);
    let keys = g.op_with("Concat", &[&past, &k], &[("axis", RawAttr::Int(2))]);
    let (before, seq) = (g.dim(&past, 2, "past"), g.dim(&q, 2, "seq"));
    let total = g.calc("Add", &before, &seq);
    let s = scores(g, &q, &keys);
    let mask = g.weight(&[1, 1, 64, 64]);
    let rows = g.slice(&mask, 2, &before, &total);
    let bias = g.slice(&rows, 3, &0.into(), &total);
    let s = g.op("Add", &[&s, &bias]);
    let p = softmax(g, &s);
    g.op("MatMul", &[&p, &keys])
}

fn conv(g: &mut Twin, x: &str, from: usize, to: usize) -> String {
    let (w, b) = (g.weight(&[to, from, 3, 3]), g.weight(&[to]));
    let y = g.op_with("Conv", &[x, &w, &b], &[("pads", RawAttr::Ints(vec![1; 4]))]);
    g.op("Relu", &[&y])
}

/// Convolutions, and a classifier of all that they yield.
pub fn conv_flatten(g: &mut Twin) -> String {
    let x = g.input("x", F32, &["batch", "3", "8", "8"]);
    let y = conv(g, &x, 3, 4);
    let y = g.op_with(
        "MaxPool",
        &[&y],
        &[("kernel_shape", RawAttr::Ints(vec![2; 2])), ("strides", RawAttr::Ints(vec![2; 2]))],
    );
    let batch = g.dim(&y, 0, "batch");
    let y = g.reshape(&y, &[batch, Dim::Fixed(-1)]);
    linear(g, &y, 64, 5)
}

/// Means of maps of any height and width.
pub fn pooled_average(g: &mut Twin) -> String {
    let x = g.input("x", F32, &["batch", "3", "height", "width"]);
    let y = conv(g, &x, 3, 4);
    let batch = g.dim(&y, 0, "batch");
    let y = g.reshape(&y, &[batch, 4.into(), Dim::Fixed(-1)]);
    let attrs = [("axes", RawAttr::Ints(vec![-1])), ("keepdims", RawAttr::Int(0))];
    let y = g.op_with("ReduceMean", &[&y], &attrs);
    linear(g, &y, 4, 5)
}

/// The likeliest class of each pixel, whose definition has a table of the classes' places.
pub fn likeliest_class(g: &mut Twin) -> String {
    let x = g.input("x", F32, &["batch", "3", "height", "width"]);
    let y = conv(g, &x, 3, 4);
    let attrs = [("axis", RawAttr::Int(1)), ("keepdims", RawAttr::Int(0))];
    let class = g.op_with("ArgMax", &[&y], &attrs);
    g.op_with("Cast", &[&class], &[("to", RawAttr::Int(1))])
}

/// Normalisation of each token, written out.
pub fn layer_norm(g: &mut Twin) -> String {
    let x = g.input("x", F32, &["batch", "seq", "16"]);
    let attrs = [("axes", RawAttr::Ints(vec![-1])), ("keepdims", RawAttr::Int(1))];
    let mean = g.op_with("ReduceMean", &[&x], &attrs);
    let d = g.op("Sub", &[&x, &mean]);
    let two = g.scalar(2.0);
    let square = g.op("Pow", &[&d, &two]);
    let v = g.op_with("ReduceMean", &[&square], &attrs);
    let eps = g.scalar(1e-5);
    let v = g.op("Add", &[&v, &eps]);
    let s = g.op("Sqrt", &[&v]);
    let n = g.op("Div", &[&d, &s]);
    let (scale, bias) = (g.weight(&[16]), g.weight(&[16]));
    let y = g.op("Mul", &[&n, &scale]);
    let y = g.op("Add", &[&y, &bias]);
    let (batch, seq) = (g.dim(&x, 0, "batch"), g.dim(&x, 1, "seq"));
    let rows = g.calc("Mul", &batch, &seq);
    let y = g.reshape(&y, &[rows, 16.into()]);
    linear(g, &y, 16, 4)
}

/// Rotations by the place of a token; the halves are cut at half of the extent.
pub fn rotary(g: &mut Twin) -> String {
    let x = g.input("x", F32, &["batch", "2", "seq", "8"]);
    let seq = g.dim(&x, 2, "seq");
    let [cos, sin] = [(); 2].map(|()| {
        let table = g.weight(&[64, 8]);
        g.slice(&table, 0, &0.into(), &seq)
    });
    let shape = g.op("Shape", &[&x]);
    let axis = g.integer(3);
    let extent = g.op("Gather", &[&shape, &axis]);
    let half = g.integer(2);
    let half = Dim::Computed(g.op("Div", &[&extent, &half]));
    let (low, high) = (g.slice(&x, 3, &0.into(), &half), g.slice(&x, 3, &half, &i64::MAX.into()));
    let minus = g.op("Neg", &[&high]);
    let turned = g.op_with("Concat", &[&minus, &low], &[("axis", RawAttr::Int(3))]);
    let (a, b) = (g.op("Mul", &[&x, &cos]), g.op("Mul", &[&turned, &sin]));
    g.op("Add", &[&a, &b])
}

/// Queries of four heads on keys of two.
pub fn grouped_heads(g: &mut Twin) -> String {
    let q = g.input("q", F32, &["batch", "4", "seq", "8"]);
    let k = g.input("k", F32, &["batch", "2", "seq", "8"]);
    let (batch, seq) = (g.dim(&k, 0, "batch"), g.dim(&k, 2, "seq"));
    let wide = g.unsqueeze(&k, &[2]);
    let two = Dim::Fixed(2);
    let wide =
        g.expand(&wide, &[batch.clone(), two.clone(), two.clone(), seq.clone(), HEAD.into()]);
    let groups = g.calc("Mul", &two, &two);
    let k = g.reshape(&wide, &[batch, groups, seq, HEAD.into()]);
    let s = scores(g, &q, &k);
    let p = softmax(g, &s);
    g.op("MatMul", &[&p, &k])
}
