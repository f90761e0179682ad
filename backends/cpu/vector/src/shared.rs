//! A slice that tasks write concurrently.

use std::marker::PhantomData;

/// A mutable slice that tasks share, each writing its own part.
pub struct SharedSlice<'a, T> {
    ptr: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: access needs `unsafe`, whose contract excludes overlapping parts.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}
// SAFETY: as for a mutable slice.
unsafe impl<T: Send> Send for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    /// Shares `data`.
    pub fn new(data: &'a mut [T]) -> SharedSlice<'a, T> {
        SharedSlice { ptr: data.as_mut_ptr(), len: data.len(), life: PhantomData }
    }

    /// Elements `start..start + len`.
    ///
    /// # Safety
    /// No two parts that are alive at once overlap.
    ///
    /// # Panics
    /// If the part is not inside the slice.
    #[allow(clippy::mut_from_ref, reason = "the contract excludes overlapping parts")]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part inside the slice");
        // SAFETY: inside the slice by the assertion, exclusive by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }

    /// A pointer to element `start`, which must be inside the slice or one past its end.
    pub fn at(&self, start: usize) -> *mut T {
        assert!(start <= self.len, "element inside the slice");
        // SAFETY: inside the allocation by the assertion.
        unsafe { self.ptr.add(start) }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
