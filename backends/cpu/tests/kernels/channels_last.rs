//! Images with their channels last: convolutions, by Winograd's algorithm among others, pooling, and changes of layout.

use super::epilogues::EPILOGUES;
use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor, Value};

/// Extents of input and weights, padding before and after.
#[derive(Debug)]
struct Convolution {
    input: [usize; 4],
    weights: [usize; 4],
    low: [i64; 2],
    high: [i64; 2],
}

const THREE_BY_THREE: &[Convolution] = &[
    Convolution { input: [1, 14, 14, 64], weights: [64, 64, 3, 3], low: [1, 1], high: [1, 1] },
    Convolution { input: [1, 15, 31, 33], weights: [40, 33, 3, 3], low: [1, 1], high: [1, 1] },
    Convolution { input: [2, 14, 20, 64], weights: [64, 64, 3, 3], low: [0, 0], high: [0, 0] },
    Convolution { input: [1, 30, 31, 40], weights: [130, 40, 3, 3], low: [2, 0], high: [0, 2] },
    Convolution { input: [1, 24, 24, 48], weights: [48, 48, 3, 3], low: [-2, 1], high: [1, -1] },
    Convolution { input: [1, 16, 70, 32], weights: [48, 32, 3, 3], low: [3, 5], high: [4, 2] },
    Convolution { input: [1, 20, 20, 300], weights: [20, 300, 3, 3], low: [1, 1], high: [1, 1] },
    Convolution { input: [3, 40, 6, 64], weights: [56, 64, 3, 3], low: [1, 1], high: [1, 1] },
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
            ("group", Attr::int(1)),
        ];
        c.apply("conv_channels_last", &attrs, &[x, w])
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
    for conv in THREE_BY_THREE {
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
    for conv in THREE_BY_THREE {
        check(&format!("{conv:?}"), conv.tolerance(4.0), |c| {
            let x = c.tensor(DType::F32, &conv.input);
            let y = conv.apply(c, x, 1.0);
            let shape = c.shape(y);
            let (bias, rest) = (c.constant(DType::F32, &[shape[3]]), c.input(DType::F32, &shape));
            let bias = c.broadcast(bias, &[3], &shape);
            let y = c.apply("add", &[], &[y, bias]);
            let y = c.apply("add", &[], &[y, rest]);
            vec![c.apply("relu", &[], &[y])]
        });
    }
}

#[test]
fn what_follows_tiles() {
    for conv in THREE_BY_THREE {
        let scale = 1.0 / ((9 * conv.weights[1]) as f64).sqrt();
        for (name, epilogue) in EPILOGUES {
            check(&format!("{conv:?}, {name}"), Tolerance(1e-4, 1e-5), |c| {
                let x = c.tensor(DType::F32, &conv.input);
                let y = conv.apply(c, x, scale);
                let shape = c.shape(y);
                vec![epilogue(c, y, &shape, 3)]
            });
        }
    }
}

/// Of windows in several planes, and of groups, that are computed by tiles.
const TILED: &[Windows] = &[
    (&[1, 4, 20, 21, 32], &[48, 32, 3, 3, 3], &[1, 1, 1], [1, 1], 1, 1),
    (&[2, 5, 16, 13, 40], &[33, 40, 2, 3, 3], &[2, 1, 1], [0, 1], 1, 1),
    (&[1, 3, 24, 24, 64], &[64, 32, 3, 3, 3], &[1, 1, 1], [2, 1], 1, 2),
    (&[1, 40, 40, 128], &[128, 32, 3, 3], &[1, 1], [1, 1], 1, 4),
    (&[2, 31, 30, 192], &[288, 64, 3, 3], &[1, 1], [0, 1], 1, 3),
    (&[1, 33, 28, 80], &[80, 16, 3, 3], &[1, 1], [1, 1], 1, 5),
];

#[test]
fn tiles_of_planes_and_of_groups() {
    for windows in TILED {
        for (name, change, ..) in &INPUTS[..3] {
            check(&format!("{windows:?}, {name}"), Tolerance(1e-4, 1e-5), |c| {
                let mut values = c.tensor(DType::F32, windows.0).to_f64();
                change(&mut values);
                let x = c.given(Tensor::from_f64(DType::F32, windows.0.to_vec(), &values));
                let weights = c.tensor(DType::F32, windows.1).to_f64();
                let scale = 1.0 / ((windows.1[1..].iter().product::<usize>()) as f64).sqrt();
                let weights: Vec<f64> = weights.iter().map(|w| w * scale).collect();
                let w = Tensor::from_f64(DType::F32, windows.1.to_vec(), &weights);
                let w = c.builder.constant(w);
                vec![c.apply("conv_channels_last", &attributes(windows), &[x, w])]
            });
        }
    }
}

