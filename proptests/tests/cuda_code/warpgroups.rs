//! Products in 16 bits by warpgroups, on the emulator: in both layouts of each factor, of extents that do not fill tiles, with what precedes
//! and follows, in parts.

use mlc_cuda::{Tuning, Warpgroups};
use mlc_fuzz::input_values::Style;
use mlc_proptests::generated_code::check_for;

fn check(text: &str, cases: &[(&str, &str, &str)]) {
    let tuning = Tuning { warpgroups: Warpgroups::Always, ..Tuning::default() };
    check_for(tuning, text, cases, &[Style::Normal, Style::Special]);
}

#[test]
fn products_of_matrices() {
    let text = "
        def plain(x: f16[256, 256], w: f16[256, 256]) -> f16[256, 256] = x @ w
        def brain(x: bf16[128, 128], w: bf16[128, 256]) -> bf16[128, 256] = x @ w
        def odd(x: f16[100, 104], w: f16[104, 72]) -> f16[100, 72] = x @ w
        def left(x: f16[72, 136], w: f16[72, 80]) -> f16[136, 80] = transpose(x, perm=[1, 0]) @ w
        def right(x: f16[136, 72], w: f16[80, 72]) -> f16[136, 80] = x @ transpose(w, perm=[1, 0])
        def both(x: bf16[200, 72], w: bf16[136, 200]) -> bf16[72, 136]
          = transpose(x, perm=[1, 0]) @ transpose(w, perm=[1, 0])
        def batch(x: f16[3, 80, 64], w: f16[3, 64, 96]) -> f16[3, 80, 96] = x @ w
        def deep(x: f16[64, 2080], w: f16[2080, 64], b: f16[64]) -> f16[64, 64] = relu(x @ w + b)
        def after(x: f16[130, 128], w: f16[128, 264], b: f16[264], r: f16[130, 264]) -> f16[130, 264]
          = gelu(x @ w + b) * r
        def small(x: f16[63, 128], w: f16[128, 128]) -> f16[63, 128] = x @ w
        def floats(x: f32[128, 128], w: f32[128, 128]) -> f32[128, 128] = x @ w
    ";
    let cases = [
        ("plain", "wgmma_f16<0, 1>", "mma_16816"),
        ("brain", "wgmma_bf16<0, 1>", "mma_16816"),
        ("odd", "wgmma_f16<0, 1>", "next_left"),
        ("left", "wgmma_f16<1, 1>", "next_left"),
        ("right", "wgmma_f16<0, 0>", "next_left"),
        ("both", "wgmma_bf16<1, 0>", "next_left"),
        ("batch", "wgmma_f16", "next_left"),
        ("deep", "wgmma_f16", "begin = 0"),
        ("after", "wgmma_f16", "next_left"),
        ("small", "mma_16816", "wgmma_"),
        ("floats", "", "wgmma_"),
    ];
    check(text, &cases);
}

#[test]
fn products_of_what_passes_through_registers() {
    let text = "
        def pairs(x: f16[96, 138], w: f16[138, 71]) -> f16[96, 71] = x @ w
        def apart(x: f16[71, 65], w: f16[65, 67]) -> f16[71, 67] = x @ w
        def turned(x: bf16[65, 71], w: bf16[67, 65]) -> bf16[71, 67]
          = transpose(relu(x), perm=[1, 0]) @ transpose(w, perm=[1, 0])
        def wide(x: f16[130, 301], w: f16[301, 523], b: f16[523]) -> f16[130, 523] = relu(x @ w + b)
        def deep(x: bf16[65, 2051], w: bf16[2051, 64]) -> bf16[65, 64] = x @ w
    ";
    let cases = [
        ("pairs", "wgmma_f16", "wait_copies"),
        ("apart", "wgmma_f16", "wait_copies"),
        ("turned", "wgmma_bf16", "wait_copies"),
        ("wide", "wgmma_f16", "wait_copies"),
        ("deep", "wgmma_bf16", "begin = 0"),
    ];
    check(text, &cases);
}

#[test]
fn convolutions() {
    let text = "
        def image(x: f16[2, 9, 7, 16], w: f16[3, 3, 16, 72], b: f16[72]) -> f16[2, 9, 7, 72]
          = relu(conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1) + b)
        def groups(x: f16[2, 8, 6, 32], w: f16[3, 3, 16, 128]) -> f16[2, 8, 6, 128]
          = conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=2)
        def first(x: bf16[2, 8, 11, 11], w: bf16[64, 8, 3, 3]) -> bf16[2, 64, 9, 9]
          = conv(x, w, stride=[1, 1], low=[0, 0], high=[0, 0], dilation=[1, 1], group=1)
    ";
    let cases = [
        ("image", "wgmma_f16", "next_left"),
        ("groups", "wgmma_f16", ""),
        ("first", "wgmma_bf16", ""),
    ];
    check(text, &cases);
}
