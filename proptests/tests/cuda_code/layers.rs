//! The layers of `examples/layers` as generated CUDA code, on the emulator: what they compute is what NumPy does, or they are refused by name.

#[path = "../../../tests/layers/table.rs"]
mod table;

use mlc_backends::Backend;
use mlc_cuda::Cuda;
use mlc_dsl::ir::Tensor;
use mlc_proptests::emulated::Emulated;
use mlc_rewrite::Options;
use mlc_rewrite::pipeline::optimize;
use std::fmt::Write;
use std::sync::Arc;
use table::{Case, cases};

/// The largest difference that rounding explains, in parts of the largest element.
const ROUNDED: f64 = 1e-5;

/// The difference to what NumPy computed, or why no code is generated.
fn computed(case: &Case) -> Result<f64, String> {
    let model = case.model();
    let options = Options { target: "cuda".into(), self_check: false, ..Options::default() };
    let plan = optimize(model.program().clone(), model.library(), &options);
    let plan = plan.map_err(|e| format!("{e:#}"))?.plan;
    let emulated = Arc::new(Emulated::default());
    let executable = Cuda::new(emulated.clone()).compile(&plan, model.library().clone());
    let executable = executable.map_err(|e| e.to_string())?;
    let tensor = |(_, a): (String, mlc_rewrite::ndarray::ArrayD<f32>)| {
        Tensor::from_f32(a.shape().to_vec(), a.iter().copied().collect())
    };
    let inputs: Vec<Tensor> = case.arrays().into_iter().map(tensor).collect();
    let y = executable.run(&inputs).map_err(|e| format!("a run fails: {e}"))?;
    let elements: Vec<f32> = (0..y[0].len()).map(|i| y[0].get_f64(i) as f32).collect();
    assert_eq!(y[0].shape(), case.shape, "{}", case.name);
    Ok(case.difference(&elements))
}

#[test]
fn layers_are_generated_or_refused_by_name() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let mut text = String::new();
    for case in cases() {
        let line = match computed(&case) {
            Ok(apart) => {
                assert!(apart <= ROUNDED, "{}: {apart:.1e} apart", case.name);
                "computed".into()
            }
            Err(reason) => reason,
        };
        let _ = writeln!(text, "{}: {line}", case.name);
    }
    insta::assert_snapshot!("cuda_layers", text);
}
