//! Products and convolutions of bytes: the bits of the reference interpreter, with what follows them, too.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor, Value};

/// Bytes of the whole range, both ends among them.
fn bytes(c: &mut Case<'_>, dtype: DType, shape: &[usize]) -> Tensor {
    let low = if dtype == DType::I8 { -128.0 } else { 0.0 };
    let drawn = c.tensor(DType::F32, shape).to_f64();
    let value = |(i, v): (usize, f64)| match i % 7 {
        0 => low,
        1 => low + 255.0,
        _ => low + ((v + 2.0) * 63.9).floor(),
    };
    let values: Vec<f64> = drawn.into_iter().enumerate().map(value).collect();
    Tensor::from_f64(dtype, shape.to_vec(), &values)
}

fn number(c: &mut Case<'_>, value: i64) -> Value {
    c.builder.constant(Tensor::from_i64(DType::I32, vec![], &[value]))
}

/// A real number everywhere.
fn everywhere(c: &mut Case<'_>, value: f64, shape: &[usize]) -> Value {
    let number = c.builder.constant(Tensor::from_f64(DType::F32, vec![], &[value]));
    c.broadcast(number, &[], shape)
}

/// Zero points of `n` columns or filters: none, one for all, or one each.
fn zeros(c: &mut Case<'_>, kind: usize, n: usize) -> Value {
    let values: Vec<i64> = (0..n as i64)
        .map(|i| match kind {
            0 => 0,
            1 => 3,
            _ => i % 11 - 5,
        })
        .collect();
    c.builder.constant(Tensor::from_i64(DType::I32, vec![n], &values))
}

/// What follows sums along an axis: nothing, or a number per row, a bound and eight bits, after a second quantised operand or not, or real
/// numbers; with 4, whole numbers are added first.
fn followed(c: &mut Case<'_>, y: Value, axis: i64, kind: usize, to: DType) -> Value {
    if kind == 0 {
        return y;
    }
    let shape = c.shape(y);
    let attr = |d| [("to", Attr::DType(d))];
    let y = match kind {
        4 => {
            let n = shape[axis as usize];
            let values: Vec<i64> = (0..n as i64).map(|i| i * 37 % 501 - 250).collect();
            let bias = c.builder.constant(Tensor::from_i64(DType::I32, vec![n], &values));
            let bias = c.broadcast(bias, &[axis], &shape);
            c.apply("add", &[], &[y, bias])
        }
        _ => y,
    };
    let y = c.apply("cast", &attr(DType::F32), &[y]);
    // Powers of two: what follows is exact, whichever way it is computed.
    let n = shape[axis as usize];
    let scales: Vec<f64> = (0..n).map(|i| 0.5f64.powi(8 + (i % 3) as i32)).collect();
    let scale = c.builder.constant(Tensor::from_f64(DType::F32, vec![n], &scales));
    let scale = c.broadcast(scale, &[axis], &shape);
    let y = c.apply("mul", &[], &[y, scale]);
    if kind == 3 {
        let values: Vec<f64> = (0..n).map(|i| (i % 9) as f64 / 4.0 - 1.0).collect();
        let bias = c.builder.constant(Tensor::from_f64(DType::F32, vec![n], &values));
        let bias = c.broadcast(bias, &[axis], &shape);
        return c.apply("add", &[], &[y, bias]);
    }
    let y = match kind {
        1 | 4 => y,
        _ => {
            let dtype = if n.is_multiple_of(2) { DType::U8 } else { DType::I8 };
            let other = bytes(c, dtype, &shape);
            let other = c.given(other);
            let other = c.apply("cast", &attr(DType::F32), &[other]);
            let (less, by) = (everywhere(c, -3.0, &shape), everywhere(c, 0.5, &shape));
            let other = c.apply("add", &[], &[other, less]);
            let other = c.apply("mul", &[], &[other, by]);
            let y = c.apply("round", &[], &[y]);
            let bounds = [("low", Attr::float(-128.0)), ("high", Attr::float(127.0))];
            let y = c.apply("clip", &bounds, &[y]);
            let y = c.apply("cast", &attr(DType::I8), &[y]);
            let y = c.apply("cast", &attr(DType::F32), &[y]);
            c.apply("add", &[], &[y, other])
        }
    };
    let y = c.apply("round", &[], &[y]);
    let low = if to == DType::I8 { -128.0 } else { 0.0 };
    let bounds = [("low", Attr::float(low)), ("high", Attr::float(low + 255.0))];
    let y = c.apply("clip", &bounds, &[y]);
    c.apply("cast", &attr(to), &[y])
}

const EXACT: Tolerance = Tolerance(0.0, 0.0);
const TYPES: [(DType, DType); 4] = [
    (DType::U8, DType::I8),
    (DType::I8, DType::I8),
    (DType::U8, DType::U8),
    (DType::I8, DType::U8),
];

