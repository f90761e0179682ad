//! Loop shapes of generated CUDA code, on the emulator: programs for which a shape is chosen, each at extents that fill blocks, leave
//! some of a block idle or are 1, compute what the reference interpreter does.

use mlc_backends::Executable;
use mlc_backends::reference::run_values;
use mlc_cuda::{LaunchedPlan, Tuning, launches_in_tf32};
use mlc_dsl::ir::Tensor;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs};
use mlc_proptests::emulated::Emulated;
use mlc_proptests::generated_code::{check, check_for};
use mlc_proptests::{library_with, program_of};
use std::sync::Arc;

/// Where tiles of the left factor are copied ahead of their use.
const COPIES: &str = "copy_async(left";
/// Where packs of elements are read.
const PACKS: &str = "load_pack<4>(x0";

#[test]
fn products_by_tiles() {
    let text = "
        def square(x: f32[128, 32], w: f32[32, 128]) -> f32[128, 128] = x @ w
        def odd(x: f32[67, 37], w: f32[37, 131]) -> f32[67, 131] = x @ w
        def tail(x: f32[68, 36], w: f32[36, 132]) -> f32[68, 132] = x @ w
        def turned(x: f32[40, 64], w: f32[72, 64]) -> f32[40, 72] = x @ transpose(w, perm=[1, 0])
        def both_turned(x: f32[64, 40], w: f32[72, 64]) -> f32[72, 40]
          = transpose(transpose(x, perm=[1, 0]) @ transpose(w, perm=[1, 0]), perm=[1, 0])
        def batches(x: f32[3, 20, 24], w: f32[3, 24, 12]) -> f32[3, 20, 12] = x @ w
        def around(x: f32[64, 32], s: f32[64, 32], w: f32[32, 68], b: f32[68]) -> f32[64, 68]
          = relu(tanh(x * s) @ w + b)
        def deep(x: f32[16, 2056], w: f32[2056, 24], b: f32[24]) -> f32[16, 24] = relu(x @ w + b)
        def deep_odd(x: f32[17, 1031], w: f32[1031, 9]) -> f32[17, 9] = x @ w
        def wide(x: f64[40, 20], w: f64[20, 36]) -> f64[40, 36] = x @ w
        def mixed(x: f32[40, 24], w: f16[24, 36]) -> f32[40, 36] = x @ cast(w, to=f32)
        def large(x: f32[380, 40], w: f32[40, 379]) -> f32[380, 379] = x @ w
        def tall(x: f32[512, 40], w: f32[40, 60]) -> f32[512, 60] = x @ w
        def flat(x: f32[64, 40], w: f32[40, 511]) -> f32[64, 511] = x @ w
        def image(x: f32[2, 8, 6, 8], w: f32[24, 8, 3, 3]) -> f32[2, 24, 6, 8]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
        def pairs(x: f32[40, 38], w: f32[38, 40]) -> f32[40, 40] = x @ w
        def points(x: f32[2, 16, 6, 6], w: f32[12, 16, 1, 1], b: f32[12]) -> f32[2, 12, 6, 6]
          = relu(conv(x, w, stride=[1, 1], low=[0, 0], high=[0, 0], dilation=[1, 1]) + broadcast(b, map=[1], shape=[2, 12, 6, 6]))
    ";
    let parts = "a tile of a part of a product for each block";
    let cases = [
        ("square", COPIES, ""),
        ("odd", "copy_part_async<1>(left", "copy_async"),
        ("tail", COPIES, ""),
        ("turned", COPIES, ""),
        ("both_turned", COPIES, ""),
        ("batches", COPIES, ""),
        ("around", "load_pack<4>(x1", ""),
        ("deep", parts, ""),
        ("deep", COPIES, ""),
        ("deep_odd", parts, "copy_async"),
        ("deep_odd", "copy_part_async<1>(right", ""),
        ("pairs", "copy_part_async<2>(left", ""),
        ("wide", COPIES, ""),
        ("mixed", COPIES, "mma"),
        ("image", COPIES, ""),
        ("image", "copy_part_async<1>(right + ((to", "next_right"),
        ("points", COPIES, ""),
    ];
    check(text, &cases, &[Style::Normal]);
    let few = Tuning { processors: 1, ..Tuning::default() };
    let cases = [("large", "sum[8][8]", ""), ("tall", "sum[8][4]", ""), ("flat", "sum[4][8]", "")];
    check_for(few, text, &cases, &[Style::Normal]);
}

