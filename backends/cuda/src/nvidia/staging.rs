//! Pinned staging memory through which all copies of a stream go.
//!
//! A copy may still be under way when the call that started it returns, and the caller's bytes could be gone by then; pinned memory stays.

use std::ffi::c_void;
use std::ops::Range;

/// Bytes that a stream has at most.
pub const MOST: usize = 16 << 20;
/// Bytes that it has at least.
const LEAST: usize = 64 << 10;

/// Bytes that one copy takes at most: while some are on their way, others are written.
pub const PIECE: usize = MOST / 4;

/// Bytes to ask the driver for, so that copies of so many bytes fit beside what is there.
pub fn wanted(bytes: usize) -> usize {
    bytes.clamp(LEAST, MOST).next_power_of_two()
}

/// Parts of the memory that copies under way have.
pub struct Staging {
    start: *mut u8,
    size: usize,
    used: usize,
}

// SAFETY: the memory belongs to this value alone, and the driver's memory is that of all threads.
unsafe impl Send for Staging {}

impl Staging {
    /// Takes over memory.
    ///
    /// # Safety
    /// `size` bytes at `start` are valid, initialised and used by nothing else until the value is gone.
    pub unsafe fn new(start: *mut c_void, size: usize) -> Staging {
        Staging { start: start.cast(), size, used: 0 }
    }

    /// The memory, to be given back to the driver.
    pub fn into_raw(self) -> *mut c_void {
        self.start.cast()
    }

    /// Bytes of the memory.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A part that no copy under way has, if there is one of so many bytes.
    pub fn take(&mut self, bytes: usize) -> Option<Range<usize>> {
        let end = self.used.checked_add(bytes).filter(|&end| end <= self.size)?;
        let part = self.used..end;
        self.used = end.next_multiple_of(256);
        Some(part)
    }

    /// The bytes of a part.
    pub fn part(&mut self, part: Range<usize>) -> &mut [u8] {
        assert!(part.end <= self.size, "a part of this memory");
        // SAFETY: the part lies within the memory, which this value has alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(part.start), part.len()) }
    }

    /// Gives all parts back. No copy may be under way.
    pub fn reset(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_do_not_exceed_the_memory() {
        let mut memory = vec![0u8; 1024];
        // SAFETY: the bytes outlive the value, and only it uses them.
        let mut staging = unsafe { Staging::new(memory.as_mut_ptr().cast(), 1024) };
        assert_eq!(staging.take(100), Some(0..100));
        assert_eq!(staging.take(700), Some(256..956));
        assert_eq!(staging.take(1), None);
        staging.part(256..956).fill(1);
        assert_eq!(staging.part(0..100), [0; 100]);
        staging.reset();
        assert_eq!(staging.take(1024), Some(0..1024));
        assert_eq!((staging.take(usize::MAX), staging.take(1)), (None, None));
    }

    #[test]
    fn memory_grows_with_what_is_copied() {
        for (bytes, wants) in
            [(0, LEAST), (1, LEAST), (LEAST + 1, 2 * LEAST), (MOST, MOST), (usize::MAX, MOST)]
        {
            assert_eq!(wanted(bytes), wants, "{bytes}");
        }
    }
}