#[test]
fn products() {
    let sizes = [(1, 300, 70), (2, 5, 64), (7, 4, 129), (13, 33, 1), (20, 516, 600), (3, 0, 5)];
    for (i, (m, k, n)) in sizes.into_iter().enumerate() {
        for (j, (left, right)) in TYPES.into_iter().enumerate() {
            let (kind, constant) = ((i + j) % 3, (i + j) % 2 == 0);
            check(&format!("{m} x {k} x {n} {left} {right}"), EXACT, |c| {
                let (a, b) = (bytes(c, left, &[m, k]), bytes(c, right, &[k, n]));
                let a = c.given(a);
                let b = if constant { c.builder.constant(b) } else { c.given(b) };
                let (p, q) = (number(c, [0, 128, -7][kind]), zeros(c, kind, n));
                let y = c.apply("matmul_integer", &[], &[a, b, p, q]);
                vec![followed(c, y, 1, (i + j / 2) % 5, left)]
            });
        }
    }
}

#[test]
fn batches_and_transposed_operands() {
    for (i, (left, right)) in TYPES.into_iter().enumerate() {
        check(&format!("heads {left} {right}"), EXACT, |c| {
            let (a, b) = (bytes(c, left, &[2, 3, 9, 10]), bytes(c, right, &[2, 3, 17, 10]));
            let (a, b) = (c.given(a), c.given(b));
            let b = c.apply("transpose", &[("perm", Attr::ints([0, 1, 3, 2]))], &[b]);
            let (p, q) = (number(c, 100), zeros(c, i % 2, 17));
            let y = c.apply("matmul_integer", &[], &[a, b, p, q]);
            vec![followed(c, y, 3, i % 5, DType::U8)]
        });
        check(&format!("no depth {left} {right}"), EXACT, |c| {
            let (a, b) = (bytes(c, left, &[2, 3, 1, 0]), bytes(c, right, &[2, 3, 0, 5]));
            let (a, b) = (c.given(a), c.given(b));
            let (p, q) = (number(c, 100), zeros(c, i % 2, 5));
            vec![c.apply("matmul_integer", &[], &[a, b, p, q])]
        });
        check(&format!("one matrix for all {left} {right}"), EXACT, |c| {
            let (a, b) = (bytes(c, left, &[2, 5, 12]), bytes(c, right, &[70, 12]));
            let (a, b) = (c.given(a), c.builder.constant(b));
            let b = c.apply("transpose", &[("perm", Attr::ints([1, 0]))], &[b]);
            let b = c.broadcast(b, &[1, 2], &[2, 12, 70]);
            let (p, q) = (number(c, 3), zeros(c, i % 3, 70));
            let y = c.apply("matmul_integer", &[], &[a, b, p, q]);
            vec![followed(c, y, 2, 1, DType::I8)]
        });
    }
}

/// Extents of input and weights, stride, padding before and after, dilation, groups.
type Convolution = (&'static [usize], &'static [usize], i64, i64, i64, i64, i64);

const CONVOLUTIONS: &[Convolution] = &[
    (&[1, 3, 9, 17], &[5, 3, 3, 3], 1, 1, 1, 1, 1),
    (&[2, 16, 7, 7], &[12, 16, 1, 1], 1, 0, 0, 1, 1),
    (&[1, 5, 8, 9], &[7, 5, 1, 1], 2, 0, 0, 1, 1),
    (&[1, 40, 14, 14], &[6, 40, 3, 3], 1, 1, 1, 1, 1),
    (&[1, 3, 23, 31], &[8, 3, 3, 3], 2, 1, 0, 1, 1),
    (&[1, 3, 30, 30], &[4, 3, 7, 7], 2, 3, 3, 1, 1),
    (&[2, 6, 8, 33], &[4, 3, 3, 3], 1, 1, 1, 2, 2),
    (&[1, 6, 40, 33], &[4, 6, 2, 3], 1, -1, 2, 1, 1),
    (&[1, 9, 14, 14], &[9, 1, 3, 3], 1, 1, 1, 1, 9),
    (&[2, 4, 7, 7], &[4, 1, 3, 3], 2, 1, 1, 1, 4),
    (&[1, 3, 40, 41], &[3, 1, 5, 5], 3, 2, 2, 2, 3),
    (&[1, 4, 50], &[6, 4, 3], 2, 1, 1, 1, 1),
    (&[1, 4, 50], &[4, 1, 3], 1, 1, 1, 1, 4),
    (&[1, 2, 5, 5], &[3, 2, 3, 3], 1, 4, 4, 1, 1),
];

#[test]
fn convolutions() {
    for (i, &(x, w, stride, low, high, dilation, group)) in CONVOLUTIONS.iter().enumerate() {
        for (j, (left, right)) in TYPES.into_iter().enumerate() {
            let (kind, constant) = ((i + j) % 3, (i + j) % 4 != 3);
            check(&format!("{x:?} {w:?} {left} {right}"), EXACT, |c| {
                let (n, o) = (x.len() - 2, w[0]);
                let (x, w) = (bytes(c, left, x), bytes(c, right, w));
                let x = c.given(x);
                let w = if constant { c.builder.constant(w) } else { c.given(w) };
                let (p, z) = (number(c, [0, 128, -7][kind]), zeros(c, kind, o));
                let attrs = [
                    ("stride", Attr::ints(vec![stride; n])),
                    ("low", Attr::ints(vec![low; n])),
                    ("high", Attr::ints(vec![high; n])),
                    ("dilation", Attr::ints(vec![dilation; n])),
                    ("group", Attr::int(group)),
                ];
                let y = c.apply("conv_integer", &attrs, &[x, w, p, z]);
                vec![followed(c, y, 1, (i + j / 2) % 5, left)]
            });
        }
    }
}

