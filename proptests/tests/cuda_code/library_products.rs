//! Products that a library may compute in place of generated code: which ones these are, and that what it is asked for is the
//! product. The library is one on the host that does what it is told; a session compares its results with the generated code's on
//! the emulator before it uses it, and whole programs are held against the reference interpreter.

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

#[test]
fn products_of_matrices_are_what_a_library_computes() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let text = "
        def plain(x: f32[128, 64], w: f32[64, 136]) -> f32[128, 136] = x @ w
        def turned(x: f16[128, 64], w: f16[136, 64]) -> f16[128, 136] = x @ transpose(w, perm=[1, 0])
        def left_turned(x: bf16[64, 128], w: bf16[64, 136]) -> bf16[128, 136]
          = transpose(x, perm=[1, 0]) @ w
        def batches(x: f32[3, 70, 66], w: f32[3, 66, 80]) -> f32[3, 70, 80] = x @ w
        def heads(x: f16[2, 70, 3, 40], w: f16[2, 70, 3, 40]) -> f16[2, 3, 70, 70]
          = transpose(x, perm=[0, 2, 1, 3]) @ transpose(w, perm=[0, 2, 3, 1])
        def bias(x: f32[128, 64], w: f32[64, 136], b: f32[136]) -> f32[128, 136] = x @ w + b
        def more(x: f16[128, 64], w: f16[64, 136], b: f16[136], s: f16[128, 136]) -> f16[128, 136]
          = gelu(x @ w + b) * s
        def wide(x: f32[8, 2056], w: f32[2056, 72], b: f32[72]) -> f32[8, 72] = relu(x @ w + b)
        def residual(x: f16[128, 64], w: f16[64, 136], b: f16[136], s: f16[128, 136]) -> f16[128, 136]
          = s + (x @ w + b)
        def added(x: f32[3, 70, 66], w: f32[3, 66, 80], s: f32[3, 70, 80]) -> f32[3, 70, 80]
          = relu(x @ w + s)
        def curve(x: f32[128, 64], w: f32[64, 136], b: f32[136]) -> f32[128, 136]
          = gelu_tanh(x @ w + b)
        def other_curve(x: f32[128, 64], w: f32[64, 136]) -> f32[128, 136] = gelu(x @ w)
        def twice_added(x: f32[128, 64], w: f32[64, 136], s: f32[128, 136], t: f32[128, 136])
          -> f32[128, 136] = x @ w + s + t
        def small(x: f32[16, 16], w: f32[16, 16]) -> f32[16, 16] = x @ w
        def doubles(x: f64[128, 64], w: f64[64, 136]) -> f64[128, 136] = x @ w
        def before(x: f32[128, 64], w: f32[64, 136]) -> f32[128, 136] = tanh(x) @ w
        def twice(x: f32[128, 96], w: f32[96, 96], u: f32[96, 96]) -> f32[128, 96] = (x @ w) @ u
        def image(x: f32[2, 8, 20, 20], w: f32[16, 8, 5, 5]) -> f32[2, 16, 20, 20]
          = conv(x, w, stride=[1, 1], low=[2, 2], high=[2, 2], dilation=[1, 1])
    ";
    // The definition, products, and launches after each.
    let cases = [
        (
            "plain",
            "1 x [128, 64] @ [64, 136], left f32 by rows of 64 and 0 apart, right f32 by rows of 136 and 0 apart, result f32 by rows of 136 and 0 apart",
            false,
        ),
        ("turned", "right f16 by columns of 64 and 0 apart", false),
        ("left_turned", "left bf16 by columns of 128 and 0 apart", false),
        (
            "batches",
            "3 x [70, 66] @ [66, 80], left f32 by rows of 66 and 4620 apart, right f32 by rows of 80 and 5280 apart",
            false,
        ),
        ("bias", ", plus f32", false),
        ("more", "result f32 by rows of 136", true),
        ("wide", "plus f32, at least 0", false),
        ("residual", "result f16 by rows of 136 and 0 apart, plus a tensor, plus f16", false),
        ("added", "plus a tensor, at least 0", false),
        ("curve", "plus f32, gelu_tanh", false),
        ("other_curve", "result f32 by rows of 136 and 0 apart", true),
        ("twice_added", "result f32 by rows of 136 and 0 apart", true),
        ("twice", "1 x [128, 96] @ [96, 96]", false),
        ("heads", "", false),
        ("small", "", false),
        ("doubles", "", false),
        ("before", "1 x [128, 64] @ [64, 136]", false),
        ("image", "", false),
    ];
    let library = library_with(text);
    let run = |p: &Program, i: &[Tensor]| {
        let emulated = Arc::new(Emulated::with_library(&[LibraryKind::Products]));
        let code = code(p, &library);
        let products = code
            .library_candidates
            .iter()
            .filter(|a| a.work.kind() == LibraryKind::Products)
            .count();
        let loaded = LaunchedPlan::new(code, emulated.clone(), p.consts.clone());
        let loaded = loaded.map_err(|e| e.to_string())?;
        let notes = loaded.notes();
        // Equal products are told once.
        assert_eq!(notes.len(), products.min(1));
        assert!(notes.iter().all(|n| n.starts_with("products on the host, ")), "{notes:?}");
        let tried = emulated.multiplications();
        let result = loaded.run(i).map_err(|e| e.to_string());
        assert_eq!(emulated.multiplications(), tried + products, "the library computes in a run");
        drop(loaded);
        assert_eq!(emulated.left(), 0, "memory, modules or products are left on the device");
        result
    };
    let only = std::env::var("MLC_CUDA_CASE").ok();
    for (name, described, has_rest) in
        cases.into_iter().filter(|c| only.as_deref().is_none_or(|o| o == c.0))
    {
        let p = program_of(&library, name);
        let mut found = code(&p, &library).library_candidates;
        found.retain(|a| a.work.kind() == LibraryKind::Products);
        let count = if name == "twice" { 2 } else { usize::from(!described.is_empty()) };
        assert_eq!(found.len(), count, "{name}: {found:?}");
        for a in &found {
            assert!(a.work.to_string().contains(described), "{name}: {}", a.work);
            assert_eq!(a.epilogue.is_some(), has_rest, "{name}");
        }
        if count > 0 {
            let values = inputs(&p, Style::Normal, 1).expect("known extents");
            hold_run(&library, &p, Style::Normal, &values, &run)
                .unwrap_or_else(|m| panic!("{name}: {m}"));
        }
    }
}

/// A rectifier of a library may have 0 for NaN, which a product on small numbers does not tell.
#[test]
fn a_library_that_loses_nan_is_not_used() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library_with(
        "def rectified(x: f32[128, 64], w: f32[64, 136]) -> f32[128, 136] = relu(x @ w)",
    );
    let p = program_of(&library, "rectified");
    let notes = |device: Emulated| {
        let device = Arc::new(device);
        let plan = LaunchedPlan::new(code(&p, &library), device, p.consts.clone());
        plan.expect("is ready").notes()
    };
    let kept = notes(Emulated::with_library(&[LibraryKind::Products]));
    assert!(kept[0].starts_with("products on the host, "), "{kept:?}");
    let lost = notes(Emulated::with_library_that_loses_nan(&[LibraryKind::Products]));
    let expected = "generated code, for products on the host differs by NaN: ";
    assert!(lost[0].starts_with(expected), "{lost:?}");
}
