//! Kernels that take rows, lines and planes of every length: ends of vectors, several rows at once, other orders.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor, Value};

/// Lengths around those of vectors, and some that are long.
const LENGTHS: [usize; 17] = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 49, 64, 70, 197, 2100];

#[test]
fn norms_and_softmax_of_rows_of_every_length() {
    let t = Tolerance(2e-5, 2e-5);
    for n in LENGTHS {
        for rows in [1, 7, 8, 9, 19] {
            check(&format!("{rows} rows of {n}"), t, |c| {
                let x = c.input(DType::F32, &[rows, n]);
                let (g, z) = (c.constant(DType::F32, &[n]), c.constant(DType::F32, &[n]));
                let (eps, axis) = ([("eps", Attr::float(1e-2))], [("axis", Attr::int(1))]);
                let norms =
                    [c.apply("layernorm", &eps, &[x, g, z]), c.apply("rmsnorm", &eps, &[x, g])];
                let softmax = ["softmax", "log_softmax"].map(|op| c.apply(op, &axis, &[x]));
                [norms, softmax].concat()
            });
        }
    }
}

#[test]
fn a_norm_of_rows_far_from_zero_keeps_its_digits() {
    for n in [32, 64, 100, 768] {
        check(&format!("{n}"), Tolerance(2e-3, 2e-3), |c| {
            let near = c.tensor(DType::F32, &[9, n]).to_f64();
            let far: Vec<f64> = near.iter().map(|v| f64::from((v + 500.0) as f32)).collect();
            let x = c.given(Tensor::from_f64(DType::F32, vec![9, n], &far));
            let (g, z) = (c.constant(DType::F32, &[n]), c.constant(DType::F32, &[n]));
            vec![c.apply("layernorm", &[("eps", Attr::float(1e-5))], &[x, g, z])]
        });
    }
}

#[test]
fn norms_of_rows_that_lie_side_by_side() {
    let t = Tolerance(2e-5, 2e-5);
    for (shape, perm) in [
        (vec![2, 40, 5, 9], vec![0, 2, 3, 1]),
        (vec![1, 3, 70, 1], vec![0, 2, 3, 1]),
        (vec![5, 4, 6, 33], vec![0, 2, 1, 3]),
        (vec![33, 90], vec![1, 0]),
        (vec![1, 100, 40, 20], vec![0, 2, 3, 1]),
    ] {
        for dtype in [DType::F32, DType::F16] {
            let t = if dtype == DType::F32 { t } else { Tolerance(2e-2, 2e-2) };
            check(&format!("{dtype} {shape:?} {perm:?}"), t, |c| {
                let x = c.input(dtype, &shape);
                let perm = perm.iter().map(|p| *p as i64);
                let x = c.apply("transpose", &[("perm", Attr::ints(perm))], &[x]);
                let n = *c.shape(x).last().unwrap_or(&1);
                let (g, z) = (c.constant(dtype, &[n]), c.constant(dtype, &[n]));
                let eps = [("eps", Attr::float(1e-2))];
                vec![c.apply("layernorm", &eps, &[x, g, z]), c.apply("rmsnorm", &eps, &[x, g])]
            });
        }
    }
}

#[test]
fn reductions_of_rows_of_every_length() {
    for n in LENGTHS {
        for special in [0.5, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            check(&format!("{n} {special}"), Tolerance(2e-4, 2e-5), |c| {
                let mut values = c.tensor(DType::F32, &[19, n]).to_f64();
                values.iter_mut().step_by(13).for_each(|v| *v = special);
                let x = c.given(Tensor::from_f64(DType::F32, vec![19, n], &values));
                let axes = [("axes", Attr::ints([1]))];
                ["sum", "max", "min"].iter().map(|op| c.apply(op, &axes, &[x])).collect()
            });
        }
    }
}

#[test]
fn pools_of_planes_of_every_width() {
    for wide in [1, 2, 5, 7, 8, 14, 15, 16, 17, 28, 33, 57] {
        for (size, stride, pad) in
            [(3, 1, 1), (3, 2, 1), (2, 2, 0), (5, 1, 2), (13, 1, 6), (3, 3, 1)]
        {
            if wide + 2 * pad < size {
                continue;
            }
            for special in [0.0, -0.0, f64::NAN] {
                for op in ["maxpool", "sumpool"] {
                    check(&format!("{op} {wide} {size} {stride}"), Tolerance(1e-5, 1e-5), |c| {
                        let shape = [2, 3, wide + 1, wide];
                        let mut values = c.tensor(DType::F32, &shape).to_f64();
                        values.iter_mut().step_by(31).for_each(|v| *v = special);
                        let x = c.given(Tensor::from_f64(DType::F32, shape.to_vec(), &values));
                        let two = |v: usize| Attr::ints([v as i64; 2]);
                        let attrs = [
                            ("window", two(size)),
                            ("stride", two(stride)),
                            ("low", two(pad)),
                            ("high", two(pad)),
                            ("dilation", two(1)),
                        ];
                        vec![c.apply(op, &attrs, &[x])]
                    });
                }
            }
        }
    }
}

