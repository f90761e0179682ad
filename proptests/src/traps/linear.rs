//! Traps that resemble linear layers, and products that share a factor.

use super::{Trap, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "qkv_of_different_inputs",
        "three products have three left factors",
        "x: f32[2, 4, 8]
        z: f32[2, 4, 8]
        u: f32[2, 4, 8]
        q = MatMul(x, f32[8, 8]~)
        k = MatMul(z, f32[8, 8]+)
        v = MatMul(u, f32[8, 8]~)
        -> q, k, v",
    ),
    trap(
        "products_share_the_right_factor",
        "one weight, two inputs",
        "x: f32[4, 8]
        z: f32[3, 8]
        w: f32[8, 5]
        a = MatMul(x, w)
        b = MatMul(z, w)
        -> a, b",
    ),
    trap(
        "products_from_both_sides",
        "one tensor is left factor once and right factor once",
        "x: f32[6, 6]
        a = MatMul(x, f32[6, 6]~)
        b = MatMul(f32[6, 6]+, x)
        -> a, b",
    ),
    trap(
        "linear_bias_of_rows",
        "the bias is added by rows, which are as many as columns",
        "x: f32[5, 3]
        y = Add(MatMul(x, f32[3, 5]~), f32[5, 1]~)
        -> y",
    ),
    trap(
        "linear_bias_grows_rank",
        "the bias has an axis more than the product",
        "x: f32[5, 3]
        y = Add(MatMul(x, f32[3, 5]~), f32[2, 1, 5]~)
        -> y",
    ),
    trap(
        "linear_bias_grows_rows",
        "one row becomes four by the bias",
        "x: f32[1, 3]
        y = Add(MatMul(x, f32[3, 5]~), f32[4, 5]~)
        -> y",
    ),
    trap(
        "linear_scale_of_inner_axis",
        "a scale of the input lies along the inner axis of a square",
        "x: f32[5, 5]
        y = MatMul(Mul(x, f32[5]~), f32[5, 5]~)
        -> y",
    ),
    trap(
        "linear_scale_of_rows",
        "a scale of the result lies along rows of a square",
        "x: f32[5, 5]
        y = Mul(MatMul(x, f32[5, 5]~), f32[5, 1]~)
        -> y",
    ),
    trap(
        "linear_square_not_transposed",
        "the weight is transposed once, not twice",
        "x: f32[5, 5]
        y = MatMul(x, Transpose(f32[5, 5]~; perm = [1, 0]))
        -> y",
    ),
    trap(
        "linear_relu_linear",
        "a rectifier stands between the products",
        "x: f32[5, 4]
        y = MatMul(Relu(MatMul(x, f32[4, 3]~)), f32[3, 2]~)
        -> y",
    ),
    trap(
        "linear_zero_weight",
        "a column of zeros still meets NaN and infinities",
        "x: f32[5, 2]
        y = MatMul(x, f32[2, 2]{0, 1, 0, 2})
        -> y",
    ),
    trap(
        "linear_identity_weight",
        "a product with the identity spreads NaN over rows",
        "x: f32[5, 2]
        y = MatMul(x, f32[2, 2]{1, 0, 0, 1})
        -> y",
    ),
    trap(
        "linear_infinite_bias",
        "an infinite bias",
        "x: f32[5, 2]
        y = Add(MatMul(x, f32[2, 3]~), f32[3]{inf, -inf, 0})
        -> y",
    ),
    trap(
        "linear_scaled_by_infinity",
        "a column is scaled by infinity: its terms cannot be aligned as infinities",
        "x: f32[5, 4]
        y = Mul(MatMul(x, f32[4, 2]~), f32[2]{inf, 2})
        -> y",
    ),
    trap(
        "linear_biased_scaled_by_infinity",
        "a biased product is scaled by infinity",
        "x: f32[5, 4]
        y = Mul(Add(MatMul(x, f32[4, 2]~), f32[2]~), inf)
        -> y",
    ),
    trap(
        "product_of_one_axis",
        "a single axis on the left is a row",
        "x: f32[4]
        y = MatMul(x, f32[2, 4, 3]~)
        -> y",
    ),
    trap(
        "product_of_two_single_axes",
        "a product of single axes is a scalar",
        "x: f32[4]
        z: f32[4]
        y = MatMul(x, z)
        -> y",
    ),
    trap(
        "product_of_empty",
        "an inner axis without elements sums to zero",
        "x: f32[3, 0]
        y = Add(MatMul(x, f32[0, 2]{}), f32[2]{1, 2})
        -> y",
    ),
    trap(
        "gemm_alpha_beta",
        "factors of product and summand differ",
        "x: f32[3, 4]
        y = Gemm(x, f32[4, 5]~, f32[5]~; alpha = 0.5, beta = 2.0)
        -> y",
    ),
    trap(
        "gemm_transposed_squares",
        "both factors are squares and transposed",
        "x: f32[4, 4]
        z: f32[4, 4]
        y = Gemm(x, z, f32[4]~; transA = 1, transB = 1)
        -> y",
    ),
    trap(
        "gemm_beta_zero",
        "beta is zero: even a NaN summand has no influence",
        "x: f32[3, 4]
        c: f32[5]
        y = Gemm(x, f32[4, 5]~, c; beta = 0.0)
        -> y",
    ),
    trap(
        "gemm_alpha_zero",
        "alpha is zero: the product still brings NaN",
        "x: f32[3, 4]
        y = Gemm(x, f32[4, 5]~, f32[5]~; alpha = 0.0)
        -> y",
    ),
    trap(
        "gemm_bias_column",
        "the summand is a column of a square",
        "x: f32[4, 3]
        y = Gemm(x, f32[3, 4]~, f32[4, 1]~)
        -> y",
    ),
    trap(
        "residual_before_scale",
        "the sum with the input is scaled, not the product alone",
        "x: f32[4, 4]
        y = Mul(Add(MatMul(x, f32[4, 4]~), x), f32[4]~)
        -> y",
    ),
    trap(
        "batched_product_of_equal_extents",
        "batch and rows are exchanged before a batched product",
        "x: f32[4, 4, 5]
        z: f32[4, 5, 4]
        y = MatMul(Transpose(x; perm = [1, 0, 2]), z)
        -> y",
    ),
    trap(
        "einsum_transposes",
        "the labels of a square are exchanged",
        "x: f32[4, 4]
        z: f32[4, 4]
        y = Einsum(x, z; equation = \"ij,jk->ki\")
        -> y",
    ),
    trap(
        "einsum_batch_inner",
        "an axis of both operands is kept, not summed",
        "x: f32[3, 4, 4]
        z: f32[3, 4, 4]
        y = Einsum(x, z; equation = \"bij,bjk->ijk\")
        -> y",
    ),
];
