//! Softmax along every axis, and the normalisations of rows.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor};

#[test]
fn normalisations() {
    for dtype in [DType::F32, DType::F16, DType::F64] {
        let t = Tolerance(dtype.unit_roundoff() * 32.0, dtype.unit_roundoff() * 32.0);
        for shape in [vec![4, 6], vec![2, 3, 70], vec![1, 1], vec![3, 0], vec![0, 3]] {
            for axis in 0..shape.len() as i64 {
                for op in ["softmax", "log_softmax"] {
                    check(&format!("{op} {dtype} {shape:?} {axis}"), t, |c| {
                        let x = c.input(dtype, &shape);
                        vec![c.apply(op, &[("axis", Attr::int(axis))], &[x])]
                    });
                }
            }
            let n = shape[shape.len() - 1];
            check(&format!("norms {dtype} {shape:?}"), Tolerance(t.0 * 8.0, t.1 * 8.0), |c| {
                let x = c.input(dtype, &shape);
                let (g, z) = (c.constant(dtype, &[n]), c.input(dtype, &[n]));
                let eps = [("eps", Attr::float(1e-2))];
                vec![c.apply("layernorm", &eps, &[x, g, z]), c.apply("rmsnorm", &eps, &[x, g])]
            });
        }
    }
}

#[test]
fn softmax_along_an_axis_with_neighbours() {
    let t = Tolerance(2e-6, 2e-6);
    for (shape, perm, axis) in [
        (vec![2, 40, 3, 20], [0, 2, 1, 3], 2),
        (vec![3, 5, 7, 130], [1, 0, 2, 3], 0),
        (vec![2, 3, 1, 8], [0, 1, 2, 3], 2),
        (vec![2, 3, 4, 7], [0, 1, 2, 3], 1),
        (vec![2, 3, 9, 4], [0, 1, 3, 2], 1),
    ] {
        for op in ["softmax", "log_softmax"] {
            check(&format!("{op} {shape:?} {axis}"), t, |c| {
                let x = c.input(DType::F32, &shape);
                let x = c.apply("transpose", &[("perm", Attr::ints(perm))], &[x]);
                vec![c.apply(op, &[("axis", Attr::int(axis))], &[x])]
            });
        }
    }
    // Columns of NaN, of infinities, and of one finite element among infinite ones.
    for op in ["softmax", "log_softmax"] {
        check(op, t, |c| {
            let values =
                [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, 100.0, -100.0];
            let all: Vec<f64> = (0..24).map(|i| values[(i * i / 3 + i) % 8]).collect();
            let x = c.given(Tensor::from_f64(DType::F32, vec![3, 8], &all));
            vec![c.apply(op, &[("axis", Attr::int(0))], &[x])]
        });
    }
}
