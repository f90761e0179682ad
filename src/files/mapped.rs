//! Files that are read where the system maps them.
//!
//! Pages that were read once count as the process's memory until the system needs them, or until they are given back here; read again they come
//! from the system's own cache. Never changes what is read.

use bytes::Bytes;
use memmap2::Mmap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The files that are mapped now.
static ALL: Mutex<Vec<Weak<Mmap>>> = Mutex::new(vec![]);

/// A map as bytes that own it.
pub(crate) fn bytes(map: Mmap) -> Bytes {
    let map = Arc::new(map);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|map| map.strong_count() > 0);
    all.push(Arc::downgrade(&map));
    Bytes::from_owner(Owner(map))
}

struct Owner(Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Gives back the pages of all mapped files: what is still read of them is mapped once more when it is.
pub fn give_back_pages() {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    for map in all.iter().filter_map(Weak::upgrade) {
        // A system that refuses keeps the pages, which changes no value.
        #[cfg(unix)]
        // SAFETY: the maps are of files and only read, so that a page that is dropped is the same when it is read again.
        let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        drop(map);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn bytes_are_the_same_when_their_pages_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let content: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &content).expect("written");
        // SAFETY: nobody else knows the file.
        let map = unsafe { Mmap::map(&File::open(&path).expect("a file")) }.expect("mapped");
        let bytes = bytes(map);
        let part = bytes.slice(5000..90_000);
        assert_eq!(bytes, content);
        give_back_pages();
        assert_eq!(bytes, content);
        drop(bytes);
        give_back_pages();
        assert_eq!(part, content[5000..90_000]);
    }
}
