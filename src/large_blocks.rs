//! Large blocks of memory are the system's own: mapped when they are asked for, in huge pages where there are any, and given
//! back when they are dropped.
//!
//! Never holds a block in reserve: what weights took while they were read and folded is free for what comes then. A block
//! that would fall into small pages costs half a microsecond for each of them when it is first written; a huge one has 512.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

/// Blocks from so many bytes on.
const LARGE: usize = 4 << 20;

/// Alignment that every mapping has.
const PAGE: usize = 4096;

/// The system's allocator, and mappings for large blocks.
pub struct LargeBlocks;

fn is_large(size: usize, layout: Layout) -> bool {
    size >= LARGE && layout.align() <= PAGE
}

/// A new mapping, zeros; null if there is no room.
fn map(size: usize) -> *mut u8 {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of no file, at a place that the system chooses, touches no memory in use.
    let at = unsafe { libc::mmap(null_mut(), size, access, kind, -1, 0) };
    if at == libc::MAP_FAILED { null_mut() } else { in_huge_pages(at.cast(), size) }
}

/// Asks for huge pages; a system without them refuses, which changes no value.
fn in_huge_pages(at: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: advice on a mapping of that size, which is not shared with anything.
    unsafe { libc::madvise(at.cast(), size, libc::MADV_HUGEPAGE) };
    at
}

// SAFETY: a block is the system's or a mapping by its size and alignment alone, which are the same when it is dropped.
unsafe impl GlobalAlloc for LargeBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_large(layout.size(), layout) {
            true => map(layout.size()),
            // SAFETY: as the caller promises.
            false => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_large(layout.size(), layout) {
            true => map(layout.size()),
            // SAFETY: as the caller promises.
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_large(layout.size(), layout) {
            // SAFETY: the block is a whole mapping, which nobody uses any more.
            unsafe { libc::munmap(at.cast(), layout.size()) };
        } else {
            // SAFETY: as the caller promises.
            unsafe { System.dealloc(at, layout) };
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (is_large(layout.size(), layout), is_large(size, layout)) {
            (true, true) => {
                // SAFETY: the block is a whole mapping; it is only used at its new place.
                let to =
                    unsafe { libc::mremap(at.cast(), layout.size(), size, libc::MREMAP_MAYMOVE) };
                if to == libc::MAP_FAILED { null_mut() } else { in_huge_pages(to.cast(), size) }
            }
            // SAFETY: as the caller promises.
            (false, false) => unsafe { System.realloc(at, layout, size) },
            (true, false) | (false, true) => {
                // SAFETY: the caller promises that the new size is valid for this alignment.
                let new =
                    unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
                if !new.is_null() {
                    // SAFETY: both blocks have as many bytes, and the new one is nobody else's.
                    unsafe {
                        at.copy_to_nonoverlapping(new, size.min(layout.size()));
                        self.dealloc(at, layout);
                    }
                }
                new
            }
        }
    }
}
