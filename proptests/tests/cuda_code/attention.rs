//! Attention in one pass over the keys, run by the emulator against the reference interpreter: element types and extents, masks of
//! all kinds with rows that see nothing, shared heads, few queries with many keys. Tiles that masks leave out are not loaded.

use mlc_backends::Executable;
use mlc_cuda::{LaunchedPlan, Launches, Tuning, launches_for};
use mlc_dsl::ir::{DType, Program, Tensor};
use mlc_dsl::library::Library;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs};
use mlc_fuzz::oracle::hold_run;
use mlc_proptests::emulated::Emulated;
use mlc_proptests::{library_with, program_of};
use mlc_rewrite::pipeline::selfcheck::difference;
use std::sync::Arc;

/// What a mask lets a query see of the keys.
#[derive(Clone, Copy, Debug)]
enum Sees {
    /// All that random numbers let it see.
    Random,
    /// Those up to its own place, where the last query sees all.
    Before,
    /// Of those at most 20.
    Near,
    /// The first 40, and every seventh query none.
    First,
}

impl Sees {
    fn one(self, query: usize, key: usize, [queries, keys]: [usize; 2]) -> bool {
        let place = query + keys - queries;
        match self {
            Sees::Random => true,
            Sees::Before => key <= place,
            Sees::Near => key <= place && place < key + 20,
            Sees::First => key < 40 && !query.is_multiple_of(7),
        }
    }
}

/// Inputs of a program, of which the one named `mask` hides what is not seen: by a truth value, or this number.
fn values(p: &Program, style: Style, sees: Sees, hidden: f64) -> Option<Vec<Tensor>> {
    let mut values = inputs(p, style, 1)?;
    let Some(at) = p.inputs.iter().position(|i| i.0 == "mask") else { return Some(values) };
    let mask = &mut values[at];
    let shape = mask.shape().to_vec();
    let [queries, keys] = [shape[shape.len() - 2], shape[shape.len() - 1]];
    let is_truth = mask.dtype() == DType::Bool;
    let mut elements = mask.to_f64();
    for (i, v) in elements.iter_mut().enumerate() {
        if !matches!(sees, Sees::Random) {
            let seen = sees.one(i / keys % queries, i % keys, [queries, keys]);
            *v = match (is_truth, seen) {
                (true, seen) => f64::from(u8::from(seen)),
                (false, true) => *v,
                (false, false) => hidden,
            };
        }
    }
    *mask = Tensor::from_f64(mask.dtype(), shape, &elements);
    Some(values)
}

fn code(p: &Program, library: &Library, tuning: Tuning) -> Launches {
    let plan = select_kernels(p.clone(), library, library.target("cuda").expect("shipped"));
    launches_for(&plan, library, tuning).expect("known extents")
}

fn run(
    library: &Library,
    p: &Program,
    i: &[Tensor],
    tuning: Tuning,
) -> Result<Vec<Tensor>, String> {
    let emulated = Arc::new(Emulated::default());
    let loaded = LaunchedPlan::new(code(p, library, tuning), emulated.clone(), p.consts.clone());
    let result = loaded.and_then(|e| e.run(i)).map_err(|e| e.to_string());
    assert_eq!(emulated.left(), 0, "memory or modules are left on the device");
    result
}

/// A definition, what its code contains, and the mask.
type Case<'a> = (&'a str, &'a [&'a str], Sees);

