//! Traps that resemble softmax.

use super::{Trap, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "softmax_sum_of_other_axis",
        "exponentials are summed over an axis of equal extent",
        "x: f32[6, 6]
        e = Exp(Sub(x, ReduceMax(x; axes = [1])))
        y = Div(e, ReduceSum(e, i64[1]{0}))
        -> y",
    ),
    trap(
        "softmax_max_of_other_axis",
        "the largest element of another axis is taken away",
        "x: f32[6, 6]
        e = Exp(Sub(x, ReduceMax(x; axes = [0])))
        y = Div(e, ReduceSum(e, i64[1]{1}))
        -> y",
    ),
    trap(
        "softmax_max_without_keepdims",
        "the largest elements lose their axis and are taken away by column",
        "x: f32[6, 6]
        e = Exp(Sub(x, ReduceMax(x; axes = [1], keepdims = 0)))
        y = Div(e, ReduceSum(e, i64[1]{1}))
        -> y",
    ),
    trap(
        "softmax_sum_without_keepdims",
        "the sums lose their axis and divide by column",
        "x: f32[6, 6]
        e = Exp(Sub(x, ReduceMax(x; axes = [1])))
        y = Div(e, ReduceSum(e, i64[1]{1}; keepdims = 0))
        -> y",
    ),
    trap(
        "softmax_unshifted",
        "no largest element is taken away",
        "x: f32[4, 6]
        e = Exp(x)
        y = Div(e, ReduceSum(e, i64[1]{-1}))
        -> y",
    ),
    trap(
        "softmax_min_shift",
        "the smallest element is taken away",
        "x: f32[4, 6]
        e = Exp(Sub(x, ReduceMin(x; axes = [1])))
        y = Div(e, ReduceSum(e, i64[1]{1}))
        -> y",
    ),
    trap(
        "softmax_mean",
        "divided by the mean of the exponentials",
        "x: f32[4, 6]
        e = Exp(Sub(x, ReduceMax(x; axes = [1])))
        y = Div(e, ReduceMean(e; axes = [1]))
        -> y",
    ),
    trap(
        "softmax_one_more",
        "one is added to the sum",
        "x: f32[4, 6]
        e = Exp(Sub(x, ReduceMax(x; axes = [1])))
        y = Div(e, Add(ReduceSum(e, i64[1]{1}), 1))
        -> y",
    ),
    trap(
        "softmax_of_other_exponentials",
        "the sum is of another tensor's exponentials",
        "x: f32[4, 6]
        z: f32[4, 6]
        y = Div(Exp(x), ReduceSum(Exp(z), i64[1]{1}))
        -> y",
    ),
    trap(
        "softmax_base_two",
        "powers of two",
        "x: f32[4, 6]
        e = Pow(2, Sub(x, ReduceMax(x; axes = [1])))
        y = Div(e, ReduceSum(e, i64[1]{1}))
        -> y",
    ),
    trap(
        "softmax_opset_11",
        "before operator set 13 all axes from the given one on are one",
        "opset 11
        x: f32[3, 4, 5]
        y = Softmax(x; axis = 1)
        -> y",
    ),
    trap(
        "softmax_opset_11_default",
        "before operator set 13 the default axis is 1",
        "opset 11
        x: f32[3, 4, 5]
        y = Softmax(x)
        -> y",
    ),
    trap(
        "softmax_opset_13_default",
        "since operator set 13 the default axis is the last",
        "opset 13
        x: f32[3, 4, 5]
        y = Softmax(x)
        -> y",
    ),
    trap(
        "log_softmax_opset_11",
        "all axes from the given one on are one",
        "opset 11
        x: f32[3, 4, 5]
        y = LogSoftmax(x; axis = 1)
        -> y",
    ),
    trap(
        "softmax_of_square",
        "along rows after a transpose that equal extents hide",
        "x: f32[5, 5]
        y = Softmax(Transpose(x; perm = [1, 0]); axis = 1)
        -> y",
    ),
    trap(
        "log_softmax_of_other_sum",
        "the logarithm of a sum over another axis",
        "x: f32[6, 6]
        c = Sub(x, ReduceMax(x; axes = [1]))
        y = Sub(c, Log(ReduceSum(Exp(c), i64[1]{0})))
        -> y",
    ),
    trap(
        "softmax_of_one",
        "one element per row: ones, but NaN stays",
        "x: f32[4, 1]
        y = Softmax(x; axis = 1)
        -> y",
    ),
    trap(
        "softmax_twice",
        "softmax of softmax",
        "x: f32[4, 6]
        y = Softmax(Softmax(x; axis = 1); axis = 1)
        -> y",
    ),
    trap(
        "hardmax_ties",
        "of equal elements the first alone is one",
        "x: f32[4, 6]
        y = Hardmax(x; axis = 1)
        -> y",
    ),
];
