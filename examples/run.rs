//! Runs a model on arrays, from several threads at once: `cargo run --release --example run`.

use mlc_rewrite::ndarray::{Array1, Array4};
use mlc_rewrite::{Error, Model, Optimizer};

/// An image of one colour.
fn image(red: f32, green: f32, blue: f32) -> Array4<f32> {
    Array4::from_shape_fn((1, 3, 224, 224), |(_, channel, ..)| [red, green, blue][channel])
}

/// The most likely class of each of two images.
pub fn classes() -> Result<Vec<usize>, Error> {
    let model = Model::read("examples/squeezenet1_1.onnx")?;
    model.inputs().iter().for_each(|input| println!("takes  {input}"));
    model.outputs().iter().for_each(|output| println!("yields {output}"));
    let session = Optimizer::new().optimize(&model)?.session()?;
    let class = |image: Array4<f32>| -> Result<usize, Error> {
        let outputs = session.run([("input", image)])?;
        let logits: Array1<f32> = outputs.array("logits")?.iter().copied().collect();
        let best = logits.indexed_iter().max_by(|a, b| a.1.total_cmp(b.1));
        Ok(best.map_or(0, |(class, _)| class))
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| class(image(-1.0, 0.5, 2.0)));
        let first = class(image(0.0, 0.0, 0.0))?;
        let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(vec![first, second])
    })
}

/// Prints the classes.
pub fn main() -> Result<(), Error> {
    println!("classes {:?}", classes()?);
    Ok(())
}
