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
            (3, 900, 40),
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

#[test]
fn first_extremes_along_an_axis() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for (shape, axis) in [
            ([2, 5, 1], 1),
            ([1, 130, 1], 1),
            ([3, 1, 4], 1),
            ([2, 7, 67], 1),
            ([2, 3, 129], 2),
            ([64, 2, 3], 0),
            ([0, 3, 4], 1),
            ([3, 4, 0], 1),
        ] {
            check(&format!("{dtype} {shape:?} {axis}"), EXACT, |c| {
                let attrs = [("axis", Attr::int(axis))];
                let plain = c.input(dtype, &shape);
                let mixed = c.given(mixed(dtype, &shape));
                let count = shape.iter().product();
                let zeros: Vec<f64> = (0..count).map(|i| [-0.0, 0.0][i % 2]).collect();
                let zeros = c.given(Tensor::from_f64(dtype, shape.to_vec(), &zeros));
                let mut out = vec![];
                for op in ["first_greatest", "first_least", "hardmax"] {
                    out.extend([plain, mixed, zeros].map(|x| c.apply(op, &attrs, &[x])));
                }
                out
            });
        }
    }
}

#[test]
fn elements_beyond_the_borders() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I32, DType::U8, DType::Bool] {
        for (shape, low, high) in [
            ([2, 3, 5, 7], [0, 0, 1, 1], [0, 0, 1, 1]),
            ([1, 2, 9, 40], [0, 1, 3, 2], [0, 0, -2, 3]),
            ([1, 1, 2, 33], [0, 0, 0, 31], [0, 0, 0, 20]),
            ([1, 2, 3, 4], [0, 0, -1, 0], [0, 0, -1, -3]),
            ([2, 2, 1, 1], [0, 0, 1, 1], [0, 0, 0, 2]),
            ([1, 2, 3, 4], [0, 0, -3, 0], [0, 0, 0, 1]),
        ] {
            check(&format!("{dtype} {shape:?} {low:?} {high:?}"), EXACT, |c| {
                let attrs = [("low", Attr::ints(low)), ("high", Attr::ints(high))];
                let x = if dtype == DType::Bool {
                    c.input(dtype, &shape)
                } else {
                    c.given(mixed(dtype, &shape))
                };
                let t = c.apply("transpose", &[("perm", Attr::ints([0, 1, 2, 3]))], &[x]);
                let ops = ["pad_edge", "pad_wrap", "pad_reflect"];
                let wide = shape[2] > 1 && shape[3] > 31;
                let ops = if wide { &ops[..] } else { &ops[..2] };
                ops.iter().map(|op| c.apply(op, &attrs, &[t])).collect()
            });
        }
    }
}

#[test]
fn short_lines_of_copies() {
    for dtype in [DType::F32, DType::I8, DType::F64] {
        for (a, b, times) in [(1, 1, 2), (3, 5, 2), (4, 56, 2), (2, 33, 3), (3, 20, 7), (0, 4, 2)] {
            check(&format!("{dtype} {a} {b} {times}"), EXACT, |c| {
                let x = c.given(mixed(dtype, &[a, b]));
                let all = [Attr::ints([(a * b * times * times) as i64])];
                let [all] = all.map(|a| [("shape", a)]);
                let e = c.broadcast(x, &[0, 2], &[a, times, b, times]);
                let mut out = vec![c.apply("reshape", &all, &[e])];
                for perm in [[1, 2, 0], [2, 0, 1], [2, 1, 0], [0, 2, 1]] {
                    let y = c.given(mixed(dtype, &[a, b, times]));
                    let t = c.apply("transpose", &[("perm", Attr::ints(perm))], &[y]);
                    let flat = [("shape", Attr::ints([(a * b * times) as i64]))];
                    out.push(c.apply("reshape", &flat, &[t]));
                }
                out
            });
        }
    }
}

#[test]
fn windows_of_pooling_that_step() {
    for (size, stride, dilation, low, high, shape) in [
        ([3, 3], [2, 2], [1, 1], [1, 1], [1, 1], [1, 2, 56, 56]),
        ([3, 3], [2, 2], [1, 1], [0, 0], [1, 1], [2, 1, 9, 70]),
        ([2, 2], [2, 2], [1, 1], [0, 0], [0, 0], [1, 3, 7, 33]),
        ([7, 4], [3, 3], [1, 2], [2, 3], [3, 0], [1, 1, 20, 21]),
        ([6, 1], [1, 1], [2, 1], [5, 0], [5, 0], [1, 2, 3, 5]),
        ([3, 3], [1, 2], [1, 1], [-1, -2], [0, 0], [1, 1, 8, 12]),
        ([2, 3], [1, 1], [1, 1], [0, 1], [0, 1], [1, 1, 2, 1]),
        ([3, 3], [2, 2], [1, 1], [1, 1], [1, 1], [0, 2, 5, 5]),
    ] {
        for op in ["maxpool", "sumpool"] {
            let tolerance = if op == "maxpool" { EXACT } else { close(DType::F32) };
            check(&format!("{op} {size:?} {stride:?} {dilation:?} {shape:?}"), tolerance, |c| {
                let attrs = [
                    ("window", Attr::ints(size)),
                    ("stride", Attr::ints(stride)),
                    ("low", Attr::ints(low)),
                    ("high", Attr::ints(high)),
                    ("dilation", Attr::ints(dilation)),
                ];
                let x = c.input(DType::F32, &shape);
                let y = c.given(mixed(DType::F32, &shape));
                vec![c.apply(op, &attrs, &[x]), c.apply(op, &attrs, &[y])]
            });
        }
    }
}

