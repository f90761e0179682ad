//! Pooling, and copies of repeated elements, against the reference interpreter.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor};

#[test]
fn pools() {
    for op in ["maxpool", "sumpool"] {
        for (s, d, low) in [(1, 1, 0), (2, 1, 1), (3, 2, 0)] {
            check(op, Tolerance(1e-5, 1e-6), |c| {
                let x = c.input(DType::F32, &[2, 3, 9, 8]);
                let two = |a, b| Attr::ints([a, b]);
                let attrs = [
                    ("window", two(3, 2)),
                    ("stride", two(s, s)),
                    ("low", two(low, low)),
                    ("high", two(1, 0)),
                    ("dilation", two(d, 1)),
                ];
                vec![c.apply(op, &attrs, &[x])]
            });
        }
    }
}

#[test]
fn pools_of_three_axes() {
    let three = |v: [i64; 3]| Attr::ints(v);
    let cases = [
        ([2, 3, 5, 6, 9], [2, 2, 2], [2, 2, 2], [0, 0, 0], [0, 1, 0], [1, 1, 1]),
        ([1, 2, 6, 7, 40], [3, 3, 3], [1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]),
        ([1, 2, 7, 6, 35], [3, 3, 3], [2, 2, 2], [1, 0, 1], [0, 1, 1], [1, 2, 1]),
        ([1, 1, 1, 5, 4], [1, 2, 3], [1, 3, 1], [0, 1, 2], [0, 0, 1], [1, 2, 1]),
        ([1, 2, 4, 5, 6], [4, 4, 2], [1, 1, 1], [1, 2, 0], [2, 1, 0], [1, 1, 2]),
        ([1, 0, 4, 5, 6], [2, 2, 2], [1, 1, 1], [0, 0, 0], [0, 0, 0], [1, 1, 1]),
    ];
    for (x, window, stride, low, high, dilation) in cases {
        for op in ["maxpool", "sumpool"] {
            for special in [0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                check(&format!("{op} {x:?} {special}"), Tolerance(1e-5, 1e-6), |c| {
                    let mut values = c.tensor(DType::F32, &x).to_f64();
                    if special != 0.0 {
                        values.iter_mut().step_by(37).for_each(|v| *v = special);
                    }
                    let x = c.given(Tensor::from_f64(DType::F32, x.to_vec(), &values));
                    let attrs = [
                        ("window", three(window)),
                        ("stride", three(stride)),
                        ("low", three(low)),
                        ("high", three(high)),
                        ("dilation", three(dilation)),
                    ];
                    vec![c.apply(op, &attrs, &[x])]
                });
            }
        }
    }
}

#[test]
fn elements_repeated_along_axes() {
    for dtype in [DType::F32, DType::F64, DType::I64, DType::I8, DType::F16] {
        for (down, across) in [(2, 2), (1, 2), (3, 3), (2, 1), (1, 17)] {
            check(&format!("{dtype:?} {down} {across}"), Tolerance(0.0, 0.0), |c| {
                let x = c.input(dtype, &[3, 5, 7]);
                let turned = c.apply("transpose", &[("perm", Attr::ints([0, 2, 1]))], &[x]);
                let each = |c: &mut Case<'_>, x, [h, w]: [usize; 2]| {
                    let y = c.broadcast(x, &[0, 1, 3], &[3, h, down, w, across]);
                    let shape = [3, h * down, w * across].map(|n| n as i64);
                    c.apply("reshape", &[("shape", Attr::ints(shape))], &[y])
                };
                vec![each(c, x, [5, 7]), each(c, turned, [7, 5])]
            });
        }
    }
}
