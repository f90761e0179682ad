//! Traps that resemble redundant spellings: bounds that matter, factors that do not cancel, axes that are not shared.

use super::{Trap, limit, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "choice_of_another_number",
        "the threshold is not the number chosen",
        "x: f32[5, 7]\ny = Where(Less(x, 0.5), 0, x)\n-> y",
    ),
    trap(
        "choice_of_another_tensor",
        "another tensor is compared",
        "x: f32[5, 7]\nz: f32[5, 7]\ny = Where(Less(z, 0), 0, x)\n-> y",
    ),
    trap(
        "choice_above_a_lower_number",
        "what is above one becomes a half",
        "x: f32[5, 7]\ny = Where(Greater(x, 1), 0.5, x)\n-> y",
    ),
    trap(
        "choice_by_nan",
        "nothing is below NaN, and nothing is its maximum",
        "x: f32[5, 7]\ny = Where(Less(x, nan), nan, x)\n-> y",
    ),
    trap(
        "choice_whose_bounds_cross",
        "what is below two becomes two, the rest at most one",
        "x: f32[5, 7]\ny = Where(Less(x, 2), 2, Min(x, 1))\n-> y",
    ),
    trap(
        "choice_that_reaches_the_bound",
        "the exponent is bounded below the threshold",
        "x: f32[5, 7]\ny = Where(Less(x, 0), Sub(Exp(Min(x, -1)), 1), x)\n-> y",
    ),
    trap(
        "choice_of_the_other_branch",
        "the bound of the exponent is met where the condition does not hold",
        "x: f32[5, 7]\ny = Where(Less(x, 0), x, Sub(Exp(Min(x, 0)), 1))\n-> y",
    ),
    trap(
        "choice_scaled_by_zero",
        "one branch is a multiple of nothing",
        "x: f32[5, 7]\nz: f32[5, 7]\ny = Where(Less(x, 0), Mul(0, x), Mul(2, z))\n-> y",
    ),
    trap(
        "choice_of_factors",
        "a product with zero keeps NaN",
        "x: f32[5, 7]\nz: f32[5, 7]\ny = Mul(x, Where(Less(z, 0), f32[1, 1]{0}, 1))\n-> y",
    ),
    trap(
        "exponential_bounded_below_its_range",
        "the bound is below what the exponential can yield",
        "x: f32[5, 7]\ny = Min(Sub(Exp(x), 1), -2)\n-> y",
    ),
    limit(
        "root_of_reciprocal",
        "the value may be negative",
        "x: f32[5, 7]\ny = Sqrt(Reciprocal(x))\n-> y",
    ),
    trap(
        "root_of_bound",
        "what is bounded may be negative",
        "x: f32[5, 7]\ny = Sqrt(Max(x, 0.25))\n-> y",
    ),
    trap(
        "bound_above_squares",
        "a square may be below one half",
        "x: f32[5, 7]\ny = Max(Mul(x, x), 0.5)\n-> y",
    ),
    trap(
        "bound_of_products",
        "a product of two tensors may be negative",
        "x: f32[5, 7]\nz: f32[5, 7]\ny = Max(Mul(x, z), 0)\nw = Abs(Mul(x, z))\n-> y, w",
    ),
    trap(
        "bound_of_shifted",
        "the bound does not move with the value",
        "x: f32[5, 7]\ny = Add(Max(x, 1), Max(Add(x, 1), 1))\n-> y",
    ),
    limit(
        "line_and_rectifier_that_cancel",
        "a line above zero that the rectifier takes away",
        "x: f32[5, 7]\ny = Sub(Mul(x, 0.5), Mul(0.5, Relu(x)))\n-> y",
    ),
    limit(
        "line_and_rectifier_that_fall",
        "the slope above zero is negative",
        "x: f32[5, 7]\ny = Sub(Mul(x, 0.1), Mul(0.9, Relu(x)))\n-> y",
    ),
    limit(
        "line_and_absolute_value_that_fall",
        "the slope above zero is negative",
        "x: f32[5, 7]\ny = Sub(Mul(x, 0.25), Mul(0.75, Abs(x)))\n-> y",
    ),
    limit(
        "rectifiers_the_other_way",
        "the first rectifier begins later",
        "x: f32[5, 7]\ny = Sub(Relu(Sub(x, 1)), Relu(x))\n-> y",
    ),
    trap(
        "larger_part_by_difference",
        "the absolute value is taken of another tensor",
        "x: f32[5, 7]\nz: f32[5, 7]\ny = Mul(Sub(x, Abs(z)), 0.5)\n-> y",
    ),
    trap(
        "softplus_of_twice",
        "twice the negated value",
        "x: f32[5, 7]\ny = Add(x, Softplus(Mul(-2, x)))\n-> y",
    ),
    trap(
        "softplus_cut_early",
        "the line begins where it is not near enough",
        "x: f32[5, 7]\ny = Where(Greater(x, 2), x, Softplus(x))\n-> y",
    ),
    limit(
        "mish_with_one",
        "one where two belongs",
        "x: f32[5, 7]
        e = Exp(x)
        n = Mul(e, Add(e, 2))
        y = Mul(x, Div(n, Add(n, 1)))
        -> y",
    ),
    trap(
        "softmax_of_infinite_shift",
        "an infinite number is added",
        "x: f32[5, 7]\ny = Softmax(Add(x, inf); axis = 1)\n-> y",
    ),
    trap(
        "log_softmax_of_columns",
        "what is added differs along the axis",
        "x: f32[5, 7]\ny = LogSoftmax(Add(x, f32[7]~); axis = 1)\n-> y",
    ),
    trap(
        "norm_of_other_axis",
        "the squares are summed along the other axis",
        "x: f32[7, 7]
        s = ReduceSum(Mul(x, x), i64[1]{0}; keepdims = 1)
        y = Div(Mul(x, 2.6457513), Sqrt(Add(s, 0.1)))
        -> y",
    ),
    trap(
        "norm_of_other_root",
        "the factor is not the root of the extent",
        "x: f32[5, 7]
        s = ReduceSum(Mul(x, x), i64[1]{1}; keepdims = 1)
        y = Div(Mul(x, 2.5), Sqrt(Add(s, 0.1)))
        -> y",
    ),
    trap(
        "sum_of_moved_units",
        "the axis that is summed is another one once unit axes come",
        "x: f32[3, 4, 3]
        y = ReduceSum(Reshape(x, i64[4]{3, 1, 4, 3}), i64[1]{2}; keepdims = 0)
        -> y",
    ),
    trap(
        "rows_by_columns",
        "several rows meet several columns",
        "x: f32[4, 2, 5]\nz: f32[4, 5, 2]\ny = MatMul(x, z)\n-> y",
    ),
    trap(
        "single_elements_of_all_channels",
        "every output channel sees all input channels",
        "x: f32[2, 4, 5, 5]\ny = Conv(x, f32[4, 4, 1, 1]~)\n-> y",
    ),
    trap(
        "single_elements_twice",
        "two output channels per input channel",
        "x: f32[2, 4, 5, 5]\ny = Conv(x, f32[8, 1, 1, 1]~; group = 4)\n-> y",
    ),
    trap(
        "single_elements_apart",
        "every second element",
        "x: f32[2, 4, 5, 5]\ny = Conv(x, f32[4, 1, 1, 1]~; group = 4, strides = [2, 2])\n-> y",
    ),
    trap(
        "single_elements_with_a_rim",
        "zeros around",
        "x: f32[2, 4, 5, 5]\ny = Conv(x, f32[4, 1, 1, 1]~; group = 4, pads = [1, 1, 1, 1])\n-> y",
    ),
    trap(
        "windows_of_one_apart",
        "every second element",
        "x: f32[2, 4, 5, 5]\ny = AveragePool(x; kernel_shape = [1, 1], strides = [2, 2])\n-> y",
    ),
    trap(
        "parts_joined_with_others",
        "the parts are joined with the axis before them",
        "x: f32[2, 3, 4]
        z: f32[2, 3, 4]
        y = Reshape(Concat(x, z; axis = 1), i64[2]{12, 4})
        -> y",
    ),
    trap(
        "parts_cut_elsewhere",
        "the seam lies within a row of the new shape",
        "x: f32[2, 3, 4]
        z: f32[2, 1, 4]
        y = Reshape(Concat(x, z; axis = 1), i64[3]{2, 2, 8})
        -> y",
    ),
    trap(
        "parts_negated_twice_over",
        "minus two and minus one do not cancel",
        "x: f32[2, 3]\nz: f32[2, 3]\ny = Mul(-2, Concat(x, Neg(z); axis = 1))\n-> y",
    ),
    trap(
        "triangle_that_cuts",
        "one element is left out",
        "x: f32[5, 5]\ny = Trilu(x, i64[]{-3}; upper = 1)\n-> y",
    ),
    trap(
        "factor_of_other_rows",
        "the factors lie along different axes",
        "x: f32[2, 5, 5]
        s: f32[2, 5, 1]
        m: f32[2, 5, 1]
        t = Transpose(s; perm = [0, 2, 1])
        y = Add(Mul(x, t), Mul(m, s))
        -> y",
    ),
];