#[test]
fn products_of_groups() {
    let text = "
        def groups(x: f32[2, 24, 6, 8], w: f32[32, 12, 3, 3], b: f32[32]) -> f32[2, 32, 6, 8]
          = relu(conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=2) + broadcast(b, map=[1], shape=[2, 32, 6, 8]))
        def odd(x: f32[2, 27, 19], w: f32[33, 9, 2]) -> f32[2, 33, 9]
          = conv(x, w, stride=[2], low=[0], high=[0], dilation=[1], group=3)
        def points(x: f32[1, 64, 4, 4], w: f32[64, 16, 1, 1]) -> f32[1, 64, 4, 4]
          = conv(x, w, stride=[1, 1], low=[0, 0], high=[0, 0], dilation=[1, 1], group=4)
        def few(x: f32[1, 32, 8, 8], w: f32[32, 4, 3, 3]) -> f32[1, 32, 8, 8]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=8)
        def deep(x: f32[1, 512, 2, 4], w: f32[16, 256, 3, 3]) -> f32[1, 16, 2, 4]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=2)
        def halves(x: f16[1, 32, 6, 8], w: f16[32, 16, 3, 3]) -> f16[1, 32, 6, 8]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=2)
        def around(x: f32[1, 24, 6, 8], w: f32[32, 12, 3, 3], y: f32[1, 6, 8, 32]) -> f32[1, 6, 8, 32]
          = transpose(tanh(conv(exp(x), w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=2)), perm=[0, 2, 3, 1]) * y
        def depthwise(x: f32[2, 10, 9, 8], w: f32[10, 1, 3, 3]) -> f32[2, 10, 9, 8]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=10)
        def back(x: f32[1, 16, 4, 4], w: f32[16, 12, 3, 3]) -> f32[1, 12, 9, 9]
          = conv_transpose(x, w, stride=[2, 2], low=[0, 0], high=[0, 0], dilation=[1, 1], extra=[0, 0])
        def back_groups(x: f32[2, 24, 4, 4], w: f32[24, 10, 2, 2]) -> f32[2, 20, 8, 8]
          = conv_transpose(x, w, stride=[2, 2], low=[0, 0], high=[0, 0], dilation=[1, 1], extra=[0, 0], group=2)
    ";
    let tile = "a tile of a product for each block";
    let cases = [
        ("groups", tile, ""),
        ("odd", tile, ""),
        ("points", COPIES, ""),
        ("few", "sum_of_all", ""),
        ("deep", "a tile of a part of a product for each block", ""),
        ("halves", "mma_16816(sum[i][j]", ""),
        ("around", tile, ""),
        ("depthwise", "SHARED(float, window", ""),
        ("back", tile, ""),
        ("back_groups", tile, ""),
    ];
    check(text, &cases, &[Style::Normal, Style::Whole]);
}

#[test]
fn windows_that_overlap_are_in_shared_memory() {
    let text = "
        def deep(x: f32[2, 10, 19, 40], w: f32[10, 1, 3, 3], b: f32[10], y: f32[2, 10, 19, 40]) -> f32[2, 10, 19, 40]
          = relu(conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=10) + broadcast(b, map=[1], shape=[2, 10, 19, 40])) * y
        def strides(x: f16[1, 9, 17, 35], w: f16[9, 1, 5, 3]) -> f16[1, 9, 8, 18]
          = conv(x, w, stride=[2, 2], low=[1, 1], high=[1, 1], dilation=[1, 1], group=9)
        def gaps(x: f64[1, 3, 40], w: f64[3, 1, 4]) -> f64[1, 3, 38]
          = conv(x, w, stride=[1], low=[2], high=[2], dilation=[2], group=3)
        def twice(x: f32[1, 6, 9, 9], w: f32[12, 1, 3, 3]) -> f32[1, 12, 9, 9]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=6)
        def last(x: f32[1, 9, 9, 40], w: f32[40, 1, 3, 3]) -> f32[1, 9, 9, 40]
          = transpose(conv(transpose(x, perm=[0, 3, 1, 2]), w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=40), perm=[0, 2, 3, 1])
        def largest(x: bf16[2, 5, 21, 33]) -> bf16[2, 5, 19, 31]
          = maxpool(x, window=[3, 3], stride=[1, 1], low=[0, 0], high=[0, 0], dilation=[1, 1])
        def sums(x: f32[2, 5, 6, 7, 8]) -> f32[2, 5, 6, 7, 8]
          = tanh(sumpool(x, window=[3, 3, 3], stride=[1, 1, 1], low=[1, 1, 1], high=[1, 1, 1], dilation=[1, 1, 1]))
        def beside(x: f32[1, 6, 9, 9], w: f32[6, 1, 3, 3]) -> f32[1, 6, 9, 9]
          = x + conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=6)
        def apart(x: f32[1, 6, 8, 8]) -> f32[1, 6, 4, 4]
          = maxpool(x, window=[2, 2], stride=[2, 2], low=[0, 0], high=[0, 0], dilation=[1, 1])
        def without(x: f32[6, 6]) -> f32[6, 6]
          = sumpool(x, window=[], stride=[], low=[], high=[], dilation=[])
    ";
    let names = ["deep", "strides", "gaps", "last", "largest", "sums", "beside"];
    check(text, &names.map(|n| (n, " window, ", "")), &[Style::Normal, Style::Special]);
    // Windows that do not overlap, groups of more than one channel, and windows along no axis.
    check(text, &["apart", "twice", "without"].map(|n| (n, "", " window, ")), &[Style::Normal]);
    let few = Tuning { processors: 1, ..Tuning::default() };
    check_for(few, text, &names.map(|n| (n, " window, ", "")), &[Style::Normal]);
}

