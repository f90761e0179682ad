//! Removes temporary files that killed processes left in a folder, when the next process writes there.
//!
//! A process that writes such a file holds its lock, which the system releases when the process ends. So a file whose lock can be
//! taken has no owner. On file systems without locks, nothing is removed.

use std::fs::File;
use std::path::Path;

/// How the files are called that are not complete yet.
pub(super) const PREFIX: &str = ".mlc-rewrite-";

/// Takes the lock of a new file; false if another process took it for one that was left behind.
#[cfg(unix)]
pub(super) fn claim(file: &File) -> bool {
    use std::fs::TryLockError;
    use std::os::unix::fs::MetadataExt;
    match file.try_lock() {
        Ok(()) => file.metadata().is_ok_and(|m| m.nlink() > 0),
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => true,
    }
}

/// Removes the files that were left behind in a folder, as far as that is allowed.
#[cfg(unix)]
pub(super) fn clean(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for e in entries.flatten() {
        let named = e.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if !named || !e.file_type().is_ok_and(|t| t.is_file()) {
            continue;
        }
        let Ok(file) = File::open(e.path()) else { continue };
        // Locked until it is gone: whoever has just made it finds it so, and makes another.
        if file.try_lock().is_ok() {
            let _ = super::remove(&e.path());
        }
    }
}

#[cfg(not(unix))]
pub(super) fn claim(_: &File) -> bool {
    true
}

#[cfg(not(unix))]
pub(super) fn clean(_: &Path) {}
