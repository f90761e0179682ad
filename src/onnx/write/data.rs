//! Decides where weights are written: into the external data file of a model, or not at all, because an existing
//! file already contains them.

use super::data_names::candidates;
use crate::raw::RawGraph;
use crate::raw::error::OnnxError;
use bytes::Bytes;
use mlc_dsl::ir::Tensor;
use mlc_files::{AtomicFile, folder, map};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Smallest tensor, in bytes, that is worth a place in the data file.
const SMALL: usize = 1 << 10;
/// Offsets in the data file are multiples of this, so that it can be mapped in pieces.
const ALIGN: u64 = 4096;

/// The places of a model's weights outside of its own file.
pub(crate) struct Weights {
    /// Files that unread weights lie in.
    pub(crate) far: FarFiles,
    /// The data file, if weights are to leave the model.
    pub(crate) file: Option<DataFile>,
}

impl Weights {
    /// The file and the offset of a tensor that does not lie within the model's file; `stored` are its elements as files
    /// hold them.
    pub(crate) fn place(&mut self, t: &Tensor, stored: &Bytes) -> Option<(String, u64)> {
        if let Some(range) = t.unread() {
            return Some((self.far.files.get(&range.path)?.location.clone(), range.offset));
        }
        let data = self.file.as_mut().filter(|_| stored.len() >= SMALL)?;
        let offset = data.place(t.bytes(), stored);
        Some((data.location.clone(), offset))
    }
}

/// Files of unread weights, as the written model names them.
#[derive(Default)]
pub(crate) struct FarFiles {
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
    pub(crate) fn new(graph: &RawGraph, model: &Path) -> Result<FarFiles, OnnxError> {
        let mut files: BTreeMap<PathBuf, FarFile> = BTreeMap::new();
        if graph.initializers.values().all(|t| t.unread().is_none()) {
            return Ok(FarFiles { files });
        }
        own_name(model)?;
        let here = fs::canonicalize(folder(model)).map_err(OnnxError::io("write", model))?;
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
    pub(crate) fn link(&self) -> Result<(), OnnxError> {
        for (path, file) in &self.files {
            let Some(link) = &file.link else { continue };
            if mlc_files::same(path, link) {
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

/// Refuses what a data file cannot lie beside: a stream, and a symbolic link, as a model is looked for under either name
/// and its data only beside the one it was opened by.
fn own_name(model: &Path) -> Result<(), OnnxError> {
    let reason = if mlc_files::is_output_stream(model) {
        "the weights are too large for one file; write to a file, with a data file beside it"
    } else if fs::symlink_metadata(model).is_ok_and(|m| m.is_symlink()) {
        "it is a symbolic link, which a model with weights in a data file cannot be written through; \
         name the file itself"
    } else {
        return Ok(());
    };
    Err(OnnxError::invalid(model.display().to_string(), reason))
}

/// The data file: what goes where.
pub(crate) struct DataFile {
    folder: PathBuf,
    model: String,
    location: String,
    pieces: Vec<(u64, Bytes)>,
    /// Where bytes lie already, by their place in memory: shared weights are written once.
    placed: HashMap<(usize, usize), u64>,
    end: u64,
}

impl DataFile {
    pub(crate) fn new(model: &Path) -> Result<DataFile, OnnxError> {
        own_name(model)?;
        let Some(name) = model.file_name().and_then(|n| n.to_str()) else {
            let reason = "its name must be UTF-8 text, as the model names its data file so";
            return Err(OnnxError::invalid(model.display().to_string(), reason));
        };
        Ok(DataFile {
            folder: folder(model).to_path_buf(),
            model: name.to_string(),
            location: candidates(name).next().unwrap_or_default(),
            pieces: Vec::new(),
            placed: HashMap::new(),
            end: 0,
        })
    }

    fn place(&mut self, elements: &Bytes, bytes: &Bytes) -> u64 {
        let key = (elements.as_ptr() as usize, bytes.len());
        *self.placed.entry(key).or_insert_with(|| {
            let offset = self.end.next_multiple_of(ALIGN);
            self.end = offset + bytes.len() as u64;
            self.pieces.push((offset, bytes.clone()));
            offset
        })
    }

    /// True if no tensor has a place here.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Where the file goes.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(&self.location)
    }

    /// Takes the first name that no file has, or whose file has this content already; true if that is another name than
    /// before.
    pub(crate) fn settle(&mut self) -> bool {
        let before = self.location.clone();
        let free = candidates(&self.model).find(|name| {
            let path = self.folder.join(name);
            fs::symlink_metadata(&path).is_err() || self.is_content_of(&path)
        });
        self.location = free.unwrap_or_else(|| before.clone());
        self.location != before
    }

    fn is_content_of(&self, path: &Path) -> bool {
        let alike = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == self.end);
        let Some(bytes) = alike.then(|| map(path).ok()).flatten() else { return false };
        let mut at = 0;
        self.pieces.iter().all(|(offset, piece)| {
            let (start, gap) = (*offset as usize, at..*offset as usize);
            at = start + piece.len();
            bytes[gap].iter().all(|&b| b == 0) && bytes[start..at] == piece[..]
        })
    }

    /// Writes the file, unless it is there; true if it was not.
    pub(crate) fn write(&self) -> io::Result<bool> {
        let path = self.path();
        if fs::symlink_metadata(&path).is_ok() {
            return Ok(false);
        }
        let mut file = AtomicFile::create(&path)?;
        let mut at = 0;
        for (offset, bytes) in &self.pieces {
            file.write_all(&[0; ALIGN as usize][..(offset - at) as usize])?;
            file.write_all(bytes)?;
            at = offset + bytes.len() as u64;
        }
        match file.commit_new()? {
            true => Ok(true),
            false => Err(io::Error::other("another process has just written it")),
        }
    }
}