#[test]
fn elements_side_by_side() {
    let text = "
        def flat(x: f32[3, 128], y: f32[3, 128]) -> f32[3, 128] = x * y + 1.0
        def odd(x: f32[3, 7]) -> f32[3, 7] = exp(x)
        def pairs(x: f32[3, 6], y: f32[6]) -> f32[3, 6] = x * broadcast(y, map=[1], shape=[3, 6])
        def planes(x: f32[2, 3, 6, 6], b: f32[3]) -> f32[2, 3, 6, 6] = relu(x + broadcast(b, map=[1], shape=[2, 3, 6, 6]))
        def halves(x: f16[4, 64], y: f32[4, 64]) -> f16[4, 64] = x * cast(y, to=f16)
        def longs(x: i64[4, 64]) -> i64[4, 64] = x * 2
    ";
    let cases = [
        ("flat", PACKS, ""),
        ("odd", "int at", "load_pack"),
        ("pairs", "load_pack<2>(x0", ""),
        ("planes", PACKS, ""),
        ("halves", "load_pack<8>(x1", ""),
        ("longs", "load_pack<2>(x0", ""),
    ];
    check(text, &cases, &Style::ALL);
}

#[test]
fn products_by_tensor_cores() {
    let text = "
        def square(x: f16[128, 64], w: f16[64, 128]) -> f16[128, 128] = x @ w
        def brain(x: bf16[40, 72], w: bf16[72, 48], b: bf16[48]) -> bf16[40, 48] = relu(x @ w + b)
        def odd(x: f16[37, 41], w: f16[41, 51]) -> f16[37, 51] = x @ w
        def turned(x: f16[72, 40], w: f16[48, 72]) -> f16[40, 48]
          = transpose(x, perm=[1, 0]) @ transpose(w, perm=[1, 0])
        def scaled(x: f16[40, 72], s: f16[40, 72], w: f16[72, 48]) -> f16[40, 48] = (x * s) @ w
        def batches(x: bf16[3, 20, 24], w: bf16[3, 24, 12]) -> bf16[3, 20, 12] = x @ w
        def deep(x: f16[16, 2056], w: f16[2056, 24], b: f16[24]) -> f16[16, 24] = relu(x @ w + b)
        def image(x: f16[2, 8, 6, 8], w: f16[12, 8, 3, 3]) -> f16[2, 12, 6, 8]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
        def large(x: f16[380, 40], w: f16[40, 379]) -> f16[380, 379] = x @ w
        def whole(x: f16[384, 40], w: f16[40, 256]) -> f16[384, 256] = x @ w
    ";
    let halves = "mma_16816(sum[i][j]";
    let cases = [
        ("square", halves, ""),
        ("square", COPIES, ""),
        ("brain", "mma_16816_bf16", ""),
        ("odd", halves, "load_pack<8>(x0"),
        ("turned", halves, ""),
        ("turned", COPIES, ""),
        ("scaled", halves, ""),
        ("batches", "mma_16816_bf16", ""),
        ("deep", halves, ""),
        ("image", halves, ""),
    ];
    check(text, &cases, &[Style::Normal, Style::Whole]);
    let few = Tuning { processors: 1, ..Tuning::default() };
    let cases = [("large", "sum[4][4][4]", ""), ("whole", "sum[4][4][4]", "")];
    check_for(few, text, &cases, &[Style::Normal]);
}

