//! Every kernel by itself.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor};

const EXACT: Tolerance = Tolerance(0.0, 0.0);

fn special(dtype: DType) -> Tensor {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        3.7,
        100.0,
        -100.0,
        1e-40,
        -1e-40,
        1e30,
        -1e30,
        0.3,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    Tensor::from_f64(dtype, vec![values.len()], &values)
}

#[test]
fn unary_functions_on_special_values() {
    for op in [
        "neg", "abs", "exp", "log", "sqrt", "rsqrt", "recip", "erf", "tanh", "sigmoid", "sin",
        "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "floor",
        "ceil", "round", "sign",
    ] {
        for dtype in [DType::F32, DType::F64] {
            // A denormal result is compared by its distance; f32 overflows where f64 does not.
            let values = special(dtype);
            let mut values = values.to_f64();
            if dtype == DType::F32 && matches!(op, "exp" | "sinh" | "cosh") {
                values.retain(|v| v.abs() < 80.0 || !v.is_finite());
            }
            if dtype == DType::F32 && matches!(op, "recip" | "rsqrt") {
                values.retain(|v| *v == 0.0 || v.abs() > 1e-30);
            }
            let t = Tensor::from_f64(dtype, vec![values.len()], &values);
            let u = dtype.unit_roundoff();
            check(op, Tolerance(u * 1e-30, u * 8.0), |c| {
                let x = c.given(t);
                vec![c.apply(op, &[], &[x])]
            });
        }
    }
}

#[test]
fn binary_functions_of_every_dtype() {
    for dtype in DType::ALL {
        for op in [
            "add",
            "sub",
            "mul",
            "maximum",
            "minimum",
            "equal",
            "less",
            "less_equal",
            "remainder",
            "modulo",
            "div",
            "pow",
        ] {
            let number = dtype != DType::Bool || matches!(op, "equal" | "less" | "less_equal");
            let number = number && !dtype.is_small() || op == "equal" || op.starts_with("less");
            let fits =
                number && (op != "modulo" || dtype.is_int()) && (op != "pow" || dtype.is_float());
            if !fits {
                continue;
            }
            // Quotients of rounded operands round like the reference interpreter's; a remainder near its divisor does not.
            let t = Tolerance(dtype.unit_roundoff() * 4.0, dtype.unit_roundoff() * 4.0);
            check(&format!("{op} {dtype}"), t, |c| {
                let a = c.input(dtype, &[5, 7]);
                let mut b = c.tensor(dtype, &[5, 7]);
                if matches!(op, "div" | "remainder" | "modulo") {
                    let values: Vec<f64> = b.to_f64().iter().map(|v| v.abs() + 1.0).collect();
                    b = Tensor::from_f64(dtype, vec![5, 7], &values);
                }
                let b = c.given(b);
                vec![c.apply(op, &[], &[a, b])]
            });
        }
    }
}

#[test]
fn casts_between_all_dtypes() {
    for from in DType::ALL {
        for to in DType::ALL {
            check(&format!("{from} to {to}"), EXACT, |c| {
                let values = [0.0, 1.0, 2.0, 100.0, 3.0, 5.0, -0.75, 1e6];
                let x = c.given(Tensor::from_f64(from, vec![8], &values));
                vec![c.apply("cast", &[("to", Attr::DType(to))], &[x])]
            });
        }
    }
    for to in [DType::I32, DType::U8, DType::I64, DType::Bool] {
        check(&format!("special to {to}"), EXACT, |c| {
            let x = c.given(Tensor::from_f64(
                DType::F32,
                vec![6],
                &[-2.7, 2.7, f64::NAN, 0.0, 0.5, -0.5],
            ));
            vec![c.apply("cast", &[("to", Attr::DType(to))], &[x])]
        });
    }
}

#[test]
fn logic_and_choice() {
    check("select", EXACT, |c| {
        let (a, b) = (c.input(DType::F32, &[3, 4]), c.input(DType::F32, &[3, 4]));
        let l = c.apply("less", &[], &[a, b]);
        let e = c.apply("logical_not", &[], &[l]);
        let x = c.apply("logical_xor", &[], &[l, e]);
        let y = c.apply("logical_and", &[], &[l, x]);
        let n = c.apply("is_nan", &[], &[a]);
        let z = c.apply("logical_or", &[], &[y, n]);
        vec![c.apply("select", &[], &[z, a, b]), z]
    });
}

