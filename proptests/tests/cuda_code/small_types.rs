//! Elements of at most 8 bits in generated CUDA code, on the emulator: every code has the number that the reference interpreter gives it, and
//! every number has its code.

use mlc_backends::Executable;
use mlc_backends::reference::run_values;
use mlc_cuda::{LaunchedPlan, Tuning, launches_for};
use mlc_dsl::ir::{DType, Tensor};
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::Style;
use mlc_proptests::emulated::Emulated;
use mlc_proptests::{defined, generated_code, library_with, program_of};
use std::sync::Arc;

fn small_types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|d| d.is_small())
}

/// Numbers of all codes, of the middle between neighbours and beside it, of other sizes, and none.
fn numbers(dtype: DType) -> Vec<f64> {
    let codes: Vec<u8> = (0..=255).map(|b| dtype.canonical(b)).collect();
    let codes = Tensor::new(dtype, vec![256], codes.into());
    let mut all = codes.expect("a vector").to_f64();
    all.extend([0.0, -0.0, 2f64.powi(-127), 2f64.powi(-128), 1e-40, 3e38, 1e30, 20000.0, 0.3]);
    all.sort_by(f64::total_cmp);
    all.dedup();
    let middles: Vec<f64> = all.windows(2).map(|w| f64::midpoint(w[0], w[1])).collect();
    let near = |v: &f64| {
        let v = *v as f32;
        [v.next_down(), v, v.next_up()].map(f64::from)
    };
    all.extend(middles.iter().flat_map(near));
    // In 64 bits what is beside the middle may be the middle in 32.
    all.extend(middles.iter().flat_map(|v| [v.next_down(), v.next_up()]));
    all.extend(all.clone().iter().map(|v| -v));
    all.extend([f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    all
}

/// The elements, with which NaN is one number.
fn elements(t: &Tensor) -> Vec<Option<u64>> {
    t.to_f64().into_iter().map(|v| (!v.is_nan()).then_some(v.to_bits())).collect()
}

/// Whole numbers, of which most do not fit.
fn whole() -> Vec<f64> {
    (-300..300).map(f64::from).collect()
}

#[test]
fn casts_are_those_of_the_reference() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    for d in small_types() {
        let (real, whole, name) = (numbers(d), whole(), d.name());
        let (n, m) = (real.len(), whole.len());
        let text = format!(
            "
            def to_f32(x: {name}[256]) -> f32[256] = cast(x, to=f32)
            def to_f64(x: {name}[256]) -> f64[256] = cast(x, to=f64)
            def to_f16(x: {name}[256]) -> f16[256] = cast(x, to=f16)
            def to_i32(x: {name}[256]) -> i32[256] = cast(x, to=i32)
            def of_f32(x: f32[{n}]) -> {name}[{n}] = cast(x, to={name})
            def of_f64(x: f64[{n}]) -> {name}[{n}] = cast(x, to={name})
            def of_i64(x: i64[{m}]) -> {name}[{m}] = cast(x, to={name})
            def rounded_f32(x: f32[{n}]) -> f32[{n}] = cast(cast(x, to={name}), to=f32)
            def rounded_f64(x: f64[{n}]) -> f64[{n}] = cast(cast(x, to={name}), to=f64)
            def moved(x: {name}[256]) -> {name}[16, 16]
              = transpose(reshape(x, shape=[16, 16]), perm=[1, 0])
            "
        );
        let library = library_with(&text);
        let target = library.target("cuda").expect("shipped");
        for case in defined(&text) {
            let p = program_of(&library, case);
            let of = p.inputs[0].1.dtype;
            let x = match of {
                DType::I64 => Tensor::from_f64(of, vec![m], &whole),
                d if d.is_small() => {
                    let codes: Vec<u8> = (0..=255).map(|b| d.canonical(b)).collect();
                    Tensor::new(d, vec![256], codes.into()).expect("a vector")
                }
                _ => Tensor::from_f64(of, vec![n], &real),
            };
            let inputs = [x];
            let expected = run_values(&p, &library, &inputs).expect("runs");
            let plan = select_kernels(p.clone(), &library, target);
            let code = launches_for(&plan, &library, Tuning::default()).expect("has code");
            let loaded = LaunchedPlan::new(code, Arc::new(Emulated::default()), p.consts.clone());
            let found = loaded.expect("is ready").run(&inputs).expect("runs");
            let (expected, found) = (expected[0].to_tensor(), &found[0]);
            let differs =
                elements(&expected).iter().zip(elements(found)).position(|(a, b)| *a != b);
            if let Some(at) = differs {
                let of = inputs[0].to_f64()[at];
                let [found, expected] = [found, &expected].map(|t| t.to_f64()[at]);
                panic!("{case} of {name}, {at}: {found:?} of {of:?}, not {expected:?}");
            }
            // What is beyond the bits of a code is as it is told.
            if expected.dtype() == d && !d.is_float() {
                assert_eq!(expected.bytes(), found.bytes(), "{case} of {name}");
            }
        }
    }
}

/// Weights of few bits are decoded where a product loads them.
#[test]
fn weights_of_few_bits_are_decoded_within_products() {
    let text = "
        def nibbles(x: f16[64, 256], w: i4[256, 72], s: f16[8, 72]) -> f16[64, 72]
          = x @ reshape(reshape(cast(w, to=f16), shape=[8, 32, 72]) * broadcast(s, map=[0, 2], shape=[8, 32, 72]), shape=[256, 72])
        def floats(x: f16[64, 256], w: f8e4m3fn[256, 72]) -> f16[64, 72] = x @ cast(w, to=f16)
        def few(x: f32[2, 256], w: u4[256, 1032], z: u4[1032], s: f32[1032]) -> f32[2, 1032]
          = x @ ((cast(w, to=f32) - cast(z, to=f32)) * s)
    ";
    let cases = [("nibbles", "mma", ""), ("floats", "mma", ""), ("few", "", "")];
    generated_code::check(text, &cases, &[Style::Normal, Style::Whole]);
}
