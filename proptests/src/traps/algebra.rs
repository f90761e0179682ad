//! Traps: identities over the reals that NaN, infinities and signed zeros break.

use super::{Trap, limit, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap("zero_times", "0 * x is NaN for NaN and infinities", "x: f32[4, 5]\ny = Mul(x, 0)\n-> y"),
    trap("minus_itself", "x - x is NaN for infinities", "x: f32[4, 5]\ny = Sub(x, x)\n-> y"),
    trap("over_itself", "x / x is NaN for zeros", "x: f32[4, 5]\ny = Div(x, x)\n-> y"),
    trap("zero_over", "0 / x is NaN for zeros", "x: f32[4, 5]\ny = Div(0, x)\n-> y"),
    trap("over_zero", "x / 0 is infinite or NaN", "x: f32[4, 5]\ny = Div(x, 0)\n-> y"),
    trap(
        "root_squared",
        "sqrt(x) * sqrt(x) is NaN below zero",
        "x: f32[4, 5]\nr = Sqrt(x)\ny = Mul(r, r)\n-> y",
    ),
    trap("root_of_square", "sqrt(x * x) is |x|", "x: f32[4, 5]\ny = Sqrt(Mul(x, x))\n-> y"),
    trap("root_of_power", "sqrt(x ^ 2) is |x|", "x: f32[4, 5]\ny = Sqrt(Pow(x, 2))\n-> y"),
    trap("square_of_root", "sqrt(x) ^ 2 is NaN below zero", "x: f32[4, 5]\ny = Pow(Sqrt(x), 2)\n-> y"),
    trap("exp_of_log", "exp(log(x)) is NaN below zero", "x: f32[4, 5]\ny = Exp(Log(x))\n-> y"),
    trap("log_of_exp", "log(exp(x)) of what overflows", "x: f32[4, 5]\ny = Log(Exp(x))\n-> y"),
    trap(
        "log_of_product",
        "log(x * z) of two negative numbers",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Log(Mul(x, z))\n-> y",
    ),
    trap(
        "sum_of_logs",
        "log(x) + log(z) is NaN where either is negative",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Add(Log(x), Log(z))\n-> y",
    ),
    trap(
        "product_of_roots",
        "sqrt(x) * sqrt(z) is NaN where both are negative",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Mul(Sqrt(x), Sqrt(z))\n-> y",
    ),
    trap(
        "root_of_product",
        "sqrt(x * z) is a number where both are negative",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Sqrt(Mul(x, z))\n-> y",
    ),
    trap("plus_zero", "-0 + 0 is 0", "x: f32[4, 5]\ny = Div(1, Add(x, 0))\n-> y"),
    trap("zero_minus", "0 - 0 is 0, not -0", "x: f32[4, 5]\ny = Div(1, Sub(0, x))\n-> y"),
    trap("negated", "-x of zero is -0", "x: f32[4, 5]\ny = Div(1, Neg(x))\n-> y"),
    trap("maximum_of_itself", "max(x, x) keeps NaN", "x: f32[4, 5]\ny = Max(x, x)\n-> y"),
    trap(
        "maximum_with_nan",
        "NaN wins over zero",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Max(Min(x, z), 0)\n-> y",
    ),
    trap("relu_nan", "the rectifier keeps NaN", "x: f32[4, 5]\ny = Relu(Neg(x))\n-> y"),
    trap("clip_nan", "clipping keeps NaN", "x: f32[4, 5]\ny = Clip(x, -1, 1)\n-> y"),
    trap(
        "clip_crossed",
        "the lower bound is above the upper one: the upper one wins",
        "x: f32[4, 5]\ny = Clip(x, 2, -1)\n-> y",
    ),
    trap(
        "clip_of_clip_apart",
        "two ranges have nothing in common",
        "x: f32[4, 5]\ny = Clip(Clip(x, -3, -2), 1, 2)\n-> y",
    ),
    trap(
        "clip_of_clip",
        "the ranges overlap partly",
        "x: f32[4, 5]\ny = Clip(Clip(x, -1, 2), 0, 3)\n-> y",
    ),
    trap("clip_open", "one bound alone", "x: f32[4, 5]\ny = Clip(x, _, 0.5)\n-> y"),
    trap(
        "where_nan_not_taken",
        "the branch that is not taken is NaN",
        "x: f32[4, 5]\ny = Where(Greater(x, 0), Log(x), x)\n-> y",
    ),
    trap(
        "where_times",
        "a mask that is multiplied lets NaN through, one that selects does not",
        "x: f32[4, 5]\nm = Cast(Greater(x, 0); to = f32)\ny = Mul(x, m)\n-> y",
    ),
    trap(
        "where_same",
        "both branches are equal, the condition is not constant",
        "c: bool[4, 1]\nx: f32[1, 5]\ny = Where(c, x, x)\n-> y",
    ),
    trap(
        "where_grows",
        "the condition alone has the second axis",
        "c: bool[4, 5]\nx: f32[4, 1]\ny = Where(c, x, 0)\n-> y",
    ),
    trap("equal_itself", "x == x is false for NaN", "x: f32[4, 5]\ny = Equal(x, x)\n-> y"),
    trap(
        "not_less",
        "not (x < z) is no x >= z for NaN",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Not(Less(x, z))\n-> y",
    ),
    trap(
        "not_greater_or_equal",
        "not (x >= z) is no x < z for NaN",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Not(GreaterOrEqual(x, z))\n-> y",
    ),
    trap(
        "reciprocal_twice",
        "1 / (1 / x) of infinities and zeros",
        "x: f32[4, 5]\ny = Reciprocal(Reciprocal(x))\n-> y",
    ),
    trap(
        "divided_product",
        "x * z / z is NaN where z is zero",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Div(Mul(x, z), z)\n-> y",
    ),
    trap(
        "difference_of_sum",
        "(x + z) - z is NaN where z is infinite",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Sub(Add(x, z), z)\n-> y",
    ),
    limit("distributed",
        "x * z + x * u where the sums of infinities meet",
        "x: f32[4, 5]\nz: f32[4, 5]\nu: f32[4, 5]\ny = Add(Mul(x, z), Mul(x, u))\n-> y",
    ),
    trap("power_zero", "x ^ 0 is one, of NaN, too", "x: f32[4, 5]\ny = Pow(x, 0)\n-> y"),
    trap("power_one", "x ^ 1 is x, bit for bit", "x: f32[4, 5]\ny = Pow(x, 1)\n-> y"),
    limit("power_half", "x ^ 0.5 of -inf and -0", "x: f32[4, 5]\ny = Pow(x, 0.5)\n-> y"),
    trap("power_minus_one", "x ^ -1 at zeros", "x: f32[4, 5]\ny = Pow(x, -1)\n-> y"),
    trap("power_minus_half", "x ^ -0.5 at zeros and below", "x: f32[4, 5]\ny = Pow(x, -0.5)\n-> y"),
    trap("power_of_zero", "0 ^ x", "x: f32[4, 5]\ny = Pow(0, x)\n-> y"),
    trap("power_of_one", "1 ^ x is one, for NaN, too", "x: f32[4, 5]\ny = Pow(1, x)\n-> y"),
    trap(
        "power_of_power",
        "(x ^ 2) ^ 0.5 is |x|",
        "x: f32[4, 5]\ny = Pow(Pow(x, 2), 0.5)\n-> y",
    ),
    trap(
        "power_three_and_a_third",
        "(x ^ 3) ^ (1 / 3) is NaN below zero",
        "x: f32[4, 5]\ny = Pow(Pow(x, 3), 0.33333334)\n-> y",
    ),
    trap("power_nearly_three", "x ^ 2.9999998 is NaN below zero", "x: f32[4, 5]\ny = Pow(x, 2.9999998)\n-> y"),
    trap("power_nearly_one", "x ^ 1.0000001 is NaN below zero", "x: f32[4, 5]\ny = Pow(x, 1.0000001)\n-> y"),
    trap(
        "abs_product",
        "|x| * |x| * x",
        "x: f32[4, 5]\ny = Mul(Mul(Abs(x), Abs(x)), x)\n-> y",
    ),
    trap("sign_of_abs", "sign(|x|) of zero", "x: f32[4, 5]\ny = Sign(Abs(x))\n-> y"),
    trap(
        "floor_of_sum",
        "floor(x + 0.5) is no rounding to even",
        "x: f32[4, 5]\ny = Floor(Add(Mul(x, 0.5), 0.5))\n-> y",
    ),
    trap("round_half", "halves round to even", "x: f32[4, 5]\ny = Round(Mul(Round(x), 0.5))\n-> y"),
    trap("ceil_of_negated", "-ceil(-x) is floor(x)", "x: f32[4, 5]\ny = Neg(Ceil(Neg(x)))\n-> y"),
    trap(
        "minimum_of_sums",
        "min(x + z, x + u) where infinities meet",
        "x: f32[4, 5]\nz: f32[4, 5]\nu: f32[4, 5]\ny = Min(Add(x, z), Add(x, u))\n-> y",
    ),
    trap(
        "maximum_of_scaled",
        "a negative factor turns a maximum into a minimum",
        "x: f32[4, 5]\nz: f32[4, 5]\ny = Max(Mul(x, -2), Mul(z, -2))\n-> y",
    ),
    trap(
        "maximum_of_scaled_by_input",
        "the factor's sign is unknown",
        "x: f32[4, 5]\nz: f32[4, 5]\nu: f32[4, 5]\ny = Max(Mul(x, u), Mul(z, u))\n-> y",
    ),
    trap(
        "relu_of_scaled",
        "a rectifier of a negative multiple",
        "x: f32[4, 5]\ny = Relu(Mul(x, -0.5))\n-> y",
    ),
    trap(
        "sum_of_scaled_by_row",
        "the scale varies along the summed axis",
        "x: f32[5, 5]\ny = ReduceSum(Mul(x, f32[5]~), i64[1]{1}; keepdims = 0)\n-> y",
    ),
    trap(
        "maximum_of_scaled_reduction",
        "the largest of a negative multiple",
        "x: f32[5, 4]\ny = ReduceMax(Mul(x, -3); axes = [1])\n-> y",
    ),
    trap(
        "mean_of_products",
        "the mean of products is no product of means",
        "x: f32[5, 4]
        z: f32[5, 4]
        y = Sub(ReduceMean(Mul(x, z); axes = [1]), Mul(ReduceMean(x; axes = [1]), ReduceMean(z; axes = [1])))
        -> y",
    ),
    limit("log_sum_exp",
        "log of the sum of exponentials without a shift",
        "x: f32[5, 4]\ny = Log(ReduceSum(Exp(x), i64[1]{1}))\n-> y",
    ),
    trap(
        "cosine_squared",
        "sin(x)^2 + cos(x)^2 is NaN for infinities",
        "x: f32[4, 5]
        s = Sin(x)
        c = Cos(x)
        y = Add(Mul(s, s), Mul(c, c))
        -> y",
    ),
    trap(
        "is_nan_of_difference",
        "x - x is NaN exactly where x is not finite",
        "x: f32[4, 5]\ny = IsNaN(Sub(x, x))\n-> y",
    ),
];
