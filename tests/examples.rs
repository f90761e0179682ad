//! The examples of the library, run.
#![allow(dead_code, reason = "of an example that reads arguments, what comes after them is run")]

#[path = "../examples/compare.rs"]
mod compare;
#[path = "../examples/layer.rs"]
mod layer;
#[path = "../examples/optimize.rs"]
mod optimize;
#[path = "../examples/run.rs"]
mod run;
#[path = "../examples/why.rs"]
mod why;

use mlc_rewrite::Model;
use std::path::Path;

const MODEL: &str = "examples/squeezenet1_1.onnx";

#[test]
fn a_file_is_optimised() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out.onnx");
    optimize::optimize(Path::new(MODEL), &out).expect("optimises");
    let nodes = |path: &Path| Model::read(path).expect("reads").info().map(|i| i.nodes);
    assert!(nodes(&out) < nodes(Path::new(MODEL)));
}

#[test]
fn a_model_runs_on_arrays() {
    let classes = run::classes().expect("runs");
    assert_eq!(classes.len(), 2);
    assert!(classes.iter().all(|c| *c < 1000), "{classes:?}");
}

#[test]
fn a_layer_of_ones_own_runs_and_is_recognised() {
    let y = layer::alone().expect("runs");
    let y = y.array::<f32>().expect("f32").into_owned();
    let meant = |x: f64| 0.25 * x + 0.75 * x / (1.0 + (-x).exp());
    for (found, x) in y.iter().zip([-4.0, 0.0, 4.0]) {
        assert!((f64::from(*found) - meant(x)).abs() < 1e-6, "{x}: {found}");
    }
    let model = layer::recognised().expect("optimises");
    assert!(
        model.text().contains("softswitch(") && !model.text().contains("sigmoid("),
        "{}",
        model.text()
    );
    layer::main().expect("runs");
}

#[test]
fn the_reasons_are_told() {
    let explanation = why::why(Path::new(MODEL)).expect("explains");
    assert!(explanation.laws.iter().any(|l| l.law == "add_zero"), "{:?}", explanation.laws);
    assert!(explanation.regions.iter().any(|r| r.saved > 0.0));
}

#[test]
fn two_models_are_compared() {
    let difference = compare::compare(Path::new(MODEL)).expect("runs");
    assert!(difference.cost.1 < difference.cost.0);
    assert!(difference.error < 1e-4, "{}", difference.error);
}
