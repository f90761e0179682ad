//! Files as shared bytes, and files that appear whole or not at all.
//!
//! Never leaves the directory it was told to stay in, and never changes a file in place: a file that
//! is mapped somewhere keeps its content.

use super::raw_error::OnnxError;
use bytes::Bytes;
use memmap2::Mmap;
use mlc_dsl::ir::FileRange;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tempfile::NamedTempFile;

/// The content of a file, not copied.
pub fn map(path: &Path) -> io::Result<Bytes> {
    // Opening a pipe would wait for its writer, so the kind is asked first.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = File::open(path)?;
    // SAFETY: the map is only read. Another process that truncates the file while it is mapped makes
    // reads fault; writers of this crate replace files by renaming, which leaves the map intact.
    let map = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}

/// A file that takes its name only when complete.
pub(crate) struct AtomicFile {
    writer: BufWriter<NamedTempFile>,
    path: PathBuf,
}

impl AtomicFile {
    /// A new file to stand at `path`; what stands there stays until [`AtomicFile::commit`], and passes
    /// its permissions on.
    pub(crate) fn create(path: &Path) -> io::Result<AtomicFile> {
        if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Err(io::Error::other("the target exists and is not a regular file"));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".mlc-rewrite-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The umask takes its part off, as for any file that a program creates.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let file = builder.tempfile_in(folder(path))?;
        if let Ok(replaced) = fs::metadata(path) {
            file.as_file().set_permissions(replaced.permissions())?;
        }
        Ok(AtomicFile { writer: BufWriter::with_capacity(1 << 16, file), path: path.to_path_buf() })
    }

    /// Gives the file its name, in place of any file that had it.
    pub(crate) fn commit(self) -> io::Result<()> {
        let file = self.writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.writer.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl io::Seek for AtomicFile {
    fn seek(&mut self, pos: io::SeekFrom) -> io::Result<u64> {
        self.writer.seek(pos)
    }
}

/// The directory that holds `path`.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// The data files beside a model, each mapped once.
pub(super) struct DataFiles<'a> {
    base_dir: Option<&'a Path>,
    maps: HashMap<String, (Arc<Path>, Bytes)>,
    bytes: u64,
}

impl<'a> DataFiles<'a> {
    /// Data files below `base_dir`; without one, none can be read.
    pub(super) fn new(base_dir: Option<&'a Path>) -> DataFiles<'a> {
        DataFiles { base_dir, maps: HashMap::new(), bytes: 0 }
    }

    /// The bytes of all tensors that were read from here.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `length` bytes (all that follow, if `None`) from `offset` of the file at `location`, and their
    /// place.
    pub(super) fn slice(
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
