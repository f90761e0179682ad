//! Every kernel at extents around all its constants, 0 and 1 among them, one axis after the other: no constant that is divided by an extent may become
//! nothing, and no product of extents more than there is.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor, Value};

/// Around the widths of vectors and tiles, and around every larger constant of a kernel.
const EXTENTS: &[usize] = &[
    0, 1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 63, 65, 127, 129, 255, 257, 513, 1025, 2049, 4095, 4096,
    4097, 8193, 32769,
];

/// Elements of all operands together, and terms of a result, that a case may have.
const MOST: usize = 40_000;

/// What a kernel computes with these extents.
struct Sweep {
    name: &'static str,
    /// The extents of the axes that are not swept.
    rest: &'static [usize],
    make: fn(&mut Case<'_>, &[usize]) -> Vec<Value>,
}

/// What some extents make a program take, roughly: their product.
fn size(extents: &[usize]) -> usize {
    extents.iter().fold(1, |n, &e| n.saturating_mul(e.max(1)))
}

#[track_caller]
fn sweep(all: &[Sweep]) {
    sweep_with(all, usize::MAX);
}

/// Extents above this stand alone where the reference meets every pair of elements along an axis.
const LONG: usize = 1025;

/// The same for kernels whose reference meets every pair along an axis: at long extents the other axes are 1.
#[track_caller]
fn sweep_of_pairs(all: &[Sweep]) {
    sweep_with(all, LONG);
}

#[track_caller]
fn sweep_with(all: &[Sweep], alone: usize) {
    for s in all {
        for axis in 0..s.rest.len() {
            for &extent in EXTENTS {
                let mut extents = s.rest.to_vec();
                extents[axis] = extent;
                if size(&extents) > MOST {
                    break;
                }
                if extent > alone {
                    extents = vec![1; s.rest.len()];
                    extents[axis] = extent;
                }
                let name = format!("{} {extents:?}", s.name);
                // A sum of n terms of size 1 is rounded n times, each time by less than its size times 6e-8; nine windows
                // of an extent are summed at most.
                let t = Tolerance(1e-7 * (9.0 * extent as f64).max(80.0), 1e-5);
                check(&name, t, |c| (s.make)(c, &extents));
            }
        }
    }
}

fn ints(values: &[usize]) -> Attr {
    Attr::ints(values.iter().map(|&v| v as i64))
}

fn f(c: &mut Case<'_>, shape: &[usize]) -> Value {
    c.input(DType::F32, shape)
}

/// An operator that goes along one axis.
fn along(c: &mut Case<'_>, op: &str, axis: i64, x: Value) -> Value {
    c.apply(op, &[("axis", Attr::int(axis))], &[x])
}

fn weights(c: &mut Case<'_>, shape: &[usize]) -> Value {
    c.constant(DType::F32, shape)
}

/// Whole numbers in `0..n`.
fn indices(c: &mut Case<'_>, n: usize, shape: &[usize]) -> Value {
    let t = c.tensor(DType::I64, shape);
    let inside = |v: i64| v.rem_euclid(n.max(1) as i64);
    let values: Vec<i64> = t.to_f64().iter().map(|&v| inside(v as i64)).collect();
    c.given(Tensor::from_i64(DType::I64, shape.to_vec(), &values))
}

/// Zero points of a factor, and of each column of another one.
fn zeros(c: &mut Case<'_>, columns: usize) -> (Value, Value) {
    let zeros = |shape: Vec<usize>, values: &[i64]| Tensor::from_i64(DType::I32, shape, values);
    let q = zeros(vec![columns], &vec![0; columns]);
    (c.builder.constant(zeros(vec![], &[3])), c.builder.constant(q))
}

fn relayouts(c: &mut Case<'_>, dtype: DType, e: &[usize]) -> Vec<Value> {
    let x = c.input(dtype, &[e[0], e[1], e[2], e[3]]);
    let last = c.apply("channels_last", &[], &[x]);
    let x = c.input(dtype, &[e[0], e[2], e[3], e[1]]);
    let first = c.apply("channels_first", &[], &[x]);
    vec![last, first]
}

#[test]
fn changes_of_layout() {
    sweep(&[
        Sweep { name: "relayout", rest: &[2, 3, 2, 3], make: |c, e| relayouts(c, DType::F32, e) },
        Sweep {
            name: "relayout of bytes",
            rest: &[1, 5, 3, 2],
            make: |c, e| relayouts(c, DType::U8, e),
        },
        Sweep {
            name: "relayout of f64",
            rest: &[1, 5, 3, 2],
            make: |c, e| relayouts(c, DType::F64, e),
        },
        Sweep {
            name: "transpose",
            rest: &[2, 3, 5],
            make: |c, e| {
                let x = f(c, e);
                let turned = [[1, 0, 2], [0, 2, 1], [2, 1, 0]];
                turned.map(|p| c.apply("transpose", &[("perm", ints(&p))], &[x])).to_vec()
            },
        },
        Sweep {
            name: "repetition",
            rest: &[3, 2, 5],
            make: |c, e| {
                let x = f(c, &[e[0], e[2]]);
                let y = c.broadcast(x, &[0, 2], e);
                let z = f(c, e);
                vec![c.apply("add", &[], &[y, z])]
            },
        },
    ]);
}

#[test]
fn products() {
    sweep(&[
        Sweep {
            name: "matmul",
            rest: &[1, 3, 5, 4],
            make: |c, e| {
                let a = f(c, &[e[0], e[1], e[2]]);
                let b = f(c, &[e[0], e[2], e[3]]);
                vec![c.apply("matmul", &[], &[a, b])]
            },
        },
        Sweep {
            name: "matmul by a constant",
            rest: &[7, 5, 4],
            make: |c, e| {
                let (a, b) = (f(c, &[e[0], e[1]]), weights(c, &[e[1], e[2]]));
                let y = c.apply("matmul", &[], &[a, b]);
                vec![c.apply("tanh", &[], &[y])]
            },
        },
        Sweep {
            name: "matmul by a turned factor",
            rest: &[4, 6, 9],
            make: |c, e| {
                let (a, b) = (f(c, &[e[0], e[1]]), f(c, &[e[2], e[1]]));
                let b = c.apply("transpose", &[("perm", ints(&[1, 0]))], &[b]);
                vec![c.apply("matmul", &[], &[a, b])]
            },
        },
        Sweep {
            name: "matmul_integer",
            rest: &[3, 5, 4],
            make: |c, e| {
                let (a, b) =
                    (c.input(DType::U8, &[e[0], e[1]]), c.constant(DType::I8, &[e[1], e[2]]));
                let (p, q) = zeros(c, e[2]);
                vec![c.apply("matmul_integer", &[], &[a, b, p, q])]
            },
        },
        Sweep {
            name: "attention",
            rest: &[2, 3, 5, 4, 6],
            make: |c, e| {
                let q = f(c, &[e[0], e[1], e[3]]);
                let k = f(c, &[e[0], e[2], e[3]]);
                let v = f(c, &[e[0], e[2], e[4]]);
                vec![c.apply("attention", &[("scale", Attr::float(0.5))], &[q, k, v])]
            },
        },
    ]);
}

#[test]
fn rows_and_columns() {
    sweep(&[
        Sweep {
            name: "reductions",
            rest: &[3, 4, 2],
            make: |c, e| {
                let x = f(c, e);
                let of = |c: &mut Case<'_>, op: &str, axes: &[usize], x| {
                    c.apply(op, &[("axes", ints(axes))], &[x])
                };
                vec![
                    of(c, "sum", &[0], x),
                    of(c, "sum", &[1], x),
                    of(c, "sum", &[2], x),
                    of(c, "max", &[1, 2], x),
                    of(c, "sum", &[0, 2], x),
                ]
            },
        },
        Sweep {
            name: "reductions of squares",
            rest: &[3, 4, 2],
            make: |c, e| {
                let x = f(c, e);
                let y = c.apply("mul", &[], &[x, x]);
                let of = |c: &mut Case<'_>, axes: &[usize]| {
                    c.apply("sum", &[("axes", ints(axes))], &[y])
                };
                vec![of(c, &[0]), of(c, &[1]), of(c, &[2]), of(c, &[1, 2])]
            },
        },
        Sweep {
            name: "softmax",
            rest: &[2, 5, 3],
            make: |c, e| {
                let x = f(c, e);
                vec![
                    along(c, "softmax", 0, x),
                    along(c, "softmax", 1, x),
                    along(c, "log_softmax", 2, x),
                ]
            },
        },
        Sweep {
            name: "norms",
            rest: &[3, 5],
            make: |c, e| {
                let x = f(c, e);
                let (g, z) = (weights(c, &e[1..]), weights(c, &e[1..]));
                let turned = f(c, &[e[1], e[0]]);
                let turned = c.apply("transpose", &[("perm", ints(&[1, 0]))], &[turned]);
                let eps = [("eps", Attr::float(0.1))];
                vec![
                    c.apply("layernorm", &eps, &[x, g, z]),
                    c.apply("rmsnorm", &eps, &[x, g]),
                    c.apply("layernorm", &eps, &[turned, g, z]),
                ]
            },
        },
    ]);
    sweep_of_pairs(&[
        Sweep {
            name: "running sums",
            rest: &[3, 4, 2],
            make: |c, e| {
                let x = f(c, e);
                (0..3).map(|a| c.apply("cumsum", &[("axis", Attr::int(a))], &[x])).collect()
            },
        },
        Sweep {
            name: "places of extremes",
            rest: &[3, 4, 2],
            make: |c, e| {
                let x = f(c, e);
                match e.contains(&0) {
                    true => vec![along(c, "hardmax", 1, x)],
                    false => vec![
                        along(c, "first_greatest", 0, x),
                        along(c, "first_least", 1, x),
                        along(c, "first_greatest", 2, x),
                        along(c, "hardmax", 1, x),
                        along(c, "hardmax", 2, x),
                    ],
                }
            },
        },
        Sweep {
            name: "sorted places",
            rest: &[3, 4],
            make: |c, e| {
                let x = f(c, e);
                let of = |c: &mut Case<'_>, count: usize, largest| {
                    let attrs =
                        [("count", Attr::int(count as i64)), ("largest", Attr::Bool(largest))];
                    c.apply("sort_places", &attrs, &[x])
                };
                vec![of(c, e[1], true), of(c, e[1].min(3), false)]
            },
        },
    ]);
}