/// Sums of these lie between -6 and 6; added up one product after the other they err by about ten units of roundoff of that.
#[test]
fn errors_of_tiles_are_a_few_units_of_the_largest_result() {
    let conv = Convolution {
        input: [1, 32, 32, 128],
        weights: [64, 128, 3, 3],
        low: [1, 1],
        high: [1, 1],
    };
    let units = 64.0 * DType::F32.unit_roundoff();
    check(&format!("{conv:?}"), Tolerance(units * 6.0, 0.0), |c| {
        let x = c.tensor(DType::F32, &conv.input);
        vec![conv.apply(c, x, 1.0 / (9.0 * 128f64).sqrt())]
    });
}

/// Extents of input and weights, strides, padding before and after, dilation, groups.
type Windows = (&'static [usize], &'static [usize], &'static [i64], [i64; 2], i64, i64);

const WINDOWS: &[Windows] = &[
    (&[1, 9, 17, 3], &[33, 3, 3, 3], &[1, 1], [1, 1], 1, 1),
    (&[2, 7, 7, 16], &[48, 16, 1, 1], &[1, 1], [0, 0], 1, 1),
    (&[1, 40, 5, 4], &[17, 4, 1, 1], &[1, 1], [0, 0], 1, 1),
    (&[2, 9, 9, 5], &[20, 5, 1, 1], &[2, 2], [0, 0], 1, 1),
    (&[1, 1, 1, 70], &[90, 70, 1, 1], &[1, 1], [0, 0], 1, 1),
    (&[1, 23, 31, 3], &[8, 3, 7, 7], &[2, 2], [3, 3], 1, 1),
    (&[2, 12, 9, 6], &[10, 6, 3, 2], &[3, 1], [0, 2], 2, 1),
    (&[1, 6, 5, 8], &[16, 8, 3, 3], &[1, 1], [-1, 4], 1, 1),
    (&[1, 3, 3, 4], &[8, 4, 5, 5], &[1, 1], [4, 4], 1, 1),
    (&[2, 30, 12], &[24, 12, 3], &[1], [1, 1], 1, 1),
    (&[1, 4, 4, 700], &[100, 700, 1, 1], &[1, 1], [0, 0], 1, 1),
    (&[1, 14, 14, 9], &[9, 1, 3, 3], &[1, 1], [1, 1], 1, 9),
    (&[2, 7, 7, 40], &[40, 1, 3, 3], &[1, 1], [1, 1], 1, 40),
    (&[1, 40, 41, 33], &[33, 1, 5, 5], &[2, 2], [2, 1], 1, 33),
    (&[1, 20, 9, 64], &[64, 1, 3, 2], &[3, 1], [0, 0], 2, 64),
    (&[1, 3, 2, 18], &[18, 1, 7, 7], &[1, 1], [3, 3], 1, 18),
    (&[2, 19, 16], &[16, 1, 4], &[1], [3, 0], 1, 16),
    (&[2, 9, 45, 48], &[48, 1, 3, 3], &[2, 2], [1, 1], 1, 48),
    (&[1, 8, 40, 32], &[32, 1, 7, 7], &[1, 1], [3, 3], 1, 32),
    (&[1, 9, 26, 40], &[40, 1, 5, 5], &[1, 1], [2, 1], 1, 40),
    (&[1, 12, 23, 16], &[16, 1, 3, 3], &[1, 1], [-1, 4], 1, 16),
    (&[1, 5, 30, 32], &[32, 1, 5, 1], &[1, 3], [2, 1], 1, 32),
    (&[1, 14, 15, 128], &[128, 4, 3, 3], &[1, 1], [1, 1], 1, 32),
    (&[2, 9, 7, 40], &[40, 4, 3, 3], &[2, 2], [1, 1], 1, 10),
    (&[1, 6, 5, 18], &[18, 2, 3, 3], &[1, 1], [0, 2], 2, 9),
    (&[1, 12, 9, 72], &[72, 8, 3, 2], &[1, 1], [1, 1], 1, 9),
    (&[2, 5, 6, 64], &[64, 16, 3, 3], &[1, 1], [1, 1], 1, 4),
    (&[1, 17, 5, 64], &[80, 32, 3, 3], &[2, 1], [1, 1], 1, 2),
    (&[1, 8, 8, 12], &[30, 4, 1, 1], &[1, 1], [0, 0], 1, 3),
    (&[1, 4, 5, 6], &[9, 2, 2, 3], &[1, 1], [1, 0], 1, 3),
    (&[2, 21, 16], &[16, 4, 5], &[2], [2, 2], 1, 4),
    (&[1, 9, 10, 3], &[48, 1, 5, 5], &[1, 1], [2, 2], 1, 3),
    (&[2, 9, 11, 2], &[64, 1, 3, 3], &[2, 2], [1, 1], 1, 2),
    (&[1, 9, 17, 6], &[48, 2, 3, 3], &[1, 1], [1, 1], 1, 3),
    (&[1, 11, 23, 32], &[32, 16, 5, 5], &[2, 2], [2, 2], 1, 2),
    (&[2, 9, 13, 16], &[64, 8, 3, 3], &[1, 1], [2, 2], 2, 2),
    (&[1, 40, 41, 64], &[64, 16, 3, 3], &[2, 2], [1, 1], 1, 4),
    (&[1, 23, 33, 96], &[96, 48, 3, 2], &[1, 1], [1, 1], 1, 2),
    (&[2, 600, 64], &[48, 32, 5], &[1], [2, 2], 1, 2),
    (&[2, 0, 4, 64], &[48, 32, 3, 3], &[1, 1], [2, 2], 1, 2),
    (&[1, 4, 0, 24], &[64, 24, 3, 3], &[1, 1], [2, 1], 1, 1),
    (&[1, 8, 21, 24], &[256, 12, 3, 3], &[1, 2], [2, 1], 1, 2),
    (&[1, 9, 17, 20], &[170, 20, 3, 2], &[1, 1], [1, 0], 1, 1),
    (&[1, 11, 40, 24], &[64, 24, 3, 3], &[2, 2], [1, 1], 1, 1),
    (&[1, 6, 7, 33], &[100, 33, 1, 1], &[1, 1], [0, 0], 1, 1),
    (&[1, 5, 5, 0], &[6, 0, 3, 3], &[1, 1], [1, 1], 1, 3),
    (&[1, 6, 7, 5, 12], &[20, 12, 3, 3, 3], &[1, 1, 1], [1, 1], 1, 1),
    (&[2, 5, 9, 8, 3], &[32, 3, 3, 5, 5], &[1, 2, 2], [1, 1], 1, 1),
    (&[2, 4, 6, 5, 16], &[24, 16, 1, 3, 3], &[1, 1, 1], [0, 0], 1, 1),
    (&[1, 4, 3, 5, 16], &[24, 16, 3, 1, 1], &[1, 1, 1], [2, 1], 1, 1),
    (&[2, 3, 3, 4, 40], &[40, 40, 1, 1, 1], &[1, 1, 1], [0, 0], 1, 1),
    (&[1, 5, 6, 7, 18], &[18, 1, 3, 3, 3], &[1, 1, 2], [1, 1], 1, 18),
    (&[1, 5, 6, 4, 16], &[16, 4, 3, 3, 3], &[2, 1, 1], [1, 1], 1, 4),
    (&[2, 5, 7, 600], &[70, 600, 1, 1], &[1, 1], [0, 0], 1, 1),
    (&[1, 3, 3, 1500], &[64, 1500, 1, 1], &[1, 1], [0, 0], 1, 1),
    (&[0, 5, 5, 8], &[8, 8, 3, 3], &[1, 1], [1, 1], 1, 1),
    (&[1, 5, 5, 0], &[8, 0, 3, 3], &[1, 1], [1, 1], 1, 1),
];

fn attributes(
    &(_, w, stride, [low, high], dilation, group): &Windows,
) -> Vec<(&'static str, Attr)> {
    let all = |v: i64| Attr::ints(vec![v; w.len() - 2]);
    vec![
        ("stride", Attr::ints(stride.to_vec())),
        ("low", all(low)),
        ("high", all(high)),
        ("dilation", all(dilation)),
        ("group", Attr::int(group)),
    ]
}

#[test]
fn windows_of_every_kind() {
    for windows in WINDOWS {
        for constant in [true, false] {
            check(&format!("{windows:?}"), Tolerance(1e-4, 1e-5), |c| {
                let x = c.input(DType::F32, windows.0);
                let w = match constant {
                    true => c.constant(DType::F32, windows.1),
                    false => c.input(DType::F32, windows.1),
                };
                vec![c.apply("conv_channels_last", &attributes(windows), &[x, w])]
            });
        }
    }
}

#[test]
fn what_follows_is_computed_in_registers() {
    for windows in WINDOWS.iter().filter(|w| w.0.len() == 4) {
        for (name, epilogue) in EPILOGUES {
            check(&format!("{windows:?}, {name}"), Tolerance(1e-4, 1e-5), |c| {
                let mut values = c.tensor(DType::F32, windows.0).to_f64();
                let n = values.len();
                if n > 2 {
                    (values[n / 3], values[n / 2]) = (f64::NAN, f64::INFINITY);
                }
                let x = c.given(Tensor::from_f64(DType::F32, windows.0.to_vec(), &values));
                let w = c.constant(DType::F32, windows.1);
                let y = c.apply("conv_channels_last", &attributes(windows), &[x, w]);
                let shape = c.shape(y);
                vec![epilogue(c, y, &shape, 3)]
            });
        }
    }
}

#[test]
fn weights_that_are_not_finite_meet_the_padding() {
    for windows in WINDOWS.iter().filter(|w| !w.1.contains(&0)) {
        check(&format!("{windows:?}"), Tolerance(1e-4, 1e-5), |c| {
            let mut values = c.tensor(DType::F32, windows.1).to_f64();
            let n = values.len();
            (values[0], values[n / 2]) = (f64::INFINITY, f64::NAN);
            let x = c.input(DType::F32, windows.0);
            let w = c.builder.constant(Tensor::from_f64(DType::F32, windows.1.to_vec(), &values));
            vec![c.apply("conv_channels_last", &attributes(windows), &[x, w])]
        });
    }
}

/// Extents of input, window, strides, padding before and after, dilation.
type Pool = (&'static [usize], &'static [i64], &'static [i64], [i64; 2], i64);

const POOLS: &[Pool] = &[
    (&[1, 9, 9, 5], &[3, 3], &[2, 2], [0, 0], 1),
    (&[2, 8, 7, 64], &[2, 2], &[2, 2], [0, 1], 1),
    (&[1, 13, 13, 40], &[3, 3], &[1, 1], [1, 1], 1),
    (&[1, 6, 5, 33], &[3, 2], &[1, 1], [0, 0], 2),
    (&[2, 11, 18], &[4], &[3], [1, 2], 1),
    (&[1, 6, 5, 7, 18], &[3, 2, 3], &[2, 1, 2], [1, 0], 1),
    (&[1, 4, 4, 7], &[4, 4], &[1, 1], [0, 0], 1),
];

#[test]
fn pools() {
    for (x, window, stride, [low, high], dilation) in POOLS {
        for op in ["maxpool_channels_last", "sumpool_channels_last"] {
            check(&format!("{op} {x:?} {window:?}"), Tolerance(1e-5, 1e-6), |c| {
                let mut values = c.tensor(DType::F32, x).to_f64();
                let n = values.len();
                (values[n / 3], values[n / 2], values[n / 5]) = (f64::NAN, f64::INFINITY, -0.0);
                values[n - 1] = f64::NEG_INFINITY;
                let x = c.given(Tensor::from_f64(DType::F32, x.to_vec(), &values));
                let all = |v: i64| Attr::ints(vec![v; window.len()]);
                let attrs = [
                    ("window", Attr::ints(window.to_vec())),
                    ("stride", Attr::ints(stride.to_vec())),
                    ("low", all(*low)),
                    ("high", all(*high)),
                    ("dilation", all(*dilation)),
                ];
                vec![c.apply(op, &attrs, &[x])]
            });
        }
    }
}

#[test]
fn changes_of_layout() {
    let shapes: [&[usize]; 7] = [
        &[1, 3, 9, 7],
        &[2, 4, 5, 6],
        &[3, 1, 4, 4],
        &[1, 70, 3, 5],
        &[2, 3, 8],
        &[1, 0, 2, 2],
        &[2, 5],
    ];
    for shape in shapes {
        for dtype in [DType::F32, DType::F16, DType::F64, DType::I64, DType::U8, DType::Bool] {
            for op in ["channels_last", "channels_first"] {
                check(&format!("{op} {shape:?} {dtype}"), Tolerance(0.0, 0.0), |c| {
                    let x = c.input(dtype, shape);
                    vec![c.apply(op, &[], &[x])]
                });
            }
        }
    }
}

/// Extents of input and weights, strides, padding before and after, dilation, elements added.
type Scattered = (&'static [usize], &'static [usize], &'static [i64], [i64; 2], i64, i64);

const SCATTERED: &[Scattered] = &[
    (&[1, 7, 9, 16], &[16, 24, 2, 2], &[2, 2], [0, 0], 1, 0),
    (&[2, 4, 4, 33], &[33, 40, 4, 4], &[2, 2], [1, 1], 1, 0),
    (&[1, 5, 6, 8], &[8, 3, 3, 3], &[2, 2], [1, 1], 1, 1),
    (&[1, 6, 5, 12], &[12, 20, 3, 3], &[1, 1], [1, 1], 1, 0),
    (&[1, 1, 1, 20], &[20, 35, 4, 4], &[1, 1], [0, 0], 1, 0),
    (&[1, 1, 3, 5], &[5, 7, 3, 4], &[3, 2], [0, 1], 2, 1),
    (&[2, 5, 4, 6], &[6, 16, 3, 2], &[3, 1], [0, 0], 1, 2),
    (&[1, 4, 5, 9], &[9, 17, 3, 3], &[4, 3], [0, 0], 1, 0),
    (&[1, 5, 5, 4], &[4, 6, 3, 3], &[2, 3], [1, 2], 2, 0),
    (&[1, 4, 4, 4], &[4, 6, 5, 5], &[2, 2], [5, 4], 1, 0),
    (&[1, 4, 3, 4], &[4, 6, 3, 3], &[2, 2], [-1, -2], 1, 0),
    (&[2, 13, 10], &[10, 18, 4], &[2], [1, 1], 1, 0),
    (&[1, 3, 4, 5, 6], &[6, 10, 2, 2, 2], &[2, 2, 2], [0, 0], 1, 0),
    (&[2, 2, 3, 3, 6], &[6, 10, 3, 4, 2], &[1, 2, 3], [1, 0], 1, 0),
    (&[0, 5, 5, 8], &[8, 8, 3, 3], &[2, 2], [1, 1], 1, 0),
    (&[1, 5, 5, 0], &[0, 8, 3, 3], &[2, 2], [1, 1], 1, 0),
];

fn scatter(
    c: &mut Case<'_>,
    &(x, w, stride, [low, high], dilation, extra): &Scattered,
    change: impl Fn(&mut [f64]),
) -> Value {
    let all = |v: i64| Attr::ints(vec![v; w.len() - 2]);
    let attrs = [
        ("stride", Attr::ints(stride.to_vec())),
        ("low", all(low)),
        ("high", all(high)),
        ("dilation", all(dilation)),
        ("extra", all(extra)),
        ("group", Attr::int(1)),
    ];
    let mut values = c.tensor(DType::F32, w).to_f64();
    change(&mut values);
    let w = c.builder.constant(Tensor::from_f64(DType::F32, w.to_vec(), &values));
    let x = c.input(DType::F32, x);
    c.apply("conv_transpose_channels_last", &attrs, &[x, w])
}

#[test]
fn transposed_convolutions() {
    for scattered in SCATTERED {
        check(&format!("{scattered:?}"), Tolerance(1e-4, 1e-5), |c| {
            vec![scatter(c, scattered, |_| {})]
        });
        check(&format!("{scattered:?}, a weight that is not finite"), Tolerance(1e-4, 1e-5), |c| {
            let change = |w: &mut [f64]| w.iter_mut().take(1).for_each(|w| *w = f64::INFINITY);
            vec![scatter(c, scattered, change)]
        });
        check(&format!("{scattered:?}, bias and rectifier"), Tolerance(1e-4, 1e-5), |c| {
            let y = scatter(c, scattered, |_| {});
            let shape = c.shape(y);
            let bias = c.constant(DType::F32, &[shape[shape.len() - 1]]);
            let bias = c.broadcast(bias, &[shape.len() as i64 - 1], &shape);
            let y = c.apply("add", &[], &[y, bias]);
            vec![c.apply("relu", &[], &[y])]
        });
    }
}
