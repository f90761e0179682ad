//! Models in folders, with their weights, and the inputs and outputs that lie beside them.
//!
//! Never runs a model: tests of generated code do.

use mlc_dsl::ir::Tensor;
use mlc_files::npz::read_npz;
use mlc_onnx::{RawDim, RawModel, read_onnx};
use std::path::{Path, PathBuf};

/// The extent of every symbol of a model without inputs beside it.
const EXTENT: u64 = 16;

/// Arrays by name.
pub type Arrays = Vec<(String, Tensor)>;

/// A model, and what it computes if that is known.
pub struct Case {
    /// The name of its folder.
    pub name: String,
    /// The model, with known extents.
    pub model: RawModel,
    /// What it is run with.
    pub inputs: Option<Arrays>,
    /// What it then yields.
    pub outputs: Option<Arrays>,
}

impl Case {
    /// A model with nothing beside it; symbols get an extent.
    pub fn of(name: &str, model: RawModel) -> Case {
        Case { name: name.into(), model: with_extents(model), inputs: None, outputs: None }
    }

    /// The model of a folder, and what lies beside it: the first of several sets of inputs and outputs.
    pub fn read(folder: &Path) -> Case {
        let arrays = |file: &str| -> Option<Arrays> {
            let path = folder.join(file);
            let first =
                |(name, t): (String, Tensor)| Some((name.strip_prefix("0/")?.to_string(), t));
            path.exists()
                .then(|| read_npz(path).expect("arrays").into_iter().filter_map(first).collect())
        };
        let model = read_onnx(folder.join("model.onnx")).expect("reads");
        let (inputs, outputs) = (arrays("inputs.npz"), arrays("outputs.npz"));
        let model = match &inputs {
            None => with_extents(model),
            Some(known) => shaped(model, |name, _| {
                let input = known.iter().find(|k| k.0 == name);
                let (_, input) = input.expect("an input for each of the model's");
                input.shape().iter().map(|&n| n as u64).collect()
            }),
        };
        Case { name: name_of(folder), model, inputs, outputs }
    }
}

/// Extents of inputs in place of those declared, by the input's name and shape.
pub fn shaped(mut model: RawModel, extents: impl Fn(&str, &[RawDim]) -> Vec<u64>) -> RawModel {
    for input in &mut model.graph.inputs {
        if let Some(dims) = &mut input.dims {
            *dims = extents(&input.name, dims).into_iter().map(RawDim::Known).collect();
        }
    }
    // What the model says of other values follows from its inputs.
    model.graph.value_infos.clear();
    model.graph.outputs.iter_mut().for_each(|o| o.dims = None);
    model
}

/// Numbers in place of symbols.
fn with_extents(model: RawModel) -> RawModel {
    let extent = |d: &RawDim| if let RawDim::Known(n) = d { *n } else { EXTENT };
    shaped(model, |_, dims| dims.iter().map(extent).collect())
}

/// The folders of a folder that hold a model.
pub fn folders(of: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(of) else { return vec![] };
    let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    found.retain(|f| f.join("model.onnx").exists());
    found.sort();
    found
}

/// The name of a folder.
pub fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
