//! Test cases as `optimize` writes them, many in one process. Runs nothing but the self-check.

use super::super::Common;
use super::super::options::model::reader;
use super::super::options::shapes::ShapeOptions;
use crate::onnx_target;
use crate::onnx_target::kept_operators;
use crate::pipeline::Options;
use anyhow::Context;
use mlc_onnx::write_onnx;
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
    let info = model.info().context("it is no ONNX model")?;
    let opset = onnx_target::opset(info, None)?;
    let model = model.written_at(opset)?;
    let mut info = model.info.clone().unwrap_or_default();
    let target = target.to_string();
    let mut options = Options { target, threads: 1, seed: common.seed, ..Options::default() };
    onnx_target::prepare(&mut options, &mut info, &model.library, opset);
    let (_, raw) = kept_operators::optimize(&model, &info, opset, &options)?;
    write_onnx(&raw, output)?;
    Ok(())
}
