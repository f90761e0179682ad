//! Whole networks whose layers are spelled at random, at the sizes of small models: spellings that the pattern fusions of a runtime miss.

use crate::spellings::attention::{scores, values, weights};
use crate::spellings::build::{Build, Value, float, int, ints};
use crate::spellings::choices::Choices;
use crate::spellings::gates::{gated, gelu_by_tanh, gelu_erf, silu};
use crate::spellings::norm::{batch_norm_of, layer_norm_of, rms_norm_of};
use mlc_dsl::ir::DType;
use mlc_onnx::RawModel;

/// A network by its name.
pub type Network = (&'static str, fn(&mut Build) -> Value);

/// Every network.
pub const NETWORKS: &[Network] =
    &[("encoder", encoder), ("decoder", decoder), ("mixer", mixer), ("convnet", convnet)];

/// Layers of each.
const LAYERS: usize = 4;
/// Tokens of a sequence, or patches.
const TOKENS: usize = 128;
/// Features of a token.
const WIDTH: usize = 256;
/// Heads, of 64 features each.
const HEADS: usize = WIDTH / 64;

/// The network in the spelling of this seed. One that is stable only in real numbers is passed over for the next.
pub fn spelled(network: &Network, seed: u64) -> RawModel {
    (0..)
        .find_map(|turn| {
            let mut g = Build::new(17, DType::F32, false, Choices::random(seed + 1000 * turn));
            let y = network.1(&mut g);
            (!g.is_unstable()).then(|| g.finish(&[y], DType::F32).0)
        })
        .expect("one of all spellings is stable")
}

/// Seeded weights that keep the spread of what they are multiplied with.
fn spread(g: &mut Build, shape: &[usize], from: usize) -> Value {
    let most = (3.0 / from as f64).sqrt();
    g.weight_in(shape, -most, most)
}

/// A biased product with a weight.
fn linear(g: &mut Build, x: Value, from: usize, to: usize) -> Value {
    let y = match g.pick(4) {
        2 => {
            let w = spread(g, &[to, from], from);
            let w = g.transpose(w, &[1, 0]);
            g.op("MatMul", [x, w])
        }
        3 => {
            let r = g.reshape(x, &[-1, from as i64]);
            let (w, z) = (spread(g, &[to, from], from), spread(g, &[to], to));
            let attrs = [("transB", int(1)), ("alpha", float(1.0))];
            let y = g.node("Gemm", &[r, w, z], &attrs);
            return g.reshape(y, &[1, -1, to as i64]);
        }
        _ => {
            let w = spread(g, &[from, to], from);
            g.op("MatMul", [x, w])
        }
    };
    let z = spread(g, &[to], to);
    g.add(y, z)
}

fn heads(g: &mut Build, x: Value) -> Value {
    let (n, h) = (TOKENS as i64, HEADS as i64);
    let shape = g.any(&[[1, n, h, 64], [0, 0, h, 64], [1, -1, h, 64], [0, n, -1, 64]]);
    let r = g.reshape(x, &shape);
    g.transpose(r, &[0, 2, 1, 3])
}

/// Attention of all heads, its products among it.
fn attention(g: &mut Build, x: Value) -> Value {
    let [q, k, v] = [(); 3].map(|()| {
        let y = linear(g, x, WIDTH, WIDTH);
        heads(g, y)
    });
    let s = scores(g, q, k);
    let w = weights(g, s);
    let y = values(g, w, v);
    let t = g.transpose(y, &[0, 2, 1, 3]);
    let shape = g.any(&[[1, TOKENS as i64, WIDTH as i64], [0, 0, WIDTH as i64], [0, 0, -1]]);
    let y = g.reshape(t, &shape);
    linear(g, y, WIDTH, WIDTH)
}

/// A transformer that normalises what comes out (Devlin et al. 2018).
fn encoder(g: &mut Build) -> Value {
    let mut x = g.input(&[1, TOKENS as i64, WIDTH as i64]);
    for _ in 0..LAYERS {
        let y = attention(g, x);
        let sum = g.add(x, y);
        x = layer_norm_of(g, sum, WIDTH);
        let y = linear(g, x, WIDTH, 4 * WIDTH);
        let y = gelu_erf(g, y);
        let y = linear(g, y, 4 * WIDTH, WIDTH);
        let sum = g.add(x, y);
        x = layer_norm_of(g, sum, WIDTH);
    }
    x
}

/// A transformer that normalises what goes in, with gates (Touvron et al. 2023).
fn decoder(g: &mut Build) -> Value {
    let mut x = g.input(&[1, TOKENS as i64, WIDTH as i64]);
    for _ in 0..LAYERS {
        let y = rms_norm_of(g, x, WIDTH);
        let y = attention(g, y);
        x = g.add(x, y);
        let y = rms_norm_of(g, x, WIDTH);
        let gate = linear(g, y, WIDTH, 2 * WIDTH);
        let gate = silu(g, gate);
        let up = linear(g, y, WIDTH, 2 * WIDTH);
        let y = g.mul(gate, up);
        let y = linear(g, y, 2 * WIDTH, WIDTH);
        x = g.add(x, y);
    }
    rms_norm_of(g, x, WIDTH)
}

/// Products over tokens and over features in turns (Tolstikhin et al. 2021).
fn mixer(g: &mut Build) -> Value {
    let mut x = g.input(&[1, TOKENS as i64, WIDTH as i64]);
    for _ in 0..LAYERS {
        let y = layer_norm_of(g, x, WIDTH);
        let y = g.transpose(y, &[0, 2, 1]);
        let y = linear(g, y, TOKENS, WIDTH);
        let y = gelu_by_tanh(g, y);
        let y = linear(g, y, WIDTH, TOKENS);
        let y = g.transpose(y, &[0, 2, 1]);
        x = g.add(x, y);
        let y = layer_norm_of(g, x, WIDTH);
        let y = linear(g, y, WIDTH, 2 * WIDTH);
        let y = gelu_by_tanh(g, y);
        let y = linear(g, y, 2 * WIDTH, WIDTH);
        x = g.add(x, y);
    }
    x
}

/// A convolution of `side` x `side` without a bias.
fn conv(g: &mut Build, x: Value, from: usize, to: usize, side: usize, stride: i64) -> Value {
    let w = spread(g, &[to, from, side, side], from * side * side);
    let pad = (side / 2) as i64;
    let (side, pads) = (side as i64, [pad; 4]);
    let attrs = [
        ("kernel_shape", ints(&[side, side])),
        ("pads", ints(&pads)),
        ("strides", ints(&[stride, stride])),
    ];
    g.node("Conv", &[x, w], &attrs)
}

/// Residual blocks of convolutions with batch normalisation and gates.
fn convnet(g: &mut Build) -> Value {
    let x = g.input(&[1, 3, 64, 64]);
    let y = conv(g, x, 3, 32, 3, 2);
    let y = batch_norm_of(g, y, 32);
    let mut x = g.rectified(y);
    let mut width = 32;
    for layer in 0..LAYERS {
        let (to, stride) = if layer % 2 == 1 { (2 * width, 2) } else { (width, 1) };
        let y = conv(g, x, width, to, 3, stride);
        let y = batch_norm_of(g, y, to);
        let y = gated(g, y, y);
        let y = conv(g, y, to, to, 3, 1);
        let y = batch_norm_of(g, y, to);
        let kept = match to == width {
            true => x,
            false => {
                let s = conv(g, x, width, to, 1, stride);
                batch_norm_of(g, s, to)
            }
        };
        let y = g.add(y, kept);
        x = g.rectified(y);
        width = to;
    }
    let y = g.mean(x, &[2, 3], 4, 16 * 16 / 4);
    let y = g.reshape(y, &[1, width as i64]);
    let (w, z) = (spread(g, &[width, 100], width), spread(g, &[100], 100));
    let y = g.op("MatMul", [y, w]);
    g.add(y, z)
}