#[test]
fn movements() {
    sweep(&[
        Sweep {
            name: "gather",
            rest: &[2, 5, 3, 4],
            make: |c, e| {
                let x = f(c, &[e[0], e[1], e[2]]);
                let count = if e[1] == 0 { 0 } else { e[3] };
                let i = indices(c, e[1], &[count]);
                let whole = indices(c, e[1], &[e[0], count, e[2]]);
                vec![
                    c.apply("gather", &[("axis", Attr::int(1))], &[x, i]),
                    c.apply("gather_elements", &[("axis", Attr::int(1))], &[x, whole]),
                ]
            },
        },
        Sweep {
            name: "concat",
            rest: &[2, 3, 4, 3],
            make: |c, e| {
                let a = f(c, &[e[0], e[1], e[3]]);
                let b = f(c, &[e[0], e[2], e[3]]);
                let both =
                    [1, 1].map(|axis| c.apply("concat", &[("axis", Attr::int(axis))], &[a, b]));
                let [a, b] = [e[1], e[2]].map(|n| f(c, &[e[0], n]));
                let last = c.apply("concat", &[("axis", Attr::int(1))], &[a, b]);
                both.into_iter().chain([last]).collect()
            },
        },
        Sweep {
            name: "pad",
            rest: &[2, 3, 4],
            make: |c, e| {
                let (x, v) = (f(c, e), f(c, &[]));
                let (low, high) = (ints(&[0, 1, 2]), ints(&[1, 0, 2]));
                vec![c.apply("pad", &[("low", low), ("high", high)], &[x, v])]
            },
        },
        Sweep {
            name: "slice",
            rest: &[3, 4, 5],
            make: |c, e| {
                let x = f(c, e);
                let size: Vec<usize> = e.iter().map(|&n| n.div_ceil(2)).collect();
                let attrs = [
                    ("start", ints(&[0, 0, 0])),
                    ("size", ints(&size)),
                    ("step", ints(&[1, 2, 2])),
                ];
                let y = c.apply("slice", &attrs, &[x]);
                vec![c.apply("exp", &[], &[y])]
            },
        },
        Sweep {
            name: "triangle",
            rest: &[2, 4, 5],
            make: |c, e| {
                let x = f(c, e);
                vec![c.apply(
                    "triangle",
                    &[("diagonal", Attr::int(1)), ("upper", Attr::Bool(false))],
                    &[x],
                )]
            },
        },
        Sweep {
            name: "loops",
            rest: &[2, 3, 5],
            make: |c, e| {
                let (x, row, column) = (f(c, e), f(c, &e[2..]), f(c, &e[..2]));
                let row = c.broadcast(row, &[2], e);
                let column = c.broadcast(column, &[0, 1], e);
                let y = c.apply("mul", &[], &[x, row]);
                let y = c.apply("add", &[], &[y, column]);
                vec![c.apply("tanh", &[], &[y])]
            },
        },
        Sweep {
            name: "loops of halves",
            rest: &[3, 5],
            make: |c, e| {
                let x = c.input(DType::F16, e);
                let y = c.apply("cast", &[("to", Attr::DType(DType::F32))], &[x]);
                vec![c.apply("exp", &[], &[y])]
            },
        },
    ]);
}

