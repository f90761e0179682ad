//! Products and convolutions whose factors or results lie in memory otherwise than they are multiplied: through reshapes, permutations,
//! with channels last, with constants in another order.

use mlc_cuda::{Launches, Tuning, launches_for};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, Program, Tensor, Type};
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::Style;
use mlc_proptests::generated_code::{check, holds};
use mlc_proptests::{checked_options, library};
use mlc_rewrite::pipeline::{Options, optimize};

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

/// Where a thread has several results of a reduction.
const WIDE: &str = "sum[lane] = ";

/// Where a block has what windows read in shared memory.
const SHARED: &str = "What the windows of a tile read is in shared memory";

#[test]
fn windows_whose_results_lie_side_by_side() {
    let text = "
        def strided(x: f16[2, 9, 9, 24], w: f16[3, 3, 1, 24], b: f16[24]) -> f16[2, 5, 5, 24]
          = clip(conv_all_channels_last(x, w, stride=[2, 2], low=[1, 1], high=[1, 1], dilation=[1, 1], group=24) + b, 0, 6)
        def far(x: bf16[1, 9, 9, 16], w: bf16[3, 3, 1, 16]) -> bf16[1, 7, 7, 16]
          = conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[2, 2], group=16)
        def doubles(x: f64[1, 6, 6, 4], w: f64[3, 3, 1, 4]) -> f64[1, 6, 6, 4]
          = conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=4)
        def large(x: f32[1, 12, 12, 8], w: f32[7, 7, 1, 8]) -> f32[1, 12, 12, 8]
          = conv_all_channels_last(x, w, stride=[1, 1], low=[3, 3], high=[3, 3], dilation=[1, 1], group=8)
        def largest(x: f16[2, 7, 7, 16]) -> f16[2, 4, 4, 16]
          = maxpool_channels_last(x, window=[3, 3], stride=[2, 2], low=[1, 1], high=[1, 1], dilation=[1, 1])
        def means(x: f32[2, 6, 6, 12]) -> f32[2, 6, 6, 12]
          = sumpool_channels_last(x, window=[3, 3], stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1]) / 9
        def odd(x: f32[2, 8, 7, 5], w: f32[3, 3, 1, 5]) -> f32[2, 8, 7, 5]
          = conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=5)
        def first(x: f32[2, 8, 10, 9], w: f32[8, 1, 3, 3]) -> f32[2, 8, 10, 9]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=8)
    ";
    let cases = [
        ("strided", WIDE, "else"),
        ("far", WIDE, "else"),
        ("doubles", WIDE, "else"),
        ("large", WIDE, "else"),
        ("largest", WIDE, "else"),
        ("means", WIDE, "else"),
        ("odd", SHARED, WIDE),
        ("first", SHARED, WIDE),
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
        def stem(x: f16[2, 3, 13, 12], w: f16[5, 5, 4, 24], b: f16[24]) -> f16[2, 7, 6, 24]
          = relu(conv_all_channels_last(padded_channels_last(x, more=1), w, stride=[2, 2], low=[2, 2], high=[2, 2], dilation=[1, 1], group=1) + b)
        def padded(x: bf16[2, 5, 6, 7]) -> bf16[2, 6, 7, 8] = padded_channels_last(x, more=3)
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
        ("stem", "copy_part_async<4>(left", "kernel_2"),
        ("padded", "", "kernel_1"),
        ("far", COPIES, "out_of_range"),
        ("groups", COPIES, "out_of_range"),
        ("line", COPIES, "out_of_range"),
        ("depthwise", WIDE, "out_of_range"),
        ("turned", "", ""),
        ("sums", "", ""),
        ("largest", "", "kernel_1"),
        ("numbers", "", ""),
    ];
    check(text, &cases, &[Style::Normal, Style::Special]);
}

/// The first layers of a network, of an image of three channels.
fn stem(dtype: DType) -> Program {
    let mut b = Builder::new(library());
    let found = |name: &str| library().find(name).expect("shipped");
    let numbers: Vec<f64> =
        (0..64 * 3 * 49).map(|i| ((i * 7919) % 1013) as f64 / 4096.0 - 0.125).collect();
    let w = b.constant(Tensor::from_f64(dtype, vec![64, 3, 7, 7], &numbers));
    let x = b.input("x", Type::known(dtype, &[1, 3, 224, 224]));
    let two = |n: i64| Some(Attr::Ints(vec![Extent::from(n), Extent::from(n)]));
    let attrs = [two(2), two(3), two(3), two(1), Some(Attr::Int(Extent::from(1)))];
    let y = b.apply(found("conv"), &attrs, &[x, w]).expect("types")[0];
    let y = b.apply(found("relu"), &[], &[y]).expect("types")[0];
    let attrs = [two(3), two(2), two(1), two(1), two(1)];
    let y = b.apply(found("maxpool"), &attrs, &[y]).expect("types")[0];
    b.finish(vec![("y".into(), y)])
}

#[test]
fn a_channel_of_zeros_comes_beside_those_of_an_image_in_16_bits() {
    let options = Options { target: "cuda".into(), self_check: false, ..checked_options() };
    let padded = ["relayout", "conv_channels_last", "pool_channels_last", "relayout"];
    for (dtype, expected) in [
        (DType::F16, &padded[..]),
        (DType::BF16, &padded[..]),
        (DType::F32, &["conv", "maxpool"][..]),
    ] {
        let plan = optimize(stem(dtype), library(), &options).expect("optimises").plan;
        let kernels: Vec<&str> = plan.kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(kernels, expected, "{dtype}");
    }
}