#[test]
fn products() {
    for dtype in
        [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::U8, DType::I64]
    {
        for (batch, m, k, n) in [
            (vec![], 3, 4, 5),
            (vec![2], 1, 7, 33),
            (vec![2, 3], 15, 65, 31),
            (vec![], 17, 300, 40),
            (vec![0], 2, 2, 2),
            (vec![2], 0, 3, 4),
            (vec![], 3, 0, 4),
            (vec![3], 4, 1, 1),
        ] {
            let shape = |a: usize, b: usize| [batch.as_slice(), &[a, b]].concat();
            let sum = dtype.unit_roundoff() * (64 + 4 * k) as f64;
            check(&format!("matmul {dtype} {batch:?} {m} {k} {n}"), Tolerance(sum, sum), |c| {
                let (a, b) = (c.input(dtype, &shape(m, k)), c.input(dtype, &shape(k, n)));
                let y = c.apply("matmul", &[], &[a, b]);
                // Transposed operands, and a constant one that repeats over the batch.
                let rank = batch.len() as i64;
                let perm = (0..rank).chain([rank + 1, rank]);
                let t = c.input(dtype, &shape(n, k));
                let t = c.apply("transpose", &[("perm", Attr::ints(perm.clone()))], &[t]);
                let z = c.apply("matmul", &[], &[a, t]);
                let w = c.constant(dtype, &[k, n]);
                let w = c.broadcast(w, &[rank, rank + 1], &shape(k, n));
                let v = c.apply("matmul", &[], &[a, w]);
                let s = c.input(dtype, &shape(k, m));
                let s = c.apply("transpose", &[("perm", Attr::ints(perm))], &[s]);
                let u = c.apply("matmul", &[], &[s, w]);
                vec![y, z, v, u]
            });
        }
    }
}

struct Geometry {
    x: Vec<usize>,
    w: Vec<usize>,
    stride: Vec<i64>,
    low: Vec<i64>,
    high: Vec<i64>,
    dilation: Vec<i64>,
    group: i64,
}

fn geometry(x: &[usize], w: &[usize], s: i64, p: i64, d: i64, group: i64) -> Geometry {
    let n = x.len() - 2;
    Geometry {
        x: x.to_vec(),
        w: w.to_vec(),
        stride: vec![s; n],
        low: vec![p; n],
        high: vec![p; n],
        dilation: vec![d; n],
        group,
    }
}

