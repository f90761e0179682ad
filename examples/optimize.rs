//! Optimises an ONNX file and tells what that gained: `cargo run --release --example optimize -- IN.onnx OUT.onnx`.

use mlc_rewrite::{Error, Model, Optimizer};
use std::path::{Path, PathBuf};

/// Optimises one file into another, for any ONNX runtime.
pub fn optimize(input: &Path, output: &Path) -> Result<(), Error> {
    let model = Model::read(input)?;
    let optimized = Optimizer::new().target("standard").optimize(&model)?;
    let report = optimized.report();
    println!("nodes  {} -> {}", report.nodes_before, report.nodes_after);
    println!("cost   {:.2e} s -> {:.2e} s, estimated", report.cost_before, report.cost_after);
    for law in &report.laws_turned_off {
        println!("turned off: {}", law.human());
    }
    optimized.write(output)
}

/// Takes the files from the command line, else the shipped model.
pub fn main() -> Result<(), Error> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let input = args.next().unwrap_or_else(|| "examples/squeezenet1_1.onnx".into());
    let output = args.next().unwrap_or_else(|| std::env::temp_dir().join("optimized.onnx"));
    optimize(&input, &output)
}
