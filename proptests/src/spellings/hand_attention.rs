//! Spellings of attention written by hand: heads folded into the batch, shared heads, masks made inside of the graph.

use super::build::{Build, Value, float, int, word};
use super::{Family, PLAIN, Setup};
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::RawAttr;

const ONE: &[Setup] = &[PLAIN];
const SETS: &[i64] = &[17, 14, 18, 20];

/// Spellings of hand-written attention, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "hand_attention",
        expect: &["attention(attention)"],
        setups: ONE,
        opsets: SETS,
        build: plain,
    },
    Family {
        name: "hand_attention_grouped",
        expect: &["attention(attention), view()"],
        setups: ONE,
        opsets: SETS,
        build: grouped,
    },
    Family {
        name: "hand_attention_causal",
        expect: &["attention(attention_masked)"],
        setups: ONE,
        opsets: SETS,
        build: causal,
    },
    Family {
        name: "hand_attention_packed",
        expect: &["gemm(add matmul), attention(attention), view()"],
        setups: ONE,
        opsets: SETS,
        build: packed,
    },
    // The transpose of all heads at once is read by three slices: it stays a kernel of its own.
    Family {
        name: "hand_attention_stacked",
        expect: &["gemm(add matmul), attention(attention), view(), view()"],
        setups: ONE,
        opsets: SETS,
        build: stacked,
    },
];

const B: i64 = 2;
const H: i64 = 4;
const S: i64 = 16;
const D: i64 = 64;

fn rows(g: &mut Build, x: Value) -> Value {
    let y = g.node("Softmax", &[x], &[("axis", int(-1))]);
    g.noise(y)
}

fn plain(g: &mut Build) -> Vec<Value> {
    let shape = [B, H, S, D];
    let (q, k, v) = (g.input(&shape), g.input(&shape), g.input(&shape));
    let y = match g.pick(7) {
        0 => {
            let t = g.transpose(k, &[0, 1, 3, 2]);
            let s = g.op("MatMul", [q, t]);
            let s = g.scale(s, 0.125);
            let w = rows(g, s);
            g.op("MatMul", [w, v])
        }
        1 => {
            // Einsum throughout, the scale on the queries.
            let q = g.scale(q, 0.125);
            let s = g.node("Einsum", &[q, k], &[("equation", word("bhid,bhjd->bhij"))]);
            let w = rows(g, s);
            g.node("Einsum", &[w, v], &[("equation", word("bhij,bhjd->bhid"))])
        }
        2 => {
            // Heads folded into the batch for a batched product.
            let fold = |g: &mut Build, x| g.reshape(x, &[B * H, S, D]);
            let (q, k, v) = (fold(g, q), fold(g, k), fold(g, v));
            let t = g.transpose(k, &[0, 2, 1]);
            let s = g.op("MatMul", [q, t]);
            let s = g.scale(s, 0.125);
            let w = rows(g, s);
            let y = g.op("MatMul", [w, v]);
            g.reshape(y, &[B, H, S, D])
        }
        3 => {
            // Scores unfolded for the softmax and folded again.
            let fold = |g: &mut Build, x| g.reshape(x, &[-1, S, D]);
            let q = g.scale(q, 0.125);
            let (q, k, v) = (fold(g, q), fold(g, k), fold(g, v));
            let t = g.transpose(k, &[0, 2, 1]);
            let s = g.op("MatMul", [q, t]);
            let s = g.reshape(s, &[B, H, S, S]);
            let w = rows(g, s);
            let w = g.reshape(w, &[B * H, S, S]);
            let y = g.op("MatMul", [w, v]);
            g.reshape(y, &[B, H, S, D])
        }
        4 => {
            // Exponentials by hand, divided after the values were weighed.
            let t = g.transpose(k, &[0, 1, 3, 2]);
            let s = g.op("MatMul", [q, t]);
            let s = g.scale(s, 0.125);
            let m = g.reduce("ReduceMax", s, &[3], 4);
            let c = g.op("Sub", [s, m]);
            let e = g.op("Exp", [c]);
            let n = g.reduce("ReduceSum", e, &[3], 4);
            let w = g.op("Div", [e, n]);
            g.op("MatMul", [w, v])
        }
        5 => {
            // The root of the scale on either side.
            let k = g.transpose(k, &[0, 1, 3, 2]);
            let r = 0.125_f64.sqrt();
            let (q, k) = (g.scale(q, r), g.scale(k, r));
            let s = g.op("MatMul", [q, k]);
            let w = rows(g, s);
            g.op("MatMul", [w, v])
        }
        _ => {
            // Everything transposed: keys first.
            let t = g.transpose(q, &[0, 1, 3, 2]);
            let s = g.op("MatMul", [k, t]);
            let s = g.scale(s, 0.125);
            let w = g.node("Softmax", &[s], &[("axis", int(2))]);
            let w = g.transpose(w, &[0, 1, 3, 2]);
            g.op("MatMul", [w, v])
        }
    };
    vec![y]
}

