//! Traps that resemble normalisations.

use super::{Trap, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "layernorm_mean_without_keepdims",
        "the mean loses its axis and is subtracted along columns, which have the same extent",
        "x: f32[16, 16]
        c = Sub(x, ReduceMean(x; axes = [-1], keepdims = 0))
        v = ReduceMean(Mul(c, c); axes = [-1], keepdims = 1)
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[16]~), f32[16]~)
        -> y",
    ),
    trap(
        "layernorm_variance_without_keepdims",
        "the variance loses its axis and divides along columns",
        "x: f32[16, 16]
        c = Sub(x, ReduceMean(x; axes = [-1], keepdims = 1))
        v = ReduceMean(Mul(c, c); axes = [-1], keepdims = 0)
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[16]~), f32[16]~)
        -> y",
    ),
    trap(
        "layernorm_exponent_4",
        "the fourth moment instead of the second",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Pow(c, 4); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_exponent_2_01",
        "the exponent is 2.01: negative elements give NaN",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Pow(c, 2.01); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_exponent_next_to_2",
        "the exponent is the first number after 2: negative elements give NaN",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Pow(c, 2.0000003); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_epsilon_vector",
        "every column has an epsilon of its own",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, f32[8]+))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_epsilon_per_row",
        "every row has an epsilon of its own",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, f32[3, 1]+))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_epsilon_of_input",
        "epsilon is computed from the input",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        e = ReduceMax(Abs(x); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, e))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_epsilon_outside",
        "epsilon is added to the standard deviation",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Add(Mul(Div(c, Add(Sqrt(v), 0.01)), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_negative_epsilon",
        "epsilon is below zero: flat rows give NaN",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, -0.5))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_without_epsilon",
        "nothing is added to the variance: flat rows give NaN",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(v)), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_variance_of_other_axes",
        "mean over one axis, variance over two",
        "x: f32[4, 4, 4]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-2, -1])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[4]~), f32[4]~)
        -> y",
    ),
    trap(
        "layernorm_mean_of_other_axis",
        "mean over an axis of equal extent, variance over the last",
        "x: f32[2, 8, 8]
        c = Sub(x, ReduceMean(x; axes = [1]))
        v = ReduceMean(Mul(c, c); axes = [2])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_unbiased",
        "the sum of squares is divided by n - 1",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = Div(ReduceSum(Mul(c, c), i64[1]{-1}), 7)
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_unbiased_factor",
        "the variance is scaled by n / (n - 1)",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = Mul(ReduceMean(Mul(c, c); axes = [-1]), 1.1428571)
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_gain_of_rows",
        "the gain scales rows, which are as many as columns",
        "x: f32[8, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8, 1]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_bias_of_rows",
        "the bias is added by rows",
        "x: f32[8, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8, 1]~)
        -> y",
    ),
    trap(
        "layernorm_gain_grows_rank",
        "the gain has an axis more than the input",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[2, 1, 8]~)
        -> y",
    ),
    trap(
        "layernorm_not_centred_twice",
        "the variance is of the input, not of its distance from the mean",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(x, x); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_other_numerator",
        "the input is divided, not its distance from the mean",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Add(Mul(Div(x, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8]~)
        -> y",
    ),
    trap(
        "layernorm_cube_root",
        "the power -0.3333 instead of the inverse square root",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Mul(c, Pow(Add(v, 1e-5), -0.3333333))
        -> y",
    ),
    trap(
        "rmsnorm_sum",
        "the sum of squares, not their mean",
        "x: f32[3, 8]
        v = ReduceSum(Mul(x, x), i64[1]{-1})
        y = Mul(Div(x, Sqrt(Add(v, 1e-5))), f32[8]~)
        -> y",
    ),
    trap(
        "rmsnorm_abs",
        "the mean of absolute values",
        "x: f32[3, 8]
        v = ReduceMean(Abs(x); axes = [-1])
        y = Mul(Div(x, Sqrt(Add(v, 1e-5))), f32[8]~)
        -> y",
    ),
    trap(
        "rmsnorm_cube",
        "the mean of x * x * |x|",
        "x: f32[3, 8]
        v = ReduceMean(Mul(Mul(x, x), Abs(x)); axes = [-1])
        y = Mul(Div(x, Sqrt(Add(v, 1e-5))), f32[8]~)
        -> y",
    ),
    trap(
        "rmsnorm_of_product",
        "the mean of the product of two tensors",
        "x: f32[3, 8]
        z: f32[3, 8]
        v = ReduceMean(Mul(x, z); axes = [-1])
        y = Mul(Div(x, Sqrt(Add(v, 1e-5))), f32[8]~)
        -> y",
    ),
    trap(
        "rmsnorm_no_root",
        "divided by the mean square itself",
        "x: f32[3, 8]
        v = ReduceMean(Mul(x, x); axes = [-1])
        y = Mul(Div(x, Add(v, 1e-5)), f32[8]~)
        -> y",
    ),
    trap(
        "l2norm_sum_of_bound",
        "epsilon is added where a norm has a maximum",
        "x: f32[3, 8]
        n = Sqrt(ReduceSum(Mul(x, x), i64[1]{-1}))
        y = Div(x, Add(n, 0.01))
        -> y",
    ),
    trap(
        "instancenorm_one_spatial_axis",
        "statistics over one of two spatial axes of equal extent",
        "x: f32[2, 3, 4, 4]
        c = Sub(x, ReduceMean(x; axes = [2]))
        v = ReduceMean(Mul(c, c); axes = [2])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[3, 1, 1]~), f32[3, 1, 1]~)
        -> y",
    ),
    trap(
        "instancenorm_scale_of_width",
        "scale and bias lie along the width, which is as long as the channels",
        "x: f32[2, 4, 4, 4]
        c = Sub(x, ReduceMean(x; axes = [2, 3]))
        v = ReduceMean(Mul(c, c); axes = [2, 3])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[4]~), f32[4]~)
        -> y",
    ),
    trap(
        "groupnorm_groups_exchanged",
        "groups of channels and channels of a group are exchanged",
        "x: f32[2, 4, 3, 3]
        r = Reshape(Transpose(Reshape(x, i64[4]{2, 2, 2, 9}); perm = [0, 2, 1, 3]), i64[3]{2, 2, 18})
        n = InstanceNormalization(r, f32[2]{1, 1}, f32[2]{0, 0})
        y = Reshape(n, i64[4]{2, 4, 3, 3})
        -> y",
    ),
    trap(
        "batchnorm_training",
        "statistics of the batch, not of the model",
        "x: f32[4, 3, 2, 2]
        y, m, v = BatchNormalization(x, f32[3]+, f32[3]~, f32[3]~, f32[3]+; training_mode = 1)
        -> y",
    ),
    trap(
        "batchnorm_negative_variance",
        "a negative variance gives NaN in one channel alone",
        "x: f32[2, 3, 2, 2]
        y = BatchNormalization(x, f32[3]+, f32[3]~, f32[3]~, f32[3]{1, -1, 2})
        -> y",
    ),
    trap(
        "batchnorm_epsilon",
        "an epsilon that matters",
        "x: f32[2, 3, 2, 2]
        y = BatchNormalization(x, f32[3]+, f32[3]~, f32[3]~, f32[3]{0, 1e-3, 2}; epsilon = 0.5)
        -> y",
    ),
    trap(
        "lrn_even_window",
        "a window of four channels reaches further up than down",
        "x: f32[1, 6, 2, 2]
        y = LRN(x; size = 4, alpha = 0.5, beta = 0.75, bias = 1.5)
        -> y",
    ),
    trap(
        "lrn_defaults",
        "defaults of alpha, beta and bias",
        "x: f32[1, 5, 2, 2]
        y = LRN(x; size = 3)
        -> y",
    ),
];
