//! Non-maximum suppression: many boxes, equal scores, boxes that touch, and limits at and beyond their ends.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor};

const EXACT: Tolerance = Tolerance(0.0, 0.0);

fn floats(shape: &[usize], f: impl Fn(usize) -> f64) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product()).map(f).collect();
    Tensor::from_f64(DType::F32, shape.to_vec(), &values)
}

/// Corners on a grid, so that boxes repeat, touch and have no area; some are not numbers.
fn corner(i: usize) -> f64 {
    match i % 97 {
        13 => f64::NAN,
        41 => f64::INFINITY,
        k => ((i * 31 + k * k) % 23) as f64 / 4.0,
    }
}

#[test]
fn boxes_that_overlap_are_suppressed() {
    for [batches, classes, n] in [[1, 1, 1], [2, 3, 40], [1, 2, 300], [1, 1, 0], [0, 2, 3]] {
        for centered in [false, true] {
            for (most, overlap, floor) in [
                (n as i64, 0.5, f64::NEG_INFINITY),
                (7, 0.0, 0.2),
                (0, 0.5, 0.0),
                (-3, 0.5, 0.0),
                (1 << 40, 1.0, 0.1),
                (9, -0.5, 0.0),
                (9, f64::NAN, 0.0),
            ] {
                let name = format!("{batches} {classes} {n} {centered} {most} {overlap} {floor}");
                check(&name, EXACT, |c| {
                    let boxes = c.given(floats(&[batches, n, 4], corner));
                    let scores =
                        c.given(floats(&[batches, classes, n], |i| (i * 7 % 19) as f64 / 20.0));
                    let most = c.given(Tensor::from_i64(DType::I64, vec![], &[most]));
                    let limits = [overlap, floor].map(|v| c.given(floats(&[], |_| v)));
                    let args = [boxes, scores, most, limits[0], limits[1]];
                    vec![c.apply("choose_boxes", &[("centered", Attr::Bool(centered))], &args)]
                });
            }
        }
    }
}
