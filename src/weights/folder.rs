//! Folders of `config.json` and safetensors, in one file or in several with an index.

use crate::{Metadata, StoredKind, StoredTensor, WeightFile, WeightsError};
use bytes::Bytes;
use mlc_dsl::ir::{DType, FileRange};
use mlc_dsl::shown;
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

const CONFIG: &str = "config.json";
const INDEX: &str = "model.safetensors.index.json";
/// Longest description that is read.
const JSON: u64 = 64 << 20;
/// Objects of the description nest at most this deep.
const DEPTH: usize = 8;

/// The folder of weights that a path means: itself, or that of a file of it.
pub fn weights_folder(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        let holds = path.join(CONFIG).is_file() || files(path).is_ok();
        return holds.then(|| path.to_path_buf());
    }
    let name = path.file_name()?.to_str()?;
    let is_part = name.ends_with(".safetensors") || name == INDEX || name == CONFIG;
    is_part.then(|| mlc_files::folder(path).to_path_buf())
}

/// Reads a folder; tensors stay in the mapped files.
///
/// # Errors
/// A file of it is missing or damaged.
pub fn read_folder(folder: &Path) -> Result<WeightFile, WeightsError> {
    let config_path = folder.join(CONFIG);
    let config = json(&config_path)?;
    let mut metadata = BTreeMap::new();
    flatten(&config, String::new(), DEPTH, &mut metadata);
    let mut architectures = match metadata.get("architectures") {
        Some(Metadata::Texts(names)) => names.clone(),
        _ => vec![],
    };
    if let Some(Metadata::Text(name)) = metadata.get("model_type") {
        architectures.push(name.clone());
    }
    if architectures.is_empty() {
        let reason = "neither `architectures` nor `model_type` says what the architecture is";
        return Err(WeightsError::new(&config_path, "the object", reason)
            .help("add `\"architectures\": [\"…\"]`"));
    }
    let mut tensors = BTreeMap::new();
    for file in files(folder)? {
        add_tensors(&file, &mut tensors)?;
    }
    let path = folder.to_path_buf();
    Ok(WeightFile { format: "safetensors", path, architectures, metadata, tensors })
}

fn json(path: &Path) -> Result<Value, WeightsError> {
    let text = mlc_files::text(path, JSON).map_err(|e| unreadable(path, &e))?;
    let damaged = |e: serde_json::Error| {
        let place = format!("line {}, column {}", e.line(), e.column());
        WeightsError::new(path, place, "it is not JSON").help("save the model again")
    };
    serde_json::from_str(&text).map_err(damaged)
}

fn unreadable(path: &Path, e: &std::io::Error) -> WeightsError {
    let help = mlc_files::help(e).unwrap_or("check the file");
    WeightsError::new(path, "the file", format!("cannot read it: {e}"))
        .help(format!("a folder of weights has `{CONFIG}` and `*.safetensors`; {help}"))
}

/// The parts of an object by names with dots; nulls and what no architecture asks for are left out.
fn flatten(value: &Value, name: String, depth: usize, into: &mut BTreeMap<String, Metadata>) {
    if let (Value::Object(parts), true) = (value, depth > 0) {
        for (key, part) in parts {
            let key = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            flatten(part, key, depth - 1, into);
        }
        return;
    }
    if let Some(value) = plain(value) {
        into.insert(name, value);
    }
}

fn plain(value: &Value) -> Option<Metadata> {
    Some(match value {
        Value::Bool(b) => Metadata::Bool(*b),
        Value::String(s) => Metadata::Text(s.clone()),
        Value::Number(n) => match n.as_i64() {
            Some(n) => Metadata::Int(n),
            None => Metadata::Float(n.as_f64()?),
        },
        Value::Array(items) => return list(items),
        Value::Null | Value::Object(_) => return None,
    })
}

fn list(items: &[Value]) -> Option<Metadata> {
    let all = |f: fn(&Value) -> bool| items.iter().all(f);
    if all(Value::is_i64) {
        return Some(Metadata::Ints(items.iter().filter_map(Value::as_i64).collect()));
    }
    if all(Value::is_number) {
        return Some(Metadata::Floats(items.iter().filter_map(Value::as_f64).collect()));
    }
    let text = |v: &Value| v.as_str().map(str::to_string);
    all(Value::is_string).then(|| Metadata::Texts(items.iter().filter_map(text).collect()))
}

/// The files of tensors, in the order of their names.
fn files(folder: &Path) -> Result<BTreeSet<PathBuf>, WeightsError> {
    let index = folder.join(INDEX);
    if index.is_file() {
        return indexed(folder, &index);
    }
    let entries = std::fs::read_dir(folder).map_err(|e| unreadable(folder, &e))?;
    let is_weights = |p: &PathBuf| p.extension().is_some_and(|e| e == "safetensors");
    let found: BTreeSet<PathBuf> = entries.flatten().map(|e| e.path()).filter(is_weights).collect();
    match found.is_empty() {
        true => Err(WeightsError::new(folder, "the folder", "it has no `*.safetensors`")
            .help("save the model with `save_pretrained(…, safe_serialization=True)`")),
        false => Ok(found),
    }
}

fn indexed(folder: &Path, index: &Path) -> Result<BTreeSet<PathBuf>, WeightsError> {
    let text = json(index)?;
    let Some(map) = text.get("weight_map").and_then(Value::as_object) else {
        return Err(WeightsError::new(index, "`weight_map`", "it is missing, or no object")
            .help("save the model again"));
    };
    let mut found = BTreeSet::new();
    for (tensor, file) in map {
        let name = file.as_str().unwrap_or_default();
        let mut parts = Path::new(name).components();
        let (Some(Component::Normal(_)), None) = (parts.next(), parts.next()) else {
            let reason = format!("`{}` is no name of a file in the folder", shown(name));
            return Err(WeightsError::of_tensor(index, tensor, reason).help("save the model again"));
        };
        found.insert(folder.join(name));
    }
    Ok(found)
}

fn add_tensors(path: &Path, into: &mut BTreeMap<String, StoredTensor>) -> Result<(), WeightsError> {
    let bytes = mlc_files::map(path).map_err(|e| unreadable(path, &e))?;
    let damaged = |e: safetensors::SafeTensorError| {
        WeightsError::new(path, "the header", format!("it is damaged: {e}"))
    };
    let parsed = SafeTensors::deserialize(&bytes).map_err(damaged)?;
    for (name, view) in parsed.iter() {
        let data: Bytes = bytes.slice_ref(view.data());
        let offset = (view.data().as_ptr() as usize - bytes.as_ptr() as usize) as u64;
        let range = Arc::new(FileRange { path: path.into(), offset });
        let Some(dtype) = element_type(view.dtype()) else {
            let reason = format!("its type {:?} is not read", view.dtype());
            return Err(WeightsError::of_tensor(path, name, reason)
                .help("save the model in another type, such as `torch.bfloat16`"));
        };
        let kind = StoredKind::Elements(dtype);
        let stored = StoredTensor { kind, shape: view.shape().to_vec(), data, range };
        if into.insert(name.to_string(), stored).is_some() {
            let reason = "another file of the folder has it, too";
            return Err(WeightsError::of_tensor(path, name, reason)
                .help(format!("keep the files of one model in the folder, or add `{INDEX}`")));
        }
    }
    Ok(())
}

fn element_type(dtype: safetensors::Dtype) -> Option<DType> {
    use safetensors::Dtype;
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::U16 => DType::U16,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        Dtype::F8_E5M2 => DType::F8E5M2,
        Dtype::F8_E4M3 => DType::F8E4M3FN,
        _ => return None,
    })
}
