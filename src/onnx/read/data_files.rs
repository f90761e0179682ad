//! External data files of a model as shared bytes; never leaves the folder of the model.

use crate::raw::error::OnnxError;
use bytes::Bytes;
use mlc_dsl::ir::FileRange;
use mlc_files::map;
use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path};
use std::sync::Arc;

/// The data files beside a model, each mapped once.
pub(crate) struct DataFiles<'a> {
    base_dir: Option<&'a Path>,
    maps: HashMap<String, (Arc<Path>, Bytes)>,
    bytes: u64,
}

impl<'a> DataFiles<'a> {
    /// Data files below `base_dir`; without one, none can be read.
    pub(crate) fn new(base_dir: Option<&'a Path>) -> DataFiles<'a> {
        DataFiles { base_dir, maps: HashMap::new(), bytes: 0 }
    }

    /// The bytes of all tensors that were read from here.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `length` bytes (all that follow, if `None`) from `offset` of the file at `location`, and their
    /// place.
    pub(crate) fn slice(
        &mut self,
        location: &str,
        offset: u64,
        length: Option<u64>,
        tensor: &str,
    ) -> Result<(Bytes, FileRange), OnnxError> {
        let bad = |reason: String| OnnxError::ExternalData {
            tensor: tensor.to_string(),
            location: location.to_string(),
            reason,
        };
        if !self.maps.contains_key(location) {
            let bytes = self.open(location).map_err(bad)?;
            self.maps.insert(location.to_string(), bytes);
        }
        let (path, bytes) = &self.maps[location];
        let size = bytes.len() as u64;
        let length = length.unwrap_or(size.saturating_sub(offset));
        match offset.checked_add(length) {
            Some(end) if end <= size => {
                self.bytes = self.bytes.saturating_add(length);
                let range = FileRange { path: path.to_path_buf(), offset };
                Ok((bytes.slice(offset as usize..end as usize), range))
            }
            _ => Err(bad(format!(
                "{length} bytes at offset {offset} are asked for, the file has {size}"
            ))),
        }
    }

    fn open(&self, location: &str) -> Result<(Arc<Path>, Bytes), String> {
        let Some(base) = self.base_dir else {
            return Err("the model was read from memory, so no folder is known".into());
        };
        let relative = Path::new(location);
        let inside = |c| matches!(c, Component::Normal(_) | Component::CurDir);
        if location.is_empty() || !relative.components().all(inside) {
            return Err("the path must lead into the model's folder".into());
        }
        let base = fs::canonicalize(base).map_err(|e| e.to_string())?;
        let path = fs::canonicalize(base.join(relative)).map_err(|e| e.to_string())?;
        if !path.starts_with(&base) {
            return Err("a symbolic link leads out of the model's folder".into());
        }
        let bytes = map(&path).map_err(|e| e.to_string())?;
        Ok((Arc::from(path), bytes))
    }
}
