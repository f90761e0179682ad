//! Why a model became what it became: `cargo run --release --example why -- MODEL.onnx`.

use mlc_rewrite::{Error, Explanation, Model, Optimizer};
use std::path::{Path, PathBuf};

/// What was done for ONNX runtimes.
pub fn why(path: &Path) -> Result<Explanation, Error> {
    Optimizer::new().target("standard").optimize(&Model::read(path)?)?.explain()
}

/// The laws, by what they did where.
pub fn main() -> Result<(), Error> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let explanation = why(&path.unwrap_or_else(|| "examples/squeezenet1_1.onnx".into()))?;
    for law in &explanation.laws {
        println!(
            "{}: {} equations at {} nodes. {}",
            law.law,
            law.equations,
            law.nodes.len(),
            law.doc
        );
    }
    for region in explanation.regions.iter().filter(|r| r.saved > 0.0) {
        println!("saves {:.1e} s at {}", region.saved, region.nodes.join(", "));
    }
    println!("\n{}", explanation.human(false));
    Ok(())
}