#[test]
fn convolutions() {
    let mut cases = vec![
        geometry(&[2, 3, 8, 9], &[4, 3, 3, 3], 1, 1, 1, 1),
        geometry(&[1, 3, 15, 14], &[5, 3, 7, 7], 2, 3, 1, 1),
        geometry(&[2, 4, 5, 5], &[6, 4, 1, 1], 1, 0, 1, 1),
        geometry(&[1, 4, 5, 5], &[6, 4, 1, 1], 2, 0, 1, 1),
        geometry(&[2, 4, 7, 6], &[4, 1, 3, 3], 1, 1, 1, 4),
        geometry(&[1, 4, 9, 11], &[4, 1, 3, 3], 2, 1, 1, 4),
        geometry(&[1, 4, 9, 11], &[8, 1, 3, 3], 1, 1, 2, 4),
        geometry(&[2, 6, 8, 8], &[4, 3, 3, 3], 1, 2, 2, 2),
        geometry(&[1, 2, 20], &[3, 2, 4], 2, 1, 1, 1),
        geometry(&[1, 4, 20], &[4, 1, 5], 1, 2, 1, 4),
        geometry(&[1, 2, 5, 6, 4], &[3, 2, 2, 3, 2], 1, 1, 1, 1),
        geometry(&[1, 3, 5, 6, 20], &[33, 3, 3, 3, 3], 1, 1, 1, 1),
        geometry(&[2, 4, 5, 7, 19], &[8, 2, 2, 3, 3], 2, 1, 1, 2),
        geometry(&[1, 3, 6, 7, 40], &[3, 1, 3, 3, 3], 1, 1, 1, 3),
        geometry(&[2, 3, 6, 7, 9], &[3, 1, 3, 2, 3], 2, 1, 1, 3),
        geometry(&[1, 3, 1, 7, 9], &[3, 1, 3, 2, 2], 1, 2, 2, 3),
        geometry(&[1, 2, 0, 5, 6], &[2, 1, 3, 3, 3], 1, 2, 1, 2),
        geometry(&[0, 2, 5, 5], &[3, 2, 3, 3], 1, 1, 1, 1),
        geometry(&[1, 3, 2, 2], &[2, 3, 4, 4], 1, 1, 1, 1),
        geometry(&[1, 3, 40, 40], &[33, 3, 3, 3], 1, 1, 1, 1),
        geometry(&[2, 3], &[4, 3], 1, 0, 1, 1),
    ];
    cases.push(Geometry {
        low: vec![2, 0],
        high: vec![0, 1],
        ..geometry(&[1, 3, 6, 7], &[2, 3, 3, 2], 2, 0, 1, 1)
    });
    cases.push(Geometry {
        low: vec![2, 0],
        high: vec![0, 1],
        ..geometry(&[1, 3, 6, 7], &[3, 1, 3, 2], 1, 0, 1, 3)
    });
    for w in [[20, 3, 3, 2, 3], [3, 1, 3, 2, 3]] {
        let group = if w[1] == 1 { 3 } else { 1 };
        cases.push(Geometry {
            low: vec![2, 0, -1],
            high: vec![-1, 1, 2],
            ..geometry(&[1, 3, 5, 6, 21], &w, 1, 0, 1, group)
        });
    }
    for g in cases {
        let attrs = |g: &Geometry| {
            vec![
                ("stride", Attr::ints(g.stride.clone())),
                ("low", Attr::ints(g.low.clone())),
                ("high", Attr::ints(g.high.clone())),
                ("dilation", Attr::ints(g.dilation.clone())),
                ("group", Attr::int(g.group)),
            ]
        };
        for constant in [true, false] {
            check(&format!("conv {:?} {:?}", g.x, g.w), Tolerance(2e-5, 1e-5), |c| {
                let x = c.input(DType::F32, &g.x);
                let w =
                    if constant { c.constant(DType::F32, &g.w) } else { c.input(DType::F32, &g.w) };
                let y = c.apply("conv", &attrs(&g), &[x, w]);
                let shape = c.shape(y);
                let b = c.constant(DType::F32, &shape[1..2]);
                let b = c.broadcast(b, &[1], &shape);
                let y = c.apply("add", &[], &[y, b]);
                vec![c.apply("tanh", &[], &[y])]
            });
        }
        if g.low == g.high && g.x.len() > 2 && g.group == 1 {
            check(&format!("conv_transpose {:?} {:?}", g.x, g.w), Tolerance(2e-5, 1e-5), |c| {
                let x = c.input(DType::F32, &g.x);
                let mut w = g.w.clone();
                w.swap(0, 1);
                let w = c.constant(DType::F32, &w);
                let mut attrs = attrs(&g);
                attrs.push(("extra", Attr::ints(vec![0; g.x.len() - 2])));
                vec![c.apply("conv_transpose", &attrs, &[x, w])]
            });
        }
    }
    check("grouped conv_transpose", Tolerance(2e-5, 1e-5), |c| {
        let (x, w) = (c.input(DType::F32, &[2, 4, 5, 6]), c.constant(DType::F32, &[4, 3, 3, 2]));
        let two = |a, b| Attr::ints([a, b]);
        let attrs = [
            ("stride", two(2, 1)),
            ("low", two(1, 0)),
            ("high", two(0, 1)),
            ("dilation", two(1, 2)),
            ("extra", two(1, 0)),
            ("group", Attr::int(2)),
        ];
        vec![c.apply("conv_transpose", &attrs, &[x, w])]
    });
}

#[test]
fn weights_that_are_not_finite_meet_the_padding() {
    let cases = [
        geometry(&[1, 2, 5, 6], &[3, 2, 3, 3], 1, 1, 1, 1),
        geometry(&[1, 3, 5, 6], &[3, 1, 3, 3], 1, 1, 1, 3),
        geometry(&[1, 2, 4, 5, 3], &[2, 1, 2, 3, 2], 1, 1, 1, 2),
        geometry(&[1, 2, 4, 5, 3], &[2, 2, 2, 3, 2], 2, 1, 1, 1),
    ];
    for g in cases {
        for value in [f64::INFINITY, f64::NAN] {
            for op in ["conv", "conv_transpose"] {
                let group = if op == "conv" { g.group } else { 1 };
                check(&format!("{op} {value} {:?} {:?}", g.x, g.w), Tolerance(2e-5, 1e-5), |c| {
                    let mut shape = g.w.clone();
                    if op == "conv_transpose" {
                        shape[0] = g.x[1];
                    }
                    let mut w = c.tensor(DType::F32, &shape).to_f64();
                    w[1] = value;
                    let x = c.input(DType::F32, &g.x);
                    let w = c.given(Tensor::from_f64(DType::F32, shape, &w));
                    let mut attrs = vec![
                        ("stride", Attr::ints(g.stride.clone())),
                        ("low", Attr::ints(g.low.clone())),
                        ("high", Attr::ints(g.high.clone())),
                        ("dilation", Attr::ints(g.dilation.clone())),
                        ("group", Attr::int(group)),
                    ];
                    if op == "conv_transpose" {
                        attrs.push(("extra", Attr::ints(vec![0; g.stride.len()])));
                    }
                    vec![c.apply(op, &attrs, &[x, w])]
                });
            }
        }
    }
}