#[test]
fn products_of_bytes_by_tensor_cores() {
    let text = "
        def signed(x: i8[40, 96], w: i8[96, 48]) -> i32[40, 48] = matmul_integer(x, w, 0, 0)
        def mixed(x: u8[33, 70], w: i8[70, 41]) -> i32[33, 41] = matmul_integer(x, w, 0, 0)
        def middle(x: u8[40, 64], w: u8[64, 40]) -> i32[40, 40] = matmul_integer(x, w, 128, 0)
        def shifted(x: u8[40, 64], w: i8[64, 40], b: i32[40]) -> f32[40, 40]
          = cast(matmul_integer(x, w, 113, 0) + b, to=f32) * 0.5
        def turned(x: i8[40, 64], w: i8[40, 64]) -> i32[40, 40] = matmul_integer(x, transpose(w, perm=[1, 0]), 3, 0)
        def batches(x: i8[2, 20, 64], w: i8[2, 64, 20]) -> i32[2, 20, 20] = matmul_integer(x, w, 0, 0)
        def large(x: u8[384, 70], w: i8[70, 256]) -> i32[384, 256] = matmul_integer(x, w, 7, 0)
        def image(x: u8[1, 16, 6, 8], w: i8[16, 16, 3, 3]) -> i32[1, 16, 6, 8]
          = conv_integer(x, w, 100, 0, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1)
        def groups(x: u8[2, 16, 6, 8], w: i8[32, 8, 3, 3]) -> i32[2, 32, 6, 8]
          = conv_integer(x, w, 100, 0, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=2)
        def both(x: u8[40, 64], w: u8[64, 40]) -> i32[40, 40] = matmul_integer(x, w, 3, 5)
        def open(x: u8[40, 64], w: i8[64, 40], p: i32[]) -> i32[40, 40] = matmul_integer(x, w, p, 0)
    ";
    let cases = [
        ("signed", "mma_16832_s8s8(sum[i][j]", "others"),
        ("mixed", "mma_16832_u8s8(sum[i][j]", "others"),
        ("middle", "mma_16832_s8u8(sum[i][j]", "others"),
        ("shifted", "mma_16832_u8s8(others[j], ones", ""),
        ("turned", "mma_16832_u8s8(others[j], ones", ""),
        ("batches", "mma_16832_s8s8(sum[i][j]", ""),
        ("image", "mma_16832_s8u8(others[i], a, ones", ""),
        ("groups", "mma_16832_s8u8(others[i], a, ones", ""),
        ("both", "", "mma"),
        ("open", "", "mma"),
    ];
    check(text, &cases, &[Style::Normal, Style::Whole]);
    let few = Tuning { processors: 1, ..Tuning::default() };
    check_for(few, text, &[("large", "sum[4][2][4]", "")], &[Style::Normal]);
}

#[test]
fn products_in_tf32_where_that_is_allowed() {
    let text = "
        def square(x: f32[64, 32], w: f32[32, 68]) -> f32[64, 68] = x @ w
        def odd(x: f32[37, 41], w: f32[41, 51]) -> f32[37, 51] = x @ w
        def turned(x: f32[40, 72], w: f32[48, 72]) -> f32[40, 48] = x @ transpose(w, perm=[1, 0])
        def apart(x: f32[32, 40], w: f32[48, 32]) -> f32[40, 48]
          = transpose(x, perm=[1, 0]) @ transpose(w, perm=[1, 0])
    ";
    let tf32 = Tuning { tf32: true, ..Tuning::default() };
    let names = ["square", "odd", "turned", "apart"];
    // Small integers are exact.
    check_for(tf32, text, &names.map(|n| (n, "mma_1688_tf32", "")), &[Style::Whole]);
    check(text, &names.map(|n| (n, "a tile of a product", "mma")), &[Style::Whole]);
}

/// What a product in `tf32` may stray by, of the sum of its products' magnitudes: both factors are rounded to 11 bits.
const TF32: f64 = 1.01 / 1024.0;

#[test]
fn products_in_tf32_stay_within_their_bound() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let text = "
        def square(x: f32[64, 128], w: f32[128, 68]) -> f32[64, 68] = x @ w
        def image(x: f32[1, 16, 6, 8], w: f32[24, 16, 3, 3]) -> f32[1, 24, 6, 8]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
    ";
    let library = library_with(text);
    for name in ["square", "image"] {
        let p = program_of(&library, name);
        let plan = select_kernels(p.clone(), &library, library.target("cuda").expect("shipped"));
        let code = launches_in_tf32(&plan, &library).expect("known extents");
        assert!(code.unit().contains("mma_1688_tf32(sum"), "{name}");
        let values = inputs(&p, Style::Normal, 1).expect("known extents");
        let loaded = LaunchedPlan::new(code, Arc::new(Emulated::default()), p.consts.clone());
        let got = loaded.and_then(|e| e.run(&values)).expect("runs")[0].to_f64();
        let of = |values: &[Tensor]| run_values(&p, &library, values).expect("runs")[0].to_f64();
        let magnitude = |t: &Tensor| {
            let all: Vec<f64> = t.to_f64().into_iter().map(f64::abs).collect();
            Tensor::from_f64(t.dtype(), t.shape().to_vec(), &all)
        };
        let magnitudes: Vec<Tensor> = values.iter().map(magnitude).collect();
        let (wanted, most) = (of(&values), of(&magnitudes));
        let errors = got.iter().zip(&wanted).zip(&most).map(|((g, w), m)| (g - w).abs() / m);
        let worst = errors.fold(0.0, f64::max);
        // It is rounded, and by no more than that.
        assert!(TF32 / 64.0 < worst && worst <= TF32, "{name}: {worst:.1e}");
    }
}

