//! Traps that resemble activations.

use super::{Trap, limit, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "gelu_one_and_a_bit",
        "1.0009 instead of 1",
        "x: f32[5, 7]
        y = Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1.0009)), 0.5)
        -> y",
    ),
    trap(
        "gelu_half_and_a_bit",
        "0.5001 instead of 0.5",
        "x: f32[5, 7]
        y = Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1)), 0.5001)
        -> y",
    ),
    trap(
        "gelu_root_short",
        "1.41 instead of the root of two",
        "x: f32[5, 7]
        y = Mul(Mul(x, Add(Erf(Div(x, 1.41)), 1)), 0.5)
        -> y",
    ),
    trap(
        "gelu_other_factor",
        "the factor is another tensor",
        "x: f32[5, 7]
        z: f32[5, 7]
        y = Mul(Mul(z, Add(Erf(Div(x, 1.4142135)), 1)), 0.5)
        -> y",
    ),
    trap(
        "gelu_minus",
        "one minus the error function",
        "x: f32[5, 7]
        y = Mul(Mul(x, Sub(1, Erf(Div(x, 1.4142135)))), 0.5)
        -> y",
    ),
    trap(
        "gelu_sigmoid_factor",
        "1.7021 instead of 1.702",
        "x: f32[5, 7]
        y = Mul(x, Sigmoid(Mul(x, 1.7021)))
        -> y",
    ),
    trap(
        "gelu_tanh_cubic_short",
        "0.0447 instead of 0.044715",
        "x: f32[5, 7]
        p = Add(x, Mul(0.0447, Mul(x, Mul(x, x))))
        y = Mul(Mul(0.5, x), Add(1, Tanh(Mul(0.7978845608, p))))
        -> y",
    ),
    trap(
        "gelu_tanh_root_short",
        "0.79 instead of the root of two over pi",
        "x: f32[5, 7]
        p = Add(x, Mul(0.044715, Mul(x, Mul(x, x))))
        y = Mul(Mul(0.5, x), Add(1, Tanh(Mul(0.79, p))))
        -> y",
    ),
    trap(
        "gelu_tanh_square",
        "the square instead of the cube",
        "x: f32[5, 7]
        p = Add(x, Mul(0.044715, Mul(x, x)))
        y = Mul(Mul(0.5, x), Add(1, Tanh(Mul(0.7978845608, p))))
        -> y",
    ),
    trap(
        "silu_factor",
        "1.001 x in the logistic function",
        "x: f32[5, 7]
        y = Mul(x, Sigmoid(Mul(x, 1.001)))
        -> y",
    ),
    trap(
        "silu_other_factor",
        "another tensor is gated",
        "x: f32[5, 7]
        z: f32[5, 7]
        y = Mul(z, Sigmoid(x))
        -> y",
    ),
    trap(
        "silu_of_column",
        "the gate is one column for all",
        "x: f32[5, 7]
        z: f32[5, 1]
        y = Mul(x, Sigmoid(z))
        -> y",
    ),
    trap(
        "sigmoid_two_plus",
        "1 / (2 + exp(-x))",
        "x: f32[5, 7]
        y = Div(1, Add(2, Exp(Neg(x))))
        -> y",
    ),
    trap(
        "sigmoid_no_minus",
        "1 / (1 + exp(x)) is the logistic function of -x",
        "x: f32[5, 7]
        y = Mul(x, Div(1, Add(1, Exp(x))))
        -> y",
    ),
    trap(
        "hardswish_3_001",
        "3.001 instead of 3",
        "x: f32[5, 7]
        y = Div(Mul(x, Clip(Add(x, 3.001), 0, 6)), 6)
        -> y",
    ),
    trap(
        "hardswish_6_01",
        "6.01 instead of 6 under the clip",
        "x: f32[5, 7]
        y = Div(Mul(x, Clip(Add(x, 3), 0, 6.01)), 6)
        -> y",
    ),
    trap(
        "hardswish_divisor",
        "divided by 6.01",
        "x: f32[5, 7]
        y = Div(Mul(x, Clip(Add(x, 3), 0, 6)), 6.01)
        -> y",
    ),
    trap(
        "hardswish_hardsigmoid_defaults",
        "the defaults of HardSigmoid are 0.2 and 0.5, not a sixth",
        "x: f32[5, 7]
        y = Mul(x, HardSigmoid(x))
        -> y",
    ),
    trap(
        "relu_lower",
        "the maximum with -0.001",
        "x: f32[5, 7]
        y = Max(x, -0.001)
        -> y",
    ),
    trap(
        "relu_times_x",
        "x times the sign of x, which is |x| but for NaN and zeros",
        "x: f32[5, 7]
        y = Mul(x, Sign(x))
        -> y",
    ),
    trap(
        "relu_by_where",
        "where x > 0 keeps no NaN",
        "x: f32[5, 7]
        y = Where(Greater(x, 0), x, 0)
        -> y",
    ),
    trap(
        "relu_by_where_reversed",
        "where x < 0 keeps NaN",
        "x: f32[5, 7]
        y = Where(Less(x, 0), 0, x)
        -> y",
    ),
    limit(
        "relu_half_sum",
        "(x + |x|) / 2: infinite where it may overflow",
        "x: f32[5, 7]
        y = Mul(Add(x, Abs(x)), 0.5)
        -> y",
    ),
    trap(
        "relu6_of_relu7",
        "clipped at seven after a rectifier",
        "x: f32[5, 7]
        y = Min(Relu(x), 7)
        -> y",
    ),
    trap(
        "leaky_relu_slope_above_one",
        "the maximum of x and 2 x is no leaky rectifier",
        "x: f32[5, 7]
        y = Max(x, Mul(x, 2))
        -> y",
    ),
    trap(
        "leaky_relu_negative_slope",
        "a slope below zero folds the line up",
        "x: f32[5, 7]
        y = Max(x, Mul(x, -0.5))
        -> y",
    ),
    trap(
        "leaky_relu_defaults",
        "the default slope is 0.01",
        "x: f32[5, 7]
        y = LeakyRelu(x)
        -> y",
    ),
    trap(
        "prelu_columns",
        "slopes by row of a square",
        "x: f32[6, 6]
        y = PRelu(x, f32[6, 1]~)
        -> y",
    ),
    trap(
        "elu_expm2",
        "alpha (exp(x) - 2)",
        "x: f32[5, 7]
        y = Where(Less(x, 0), Sub(Exp(x), 2), x)
        -> y",
    ),
    trap(
        "elu_unguarded",
        "the branch that is not taken overflows",
        "x: f32[5, 7]
        y = Where(Greater(x, 0), x, Sub(Exp(x), 1))
        -> y",
    ),
    trap(
        "elu_by_sum",
        "max(x, 0) + min(exp(x) - 1, 0) with another scale inside",
        "x: f32[5, 7]
        y = Add(Max(x, 0), Min(Sub(Exp(Mul(x, 2)), 1), 0))
        -> y",
    ),
    trap(
        "softplus_base_two",
        "log(2 + exp(x))",
        "x: f32[5, 7]
        y = Log(Add(2, Exp(x)))
        -> y",
    ),
    trap(
        "softplus_naive",
        "log(1 + exp(x)) overflows where its shifted form does not",
        "x: f32[5, 7]
        y = Log(Add(1, Exp(x)))
        -> y",
    ),
    trap(
        "mish_by_sigmoid",
        "x times the logistic function of softplus",
        "x: f32[5, 7]
        y = Mul(x, Sigmoid(Softplus(x)))
        -> y",
    ),
    trap(
        "softsign_without_abs",
        "x / (1 + x)",
        "x: f32[5, 7]
        y = Div(x, Add(x, 1))
        -> y",
    ),
    trap(
        "tanh_shrink_scaled",
        "x - 2 tanh(x)",
        "x: f32[5, 7]
        y = Sub(x, Mul(2, Tanh(x)))
        -> y",
    ),
    trap(
        "tanh_by_sigmoid",
        "2 sigmoid(2 x) - 1.001",
        "x: f32[5, 7]
        y = Sub(Mul(2, Sigmoid(Mul(2, x))), 1.001)
        -> y",
    ),
    trap(
        "swiglu_gate_exchanged",
        "the halves are exchanged",
        "x: f32[3, 8]
        a, b = Split(x, i64[2]{4, 4}; axis = -1)
        y = Mul(a, Mul(b, Sigmoid(b)))
        -> y",
    ),
    trap(
        "glu_wrong_axis",
        "split along rows of a square",
        "x: f32[8, 8]
        a, b = Split(x, i64[2]{4, 4}; axis = 0)
        y = Mul(a, Sigmoid(b))
        -> y",
    ),
];