#[test]
fn signs_of_zeros() {
    for dtype in [DType::F32, DType::F64] {
        for op in ["maximum", "minimum"] {
            check(&format!("{op} {dtype}"), EXACT, |c| {
                let a = c.given(Tensor::from_f64(dtype, vec![4], &[0.0, 0.0, -0.0, -0.0]));
                let b = c.given(Tensor::from_f64(dtype, vec![4], &[0.0, -0.0, 0.0, -0.0]));
                let y = c.apply(op, &[], &[a, b]);
                vec![c.apply("recip", &[], &[y])]
            });
        }
    }
}

#[test]
fn reductions() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I32, DType::U64, DType::I8] {
        for op in ["sum", "prod", "max", "min"] {
            for shape in [vec![3, 4, 5], vec![1, 130, 2], vec![2, 0, 3], vec![70, 3, 70]] {
                if op == "prod" && shape[0] == 70 {
                    continue;
                }
                for axes in
                    [vec![], vec![0], vec![2], vec![1], vec![0, 2], vec![0, 1, 2], vec![1, 2]]
                {
                    let t = close(dtype);
                    let t = if op == "prod" || op == "sum" {
                        Tolerance(t.0 * 64.0, t.1 * 8.0)
                    } else {
                        EXACT
                    };
                    check(&format!("{op} {dtype} {shape:?} {axes:?}"), t, |c| {
                        let x = c.input(dtype, &shape);
                        let y = c.apply(op, &[("axes", Attr::ints(axes.clone()))], &[x]);
                        let p = c.apply("transpose", &[("perm", Attr::ints([2, 0, 1]))], &[x]);
                        vec![y, c.apply(op, &[("axes", Attr::ints(axes.clone()))], &[p])]
                    });
                }
            }
        }
    }
    for op in ["max", "min"] {
        check(op, EXACT, |c| {
            let x = c.given(special(DType::F32));
            vec![c.apply(op, &[("axes", Attr::ints([0]))], &[x])]
        });
    }
}

#[test]
fn movements() {
    for dtype in [DType::F32, DType::I64, DType::F16, DType::Bool] {
        check(&format!("moves {dtype}"), EXACT, |c| {
            let x = c.input(dtype, &[4, 5, 3]);
            let t = c.apply("transpose", &[("perm", Attr::ints([2, 0, 1]))], &[x]);
            let s = c.apply(
                "slice",
                &[
                    ("start", Attr::ints([2, 3, 0])),
                    ("size", Attr::ints([2, 2, 2])),
                    ("step", Attr::ints([-2, -1, 2])),
                ],
                &[t],
            );
            let r = c.apply("reshape", &[("shape", Attr::ints([6, 10]))], &[t]);
            let i = c.given(Tensor::from_i64(DType::I64, vec![2, 2], &[0, -1, 2, 1]));
            let g: Vec<_> =
                (0..3).map(|a| c.apply("gather", &[("axis", Attr::int(a))], &[t, i])).collect();
            let j = c.given(Tensor::from_i64(DType::I32, vec![3, 2, 5], &[1; 30]));
            let e = c.apply("gather_elements", &[("axis", Attr::int(1))], &[t, j]);
            // An index that is repeated along the axes behind its own, and one that is so before it.
            let rows = c.given(Tensor::from_i64(DType::I64, vec![3, 2], &[0, -1, 3, 1, 2, 2]));
            let columns = c.given(Tensor::from_i64(DType::I32, vec![6], &[2, 0, -3, 1, 1, -1]));
            let mut repeated = |i, map: &[i64], shape: [i64; 3]| {
                let attrs =
                    [("map", Attr::ints(map.iter().copied())), ("shape", Attr::ints(shape))];
                c.apply("broadcast", &attrs, &[i])
            };
            let f = [
                (repeated(rows, &[0, 1], [3, 2, 5]), 1),
                (repeated(columns, &[2], [3, 4, 6]), 2),
                (repeated(columns, &[0], [6, 4, 5]), 0),
            ];
            let f = f
                .map(|(i, axis)| c.apply("gather_elements", &[("axis", Attr::int(axis))], &[t, i]));
            let y = c.input(dtype, &[3, 2, 5]);
            let k = c.apply("concat", &[("axis", Attr::int(1))], &[t, y]);
            let v = c.constant(dtype, &[]);
            let p = c.apply(
                "pad",
                &[("low", Attr::ints([1, 0, 2])), ("high", Attr::ints([0, 2, 1]))],
                &[t, v],
            );
            let mut out = vec![s, r, e, k, p];
            out.extend(g);
            out.extend(f);
            out
        });
    }
    for dtype in [DType::F32, DType::I32, DType::F64, DType::I8] {
        check(&format!("scans {dtype}"), close(dtype), |c| {
            let x = c.input(dtype, &[3, 4, 5]);
            let yes = |b| Attr::Bool(b);
            let mut out = vec![];
            for (axis, e, r) in
                [(0, false, false), (1, true, false), (2, false, true), (1, true, true)]
            {
                out.push(c.apply(
                    "cumsum",
                    &[("axis", Attr::int(axis)), ("exclusive", yes(e)), ("reverse", yes(r))],
                    &[x],
                ));
            }
            for (d, u) in [(0, true), (1, false), (-1, true), (-2, false)] {
                out.push(c.apply(
                    "triangle",
                    &[("diagonal", Attr::int(d)), ("upper", yes(u))],
                    &[x],
                ));
            }
            out
        });
    }
}