#[test]
fn convolutions_with_channels_last() {
    let more: &[Convolution] = &[
        (&[1, 8, 8, 13], &[130, 8, 3, 3], 1, 1, 1, 1, 1),
        (&[3, 12, 7, 7], &[70, 12, 1, 1], 1, 0, 0, 1, 1),
        (&[1, 130, 5, 6], &[130, 1, 3, 3], 1, 1, 1, 1, 130),
        (&[2, 16, 20], &[33, 16, 3], 2, 2, 1, 1, 1),
    ];
    for (i, &(x, w, stride, low, high, dilation, group)) in
        CONVOLUTIONS.iter().chain(more).enumerate()
    {
        if group != 1 && w[1] != 1 {
            continue;
        }
        let last = [&x[..1], &x[2..], &x[1..2]].concat();
        for (j, (left, right)) in TYPES.into_iter().enumerate() {
            for kind in [(i + j) % 5, (i + j + 2) % 5] {
                // Zero points that are no bytes, and weights that are given, now and then.
                let (zero, constant) = ((i + j + kind) % 3, (i + j) % 4 != 3);
                check(&format!("{last:?} {w:?} {left} {right} {kind}"), EXACT, |c| {
                    let (n, o) = (w.len() - 2, w[0]);
                    let (x, w) = (bytes(c, left, &last), bytes(c, right, w));
                    let x = c.given(x);
                    let w = if constant { c.builder.constant(w) } else { c.given(w) };
                    let of_weights = if right == DType::U8 { 1 } else { zero / 2 };
                    let (p, z) = (number(c, [0, 128, -7][zero]), zeros(c, of_weights, o));
                    let attrs = [
                        ("stride", Attr::ints(vec![stride; n])),
                        ("low", Attr::ints(vec![low; n])),
                        ("high", Attr::ints(vec![high; n])),
                        ("dilation", Attr::ints(vec![dilation; n])),
                        ("group", Attr::int(group)),
                    ];
                    let y = c.apply("conv_integer_channels_last", &attrs, &[x, w, p, z]);
                    vec![followed(c, y, n as i64 + 1, kind, left)]
                });
            }
        }
    }
}

/// Extents of the image, of windows, strides, padding before and after, dilation.
type Pooling = (&'static [usize], &'static [i64], i64, [i64; 2], i64);

const POOLINGS: &[Pooling] = &[
    (&[1, 5, 23, 31], &[3, 3], 2, [1, 1], 1),
    (&[2, 70, 8, 7], &[2, 2], 2, [0, 1], 1),
    (&[1, 147, 13, 13], &[3, 2], 1, [1, 0], 1),
    (&[1, 3, 9, 40], &[3, 3], 3, [0, 0], 2),
    (&[2, 18, 33], &[4], 3, [1, 2], 1),
    (&[1, 18, 6, 5, 7], &[3, 2, 3], 2, [1, 0], 1),
    // Windows that read nothing, and a part of the image that none reads.
    (&[1, 2, 5, 5], &[2, 2], 2, [3, 2], 1),
    (&[1, 2, 7, 9], &[2, 2], 1, [-1, 0], 1),
    (&[1, 0, 4, 4], &[2, 2], 2, [0, 0], 1),
];

#[test]
fn largest_bytes_of_windows() {
    for &(x, window, stride, [low, high], dilation) in POOLINGS {
        for dtype in [DType::U8, DType::I8] {
            for op in ["maxpool", "maxpool_channels_last"] {
                check(&format!("{op} {x:?} {window:?} {dtype}"), EXACT, |c| {
                    let last = [&x[..1], &x[2..], &x[1..2]].concat();
                    let x = bytes(c, dtype, if op == "maxpool" { x } else { &last });
                    let x = c.given(x);
                    let all = |v: i64| Attr::ints(vec![v; window.len()]);
                    let attrs = [
                        ("window", Attr::ints(window.to_vec())),
                        ("stride", all(stride)),
                        ("low", all(low)),
                        ("high", all(high)),
                        ("dilation", all(dilation)),
                    ];
                    vec![c.apply(op, &attrs, &[x])]
                });
            }
        }
    }
}

#[test]
fn layouts_of_bytes() {
    let shapes: [&[usize]; 6] =
        [&[2, 70, 9, 7], &[1, 3, 40, 33], &[1, 16, 16], &[1, 64, 8, 16], &[1, 17, 130], &[1, 5, 0]];
    for shape in shapes {
        for dtype in [DType::U8, DType::I8, DType::Bool] {
            for op in ["channels_last", "channels_first"] {
                check(&format!("{op} {shape:?} {dtype}"), EXACT, |c| {
                    let x = c.input(dtype, shape);
                    vec![c.apply(op, &[], &[x])]
                });
            }
        }
    }
}
