//! Traps that resemble convolutions with an affine map after them, and pooling.

use super::{Trap, limit, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "conv_scaled_everywhere",
        "the scale is a full spatial tensor",
        "x: f32[1, 3, 5, 5]
        y = Mul(Conv(x, f32[4, 3, 3, 3]~), f32[1, 4, 3, 3]~)
        -> y",
    ),
    trap(
        "conv_scaled_by_width",
        "the scale lies along the width, which is as long as the channels",
        "x: f32[1, 3, 6, 6]
        y = Mul(Conv(x, f32[4, 3, 3, 3]~), f32[4]~)
        -> y",
    ),
    trap(
        "conv_shifted_by_width",
        "the bias lies along the width",
        "x: f32[1, 3, 6, 6]
        y = Add(Conv(x, f32[4, 3, 3, 3]~), f32[4]~)
        -> y",
    ),
    trap(
        "conv_scaled_by_sample",
        "the scale lies along the batch",
        "x: f32[4, 3, 5, 5]
        y = Mul(Conv(x, f32[4, 3, 3, 3]~), f32[4, 1, 1, 1]~)
        -> y",
    ),
    trap(
        "conv_scaled_by_infinity",
        "an infinite scale may not meet the zeros of the padding",
        "x: f32[1, 2, 4, 4]
        y = Mul(Conv(x, f32[2, 2, 3, 3]~; pads = [1, 1, 1, 1]), f32[2, 1, 1]{inf, 1})
        -> y",
    ),
    trap(
        "conv_of_shifted",
        "a shift before padding is no bias after it",
        "x: f32[1, 2, 4, 4]
        y = Conv(Add(x, f32[2, 1, 1]{1, 2}), f32[2, 2, 3, 3]~; pads = [1, 1, 1, 1])
        -> y",
    ),
    trap(
        "conv_of_batchnorm",
        "normalisation before padding",
        "x: f32[1, 2, 4, 4]
        b = BatchNormalization(x, f32[2]+, f32[2]~, f32[2]~, f32[2]+)
        y = Conv(b, f32[2, 2, 3, 3]~; pads = [1, 1, 1, 1])
        -> y",
    ),
    trap(
        "conv_of_clipped_pad",
        "the padding is of ones",
        "x: f32[1, 2, 4, 4]
        p = Pad(x, i64[8]{0, 0, 1, 1, 0, 0, 1, 1}, 1)
        y = Conv(p, f32[2, 2, 3, 3]~)
        -> y",
    ),
    trap(
        "conv_of_padded_channels",
        "channels are padded, not pixels",
        "x: f32[1, 2, 4, 4]
        p = Pad(x, i64[8]{0, 1, 0, 0, 0, 0, 0, 0}, 0)
        y = Conv(p, f32[2, 3, 3, 3]~)
        -> y",
    ),
    trap(
        "conv_of_negative_pad",
        "a negative pad crops",
        "x: f32[1, 2, 5, 5]
        p = Pad(x, i64[8]{0, 0, -1, 0, 0, 0, 0, 1}, 0)
        y = Conv(p, f32[2, 2, 3, 3]~)
        -> y",
    ),
    trap(
        "conv_asymmetric_pads",
        "pads differ on all four sides",
        "x: f32[1, 2, 5, 6]
        y = Mul(Conv(x, f32[3, 2, 3, 3]~; pads = [0, 2, 1, 1]), f32[3, 1, 1]~)
        -> y",
    ),
    trap(
        "conv_groups",
        "more filters per group than one, scaled by channel",
        "x: f32[1, 4, 5, 5]
        y = Mul(Conv(x, f32[6, 2, 3, 3]~; group = 2), f32[6, 1, 1]~)
        -> y",
    ),
    trap(
        "conv_groups_scaled_input",
        "a scale by input channel meets groups",
        "x: f32[1, 4, 5, 5]
        y = Conv(Mul(x, f32[4, 1, 1]~), f32[6, 2, 3, 3]~; group = 2)
        -> y",
    ),
    trap(
        "conv_pair_of_strides",
        "two convolutions of one input have different strides",
        "x: f32[1, 3, 6, 6]
        a = Conv(x, f32[4, 3, 3, 3]~; pads = [1, 1, 1, 1], strides = [1, 1])
        b = Conv(x, f32[5, 3, 3, 3]~; pads = [1, 1, 1, 1], strides = [2, 2])
        -> a, b",
    ),
    trap(
        "conv_pair_of_dilations",
        "two convolutions of one input have different dilations but equal results' extents",
        "x: f32[1, 3, 6, 6]
        a = Conv(x, f32[4, 3, 3, 3]~; pads = [1, 1, 1, 1])
        b = Conv(x, f32[5, 3, 3, 3]~; pads = [2, 2, 2, 2], dilations = [2, 2])
        -> a, b",
    ),
    trap(
        "conv_pair_of_pads",
        "two convolutions of one input have pads on different sides",
        "x: f32[1, 3, 6, 6]
        a = Conv(x, f32[4, 3, 2, 2]~; pads = [0, 0, 1, 1])
        b = Conv(x, f32[5, 3, 2, 2]~; pads = [1, 1, 0, 0])
        -> a, b",
    ),
    trap(
        "conv_pair_of_kernels",
        "two convolutions whose kernels differ in extent, joined along channels",
        "x: f32[1, 3, 6, 6]
        a = Conv(x, f32[4, 3, 1, 1]~)
        b = Conv(x, f32[5, 3, 3, 3]~; pads = [1, 1, 1, 1])
        y = Concat(a, b; axis = 1)
        -> y",
    ),
    trap(
        "conv_pair_of_inputs",
        "two convolutions of different inputs",
        "x: f32[1, 3, 5, 5]
        z: f32[1, 3, 5, 5]
        a = Conv(x, f32[4, 3, 3, 3]~)
        b = Conv(z, f32[4, 3, 3, 3]+)
        -> a, b",
    ),
    trap(
        "conv_relu_conv",
        "a rectifier stands between two convolutions of one pixel",
        "x: f32[1, 3, 4, 4]
        y = Conv(Relu(Conv(x, f32[4, 3, 1, 1]~)), f32[2, 4, 1, 1]~)
        -> y",
    ),
    trap(
        "conv_conv_padded",
        "the second convolution pads what the first has shifted",
        "x: f32[1, 3, 4, 4]
        a = Conv(x, f32[4, 3, 1, 1]~, f32[4]~)
        y = Conv(a, f32[2, 4, 3, 3]~; pads = [1, 1, 1, 1])
        -> y",
    ),
    limit(
        "conv_residual_scaled",
        "the sum is scaled, not the convolution alone",
        "x: f32[1, 3, 4, 4]
        y = Mul(Add(Conv(x, f32[3, 3, 1, 1]~), x), f32[3, 1, 1]~)
        -> y",
    ),
    trap(
        "conv_same_upper",
        "an odd pad goes below",
        "x: f32[1, 2, 5, 6]
        y = Conv(x, f32[2, 2, 2, 4]~; auto_pad = \"SAME_UPPER\", strides = [2, 1])
        -> y",
    ),
    trap(
        "conv_same_lower",
        "an odd pad goes above",
        "x: f32[1, 2, 5, 6]
        y = Conv(x, f32[2, 2, 2, 4]~; auto_pad = \"SAME_LOWER\", strides = [2, 1])
        -> y",
    ),
    trap(
        "conv_transposed_weights",
        "ConvTranspose has its filters by input channel, scaled by output channel",
        "x: f32[1, 3, 4, 4]
        y = Mul(ConvTranspose(x, f32[3, 3, 3, 3]~; strides = [2, 2]), f32[3, 1, 1]~)
        -> y",
    ),
    trap(
        "conv_weights_of_input",
        "the scale is an input",
        "x: f32[1, 3, 4, 4]
        t: f32[4, 1, 1]
        y = Mul(Conv(x, f32[4, 3, 3, 3]~; pads = [1, 1, 1, 1]), t)
        -> y",
    ),
    trap(
        "conv_nan_weight",
        "a weight is NaN, another filter is not",
        "x: f32[1, 1, 3, 3]
        y = Mul(Conv(x, f32[2, 1, 1, 1]{nan, 1}), f32[2, 1, 1]{0, 2})
        -> y",
    ),
    trap(
        "average_pool_without_pads",
        "padding does not count in the mean",
        "x: f32[1, 2, 4, 4]
        y = AveragePool(x; kernel_shape = [3, 3], pads = [1, 1, 1, 1])
        -> y",
    ),
    trap(
        "average_pool_with_pads",
        "padding counts in the mean",
        "x: f32[1, 2, 4, 4]
        y = AveragePool(x; kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1)
        -> y",
    ),
    trap(
        "max_pool_of_negatives",
        "padding is no zero for a maximum",
        "x: f32[1, 2, 4, 4]
        y = MaxPool(Neg(Abs(x)); kernel_shape = [3, 3], pads = [1, 1, 1, 1])
        -> y",
    ),
    trap(
        "max_pool_of_negated",
        "a maximum of what is negated is a minimum",
        "x: f32[1, 2, 4, 4]
        y = Neg(MaxPool(Neg(x); kernel_shape = [2, 2]))
        -> y",
    ),
    trap(
        "max_pool_ceil",
        "the last window hangs over",
        "x: f32[1, 2, 5, 5]
        y = MaxPool(x; kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1)
        -> y",
    ),
    trap(
        "max_pool_then_relu",
        "a rectifier over a padded maximum",
        "x: f32[1, 2, 4, 4]
        y = Relu(MaxPool(x; kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]))
        -> y",
    ),
    trap(
        "average_pool_shifted",
        "a shift before a padded mean that counts the padding",
        "x: f32[1, 2, 4, 4]
        y = AveragePool(Add(x, 1); kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1)
        -> y",
    ),
];
