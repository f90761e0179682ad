//! On-disk cache of compiled code, keyed by its source.
//!
//! A cache and nothing more: what cannot be read is compiled again, what cannot be written is not kept.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// What every file begins with: its format.
const MAGIC: &[u8] = b"mlc-rewrite cubin 1\n";

/// Files that are kept; the oldest go first.
const MOST: usize = 8192;

/// The folder of the cache, if the environment says where caches lie.
fn folder() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("mlc-rewrite").join("cubin"))
}

/// Code that was compiled from `key` before.
pub fn find(key: &[u8]) -> Option<Vec<u8>> {
    let bytes = fs::read(folder()?.join(name(key))).ok()?;
    Some(unpacked(&bytes, key)?.to_vec())
}

/// Keeps code for later processes, if possible.
pub fn keep(key: &[u8], code: &[u8]) {
    keep_all([(key, code)]);
}

/// The same for several keys, each with its code.
pub fn keep_all<'a>(all: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
    let Some(folder) = folder() else { return };
    let mut all = all.into_iter().peekable();
    if all.peek().is_some() {
        all.for_each(|(key, code)| drop(written(&folder, key, code)));
        let _ = thinned(&folder);
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn name(key: &[u8]) -> String {
    format!("{:016x}.cubin", hash(key))
}

/// The file's content: format, length of the key, key, code, hash of all that. Keys of one name are told apart by
/// comparing them whole.
fn packed(key: &[u8], code: &[u8]) -> Vec<u8> {
    let length = (key.len() as u64).to_le_bytes();
    let mut out = [MAGIC, &length, key, code].concat();
    out.extend(hash(&out).to_le_bytes());
    out
}

/// The code in a file, if the file is whole and that of the key.
fn unpacked<'a>(bytes: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let (content, end) = bytes.split_last_chunk::<8>()?;
    if hash(content) != u64::from_le_bytes(*end) {
        return None;
    }
    let (length, rest) = content.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*length) != key.len() as u64 {
        return None;
    }
    rest.strip_prefix(key)
}

/// Writes a file of another name and renames it, so that readers see whole files only.
fn written(folder: &Path, key: &[u8], code: &[u8]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(folder)?;
    let own = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let temporary = folder.join(format!("{}.{}.tmp", own.0, own.1));
    let done = fs::write(&temporary, packed(key, code))
        .and_then(|()| fs::rename(&temporary, folder.join(name(key))));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// Removes the oldest files if there are too many.
fn thinned(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    let surplus = files.len().saturating_sub(MOST);
    if surplus > 0 {
        files.sort();
    }
    files.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_yields_the_code_of_its_key_and_of_no_other() {
        let file = packed(b"key", b"code");
        assert_eq!(unpacked(&file, b"key"), Some(&b"code"[..]));
        assert_eq!(unpacked(&packed(b"key", b""), b"key"), Some(&b""[..]));
        for other in [&b"kez"[..], b"keyc", b"ke", b""] {
            assert_eq!(unpacked(&file, other), None);
        }
    }

    #[test]
    fn a_damaged_file_yields_nothing() {
        let file = packed(b"key", b"code");
        for at in 0..file.len() {
            assert_eq!(unpacked(&file[..at], b"key"), None, "cut at {at}");
            let mut other = file.clone();
            other[at] ^= 1;
            assert_eq!(unpacked(&other, b"key"), None, "changed at {at}");
        }
    }

    #[test]
    fn what_is_written_is_found() {
        let folder = std::env::temp_dir().join(format!("mlc-cubins-{}", std::process::id()));
        written(&folder, b"key", b"code").expect("written");
        let names: Vec<_> = fs::read_dir(&folder).expect("a folder").flatten().collect();
        assert_eq!(names.len(), 1, "no temporary file is left");
        let bytes = fs::read(folder.join(name(b"key"))).expect("read");
        assert_eq!(unpacked(&bytes, b"key"), Some(&b"code"[..]));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