#[test]
fn products_with_few_vectors() {
    let text = "
        def vector(x: f32[1, 64], w: f32[64, 128]) -> f32[1, 128] = x @ w
        def turned(x: f32[3, 64], w: f32[40, 64], b: f32[40]) -> f32[3, 40]
          = relu(x @ transpose(w, perm=[1, 0]) + b)
        def few(x: f32[7, 68], w: f32[68, 52], b: f32[52]) -> f32[7, 52] = tanh(x @ w + b)
        def sixteen(x: f32[16, 516], w: f32[516, 64]) -> f32[16, 64] = x @ w
        def sixteen_turned(x: f32[16, 516], w: f32[34, 516]) -> f32[16, 34] = x @ transpose(w, perm=[1, 0])
        def sixteen_short(x: f32[16, 132], w: f32[132, 64]) -> f32[16, 64] = x @ w
        def odd(x: f32[2, 37], w: f32[37, 41]) -> f32[2, 41] = x @ w
        def odd_turned(x: f32[2, 37], w: f32[41, 37]) -> f32[2, 41] = x @ transpose(w, perm=[1, 0])
        def tall(w: f32[44, 36], x: f32[36, 2]) -> f32[44, 2] = w @ x
        def halves(x: f16[4, 64], w: f16[64, 40]) -> f16[4, 40] = x @ w
        def brains(x: bf16[4, 64], w: bf16[40, 64]) -> bf16[4, 40] = x @ transpose(w, perm=[1, 0])
        def wide(x: f64[2, 40], w: f64[40, 36]) -> f64[2, 36] = x @ w
        def batches(x: f32[3, 1, 40], w: f32[3, 36, 40]) -> f32[3, 1, 36] = x @ transpose(w, perm=[0, 2, 1])
        def deep(x: f32[3, 4100], w: f32[4100, 32], b: f32[32]) -> f32[3, 32] = relu(x @ w + b)
        def deep_turned(x: f32[3, 25604], w: f32[32, 25604]) -> f32[3, 32] = x @ transpose(w, perm=[1, 0])
        def before(x: f32[2, 64], s: f32[64, 32], w: f32[64, 32]) -> f32[2, 32] = x @ (w * s)
        def none(x: f32[0, 64], w: f32[64, 32]) -> f32[0, 32] = x @ w
    ";
    let thin = "sum_of_all";
    let cases = [
        ("vector", "load_pack<4>(x1", ""),
        ("turned", "load_pack<4>(x1", ""),
        ("few", "load_pack<4>(x1", ""),
        ("sixteen", "load_pack<4>(x1", ""),
        ("sixteen_turned", "load_pack<4>(x1", ""),
        ("sixteen_short", COPIES, ""),
        ("odd", thin, "load_pack"),
        ("odd_turned", thin, "load_pack"),
        ("tall", thin, ""),
        ("halves", "load_pack<8>(x1", ""),
        ("brains", "load_pack<8>(x1", ""),
        ("wide", "load_pack<2>(x1", ""),
        ("batches", "load_pack<4>(x1", ""),
        ("deep", "a part of a product", ""),
        ("deep_turned", "a part of a product", ""),
        ("before", thin, ""),
        ("none", "", thin),
    ];
    check(text, &cases, &[Style::Normal, Style::Whole]);
    let few = Tuning { processors: 1, ..Tuning::default() };
    let names =
        ["vector", "turned", "few", "sixteen", "sixteen_turned", "odd", "odd_turned", "tall"];
    check_for(few, text, &names.map(|n| (n, thin, "")), &[Style::Normal]);
}