/// A product with a constant whose rows are not aligned, besides rows of the same constant that are picked.
fn with_weights(dtype: DType, x: &[usize], w: &[usize], is_picked: bool) -> Program {
    let mut b = Builder::new(library());
    let found = |name: &str| library().find(name).expect("shipped");
    let numbers: Vec<f64> = (0..w.iter().product::<usize>())
        .map(|i| ((i * 7919) % 1013) as f64 / 512.0 - 1.0)
        .collect();
    let weights = b.constant(Tensor::from_f64(dtype, w.to_vec(), &numbers));
    let x = b.input("x", Type::known(dtype, x));
    let product = b.apply(found("matmul"), &[], &[x, weights]).expect("types")[0];
    let product = b.apply(found("relu"), &[], &[product]).expect("types")[0];
    let mut outputs = vec![("product".into(), product)];
    if is_picked {
        let i = b.constant(Tensor::from_f64(DType::I64, vec![3], &[2.0, 0.0, 5.0]));
        let axis = [Some(Attr::Int(Extent::from(0)))];
        let picked = b.apply(found("gather"), &axis, &[weights, i]).expect("types")[0];
        outputs.push(("picked".into(), b.apply(found("exp"), &[], &[picked]).expect("types")[0]));
    }
    b.finish(outputs)
}

#[test]
fn weights_with_unaligned_rows_lie_with_their_axes_exchanged() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let target = library().target("cuda").expect("shipped");
    for (dtype, x, w, is_picked, is_turned) in [
        (DType::F16, &[20, 256][..], &[256, 301][..], false, true),
        (DType::BF16, &[20, 256], &[256, 302], true, true),
        (DType::F32, &[33, 128], &[128, 203], false, true),
        (DType::F16, &[1, 256], &[256, 301], false, true),
        (DType::F32, &[2, 9, 64], &[2, 64, 201], false, true),
        // Aligned as they are, small, and not aligned either way.
        (DType::F16, &[20, 256], &[256, 304], false, false),
        (DType::F16, &[20, 64], &[64, 101], false, false),
        (DType::F16, &[20, 255], &[255, 301], false, false),
    ] {
        let p = with_weights(dtype, x, w, is_picked);
        let code = |p: &Program| -> Result<Launches, String> {
            let plan = select_kernels(p.clone(), library(), target);
            launches_for(&plan, library(), Tuning::default()).map_err(|e| e.to_string())
        };
        let launches = code(&p).expect("code");
        let what = format!("{dtype} {w:?}");
        assert_eq!(launches.transposed.len(), usize::from(is_turned), "{what}");
        let text: String = launches.each.iter().map(|l| l.source.as_str()).collect();
        let at_once = text.contains("copy_async(right") || text.contains("load_pack<");
        assert!(at_once || !is_turned, "{what}: {text}");
        let held = holds(library(), &p, &[Style::Normal, Style::Special], &code);
        held.unwrap_or_else(|m| panic!("{what}, {m}\n{text}"));
    }
}

/// Which part of a concatenation elements side by side are of is decided once for all of them.
#[test]
fn parts_of_concatenations_are_copied_by_wide_accesses() {
    let text = "
        def channels(x: f16[1, 5, 5, 64], y: f16[1, 5, 5, 32], z: f16[1, 5, 5, 8]) -> f16[1, 5, 5, 104]
          = concat(concat(x, y, axis=3), z, axis=3)
        def planes(x: f32[2, 4, 7, 7], y: f32[2, 12, 7, 7]) -> f32[2, 16, 7, 7] = concat(x, y, axis=1)
        def rows(x: bf16[3, 5, 24], y: bf16[3, 2, 24]) -> bf16[3, 7, 24] = concat(x, y, axis=1)
        def doubles(x: f64[6, 4], y: f64[6, 2]) -> f64[6, 6] = concat(x, y, axis=1)
        def twice(x: f32[6, 8], y: f32[6, 8]) -> f32[6, 24] = concat(x, concat(y, x, axis=1), axis=1)
        def odd(x: f32[6, 5], y: f32[6, 7]) -> f32[6, 12] = concat(x, y, axis=1)
        def steps(x: f32[3, 6], y: f32[5, 6]) -> f32[8, 6] = concat(x, y, axis=0)
        def cut(x: f32[8, 16], y: f32[8, 16]) -> f32[8, 12]
          = slice(concat(x, y, axis=1), start=[0, 12], size=[8, 12], step=[1, 1])
    ";
    let wide = ("load_pack", "out_of_range");
    let cases = [
        ("channels", wide.0, wide.1),
        ("planes", wide.0, wide.1),
        ("rows", wide.0, wide.1),
        ("doubles", wide.0, wide.1),
        ("twice", wide.0, wide.1),
        ("odd", "KERNEL(", "load_pack"),
        ("steps", wide.0, wide.1),
        ("cut", "KERNEL(", ""),
    ];
    check(text, &cases, &[Style::Normal, Style::Special]);
}
