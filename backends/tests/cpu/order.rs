//! Places in an order, extremes with NaN and signed zeros, wide windows, and copies in blocks.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor};

const EXACT: Tolerance = Tolerance(0.0, 0.0);

/// Numbers with many equal ones, and what has a place of its own in the order.
fn mixed(dtype: DType, shape: &[usize]) -> Tensor {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
    let values: Vec<f64> = (0..shape.iter().product::<usize>())
        .map(|i| match i * 7 % 11 {
            k @ 0..5 if dtype.is_float() && i % 3 == 0 => special[k],
            k => (i * i % 13) as f64 - if dtype.is_float() { 6.5 } else { k as f64 },
        })
        .collect();
    Tensor::from_f64(dtype, shape.to_vec(), &values)
}

#[test]
fn places_of_the_first_elements() {
    for dtype in [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
    ] {
        for (b, n, count) in [
            (0, 3, 2),
            (2, 0, 0),
            (3, 1, 1),
            (2, 5, 0),
            (2, 31, 31),
            (3, 70, 5),
            (2, 129, 32),
            (2, 129, 33),
            (2, 100, 100),
        ] {
            for largest in [true, false] {
                check(&format!("{dtype} {b} {n} {count} {largest}"), EXACT, |c| {
                    let x = c.given(mixed(dtype, &[b, n]));
                    let attrs = [("count", Attr::int(count)), ("largest", Attr::Bool(largest))];
                    let y = c.apply("sort_places", &attrs, &[x]);
                    let t = c.given(mixed(dtype, &[n, b]));
                    let t = c.apply("transpose", &[("perm", Attr::ints([1, 0]))], &[t]);
                    vec![y, c.apply("sort_places", &attrs, &[t])]
                });
            }
        }
    }
}

#[test]
fn extremes_keep_nan_and_the_signs_of_zeros() {
    for n in [1, 2, 16, 63, 64, 65, 128, 200] {
        for op in ["max", "min", "sum"] {
            check(&format!("{op} {n}"), close(DType::F32), |c| {
                let x = c.given(mixed(DType::F32, &[9, n]));
                vec![c.apply(op, &[("axes", Attr::ints([1]))], &[x])]
            });
        }
        for (zeros, op, want) in [
            ([0.0, -0.0], "max", 0.0f32),
            ([-0.0, 0.0], "max", 0.0),
            ([0.0, -0.0], "min", -0.0),
            ([-0.0, 0.0], "min", -0.0),
        ] {
            let library = library();
            let mut c = Case::new(&library);
            let values: Vec<f64> = (0..n).map(|i| zeros[i % 2]).collect();
            let want = if n == 1 { zeros[0] as f32 } else { want };
            let x = c.given(Tensor::from_f64(DType::F32, vec![1, n], &values));
            let y = c.apply(op, &[("axes", Attr::ints([1]))], &[x]);
            let (program, inputs) = c.finish(&[y]);
            let got = run(&program, &inputs, 1).expect("it runs")[0].to_f64()[0] as f32;
            assert_eq!(
                got.to_bits(),
                want.to_bits(),
                "{op} of {n} zeros that begin with {zeros:?}"
            );
        }
    }
}

#[test]
fn softmax_of_rows_of_every_length() {
    for n in [1, 7, 16, 31, 64, 65, 128, 200] {
        for op in ["softmax", "log_softmax"] {
            check(&format!("{op} {n}"), Tolerance(1e-6, 1e-5), |c| {
                let x = c.input(DType::F32, &[5, n]);
                let y = c.apply(op, &[("axis", Attr::int(1))], &[x]);
                let values = (0..3 * n).map(|i| match i {
                    i if i == n / 2 => f64::NAN,
                    i if i == n + n / 2 => f64::INFINITY,
                    i if i > 2 * n => f64::NEG_INFINITY,
                    i => (i % 5) as f64 * 30.0,
                });
                let x = Tensor::from_f64(DType::F32, vec![3, n], &values.collect::<Vec<_>>());
                let x = c.given(x);
                vec![y, c.apply(op, &[("axis", Attr::int(1))], &[x])]
            });
        }
    }
}

#[test]
fn wide_windows_of_pooling() {
    for (size, dilation, shape) in [
        ([5, 5], [1, 1], [2, 3, 13, 17]),
        ([5, 5], [1, 1], [1, 1, 1, 40]),
        ([3, 5], [2, 1], [1, 2, 9, 35]),
        ([7, 2], [1, 3], [1, 2, 9, 66]),
        ([13, 1], [1, 1], [1, 2, 20, 3]),
    ] {
        check(&format!("{size:?} {dilation:?} {shape:?}"), EXACT, |c| {
            let x = c.given(mixed(DType::F32, &shape));
            let pad: Vec<i64> = (0..2).map(|i| (size[i] - 1) * dilation[i] / 2).collect();
            let attrs = [
                ("window", Attr::ints(size)),
                ("stride", Attr::ints([1, 1])),
                ("low", Attr::ints(pad.clone())),
                ("high", Attr::ints(pad)),
                ("dilation", Attr::ints(dilation)),
            ];
            vec![c.apply("maxpool", &attrs, &[x])]
        });
    }
}

#[test]
fn copies_that_turn_blocks_and_that_repeat_elements() {
    for dtype in [DType::F32, DType::I32, DType::F64, DType::I8] {
        for (a, b) in [(1, 1), (8, 8), (7, 9), (16, 17), (33, 40), (0, 4)] {
            check(&format!("{dtype} {a} {b}"), EXACT, |c| {
                let x = c.given(mixed(dtype, &[2, a, b]));
                let t = c.apply("transpose", &[("perm", Attr::ints([0, 2, 1]))], &[x]);
                let turned =
                    c.apply("reshape", &[("shape", Attr::ints([2 * (a * b) as i64]))], &[t]);
                let e = c.broadcast(x, &[0, 1, 2], &[2, a, b, 6]);
                let all = 12 * (a * b) as i64;
                vec![turned, c.apply("reshape", &[("shape", Attr::ints([all]))], &[e])]
            });
        }
    }
}

#[test]
fn running_sums_and_triangles_of_wide_rows() {
    for dtype in [DType::F32, DType::F64, DType::I32, DType::I64] {
        for shape in [[2, 5, 1], [1, 1, 64], [2, 3, 130], [0, 3, 4], [2, 0, 3], [2, 3, 0]] {
            check(&format!("{dtype} {shape:?}"), close(dtype), |c| {
                let x = c.input(dtype, &shape);
                let mut out = vec![];
                for (axis, e, r) in [(1, false, false), (1, true, true), (2, false, true)] {
                    let flags = [("exclusive", Attr::Bool(e)), ("reverse", Attr::Bool(r))];
                    let attrs = [&[("axis", Attr::int(axis))], &flags[..]].concat();
                    out.push(c.apply("cumsum", &attrs, &[x]));
                }
                for (d, u) in [(0, true), (500, true), (-500, true), (1, false), (-500, false)] {
                    let attrs = [("diagonal", Attr::int(d)), ("upper", Attr::Bool(u))];
                    out.push(c.apply("triangle", &attrs, &[x]));
                }
                out
            });
        }
    }
}