#[test]
fn rows_are_read_once() {
    let text = "
        def norm(x: f32[5, 768], g: f32[768], h: f32[768]) -> f32[5, 768] = layernorm(x, g, h, eps=1e-5)
        def odd(x: f32[5, 301]) -> f32[5, 301] = softmax(x, axis=1)
        def short(x: f32[19, 40]) -> f32[19, 40] = softmax(x, axis=1)
        def many(x: f32[1100, 132]) -> f32[1100, 132] = softmax(x, axis=1)
        def halves(x: f16[3, 512], g: f16[512]) -> f16[3, 512] = rmsnorm(x, g, eps=1e-5)
        def doubles(x: f64[3, 130]) -> f64[3, 130] = softmax(x, axis=1)
        def long(x: f32[70, 9000]) -> f32[70, 9000] = softmax(x, axis=1)
        def planes(x: f32[67, 8, 40]) -> f32[67] = sum(x, axes=[1, 2])
        def across(x: f32[64, 5]) -> f32[64, 5] = softmax(x, axis=0)
        def shared(x: f32[80, 64], y: f32[80, 64]) -> f32[80, 64] = softmax(x * y, axis=1) + x
        def whole(x: i32[80, 96]) -> i32[80] = max(x, axes=[1])
    ";
    let cases = [
        ("norm", "row0[", ""),
        ("odd", "row0[", ""),
        ("short", "combine_warp(Sum()", "combine_block"),
        ("many", "combine_warp(Sum()", "combine_block"),
        ("halves", "load_pack<4>(x0", ""),
        ("doubles", "row0[", ""),
        ("long", "load_pack<4>(x0", "row0["),
        ("planes", "load_pack<4>(x0", ""),
        ("across", "combine_warp", ""),
        ("shared", "row0[", ""),
        ("whole", "", ""),
    ];
    check(text, &cases, &[Style::Normal, Style::Whole]);
}

#[test]
fn transposes_go_through_shared_memory() {
    let text = "
        def square(x: f32[64, 64]) -> f32[64, 64] = transpose(x, perm=[1, 0])
        def odd(x: f32[3, 37, 41]) -> f32[3, 41, 37] = transpose(x, perm=[0, 2, 1])
        def ends(x: f16[9, 5, 33]) -> f16[33, 5, 9] = transpose(x, perm=[2, 1, 0])
        def around(x: i32[40, 36], y: i32[36, 40]) -> i32[36, 40] = transpose(x, perm=[1, 0]) * 2 + y
        def heads(x: f32[2, 16, 3, 8]) -> f32[2, 3, 8, 16] = transpose(x, perm=[0, 2, 3, 1])
        def blocks(x: f32[2, 16, 3, 8]) -> f32[2, 3, 16, 8] = transpose(x, perm=[0, 2, 1, 3])
        def bytes(x: bool[20, 33]) -> bool[33, 20] = transpose(x, perm=[1, 0])
        def wide(x: f16[70, 130]) -> f16[130, 70] = exp(transpose(x, perm=[1, 0]))
        def wide_square(x: f16[2, 128, 64]) -> f16[2, 64, 128] = exp(transpose(x, perm=[0, 2, 1]))
        def groups(x: f32[40, 96]) -> f32[96, 40] = exp(transpose(x, perm=[1, 0]))
        def many(x: f32[34, 128]) -> f32[128, 34] = exp(transpose(x, perm=[1, 0]))
    ";
    let cases = [
        ("square", "tile[", ""),
        ("odd", "tile[", ""),
        ("ends", "tile[", ""),
        ("around", "tile[", ""),
        ("heads", "tile[", ""),
        ("blocks", "load_pack<4>(x0", "tile["),
        ("wide", "threadIdx.x / 64", ""),
        ("wide_square", "threadIdx.x / 64", "if ("),
        ("groups", "tile[", ""),
        ("many", "blockIdx.x / 4 %", ""),
        ("bytes", "tile[", ""),
    ];
    check(text, &cases, &[Style::Normal, Style::Whole]);
}

#[test]
fn recurrences_run_step_by_step() {
    let text = "
        op decays(x: F[b, t, n], w: F[n], h0: F[b, n]) -> y: F[b, t, n], last: F[b, n]
          y[b, t, n] = w[n] * (y[b, t - 1, n] else h0[b, n]) + x[b, t, n]
          last[b, n] = y[b, |t| - 1, n] else h0[b, n]
        op back(x: F[t, n], r: F[n, m], h0: F[n]) -> u: F[t, n], y: F[t, n]
          if |m| == |n|
          u[t, n] = x[t, n] + sum(m) r[n, m] * (y[t + 1, m] else h0[m])
          y[t, n] = tanh(u[t, n])
        op pairs(x: I[t]) -> y: I[t]
          y[t] = (y[t - 1] else 1) + (y[t - 2] else 0) + x[t]
        def decay(x: f32[3, 7, 5], w: f32[5], h: f32[3, 5]) -> f32[3, 7, 5], f32[3, 5] = decays(x, w, h)
        def none(x: f32[3, 0, 5], w: f32[5], h: f32[3, 5]) -> f32[3, 0, 5], f32[3, 5] = decays(x, w, h)
        def backwards(x: f32[6, 70], r: f32[70, 70], h: f32[70]) -> f32[6, 70]
          let (u, y) = back(x * 2.0, r, h)
          = exp(y)
        def halves(x: f16[6, 9], r: f16[9, 9], h: f16[9]) -> f16[6, 9], f16[6, 9] = back(x, r, h)
        def whole(x: i64[9]) -> i64[9] = pairs(x)
    ";
    let cases = [
        ("decay", "step by step", ""),
        ("none", "", "step by step"),
        ("backwards", "combine_warp", ""),
        ("halves", "step by step", ""),
        ("whole", "step by step", ""),
    ];
    check(text, &cases, &[Style::Normal]);
}

