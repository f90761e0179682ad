//! Traps that resemble identities of integers and of casts.

use super::{Trap, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "division_cut",
        "integers divide towards zero",
        "x: i32[4, 5]\ny = Div(x, i32[]{3})\n-> y",
    ),
    trap(
        "division_by_minus_two",
        "a negative divisor",
        "x: i32[4, 5]\ny = Div(x, i32[]{-2})\n-> y",
    ),
    trap(
        "division_then_product",
        "x / 3 * 3 is not x",
        "x: i64[4, 5]\ny = Mul(Div(x, i64[]{3}), i64[]{3})\n-> y",
    ),
    trap(
        "product_then_division",
        "x * 3 / 3 wraps before it divides",
        "x: i32[4, 5]\ny = Div(Mul(x, i32[]{3}), i32[]{3})\n-> y",
    ),
    trap(
        "division_of_division",
        "(x / 2) / 3",
        "x: i32[4, 5]\ny = Div(Div(x, i32[]{2}), i32[]{3})\n-> y",
    ),
    trap(
        "division_of_sum",
        "(x + 1) / 2 is no x / 2 + 1 / 2",
        "x: i32[4, 5]\ny = Div(Add(x, i32[]{1}), i32[]{2})\n-> y",
    ),
    trap(
        "division_by_half",
        "division by an integer is no product with its reciprocal",
        "x: i64[4, 5]\ny = Div(x, i64[5]{2, 3, -2, 7, 1})\n-> y",
    ),
    trap(
        "modulo_of_divisor",
        "the remainder has the sign of the divisor",
        "x: i32[4, 5]\ny = Mod(x, i32[]{-3})\n-> y",
    ),
    trap(
        "modulo_of_dividend",
        "with fmod the remainder has the sign of the dividend",
        "x: i32[4, 5]\ny = Mod(x, i32[]{3}; fmod = 1)\n-> y",
    ),
    trap(
        "modulo_of_reals",
        "remainders of reals have the sign of the dividend",
        "x: f32[4, 5]\ny = Mod(x, 1.5; fmod = 1)\n-> y",
    ),
    trap(
        "modulo_of_modulo",
        "(x mod 6) mod 4",
        "x: i32[4, 5]\ny = Mod(Mod(x, i32[]{6}), i32[]{4})\n-> y",
    ),
    trap(
        "sum_wraps",
        "the largest number plus one is the smallest",
        "x: i8[4, 5]\ny = Add(x, i8[]{100})\n-> y",
    ),
    trap(
        "compare_after_wrap",
        "x + 1 > x is false for the largest number",
        "x: i32[4, 5]\ny = Greater(Add(x, i32[]{1}), x)\n-> y",
    ),
    trap("product_wraps", "squares wrap", "x: i32[4, 5]\ny = Mul(Mul(x, x), x)\n-> y"),
    trap(
        "negation_wraps",
        "the smallest number negated is itself",
        "x: i32[4, 5]\ny = Neg(x)\n-> y",
    ),
    trap(
        "absolute_wraps",
        "the absolute value of the smallest number",
        "x: i32[4, 5]\ny = Abs(x)\n-> y",
    ),
    trap(
        "unsigned_difference",
        "differences of unsigned numbers wrap",
        "x: u8[4, 5]\nz: u8[4, 5]\ny = Sub(x, z)\n-> y",
    ),
    trap(
        "unsigned_negative_factor",
        "0 - x of unsigned numbers",
        "x: u8[4, 5]\ny = Max(Sub(u8[]{0}, x), u8[]{3})\n-> y",
    ),
    trap(
        "maximum_of_scaled_integers",
        "products wrap before the maximum",
        "x: i8[4, 5]\nz: i8[4, 5]\ny = Max(Mul(x, i8[]{100}), Mul(z, i8[]{100}))\n-> y",
    ),
    trap(
        "maximum_of_shifted_integers",
        "sums wrap before the maximum",
        "x: i8[4, 5]\nz: i8[4, 5]\ny = Max(Add(x, i8[]{125}), Add(z, i8[]{125}))\n-> y",
    ),
    trap(
        "mean_of_integers",
        "the mean of integers is cut towards zero",
        "x: i32[4, 5]\ny = ReduceMean(x; axes = [1])\n-> y",
    ),
    trap(
        "sum_of_quotients",
        "quotients are cut before they are summed",
        "x: i32[4, 5]\ny = ReduceSum(Div(x, i32[]{2}), i64[1]{1})\n-> y",
    ),
    trap(
        "cast_down_and_up",
        "f64 to f32 and back rounds",
        "x: f64[4, 5]\ny = Cast(Cast(x; to = f32); to = f64)\n-> y",
    ),
    trap(
        "cast_half",
        "f32 to f16 and back rounds and overflows",
        "x: f32[4, 5]\ny = Cast(Cast(Mul(x, 1000); to = f16); to = f32)\n-> y",
    ),
    trap(
        "cast_up_and_down",
        "f32 to f64 and back is the same",
        "x: f32[4, 5]\ny = Cast(Cast(x; to = f64); to = f32)\n-> y",
    ),
    trap(
        "cast_whole",
        "f32 to i32 and back cuts fractions",
        "x: f32[4, 5]\ny = Cast(Cast(Clip(x, -9, 9); to = i32); to = f32)\n-> y",
    ),
    trap(
        "cast_i64_i32",
        "i64 to i32 and back wraps",
        "x: i64[4, 5]\ny = Cast(Cast(x; to = i32); to = i64)\n-> y",
    ),
    trap(
        "cast_i32_i8",
        "i32 to i8 and back wraps",
        "x: i32[4, 5]\ny = Cast(Cast(Mul(x, i32[]{37}); to = i8); to = i32)\n-> y",
    ),
    trap(
        "cast_i8_u8",
        "i8 to u8 and wider: negative numbers become large",
        "x: i8[4, 5]\ny = Cast(Cast(x; to = u8); to = i32)\n-> y",
    ),
    trap(
        "cast_i64_f32",
        "i64 to f32 and back loses digits",
        "x: i64[4, 5]
        y = Cast(Cast(Add(Mul(x, i64[]{3}), i64[]{16777217}); to = f32); to = i64)
        -> y",
    ),
    trap(
        "cast_bool",
        "a number as truth and back is one",
        "x: f32[4, 5]\ny = Cast(Cast(x; to = bool); to = f32)\n-> y",
    ),
    trap(
        "cast_bool_of_fraction",
        "half is true, though it is zero as an integer",
        "x: f32[4, 5]\ny = Cast(Cast(Mul(x, 0.1); to = bool); to = i32)\n-> y",
    ),
    trap(
        "cast_of_sum",
        "the sum is cut, not its terms",
        "x: f32[4, 5]
        c = Clip(x, -9, 9)
        y = Cast(Add(c, 0.5); to = i32)
        -> y",
    ),
    trap(
        "cast_of_relu",
        "a rectifier of what was cut",
        "x: f32[4, 5]\ny = Relu(Cast(Cast(Clip(x, -9, 9); to = i32); to = f32))\n-> y",
    ),
    trap(
        "dequantized",
        "a zero point is taken away before scaling",
        "x: u8[4, 5]\ny = DequantizeLinear(x, 0.1, u8[]{200})\n-> y",
    ),
    trap(
        "quantized_and_back",
        "quantising rounds and saturates",
        "x: f32[4, 5]
        q = QuantizeLinear(x, 0.1, u8[]{128})
        y = DequantizeLinear(q, 0.1, u8[]{128})
        -> y",
    ),
    trap(
        "equal_of_integers",
        "large integers that are one number as f32",
        "x: i64[4, 5] in 16777215..16777219\ny = Equal(x, i64[]{16777216})\n-> y",
    ),
    trap(
        "power_of_integers",
        "integers to an integer power",
        "x: i32[4, 5] in -5..5\ny = Pow(x, i32[]{3})\n-> y",
    ),
];