fn grouped(g: &mut Build) -> Vec<Value> {
    let q = g.input(&[B, H, S, D]);
    let (k, v) = (g.input(&[B, 2, S, D]), g.input(&[B, 2, S, D]));
    let way = g.pick(6);
    let each = |g: &mut Build, x: Value| match way {
        0 => {
            let u = g.unsqueeze(x, &[2]);
            let to = g.integers(&[B, 2, 2, S, D]);
            let e = g.op("Expand", [u, to]);
            g.reshape(e, &[B, H, S, D])
        }
        1 => {
            // `repeat_interleave` by a table of places.
            let i = g.integers(&[0, 0, 1, 1]);
            g.node("Gather", &[x, i], &[("axis", int(1))])
        }
        2 => {
            // As rows of a longer axis, tiled.
            let r = g.reshape(x, &[B, 2, 1, S * D]);
            let n = g.integers(&[1, 1, 2, 1]);
            let t = g.op("Tile", [r, n]);
            g.reshape(t, &[B, H, S, D])
        }
        3 => {
            let u = g.unsqueeze(x, &[2]);
            let c = g.node("Concat", &[u, u], &[("axis", int(2))]);
            g.reshape(c, &[0, -1, S, D])
        }
        4 => {
            // One head after the other, each as often as it is shared.
            let (a, b) = (g.slice(x, 1, 0, 1), g.slice(x, 1, 1, 2));
            g.node("Concat", &[a, a, b, b], &[("axis", int(1))])
        }
        _ => {
            // A product with ones that repeats.
            let u = g.unsqueeze(x, &[2]);
            let ones = g.tensor(&[1, 1, 2, 1, 1], &[1.0, 1.0]);
            let m = g.op("Mul", [u, ones]);
            g.reshape(m, &[B, H, S, D])
        }
    };
    let (k, v) = (each(g, k), each(g, v));
    let t = g.transpose(k, &[0, 1, 3, 2]);
    let s = g.op("MatMul", [q, t]);
    let s = g.scale(s, 0.125);
    let w = rows(g, s);
    vec![g.op("MatMul", [w, v])]
}

/// The numbers `0..S` as a row.
fn places(g: &mut Build) -> Value {
    let all: Vec<i64> = (0..S).collect();
    g.integers(&all)
}

fn causal(g: &mut Build) -> Vec<Value> {
    let shape = [B, H, S, D];
    let (q, k, v) = (g.input(&shape), g.input(&shape), g.input(&shape));
    let n = S as usize;
    let low = -10000.0;
    let mask = match g.pick(6) {
        0 => {
            let seen = |i: usize| if i % n <= i / n { 0.0 } else { low };
            g.tensor(&[n, n], &(0..n * n).map(seen).collect::<Vec<f64>>())
        }
        1 => {
            // Ones below the diagonal choose.
            let shape = g.integers(&[S, S]);
            let one = RawAttr::Tensor(Tensor::from_f64(DType::F32, vec![1], &[1.0]));
            let ones = g.node("ConstantOfShape", &[shape], &[("value", one)]);
            let t = g.node("Trilu", &[ones], &[("upper", int(0))]);
            let c = g.node("Cast", &[t], &[("to", int(9))]);
            let (z, l) = (g.scalar_plain(0.0), g.scalar_plain(low));
            g.op("Where", [c, z, l])
        }
        2 => {
            // Places compared: a key is not seen if it comes after the query.
            let p = places(g);
            let (r, c) = (g.unsqueeze(p, &[0]), g.unsqueeze(p, &[1]));
            let after = g.op("Less", [c, r]);
            let (l, z) = (g.scalar_plain(low), g.scalar_plain(0.0));
            g.op("Where", [after, l, z])
        }
        3 => {
            // One minus the mask, times the lowest.
            let shape = g.integers(&[S, S]);
            let one = RawAttr::Tensor(Tensor::from_f64(DType::F32, vec![1], &[1.0]));
            let ones = g.node("ConstantOfShape", &[shape], &[("value", one)]);
            let t = g.node("Trilu", &[ones], &[("upper", int(0))]);
            let one = g.scalar_plain(1.0);
            let off = g.op("Sub", [one, t]);
            g.scale(off, low)
        }
        4 => {
            // A range computed in the graph.
            let (from, to, step) = (whole(g, 0), whole(g, S), whole(g, 1));
            let p = g.op("Range", [from, to, step]);
            let (r, c) = (g.unsqueeze(p, &[0]), g.unsqueeze(p, &[1]));
            let after = g.op("Greater", [r, c]);
            let a = g.node("Cast", &[after], &[("to", int(1))]);
            g.scale(a, low)
        }
        _ => {
            // The strict upper half of a full tensor, in all four axes.
            let full = g.tensor(&[1, 1, n, n], &vec![low; n * n]);
            let one = whole(g, 1);
            g.node("Trilu", &[full, one], &[("upper", int(1))])
        }
    };
    let t = g.transpose(k, &[0, 1, 3, 2]);
    let s = g.op("MatMul", [q, t]);
    let s = g.scale(s, 0.125);
    let s = g.add(s, mask);
    let w = rows(g, s);
    vec![g.op("MatMul", [w, v])]
}