#[test]
fn recurrent_layers() {
    for (direction, d) in [("forward", 1), ("reverse", 1), ("bidirectional", 2)] {
        for (s, b, i, h) in [
            (5, 3, 4, 6),
            (1, 1, 1, 1),
            (0, 2, 3, 2),
            (2, 3, 4, 0),
            (2, 0, 3, 2),
            (2, 3, 0, 2),
            (4, 2, 33, 17),
        ] {
            let f = DType::F32;
            let way = ("direction", Attr::Str(direction.into()));
            check(&format!("lstm {direction}"), Tolerance(1e-5, 1e-5), |c| {
                let x = c.input(f, &[s, b, i]);
                let (w, r) = (c.constant(f, &[d, 4 * h, i]), c.constant(f, &[d, 4 * h, h]));
                let (z, h0, c0) =
                    (c.constant(f, &[d, 8 * h]), c.input(f, &[d, b, h]), c.input(f, &[d, b, h]));
                c.outputs("lstm", std::slice::from_ref(&way), &[x, w, r, z, h0, c0])
            });
            check(&format!("lstm_peephole {direction}"), Tolerance(1e-5, 1e-5), |c| {
                let x = c.input(f, &[s, b, i]);
                let (w, r) = (c.constant(f, &[d, 4 * h, i]), c.constant(f, &[d, 4 * h, h]));
                let (z, h0, c0) =
                    (c.constant(f, &[d, 8 * h]), c.input(f, &[d, b, h]), c.input(f, &[d, b, h]));
                let p = c.constant(f, &[d, 3 * h]);
                let args = [x, w, r, z, h0, c0, p];
                c.outputs("lstm_peephole", std::slice::from_ref(&way), &args)
            });
            for activation in ["tanh", "relu"] {
                check(&format!("rnn {direction} {activation}"), Tolerance(1e-5, 1e-5), |c| {
                    let x = c.input(f, &[s, b, i]);
                    let (w, r) = (c.constant(f, &[d, h, i]), c.constant(f, &[d, h, h]));
                    let (z, h0) = (c.constant(f, &[d, 2 * h]), c.input(f, &[d, b, h]));
                    let attrs = [way.clone(), ("activation", Attr::Str(activation.into()))];
                    c.outputs("rnn", &attrs, &[x, w, r, z, h0])
                });
            }
            for after in [false, true] {
                check(&format!("gru {direction} {after}"), Tolerance(1e-5, 1e-5), |c| {
                    let x = c.input(f, &[s, b, i]);
                    let (w, r) = (c.constant(f, &[d, 3 * h, i]), c.constant(f, &[d, 3 * h, h]));
                    let (z, h0) = (c.constant(f, &[d, 6 * h]), c.input(f, &[d, b, h]));
                    let attrs = [way.clone(), ("linear_before_reset", Attr::int(after.into()))];
                    c.outputs("gru", &attrs, &[x, w, r, z, h0])
                });
            }
        }
    }
}

