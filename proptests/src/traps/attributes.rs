//! Traps with default attributes, explicit and implicit, and with defaults that changed between versions.

use super::{Trap, refused, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap("elu_default", "alpha is one", "x: f32[4, 5]\ny = Elu(x)\n-> y"),
    trap("elu_alpha", "alpha is two", "x: f32[4, 5]\ny = Elu(x; alpha = 2.0)\n-> y"),
    trap("celu_alpha", "alpha divides inside", "x: f32[4, 5]\ny = Celu(x; alpha = 2.0)\n-> y"),
    trap("selu_default", "its own two constants", "x: f32[4, 5]\ny = Selu(x)\n-> y"),
    trap("selu_spelled", "other constants", "x: f32[4, 5]\ny = Selu(x; alpha = 1.5, gamma = 1.2)\n-> y"),
    trap("hardsigmoid_default", "0.2 and 0.5", "x: f32[4, 5]\ny = HardSigmoid(x)\n-> y"),
    trap(
        "hardsigmoid_negative",
        "a slope below zero",
        "x: f32[4, 5]\ny = HardSigmoid(x; alpha = -0.2, beta = 0.4)\n-> y",
    ),
    trap("thresholded_default", "the threshold is one", "x: f32[4, 5]\ny = ThresholdedRelu(x)\n-> y"),
    trap(
        "thresholded_negative",
        "a threshold below zero keeps negative numbers",
        "x: f32[4, 5]\ny = ThresholdedRelu(x; alpha = -1.0)\n-> y",
    ),
    trap("thresholded_zero", "a threshold of zero", "x: f32[4, 5]\ny = ThresholdedRelu(x; alpha = 0.0)\n-> y"),
    trap("shrink_default", "the limit is a half, nothing moves", "x: f32[4, 5]\ny = Shrink(x)\n-> y"),
    trap("shrink_bias", "soft threshold", "x: f32[4, 5]\ny = Shrink(x; bias = 0.3, lambd = 1.0)\n-> y"),
    trap(
        "clip_6_default",
        "before operator set 11 bounds are attributes, by default the largest numbers",
        "opset 10\nx: f32[4, 5]\ny = Clip(x; min = -1.0)\n-> y",
    ),
    trap("reduce_default", "all axes, kept", "x: f32[4, 5]\ny = ReduceMax(x)\n-> y"),
    trap(
        "reduce_noop",
        "no axes and `noop_with_empty_axes`: nothing happens",
        "x: f32[4, 5]\ny = ReduceSum(x; noop_with_empty_axes = 1)\n-> y",
    ),
    trap(
        "reduce_empty_axes",
        "an empty list of axes is all axes",
        "x: f32[4, 5]\ny = ReduceSum(x, i64[0]{}; keepdims = 0)\n-> y",
    ),
    trap(
        "reduce_negative_axes",
        "axes count from the end and are unsorted",
        "x: f32[3, 4, 5]\ny = ReduceSum(x, i64[2]{-1, 0}; keepdims = 0)\n-> y",
    ),
    trap("reduce_l2", "the root of a sum of squares", "x: f32[4, 5]\ny = ReduceL2(x; axes = [1])\n-> y"),
    trap("reduce_l1", "a sum of absolute values", "x: f32[4, 5]\ny = ReduceL1(x; axes = [1])\n-> y"),
    trap(
        "reduce_log_sum_exp",
        "shifted or not",
        "x: f32[4, 5]\ny = ReduceLogSumExp(x; axes = [1])\n-> y",
    ),
    trap("argmax_ties", "the first of equal elements", "x: f32[4, 6]\ny = ArgMax(x; axis = 1)\n-> y"),
    trap(
        "argmax_last",
        "the last of equal elements",
        "x: f32[4, 6]\ny = ArgMax(x; axis = 1, select_last_index = 1, keepdims = 0)\n-> y",
    ),
    trap("concat_negative_axis", "the axis counts from the end", "x: f32[3, 3]\nz: f32[3, 3]\ny = Concat(x, z; axis = -2)\n-> y"),
    trap(
        "cumsum_exclusive",
        "the element itself is not in its sum, from the end",
        "x: f32[3, 4]\ny = CumSum(x, i64[]{1}; exclusive = 1, reverse = 1)\n-> y",
    ),
    trap("trilu_default", "the upper triangle", "x: f32[4, 4]\ny = Trilu(x)\n-> y"),
    trap(
        "trilu_lower",
        "the lower triangle without its diagonal, of NaN, too",
        "x: f32[4, 4]\ny = Trilu(x, i64[]{-1}; upper = 0)\n-> y",
    ),
    trap(
        "layernorm_axis",
        "all axes from 1 on",
        "x: f32[2, 3, 4]\ny = LayerNormalization(x, f32[3, 4]~, f32[3, 4]~; axis = 1)\n-> y",
    ),
    trap(
        "layernorm_epsilon_default",
        "epsilon is 1e-5",
        "x: f32[3, 4]\ny = LayerNormalization(Mul(x, 0.001), f32[4]~)\n-> y",
    ),
    trap(
        "layernorm_statistics",
        "mean and inverse deviation are wanted",
        "x: f32[3, 4]\ny, m, i = LayerNormalization(x, f32[4]~, f32[4]~)\n-> y, m, i",
    ),
    trap(
        "depth_to_space_crd",
        "blocks vary slowest or fastest",
        "x: f32[1, 8, 2, 2]
        a = DepthToSpace(x; blocksize = 2)
        b = DepthToSpace(x; blocksize = 2, mode = \"CRD\")
        -> a, b",
    ),
    trap(
        "resize_floor",
        "asymmetric coordinates with floor",
        "x: f32[1, 1, 2, 3]
        y = Resize(x, _, f32[4]{1, 1, 2, 2}; mode = \"nearest\", nearest_mode = \"floor\", coordinate_transformation_mode = \"asymmetric\")
        -> y",
    ),
    refused(
        "dropout_training",
        "training drops elements by chance",
        "training",
        "x: f32[4, 5]
        y = Dropout(x, 0.5, bool[]{1})
        -> y",
    ),
    trap(
        "pad_reflect",
        "what lies outside is a mirror image",
        "x: f32[4, 5]
        y = Pad(x, i64[4]{0, 1, 0, 1}; mode = \"reflect\")
        -> y",
    ),
    refused(
        "unknown_attribute",
        "an attribute that the operator does not have",
        "slope",
        "x: f32[4, 5]
        y = Relu(x; slope = 0.5)
        -> y",
    ),
];
