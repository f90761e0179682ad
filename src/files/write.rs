//! Writing: a file takes its name when complete; a device and standard output get all bytes at once.

use super::{fault_injection, folder, is_output_stream, refusal, stale};
use std::fs::{self, File};
use std::io::{self, BufWriter, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::NamedTempFile;

/// Symbolic links that are followed.
const LINKS: usize = 40;

/// Where a name leads to.
pub(super) enum WriteTarget {
    /// Standard output.
    Stdout,
    /// A device, which cannot be replaced.
    Device(PathBuf),
    /// A file that is there or not; no symbolic link.
    File(PathBuf),
}

impl WriteTarget {
    /// Follows symbolic links to what is to be written.
    pub(super) fn of(path: &Path) -> io::Result<WriteTarget> {
        if is_output_stream(path) {
            return Ok(WriteTarget::Stdout);
        }
        if path
            .as_os_str()
            .as_encoded_bytes()
            .last()
            .is_some_and(|&b| std::path::is_separator(b.into()))
        {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it names a folder"));
        }
        let mut at = path.to_path_buf();
        for _ in 0..LINKS {
            let here = fs::canonicalize(folder(&at)).map_err(|e| {
                io::Error::new(e.kind(), format!("the folder {}: {e}", folder(&at).display()))
            })?;
            let name = at.file_name().ok_or(io::ErrorKind::IsADirectory)?;
            at = here.join(name);
            if at.starts_with("/proc") {
                let what = "it is a stream of this process, not a file";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            let meta = match fs::symlink_metadata(&at) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(WriteTarget::File(at)),
                other => other?,
            };
            if meta.is_symlink() {
                at = here.join(fs::read_link(&at)?);
            } else if is_device(meta.file_type()) {
                return Ok(WriteTarget::Device(at));
            } else if !meta.is_file() {
                return Err(refusal(meta.file_type()));
            } else if meta.permissions().readonly() {
                let what = "the file exists and is read-only";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            } else {
                return Ok(WriteTarget::File(at));
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "symbolic links lead in a circle"))
    }
}

#[cfg(unix)]
fn is_device(kind: fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_char_device()
}

#[cfg(not(unix))]
fn is_device(_: fs::FileType) -> bool {
    false
}

/// A file that takes its name only when complete.
///
/// A symbolic link stays one: the file that it leads to is replaced. A hard link is no longer one afterwards.
pub struct AtomicFile(TargetKind);

enum TargetKind {
    File { writer: BufWriter<Counted>, path: PathBuf, replaces: bool },
    Stream { content: Cursor<Vec<u8>>, device: Option<PathBuf> },
}

/// A temporary file, every write to which is a step.
struct Counted(NamedTempFile);

impl AtomicFile {
    /// A new file to stand at `path`; what stands there stays until [`AtomicFile::commit`], and passes
    /// its permissions on.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn create(path: &Path) -> io::Result<AtomicFile> {
        let path = match WriteTarget::of(path)? {
            WriteTarget::File(path) => path,
            WriteTarget::Device(path) => return Ok(AtomicFile::stream(Some(path))),
            WriteTarget::Stdout => return Ok(AtomicFile::stream(None)),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(stale::PREFIX);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The umask takes its part off, as for any file that a program creates.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        fault_injection::step()?;
        // The path of a temporary file in the message says nothing to the user.
        let new = || builder.tempfile_in(folder(&path)).map_err(|e| io::Error::from(e.kind()));
        stale::clean(folder(&path));
        let mut file = new()?;
        while !stale::claim(file.as_file()) {
            file = new()?;
        }
        let replaced = fs::metadata(&path).ok();
        if let Some(meta) = &replaced {
            file.as_file().set_permissions(meta.permissions())?;
        }
        let writer = BufWriter::with_capacity(1 << 16, Counted(file));
        Ok(AtomicFile(TargetKind::File { writer, path, replaces: replaced.is_some() }))
    }

    fn stream(device: Option<PathBuf>) -> AtomicFile {
        AtomicFile(TargetKind::Stream { content: Cursor::default(), device })
    }

    /// Gives the file its name, in place of any file that had it.
    ///
    /// # Errors
    /// The disk is full, or the file system refuses; what stood there still does.
    pub fn commit(self) -> io::Result<()> {
        match self.0 {
            TargetKind::File { writer, path, replaces } => {
                let file = complete(writer)?;
                if replaces {
                    // Else a loss of power could leave neither the old file nor the new one.
                    fault_injection::step()?;
                    file.as_file().sync_all()?;
                }
                fault_injection::step()?;
                file.persist(&path).map_err(|e| e.error)?;
                Ok(())
            }
            TargetKind::Stream { content, device } => send(content.get_ref(), device.as_deref()),
        }
    }

    /// Gives the file its name if no file has it; true if so. It is on the disk then, so that a file may refer to it.
    ///
    /// # Errors
    /// The disk is full, or the file system refuses.
    pub fn commit_new(self) -> io::Result<bool> {
        let TargetKind::File { writer, path, .. } = self.0 else { return Ok(false) };
        let file = complete(writer)?;
        fault_injection::step()?;
        file.as_file().sync_all()?;
        fault_injection::step()?;
        match file.persist_noclobber(&path) {
            Ok(_) => Ok(true),
            Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e.error),
        }
    }
}

fn complete(writer: BufWriter<Counted>) -> io::Result<NamedTempFile> {
    Ok(writer.into_inner().map_err(io::IntoInnerError::into_error)?.0)
}

/// Nobody reads standard output any more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// True if a write to standard output failed because its reader is gone.
pub fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Writes to a device, or to standard output.
///
/// # Errors
/// It is full, or closed.
pub fn send(content: &[u8], device: Option<&Path>) -> io::Result<()> {
    let Some(path) = device else {
        let mut out = io::stdout().lock();
        let done = out.write_all(content).and_then(|()| out.flush());
        let closed = done.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe);
        CLOSED.fetch_or(closed, Ordering::Relaxed);
        return done;
    };
    File::options().write(true).open(path)?.write_all(content)
}

impl Write for Counted {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        fault_injection::step()?;
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            TargetKind::File { writer, .. } => writer.write(buf),
            TargetKind::Stream { content, .. } => content.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            TargetKind::File { writer, .. } => writer.flush(),
            TargetKind::Stream { .. } => Ok(()),
        }
    }
}

impl io::Seek for AtomicFile {
    fn seek(&mut self, pos: io::SeekFrom) -> io::Result<u64> {
        match &mut self.0 {
            TargetKind::File { writer, .. } => {
                writer.flush()?;
                writer.get_mut().0.seek(pos)
            }
            TargetKind::Stream { content, .. } => content.seek(pos),
        }
    }
}

/// Removes a file; a step.
pub fn remove(path: &Path) -> io::Result<()> {
    fault_injection::step()?;
    fs::remove_file(path)
}

/// Writes a whole file or nothing.
///
/// # Errors
/// It cannot be written: what, and what to do about it.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), crate::FileError> {
    let write = || {
        let mut file = AtomicFile::create(path)?;
        file.write_all(bytes)?;
        file.commit()
    };
    write().map_err(|e| super::error("write", path, e))
}