#[test]
fn procedures_of_places_and_bits() {
    let text = "
        def first(x: f32[3, 300]) -> i64[3, 7] = sort_places(x, count=7)
        def last(x: i32[2, 40]) -> i64[2, 40] = sort_places(x, count=40, largest=false)
        def halves(x: f16[2, 9]) -> i64[2, 9] = sort_places(x, count=9)
        def unsigned(x: u64[2, 9]) -> i64[2, 9] = sort_places(x, count=9)
        def nothing(x: f32[2, 9]) -> i64[2, 0] = sort_places(x, count=0)
        def bits(x: f32[3, 5]) -> i32[3, 5] = bit_cast(x * 2.0, to=i32)
        def back(x: i64[3, 5]) -> f64[3, 5] = bit_cast(x, to=f64)
        def brains(x: bf16[7]) -> u16[7] = bit_cast(x, to=u16)
        def truths(x: u8[7]) -> bool[7] = bit_cast(x, to=bool)
        def stay(x: f32[5, 3], i: f32[4], u: f32[4, 3]) -> f32[5, 3]
          = scatter(x, cast(abs(i) * 0.0, to=i64) + [4, 1, 4, 0], u)
        def more(x: f32[5, 3], u: f32[4, 3]) -> f32[5, 3]
          = exp(scatter(x, [4, 1, 4, 0], u, reduction=\"add\"))
        def least(x: u64[5, 300], u: u64[4, 300]) -> u64[5, 300]
          = scatter(x, [4, 1, 4, 0], u, reduction=\"min\")
        def product(x: f16[5, 3], u: f16[4, 3]) -> f16[5, 3]
          = scatter(x, [4, 1, 4, 0], u, reduction=\"mul\")
    ";
    let text = text.replace("[4, 1, 4, 0]", "extents(values=[4, 1, 4, 0])");
    let names = ["first", "last", "halves", "unsigned", "bits", "back", "brains", "truths"];
    check(&text, &names.map(|n| (n, "of its launches", "")), &[Style::Normal, Style::Whole]);
    check(&text, &[("nothing", "", "of its launches")], &[Style::Normal]);
    let names = ["stay", "more", "least", "product"];
    check(&text, &names.map(|n| (n, "of its launches", "")), &[Style::Normal, Style::Whole]);
}

#[test]
fn procedures_of_matrices_rows_boxes_regions_and_trees() {
    let text = "
        def determinants(x: f32[3, 5, 5]) -> f32[3] = det(x)
        def large(x: f64[40, 40]) -> f64[] = det(x)
        def singular(x: f32[2, 3, 3]) -> f32[2] = det(x * 0.0)
        def ordered(x: f32[9, 2]) -> i64[9], i64[9], i64[9] = unique_rows(round(x))
        def by_place(x: f32[9, 1]) -> i64[9], i64[9], i64[9] = unique_rows(round(x), sorted=false)
        def unsigned(x: u64[300, 1]) -> i64[300], i64[300], i64[300] = unique_rows(x)
        def truths(x: bool[7, 2]) -> i64[7], i64[7], i64[7] = unique_rows(x)
        def boxes(x: f32[2, 40, 4], s: f32[2, 3, 40], o: f32[], f: f32[]) -> i64[2, 3, 40]
          = choose_boxes(x, round(s * 2.0), reshape([7], shape=[]), abs(o) * 0.1, f)
        def centred(x: f64[1, 300, 4], s: f64[1, 1, 300]) -> i64[1, 1, 300]
          = choose_boxes(abs(x), s, reshape([400], shape=[]), reshape(cast([0], to=f64), shape=[]), reshape(cast([-9], to=f64), shape=[]), centered=true)
        def pooled(x: f32[2, 3, 6, 7], r: f32[4, 4]) -> f32[4, 3, 2, 3]
          = roi_align(x, r * 3.0, [1, 0, 1, 1], rows=2, columns=3, scale=0.5)
        def sampled(x: f16[2, 3, 6, 7], r: f16[4, 4]) -> f16[4, 3, 2, 2]
          = roi_align(x, r, [1, 0, 1, 1], rows=2, columns=2, ratio=2, half=false)
        def highest(x: f32[2, 1, 6, 7], r: f32[4, 4]) -> f32[4, 1, 1, 3]
          = roi_align(x, abs(r) * 2.0, [1, 0, 1, 1], rows=1, columns=3, max=true)
        def forest_sum(x: f32[5, 2], s: f32[3], w: f32[4]) -> f32[5, 2] = FOREST aggregate=1)
        def forest_mean(x: f64[5, 2], s: f64[3], w: f64[4]) -> f64[5, 2] = FOREST aggregate=0)
        def forest_least(x: f32[5, 2], s: f32[3], w: f32[4]) -> f32[5, 2] = FOREST aggregate=2)
        def forest_most(x: f32[5, 2], s: f32[3], w: f32[4]) -> f32[5, 2] = FOREST aggregate=3)
    ";
    // Of three nodes one compares, one looks for members and one for others; lists of members end where the root of a negative number is.
    let forest = "tree_ensemble(x, s, cast([0, 6, 6], to=u8), cast(sqrt(cast([1, 4, -1, 0, 9], to=f32)), to=dtype(x)), w,
      features=[0, 1, 1], true_nodes=[0, 2, 3], true_leaves=[1, 1, 1], false_nodes=[1, 3, 1], false_leaves=[0, 1, 1],
      missing=[0, 1, 0], roots=[0, 2], leaf_targets=[0, 1, 0, 1], targets=2,";
    let mut text = text.replace("FOREST", forest);
    for list in ["[1, 0, 1, 1]", "[0, 6, 6]", "[1, 4, -1, 0, 9]", "[7]", "[400]", "[0]", "[-9]"] {
        for before in ["(", ", "] {
            let new = format!("{before}extents(values={list})");
            text = text.replace(&format!("{before}{list}"), &new);
        }
    }
    let names = [
        "determinants",
        "large",
        "singular",
        "ordered",
        "by_place",
        "unsigned",
        "truths",
        "boxes",
        "centred",
        "pooled",
        "sampled",
        "highest",
        "forest_sum",
        "forest_mean",
        "forest_least",
        "forest_most",
    ];
    check(&text, &names.map(|n| (n, "of its launches", "")), &[Style::Normal, Style::Whole]);
}