/// A convolution, with its channels first and last.
fn convs(
    c: &mut Case<'_>,
    [b, q, o, high, wide]: [usize; 5],
    taps: usize,
    group: usize,
) -> Vec<Value> {
    let attrs = |pad: i64| {
        [
            ("stride", ints(&[1, 1])),
            ("low", Attr::ints([pad, pad])),
            ("high", Attr::ints([pad, pad])),
            ("dilation", ints(&[1, 1])),
            ("group", Attr::int(group as i64)),
        ]
    };
    let pad = (taps / 2) as i64;
    let x = f(c, &[b, q * group, high, wide]);
    let w = weights(c, &[o * group, q, taps, taps]);
    let plain = c.apply("conv", &attrs(pad), &[x, w]);
    let x = f(c, &[b, high, wide, q * group]);
    let w = weights(c, &[o * group, q, taps, taps]);
    let last = c.apply("conv_channels_last", &attrs(pad), &[x, w]);
    vec![plain, last]
}

/// The same of bytes.
fn convs_of_bytes(
    c: &mut Case<'_>,
    [q, o, high, wide]: [usize; 4],
    taps: usize,
    group: usize,
) -> Vec<Value> {
    let pad = (taps / 2) as i64;
    let attrs = [
        ("stride", ints(&[1, 1])),
        ("low", Attr::ints([pad, pad])),
        ("high", Attr::ints([pad, pad])),
        ("dilation", ints(&[1, 1])),
        ("group", Attr::int(group as i64)),
    ];
    let w = c.constant(DType::I8, &[o * group, q, taps, taps]);
    let (p, z) = zeros(c, o * group);
    let x = c.input(DType::U8, &[1, q * group, high, wide]);
    let plain = c.apply("conv_integer", &attrs, &[x, w, p, z]);
    let x = c.input(DType::U8, &[1, high, wide, q * group]);
    let last = c.apply("conv_integer_channels_last", &attrs, &[x, w, p, z]);
    vec![plain, last]
}

