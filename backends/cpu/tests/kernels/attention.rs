//! The attention kernel against the reference interpreter.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor, Value};

/// Sizes: batch axes, queries, keys, features of keys and of values.
type Sizes<'a> = (&'a [usize], usize, usize, usize, usize);

const SIZES: &[Sizes<'_>] = &[
    (&[], 1, 1, 1, 1),
    (&[2], 3, 5, 4, 7),
    (&[1, 2], 17, 33, 8, 8),
    (&[2, 3], 1, 40, 16, 5),
    (&[3], 130, 20, 6, 34),
    (&[1], 5, 700, 3, 2),
    (&[], 30, 257, 65, 33),
    (&[3], 1, 600, 64, 64),
    (&[2], 2, 300, 80, 96),
    (&[2], 3, 513, 40, 70),
    (&[1], 7, 256, 16, 17),
    (&[1], 8, 270, 33, 130),
    (&[1], 9, 270, 33, 130),
    (&[2], 4, 0, 3, 2),
    (&[2], 0, 4, 3, 2),
    (&[2], 4, 3, 0, 2),
    (&[2], 4, 3, 2, 0),
    (&[0], 4, 3, 2, 2),
];

fn shape(batch: &[usize], a: usize, b: usize) -> Vec<usize> {
    [batch, &[a, b]].concat()
}

fn operands(c: &mut Case<'_>, &(h, s, t, d, e): &Sizes<'_>) -> [Value; 3] {
    [(s, d), (t, d), (t, e)].map(|(a, b)| c.input(DType::F32, &shape(h, a, b)))
}

/// A condition that keeps two scores of three, and none of row 1.
fn keep(sizes: &Sizes<'_>) -> Tensor {
    let (s, t) = (sizes.1, sizes.2);
    let values: Vec<i64> = (0..s * t).map(|i| i64::from(i % 3 != 1 && i / t.max(1) != 1)).collect();
    Tensor::from_i64(DType::Bool, vec![s, t], &values)
}

#[test]
fn every_size() {
    for sizes in SIZES {
        check(&format!("attention {sizes:?}"), Tolerance(2e-5, 2e-5), |c| {
            let args = operands(c, sizes);
            vec![c.apply("attention", &[("scale", Attr::float(0.37))], &args)]
        });
    }
}

#[test]
fn masks_that_repeat_over_heads() {
    for sizes in SIZES {
        let &(h, s, t, ..) = sizes;
        let rank = h.len() as i64;
        check(&format!("masked {sizes:?}"), Tolerance(2e-5, 2e-5), |c| {
            let [q, k, v] = operands(c, sizes);
            let scale = ("scale", Attr::float(0.5));
            let both = c.input(DType::F32, &[s, t]);
            let both = c.broadcast(both, &[rank, rank + 1], &shape(h, s, t));
            let keys = c.input(DType::F32, &[t]);
            let keys = c.broadcast(keys, &[rank + 1], &shape(h, s, t));
            let rows = c.input(DType::F32, &[s]);
            let rows = c.broadcast(rows, &[rank], &shape(h, s, t));
            let one = |c: &mut Case<'_>, m| {
                c.apply("attention_masked", std::slice::from_ref(&scale), &[q, k, v, m])
            };
            vec![one(c, both), one(c, keys), one(c, rows)]
        });
    }
}

#[test]
fn rows_without_any_key() {
    for low in [f64::NEG_INFINITY, -1e9, -7.5] {
        for sizes in SIZES {
            let &(h, s, t, ..) = sizes;
            let rank = h.len() as i64;
            check(&format!("select {low} {sizes:?}"), Tolerance(2e-5, 2e-5), |c| {
                let [q, k, v] = operands(c, sizes);
                let m = c.given(keep(sizes));
                let m = c.broadcast(m, &[rank, rank + 1], &shape(h, s, t));
                let attrs = [("scale", Attr::float(0.5)), ("low", Attr::float(low))];
                vec![c.apply("attention_select", &attrs, &[q, k, v, m])]
            });
        }
    }
}

#[test]
fn values_that_are_not_finite() {
    // Long enough for several tiles, so that a first tile may be masked as a whole.
    let (s, t) = (6, 600);
    let mut mask = vec![0.0; s * t];
    mask[..300].fill(f64::NEG_INFINITY);
    mask[t..2 * t].fill(f64::NEG_INFINITY);
    mask[2 * t + 5] = f64::NAN;
    mask[3 * t + 550] = f64::INFINITY;
    mask[4 * t + 300..5 * t].fill(f64::NEG_INFINITY);
    let mask = Tensor::from_f64(DType::F32, vec![s, t], &mask);
    check("special masks", Tolerance(2e-5, 2e-5), |c| {
        let [q, k, v] = operands(c, &(&[], s, t, 4, 3));
        let m = c.given(mask.clone());
        vec![c.apply("attention_masked", &[("scale", Attr::float(0.5))], &[q, k, v, m])]
    });
    for (place, value) in [(7, f64::INFINITY), (7, f64::NAN), (1500, f64::NEG_INFINITY)] {
        check("special values", Tolerance(2e-5, 2e-5), |c| {
            let [q, k, _] = operands(c, &(&[], s, t, 4, 3));
            let mut v = c.tensor(DType::F32, &[t, 3]).to_f64();
            v[place] = value;
            let v = c.given(Tensor::from_f64(DType::F32, vec![t, 3], &v));
            let m = c.given(mask.clone());
            let scale = [("scale", Attr::float(0.5))];
            let masked = c.apply("attention_masked", &scale, &[q, k, v, m]);
            vec![masked, c.apply("attention", &scale, &[q, k, v])]
        });
    }
}

#[test]
fn operands_in_any_layout() {
    // Heads as exporters have them: split off the last axis, then moved to the front; keys that come
    // transposed; keys and values of one head that all heads share.
    let (b, h, t, d) = (2, 3, 11, 4);
    for s in [3, 9] {
        check("views", Tolerance(2e-5, 2e-5), |c| {
            let split = |c: &mut Case<'_>, n: usize| {
                let x = c.input(DType::F32, &[b, n, h, d]);
                c.apply("transpose", &[("perm", Attr::ints([0, 2, 1, 3]))], &[x])
            };
            let (q, k, v) = (split(c, s), split(c, t), split(c, t));
            let y = c.input(DType::F32, &[b, h, d, t]);
            let y = c.apply("transpose", &[("perm", Attr::ints([0, 1, 3, 2]))], &[y]);
            let shared = c.input(DType::F32, &[t, d]);
            let shared = c.broadcast(shared, &[2, 3], &[b, h, t, d]);
            let scale = [("scale", Attr::float(0.5))];
            let all = [[q, k, v], [q, y, v], [q, shared, shared]];
            all.map(|args| c.apply("attention", &scale, &args)).to_vec()
        });
    }
}

#[test]
fn half_precision() {
    for dtype in [DType::F16, DType::BF16] {
        let u = dtype.unit_roundoff();
        check(&format!("attention {dtype}"), Tolerance(u * 8.0, u * 8.0), |c| {
            let args = [[2, 5, 8], [2, 7, 8], [2, 7, 3]].map(|s| c.input(dtype, &s));
            vec![c.apply("attention", &[("scale", Attr::float(0.25))], &args)]
        });
    }
}
