//! Where weights are written: in the data file beside a model, or nowhere, because they lie in a file
//! already that the model can refer to.

use super::raw::RawGraph;
use super::raw_error::OnnxError;
use super::raw_files::{AtomicFile, folder};
use bytes::Bytes;
use mlc_dsl::ir::Tensor;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Smallest tensor, in bytes, that is worth a place in the data file.
const SMALL: usize = 1 << 10;
/// Offsets in the data file are multiples of this, so that it can be mapped in pieces.
const ALIGN: u64 = 4096;

/// The places of a model's weights outside of its own file.
pub(super) struct Weights {
    /// Files that unread weights lie in.
    pub(super) far: FarFiles,
    /// The data file, if weights are to leave the model.
    pub(super) file: Option<DataFile>,
}

impl Weights {
    /// The file and the offset of a tensor that does not lie within the model's file.
    pub(super) fn place(&mut self, t: &Tensor) -> Option<(String, u64)> {
        if let Some(range) = t.unread() {
            return Some((self.far.files.get(&range.path)?.location.clone(), range.offset));
        }
        let data = self.file.as_mut().filter(|_| t.bytes().len() >= SMALL)?;
        let offset = data.place(t.bytes());
        Some((data.location.clone(), offset))
    }
}

/// Files of unread weights, as the written model names them.
pub(super) struct FarFiles {
    files: BTreeMap<PathBuf, FarFile>,
}

struct FarFile {
    location: String,
    /// The name that the file is yet to get in the folder of the model.
    link: Option<PathBuf>,
}

impl FarFiles {
    /// The files of a graph's unread weights. A model refers to files in its own folder only: one that
    /// lies elsewhere will be linked there.
    pub(super) fn new(graph: &RawGraph, model: &Path) -> Result<FarFiles, OnnxError> {
        let here = fs::canonicalize(folder(model)).map_err(OnnxError::io("write", model))?;
        let mut files: BTreeMap<PathBuf, FarFile> = BTreeMap::new();
        for range in graph.initializers.values().filter_map(Tensor::unread) {
            if files.contains_key(&range.path) {
                continue;
            }
            let (location, link) = match range.path.strip_prefix(&here) {
                Ok(within) => (within.to_path_buf(), None),
                Err(_) => {
                    let name = PathBuf::from(range.path.file_name().unwrap_or_default());
                    let link = here.join(&name);
                    (name, Some(link))
                }
            };
            let location = location.to_str().map(str::to_string).ok_or_else(|| {
                let reason = "its name must be UTF-8 text, as the model names its data file so";
                OnnxError::invalid(range.path.display().to_string(), reason)
            })?;
            files.insert(range.path.clone(), FarFile { location, link });
        }
        Ok(FarFiles { files })
    }

    /// Gives the files their names in the folder of the model.
    pub(super) fn link(&self) -> Result<(), OnnxError> {
        for (path, file) in &self.files {
            let Some(link) = &file.link else { continue };
            if same_file(path, link) {
                continue;
            }
            fs::hard_link(path, link).map_err(|e| {
                let reason = format!(
                    "weights too large to be copied lie in `{}`, which cannot be linked here: {e}; \
                     write the result into the folder of the model",
                    path.display()
                );
                OnnxError::invalid(link.display().to_string(), reason)
            })?;
        }
        Ok(())
    }
}

/// True if both names are of one file.
fn same_file(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let id = |p: &Path| fs::metadata(p).ok().map(|m| (m.dev(), m.ino()));
        id(a).is_some() && id(a) == id(b)
    }
    #[cfg(not(unix))]
    {
        let real = |p: &Path| fs::canonicalize(p).ok();
        real(a).is_some() && real(a) == real(b)
    }
}

/// The data file: what goes where.
pub(super) struct DataFile {
    path: PathBuf,
    location: String,
    pub(super) pieces: Vec<(u64, Bytes)>,
    /// Where bytes lie already, by their place in memory: shared weights are written once.
    placed: HashMap<(usize, usize), u64>,
    end: u64,
}

impl DataFile {
    pub(super) fn new(model: &Path) -> Result<DataFile, OnnxError> {
        let Some(name) = model.file_name().and_then(|n| n.to_str()) else {
            let reason = "its name must be UTF-8 text, as the model names its data file so";
            return Err(OnnxError::invalid(model.display().to_string(), reason));
        };
        let location = format!("{name}.data");
        let mut path = OsString::from(model);
        path.push(".data");
        let (pieces, placed) = (Vec::new(), HashMap::new());
        Ok(DataFile { path: path.into(), location, pieces, placed, end: 0 })
    }

    fn place(&mut self, bytes: &Bytes) -> u64 {
        let key = (bytes.as_ptr() as usize, bytes.len());
        *self.placed.entry(key).or_insert_with(|| {
            let offset = self.end.next_multiple_of(ALIGN);
            self.end = offset + bytes.len() as u64;
            self.pieces.push((offset, bytes.clone()));
            offset
        })
    }

    pub(super) fn write(self) -> Result<(AtomicFile, PathBuf), OnnxError> {
        let write = || {
            let mut file = AtomicFile::create(&self.path)?;
            let mut at = 0;
            for (offset, bytes) in &self.pieces {
                file.write_all(&[0; ALIGN as usize][..(offset - at) as usize])?;
                file.write_all(bytes)?;
                at = offset + bytes.len() as u64;
            }
            std::io::Result::Ok(file)
        };
        let file = write().map_err(OnnxError::io("write", &self.path))?;
        Ok((file, self.path))
    }
}