/// Steps, sequences, elements of a state.
const STEPS: [(usize, usize, usize); 5] = [(5, 3, 6), (1, 1, 1), (0, 2, 3), (3, 0, 2), (4, 2, 17)];

#[test]
fn steps_of_recurrent_layers_with_activations_of_choice() {
    let f = DType::F32;
    for (first, d) in [(0, 1), (3, 2), (6, 2), (9, 1)] {
        for (s, b, h) in STEPS {
            for most in [f64::INFINITY, 1.5] {
                // Sums without bounds grow, and what is rounded with them.
                let s = if most.is_finite() { s } else { s.min(2) };
                let common = |c: &mut Case<'_>, gates: usize, count: usize| {
                    // Activations without bounds magnify from step to step what is rounded, unless sums are small.
                    let small = |c: &mut Case<'_>, shape: &[usize]| {
                        let values = c.tensor(f, shape).to_f64();
                        let values: Vec<f64> = values.into_iter().map(|v| 0.2 * v).collect();
                        Tensor::from_f64(f, shape.to_vec(), &values)
                    };
                    let (x, h0) = (small(c, &[s, d, b, gates * h]), small(c, &[d, b, h]));
                    let (x, h0) = (c.given(x), c.given(h0));
                    let r = small(c, &[d, gates * h, h]);
                    let bias = small(c, &[d, 2 * gates * h]);
                    let (r, bias) = (c.builder.constant(r), c.builder.constant(bias));
                    let kinds: Vec<i64> = (0..d * count).map(|k| (first + k as i64) % 11).collect();
                    let kinds =
                        c.builder.constant(Tensor::from_i64(DType::I64, vec![d, count], &kinds));
                    let scales = [small(c, &[d, count]), small(c, &[d, count])];
                    let scales = scales.map(|t| c.builder.constant(t));
                    // All steps, none, and one less for each further sequence.
                    let lengths = (0..b as i64).map(|i| if i == 1 { 0 } else { s as i64 - i });
                    let lengths: Vec<i64> = lengths.rev().collect();
                    let lengths = Tensor::from_i64(DType::I64, vec![b], &lengths);
                    let lengths = c.builder.constant(lengths);
                    (vec![x, r, bias, h0], [kinds, scales[0], scales[1], lengths])
                };
                let most_of = ("most", Attr::float(most));
                for flag in [false, true] {
                    let name = format!("{first} {d} {s} {b} {h} {most} {flag}");
                    check(&format!("lstm {name}"), Tolerance(1e-5, 1e-5), |c| {
                        let (mut args, rest) = common(c, 4, 3);
                        args.extend([c.input(f, &[d, b, h]), c.constant(f, &[d, 3 * h])]);
                        args.extend(rest);
                        let attrs = [most_of.clone(), ("coupled", Attr::Bool(flag))];
                        c.outputs("lstm_steps_of", &attrs, &args)
                    });
                    check(&format!("gru {name}"), Tolerance(1e-5, 1e-5), |c| {
                        let (mut args, rest) = common(c, 3, 2);
                        args.extend(rest);
                        let after = ("linear_before_reset", Attr::int(flag.into()));
                        c.outputs("gru_steps_of", &[most_of.clone(), after], &args)
                    });
                }
                check(&format!("rnn {first} {d} {s} {b} {h}"), Tolerance(1e-5, 1e-5), |c| {
                    let (mut args, rest) = common(c, 1, 1);
                    args.extend(rest);
                    c.outputs("rnn_steps_of", std::slice::from_ref(&most_of), &args)
                });
            }
        }
    }
}

#[test]
fn steps_of_sequences_of_different_lengths() {
    for (direction, d) in [("forward", 1), ("reverse", 1), ("bidirectional", 2)] {
        for lengths in [[4, 1, 3], [0, 4, 2], [-1, 2, 0]] {
            check(&format!("{direction} {lengths:?}"), Tolerance(0.0, 0.0), |c| {
                let n = c.builder.constant(Tensor::from_i64(DType::I64, vec![3], &lengths));
                let x = c.input(DType::F32, &[4, d, 3, 5]);
                let h0 = c.input(DType::F32, &[d, 3, 5]);
                let way = [("direction", Attr::Str(direction.into()))];
                let y = c.apply("in_time_of", &way, &[x, n]);
                vec![y, c.apply("last_step_of", &[], &[x, h0, n])]
            });
        }
    }
}
