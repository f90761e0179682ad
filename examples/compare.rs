//! A model against what was made of it, on the same inputs: `cargo run --release --example compare -- MODEL.onnx`.

use mlc_rewrite::ndarray::ArrayD;
use mlc_rewrite::{AnyArray, DType, Error, Model, Optimizer, Session};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What differs.
pub struct Difference {
    /// Estimated seconds of both.
    pub cost: (f64, f64),
    /// The fastest runs of both.
    pub time: (Duration, Duration),
    /// The largest difference of an element, as a part of the largest element.
    pub error: f64,
}

/// Inputs of a wave each; a named extent is 1.
fn inputs(model: &Model) -> Vec<(String, AnyArray)> {
    let one = |info: &mlc_rewrite::TensorInfo| {
        let shape: Vec<usize> = info.shape().into_iter().map(|n| n.unwrap_or(1)).collect();
        let n = shape.iter().product();
        let array = match info.dtype() {
            DType::I64 => AnyArray::from(ArrayD::<i64>::zeros(shape)),
            DType::Bool => AnyArray::from(ArrayD::from_elem(shape, true)),
            _ => {
                let wave = (0..n).map(|i| (i as f32 * 0.1).sin()).collect();
                AnyArray::from(ArrayD::<f32>::from_shape_vec(shape, wave).expect("n elements"))
            }
        };
        (info.name().to_string(), array)
    };
    model.inputs().iter().map(one).collect()
}

/// The fastest of some runs.
fn fastest(session: &Session, inputs: &[(String, AnyArray)]) -> Result<Duration, Error> {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        session.run(inputs.iter().map(|(name, array)| (name, array)))?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// Runs a model as it was read and optimised.
pub fn compare(path: &Path) -> Result<Difference, Error> {
    let model = Model::read(path)?;
    let optimized = Optimizer::new().optimize(&model)?;
    let (before, after) = (model.session()?, optimized.session()?);
    let inputs = inputs(&model);
    let given = || inputs.iter().map(|(name, array)| (name, array));
    let (expected, found) = (before.run(given())?, after.run(given())?);
    let (mut most, mut off) = (0f64, 0f64);
    for name in expected.names() {
        let (a, b) = (expected.array::<f32>(name)?, found.array::<f32>(name)?);
        for (a, b) in a.iter().zip(&b) {
            most = most.max(f64::from(a.abs()));
            off = off.max(f64::from((a - b).abs()));
        }
    }
    let report = optimized.report();
    Ok(Difference {
        cost: (report.cost_before, report.cost_after),
        time: (fastest(&before, &inputs)?, fastest(&after, &inputs)?),
        error: off / most.max(f64::MIN_POSITIVE),
    })
}

/// Prints what differs.
pub fn main() -> Result<(), Error> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let d = compare(&path.unwrap_or_else(|| "examples/squeezenet1_1.onnx".into()))?;
    println!("estimated {:.2e} s -> {:.2e} s", d.cost.0, d.cost.1);
    println!("measured  {:?} -> {:?}", d.time.0, d.time.1);
    println!("error     {:.1e} of the largest element", d.error);
    Ok(())
}
