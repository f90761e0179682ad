//! Products and convolutions whose factors or results lie in memory otherwise than they are multiplied: through reshapes, permutations,
//! with channels last.

use mlc_fuzz::input_values::Style;
use mlc_proptests::generated_code::check;

/// Where tiles of the left factor are copied ahead of their use.
const COPIES: &str = "copy_async(left";

#[test]
fn products_of_what_is_reshaped() {
    let text = "
        def heads(x: f32[4, 12, 16], w: f32[64, 24]) -> f32[12, 24]
          = reshape(transpose(x, perm=[1, 0, 2]), shape=[12, 64]) @ w
        def halves(x: f16[4, 20, 16], w: f16[64, 24], b: f16[24]) -> f16[20, 24]
          = relu(reshape(transpose(x, perm=[1, 0, 2]), shape=[20, 64]) @ w + b)
        def odd(x: f32[3, 12, 5], w: f32[15, 24]) -> f32[12, 24]
          = reshape(transpose(x, perm=[1, 0, 2]), shape=[12, 15]) @ w
        def rows(x: f32[5, 3, 32], w: f32[32, 24]) -> f32[15, 24]
          = reshape(transpose(x, perm=[1, 0, 2]), shape=[15, 32]) @ w
        def both(x: f32[3, 2, 8, 4], w: f32[8, 2, 16]) -> f32[12, 16]
          = reshape(transpose(x, perm=[0, 3, 1, 2]), shape=[12, 16]) @ reshape(transpose(w, perm=[1, 0, 2]), shape=[16, 16])
        def columns(x: f32[24, 32], w: f32[4, 32, 8]) -> f32[24, 32]
          = x @ reshape(transpose(w, perm=[1, 0, 2]), shape=[32, 32])
        def deep(x: f32[8, 16, 512], w: f32[4096, 24]) -> f32[16, 24]
          = reshape(transpose(x, perm=[1, 0, 2]), shape=[16, 4096]) @ w
        def few(x: f32[8, 3, 64], w: f32[512, 96]) -> f32[3, 96]
          = reshape(transpose(x, perm=[1, 0, 2]), shape=[3, 512]) @ w
        def integers(x: i8[4, 12, 16], w: i8[64, 24]) -> i32[12, 24]
          = matmul_integer(reshape(transpose(x, perm=[1, 0, 2]), shape=[12, 64]), w, 0, 0)
    ";
    let cases = [
        ("heads", COPIES, "floor_div"),
        ("halves", COPIES, "floor_div"),
        ("odd", "copy_part_async<1>(left", "floor_div"),
        ("rows", COPIES, "floor_div"),
        ("both", COPIES, "floor_div"),
        ("columns", COPIES, "floor_div"),
        ("deep", COPIES, "floor_div"),
        ("few", "", "floor_div"),
        ("integers", "", "floor_div"),
    ];
    check(text, &cases, &[Style::Normal, Style::Special]);
}

#[test]
fn convolutions_with_channels_last() {
    let text = "
        def dense(x: f32[2, 6, 7, 16], w: f32[3, 3, 16, 24], b: f32[24]) -> f32[2, 6, 7, 24]
          = relu(conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1) + b)
        def halves(x: f16[2, 6, 7, 16], w: f16[3, 3, 16, 24], b: f16[24]) -> f16[2, 6, 7, 24]
          = relu(conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1) + b)
        def far(x: f32[2, 9, 9, 8], w: f32[3, 3, 8, 24]) -> f32[2, 4, 4, 24]
          = conv_all_channels_last(x, w, stride=[2, 2], low=[1, 1], high=[1, 1], dilation=[2, 2], group=1)
        def groups(x: f32[2, 5, 6, 16], w: f32[3, 3, 8, 48]) -> f32[2, 5, 6, 48]
          = conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=2)
        def line(x: f32[3, 20, 8], w: f32[5, 8, 24]) -> f32[3, 20, 24]
          = conv_all_channels_last(x, w, stride=[1], low=[2], high=[2], dilation=[1], group=1)
        def depthwise(x: f32[2, 10, 9, 8], w: f32[3, 3, 1, 8], b: f32[8]) -> f32[2, 10, 9, 8]
          = relu(conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=8) + b)
        def turned(x: f32[40, 24], w: f32[24, 36]) -> f32[36, 40] = transpose(x @ w, perm=[1, 0])
        def sums(x: f32[3, 40, 8]) -> f32[8, 3] = transpose(sum(x, axes=[1]), perm=[1, 0])
        def largest(x: f32[2, 6, 6, 8]) -> f32[2, 3, 3, 8]
          = maxpool_channels_last(x, window=[2, 2], stride=[2, 2], low=[0, 0], high=[0, 0], dilation=[1, 1])
        def numbers(x: i8[40, 24], w: i8[24, 36]) -> i32[36, 40] = transpose(matmul_integer(x, w, 0, 0), perm=[1, 0])
    ";
    let cases = [
        ("dense", COPIES, "out_of_range"),
        ("halves", COPIES, "out_of_range"),
        ("halves", "mma_16816", "float v1 = half_bits_to_float(x0"),
        ("far", COPIES, "out_of_range"),
        ("groups", COPIES, "out_of_range"),
        ("line", COPIES, "out_of_range"),
        ("depthwise", "What the windows of a tile read is in shared memory", "out_of_range"),
        ("turned", "", ""),
        ("sums", "", ""),
        ("largest", "", "kernel_1"),
        ("numbers", "", ""),
    ];
    check(text, &cases, &[Style::Normal, Style::Special]);
}