#[test]
fn running_reductions_take_one_pass() {
    let text = "
        def sums(x: f32[3, 300]) -> f32[3, 300] = cumsum(x, axis=1)
        def before(x: f64[3, 70]) -> f64[3, 70] = cumsum(x, axis=1, exclusive=true)
        def back(x: i32[2, 65]) -> i32[2, 65] = cumsum(x, axis=1, reverse=true)
        def after(x: f32[600]) -> f32[600] = cumsum(exp(x), axis=0, exclusive=true, reverse=true)
        def down(x: f16[20, 9]) -> f16[20, 9] = cumsum(x, axis=0)
        def down_before(x: f32[20, 9]) -> f32[20, 9]
          = tanh(cumsum(x, axis=0, exclusive=true, reverse=true))
        def products(x: f32[3, 70]) -> f32[3, 70] = cumprod(x, axis=1)
        def bytes(x: u8[3, 200]) -> u8[3, 200] = cumsum(x, axis=1)
        def few(x: f32[3, 5]) -> f32[3, 5] = cumsum(x, axis=1)
    ";
    let pass = "a running reduction in one pass";
    let names = ["sums", "before", "back", "after", "down", "down_before", "products", "bytes"];
    check(text, &names.map(|n| (n, pass, "")), &[Style::Normal, Style::Whole]);
    check(text, &[("few", "", pass)], &[Style::Normal]);
}

#[test]
fn attention_reads_elements_side_by_side() {
    let text = "
        def heads(q: f32[1, 2, 70, 16], k: f32[1, 2, 68, 16], v: f32[1, 2, 68, 20]) -> f32[1, 2, 70, 20]
          = attention(q, k, v, scale=0.25)
        def odd(q: f16[1, 2, 9, 17], k: f16[1, 2, 65, 17], v: f16[1, 2, 65, 19]) -> f16[1, 2, 9, 19]
          = attention(q, k, v, scale=0.25)
    ";
    let one = "with a normalised factor";
    let cases = [
        ("heads", "inside ? x0 + (i1", "copy_part_async"),
        ("heads", "inside ? x1 + (i1", "copy_part_async"),
        ("heads", "inside ? x2 + (i1", "copy_part_async"),
        ("odd", one, "copy_async"),
    ];
    check(text, &cases, &[Style::Normal]);
}
