//! Convolutions that a library may compute in place of generated code: which ones these are, and that what it is asked for is the
//! convolution with what follows it. The library is one on the host that does what it is told; a session compares its results with the
//! generated code's on the emulator before it uses it, and whole programs are held against the reference interpreter.

use mlc_backends::Executable;
use mlc_cuda::{LaunchedPlan, Launches, LibraryKind, launches};
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs};
use mlc_fuzz::oracle::hold_run;
use mlc_proptests::emulated::Emulated;
use mlc_proptests::{library_with, program_of};
use std::sync::Arc;

fn code(p: &Program, library: &Library) -> Launches {
    let plan = select_kernels(p.clone(), library, library.target("cuda").expect("shipped"));
    launches(&plan, library).expect("known extents")
}

/// A definition, what is asked for, whether launches follow it, and whether a copy of the weights is read.
type Case = (&'static str, &'static str, bool, bool);

#[test]
fn convolutions_are_what_a_library_computes() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let text = "
        def square(x: f32[2, 8, 24, 24], w: f32[16, 8, 3, 3]) -> f32[2, 16, 24, 24]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
        def strides(x: f32[2, 8, 41, 40], w: f32[24, 8, 3, 3]) -> f32[2, 24, 21, 20]
          = conv(x, w, stride=[2, 2], low=[1, 0], high=[1, 1], dilation=[1, 1])
        def inside(x: f16[2, 8, 27, 25], w: f16[24, 8, 3, 2]) -> f16[2, 24, 23, 24]
          = conv(x, w, stride=[1, 1], low=[0, 0], high=[0, 0], dilation=[2, 1])
        def cut(x: f32[1, 16, 32, 32], w: f32[40, 16, 3, 3]) -> f32[1, 40, 15, 15]
          = conv(x, w, stride=[2, 2], low=[0, 0], high=[0, 0], dilation=[1, 1])
        def groups(x: bf16[2, 16, 20, 20], w: bf16[32, 8, 3, 3]) -> bf16[2, 32, 20, 20]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=2)
        def line(x: f32[2, 8, 256], w: f32[32, 8, 9]) -> f32[2, 32, 256]
          = conv(x, w, stride=[1], low=[4], high=[4], dilation=[1])
        def volume(x: f32[1, 8, 6, 10, 12], w: f32[16, 8, 3, 3, 3]) -> f32[1, 16, 6, 10, 12]
          = conv(x, w, stride=[1, 1, 1], low=[1, 1, 1], high=[1, 1, 1], dilation=[1, 1, 1])
        def pixels(x: f32[2, 32, 24, 24], w: f32[32, 32, 1, 1]) -> f32[2, 32, 24, 24]
          = conv(x, w, stride=[1, 1], low=[0, 0], high=[0, 0], dilation=[1, 1])
        def apart(x: f32[2, 64, 32, 32], w: f32[64, 64, 1, 1]) -> f32[2, 64, 16, 16]
          = conv(x, w, stride=[2, 2], low=[0, 0], high=[0, 0], dilation=[1, 1])
        def bias(x: f32[2, 8, 24, 24], w: f32[16, 8, 3, 3], b: f32[16]) -> f32[2, 16, 24, 24]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
            + broadcast(b, map=[1], shape=[2, 16, 24, 24])
        def bias_relu(x: f16[2, 8, 24, 24], w: f16[16, 8, 3, 3], b: f16[16]) -> f16[2, 16, 24, 24]
          = relu(conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
            + broadcast(b, map=[1], shape=[2, 16, 24, 24]))
        def residual(x: f32[2, 8, 24, 24], w: f32[16, 8, 3, 3], b: f32[16], s: f32[2, 16, 24, 24]) -> f32[2, 16, 24, 24]
          = relu(s + (conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
            + broadcast(b, map=[1], shape=[2, 16, 24, 24])))
        def only_relu(x: f32[2, 8, 24, 24], w: f32[16, 8, 3, 3]) -> f32[2, 16, 24, 24]
          = relu(conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1]))
        def more(x: f16[2, 8, 24, 24], w: f16[16, 8, 3, 3], b: f16[16], s: f16[2, 16, 24, 24]) -> f16[2, 16, 24, 24]
          = gelu(conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
            + broadcast(b, map=[1], shape=[2, 16, 24, 24])) * s
        def twice(x: f32[2, 8, 24, 24], w: f32[16, 8, 3, 3], b: f32[16]) -> f32[2, 16, 24, 24]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
            + broadcast(b, map=[1], shape=[2, 16, 24, 24]) + broadcast(b, map=[1], shape=[2, 16, 24, 24])
        def last(x: f16[2, 24, 24, 8], w: f16[16, 3, 3, 8], b: f16[16]) -> f16[2, 24, 24, 16]
          = relu(conv_all_channels_last(x, transpose(w, perm=[1, 2, 3, 0]), stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1) + b)
        def other_weights(x: f32[2, 24, 24, 8], w: f32[16, 8, 3, 3]) -> f32[2, 24, 24, 16]
          = conv_all_channels_last(x, transpose(w, perm=[2, 3, 1, 0]), stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1)
        def fixed(x: f32[2, 24, 24, 8], b: f32[16]) -> f32[2, 24, 24, 16]
          = conv_all_channels_last(x, sin(reshape(iota(size=1152, to=f32), shape=[3, 3, 8, 16])), stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1) + b
        def fixed_groups(x: f32[2, 24, 24, 16]) -> f32[2, 24, 24, 32]
          = conv_all_channels_last(x, sin(reshape(iota(size=2304, to=f32), shape=[3, 3, 8, 32])), stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=2)
        def unknown_order(x: f32[2, 24, 24, 8], w: f32[3, 3, 8, 16]) -> f32[2, 24, 24, 16]
          = conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1)
        def doubles(x: f64[2, 8, 24, 24], w: f64[16, 8, 3, 3]) -> f64[2, 16, 24, 24]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
        def small(x: f32[2, 8, 8, 8], w: f32[16, 8, 3, 3]) -> f32[2, 16, 8, 8]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
        def product(x: f32[2, 64, 64], w: f32[64, 136]) -> f32[2, 64, 136] = x @ w
    ";
    let cases: [Case; 23] = [
        (
            "square",
            "2 x f32[8, 24x24] * [16, 3x3] to 24x24, padding 1x1 and 1x1, channels first",
            false,
            false,
        ),
        (
            "strides",
            "2 x f32[8, 41x40] * [24, 3x3] to 21x20, stride 2x2, padding 1x0 and 1x1, channels first",
            false,
            false,
        ),
        ("inside", "[24, 3x2] to 23x24, dilation 2x1, channels first", false, false),
        (
            "cut",
            "1 x f32[16, 32x32] * [40, 3x3] to 15x15, stride 2x2, channels first",
            false,
            false,
        ),
        ("groups", "2 x bf16[8, 20x20] * [16, 3x3] to 20x20, 2 groups", false, false),
        ("line", "2 x f32[8, 256] * [32, 9] to 256, padding 4 and 4, channels first", false, false),
        ("volume", "f32[8, 6x10x12] * [16, 3x3x3]", false, false),
        ("pixels", "2 x f32[32, 24x24] * [32, 1x1] to 24x24, channels first", false, false),
        ("apart", "[64, 32x32] * [64, 1x1] to 16x16, stride 2x2, channels first", false, false),
        ("bias", "channels first, plus a bias", false, false),
        ("bias_relu", "channels first, plus a bias, at least 0", false, false),
        ("residual", "channels first, plus a tensor, plus a bias, at least 0", false, false),
        ("only_relu", "channels first", true, false),
        ("more", "channels first", true, false),
        ("twice", "channels first", true, false),
        ("last", "channels last, plus a bias, at least 0", false, false),
        ("other_weights", "channels last and first in weights", false, false),
        ("fixed", "channels last, plus a bias", false, true),
        (
            "fixed_groups",
            "[16, 3x3] to 24x24, 2 groups, padding 1x1 and 1x1, channels last",
            false,
            true,
        ),
        ("unknown_order", "", false, false),
        ("doubles", "", false, false),
        ("small", "", false, false),
        ("product", "", false, false),
    ];
    let library = library_with(text);
    let run = |p: &Program, i: &[Tensor]| {
        let emulated = Arc::new(Emulated::with_library(&[LibraryKind::Convolutions]));
        let loaded = LaunchedPlan::new(code(p, &library), emulated.clone(), p.consts.clone());
        let loaded = loaded.map_err(|e| e.to_string())?;
        let notes = loaded.notes();
        let is_chosen = |n: &String| n.starts_with("convolutions on the host, ");
        assert!(notes.len() == 1 && notes.iter().all(is_chosen), "{notes:?}");
        let tried = emulated.multiplications();
        let result = loaded.run(i).map_err(|e| e.to_string());
        assert_eq!(emulated.multiplications(), tried + 1, "the library computes in a run");
        drop(loaded);
        assert_eq!(emulated.left(), 0, "memory, modules or convolutions are left on the device");
        result
    };
    let only = std::env::var("MLC_CUDA_CASE").ok();
    for (name, described, has_rest, is_copied) in
        cases.into_iter().filter(|c| only.as_deref().is_none_or(|o| o == c.0))
    {
        let p = program_of(&library, name);
        let mut found = code(&p, &library).library_candidates;
        found.retain(|a| a.work.kind() == LibraryKind::Convolutions);
        assert_eq!(found.len(), usize::from(!described.is_empty()), "{name}: {found:?}");
        for a in &found {
            let told = a.work.to_string();
            let is_so = match described.contains("channels") {
                true => told.ends_with(described),
                false => told.contains(described),
            };
            assert!(is_so, "{name}: {told}");
            assert_eq!((a.epilogue.is_some(), a.copied.is_some()), (has_rest, is_copied), "{name}");
        }
        if !found.is_empty() {
            let values = inputs(&p, Style::Normal, 1).expect("known extents");
            hold_run(&library, &p, Style::Normal, &values, &run)
                .unwrap_or_else(|m| panic!("{name}: {m}"));
        }
    }
}
