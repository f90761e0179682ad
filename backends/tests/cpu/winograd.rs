//! Convolutions of 3 × 3 taps with enough channels to be computed by Winograd's algorithm.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor, Value};

/// Extents of input and weights, padding before and after, groups.
#[derive(Debug)]
struct Convolution {
    input: [usize; 4],
    weights: [usize; 4],
    low: [i64; 2],
    high: [i64; 2],
    group: i64,
}

const CONVOLUTIONS: &[Convolution] = &[
    Convolution {
        input: [1, 64, 14, 14],
        weights: [64, 64, 3, 3],
        low: [1, 1],
        high: [1, 1],
        group: 1,
    },
    Convolution {
        input: [1, 33, 15, 31],
        weights: [40, 33, 3, 3],
        low: [1, 1],
        high: [1, 1],
        group: 1,
    },
    Convolution {
        input: [2, 128, 14, 20],
        weights: [64, 64, 3, 3],
        low: [0, 0],
        high: [0, 0],
        group: 2,
    },
    Convolution {
        input: [1, 40, 30, 31],
        weights: [130, 40, 3, 3],
        low: [2, 0],
        high: [0, 2],
        group: 1,
    },
    Convolution {
        input: [1, 48, 24, 24],
        weights: [48, 48, 3, 3],
        low: [-2, 1],
        high: [1, -1],
        group: 1,
    },
    Convolution {
        input: [1, 32, 16, 70],
        weights: [48, 32, 3, 3],
        low: [3, 5],
        high: [4, 2],
        group: 1,
    },
    Convolution {
        input: [1, 300, 20, 20],
        weights: [20, 300, 3, 3],
        low: [1, 1],
        high: [1, 1],
        group: 1,
    },
    Convolution {
        input: [3, 64, 40, 6],
        weights: [56, 64, 3, 3],
        low: [1, 1],
        high: [1, 1],
        group: 1,
    },
];

impl Convolution {
    /// Within the tolerance of sums that are regrouped: 64 units of roundoff of a large result.
    fn tolerance(&self, largest: f64) -> Tolerance {
        let units = 64.0 * DType::F32.unit_roundoff();
        let terms = (9 * self.weights[1]) as f64;
        Tolerance(units * largest * terms.sqrt(), units)
    }

    fn apply(&self, c: &mut Case<'_>, x: Tensor, scale: f64) -> Value {
        let weights = c.tensor(DType::F32, &self.weights);
        let values: Vec<f64> = weights.to_f64().into_iter().map(|w| w * scale).collect();
        let x = c.given(x);
        let w = c.builder.constant(Tensor::from_f64(DType::F32, self.weights.to_vec(), &values));
        let attrs = [
            ("stride", Attr::ints([1, 1])),
            ("low", Attr::ints(self.low)),
            ("high", Attr::ints(self.high)),
            ("dilation", Attr::ints([1, 1])),
            ("group", Attr::int(self.group)),
        ];
        c.apply("conv", &attrs, &[x, w])
    }
}

/// Changes values of an input.
type Change = fn(&mut [f64]);

/// Inputs, the scale of the weights, and the size of the products.
const INPUTS: &[(&str, Change, f64, f64)] = &[
    ("numbers", |_| {}, 1.0, 4.0),
    ("zeros", |x| x.fill(0.0), 1.0, 0.0),
    (
        "infinities and NaN",
        |x| {
            let n = x.len();
            (x[n / 2], x[n / 3], x[n / 5]) = (f64::INFINITY, f64::NEG_INFINITY, f64::NAN);
            x[n - 1] = f64::INFINITY;
        },
        1.0,
        4.0,
    ),
    // Sums of elements are infinite here, sums of their products with the weights are not.
    (
        "sums beyond the range",
        |x| {
            let n = x.len();
            x[n / 3..n / 3 + 3].fill(3e38);
        },
        0.01,
        6e36,
    ),
];

#[test]
fn convolutions_of_three_by_three() {
    for conv in CONVOLUTIONS {
        for &(name, change, scale, largest) in INPUTS {
            check(&format!("{conv:?}, {name}"), conv.tolerance(largest), |c| {
                let mut values = c.tensor(DType::F32, &conv.input).to_f64();
                change(&mut values);
                let x = Tensor::from_f64(DType::F32, conv.input.to_vec(), &values);
                vec![conv.apply(c, x, scale)]
            });
        }
    }
}

#[test]
fn followed_by_bias_residual_and_rectifier() {
    for conv in CONVOLUTIONS {
        check(&format!("{conv:?}"), conv.tolerance(4.0), |c| {
            let x = c.tensor(DType::F32, &conv.input);
            let y = conv.apply(c, x, 1.0);
            let shape = c.shape(y);
            let (bias, rest) = (c.constant(DType::F32, &[shape[1]]), c.input(DType::F32, &shape));
            let bias = c.broadcast(bias, &[1], &shape);
            let y = c.apply("add", &[], &[y, bias]);
            let y = c.apply("add", &[], &[y, rest]);
            vec![c.apply("relu", &[], &[y])]
        });
    }
}