fn pools(c: &mut Case<'_>, e: &[usize], window: &[usize]) -> Vec<Value> {
    let attrs = [
        ("window", ints(window)),
        ("stride", ints(&[1, 1])),
        ("low", ints(&[1, 1])),
        ("high", ints(&[1, 1])),
        ("dilation", ints(&[1, 1])),
    ];
    let x = f(c, &[e[0], e[1], e[2], e[3]]);
    let y = f(c, &[e[0], e[2], e[3], e[1]]);
    let mut all: Vec<Value> = ["maxpool", "sumpool"].map(|op| c.apply(op, &attrs, &[x])).to_vec();
    all.extend(
        ["maxpool_channels_last", "sumpool_channels_last"].map(|op| c.apply(op, &attrs, &[y])),
    );
    all
}

#[test]
fn windows() {
    sweep(&[
        Sweep { name: "pools", rest: &[1, 3, 3, 4], make: |c, e| pools(c, e, &[2, 3]) },
        Sweep {
            name: "pools of large windows",
            rest: &[3, 2],
            make: |c, e| pools(c, &[1, 2, e[0] + 1, e[1] + 1], &[e[0] + 1, e[1] + 1]),
        },
        Sweep {
            name: "conv of bytes of one tap",
            rest: &[3, 2, 2, 3],
            make: |c, e| convs_of_bytes(c, [e[0], e[1], e[2], e[3]], 1, 1),
        },
        Sweep {
            name: "conv of bytes of nine taps",
            rest: &[3, 2, 2, 3],
            make: |c, e| convs_of_bytes(c, [e[0], e[1], e[2], e[3]], 3, 1),
        },
        Sweep {
            name: "depthwise conv of bytes",
            rest: &[3, 3, 4],
            make: |c, e| convs_of_bytes(c, [1, 1, e[1], e[2]], 3, e[0].max(1)),
        },
    ]);
}

#[test]
fn convolutions() {
    sweep(&[
        Sweep {
            name: "conv of one tap",
            rest: &[1, 3, 2, 2, 3],
            make: |c, e| convs(c, [e[0], e[1], e[2], e[3], e[4]], 1, 1),
        },
        Sweep {
            name: "conv of nine taps",
            rest: &[1, 2, 3, 3, 4],
            make: |c, e| convs(c, [e[0], e[1], e[2], e[3], e[4]], 3, 1),
        },
        Sweep {
            name: "depthwise conv",
            rest: &[1, 3, 3, 4],
            make: |c, e| convs(c, [e[0], 1, 1, e[2], e[3]], 3, e[1].max(1)),
        },
        Sweep {
            name: "grouped conv",
            rest: &[2, 2, 2, 3, 4],
            make: |c, e| convs(c, [1, e[1], e[2], e[3], e[4]], 3, e[0].max(1)),
        },
    ]);
}
