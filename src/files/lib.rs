//! Bounded reading and atomic writing of files.
//!
//! Input is read from a regular file or standard input (`-`), up to a limit: a device or a pipe, which may never end,
//! is rejected before it is opened. Output gets its name when it is complete, so that at any moment the old file or
//! the new one is there.

mod fault_injection;
mod mapped;
pub mod npz;
mod paths;
mod read;
mod stale;
mod write;

pub use mapped::give_back_pages;
pub use paths::{Clash, Named, distinct, is_input_stream, is_output_stream, same};
pub use read::{bytes, map, readable, text};
pub use write::remove;
pub use write::{AtomicFile, is_closed, send, write};

use std::io;
use std::path::{Path, PathBuf};

/// What the user can do about an error of a file.
pub fn help(e: &io::Error) -> Option<&'static str> {
    Some(match e.kind() {
        io::ErrorKind::NotFound => "check the path; it is relative to the current folder",
        io::ErrorKind::PermissionDenied => "check the permissions of the file and its folder",
        io::ErrorKind::StorageFull => "free space where the file goes",
        io::ErrorKind::FileTooLarge => "raise the limit on the size of files (`ulimit -f`)",
        io::ErrorKind::IsADirectory => "give the path of a file",
        io::ErrorKind::InvalidInput => "give the path of an ordinary file, or `-` for a pipe",
        io::ErrorKind::InvalidData => "save it as UTF-8",
        io::ErrorKind::Unsupported => "give a smaller file",
        _ => return None,
    })
}

/// A file that cannot be read or written. As text: what was tried, the path, the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {reason}", path.display())]
pub struct FileError {
    /// `read` or `write`.
    action: &'static str,
    path: PathBuf,
    reason: io::Error,
}

impl FileError {
    /// Which file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the user can do about it.
    pub fn help(&self) -> Option<&'static str> {
        help(&self.reason)
    }
}

/// The error of a file that cannot be read or written.
pub fn error(action: &'static str, path: &Path, e: io::Error) -> FileError {
    FileError { action, path: path.to_path_buf(), reason: e }
}

/// The folder that holds `path`.
pub fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

/// Why something that is no regular file is refused.
fn refusal(kind: std::fs::FileType) -> io::Error {
    if kind.is_dir() {
        return io::Error::new(io::ErrorKind::IsADirectory, "not a regular file but a folder");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            let what = "not a regular file but a pipe, which may never end";
            return io::Error::new(io::ErrorKind::InvalidInput, what);
        }
        if kind.is_char_device() || kind.is_block_device() {
            let what = "not a regular file but a device, which may never end";
            return io::Error::new(io::ErrorKind::InvalidInput, what);
        }
    }
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}