#[test]
fn sines_and_cosines_near_and_far() {
    let mut values = vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-45, -1e-40];
    values.extend((0..2000).map(|i| (i - 1000) as f64 * std::f64::consts::FRAC_PI_4));
    values.extend((0..200).map(|i| (f64::from(i) - 100.0).powi(3) * 0.77));
    values.extend([65536.0, -65536.0, 65537.0, 1e6, -3e9, 1e30, 3.4e38]);
    for len in [1, 7, 16, values.len()] {
        check(&format!("{len} numbers"), Tolerance(1e-7, 1e-6), |c| {
            let x = c.given(Tensor::from_f64(DType::F32, vec![len], &values[..len]));
            vec![c.apply("sin", &[], &[x]), c.apply("cos", &[], &[x])]
        });
    }
}

#[test]
fn elements_by_their_numbers() {
    for index in [DType::I64, DType::I32] {
        for (shape, axis, count) in [
            ([3, 5, 1], 1, 4),
            ([2, 4, 7], 1, 9),
            ([2, 3, 6], 2, 5),
            ([4, 2, 3], 0, 1),
            ([2, 3, 4], 1, 0),
        ] {
            check(&format!("{index} {shape:?} {axis} {count}"), EXACT, |c| {
                let x = c.given(mixed(DType::F32, &shape));
                let mut taken = shape;
                taken[axis] = count;
                let n = shape[axis] as i64;
                let all: usize = taken.iter().product();
                let numbers: Vec<f64> =
                    (0..all as i64).map(|i| (i * 7 % (2 * n) - n) as f64).collect();
                let i = c.given(Tensor::from_f64(index, taken.to_vec(), &numbers));
                vec![c.apply("gather_elements", &[("axis", Attr::int(axis as i64))], &[x, i])]
            });
        }
    }
}

#[test]
fn choices_and_casts_of_many_elements() {
    for n in [0, 1, 17, 1030] {
        check(&format!("{n} elements"), EXACT, |c| {
            let x = c.given(mixed(DType::F32, &[n]));
            let y = c.input(DType::F32, &[n]);
            let below = c.apply("less", &[], &[x, y]);
            let mut out = vec![c.apply("select", &[], &[below, x, y])];
            for to in [DType::I8, DType::I32, DType::I64, DType::U16, DType::Bool] {
                let cut = c.apply("cast", &[("to", Attr::DType(to))], &[y]);
                out.push(c.apply("cast", &[("to", Attr::DType(DType::F32))], &[cut]));
                out.push(cut);
            }
            for to in [DType::F32, DType::F16, DType::I64] {
                out.push(c.apply("cast", &[("to", Attr::DType(to))], &[below]));
            }
            out
        });
    }
}

#[test]
fn elements_of_all_rows_by_the_same_numbers() {
    for (b, rows, n, count, taps) in [
        (1, 8, 30, 16, 4),
        (2, 11, 7, 9, 3),
        (1, 1, 1, 1, 1),
        (2, 3, 0, 4, 2),
        (1, 9, 5, 0, 2),
        (0, 2, 3, 4, 1),
        (1, 3, 6, 7, 0),
    ] {
        check(&format!("{b} {rows} {n} {count} {taps}"), close(DType::F32), |c| {
            let numbers = |size: usize| -> Vec<f64> {
                (0..size).map(|i| (i * 7 % (n + 3)) as f64 - 1.0).collect()
            };
            let mut out = vec![];
            for x in [c.tensor(DType::F32, &[b, rows, n]), mixed(DType::F32, &[b, rows, n])] {
                let x = c.given(x);
                let one = Tensor::from_f64(DType::I64, vec![b, count], &numbers(b * count));
                let one = c.given(one);
                out.push(c.apply("numbered", &[], &[x, one]));
                let shape = vec![b, count, taps];
                let i = Tensor::from_f64(DType::I64, shape.clone(), &numbers(b * count * taps));
                let (i, w) = (c.given(i), c.input(DType::F32, &shape));
                out.push(c.apply("numbered_sum", &[], &[x, i, w]));
            }
            out
        });
    }
}
