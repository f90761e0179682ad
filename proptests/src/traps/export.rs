//! Traps as files: models, inputs and the reference interpreter's results, for comparison with another implementation.

use super::values::{Draw, SYMBOLS, inputs};
use super::{Ends, Trap, run, text};
use mlc_backends::reference::run_values;
use mlc_dsl::ir::Tensor;
use mlc_files::npz::write_npz;
use mlc_onnx::{import, read_onnx};
use std::path::Path;

/// Writes `NAME.onnx`, and for every draw that the reference interpreter runs `NAME.DRAW.in.npz` and `NAME.DRAW.out.npz`.
pub fn export(trap: &Trap, folder: &Path) -> Result<(), String> {
    if matches!(trap.ends, Ends::Refused(_)) {
        return Ok(());
    }
    let graph = text::graph(&trap.text)?;
    let path = folder.join(format!("{}.onnx", trap.name));
    run::write(&graph, &path)?;
    let raw = read_onnx(&path).map_err(|e| e.to_string())?;
    let program = import(raw, crate::library()).map_err(|e| e.to_string())?.program;
    for draw in Draw::ALL {
        let Some(values) = inputs(&program, &graph, draw, SYMBOLS[1]) else { continue };
        let Ok(results) = run_values(&program, crate::library(), &values) else { continue };
        let write = |end: &str, arrays: Vec<(String, Tensor)>| {
            let path = folder.join(format!("{}.{draw:?}.{end}.npz", trap.name));
            write_npz(path, &arrays).map_err(|e| e.to_string())
        };
        let names = program.inputs.iter().map(|(n, _)| n.to_string());
        write("in", names.zip(values).collect())?;
        let names = program.outputs.iter().map(|(n, _)| n.to_string());
        write("out", names.zip(results.iter().map(|a| a.to_tensor())).collect())?;
    }
    Ok(())
}
