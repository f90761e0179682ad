//! Spellings optimised and written as ONNX again: how many nodes each becomes, and the files to check that with.

use super::{Family, run};
use mlc_rewrite::npz::write_npz;
use mlc_rewrite::onnx::{RawModel, domains, export, import, printable, read_onnx, write_onnx};
use mlc_rewrite::pipeline::{Options, optimize};
use mlc_rewrite::samples;
use std::path::Path;

/// What the spellings of a family became.
#[derive(Default)]
pub struct Written {
    /// Nodes of each.
    pub nodes: Vec<usize>,
    /// Those that were not written, and why.
    pub failed: Vec<String>,
    /// The operators of the largest.
    pub largest: String,
}

/// Where the results are to run.
pub struct Place<'a> {
    /// The target's name.
    pub target: &'a str,
    /// Version of the standard operator set; no result is older.
    pub opset: i64,
    /// Where originals, results and inputs go, if anywhere.
    pub folder: Option<&'a Path>,
}

/// Optimises and writes at most `most` spellings of a family.
pub fn written(
    family: &Family,
    most: usize,
    scratch: &Path,
    options: &Options,
    place: &Place,
) -> Written {
    let mut out = Written::default();
    for (i, model) in run::models(family, most).into_iter().enumerate() {
        let stem = format!("{}-{i}", family.name);
        match one(&model, &stem, scratch, options, place) {
            Ok(raw) => {
                let nodes = &raw.graph.nodes;
                if out.nodes.iter().all(|&n| n < nodes.len()) {
                    let names: Vec<&str> = nodes.iter().map(|n| &*n.op_type).collect();
                    out.largest = format!("{stem}: {}", names.join(", "));
                }
                out.nodes.push(nodes.len());
            }
            Err(e) => out.failed.push(format!("{stem}: {e}")),
        }
    }
    out
}

fn one(
    model: &RawModel,
    stem: &str,
    scratch: &Path,
    options: &Options,
    place: &Place,
) -> Result<RawModel, String> {
    let library = crate::library();
    write_onnx(model, scratch).map_err(|e| format!("not written: {e}"))?;
    let raw = read_onnx(scratch).map_err(|e| format!("not read: {e}"))?;
    let mut imported = import(raw, library).map_err(|e| format!("not imported: {e}"))?;
    for (domain, version) in domains(library, place.target) {
        imported.model.opset_imports.entry(domain).or_insert(version);
    }
    let opset = place.opset.max(imported.model.opset());
    let options = Options {
        target: place.target.to_string(),
        operators: Some(printable(library, opset, place.target)),
        ..options.clone()
    };
    let source = imported.program;
    let inputs = samples::inputs(&source, library, 3);
    let names: Vec<String> = source.inputs.iter().map(|(n, _)| n.to_string()).collect();
    let result =
        optimize(source, library, &options).map_err(|e| format!("not optimised: {e:#}"))?;
    let raw = export(&result.program, library, &imported.model, opset)
        .map_err(|e| format!("not exported: {e}"))?;
    if let Some(folder) = place.folder {
        let path = |end: &str| folder.join(format!("{stem}.{end}"));
        write_onnx(model, path("onnx")).map_err(|e| e.to_string())?;
        write_onnx(&raw, path("opt.onnx")).map_err(|e| e.to_string())?;
        let inputs = inputs.ok_or("its inputs have no known size")?;
        let arrays: Vec<_> = names.into_iter().zip(inputs).collect();
        write_npz(path("npz"), &arrays).map_err(|e| e.to_string())?;
    }
    Ok(raw)
}

/// The fewest nodes that an operator set has for a family; `None` for a family without an entry.
pub fn smallest(family: &str, _target: &str, _opset: i64) -> Option<usize> {
    SMALLEST.iter().find(|(name, _)| *name == family).map(|(_, n)| *n)
}

const SMALLEST: &[(&str, usize)] = &[];
