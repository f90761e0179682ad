//! Products in all tilings that a device's clock may choose from, on the emulator: each computes what the reference interpreter does.

use mlc_cuda::{Launches, Tuning, Variant, launches_for};
use mlc_dsl::ir::Program;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::Style;
use mlc_proptests::generated_code::holds;
use mlc_proptests::{defined, library_with, program_of};
use rayon::prelude::*;
use std::collections::BTreeSet;

const TEXT: &str = "
    def plain(x: f16[64, 1032], w: f16[1032, 72]) -> f16[64, 72] = x @ w
    def brain(x: bf16[68, 1000], w: bf16[1000, 72], b: bf16[72]) -> bf16[68, 72] = gelu(x @ w + b)
    def floats(x: f32[66, 1100], w: f32[1100, 70], r: f32[66, 70]) -> f32[66, 70] = relu(x @ w) + r
    def doubles(x: f64[64, 1100], w: f64[1100, 64]) -> f64[64, 64] = x @ w
    def odd(x: f16[69, 1001], w: f16[1001, 67]) -> f16[69, 67] = x @ w
    def turned(x: f16[1000, 72], w: f16[72, 1000]) -> f16[72, 72]
      = transpose(transpose(w, perm=[1, 0]) * 2, perm=[1, 0]) @ x
    def batch(x: f16[3, 40, 600], w: f16[3, 600, 72]) -> f16[3, 40, 72] = x @ w
    def image(x: f16[1, 14, 14, 64], w: f16[3, 3, 64, 64], b: f16[64]) -> f16[1, 14, 14, 64]
      = relu(conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1) + b)
    def strided(x: f32[1, 8, 30, 30], w: f32[128, 8, 7, 7]) -> f32[1, 128, 12, 12]
      = conv(x, w, stride=[2, 2], low=[0, 0], high=[0, 0], dilation=[1, 1], group=1)
    def small(x: f16[64, 64], w: f16[64, 64]) -> f16[64, 64] = x @ w
";

#[test]
fn what_is_offered_computes_what_the_reference_does() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library_with(TEXT);
    let target = library.target("cuda").expect("shipped");
    let cases: Vec<(&str, u32)> = defined(TEXT).flat_map(|n| [(n, 132), (n, 4)]).collect();
    let tried = |&(name, processors): &(&str, u32)| {
        let tuning = Tuning { processors, offers_tilings: true, ..Tuning::default() };
        let code = |p: &Program| -> Result<Launches, String> {
            let plan = select_kernels(p.clone(), &library, target);
            launches_for(&plan, &library, tuning).map_err(|e| e.to_string())
        };
        let p = program_of(&library, name);
        let offered = code(&p).unwrap_or_else(|e| panic!("{name}: {e}")).variants;
        assert_eq!(offered.is_empty(), name == "small", "{name}: {offered:?}");
        let kind = |(at, variant): (usize, &Variant)| {
            let in_place = |p: &Program| {
                let mut code = code(p)?;
                code.replace(&code.variants[at].clone());
                code.variants.clear();
                Ok(code)
            };
            let held = holds(&library, &p, &[Style::Normal], &in_place);
            held.unwrap_or_else(|m| panic!("{name}, {}: {m}", variant.description));
            let text: String = variant.replacement.iter().map(|l| l.source.as_str()).collect();
            ["comes_last", "LARGE_SHARED", "copy_async", "next_left"]
                .map(|what| text.contains(what))
        };
        offered.iter().enumerate().map(kind).collect::<Vec<_>>()
    };
    let kinds: BTreeSet<[bool; 4]> = cases.par_iter().flat_map_iter(tried).collect();
    // In parts and whole, with more memory and without, copied ahead and through registers.
    for (cut, large, ahead) in
        [(false, true, true), (true, true, true), (true, true, false), (true, false, true)]
    {
        let found = kinds.iter().any(|k| (k[0], k[1], k[2] && !k[3]) == (cut, large, ahead));
        assert!(
            found,
            "no tiling is in parts: {cut}, large: {large}, copied ahead: {ahead}; {kinds:?}"
        );
    }
}