/// Holds definitions of a text against the reference interpreter.
fn check(text: &str, hidden: f64, cases: &[Case<'_>], styles: &[Style]) {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library_with(text);
    let run = |p: &Program, i: &[Tensor]| run(&library, p, i, Tuning::default());
    let only = std::env::var("MLC_CUDA_CASE").ok();
    for &(name, with, sees) in cases.iter().filter(|c| only.as_deref().is_none_or(|o| o == c.0)) {
        let p = program_of(&library, name);
        let code = code(&p, &library, Tuning::default());
        let text: String = code.each.iter().map(|l| l.source.as_str()).collect();
        if only.is_some() {
            println!("{text}");
        }
        for with in with {
            assert!(text.contains(with), "{name}: no `{with}` in\n{text}");
        }
        for &style in styles {
            let Some(values) = values(&p, style, sees, hidden) else { continue };
            let held = hold_run(&library, &p, style, &values, &run);
            held.unwrap_or_else(|m| panic!("{name}, {style:?}: {m}\n{text}"));
        }
    }
}

const ONE: &str = "with a normalised factor for each block";
const PARTS: &str = "a part of a product with a normalised factor";
const HALF: &str = "mma_16816(";
const BRAIN: &str = "mma_16816_bf16(";
/// What says that keys are read without shared memory.
const STRAIGHT: &str = "Keys are read straight to registers";
const LEAVES_OUT: &str = "continue;";

#[test]
fn element_types_and_extents() {
    let text = "
        def even(q: f16[1, 2, 70, 32], k: f16[1, 2, 136, 32], v: f16[1, 2, 136, 48]) -> f16[1, 2, 70, 48]
          = attention(q, k, v, scale=0.25)
        def odd(q: f16[1, 2, 9, 17], k: f16[1, 2, 65, 17], v: f16[1, 2, 65, 19]) -> f16[1, 2, 9, 19]
          = attention(q, k, v, scale=0.25)
        def brain(q: bf16[2, 33, 64], k: bf16[2, 77, 64], v: bf16[2, 77, 64]) -> bf16[2, 33, 64]
          = attention(q, k, v, scale=0.25)
        def large(q: f16[20, 136], k: f16[40, 136], v: f16[40, 200]) -> f16[20, 200]
          = attention(q, k, v, scale=0.25)
        def real(q: f32[1, 2, 70, 40], k: f32[1, 2, 68, 40], v: f32[1, 2, 68, 72]) -> f32[1, 2, 70, 72]
          = attention(q, k, v, scale=0.25)
        def real_odd(q: f32[1, 2, 9, 17], k: f32[1, 2, 45, 17], v: f32[1, 2, 45, 19]) -> f32[1, 2, 9, 19]
          = attention(q, k, v, scale=0.25)
        def real_large(q: f32[20, 136], k: f32[40, 136], v: f32[40, 200]) -> f32[20, 200]
          = attention(q, k, v, scale=0.25)
        def mixed(q: f16[20, 16], k: f32[40, 16], v: f32[40, 16]) -> f32[20, 16]
          = attention(cast(q, to=f32), k, v, scale=0.25)
        def around(q: f16[2, 20, 16], k: f16[2, 40, 16], v: f16[2, 40, 16], x: f16[2, 20, 16]) -> f16[2, 20, 16]
          = relu(attention(q * 0.5, k, tanh(v), scale=0.25)) + x
        def turned(q: f16[2, 20, 16], y: f16[2, 16, 40], v: f16[2, 40, 16]) -> f16[2, 20, 16]
          = attention(q, transpose(y, perm=[0, 2, 1]), v, scale=0.25)
        def turned_real(q: f32[2, 20, 24], y: f32[2, 24, 49], v: f32[2, 49, 32]) -> f32[2, 20, 32]
          = attention(q, transpose(y, perm=[0, 2, 1]), v, scale=0.25)
    ";
    let cases: &[Case<'_>] = &[
        ("even", &[ONE, HALF, "copy_async(", "? x0 +", "? x1 +", "? x2 +"], Sees::Random),
        ("odd", &[ONE, HALF], Sees::Random),
        ("brain", &[ONE, BRAIN], Sees::Random),
        ("large", &[ONE, HALF], Sees::Random),
        ("real", &[ONE, "copy_async(", "? x0 +", "? x1 +", "? x2 +"], Sees::Random),
        ("real_odd", &[ONE], Sees::Random),
        ("real_large", &[ONE], Sees::Random),
        ("mixed", &[ONE], Sees::Random),
        ("around", &[ONE, HALF], Sees::Random),
        ("turned", &[ONE, HALF], Sees::Random),
        ("turned_real", &[ONE, "copy_part_async<1>(tile", "line = at % 64, step"], Sees::Random),
    ];
    check(text, 0.0, cases, &[Style::Normal, Style::Special]);
}

#[test]
fn masks_and_what_they_hide() {
    let text = "
        def chosen(q: f16[2, 70, 16], k: f16[2, 600, 16], v: f16[2, 600, 16], mask: bool[70, 600]) -> f16[2, 70, 16]
          = attention_select(q, k, v, broadcast(mask, map=[1, 2], shape=[2, 70, 600]), scale=0.25, low=-inf)
        def low(q: f32[2, 35, 16], k: f32[2, 300, 16], v: f32[2, 300, 16], mask: bool[2, 35, 300]) -> f32[2, 35, 16]
          = attention_select(q, k, v, mask, scale=0.25, low=-1e9)
        def near(q: f32[2, 35, 16], k: f32[2, 300, 16], v: f32[2, 300, 16], mask: bool[2, 35, 300]) -> f32[2, 35, 16]
          = attention_select(q, k, v, mask, scale=0.25, low=-9.0)
        def added(q: f32[2, 35, 16], k: f32[2, 300, 16], v: f32[2, 300, 16], mask: f32[2, 35, 300]) -> f32[2, 35, 16]
          = attention_masked(q, k, v, mask, scale=0.25)
        def added_half(q: bf16[2, 35, 16], k: bf16[2, 600, 16], v: bf16[2, 600, 16], mask: bf16[35, 600]) -> bf16[2, 35, 16]
          = attention_masked(q, k, v, broadcast(mask, map=[1, 2], shape=[2, 35, 600]), scale=0.25)
        def before(q: f16[2, 70, 16], k: f16[2, 600, 16], v: f16[2, 600, 16]) -> f16[2, 70, 16]
          = attention_select(
            q, k, v,
            broadcast(iota(size=600, to=i64), map=[2], shape=[2, 70, 600])
              <= broadcast(iota(size=70, start=300, to=i64), map=[1], shape=[2, 70, 600]),
            scale=0.25, low=-inf
          )
        def lengths(q: f32[2, 35, 16], k: f32[2, 300, 16], v: f32[2, 300, 16], n: i64[2]) -> f32[2, 35, 16]
          = attention_select(
            q, k, v,
            broadcast(iota(size=300, to=i64), map=[2], shape=[2, 35, 300])
              < broadcast(n + 120, map=[0], shape=[2, 35, 300]),
            scale=0.25, low=-inf
          )
        def both(q: f32[2, 35, 16], k: f32[2, 300, 16], v: f32[2, 300, 16], mask: bool[2, 35, 300], m: f32[2, 35, 300]) -> f32[2, 35, 16]
          = attention_masked(q, k, v, select(mask, m, -3e38), scale=0.25)
    ";
    let both: &[&str] = &[ONE, LEAVES_OUT];
    for sees in [Sees::Random, Sees::Before, Sees::Near, Sees::First] {
        let cases: &[Case<'_>] = &[
            ("chosen", &[ONE, LEAVES_OUT, HALF], sees),
            ("low", &[ONE, LEAVES_OUT, "turn == 1"], sees),
            ("near", &[ONE], sees),
            ("both", both, sees),
        ];
        check(text, 0.0, cases, &[Style::Normal]);
        for hidden in [f64::NEG_INFINITY, -3e38] {
            let cases = [("added", both, sees), ("added_half", both, sees)];
            check(text, hidden, &cases, &[Style::Normal]);
        }
    }
    check(
        text,
        0.0,
        &[("before", both, Sees::Random), ("lengths", both, Sees::Random)],
        &[Style::Normal],
    );
}

#[test]
fn shared_heads() {
    let text = "
        def groups(q: f16[1, 6, 20, 16], k: f16[1, 2, 40, 16], v: f16[1, 2, 40, 16]) -> f16[1, 6, 20, 16]
          = attention(
            q,
            reshape(broadcast(k, map=[0, 1, 3, 4], shape=[1, 2, 3, 40, 16]), shape=[1, 6, 40, 16]),
            reshape(broadcast(v, map=[0, 1, 3, 4], shape=[1, 2, 3, 40, 16]), shape=[1, 6, 40, 16]),
            scale=0.25
          )
        def one(q: f32[1, 6, 1, 16], k: f32[1, 600, 16], v: f32[1, 600, 16]) -> f32[1, 6, 1, 16]
          = attention(
            q, broadcast(k, map=[0, 2, 3], shape=[1, 6, 600, 16]),
            broadcast(v, map=[0, 2, 3], shape=[1, 6, 600, 16]), scale=0.25
          )
    ";
    let cases: &[Case<'_>] =
        &[("groups", &[ONE, HALF], Sees::Random), ("one", &[PARTS], Sees::Random)];
    check(text, 0.0, cases, &[Style::Normal]);
}

#[test]
fn few_queries_and_many_keys() {
    let text = "
        def half(q: f16[1, 2, 1, 64], k: f16[1, 2, 700, 64], v: f16[1, 2, 700, 64]) -> f16[1, 2, 1, 64]
          = attention(q, k, v, scale=0.25)
        def brain(q: bf16[1, 2, 3, 40], k: bf16[1, 2, 700, 40], v: bf16[1, 2, 700, 136]) -> bf16[1, 2, 3, 136]
          = tanh(attention(q, k, v, scale=0.25))
        def real(q: f32[1, 2, 1, 24], k: f32[1, 2, 700, 24], v: f32[1, 2, 700, 40]) -> f32[1, 2, 1, 40]
          = attention(q, k, v, scale=0.25)
        def chosen(q: f16[2, 5, 16], k: f16[2, 4000, 16], v: f16[2, 4000, 16], mask: bool[2, 5, 4000]) -> f16[2, 5, 16]
          = attention_select(q, k, v, mask, scale=0.25, low=-inf)
        def added(q: f32[2, 9, 16], k: f32[2, 4000, 16], v: f32[2, 4000, 16], mask: f32[2, 9, 4000], x: f32[2, 9, 16]) -> f32[2, 9, 16]
          = x + attention_masked(q, k, v, mask, scale=0.25)
        def nine(q: f16[1, 2, 9, 64], k: f16[1, 2, 700, 64], v: f16[1, 2, 700, 64]) -> f16[1, 2, 9, 64]
          = attention(q, k, v, scale=0.25)
    ";
    let cases: &[Case<'_>] = &[
        ("half", &[PARTS, STRAIGHT, "load_pack<8>(x1", "load_pack<8>(x2"], Sees::Random),
        ("brain", &[PARTS, STRAIGHT, "load_pack<8>(x2"], Sees::Random),
        ("real", &[PARTS, STRAIGHT, "load_pack<4>(x1", "load_pack<4>(x2"], Sees::Random),
        ("nine", &[PARTS, HALF], Sees::Random),
        ("chosen", &[PARTS, LEAVES_OUT], Sees::First),
        ("chosen", &[PARTS, LEAVES_OUT], Sees::Near),
        ("added", &[PARTS, LEAVES_OUT], Sees::First),
    ];
    check(text, -3e38, cases, &[Style::Normal]);
    check(text, 0.0, &cases[..4], &[Style::Special]);
}

/// Keys that go straight to registers: a row and eight, odd extents, heads that lanes share in every way, masks that hide whole parts,
/// what is computed before and after.
#[test]
fn few_queries_read_keys_straight() {
    let text = "
        def eight(q: f32[3, 8, 128], k: f32[3, 300, 128], v: f32[3, 300, 128]) -> f32[3, 8, 128]
          = attention(q, k, v, scale=0.1)
        def groups(q: f16[2, 2, 4, 128], k: f16[2, 2, 300, 128], v: f16[2, 2, 300, 128]) -> f16[2, 2, 4, 128]
          = attention(q, k, v, scale=0.1)
        def odd(q: f32[2, 5, 17], k: f32[2, 99, 17], v: f32[2, 99, 19]) -> f32[2, 5, 19]
          = attention(q, k, v, scale=0.25)
        def odd_half(q: bf16[2, 3, 17], k: bf16[2, 99, 17], v: bf16[2, 99, 19]) -> bf16[2, 3, 19]
          = attention(q, k, v, scale=0.25)
        def wide(q: f16[1, 4, 256], k: f16[1, 70, 256], v: f16[1, 70, 200]) -> f16[1, 4, 200]
          = attention(q, k, v, scale=0.0625)
        def widest(q: f32[1, 8, 256], k: f32[1, 70, 256], v: f32[1, 70, 256]) -> f32[1, 8, 256]
          = attention(q, k, v, scale=0.0625)
        def short(q: f32[5, 1, 16], k: f32[5, 9, 16], v: f32[5, 9, 16]) -> f32[5, 1, 16]
          = attention(q, k, v, scale=0.25)
        def turned(q: f32[2, 2, 16], y: f32[2, 16, 300], v: f32[2, 300, 16], x: f32[2, 2, 16]) -> f32[2, 2, 16]
          = relu(attention(q * 0.5, transpose(y, perm=[0, 2, 1]), tanh(v), scale=0.25)) + x
        def cached(q: f16[2, 2, 64], k: f16[2, 512, 64], v: f16[2, 512, 64], mask: bool[2, 512]) -> f16[2, 2, 64]
          = attention_select(q, k, v, broadcast(mask, map=[1, 2], shape=[2, 2, 512]), scale=0.25, low=-inf)
        def low(q: f32[2, 3, 16], k: f32[2, 515, 16], v: f32[2, 515, 16], mask: bool[2, 3, 515]) -> f32[2, 3, 16]
          = attention_select(q, k, v, mask, scale=0.25, low=-1e9)
        def added(q: f32[2, 3, 16], k: f32[2, 515, 16], v: f32[2, 515, 16], mask: f32[3, 515]) -> f32[2, 3, 16]
          = attention_masked(q, k, v, broadcast(mask, map=[1, 2], shape=[2, 3, 515]), scale=0.25)
        def before(q: f32[2, 4, 16], k: f32[2, 400, 16], v: f32[2, 400, 16]) -> f32[2, 4, 16]
          = attention_select(
            q, k, v,
            broadcast(iota(size=400, to=i64), map=[2], shape=[2, 4, 400])
              <= broadcast(iota(size=4, start=150, to=i64), map=[1], shape=[2, 4, 400]),
            scale=0.25, low=-inf
          )
    ";
    let straight: &[&str] = &[STRAIGHT];
    let plain = ["eight", "groups", "odd", "odd_half", "wide", "widest", "short", "turned"];
    let cases: Vec<Case<'_>> = plain.map(|name| (name, straight, Sees::Random)).into();
    check(text, 0.0, &cases, &[Style::Normal, Style::Special]);
    let masked: &[&str] = &[STRAIGHT, LEAVES_OUT];
    for sees in [Sees::Random, Sees::Before, Sees::Near, Sees::First] {
        let turns: &[&str] = &[STRAIGHT, LEAVES_OUT, "turn == 1"];
        check(text, 0.0, &[("cached", masked, sees), ("low", turns, sees)], &[Style::Normal]);
        for hidden in [f64::NEG_INFINITY, -3e38] {
            check(text, hidden, &[("added", turns, sees)], &[Style::Normal]);
        }
    }
    check(text, 0.0, &[("before", masked, Sees::Random)], &[Style::Normal]);
}

#[test]
fn scores_that_are_capped() {
    let text = "
        def plain(q: f16[2, 20, 16], k: f16[2, 40, 16], v: f16[2, 40, 16]) -> f16[2, 20, 16]
          = attention_capped(q, k, v, scale=0.05, cap=20)
        def added(q: f32[2, 35, 16], k: f32[2, 300, 16], v: f32[2, 300, 16], mask: f32[2, 35, 300]) -> f32[2, 35, 16]
          = attention_capped_masked(q, k, v, mask, scale=0.05, cap=20)
        def chosen(q: bf16[2, 35, 16], k: bf16[2, 600, 16], v: bf16[2, 600, 16], mask: bool[2, 35, 600]) -> bf16[2, 35, 16]
          = attention_capped_select(q, k, v, mask, scale=0.05, cap=20, low=-inf)
        def few(q: f16[1, 2, 2, 64], k: f16[1, 2, 700, 64], v: f16[1, 2, 700, 64], mask: bool[1, 2, 2, 700]) -> f16[1, 2, 2, 64]
          = attention_capped_select(q, k, v, mask, scale=0.05, cap=20, low=-inf)
    ";
    for sees in [Sees::Random, Sees::Near] {
        let cases: &[Case<'_>] = &[
            ("plain", &[ONE, HALF], sees),
            ("added", &[ONE, LEAVES_OUT], sees),
            ("chosen", &[ONE, BRAIN, LEAVES_OUT], sees),
            ("few", &[PARTS, STRAIGHT, LEAVES_OUT], sees),
        ];
        check(text, f64::NEG_INFINITY, cases, &[Style::Normal]);
    }
}

#[test]
fn tf32_where_that_is_allowed() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let text = "
        def all(q: f32[2, 35, 24], k: f32[2, 100, 24], v: f32[2, 100, 40]) -> f32[2, 35, 40]
          = attention(q, k, v, scale=0.25)
        def few(q: f32[1, 12, 64], k: f32[1, 600, 64], v: f32[1, 600, 64]) -> f32[1, 12, 64]
          = attention(q, k, v, scale=0.25)
    ";
    let library = library_with(text);
    let tuning = Tuning { tf32: true, ..Tuning::default() };
    for name in ["all", "few"] {
        let p = program_of(&library, name);
        let texts: String =
            code(&p, &library, tuning).each.iter().map(|l| l.source.as_str()).collect();
        assert!(texts.contains("mma_1688_tf32("), "{name}: {texts}");
        let values = inputs(&p, Style::Normal, 1).expect("known extents");
        let expected = mlc_backends::reference::run_values(&p, &library, &values).expect("runs");
        let got = run(&library, &p, &values, tuning).expect("runs");
        let error = difference(&expected[0].to_tensor(), &got[0]).expect("the same type");
        // The factors of both products have 11 bits.
        assert!(error < 6e-3, "{name}: {error:.1e}");
    }
}
