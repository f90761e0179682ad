//! Memory of the host that a device may read and write at any time, through which all copies go.
//!
//! A copy may still be under way when the call that started it returns; the caller's bytes could be gone by then, and
//! these are not.

use std::ffi::c_void;

/// Bytes of the memory.
const SIZE: usize = 16 << 20;

/// Bytes that one copy takes at most: while some are on their way, others are written.
pub const PIECE: usize = SIZE / 4;

/// Parts of the memory that copies under way have.
pub struct Staging {
    start: *mut u8,
    used: usize,
}

// SAFETY: the memory belongs to this value alone, and the driver's memory is that of all threads.
unsafe impl Send for Staging {}

impl Staging {
    /// Bytes to ask the driver for.
    pub const BYTES: usize = SIZE;

    /// Takes over memory.
    ///
    /// # Safety
    /// [`BYTES`](Self::BYTES) bytes at `start` are valid, initialised and used by nothing else until the value is gone.
    pub unsafe fn new(start: *mut c_void) -> Staging {
        Staging { start: start.cast(), used: 0 }
    }

    /// The memory, to be given back to the driver.
    pub fn into_raw(self) -> *mut c_void {
        self.start.cast()
    }

    /// True if there is such a part.
    pub fn fits(&self, bytes: usize) -> bool {
        self.used.checked_add(bytes).is_some_and(|end| end <= SIZE)
    }

    /// A part that no copy under way has, if there is one of so many bytes.
    pub fn part(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if !self.fits(bytes) {
            return None;
        }
        // SAFETY: the part lies within the memory, and parts do not overlap until all are given back.
        let part = unsafe { std::slice::from_raw_parts_mut(self.start.add(self.used), bytes) };
        self.used = (self.used + bytes).next_multiple_of(256);
        Some(part)
    }

    /// Gives all parts back. No copy may be under way.
    pub fn reset(&mut self) {
        self.used = 0;
    }
}
