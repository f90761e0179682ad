//! Test cases as `optimize` writes them, many in one process. Runs nothing but the self-check.

use super::super::common::Common;
use super::super::options::model::reader;
use super::super::options::shapes::ShapeOptions;
use crate::optimizer::Optimizer;
use crate::pipeline::Options;
use std::path::Path;

/// Optimises the model of a case for a target that reads ONNX files, and writes it at its own operator set.
///
/// # Errors
/// It cannot be read or written, or a law is wrong on it.
pub(crate) fn write(
    model: &Path,
    output: &Path,
    target: &str,
    common: &Common,
) -> anyhow::Result<()> {
    let model = reader(common, &ShapeOptions::default()).read(model)?;
    let target = target.to_string();
    let options = Options { target, threads: 1, seed: common.seed, ..Options::default() };
    Optimizer::from(options).for_file().optimize(&model)?.write(output)?;
    Ok(())
}
