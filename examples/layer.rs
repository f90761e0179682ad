//! A layer of one's own, from a text: `cargo run --release --example layer`.
//!
//! The definition is all there is to it. It runs, it is found where another model writes it out in other words, and it becomes
//! ONNX, without a line of Rust that knows it.

use mlc_rewrite::ndarray::{Array2, array};
use mlc_rewrite::{AnyArray, Device, Error, Model, OptimizedModel, Optimizer, Reader};

const SOFTSWITCH: &str = "
/// Soft switch: the identity for large numbers, a scaled one for small ones.
def softswitch(x: F[..s], low: float in 0.1..0.5) -> F[..s]
  = low * x + (1 - low) * x * sigmoid(x)
";

/// A model whose author did not know the layer.
const MODEL: &str = "
def model(x: f32[rows, 4], w: f32[4, 2]) -> y: f32[rows, 2]
  let h = x @ w
  = h * sigmoid(h) * 0.75 + h * 0.25
";

/// The layer alone, on an array.
pub fn alone() -> Result<AnyArray, Error> {
    let layer = Reader::new()
        .rules_text("softswitch.rules", SOFTSWITCH)
        .from_rules("def model(x: f32[n]) -> y: f32[n]\n  = softswitch(x, low=0.25)\n")?;
    let outputs = layer.session()?.run([("x", array![-4.0f32, 0.0, 4.0])])?;
    Ok(outputs["y"].clone())
}

/// The model with the layer recognised.
pub fn recognised() -> Result<OptimizedModel, Error> {
    let model = Model::from_rules(MODEL)?;
    Optimizer::new().rules_text("softswitch.rules", SOFTSWITCH).optimize(&model)
}

/// Runs both, and holds the recognised layer against the meaning of what was written.
pub fn main() -> Result<(), Error> {
    println!("{:?}", alone()?.array::<f32>()?);
    let model = recognised()?;
    println!("{}", model.text());
    let inputs = || [("x", Array2::<f32>::ones((3, 4))), ("w", Array2::<f32>::ones((4, 2)))];
    let fast = model.session()?.run(inputs())?;
    let meant = Model::from_rules(MODEL)?.session_on(&Device::reference())?.run(inputs())?;
    let (fast, meant) = (fast.array::<f32>("y")?, meant.array::<f32>("y")?);
    let most = fast.iter().zip(&meant).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("largest difference {most:e}");
    model.write(std::env::temp_dir().join("softswitch.onnx"))
}
