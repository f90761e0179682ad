//! Spellings of attention as exporters of 2024 and later leave it: guards against rows without keys, position biases,
//! and rotations of neighbouring pairs.

use super::attention::{scores, values, weights};
use super::build::{Build, Value, int};
use super::{Family, PLAIN, Setup};
use mlc_dsl::ir::{DType, Tensor};

const ONE: &[Setup] = &[PLAIN];
const SETS: &[i64] = &[17, 14, 18, 20];

/// Spellings of recent attention, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "attention_guarded",
        expect: &["gemm(add matmul mul), softmax(softmax), pointwise(is_nan select), gemm(matmul)"],
        setups: ONE,
        opsets: SETS,
        build: guarded,
    },
    Family {
        name: "attention_biased",
        expect: &["pointwise(add), attention(attention_masked)"],
        setups: ONE,
        opsets: SETS,
        build: biased,
    },
    Family {
        name: "attention_alibi",
        expect: &["attention(attention_masked)"],
        setups: ONE,
        opsets: SETS,
        build: alibi,
    },
    Family {
        name: "rope_pairs",
        expect: &["pointwise(add mul mul), view()"],
        setups: ONE,
        opsets: SETS,
        build: rope_pairs,
    },
];

const B: i64 = 2;
const H: i64 = 4;
const S: i64 = 16;
const D: i64 = 64;

fn inputs(g: &mut Build) -> [Value; 3] {
    [g.input(&[B, H, S, D]), g.input(&[B, H, S, D]), g.input(&[B, H, S, D])]
}

/// PyTorch: rows that see no key are zero, not NaN.
fn guarded(g: &mut Build) -> Vec<Value> {
    let [q, k, v] = inputs(g);
    let m = g.input(&[B, 1, S, S]);
    let s = scores(g, q, k);
    let s = g.add(s, m);
    let w = weights(g, s);
    let zero = g.scalar_plain(0.0);
    let w = match g.pick(3) {
        1 => {
            let same = g.op("Equal", [w, w]);
            g.op("Where", [same, w, zero])
        }
        2 => {
            let same = g.op("Equal", [w, w]);
            let bad = g.op("Not", [same]);
            g.op("Where", [bad, zero, w])
        }
        _ => {
            let bad = g.op("IsNaN", [w]);
            g.op("Where", [bad, zero, w])
        }
    };
    vec![values(g, w, v)]
}

/// T5: scores are not scaled; a bias by the distance of positions and a mask are added.
fn biased(g: &mut Build) -> Vec<Value> {
    let [q, k, v] = inputs(g);
    let (bias, mask) = (g.input(&[1, H, S, S]), g.input(&[B, 1, 1, S]));
    let s = super::attention::product(g, q, k);
    let s = if g.flip() {
        let all = g.add(bias, mask);
        g.add(s, all)
    } else {
        let s = g.add(s, bias);
        g.add(s, mask)
    };
    let w = weights(g, s);
    vec![values(g, w, v)]
}

/// The numbers `0..S`: a constant, or counted in the graph.
fn places(g: &mut Build) -> Value {
    if g.flip() {
        let whole = |g: &mut Build, v| g.constant(Tensor::from_i64(DType::I64, vec![], &[v]));
        let (from, to, step) = (whole(g, 0), whole(g, S), whole(g, 1));
        return g.op("Range", [from, to, step]);
    }
    let all: Vec<i64> = (0..S).collect();
    g.integers(&all)
}

/// ALiBi: every head lowers scores by its own slope times the distance; what comes later is not seen.
fn alibi(g: &mut Build) -> Vec<Value> {
    let [q, k, v] = inputs(g);
    let slopes: Vec<f64> = (1..=H).map(|h| 0.5_f64.powi(2 * h as i32)).collect();
    let p = places(g);
    let (keys, queries) = (g.unsqueeze(p, &[0]), g.unsqueeze(p, &[1]));
    let far = g.op("Sub", [keys, queries]);
    let (low, zero) = (g.scalar_plain(-10000.0), g.scalar_plain(0.0));
    let hidden = match g.pick(3) {
        1 => {
            let seen = if g.opset >= 12 {
                g.op("LessOrEqual", [keys, queries])
            } else {
                let after = g.op("Greater", [keys, queries]);
                g.op("Not", [after])
            };
            g.op("Where", [seen, zero, low])
        }
        2 => {
            let n = S as usize;
            let full = g.tensor(&[n, n], &vec![-10000.0; n * n]);
            let one = g.constant(Tensor::from_i64(DType::I64, vec![], &[1]));
            g.node("Trilu", &[full, one], &[("upper", int(1))])
        }
        _ => {
            let after = g.op("Greater", [keys, queries]);
            g.op("Where", [after, low, zero])
        }
    };
    let far = g.node("Cast", &[far], &[("to", int(1))]);
    let slopes = g.tensor(&[H as usize, 1, 1], &slopes);
    let bias = g.mul(slopes, far);
    let s = scores(g, q, k);
    let s = if g.flip() {
        let all = g.add(bias, hidden);
        g.add(s, all)
    } else {
        let s = g.add(s, bias);
        g.add(s, hidden)
    };
    let w = weights(g, s);
    vec![values(g, w, v)]
}

/// GPT-J: neighbours form a pair that is turned.
fn rope_pairs(g: &mut Build) -> Vec<Value> {
    let x = g.input(&[B, H, S, D]);
    let (n, half) = (S as usize, (D / 2) as usize);
    let (c, s) = (g.numbers(n * half, -1.0, 1.0), g.numbers(n * half, -1.0, 1.0));
    let (even, odd) = match g.pick(3) {
        1 => {
            let r = g.reshape(x, &[B, H, S, D / 2, 2]);
            let p = g.parts(r, 4, &[1, 1]);
            (g.squeeze(p[0], &[4]), g.squeeze(p[1], &[4]))
        }
        2 => {
            let r = g.reshape(x, &[B, H, S, D / 2, 2]);
            let mut one = |i: i64| {
                let i = g.constant(Tensor::from_i64(DType::I64, vec![], &[i]));
                g.node("Gather", &[r, i], &[("axis", int(-1))])
            };
            (one(0), one(1))
        }
        _ => {
            let mut every = |from: i64| {
                let start = g.integers(&[from]);
                let (end, axis, step) = (g.integers(&[D]), g.integers(&[3]), g.integers(&[2]));
                g.op("Slice", [x, start, end, axis, step])
            };
            (every(0), every(1))
        }
    };
    let shape: &[usize] = if g.flip() { &[1, 1, n, half] } else { &[n, half] };
    let (c, s) = (g.tensor(shape, &c), g.tensor(shape, &s));
    let (ec, os) = (g.mul(even, c), g.mul(odd, s));
    let (es, oc) = (g.mul(even, s), g.mul(odd, c));
    let (a, b) = (g.sub(ec, os), g.add(es, oc));
    let (a, b) = (g.unsqueeze(a, &[4]), g.unsqueeze(b, &[4]));
    let y = g.node("Concat", &[a, b], &[("axis", int(4))]);
    vec![g.reshape(y, &[B, H, S, D])]
}
