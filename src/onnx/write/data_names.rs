//! Names of the data files beside a model.
//!
//! A data file gets a name that no file has, so that the model that is replaced keeps its own until the new one has its
//! name; then the old one's is removed, if nothing else needs it. At any moment a whole model is there.

use mlc_files::{folder, map, remove};
use std::fs;
use std::path::{Path, PathBuf};

/// Models longer than this are not searched for names.
const SEARCHED: u64 = 64 << 20;
/// Names that are tried.
const MOST: u32 = 10_000;

/// The names of data files for a model of this name, in the order they are tried: `NAME.data`, `NAME.1.data`, ….
pub(crate) fn candidates(model: &str) -> impl Iterator<Item = String> {
    (0..MOST).map(move |k| match k {
        0 => format!("{model}.data"),
        k => format!("{model}.{k}.data"),
    })
}

/// The data files named after the model at `path` that it refers to.
pub(crate) fn owned(path: &Path) -> Vec<String> {
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else { return vec![] };
    let is_ours = |file: &String| {
        let middle = file.strip_prefix(name).and_then(|r| r.strip_suffix(".data"));
        middle.is_some_and(|m| {
            m.is_empty() || m.strip_prefix('.').is_some_and(|k| k.parse::<u32>().is_ok())
        })
    };
    let mut files: Vec<String> = names(folder(path)).into_iter().filter(is_ours).collect();
    files.retain(|f| mentions(path, f) == Some(true));
    files
}

/// Removes those of `files` beside the model at `path` that neither it nor another model in the folder refers to.
pub(crate) fn sweep(path: &Path, files: &[String]) {
    let here = folder(path);
    let models: Vec<PathBuf> = names(here)
        .into_iter()
        .map(|n| here.join(n))
        .filter(|p| p.extension().is_some_and(|e| e == "onnx") && p.is_file())
        .collect();
    for file in files {
        let unneeded = |model: &Path| mentions(model, file) == Some(false);
        if unneeded(path) && models.iter().all(|m| unneeded(m)) {
            // What cannot be removed takes room and does no harm.
            let _ = remove(&here.join(file));
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).collect()
}

/// True if the bytes of a model hold a name; `None` if that is not known.
fn mentions(model: &Path, name: &str) -> Option<bool> {
    if fs::metadata(model).ok()?.len() > SEARCHED {
        return None;
    }
    let bytes = map(model).ok()?;
    Some(bytes.windows(name.len()).any(|w| w == name.as_bytes()))
}