/// One integer without axes.
fn whole(g: &mut Build, v: i64) -> Value {
    g.constant(Tensor::from_i64(DType::I64, vec![], &[v]))
}

/// One biased product of `x` with the weights of queries, keys and values, its rows flat or not.
fn product(g: &mut Build, flat: bool) -> Value {
    let x = g.input(&[B, S, H * D]);
    let n = (H * D) as usize;
    let (w, z) = (g.weight(&[n, 3 * n]), g.weight(&[3 * n]));
    if flat {
        let r = g.reshape(x, &[-1, H * D]);
        g.node("Gemm", &[r, w, z], &[("alpha", float(1.0))])
    } else {
        let y = g.op("MatMul", [x, w]);
        g.op("Add", [y, z])
    }
}

fn packed(g: &mut Build) -> Vec<Value> {
    let flat = g.flip();
    let y = product(g, flat);
    let heads = |g: &mut Build, x| {
        let r = g.reshape(x, &[B, S, H, D]);
        g.transpose(r, &[0, 2, 1, 3])
    };
    let [q, k, v] = match g.pick(4) {
        0 => {
            let p = g.parts(y, if flat { 1 } else { 2 }, &[H * D; 3]);
            [heads(g, p[0]), heads(g, p[1]), heads(g, p[2])]
        }
        1 => {
            // Three on an axis of its own, gathered, then the heads.
            let r = g.reshape(y, &[B, S, 3, H, D]);
            let mut one = |i| {
                let i = whole(g, i);
                let p = g.node("Gather", &[r, i], &[("axis", int(2))]);
                g.transpose(p, &[0, 2, 1, 3])
            };
            [one(0), one(1), one(2)]
        }
        2 => {
            // Three in front: one transpose for all, then a split.
            let r = g.reshape(y, &[B, S, 3, H, D]);
            let t = g.transpose(r, &[2, 0, 3, 1, 4]);
            let p = g.parts(t, 0, &[1, 1, 1]);
            [g.squeeze(p[0], &[0]), g.squeeze(p[1], &[0]), g.squeeze(p[2], &[0])]
        }
        _ => {
            // Keys and values stay together longer.
            let axis = if flat { 1 } else { 2 };
            let p = g.parts(y, axis, &[H * D, 2 * H * D]);
            let kv = g.parts(p[1], axis, &[H * D, H * D]);
            [heads(g, p[0]), heads(g, kv[0]), heads(g, kv[1])]
        }
    };
    vec![attended(g, [q, k, v])]
}

/// All heads of queries, keys and values as one axis, transposed at once.
fn stacked(g: &mut Build) -> Vec<Value> {
    let flat = g.flip();
    let y = product(g, flat);
    let r = g.reshape(y, &[B, S, 3 * H, D]);
    let t = g.transpose(r, &[0, 2, 1, 3]);
    let parts = if g.flip() {
        // By numbers.
        let mut one = |i: i64| {
            let all: Vec<i64> = (i * H..(i + 1) * H).collect();
            let i = g.integers(&all);
            g.node("Gather", &[t, i], &[("axis", int(1))])
        };
        [one(0), one(1), one(2)]
    } else {
        let p = g.parts(t, 1, &[H, H, H]);
        [p[0], p[1], p[2]]
    };
    vec![attended(g, parts)]
}

/// Attention of heads, folded into rows again.
fn attended(g: &mut Build, [q, k, v]: [Value; 3]) -> Value {
    let t = g.transpose(k, &[0, 1, 3, 2]);
    let s = g.op("MatMul", [q, t]);
    let s = g.scale(s, 0.125);
    let w = rows(g, s);
    let y = g.op("MatMul", [w, v]);
    let t = g.transpose(y, &[0, 2, 1, 3]);
    g.reshape(t, &[B, S, H * D])
}
