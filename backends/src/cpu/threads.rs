//! Work distribution over a fixed number of threads.
//!
//! The division of work never affects results: the result of a task depends on its index only.

use rayon::prelude::*;
use std::marker::PhantomData;

/// A pool of threads.
pub struct Threads {
    pool: Option<rayon::ThreadPool>,
    count: usize,
}

impl Threads {
    /// `count` threads; 0 for one per core. Falls back to the calling thread if none can be started.
    pub fn new(count: usize) -> Threads {
        let count = match count {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        let pool = (count > 1)
            .then(|| rayon::ThreadPoolBuilder::new().num_threads(count).build().ok())
            .flatten();
        let count = if pool.is_some() { count } else { 1 };
        Threads { pool, count }
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Calls `f` on a thread of the pool, so that nested parallel calls need not enter it again.
    pub fn enter<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(f),
            None => f(),
        }
    }

    /// Tasks that so much work is cut into, each of `grain` at least.
    pub fn tasks(&self, work: usize, grain: usize) -> usize {
        match self.count {
            1 => 1,
            threads => (work / grain.max(1)).clamp(1, threads * 4),
        }
    }

    /// Calls `f` for every task, in any order.
    pub fn each(&self, tasks: usize, f: impl Fn(usize) + Sync) {
        match &self.pool {
            Some(pool) if tasks > 1 => {
                pool.install(|| (0..tasks).into_par_iter().with_max_len(1).for_each(&f));
            }
            _ => (0..tasks).for_each(f),
        }
    }

    /// Calls `f` with the index of its first element and each chunk of `data`, in any order. `grain` is the least useful
    /// number of elements per task, `align` what the chunk's length is a multiple of.
    pub fn chunks<T: Send>(
        &self,
        data: &mut [T],
        align: usize,
        grain: usize,
        f: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let align = align.max(1);
        let tasks = (data.len() / grain.max(1)).clamp(1, self.count * 4);
        let size = data.len().div_ceil(tasks).div_ceil(align).max(1) * align;
        match &self.pool {
            Some(pool) if tasks > 1 => pool.install(|| {
                data.par_chunks_mut(size).enumerate().for_each(|(i, c)| f(i * size, c));
            }),
            _ if data.is_empty() => {}
            _ => f(0, data),
        }
    }
}

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
}
