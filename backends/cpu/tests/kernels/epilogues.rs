//! What follows a product while its sums are in registers, and the kernels at every level of vector instructions.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor, Value};
use std::process::Command;

/// What follows, given the result, its shape and the axis of its rows.
pub type Epilogue = fn(&mut Case<'_>, Value, &[usize], i64) -> Value;

fn row(c: &mut Case<'_>, shape: &[usize], axis: i64) -> Value {
    let bias = c.constant(DType::F32, &[shape[axis as usize]]);
    c.broadcast(bias, &[axis], shape)
}

fn bounded(c: &mut Case<'_>, y: Value, low: f64, high: f64) -> Value {
    let attrs = [("low", Attr::float(low)), ("high", Attr::float(high))];
    c.apply("clip", &attrs, &[y])
}

fn gated(c: &mut Case<'_>, y: Value, shape: &[usize], axis: i64, gate: &str) -> Value {
    let z = row(c, shape, axis);
    let y = c.apply("add", &[], &[y, z]);
    c.apply(gate, &[], &[y])
}

pub const EPILOGUES: &[(&str, Epilogue)] = &[
    ("nothing", |_, y, _, _| y),
    ("bias", |c, y, shape, axis| {
        let z = row(c, shape, axis);
        c.apply("add", &[], &[z, y])
    }),
    ("bias and rectifier", |c, y, shape, axis| {
        let z = row(c, shape, axis);
        let y = c.apply("add", &[], &[y, z]);
        c.apply("relu", &[], &[y])
    }),
    ("bias and bounds", |c, y, shape, axis| {
        let z = row(c, shape, axis);
        let y = c.apply("add", &[], &[y, z]);
        bounded(c, y, -1.0, 2.0)
    }),
    ("bounds before the bias", |c, y, shape, axis| {
        let z = row(c, shape, axis);
        let y = bounded(c, y, 0.0, 1.0);
        c.apply("add", &[], &[y, z])
    }),
    ("bias, residual and rectifier", |c, y, shape, axis| {
        let (z, r) = (row(c, shape, axis), c.input(DType::F32, shape));
        let y = c.apply("add", &[], &[y, z]);
        let y = c.apply("add", &[], &[r, y]);
        c.apply("relu", &[], &[y])
    }),
    ("scale, bias and gate", |c, y, shape, axis| {
        let (s, z) = (row(c, shape, axis), row(c, shape, axis));
        let g = c.input(DType::F32, shape);
        let y = c.apply("mul", &[], &[y, s]);
        let y = c.apply("add", &[], &[y, z]);
        c.apply("mul", &[], &[y, g])
    }),
    ("a function that is no step", |c, y, shape, axis| {
        let z = row(c, shape, axis);
        let y = c.apply("add", &[], &[y, z]);
        c.apply("abs", &[], &[y])
    }),
    ("functions", |c, y, shape, axis| {
        let z = row(c, shape, axis);
        let y = c.apply("mul", &[], &[y, z]);
        let y = c.apply("tanh", &[], &[y]);
        let y = c.apply("exp", &[], &[y]);
        c.apply("sigmoid", &[], &[y])
    }),
    ("bias and swish", |c, y, shape, axis| gated(c, y, shape, axis, "silu")),
    ("bias and hard swish", |c, y, shape, axis| gated(c, y, shape, axis, "hardswish")),
    ("bias and gelu", |c, y, shape, axis| gated(c, y, shape, axis, "gelu")),
    ("bias and gelu by tanh", |c, y, shape, axis| gated(c, y, shape, axis, "gelu_tanh")),
    ("swish and scale", |c, y, shape, axis| {
        let y = gated(c, y, shape, axis, "silu");
        let s = row(c, shape, axis);
        c.apply("mul", &[], &[y, s])
    }),
    ("quotients and differences", |c, y, shape, axis| {
        let (z, r) = (row(c, shape, axis), c.input(DType::F32, shape));
        let squared = c.apply("mul", &[], &[y, y]);
        let one = c.builder.constant(Tensor::from_f64(DType::F32, vec![], &[1.0]));
        let one = c.broadcast(one, &[], shape);
        let below = c.apply("add", &[], &[squared, one]);
        let y = c.apply("div", &[], &[y, below]);
        let y = c.apply("sub", &[], &[y, one]);
        let y = c.apply("add", &[], &[y, z]);
        c.apply("mul", &[], &[y, r])
    }),
    ("more values than are kept", |c, y, _, _| {
        let f = |c: &mut Case<'_>, name: &str, x: Value| c.apply(name, &[], &[x]);
        let (a, b, d) = (f(c, "tanh", y), f(c, "sigmoid", y), f(c, "erf", y));
        let ab = c.apply("mul", &[], &[a, b]);
        let sum = c.apply("add", &[], &[ab, d]);
        let bd = c.apply("mul", &[], &[b, d]);
        let sum = c.apply("mul", &[], &[sum, bd]);
        c.apply("add", &[], &[sum, a])
    }),
];

/// Extents of input and weights, stride and padding, groups.
type Convolution = ([usize; 4], [usize; 4], i64, i64, i64);

const CONVOLUTIONS: &[Convolution] = &[
    ([1, 3, 9, 17], [5, 3, 3, 3], 1, 1, 1),
    ([2, 16, 7, 7], [12, 16, 1, 1], 1, 0, 1),
    ([1, 4, 7, 7], [13, 4, 1, 1], 1, 0, 1),
    ([1, 40, 14, 14], [6, 40, 3, 3], 1, 1, 1),
    ([1, 3, 23, 31], [8, 3, 3, 3], 2, 1, 1),
    ([2, 6, 8, 33], [4, 3, 3, 3], 1, 1, 2),
    ([1, 5, 2, 3], [7, 5, 1, 1], 1, 0, 1),
    ([1, 9, 14, 14], [9, 1, 3, 3], 1, 1, 9),
    ([2, 4, 7, 7], [4, 1, 3, 3], 1, 1, 4),
    ([1, 3, 40, 41], [3, 1, 5, 5], 2, 2, 3),
    ([1, 3, 20, 9], [3, 1, 3, 2], 3, 0, 3),
];

/// The attributes of a convolution over images that is the same along both axes.
fn windows(stride: i64, pad: i64, group: i64) -> [(&'static str, Attr); 5] {
    [
        ("stride", Attr::ints([stride, stride])),
        ("low", Attr::ints([pad, pad])),
        ("high", Attr::ints([pad, pad])),
        ("dilation", Attr::ints([1, 1])),
        ("group", Attr::int(group)),
    ]
}

#[test]
fn convolutions_are_finished_in_registers() {
    for &(x, w, stride, pad, group) in CONVOLUTIONS {
        for (name, epilogue) in EPILOGUES {
            check(&format!("{x:?} {w:?}, {name}"), Tolerance(1e-4, 1e-5), |c| {
                let mut values = c.tensor(DType::F32, &x).to_f64();
                let n = values.len();
                (values[n / 3], values[n / 2]) = (f64::NAN, f64::INFINITY);
                let x = c.given(Tensor::from_f64(DType::F32, x.to_vec(), &values));
                let w = c.constant(DType::F32, &w);
                let attrs = windows(stride, pad, group);
                let y = c.apply("conv", &attrs, &[x, w]);
                let shape = c.shape(y);
                vec![epilogue(c, y, &shape, 1)]
            });
        }
    }
}

/// Operands of which one begins again with every image and the other does not.
#[test]
fn channels_have_operands_of_their_own_in_every_image() {
    for &(x, w, stride, pad, group) in CONVOLUTIONS {
        let x = [3, x[1], x[2], x[3]];
        check(&format!("{x:?} {w:?}"), Tolerance(1e-4, 1e-5), |c| {
            let (x, w) = (c.input(DType::F32, &x), c.constant(DType::F32, &w));
            let attrs = windows(stride, pad, group);
            let y = c.apply("conv", &attrs, &[x, w]);
            let shape = c.shape(y);
            let y = gated(c, y, &shape, 1, "silu");
            let s = c.input(DType::F32, &shape[..2]);
            let s = c.broadcast(s, &[0, 1], &shape);
            vec![c.apply("mul", &[], &[y, s])]
        });
    }
}

#[test]
fn products_are_finished_in_registers() {
    for (m, k, n) in [(1, 300, 70), (2, 5, 100), (3, 9, 65), (5, 16, 33), (20, 513, 40)] {
        for (name, epilogue) in EPILOGUES {
            for axis in [0, 1] {
                let name = format!("{m} x {k} x {n}, {name} along axis {axis}");
                check(&name, Tolerance(1e-4, 1e-5), |c| {
                    let (a, b) = (c.input(DType::F32, &[m, k]), c.constant(DType::F32, &[k, n]));
                    let y = c.apply("matmul", &[], &[a, b]);
                    vec![epilogue(c, y, &[m, n], axis)]
                });
            }
        }
    }
}

/// The tests of this program that run kernels, once more with fewer vector instructions.
#[test]
fn every_level_of_vector_instructions_agrees() {
    const LEVELS: &str = "MLC_VECTORS";
    if std::env::var_os(LEVELS).is_some() {
        return;
    }
    let own = std::env::current_exe().expect("this program");
    for level in ["portable", "avx2"] {
        let tests = [
            "operators::",
            "order::",
            "random::",
            "attention::",
            "epilogues::",
            "channels_last::",
            "int8::",
        ];
        let done = Command::new(&own).env(LEVELS, level).args(tests).output().expect("runs");
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{level}:\n{text}");
        assert!(text.contains("test operators::convolutions ... ok"), "{level}:\n{text}");
    }
}
