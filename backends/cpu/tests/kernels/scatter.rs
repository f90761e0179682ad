//! Rows written to computed places, and the numbers of elements that indices name.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor};

const WORDS: [&str; 5] = ["none", "add", "mul", "max", "min"];

fn indices(shape: &[usize], low: i64, high: i64) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<i64> = (0..n as i64).map(|i| low + (i * 7 + i / 3) % (high - low)).collect();
    Tensor::from_i64(DType::I64, shape.to_vec(), &values)
}

#[test]
fn rows_meet_what_is_there() {
    use DType::{Bool, F16, F32, F64, I32, I64, U8};
    for (n, width, m) in [(5, 3, 9), (4, 1, 4), (3, 37, 20), (6, 0, 2), (2, 5, 0), (1, 16, 6)] {
        for dtype in [F32, F64, I32, I64, F16, U8, Bool] {
            for word in WORDS {
                // Truths are replaced, or the larger or smaller one is kept.
                if dtype == Bool && word != "none" {
                    continue;
                }
                check(&format!("{word} {dtype} {n} {width} {m}"), close(dtype), |c| {
                    let (x, u) = (c.input(dtype, &[n, width]), c.input(dtype, &[m, width]));
                    let i = c.given(indices(&[m], 0, n as i64));
                    vec![c.apply("scatter", &[("reduction", Attr::Str(word.into()))], &[x, i, u])]
                });
            }
        }
    }
}

#[test]
fn rows_are_written_over_what_is_repeated() {
    for word in WORDS {
        check(word, close(DType::F32), |c| {
            let zero = c.constant(DType::F32, &[]);
            let x = c.broadcast(zero, &[], &[6, 10]);
            let special = [f64::NAN, f64::INFINITY, -0.0, 0.0, f64::NEG_INFINITY, 1.5, -2.0, 3.0];
            let all: Vec<f64> = (0..80).map(|i| special[(i * i + i / 8) % 8]).collect();
            let u = c.given(Tensor::from_f64(DType::F32, vec![8, 10], &all));
            let i = c.given(indices(&[8], 0, 6));
            vec![c.apply("scatter", &[("reduction", Attr::Str(word.into()))], &[x, i, u])]
        });
    }
}

#[test]
fn places_outside_are_an_error() {
    for place in [-1, 4] {
        let library = library();
        let mut c = Case::new(&library);
        let (x, u) = (c.input(DType::F32, &[4, 2]), c.input(DType::F32, &[1, 2]));
        let i = c.given(Tensor::from_i64(DType::I64, vec![1], &[place]));
        let y = c.apply("scatter", &[("reduction", Attr::Str("none".into()))], &[x, i, u]);
        let (program, inputs) = c.finish(&[y]);
        let error = run(&program, &inputs, 1).expect_err("the place is outside").to_string();
        assert!(error.contains(&format!("the place {place} is not below 4")), "{error}");
    }
}

#[test]
fn numbers_of_elements() {
    for (shape, index, axis) in [
        (vec![5, 4], vec![7, 3], 0),
        (vec![5, 4], vec![5, 9], 1),
        (vec![3, 6, 5], vec![2, 11, 5], 1),
        (vec![3, 6, 70], vec![3, 6, 3], 2),
        (vec![8], vec![30], 0),
        (vec![4, 3], vec![0, 3], 0),
        (vec![300, 90], vec![300, 80], 1),
        (vec![5, 0], vec![5, 2], 0),
    ] {
        check(&format!("{shape:?} {index:?} {axis}"), close(DType::F64), |c| {
            let extent = shape[axis] as i64;
            let i = c.given(indices(&index, -extent, extent));
            let attrs = [
                ("axis", Attr::int(axis as i64)),
                ("shape", Attr::ints(shape.iter().map(|&d| d as i64))),
            ];
            vec![c.apply("element_numbers", &attrs, &[i])]
        });
    }
    check("of a repeated index", close(DType::F64), |c| {
        let i = c.given(indices(&[9], -4, 4));
        let i = c.broadcast(i, &[0], &[9, 3]);
        let attrs = [("axis", Attr::int(0)), ("shape", Attr::ints([4, 3]))];
        vec![c.apply("element_numbers", &attrs, &[i])]
    });
}

#[test]
fn extents_are_numbers() {
    for values in [vec![], vec![7], vec![3, 0, 1 << 40]] {
        check(&format!("{values:?}"), close(DType::F64), |c| {
            vec![c.apply("extents", &[("values", Attr::ints(values))], &[])]
        });
    }
}
