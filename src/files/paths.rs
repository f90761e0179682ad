//! Paths: which ones mean standard streams, and which denote the same file.

use super::write::WriteTarget;
use std::path::{Path, PathBuf};

/// True if a name to read from stands for standard input.
pub fn is_input_stream(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdin")
}

/// True if a name to write to stands for standard output.
pub fn is_output_stream(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdout")
}

/// True if both names are of one file, there already or yet to be written: by another spelling, a symbolic or a hard link.
pub fn same(a: &Path, b: &Path) -> bool {
    let place = |p: &Path| match WriteTarget::of(p) {
        Ok(WriteTarget::File(path)) => Some(path),
        _ => None,
    };
    identity(a).is_some() && identity(a) == identity(b)
        || place(a).is_some() && place(a) == place(b)
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some((meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<std::path::PathBuf> {
    std::fs::canonicalize(path).ok().filter(|p| p.is_file())
}

/// Two arguments that name one file.
#[derive(Debug, thiserror::Error)]
#[error("{first} and {second} are one file: {}\nhelp: give each a name of its own", path.display())]
pub struct Clash {
    first: String,
    second: String,
    path: PathBuf,
}

/// A file as the command line names it: by which argument, and its path.
pub type Named<'a> = (&'a str, &'a Path);

/// Refuses outputs that would overwrite each other or what is read, two readers of standard input and two writers of
/// standard output.
///
/// # Errors
/// Two arguments name one file.
pub fn distinct(reads: &[Named<'_>], writes: &[Named<'_>]) -> Result<(), Clash> {
    let clash = |(a, path): Named<'_>, b: &str| Clash {
        first: a.to_string(),
        second: b.to_string(),
        path: path.to_path_buf(),
    };
    for (i, &write) in writes.iter().enumerate() {
        for other in &writes[i + 1..] {
            let streams = is_output_stream(write.1) && is_output_stream(other.1);
            if streams || same(write.1, other.1) {
                return Err(clash(write, other.0));
            }
        }
        let read = reads.iter().find(|r| !is_output_stream(write.1) && same(write.1, r.1));
        if let Some(read) = read {
            return Err(clash(write, read.0));
        }
    }
    let mut streams = reads.iter().filter(|r| is_input_stream(r.1));
    if let (Some(first), Some(second)) = (streams.next(), streams.next()) {
        return Err(clash(*first, second.0));
    }
    Ok(())
}