#[test]
fn convolutions_of_channels_by_themselves_of_every_width() {
    for wide in [1, 5, 7, 8, 14, 17, 28, 33] {
        for (size, stride, pad, dilation) in
            [(3, 1, 1, 1), (3, 2, 1, 1), (5, 2, 2, 1), (3, 2, 2, 2), (3, 3, 1, 1), (2, 2, 0, 1)]
        {
            if wide + 2 * pad < dilation * (size - 1) + 1 {
                continue;
            }
            check(&format!("{wide} {size} {stride} {dilation}"), close(DType::F32), |c| {
                let x = c.input(DType::F32, &[2, 5, wide + 2, wide]);
                let w = c.constant(DType::F32, &[5, 1, size, size]);
                let two = |v: usize| Attr::ints([v as i64; 2]);
                let attrs = [
                    ("stride", two(stride)),
                    ("low", two(pad)),
                    ("high", two(pad)),
                    ("dilation", two(dilation)),
                    ("group", Attr::int(5)),
                ];
                vec![c.apply("conv", &attrs, &[x, w])]
            });
        }
    }
}

#[test]
fn chains_of_steps_on_rows_of_every_length() {
    for n in LENGTHS {
        check(&format!("{n}"), Tolerance(1e-5, 1e-5), |c| {
            let shape = [2, 19, n];
            let x = c.input(DType::F32, &shape);
            let scale = c.input(DType::F32, &[19]);
            let scale = c.broadcast(scale, &[1], &shape);
            let shift = c.constant(DType::F32, &[19]);
            let shift = c.broadcast(shift, &[1], &shape);
            let column = c.input(DType::F32, &[n]);
            let column = c.broadcast(column, &[2], &shape);
            let gate = c.input(DType::F32, &[2, 19]);
            let gate = c.broadcast(gate, &[0, 1], &shape);
            let other = c.input(DType::F32, &shape);
            let affine = |c: &mut Case<'_>, x| {
                let y = c.apply("mul", &[], &[x, scale]);
                c.apply("add", &[], &[y, shift])
            };
            let a = affine(c, x);
            let b = c.apply("tanh", &[], &[a]);
            let by_column = c.apply("mul", &[], &[x, column]);
            let gated = c.apply("mul", &[], &[x, gate]);
            let sum = c.apply("add", &[], &[x, other]);
            let sum = affine(c, sum);
            let sum = c.apply("div", &[], &[sum, other]);
            let difference = c.apply("sub", &[], &[other, x]);
            vec![a, b, by_column, gated, sum, difference]
        });
    }
}

#[test]
fn casts_of_every_length_and_size() {
    let types = [
        DType::F32,
        DType::F16,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::I64,
        DType::U32,
        DType::Bool,
    ];
    for from in types {
        for to in types {
            for (n, far) in [(1, false), (100, false), (5000, false), (5000, true)] {
                check(&format!("{from} {to} {n} {far}"), Tolerance(0.0, 0.0), |c| {
                    let mut values = c.tensor(from, &[n]).to_f64();
                    if far && from == DType::F32 && !to.is_float() {
                        values[n / 2] = 3e9;
                        values[n - 1] = -5e12;
                    }
                    let x = c.given(Tensor::from_f64(from, vec![n], &values));
                    vec![c.apply("cast", &[("to", Attr::DType(to))], &[x])]
                });
            }
        }
    }
}

#[test]
fn short_runs_are_put_together() {
    for dtype in [DType::F32, DType::U8, DType::F16, DType::I64] {
        for runs in
            [vec![1, 1], vec![1, 1, 1], vec![2, 2], vec![4, 4], vec![3, 1, 8], vec![40, 0, 5]]
        {
            check(&format!("{dtype} {runs:?}"), Tolerance(0.0, 0.0), |c| {
                let rows = 2100;
                let part = |c: &mut Case<'_>, &n: &usize| c.input(dtype, &[rows, n]);
                let parts: Vec<Value> = runs.iter().map(|n| part(c, n)).collect();
                let turned = runs.iter().map(|n| {
                    let x = c.input(dtype, &[*n, rows]);
                    c.apply("transpose", &[("perm", Attr::ints([1, 0]))], &[x])
                });
                let turned: Vec<Value> = turned.collect();
                let axis = [("axis", Attr::int(1))];
                let mut join = |all: &[Value]| {
                    let all = all.iter().copied().reduce(|a, b| c.apply("concat", &axis, &[a, b]));
                    all.expect("a part")
                };
                vec![join(&parts), join(&turned)]
            });
        }
    }
}

#[test]
fn axes_change_places_and_repeat() {
    for dtype in [DType::F32, DType::U8, DType::F16, DType::I64] {
        for (shape, perm) in [
            (vec![2, 3, 61, 35], vec![0, 2, 3, 1]),
            (vec![2, 61, 35, 3], vec![0, 3, 1, 2]),
            (vec![70, 41], vec![1, 0]),
            (vec![4500, 2], vec![1, 0]),
            (vec![3, 1500, 4], vec![2, 0, 1]),
            (vec![3, 4, 20, 9], vec![0, 2, 1, 3]),
            (vec![6, 14, 2, 14, 2], vec![2, 4, 0, 1, 3]),
        ] {
            check(&format!("{dtype} {shape:?} {perm:?}"), Tolerance(0.0, 0.0), |c| {
                let x = c.input(dtype, &shape);
                let perm = perm.iter().map(|p| *p as i64);
                vec![c.apply("transpose", &[("perm", Attr::ints(perm))], &[x])]
            });
        }
        for (h, w, down, across) in [(14, 14, 2, 2), (7, 9, 3, 2), (5, 20, 2, 3), (4, 30, 1, 2)] {
            check(&format!("{dtype} {h} {w} {down} {across}"), Tolerance(0.0, 0.0), |c| {
                let x = c.input(dtype, &[5, h, w]);
                let y = c.broadcast(x, &[0, 1, 3], &[5, h, down, w, across]);
                let shape = [5, h * down, w * across].map(|n| n as i64);
                vec![c.apply("reshape", &[("shape", Attr::ints(shape))], &[y])]
            });
        }
    }
}
